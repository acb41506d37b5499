//! Queues under test, and what their workers did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::core::Millis;
use tidegate::queue::*;
use tidegate_backend::SystemClock;

use super::scaled;

pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
/// What a busy machine may add to a bound.
pub const SLACK: Duration = Duration::from_millis(700);

/// The name in Redis that every process of a test has.
const NAME: &str = "days";
pub const QUEUE: &str = "mail";

pub fn options(max_attempts: u32) -> QueueOptions {
    QueueOptions { max_attempts, ..QueueOptions::default() }
}

/// The queues at `redis://..` or `sqlite:PATH`, with so many attempts a task.
pub async fn open_with(url: &str, max_attempts: u32) -> Queues {
    if let Some(path) = url.strip_prefix("sqlite:") {
        let mut file = SqliteQueueOptions::new(path);
        file.queues = options(max_attempts);
        return Queues::new(SqliteQueues::open(file, Arc::new(SystemClock)).await.unwrap());
    }
    Queues::new(redis_store(url, max_attempts).await)
}

pub async fn redis_store(url: &str, max_attempts: u32) -> Arc<RedisQueues> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(NAME).unwrap()).await.unwrap();
    Arc::new(RedisQueues::open(connector, options(max_attempts)).await.unwrap())
}

pub async fn open(url: &str) -> Queues {
    open_with(url, DEFAULT_MAX_ATTEMPTS).await
}

pub fn in_memory() -> Queues {
    Queues::new(Arc::new(MemoryQueues::new(Arc::new(SystemClock), QueueOptions::default())))
}

/// How late it is for what was due at `due_at`, by the store's clock. That clock is estimated here: what looks earlier by a few
/// milliseconds is judged by the host's, which the store's is in all tests but those that step it.
pub fn late_ms(queues: &Queues, due_at: Millis) -> i64 {
    let late = queues.now().since(due_at);
    if !(-5..0).contains(&late) {
        return late;
    }
    tidegate_backend::clock::host_now().since(due_at).clamp(late, 0)
}

pub fn mail(queues: &Queues) -> Queue<u64> {
    queues.queue(QUEUE).unwrap()
}

pub fn raw(queues: &Queues) -> RawQueue {
    queues.raw(QueueName::parse(QUEUE).unwrap())
}

pub fn id(n: u64) -> String {
    format!("t{n:07}")
}

/// Tasks `range`, due as `due` says.
pub async fn fill(queue: &Queue<u64>, range: std::ops::Range<u64>, due: impl Fn(u64) -> Millis) {
    let all: Vec<_> = range.map(|n| NewTask::at(id(n), due(n), n)).collect();
    for some in all.chunks(512) {
        queue.schedule_all(some).await.unwrap();
    }
}

pub async fn numbers(queue: &Queue<u64>) -> (u64, u64, u64) {
    queue.stats().await.unwrap().map_or((0, 0, 0), |stats| (stats.pending, stats.leased, stats.dead))
}

/// Waits until `ready`, for half a minute at most (half an hour where tests run in full); returns how long it took.
pub async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) -> Duration {
    let (began, patience) = (Instant::now(), Duration::from_secs(scaled(30, 1_800)));
    while !ready().await {
        assert!(began.elapsed() < patience, "{what}: not within {patience:?}");
        tokio::time::sleep(2 * MS).await;
    }
    began.elapsed()
}

/// A delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub attempt: u32,
    pub receipt: Receipt,
    /// On the store's clock, as it is known here; below 0 is early.
    pub late_ms: i64,
    pub at: Instant,
}

/// What workers of this process were given.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<BTreeMap<String, Vec<Run>>>>);

impl Runs {
    /// Notes a delivery.
    pub fn note(&self, queues: &Queues, task: &Delivery<u64>) {
        let late_ms = late_ms(queues, task.due_at);
        let run = Run { attempt: task.attempt, receipt: task.receipt, late_ms, at: Instant::now() };
        self.0.lock().unwrap().entry(task.id.to_string()).or_default().push(run);
    }

    pub fn all(&self) -> BTreeMap<String, Vec<Run>> {
        self.0.lock().unwrap().clone()
    }

    pub fn of(&self, id: &str) -> Vec<Run> {
        self.0.lock().unwrap().get(id).cloned().unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The lateness of each first delivery, in order.
    pub fn lateness(&self) -> Vec<i64> {
        let mut all: Vec<i64> = self.0.lock().unwrap().values().map(|runs| runs[0].late_ms).collect();
        all.sort_unstable();
        all
    }

    /// A worker that notes each task and is done with it.
    pub fn worker(&self, queues: &Queues, lease: Duration) -> Worker {
        let (runs, own) = (self.clone(), queues.clone());
        mail(queues).worker().concurrency(64).lease(lease).each(move |task: Delivery<u64>| {
            runs.note(&own, &task);
            async {}
        })
    }
}

/// That of a hundred.
pub fn percentile(sorted: &[i64], percent: usize) -> i64 {
    sorted[(sorted.len() - 1) * percent / 100]
}
