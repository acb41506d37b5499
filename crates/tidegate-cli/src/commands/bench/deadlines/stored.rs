//! Our queue: the library on any of its stores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate::SystemClock;
use tidegate::core::Millis;
use tidegate::queue::{
    Answer, Delivery, MAX_BATCH, NewTask, Queue, QueueOptions, QueueStore, Queues, Receipt, RedisQueues, Settle,
    Settled, SqlQueueOptions, SqlQueues, SqliteQueueOptions, SqliteQueues, TaskId, Verdict,
};

use super::broken;
use super::seen::Seen;
use super::way::{How, PAYLOAD, Stop, Task, Way};
use crate::commands::bench::redis;
use crate::failure::Result;

/// How long a worker's stop waits for handlers that run.
const STOP: Duration = Duration::from_secs(5);

/// Our queue.
pub struct Stored(Queues);

impl Stored {
    /// In the SQLite file `file`, every answer on the disk.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Work`].
    pub async fn embedded(file: &Path) -> Result<Self> {
        let store = SqliteQueues::open(SqliteQueueOptions::new(file), Arc::new(SystemClock)).await.map_err(broken)?;
        Ok(Self::of(store))
    }

    /// On Redis.
    ///
    /// # Errors
    /// As [`redis::connect`].
    pub async fn redis(url: &str, name: &str) -> Result<Self> {
        let connector = redis::connect(url, name).await?;
        let store = RedisQueues::open(connector, QueueOptions::default()).await.map_err(broken)?;
        Ok(Self::of(Arc::new(store)))
    }

    /// On a database server.
    ///
    /// # Errors
    /// [`crate::failure::Failure::Work`].
    pub async fn sql(url: &str) -> Result<Self> {
        Ok(Self::of(SqlQueues::open(SqlQueueOptions::new(url)).await.map_err(broken)?))
    }

    fn of(store: Arc<dyn QueueStore>) -> Self {
        Self(Queues::new(store))
    }

    fn queue(&self, name: &str) -> Result<Queue<String>> {
        self.0.queue(name).map_err(broken)
    }
}

fn id(n: u64) -> String {
    format!("t{n}")
}

fn number(id: &TaskId) -> u64 {
    id.as_str().get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

impl Way for Stored {
    fn schedule<'a>(&'a self, queue: &'a str, tasks: &'a [Task]) -> BoxFuture<'a, Result> {
        Box::pin(async move {
            let queue = self.queue(queue)?;
            for batch in tasks.chunks(MAX_BATCH) {
                let new = |task: &Task| NewTask::at(id(task.n), Millis(task.due_ms), PAYLOAD.to_owned());
                let batch: Vec<NewTask<String>> = batch.iter().map(new).collect();
                let answers = queue.schedule_all(&batch).await.map_err(broken)?;
                if answers.iter().any(|answer| !answer.new) {
                    return Err(broken("a task of this run was there already"));
                }
            }
            Ok(())
        })
    }

    fn cancel<'a>(&'a self, queue: &'a str, n: u64) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.queue(queue)?.cancel(&id(n)).await.map_err(broken) })
    }

    fn acknowledge<'a>(&'a self, queue: &'a str, receipts: &'a [(u64, u64)]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let raw = self.0.raw(self.queue(queue)?.name().clone());
            let mut refused = 0;
            for receipts in receipts.chunks(MAX_BATCH) {
                let settle = |(n, receipt): &(u64, u64)| {
                    let id = TaskId::parse(&id(*n)).map_err(broken)?;
                    Ok(Settle { id, receipt: Receipt(*receipt), verdict: Verdict::Ack })
                };
                let settles = receipts.iter().map(settle).collect::<Result<Vec<_>>>()?;
                let answers = raw.settle(&settles).await.map_err(broken)?;
                refused += answers.iter().filter(|answer| **answer == Settled::Lost).count() as u64;
            }
            Ok(refused)
        })
    }

    fn left<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let stats = self.queue(queue)?.stats().await.map_err(broken)?.unwrap_or_default();
            Ok(stats.pending + stats.leased + stats.dead)
        })
    }

    fn work<'a>(&'a self, queue: &'a str, how: How, seen: Arc<Seen>) -> BoxFuture<'a, Result<Stop>> {
        Box::pin(async move {
            let worker = self.queue(queue)?.worker();
            let worker = worker.concurrency(how.concurrency).lease(Duration::from_millis(how.lease_ms));
            let note = move |seen: &Seen, task: &Delivery<String>| {
                seen.note(number(&task.id), task.due_at.0, task.receipt.0);
            };
            let worker = if how.batch == 1 {
                worker.each(move |task| {
                    note(&seen, &task);
                    async move { how.work().await }
                })
            } else {
                let handler = move |tasks: Vec<Delivery<String>>| {
                    tasks.iter().for_each(|task| note(&seen, task));
                    async move {
                        how.work().await;
                        vec![Answer::Done; tasks.len()]
                    }
                };
                worker.batches(how.batch, handler).map_err(broken)?
            };
            let stop: Stop = Box::new(move || {
                Box::pin(async move {
                    worker.stop(STOP).await;
                })
            });
            Ok(stop)
        })
    }
}
