//! `tidegate bench deadlines-process`: a process that schedules tasks and works them off, in one of the ways there are.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::broken;
use super::seen::{Handled, Seen};
use super::way::{How, Kind, Stop, Task, Way};
use crate::commands::bench::process::{Part, now_us, obey};
use crate::failure::{Failure, Result};

/// Tasks of one call of a schedule.
const BATCH: u64 = 512;
/// Calls that are on their way at once.
const CALLS: usize = 4;
/// Calls of a stream that are on their way at once, before it waits: what it was to send then is late, and says so.
const STREAM_CALLS: usize = 1_024;
/// Between two calls of a stream.
const TICK: Duration = Duration::from_millis(1);
/// From one number to the next of those that are cancelled: prime.
const STRIDE: u64 = 7_919;

/// When tasks are due.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Due {
    /// All at one instant.
    At(i64),
    /// Evenly over so many milliseconds from an instant on.
    Over(i64, i64),
    /// So long after each call.
    Ahead(i64),
}

impl Due {
    fn of(self, n: u64, count: u64) -> i64 {
        match self {
            Due::At(at) => at,
            Due::Over(from, ms) => {
                from + i64::try_from(u128::from(n) * u128::from(ms.unsigned_abs()) / u128::from(count.max(1)))
                    .unwrap_or(0)
            }
            Due::Ahead(ms) => now_ms() + ms,
        }
    }
}

/// Now, milliseconds.
pub fn now_ms() -> i64 {
    i64::try_from(now_us() / 1_000).unwrap_or(i64::MAX)
}

/// What a process is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Schedules tasks `from..from + count` in batches.
    Schedule { queue: String, from: u64, count: u64, due: Due },
    /// Schedules them one a call, from so many callers.
    Singles { queue: String, from: u64, count: u64, due: Due, callers: u64 },
    /// Schedules so many a second whatever becomes of the calls, each so long ahead.
    Stream { queue: String, per_second: u64, for_ms: u64, ahead_ms: i64 },
    /// Cancels `count` of tasks `0..of`, one a call, far from one another, from so many callers.
    Cancel { queue: String, of: u64, count: u64, callers: u64 },
    /// Works a queue of tasks `0..most` off from now on.
    Work { queue: String, how: How, most: u64 },
    /// Waits until `count` tasks have come, but not beyond an instant.
    Wait { queue: String, count: u64, until_us: u64 },
    /// What has come so far.
    Look { queue: String },
    /// Acknowledges by receipts of another; `done` were refused.
    Acknowledge { queue: String, receipts: Vec<(u64, u64)> },
    /// How many tasks are there: `done` says.
    Left { queue: String },
    /// Of tasks `0..count`, how many have not come: `done` says.
    Missing { queue: String, count: u64 },
    /// Stops the worker.
    Stop { queue: String },
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// How long it took.
    pub took_us: u64,
    /// Tasks that were scheduled or cancelled.
    pub done: u64,
    /// What came to the worker.
    pub seen: Handled,
}

/// Obeys.
///
/// # Errors
/// [`Failure`].
pub fn run() -> Result {
    obey::<Doing>()
}

struct Doing {
    way: Arc<dyn Way>,
    working: HashMap<String, (Arc<Seen>, Option<Stop>)>,
}

impl Part for Doing {
    type Setup = Kind;
    type Order = Order;
    type Report = Report;

    async fn open(kind: Kind) -> Result<Self> {
        Ok(Self { way: kind.open().await?, working: HashMap::new() })
    }

    async fn obey(&mut self, order: Order) -> Result<Report> {
        let began = Instant::now();
        let mut report = self.done(order).await?;
        report.took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        Ok(report)
    }
}

impl Doing {
    async fn done(&mut self, order: Order) -> Result<Report> {
        let done = match order {
            Order::Schedule { queue, from, count, due } => self.schedule(queue, from, count, due).await?,
            Order::Singles { queue, from, count, due, callers } => {
                let one = move |way: Arc<dyn Way>, queue: Arc<str>, n: u64| async move {
                    let task = Task { n: from + n, due_ms: due.of(n, count) };
                    way.schedule(&queue, &[task]).await.map(|()| true)
                };
                self.callers(queue, count, callers, one).await?
            }
            Order::Cancel { queue, of, count, callers } => {
                let one = move |way: Arc<dyn Way>, queue: Arc<str>, n: u64| async move {
                    way.cancel(&queue, n * STRIDE % of).await
                };
                self.callers(queue, count, callers, one).await?
            }
            Order::Stream { queue, per_second, for_ms, ahead_ms } => {
                self.stream(queue, per_second, for_ms, ahead_ms).await?
            }
            Order::Work { queue, how, most } => {
                let seen = Arc::new(Seen::new(most));
                let stop = self.way.work(&queue, how, seen.clone()).await?;
                self.working.insert(queue, (seen, Some(stop)));
                0
            }
            Order::Wait { queue, count, until_us } => {
                let left = Duration::from_micros(until_us.saturating_sub(now_us()));
                // What did not come is missing in the report.
                let _ = tokio::time::timeout(left, self.seen(&queue)?.wait(count)).await;
                return self.report(&queue);
            }
            Order::Look { queue } => return self.report(&queue),
            Order::Acknowledge { queue, receipts } => self.way.acknowledge(&queue, &receipts).await?,
            Order::Left { queue } => self.way.left(&queue).await?,
            Order::Missing { queue, count } => self.seen(&queue)?.missing(0..count),
            Order::Stop { queue } => {
                if let Some((_, stop)) = self.working.get_mut(&queue)
                    && let Some(stop) = stop.take()
                {
                    stop().await;
                }
                return self.report(&queue);
            }
        };
        Ok(Report { done, ..Report::default() })
    }

