//! Where the tasks of a delay queue lie.
//!
//! A store keeps a `tidegate_core::queue::Queue` for each name and does to it what the calls say, each task at once (no other
//! step on it comes in between). What it answered is durable as far as its [`QueueCapabilities`] promise.

use std::time::Duration;

use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{
    Claimed, DEFAULT_MAX_ATTEMPTS, QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId, TaskState,
};

use crate::{BoxFuture, Error, ErrorKind, Result};

/// Most tasks of one page.
pub const MAX_QUEUE_PAGE: usize = 1_000;
/// Most attempts a task may have.
pub const MAX_ATTEMPTS: u32 = 10_000;
/// Most dead tasks one call purges.
pub const MAX_PURGE: usize = 10_000;

/// What a store can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCapabilities {
    /// A short name for metrics and messages: `memory`, `sqlite`, `redis`, `mysql`, `postgres`.
    pub name: &'static str,
    /// Other processes see the same tasks.
    pub shared: bool,
    /// What was answered survives the death of the process.
    pub durable: bool,
    /// [`QueueStore::earlier`] hears of what other processes schedule; else a worker must look by itself.
    pub wakes: bool,
}

/// Bounds of a store of queues; all processes that share one must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// Most queues. Default 1,000.
    pub max_queues: usize,
    /// Attempts a task has, `1..=MAX_ATTEMPTS`. Default [`DEFAULT_MAX_ATTEMPTS`].
    pub max_attempts: u32,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { max_queues: 1_000, max_attempts: DEFAULT_MAX_ATTEMPTS }
    }
}

impl QueueOptions {
    /// The error of one queue too many.
    #[must_use]
    pub fn too_many(&self) -> Error {
        let text = format!("there are {} queues already; use one of them, or raise the bound", self.max_queues);
        Error::new(ErrorKind::Limit, text)
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] names the bound that makes no sense.
    pub fn check(&self) -> Result<()> {
        if !(1..=MAX_ATTEMPTS).contains(&self.max_attempts) {
            let text = format!("the attempts of a task must be 1..={MAX_ATTEMPTS}, not {}", self.max_attempts);
            return Err(Error::new(ErrorKind::Configuration, text));
        }
        if self.max_queues == 0 {
            return Err(Error::new(ErrorKind::Configuration, "there must be room for one queue at least"));
        }
        Ok(())
    }
}

/// Where the page after `page` begins, if it was full.
#[must_use]
pub fn next_place(listing: &Listing, page: &[Task], limit: usize) -> Option<Place> {
    let last = page.last().filter(|_| page.len() == limit)?;
    let at = match listing {
        Listing::Live(_) => last.visible_at,
        Listing::Dead => last.dead_at.unwrap_or_default(),
    };
    Some((at, last.id.clone()))
}

/// What a claim asks of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Which.
    pub queue: QueueName,
    /// Most tasks, `1..=512`; 0 only asks for [`Handout::next_at`].
    pub max: usize,
    /// For how long they are the caller's, milliseconds, `MIN_LEASE_MS..=MAX_LEASE_MS`.
    pub lease_ms: i64,
}

/// What a store says of a queue it was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handout {
    /// What is the caller's now.
    pub tasks: Vec<Claimed>,
    /// The earliest instant at which something more can be handed out, if anything is there: may be past.
    pub next_at: Option<Millis>,
    /// Why nothing is known of this queue, though others were answered: a key of it is broken, its server is away.
    pub failed: Option<String>,
}

/// The two orders of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listing {
    /// Pending and leased tasks by `visible_at`, then id; of one state only.
    Live(Option<TaskState>),
    /// Dead ones, the newest dead first.
    Dead,
}

/// A store of delayed tasks. Every method may be called at any time from any task and is answered, or fails, within the
/// store's time limit; one that failed may have been done. Arguments were checked by the caller
/// (`tidegate_core::queue::TaskError`); batches have at most `tidegate_core::queue::MAX_BATCH` tasks.
pub trait QueueStore: Send + Sync {
    /// What it can promise.
    fn capabilities(&self) -> QueueCapabilities;

    /// The store's clock, as well as it is known here. Cheap. What is due is decided by the store itself.
    fn now(&self) -> Millis;

    /// How long until an instant on the store's clock, as finely as that is known here; zero if it has come. Cheap.
    fn until(&self, at: Millis) -> Duration {
        Duration::from_millis(at.since(self.now()).max(0).unsigned_abs())
    }

    /// Why it cannot be asked now, if that is known without asking. Cheap.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Schedules tasks, in order; a queue begins with its first task. Durable before the answer.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Limit`], when one queue more than the store's bound would begin; another kind when the store
    /// failed.
    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>>;

    /// Removes tasks in any state; whether each was there.
    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>>;

    /// Hands out what is due now, an answer for each want in order, in one round trip where there is one. An error says that
    /// nothing was handed out and nothing is known of any of the queues.
    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>>;

    /// Does what the holders of tasks say, in order.
    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>>;

    /// Tasks as they stand, in order.
    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>>;

    /// Up to `limit` (`1..=MAX_QUEUE_PAGE`) tasks after a place, and where the next page begins if there may be one: tasks
    /// that move between two pages may be missed or come twice, all others come once.
    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>>;

    /// Names of queues that have tasks, or had some, after `after` in the order of bytes.
    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>>;

    /// Queues in numbers, in order; `None` for one that never had a task.
    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>>;

    /// Gives a dead task a new life; `None` if no dead task has this id.
    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>>;

    /// Removes up to [`MAX_PURGE`] dead tasks that died before `before`, the oldest first; how many, and whether there are
    /// more.
    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>>;

    /// Resolves when, in any queue, an instant earlier than every one there may have been scheduled since this was *called*
    /// (not polled): call it before the claim that says how long to sleep, and nothing is missed that this process
    /// schedules.
    fn earlier(&self) -> BoxFuture<'static, ()>;

    /// How often this store has lost its tasks since it was opened, as far as it noticed: whoever has them elsewhere gives
    /// them again when this moves.
    fn losses(&self) -> u64 {
        0
    }

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}
