//! The steps of a queue on the writer's connection: what `tidegate_core::queue::Queue` does in memory, as statements.

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Result, Row};
use tidegate_core::queue::model::lapsed_error;
use tidegate_core::queue::rules::{batch_with_lapsed, is_suspect, newest_of, next_receipt, replaces, retry_delay_ms};
use tidegate_core::queue::{
    Claimed, MAX_BATCH, MAX_BATCH_BYTES, QueueName, Receipt, Schedule, Scheduled, Settle, Settled, Task, TaskId,
    TaskState, Verdict,
};
use tidegate_core::{Map, Millis};

use super::super::row;

/// Columns that [`Stored::read`] reads, of `tasks`.
pub(super) const COLUMNS: &str = "id, dead, leased, at, due_at, attempt, receipt, error, payload";
/// The earliest instant of a queue.
const NEXT_AT: &str = "SELECT at FROM tasks WHERE queue_no = ?1 AND dead = 0 ORDER BY at LIMIT 1";
/// Longer payloads lie in a table of their own.
const INLINE_BYTES: usize = 256;

fn find_sql() -> String {
    format!("SELECT {COLUMNS} FROM tasks WHERE queue_no = ?1 AND id = ?2")
}

/// A row of `tasks`.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    id: TaskId,
    dead: bool,
    leased: bool,
    at: Millis,
    due_at: Millis,
    attempt: u32,
    receipt: Receipt,
    error: Option<String>,
    /// `None`: it lies in `payloads`.
    payload: Option<Bytes>,
}

impl Stored {
    fn fresh(id: &TaskId, due_at: Millis, payload: Bytes) -> Self {
        let (at, receipt, payload) = (due_at, Receipt(0), Some(payload));
        Self { id: id.clone(), dead: false, leased: false, at, due_at, attempt: 0, receipt, error: None, payload }
    }

    pub(super) fn read(r: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row::id(r, 0)?,
            dead: r.get(1)?,
            leased: r.get(2)?,
            at: Millis(r.get(3)?),
            due_at: Millis(r.get(4)?),
            attempt: r.get(5)?,
            receipt: Receipt(r.get::<_, i64>(6)?.cast_unsigned()),
            error: r.get(7)?,
            payload: r.get::<_, Option<Vec<u8>>>(8)?.map(Bytes::from),
        })
    }

    /// With its payload, wherever that lies.
    pub(super) fn whole(mut self, conn: &Connection, queue_no: i64) -> Result<Self> {
        if self.payload.is_none() {
            let mut select = conn.prepare_cached("SELECT payload FROM payloads WHERE queue_no = ?1 AND id = ?2")?;
            let id = self.id.as_str().as_bytes();
            let bytes: Vec<u8> = select.query_row((queue_no, id), |r| r.get(0))?;
            self.payload = Some(bytes.into());
        }
        Ok(self)
    }

    /// As the rules see it; of a [`Stored::whole`] one.
    pub(super) fn view(self, now: Millis) -> Task {
        let state = match (self.dead, self.leased && self.at > now) {
            (true, _) => TaskState::Dead,
            (false, true) => TaskState::Leased,
            (false, false) => TaskState::Pending,
        };
        Task {
            id: self.id,
            state,
            due_at: self.due_at,
            visible_at: self.at,
            payload: self.payload.unwrap_or_default(),
            attempt: self.attempt,
            last_error: self.error.filter(|error| !error.is_empty()),
            dead_at: self.dead.then_some(self.at),
        }
    }
}

/// A queue's row, held by the writer while its transaction runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    no: i64,
    live: i64,
    dead: i64,
    last_receipt: u64,
    changed: bool,
    /// When something can be handed out next: as the transaction found it, or as its last claim was told. What is scheduled
    /// before it moves the head forward.
    next_at: Option<Option<Millis>>,
}

impl Head {
    /// Of a queue without tasks.
    fn new(no: i64) -> Self {
        Self { no, live: 0, dead: 0, last_receipt: 0, changed: false, next_at: None }
    }
}

