//! A queue as bytes, for callers that keep leases themselves, such as those of another language over HTTP.
//!
//! - [`RawQueue`]: the verbs. [`Lease`]: what a claim gave; what is not kept is handed back, the attempt not charged.
//!
//! A claim that waits is a line of the one loop that claims for the whole process (`claims.rs`), so a thousand waiting
//! callers cost the store what one does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_backend::{Listing, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::rules::{SPREAD, check_lease};
use tidegate_core::queue::{
    Claimed, MAX_BATCH, QueueName, Receipt, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskError, TaskId,
    Verdict,
};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use super::claims::{Batch, Line};
use super::metrics::{self, Counters};
use super::{MAX_QUEUE_PAGE, QueueError, Queues};

/// Attempts to hand a task back before its lease ends by itself, and the pause between two.
const RELEASE_TRIES: u32 = 5;
const RELEASE_PAUSE: Duration = Duration::from_millis(100);

/// One queue as bytes. The product's own queues can be looked at only: see [`RawQueue::check_writable`].
#[derive(Clone)]
pub struct RawQueue {
    queues: Queues,
    name: QueueName,
}

impl fmt::Debug for RawQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawQueue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A spread for a retry without a delay of its own.
fn spread() -> u16 {
    u16::try_from(uuid::Uuid::new_v4().as_u128() % (u128::from(SPREAD) + 1)).unwrap_or(0)
}

/// A retry: after `delay_ms`, or (left out) after 1 s that doubles with each attempt up to 1 h, 20 % more or less.
#[must_use]
pub fn retry(delay_ms: Option<i64>, error: Option<String>) -> Verdict {
    Verdict::Retry { delay_ms, spread: spread(), error }
}

fn bounded(count: usize) -> Result<(), QueueError> {
    if count > MAX_BATCH { Err(QueueError::Batch(count)) } else { Ok(()) }
}

impl RawQueue {
    pub(super) fn new(queues: Queues, name: QueueName) -> Self {
        Self { queues, name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.name
    }

    /// Refuses the product's own queues, which every call but `get`, `list` and `stats` does.
    ///
    /// # Errors
    /// [`QueueError::Reserved`].
    pub fn check_writable(&self) -> Result<(), QueueError> {
        if self.name.is_reserved() { Err(QueueError::Reserved(self.name.to_string())) } else { Ok(()) }
    }

    /// Counts what happened, if anything did: a queue that nobody has gets no metrics.
    fn count(&self, number: usize, counter: impl FnOnce(&Counters) -> &::metrics::Counter) {
        if number > 0 {
            counter(&Counters::of(&self.name)).increment(number as u64);
        }
    }

    /// Schedules up to [`MAX_BATCH`] tasks, in order; durable, as far as the store is, before the answer.
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Batch`], [`QueueError::Task`]: nothing was scheduled.
    /// [`QueueError::Store`].
    pub async fn schedule(&self, tasks: &[Schedule]) -> Result<Vec<Scheduled>, QueueError> {
        self.check_writable()?;
        bounded(tasks.len())?;
        tasks.iter().try_for_each(Schedule::check)?;
        let answers = self.queues.store.schedule(&self.name, tasks).await?;
        self.count(answers.iter().filter(|answer| answer.scheduled).count(), |c| &c.scheduled);
        Ok(answers)
    }

    /// Removes a task in any state; whether it was there.
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Store`].
    pub async fn cancel(&self, id: &TaskId) -> Result<bool, QueueError> {
        self.check_writable()?;
        let answers = self.queues.store.cancel(&self.name, std::slice::from_ref(id)).await?;
        Ok(answers.first().copied().unwrap_or(false))
    }

