//! C54: how much a step looks at. With tens of thousands of far, leased and dead tasks around its own it reads no more than its
//! own, whatever the statistics say.

use tidegate_backend::Want;
use tidegate_backend::queue::Listing;
use tidegate_core::Millis;
use tidegate_core::queue::{Claimed, Condition, Due, QueueName, Schedule, Settle, Settled, TaskId, TaskState, Verdict};

use super::claim::{self, Claims, Receipts};
use super::head::{self, QueueClock};
use super::read;
use super::steps::Step;
use crate::connect::{Address, Role};
use crate::crowd::{self, rows_read};
use crate::dialect::Dialect;
use crate::migrate;
use crate::session::{Isolation, Session};

/// Tasks of each kind around.
const ROWS: i64 = 20_000;
/// Tasks of a step.
const SIZE: usize = 50;
/// Rows that a step may look at for each of its tasks: the row and its index entries, read, locked, written.
const EACH: i64 = 12;

struct Looks {
    session: Session,
    reader: Session,
    clock: QueueClock,
    receipts: Receipts,
    queue: QueueName,
}

async fn fill(session: &mut Session, queue_no: i64, now: i64) {
    let (numbers, id) = match session.dialect() {
        Dialect::MySql => (format!("(SELECT seq AS n FROM seq_1_to_{ROWS}) q"), "CONCAT('x', n, k)"),
        Dialect::Postgres => (format!("generate_series(1, {ROWS}) n"), "CAST('x' || n || k AS BYTEA)"),
    };
    let payload = session.dialect().pick("''", "CAST('' AS BYTEA)");
    // Far ones, leased ones, dead ones.
    for (k, dead, leased, at) in [(1, 0, 0, now + 86_400_000), (2, 0, 1, now + 600_000), (3, 1, 0, now - 9_000_000)] {
        let sql = format!(
            "INSERT INTO tg_tasks (queue_no, id, dead, leased, at, due_at, attempt, receipt, payload)
            SELECT {queue_no}, {}, {dead}, {leased}, {at} + n, 0, {leased}, {leased}, {payload} FROM {numbers}",
            id.replace('k', &k.to_string())
        );
        session.script(&sql).await.unwrap();
    }
}

impl Looks {
    /// Statistics, where there are any, are of an empty table.
    async fn open(url: &str, analyzed: bool) -> Self {
        let address = Address::parse(url).unwrap();
        let mut session = address.connect(Role::Queue).await.unwrap();
        migrate::queues(&mut session).await.unwrap();
        if analyzed {
            let analyze = session.dialect().pick("ANALYZE TABLE tg_tasks, tg_queues", "ANALYZE");
            session.rows(analyze, &[]).await.unwrap();
        }
        let (clock, queue) = (QueueClock::new(), QueueName::parse("q").unwrap());
        let options = tidegate_backend::QueueOptions::default();
        let head = head::begin(&mut session, &clock, &queue, &options).await.unwrap().unwrap();
        fill(&mut session, head.no, head.now().0).await;
        let reader = address.connect(Role::Reader).await.unwrap();
        Self { session, reader, clock, receipts: Receipts::default(), queue }
    }