/// The writer's transaction: everything in it is of one instant, and durable together or not at all.
pub(super) struct Step<'a> {
    conn: &'a Connection,
    pub now: Millis,
    pub now_us: u64,
    max_queues: usize,
    max_attempts: u32,
    heads: Map<QueueName, Option<Head>>,
    /// Whether a queue's head moved forward.
    pub earlier: bool,
}

/// Why nothing was scheduled: one queue more than there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMany;

impl<'a> Step<'a> {
    pub(super) fn new(conn: &'a Connection, now: Millis, max_queues: usize, max_attempts: u32) -> Self {
        let now_us = now.0.max(0).unsigned_abs() * 1_000;
        Self { conn, now, now_us, max_queues, max_attempts, heads: Map::default(), earlier: false }
    }

    /// Writes the queues' numbers; the transaction may commit then.
    pub(super) fn finish(&mut self) -> Result<bool> {
        let sql = "UPDATE queues SET live = ?2, dead = ?3, last_receipt = ?4 WHERE queue_no = ?1";
        let mut update = self.conn.prepare_cached(sql)?;
        for head in self.heads.values().flatten().filter(|head| head.changed) {
            update.execute((head.no, head.live, head.dead, head.last_receipt.cast_signed()))?;
        }
        Ok(self.earlier)
    }