    fn seen(&self, queue: &str) -> Result<&Arc<Seen>> {
        let working = self.working.get(queue).map(|(seen, _)| seen);
        working.ok_or_else(|| Failure::Work(format!("nobody works queue {queue} off")))
    }

    fn report(&self, queue: &str) -> Result<Report> {
        Ok(Report { seen: self.seen(queue)?.handled(), ..Report::default() })
    }

    async fn schedule(&self, queue: String, from: u64, count: u64, due: Due) -> Result<u64> {
        let (queue, mut calls): (Arc<str>, _) = (queue.into(), JoinSet::new());
        for first in (0..count).step_by(BATCH as usize) {
            if calls.len() >= CALLS {
                joined(calls.join_next().await)?;
            }
            let tasks = first..(first + BATCH).min(count);
            let tasks: Vec<Task> = tasks.map(|n| Task { n: from + n, due_ms: due.of(n, count) }).collect();
            let (way, queue) = (self.way.clone(), queue.clone());
            calls.spawn(async move { way.schedule(&queue, &tasks).await });
        }
        while let Some(call) = calls.join_next().await {
            joined(Some(call))?;
        }
        Ok(count)
    }

    /// `count` calls from `callers` at once; for how many the answer was yes.
    async fn callers<F, R>(&self, queue: String, count: u64, callers: u64, one: F) -> Result<u64>
    where
        F: Fn(Arc<dyn Way>, Arc<str>, u64) -> R + Copy + Send + 'static,
        R: Future<Output = Result<bool>> + Send,
    {
        let (queue, next): (Arc<str>, _) = (queue.into(), Arc::new(AtomicU64::new(0)));
        let mut all = JoinSet::new();
        for _ in 0..callers {
            let (way, queue, next) = (self.way.clone(), queue.clone(), next.clone());
            all.spawn(async move {
                let mut yes = 0;
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return Ok::<u64, Failure>(yes);
                    }
                    yes += u64::from(one(way.clone(), queue.clone(), n).await?);
                }
            });
        }
        let mut yes = 0;
        while let Some(caller) = all.join_next().await {
            yes += caller.map_err(broken)??;
        }
        Ok(yes)
    }

    async fn stream(&self, queue: String, per_second: u64, for_ms: u64, ahead_ms: i64) -> Result<u64> {
        let (queue, room): (Arc<str>, _) = (queue.into(), Arc::new(Semaphore::new(STREAM_CALLS)));
        let (mut calls, mut ticks, mut sent) = (JoinSet::new(), tokio::time::interval(TICK), 0);
        let began = Instant::now();
        let total = per_second * for_ms / 1_000;
        while sent < total {
            ticks.tick().await;
            // By the clock: a tick that comes late has more to do.
            let due = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_mul(per_second);
            let goal = (due / 1_000_000).min(total);
            if goal == sent {
                continue;
            }
            let due_ms = now_ms() + ahead_ms;
            let tasks: Vec<Task> = (sent..goal).map(|n| Task { n, due_ms }).collect();
            sent = goal;
            let (way, queue) = (self.way.clone(), queue.clone());
            let place = room.clone().acquire_owned().await.map_err(broken)?;
            calls.spawn(async move {
                let scheduled = way.schedule(&queue, &tasks).await;
                drop(place);
                scheduled
            });
            while let Some(call) = calls.try_join_next() {
                joined(Some(call))?;
            }
        }
        while let Some(call) = calls.join_next().await {
            joined(Some(call))?;
        }
        Ok(total)
    }
}

fn joined(call: Option<std::result::Result<Result, tokio::task::JoinError>>) -> Result {
    call.map_or(Ok(()), |call| call.map_err(broken)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_spread_evenly_and_a_delay_counts_from_the_call() {
        let over: Vec<i64> = [0, 1, 500_000, 999_999].map(|n| Due::Over(5_000, 1_000).of(n, 1_000_000)).to_vec();
        assert_eq!(over, [5_000, 5_000, 5_500, 5_999]);
        assert_eq!(Due::At(7).of(3, 10), 7);
        assert!((1_000..2_000).contains(&(Due::Ahead(1_000).of(0, 1) - now_ms() + 500)));
    }
}
