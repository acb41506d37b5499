//! Delayed tasks in memory: each queue is `tidegate_core::queue::Queue` itself, behind one lock.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_backend::queue::{Listing, MAX_PURGE, next_place};
use tidegate_backend::{BoxFuture, Clock, Handout, QueueCapabilities, QueueOptions, QueueStore, Result, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{Queue, QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId};
use tokio::sync::watch;

/// Delayed tasks that end with the process.
pub struct MemoryQueues {
    queues: Mutex<BTreeMap<QueueName, Queue>>,
    clock: Arc<dyn Clock>,
    options: QueueOptions,
    /// Counts the schedules that moved the head of a queue forward.
    moved: watch::Sender<u64>,
}

impl fmt::Debug for MemoryQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueues").field("options", &self.options).finish_non_exhaustive()
    }
}

impl MemoryQueues {
    /// No queues yet. What is due is decided by `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, options: QueueOptions) -> Self {
        Self { queues: Mutex::new(BTreeMap::new()), clock, options, moved: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, Queue>> {
        // Every step leaves a queue whole.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on<T>(&self, queue: &QueueName, step: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.lock().get_mut(queue).map(step)
    }

    fn schedule_now(&self, name: &QueueName, tasks: &[Schedule]) -> Result<Vec<Scheduled>> {
        let now = self.clock.now();
        let mut queues = self.lock();
        if !queues.contains_key(name) {
            if queues.len() >= self.options.max_queues {
                return Err(self.options.too_many());
            }
            queues.insert(name.clone(), Queue::new(self.options.max_attempts));
        }
        let queue = queues.get_mut(name).expect("it was just made");
        let before = queue.next_at();
        let answers = tasks.iter().map(|task| queue.schedule(now, task)).collect();
        if queue.next_at().is_some_and(|at| before.is_none_or(|before| at < before)) {
            self.moved.send_modify(|moved| *moved += 1);
        }
        Ok(answers)
    }

    fn hand_out(&self, want: &Want) -> Handout {
        let now = self.clock.now();
        let us = now.0.max(0).unsigned_abs() * 1_000;
        let step = |queue: &mut Queue| {
            let tasks = queue.claim(now, us, want.max, want.lease_ms);
            Handout { tasks, next_at: queue.next_at(), failed: None }
        };
        self.on(&want.queue, step).unwrap_or(Handout { tasks: Vec::new(), next_at: None, failed: None })
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl QueueStore for MemoryQueues {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities { name: "memory", shared: false, durable: false, wakes: true }
    }

    fn now(&self) -> Millis {
        self.clock.now()
    }

    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>> {
        ready(self.schedule_now(queue, tasks))
    }

    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>> {
        let all = self.on(queue, |queue| ids.iter().map(|id| queue.cancel(id)).collect());
        ready(Ok(all.unwrap_or_else(|| vec![false; ids.len()])))
    }

    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>> {
        ready(Ok(wants.iter().map(|want| self.hand_out(want)).collect()))
    }

    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>> {
        let now = self.clock.now();
        let step = |queue: &mut Queue| {
            let before = queue.next_at();
            let answers = tasks.iter().map(|task| queue.settle(now, task)).collect();
            (answers, queue.next_at() < before || before.is_none() && queue.next_at().is_some())
        };
        let (answers, earlier) = self.on(queue, step).unwrap_or_else(|| (vec![Settled::Lost; tasks.len()], false));
        if earlier {
            self.moved.send_modify(|moved| *moved += 1);
        }
        ready(Ok(answers))
    }

    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>> {
        let now = self.clock.now();
        let all = self.on(queue, |queue| ids.iter().map(|id| queue.get(now, id)).collect());
        ready(Ok(all.unwrap_or_else(|| vec![None; ids.len()])))
    }

    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>> {
        let now = self.clock.now();
        let step = |queue: &mut Queue| match &listing {
            Listing::Live(state) => queue.list(now, *state, after.as_ref(), limit),
            Listing::Dead => queue.list_dead(now, after.as_ref(), limit),
        };
        let page = self.on(queue, step).unwrap_or_default();
        let next = next_place(&listing, &page, limit);
        ready(Ok((page, next)))
    }

    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self
            .lock()
            .range::<QueueName, _>((from, Bound::Unbounded))
            .take(limit)
            .map(|(name, _)| name.clone())
            .collect();
        ready(Ok(names))
    }

    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>> {
        let now = self.clock.now();
        ready(Ok(queues.iter().map(|name| self.on(name, |queue| queue.stats(now))).collect()))
    }

    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>> {
        let now = self.clock.now();
        let task = self.on(queue, |queue| queue.requeue(now, id, delay_ms)).flatten();
        self.moved.send_modify(|moved| *moved += 1);
        ready(Ok(task))
    }

    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>> {
        ready(Ok(self.on(queue, |queue| queue.purge(before, MAX_PURGE)).unwrap_or((0, false))))
    }

    fn earlier(&self) -> BoxFuture<'static, ()> {
        super::moved(&self.moved)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_backend::ManualClock;
    use tidegate_conformance::queue::{ATTEMPTS, Harness};

    use super::*;

    struct InMemory {
        queues: Arc<MemoryQueues>,
        clock: Arc<ManualClock>,
    }

    impl Harness for InMemory {
        fn store(&self) -> Arc<dyn QueueStore> {
            self.queues.clone()
        }

        fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
            let ms = i64::try_from(time.as_millis()).expect("short");
            self.clock.advance_to(self.clock.now().plus(ms)).expect("a manual clock");
            ready(())
        }
    }

    async fn open() -> InMemory {
        let clock = Arc::new(ManualClock::new(Millis(1_800_000_000_000)));
        let options = QueueOptions { max_attempts: ATTEMPTS, ..QueueOptions::default() };
        InMemory { queues: Arc::new(MemoryQueues::new(clock.clone(), options)), clock }
    }

    tidegate_conformance::queue_conformance!(open);
}
