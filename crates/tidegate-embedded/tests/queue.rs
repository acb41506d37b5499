//! The delay queue in a file: the contract, what outlives the process, full disks, foreign files.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_backend::{BoxFuture, Clock, ErrorKind, ManualClock, QueueOptions, QueueStore, Want};
use tidegate_conformance::queue::{ATTEMPTS, Harness};
use tidegate_core::Millis;
use tidegate_core::queue::{Condition, Due, QueueName, Schedule, Settle, Settled, TaskId, Verdict};
use tidegate_embedded::{EmbeddedClock, SqliteQueueOptions, SqliteQueues};

struct InFile {
    queues: Arc<SqliteQueues>,
    clock: Arc<ManualClock>,
    _folder: TempDir,
}

impl Harness for InFile {
    fn store(&self) -> Arc<dyn QueueStore> {
        self.queues.clone()
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        let ms = i64::try_from(time.as_millis()).expect("short");
        self.clock.advance_to(self.clock.now().plus(ms)).expect("a manual clock");
        Box::pin(std::future::ready(()))
    }
}

fn options(folder: &TempDir) -> SqliteQueueOptions {
    let mut options = SqliteQueueOptions::new(folder.path().join("queues.db"));
    options.queues = QueueOptions { max_attempts: ATTEMPTS, ..QueueOptions::default() };
    options
}

async fn open() -> InFile {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Arc::new(ManualClock::new(Millis(1_800_000_000_000)));
    let queues = SqliteQueues::open(options(&folder), clock.clone()).await.expect("it opens");
    InFile { queues, clock, _folder: folder }
}

tidegate_conformance::queue_conformance!(open);

fn name() -> QueueName {
    QueueName::parse("mail").expect("a name")
}

fn task(n: usize, at: i64) -> Schedule {
    let id = TaskId::parse(&format!("t{n}")).expect("an id");
    Schedule { id, due: Due::At(Millis(at)), payload: Bytes::from_static(b"1"), condition: Condition::Absent }
}

async fn claim(queues: &SqliteQueues, max: usize) -> Vec<tidegate_core::queue::Claimed> {
    queues.claim(&[Want { queue: name(), max, lease_ms: 60_000 }]).await.expect("it answers").remove(0).tasks
}

#[tokio::test]
async fn what_was_answered_outlives_the_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = || Arc::new(EmbeddedClock::new(None));
    let queues = SqliteQueues::open(options(&folder), clock()).await.expect("it opens");
    let owned = SqliteQueues::open(options(&folder), clock()).await.expect_err("one process owns it");
    assert_eq!(owned.kind(), ErrorKind::Owned);
    assert!(owned.to_string().contains("queue file"), "{owned}");
    let tasks: Vec<_> = (0..10).map(|n| task(n, 1_000 + i64::try_from(n).expect("small"))).collect();
    queues.schedule(&name(), &tasks).await.expect("it answers");
    let held = claim(&queues, 3).await;
    let acked = Settle { id: held[0].id.clone(), receipt: held[0].receipt, verdict: Verdict::Ack };
    assert_eq!(queues.settle(&name(), &[acked]).await.expect("it answers"), [Settled::Done]);
    // Nothing is said to it: the file is as a killed process leaves it, but for the lock.
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["queues.db", "queues.db-wal"] {
        std::fs::copy(folder.path().join(file), copy.path().join(file)).expect("it is there");
    }
    let again = SqliteQueues::open(options(&copy), clock()).await.expect("it opens");
    let stats = again.stats(&[name()]).await.expect("it answers")[0].expect("it has begun");
    assert_eq!((stats.pending, stats.due, stats.leased), (7, 7, 2));
    let settle = |n: usize| Settle { id: held[n].id.clone(), receipt: held[n].receipt, verdict: Verdict::Ack };
    let answers = again.settle(&name(), &[settle(0), settle(1), settle(2)]).await.expect("it answers");
    assert_eq!(answers, [Settled::Lost, Settled::Done, Settled::Done], "a lease is a lease, whoever wrote it");
    let newer = claim(&again, 1).await.remove(0);
    assert!(held.iter().all(|task| task.receipt < newer.receipt));
    again.close().await;
    queues.close().await;
    let reopened = SqliteQueues::open(options(&folder), clock()).await.expect("closed, it can be opened");
    reopened.close().await;
}

#[tokio::test]
async fn a_full_disk_is_said_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(&folder);
    options.max_pages = Some(200);
    let queues = SqliteQueues::open(options, Arc::new(EmbeddedClock::new(None))).await.expect("it opens");
    let mut kept = 0;
    let full = loop {
        assert!(kept < 1_000, "200 pages are full at some time");
        let large = Schedule { payload: Bytes::from(vec![b'x'; 20_000]), ..task(kept, 1_000) };
        match queues.schedule(&name(), &[large]).await {
            Ok(_) => kept += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), ErrorKind::Unavailable);
    assert!(full.to_string().contains("free space"), "{full}");
    let stats = queues.stats(&[name()]).await.expect("it answers")[0].expect("it has begun");
    assert_eq!(stats.pending, kept as u64);
    let held = claim(&queues, 3).await;
    let acks: Vec<_> =
        held.iter().map(|task| Settle { id: task.id.clone(), receipt: task.receipt, verdict: Verdict::Ack }).collect();
    assert_eq!(queues.settle(&name(), &acks).await.expect("it answers"), vec![Settled::Done; acks.len()]);
    queues.schedule(&name(), &[task(kept, 1_000)]).await.expect("there is room again");
    queues.close().await;
}

#[tokio::test]
async fn files_of_another_kind_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("queues.db");
    let foreign = rusqlite::Connection::open(&path).expect("it opens");
    foreign.execute_batch("CREATE TABLE t (a)").expect("it writes");
    drop(foreign);
    let clock: Arc<dyn Clock> = Arc::new(EmbeddedClock::new(None));
    let error = SqliteQueues::open(options(&folder), clock.clone()).await.expect_err("it is another program's");
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("name another file"), "{error}");
    let ledger = tempfile::tempdir().expect("a folder");
    let opened =
        tidegate_embedded::SqliteLedger::open(tidegate_embedded::Options::new(ledger.path().join("queues.db")));
    tidegate_backend::Ledger::close(&*opened.await.expect("it opens")).await.expect("it closes");
    let error = SqliteQueues::open(options(&ledger), clock).await.expect_err("it is a ledger");
    assert_eq!(error.kind(), ErrorKind::Configuration);
}

#[tokio::test]
async fn queues_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(&folder);
    options.queues.max_queues = 2;
    let queues = SqliteQueues::open(options, Arc::new(EmbeddedClock::new(None))).await.expect("it opens");
    let name = |n: usize| QueueName::parse(&format!("q{n}")).expect("a name");
    for n in 0..2 {
        queues.schedule(&name(n), &[task(1, 5)]).await.expect("there is room");
    }
    let error = queues.schedule(&name(2), &[task(1, 5)]).await.expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Limit);
    queues.schedule(&name(1), &[task(2, 5)]).await.expect("an old one takes more");
    queues.close().await;
    assert_eq!(queues.schedule(&name(1), &[task(3, 5)]).await.expect_err("closed").kind(), ErrorKind::Unavailable);
}