    /// Claims up to `max` (`1..=`[`MAX_BATCH`]) tasks for `lease`; if nothing is due, waits for up to `wait` until
    /// something is. A caller that goes away meanwhile charges no attempt.
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Task`] (the lease), [`QueueError::Batch`]; [`QueueError::Store`] when the
    /// store does not answer at first or at last: nothing is never said of a store that is away.
    pub async fn claim(&self, max: usize, lease: Duration, wait: Duration) -> Result<Lease, QueueError> {
        self.check_writable()?;
        bounded(max)?;
        let lease_ms = i64::try_from(lease.as_millis()).map_err(|_| TaskError::Lease)?;
        check_lease(lease_ms)?;
        let deadline = Instant::now() + wait;
        let first = self.claim_now(max, lease_ms).await?;
        if !first.tasks.is_empty() || wait.is_zero() {
            return Ok(first);
        }
        if let Some(found) = self.wait_for(max, lease_ms, deadline).await {
            return Ok(found);
        }
        self.claim_now(max, lease_ms).await
    }

    /// What is due now. The call is made by a task of its own: what it gives to nobody goes back.
    async fn claim_now(&self, max: usize, lease_ms: i64) -> Result<Lease, QueueError> {
        let (queue, piece) = (self.clone(), self.queues.pending.begin());
        let claim = tokio::spawn(async move {
            let want = Want { queue: queue.name.clone(), max, lease_ms };
            let handouts = queue.queues.store.claim(&[want]).await;
            let lease = handouts.map(|mut handouts| {
                let tasks = handouts.pop().map(|handout| handout.tasks).unwrap_or_default();
                queue.leased(tasks)
            });
            drop(piece);
            lease
        });
        // Dropped here, the task goes on and its answer is dropped there.
        match claim.await {
            Ok(lease) => Ok(lease?),
            Err(e) => std::panic::resume_unwind(e.into_panic()),
        }
    }

    /// Waits in the process's loop of claims until something is due.
    async fn wait_for(&self, max: usize, lease_ms: i64, deadline: Instant) -> Option<Lease> {
        let (batches, inbox) = mpsc::unbounded_channel();
        let line = Arc::new(Line {
            queue: self.name.clone(),
            lease_ms,
            room: Arc::new(Semaphore::new(max)),
            batches,
            open: AtomicBool::new(true),
            starved: AtomicBool::new(false),
            once: true,
        });
        self.queues.claims.join(line.clone());
        let mut waiting = Waiting { queue: self, line: Some(line), inbox: Some(inbox) };
        let inbox = waiting.inbox.as_mut().expect("it was put there");
        let batch = timeout_at(deadline, inbox.recv()).await.ok().flatten()?;
        Some(self.leased(batch.tasks))
    }

    fn leased(&self, tasks: Vec<Claimed>) -> Lease {
        Lease { queue: self.clone(), tasks, kept: false }
    }

    /// Does what the holders of up to [`MAX_BATCH`] tasks say, in order.
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Batch`], [`QueueError::Task`]: nothing was done. [`QueueError::Store`].
    pub async fn settle(&self, tasks: &[Settle]) -> Result<Vec<Settled>, QueueError> {
        self.check_writable()?;
        bounded(tasks.len())?;
        tasks.iter().try_for_each(|task| task.verdict.check())?;
        let answers = self.queues.store.settle(&self.name, tasks).await?;
        let of = |wanted: Settled| answers.iter().filter(|settled| **settled == wanted).count();
        let acked = answers.iter().zip(tasks);
        let acked = acked.filter(|(settled, task)| **settled == Settled::Done && task.verdict == Verdict::Ack).count();
        self.count(acked, |c| &c.acked);
        self.count(of(Settled::Lost), |c| &c.lost);
        self.count(of(Settled::Dead), |c| &c.dead);
        Ok(answers)
    }

    /// A task as it stands.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn get(&self, id: &TaskId) -> Result<Option<Task>, QueueError> {
        let mut found = self.queues.store.get(&self.name, std::slice::from_ref(id)).await?;
        Ok(found.pop().flatten())
    }

    /// A page of tasks, and where the next begins.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn list(
        &self,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> Result<(Vec<Task>, Option<Place>), QueueError> {
        Ok(self.queues.store.list(&self.name, listing, after, limit.clamp(1, MAX_QUEUE_PAGE)).await?)
    }

    /// The queue in numbers; `None` if it never had a task.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    pub async fn stats(&self) -> Result<Option<Stats>, QueueError> {
        let all = self.queues.store.stats(std::slice::from_ref(&self.name)).await?;
        Ok(all.first().copied().flatten())
    }

    /// Gives a dead task a new life, due after `delay_ms`; `None` if no dead task has this id.
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Task`] (the delay), [`QueueError::Store`].
    pub async fn requeue(&self, id: &TaskId, delay_ms: i64) -> Result<Option<Task>, QueueError> {
        self.check_writable()?;
        if !(0..=tidegate_core::queue::MAX_DELAY_MS).contains(&delay_ms) {
            return Err(TaskError::Delay.into());
        }
        Ok(self.queues.store.requeue(&self.name, id, delay_ms).await?)
    }

    /// As [`super::Queue::purge`].
    ///
    /// # Errors
    /// [`QueueError::Reserved`], [`QueueError::Store`].
    pub async fn purge(&self, before: Option<Millis>) -> Result<(usize, bool), QueueError> {
        self.check_writable()?;
        Ok(self.queues.store.purge(&self.name, before).await?)
    }

    /// Hands tasks back, uncharged, in a task of its own.
    fn hand_back(&self, tasks: impl Future<Output = Vec<(TaskId, Receipt)>> + Send + 'static) {
        // Outside a runtime nobody can send it: the leases end by themselves.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (queue, piece) = (self.clone(), self.queues.pending.begin());
        runtime.spawn(async move {
            let settle = |(id, receipt)| Settle { id, receipt, verdict: Verdict::Release };
            let tasks: Vec<Settle> = tasks.await.into_iter().map(settle).collect();
            for batch in tasks.chunks(MAX_BATCH) {
                for _ in 0..RELEASE_TRIES {
                    match queue.queues.store.settle(&queue.name, batch).await {
                        Ok(_) => break,
                        Err(e) => tracing::debug!(queue = %queue.name, error = %e, "tasks are not handed back yet"),
                    }
                    tokio::time::sleep(RELEASE_PAUSE).await;
                }
            }
            drop(piece);
        });
    }
}

/// A caller's place in the loop of claims; left when this is dropped. What is on its way then goes back.
struct Waiting<'a> {
    queue: &'a RawQueue,
    line: Option<Arc<Line>>,
    inbox: Option<mpsc::UnboundedReceiver<Batch>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let (Some(line), Some(mut inbox)) = (self.line.take(), self.inbox.take()) else { return };
        self.queue.queues.claims.leave(&line);
        drop(line);
        // Closed at once unless a round that claims for this line is under way: it has the only other sender.
        if matches!(inbox.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)) {
            return;
        }
        self.queue.hand_back(async move {
            let mut tasks = Vec::new();
            while let Some(batch) = inbox.recv().await {
                tasks.extend(batch.tasks.into_iter().map(|task| (task.id, task.receipt)));
            }
            tasks
        });
    }
}

/// What a claim gave. Dropped without [`Lease::keep`], the tasks go back and no attempt is charged.
pub struct Lease {
    queue: RawQueue,
    tasks: Vec<Claimed>,
    kept: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("queue", self.queue.name()).field("tasks", &self.tasks.len()).finish()
    }
}

impl Lease {
    /// The tasks; none if nothing became due in time.
    #[must_use]
    pub fn tasks(&self) -> &[Claimed] {
        &self.tasks
    }

    /// The caller has them now, and answers for them by their receipts.
    pub fn keep(mut self) -> Vec<Claimed> {
        self.kept = true;
        let now = self.queue.queues.now();
        self.queue.count(self.tasks.len(), |c| &c.claimed);
        for task in &self.tasks {
            metrics::lateness(now.since(task.visible_at));
        }
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.kept && !self.tasks.is_empty() {
            let tasks = self.tasks.iter().map(|task| (task.id.clone(), task.receipt)).collect();
            self.queue.hand_back(std::future::ready(tasks));
        }
    }
}
