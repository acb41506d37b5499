//! The cases every store of delayed tasks passes.
//!
//! - [`tasks`]: scheduling, conditions, cancelling, lists, numbers.
//! - [`leases`]: claims, receipts, retries, the dead.
//! - [`crowds`]: many at once: piles, callers that race, batches with large payloads, killers of processes.
//! - [`replay`]: seeded random operations, each answer held against `tidegate_core::queue::Queue`.
//!
//! Stores whose time is real cannot be asked for the edges of a lease: here a lease is long, or it has clearly passed.

pub mod crowds;
pub mod leases;
pub mod replay;
pub mod tasks;

pub use crowds::*;
pub use leases::*;
pub use replay::*;
pub use tasks::*;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::{BoxFuture, Handout, QueueStore, Want};
use tidegate_core::Millis;
use tidegate_core::queue::{
    Claimed, Condition, Due, QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId, Verdict,
};

/// A fresh, empty store under test, with what its tests need beside the trait. Its queues give a task three attempts.
pub trait Harness: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn QueueStore>;

    /// The same tasks, as another process would have them; `None` for a store that one process owns.
    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn QueueStore>>> {
        Box::pin(std::future::ready(None))
    }

    /// Lets time pass: by a clock of the test's own, or by sleeping.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;
}

/// Opens a fresh, empty store.
pub type Open<'a> = &'a (dyn Fn() -> BoxFuture<'static, Box<dyn Harness>> + Sync);

/// Attempts that a harness gives its queues.
pub const ATTEMPTS: u32 = 3;
/// A lease that no case outlives, milliseconds.
const LONG: i64 = 600_000;
/// A lease that [`Subject::outlive`] outlives, and that some calls in a row on a busy machine do not.
const SHORT: i64 = 400;
/// An instant that has passed on every clock; tasks that are due are due some milliseconds after it.
const PAST: i64 = 1_000_000_000_000;

struct Subject {
    harness: Box<dyn Harness>,
    store: Arc<dyn QueueStore>,
    queue: QueueName,
}

impl Subject {
    async fn open(open: Open<'_>) -> Self {
        let harness = open().await;
        let store = harness.store();
        Self { harness, store, queue: queue("q") }
    }

    async fn schedule(&self, task: Schedule) -> Scheduled {
        let mut answers = self.schedule_all(&[task]).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    async fn schedule_all(&self, tasks: &[Schedule]) -> Vec<Scheduled> {
        self.store.schedule(&self.queue, tasks).await.expect("the store answers")
    }

    /// Tasks `0..n`, due one millisecond after the other, long ago.
    async fn due(&self, n: usize) {
        let tasks: Vec<Schedule> = (0..n).map(|n| task(n, PAST + small(n))).collect();
        for some in tasks.chunks(512) {
            assert!(self.schedule_all(some).await.iter().all(|answer| answer.new && answer.scheduled));
        }
    }

    async fn handout(&self, max: usize, lease_ms: i64) -> Handout {
        handout(&*self.store, &self.queue, max, lease_ms).await
    }

    async fn claim(&self, max: usize, lease_ms: i64) -> Vec<Claimed> {
        self.handout(max, lease_ms).await.tasks
    }

    async fn claim_one(&self, lease_ms: i64) -> Claimed {
        let mut tasks = self.claim(1, lease_ms).await;
        assert_eq!(tasks.len(), 1, "one is due");
        tasks.remove(0)
    }

    async fn settle(&self, claimed: &Claimed, verdict: Verdict) -> Settled {
        let asked = Settle { id: claimed.id.clone(), receipt: claimed.receipt, verdict };
        self.store.settle(&self.queue, &[asked]).await.expect("the store answers").remove(0)
    }

    async fn get(&self, n: usize) -> Option<Task> {
        self.store.get(&self.queue, &[id(n)]).await.expect("the store answers").remove(0)
    }

    async fn cancel(&self, n: usize) -> bool {
        self.store.cancel(&self.queue, &[id(n)]).await.expect("the store answers").remove(0)
    }

    async fn stats(&self) -> Stats {
        let all = self.store.stats(std::slice::from_ref(&self.queue)).await.expect("the store answers");
        all[0].expect("the queue has begun")
    }

    async fn outlive(&self) {
        self.harness.pass(Duration::from_millis(SHORT.unsigned_abs() + 100)).await;
    }
}

async fn handout(store: &dyn QueueStore, queue: &QueueName, max: usize, lease_ms: i64) -> Handout {
    let want = Want { queue: queue.clone(), max, lease_ms };
    let mut answers = store.claim(&[want]).await.expect("the store answers");
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn queue(name: &str) -> QueueName {
    QueueName::parse(name).expect("a name")
}

fn id(n: usize) -> TaskId {
    TaskId::parse(&format!("task-{n:06}")).expect("an id")
}

fn small(n: usize) -> i64 {
    i64::try_from(n).expect("small")
}

fn task(n: usize, at: i64) -> Schedule {
    let payload = Bytes::from(format!("{{\"n\":{n}}}"));
    Schedule { id: id(n), due: Due::At(Millis(at)), payload, condition: Condition::Absent }
}

fn failed() -> Verdict {
    Verdict::Retry { delay_ms: Some(0), spread: 0, error: Some("it failed: ä\u{1F4A5}".into()) }
}

fn ids(claimed: &[Claimed]) -> Vec<TaskId> {
    claimed.iter().map(|task| task.id.clone()).collect()
}