    fn sql(&self, sql: &str) -> Result<CachedStatement<'a>> {
        self.conn.prepare_cached(sql)
    }

    /// The queue's row, if it has begun.
    fn head(&mut self, queue: &QueueName) -> Result<Option<Head>> {
        if let Some(head) = self.heads.get(queue) {
            return Ok(*head);
        }
        let mut select = self.sql("SELECT queue_no, live, dead, last_receipt FROM queues WHERE name = ?1")?;
        let read = |r: &Row<'_>| {
            let last_receipt = r.get::<_, i64>(3)?.cast_unsigned();
            Ok(Head { live: r.get(1)?, dead: r.get(2)?, last_receipt, ..Head::new(r.get(0)?) })
        };
        let head = select.query_row([queue.as_str()], read).optional()?;
        self.heads.insert(queue.clone(), head);
        Ok(head)
    }

    fn begin(&mut self, queue: &QueueName) -> Result<std::result::Result<Head, TooMany>> {
        if let Some(head) = self.head(queue)? {
            return Ok(Ok(head));
        }
        let there: i64 = self.sql("SELECT count(*) FROM queues")?.query_row([], |r| r.get(0))?;
        if there.cast_unsigned() >= self.max_queues as u64 {
            return Ok(Err(TooMany));
        }
        self.sql("INSERT INTO queues (name, live, dead, last_receipt) VALUES (?1, 0, 0, 0)")?
            .execute([queue.as_str()])?;
        let head = Head::new(self.conn.last_insert_rowid());
        self.heads.insert(queue.clone(), Some(head));
        Ok(Ok(head))
    }

    fn keep(&mut self, queue: &QueueName, head: Head) {
        self.heads.insert(queue.clone(), Some(Head { changed: true, ..head }));
    }

    fn find(&self, head: &Head, id: &TaskId) -> Result<Option<Stored>> {
        let mut select = self.sql(&find_sql())?;
        select.query_row((head.no, id.as_str().as_bytes()), Stored::read).optional()
    }

    /// Adds a task; false, and nothing is done, if there is one with its id.
    fn insert(&self, head: &mut Head, task: &Stored) -> Result<bool> {
        let sql = "INSERT INTO tasks (queue_no, id, dead, leased, at, due_at, attempt, receipt, error, payload) \
            VALUES (?1, ?2, 0, 0, ?3, ?4, 0, 0, NULL, ?5) ON CONFLICT DO NOTHING";
        let id = task.id.as_str().as_bytes();
        let payload = task.payload.as_deref().unwrap_or_default();
        let inline = Some(payload).filter(|payload| payload.len() <= INLINE_BYTES);
        if self.sql(sql)?.execute((head.no, id, task.at.0, task.due_at.0, inline))? == 0 {
            return Ok(false);
        }
        if inline.is_none() {
            let sql = "INSERT INTO payloads (queue_no, id, payload) VALUES (?1, ?2, ?3)";
            self.sql(sql)?.execute((head.no, id, payload))?;
        }
        head.live += 1;
        Ok(true)
    }

    /// Writes everything but the payload.
    fn update(&self, head: &Head, task: &Stored) -> Result<()> {
        let sql = "UPDATE tasks SET dead = ?3, leased = ?4, at = ?5, due_at = ?6, attempt = ?7, receipt = ?8, error = ?9 \
            WHERE queue_no = ?1 AND id = ?2";
        let id = task.id.as_str().as_bytes();
        let receipt = task.receipt.0.cast_signed();
        let values =
            (head.no, id, task.dead, task.leased, task.at.0, task.due_at.0, task.attempt, receipt, &task.error);
        self.sql(sql)?.execute(values)?;
        Ok(())
    }

    fn delete(&self, head: &mut Head, task: &Stored) -> Result<()> {
        let id = task.id.as_str().as_bytes();
        self.sql("DELETE FROM tasks WHERE queue_no = ?1 AND id = ?2")?.execute((head.no, id))?;
        if task.payload.is_none() {
            self.sql("DELETE FROM payloads WHERE queue_no = ?1 AND id = ?2")?.execute((head.no, id))?;
        }
        *(if task.dead { &mut head.dead } else { &mut head.live }) -= 1;
        Ok(())
    }

    /// When something can be handed out next.
    fn next_at(&self, head: &Head) -> Result<Option<Millis>> {
        Ok(row::one(self.conn, NEXT_AT, [head.no])?.map(Millis))
    }

    /// As `Queue::schedule`, task after task.
    pub(super) fn schedule(
        &mut self,
        queue: &QueueName,
        tasks: &[Schedule],
    ) -> Result<std::result::Result<Vec<Scheduled>, TooMany>> {
        let mut head = match self.begin(queue)? {
            Ok(head) => head,
            Err(too_many) => return Ok(Err(too_many)),
        };
        let before = match head.next_at {
            Some(before) => before,
            None => self.next_at(&head)?,
        };
        let mut first = None::<Millis>;
        let mut answers = Vec::with_capacity(tasks.len());
        for asked in tasks {
            let answer = self.schedule_one(&mut head, asked)?;
            if answer.scheduled {
                first = Some(first.map_or(answer.task.visible_at, |first| first.min(answer.task.visible_at)));
            }
            answers.push(answer);
        }
        self.earlier |= first.is_some_and(|first| before.is_none_or(|before| first < before));
        head.next_at = Some(before.into_iter().chain(first).min());
        self.keep(queue, head);
        Ok(Ok(answers))
    }

    fn schedule_one(&self, head: &mut Head, asked: &Schedule) -> Result<Scheduled> {
        let due_at = asked.due.at(self.now);
        let task = Stored::fresh(&asked.id, due_at, asked.payload.clone());
        // Most are new: they are not looked for first.
        let new = self.insert(head, &task)?;
        if !new && let Some(old) = self.find(head, &asked.id)? {
            if !replaces(asked.condition, old.due_at, due_at) {
                let task = old.whole(self.conn, head.no)?.view(self.now);
                return Ok(Scheduled { new, scheduled: false, task });
            }
            self.delete(head, &old)?;
            self.insert(head, &task)?;
        }
        Ok(Scheduled { new, scheduled: true, task: task.view(self.now) })
    }

    /// As `Queue::cancel`, task after task.
    pub(super) fn cancel(&mut self, queue: &QueueName, ids: &[TaskId]) -> Result<Vec<bool>> {
        let Some(mut head) = self.head(queue)? else { return Ok(vec![false; ids.len()]) };
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            let task = self.find(&head, id)?;
            if let Some(task) = &task {
                self.delete(&mut head, task)?;
            }
            answers.push(task.is_some());
        }
        self.keep(queue, head);
        Ok(answers)
    }

    /// As `Queue::claim`; and when something more can be handed out.
    pub(super) fn claim(
        &mut self,
        queue: &QueueName,
        max: usize,
        lease_ms: i64,
    ) -> Result<(Vec<Claimed>, Option<Millis>)> {
        let Some(mut head) = self.head(queue)? else { return Ok((Vec::new(), None)) };
        let max = max.min(MAX_BATCH);
        let (mut limit, mut bytes, mut claimed) = (max, 0, Vec::new());
        let candidates = self.candidates(&head, max)?;
        let touched = !candidates.is_empty();
        for mut task in candidates {
            if task.leased && task.attempt >= self.max_attempts {
                self.bury(&mut head, task, Some(lapsed_error(self.max_attempts)))?;
                continue;
            }
            let allowed = if task.leased { batch_with_lapsed(max, task.attempt, self.max_attempts) } else { max };
            if claimed.len() >= limit.min(allowed) {
                continue;
            }
            let payload = task.clone().whole(self.conn, head.no)?.payload.unwrap_or_default();
            if !claimed.is_empty() && bytes + payload.len() > MAX_BATCH_BYTES {
                break;
            }
            limit = limit.min(allowed);
            bytes += payload.len();
            let visible_at = task.at;
            let suspect = is_suspect(task.leased, task.attempt, self.max_attempts);
            head.last_receipt = next_receipt(head.last_receipt, self.now_us);
            task.leased = true;
            task.attempt += 1;
            task.at = self.now.plus(lease_ms);
            task.receipt = Receipt(head.last_receipt);
            self.update(&head, &task)?;
            claimed.push(Claimed {
                id: task.id,
                due_at: task.due_at,
                visible_at,
                payload,
                attempt: task.attempt,
                receipt: task.receipt,
                lease_until: task.at,
                suspect,
            });
        }
        let next_at = self.next_at(&head)?;
        head.next_at = Some(next_at);
        if head.changed || touched {
            self.keep(queue, head);
        } else {
            // A claim that found nothing writes nothing: an idle worker's looks leave the disk alone.
            self.heads.insert(queue.clone(), Some(head));
        }
        Ok((claimed, next_at))
    }

    fn candidates(&self, head: &Head, max: usize) -> Result<Vec<Stored>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let due = "FROM tasks WHERE queue_no = ?1 AND dead = 0 AND at <= ?2";
        let mut more = self.sql(&format!("SELECT 1 {due} LIMIT 1 OFFSET ?3"))?;
        let piled = more.exists((head.no, self.now.0, max as i64))?;
        let newest = if piled { newest_of(max) } else { 0 };
        let mut tasks = Vec::with_capacity(max);
        for (order, limit) in [("at, id", max - newest), ("at DESC, id DESC", newest)] {
            let mut select = self.sql(&format!("SELECT {COLUMNS} {due} ORDER BY {order} LIMIT ?3"))?;
            for task in select.query_map((head.no, self.now.0, limit as i64), Stored::read)? {
                tasks.push(task?);
            }
        }
        Ok(tasks)
    }

    fn bury(&self, head: &mut Head, task: Stored, error: Option<String>) -> Result<()> {
        head.live -= 1;
        head.dead += 1;
        self.update(head, &Stored { dead: true, leased: false, at: self.now, error, ..task })
    }

    /// As `Queue::settle`, task after task.
    pub(super) fn settle(&mut self, queue: &QueueName, tasks: &[Settle]) -> Result<Vec<Settled>> {
        let Some(mut head) = self.head(queue)? else { return Ok(vec![Settled::Lost; tasks.len()]) };
        let mut answers = Vec::with_capacity(tasks.len());
        for asked in tasks {
            answers.push(self.settle_one(&mut head, asked)?);
        }
        self.keep(queue, head);
        Ok(answers)
    }

    fn settle_one(&mut self, head: &mut Head, asked: &Settle) -> Result<Settled> {
        let held = |task: &Stored| task.leased && task.receipt == asked.receipt;
        let Some(mut task) = self.find(head, &asked.id)?.filter(held) else { return Ok(Settled::Lost) };
        match &asked.verdict {
            Verdict::Ack => {
                self.delete(head, &task)?;
                return Ok(Settled::Done);
            }
            Verdict::Retry { error, .. } if task.attempt >= self.max_attempts => {
                self.bury(head, task, error.clone())?;
                return Ok(Settled::Dead);
            }
            Verdict::Extend(lease_ms) => task.at = self.now.plus(*lease_ms),
            Verdict::Release => {
                task.leased = false;
                task.attempt -= 1;
                task.at = task.due_at;
            }
            Verdict::Retry { delay_ms, spread, error } => {
                let delay = delay_ms.unwrap_or_else(|| retry_delay_ms(task.attempt, *spread));
                task.leased = false;
                task.at = self.now.plus(delay).min(Millis::MAX);
                task.error.clone_from(error);
            }
        }
        self.earlier |= !task.leased;
        self.update(head, &task)?;
        Ok(Settled::Done)
    }

    /// As `Queue::requeue`.
    pub(super) fn requeue(&mut self, queue: &QueueName, id: &TaskId, delay_ms: i64) -> Result<Option<Task>> {
        let Some(mut head) = self.head(queue)? else { return Ok(None) };
        let Some(task) = self.find(&head, id)?.filter(|task| task.dead) else { return Ok(None) };
        let payload = task.whole(self.conn, head.no)?.payload.unwrap_or_default();
        let fresh = Stored::fresh(id, self.now.plus(delay_ms).min(Millis::MAX), payload);
        self.update(&head, &fresh)?;
        head.dead -= 1;
        head.live += 1;
        self.earlier = true;
        self.keep(queue, head);
        Ok(Some(fresh.view(self.now)))
    }

    /// As `Queue::purge`.
    pub(super) fn purge(&mut self, queue: &QueueName, before: Option<Millis>, max: usize) -> Result<(usize, bool)> {
        let Some(mut head) = self.head(queue)? else { return Ok((0, false)) };
        let before = before.map_or(i64::MAX, |before| before.0);
        let some = "WHERE queue_no = ?1 AND id IN \
            (SELECT id FROM tasks WHERE queue_no = ?1 AND dead = 1 AND at < ?2 ORDER BY at, id LIMIT ?3)";
        self.sql(&format!("DELETE FROM payloads {some}"))?.execute((head.no, before, max as i64))?;
        let gone = self.sql(&format!("DELETE FROM tasks {some}"))?.execute((head.no, before, max as i64))?;
        let mut rest = self.sql("SELECT 1 FROM tasks WHERE queue_no = ?1 AND dead = 1 AND at < ?2 LIMIT 1")?;
        let more = rest.exists((head.no, before))?;
        head.dead -= gone as i64;
        self.keep(queue, head);
        Ok((gone, more))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::StatementStatus;
    use tidegate_backend::{QueueStore, SystemClock, Want};
    use tidegate_core::queue::{Condition, Due};

    use super::super::{SqliteQueueOptions, SqliteQueues};
    use super::*;

    #[tokio::test]
    async fn statements_keep_the_plan_they_were_prepared_with() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteQueueOptions::new(folder.path().join("queues.db"));
        let queues = SqliteQueues::open(options, Arc::new(SystemClock)).await.unwrap();
        for name in ["a", "b", "c"].map(|name| QueueName::parse(name).unwrap()) {
            for n in 0..4 {
                let id = TaskId::parse(&format!("t{n}")).unwrap();
                let due = Due::At(Millis(n));
                let task = Schedule { id: id.clone(), due, payload: Bytes::new(), condition: Condition::Later };
                queues.schedule(&name, &[task.clone(), task]).await.unwrap();
                let want = Want { queue: name.clone(), max: 1, lease_ms: 1_000 };
                assert_eq!(queues.claim(&[want]).await.unwrap()[0].tasks.len(), 1);
                assert_eq!(queues.cancel(&name, &[id]).await.unwrap(), [true]);
            }
        }
        let parts = queues.parts().unwrap();
        let (used, anew) = parts.writer.run_blocking(|w| Ok(prepared(&w.conn).unwrap())).unwrap();
        assert!(used > 20, "{used}");
        assert_eq!(anew, 0);
    }

    /// How often the statements that every step uses ran, and were prepared anew.
    fn prepared(conn: &Connection) -> Result<(i32, i32)> {
        let mut sum = (0, 0);
        for sql in [find_sql().as_str(), NEXT_AT] {
            let statement = conn.prepare_cached(sql)?;
            sum.0 += statement.get_status(StatementStatus::Run);
            sum.1 += statement.get_status(StatementStatus::RePrepare);
        }
        Ok(sum)
    }
}