    /// Runs a step in a transaction; what it gave, and how many rows it read.
    async fn step<T>(&mut self, step: impl AsyncFnOnce(&mut Step<'_>) -> crate::fault::Result<T>) -> (T, i64) {
        let before = rows_read(&mut self.session).await;
        self.session.begin(Isolation::Write).await.unwrap();
        let head = head::find(&mut self.session, &self.clock, &self.queue).await.unwrap().unwrap();
        let value = step(&mut Step::new(&mut self.session, head, 20)).await.unwrap();
        self.session.commit().await.unwrap();
        (value, rows_read(&mut self.session).await - before)
    }

    async fn claim(&mut self) -> (Vec<Claimed>, i64) {
        let before = rows_read(&mut self.session).await;
        let heads = claim::heads(&mut self.session, &self.clock, &[&self.queue], false).await.unwrap();
        let (head, next_at) = heads[&self.queue];
        let claims = Claims { clock: &self.clock, receipts: &self.receipts, max_attempts: 20 };
        let want = Want { queue: self.queue.clone(), max: SIZE, lease_ms: 30_000 };
        self.session.begin(Isolation::Write).await.unwrap();
        let handout = claims.claim(&mut self.session, head, next_at.unwrap(), &want).await.unwrap();
        self.session.commit().await.unwrap();
        (handout.tasks, rows_read(&mut self.session).await - before)
    }

    async fn read<T>(
        &mut self,
        read: impl AsyncFnOnce(&mut Session, &QueueClock, &QueueName) -> crate::fault::Result<T>,
    ) -> (T, i64) {
        let before = rows_read(&mut self.reader).await;
        let value = read(&mut self.reader, &self.clock, &self.queue).await.unwrap();
        (value, rows_read(&mut self.reader).await - before)
    }
}

fn tasks() -> Vec<Schedule> {
    let task = |n: usize| Schedule {
        id: TaskId::parse(&format!("own{n}")).unwrap(),
        due: Due::In(0),
        payload: bytes::Bytes::from_static(b"p"),
        condition: Condition::Absent,
    };
    (0..SIZE).map(task).collect()
}

async fn nothing_looks_at_strangers(url: &str, analyzed: bool) {
    let mut looks = Looks::open(url, analyzed).await;
    let few = |what: &str, rows: i64| {
        assert!(rows > 0 && rows <= EACH * SIZE as i64, "{what} read {rows} rows (analyzed: {analyzed})");
    };
    let ids: Vec<TaskId> = tasks().into_iter().map(|task| task.id).collect();
    for verdict in [Verdict::Release, Verdict::Retry { delay_ms: Some(0), spread: 0, error: None }, Verdict::Ack] {
        let (_, rows) = looks.step(async |step| step.schedule(&tasks()).await).await;
        few("a schedule", rows);
        let (claimed, rows) = looks.claim().await;
        assert_eq!(claimed.len(), SIZE);
        few("a claim", rows);
        let settle = |task: &Claimed| Settle { id: task.id.clone(), receipt: task.receipt, verdict: verdict.clone() };
        let settles: Vec<Settle> = claimed.iter().map(settle).collect();
        let (settled, rows) = looks.step(async |step| step.settle(&settles).await).await;
        assert!(settled.iter().all(|settled| *settled == Settled::Done));
        few("an answer", rows);
        let (there, rows) =
            looks.read(async |session, clock, queue| read::get(session, clock, queue, &ids).await).await;
        assert_eq!(there.iter().flatten().count(), if verdict == Verdict::Ack { 0 } else { SIZE });
        if verdict != Verdict::Ack {
            few("a look", rows);
        }
    }
    let after = Some((Millis(0), ids[0].clone()));
    for listing in [Listing::Live(None), Listing::Live(Some(TaskState::Leased)), Listing::Dead] {
        let after = after.as_ref().filter(|_| listing == Listing::Live(None));
        let list = async |session: &mut Session, clock: &QueueClock, queue: &QueueName| {
            read::list(session, clock, queue, &listing, after, SIZE).await
        };
        let (page, rows) = looks.read(list).await;
        assert_eq!(page.len(), SIZE, "{listing:?}");
        few("a page", rows);
    }
    looks.step(async |step| step.schedule(&tasks()).await).await;
    let (gone, rows) = looks.step(async |step| step.cancel(&ids).await).await;
    assert_eq!(gone, vec![true; SIZE]);
    few("a cancel", rows);
    let ((purged, more), rows) = looks.step(async |step| step.purge(None, SIZE).await).await;
    assert_eq!((purged, more), (SIZE, true));
    few("a purge", rows);
    let (stats, _) = looks.read(async |session, clock, queue| read::stats(session, clock, queue).await).await;
    let (rows, stats) = (ROWS.unsigned_abs(), stats.unwrap());
    assert_eq!((stats.pending, stats.leased, stats.dead, stats.due), (rows, rows, rows - SIZE as u64, 0));
}

#[tokio::test]
async fn mysql_looks_at_nothing_but_its_own() {
    let server = crowd::mariadb();
    nothing_looks_at_strangers(&server.database(), false).await;
    nothing_looks_at_strangers(&server.database(), true).await;
}

#[tokio::test]
async fn postgres_looks_at_nothing_but_its_own() {
    let server = crowd::postgres();
    nothing_looks_at_strangers(&server.database(), false).await;
    nothing_looks_at_strangers(&server.database(), true).await;
}
