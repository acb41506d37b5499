//! A task, what can be asked of it, and what comes back.

use bytes::Bytes;

use super::name::TaskId;
use crate::Millis;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// Handed out once its instant has come.
    Pending,
    /// Handed to a worker, until its lease ends.
    Leased,
    /// All attempts are used up.
    Dead,
}

/// Proof that a task was handed to the one who shows it: worthless as soon as the task is handed out again, changed, or gone.
/// Receipts of a task only grow, also after the store lost its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub u64);

/// A task as it lies in its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Unique in the queue.
    pub id: TaskId,
    /// Where it stands.
    pub state: TaskState,
    /// The instant it was scheduled for; retries and leases do not move it.
    pub due_at: Millis,
    /// When it can be handed out next: `due_at`, the end of its lease, or the instant of its retry.
    pub visible_at: Millis,
    /// Bytes of the caller's.
    pub payload: Bytes,
    /// How often it was handed out and not handed back.
    pub attempt: u32,
    /// What the last retry, or the death, gave as its reason.
    pub last_error: Option<String>,
    /// When it died.
    pub dead_at: Option<Millis>,
}

/// An instant, or a delay from the store's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At this instant; the past is now.
    At(Millis),
    /// So many milliseconds from the store's now, `0..=MAX_DELAY_MS`.
    In(i64),
}

/// What becomes of a task that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// It stays as it is, dead ones too.
    #[default]
    Absent,
    /// It is replaced if the new `due_at` is before its own.
    Earlier,
    /// It is replaced if the new `due_at` is after its own.
    Later,
    /// It is replaced.
    Always,
}

/// A task to schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Unique in the queue.
    pub id: TaskId,
    /// When.
    pub due: Due,
    /// At most [`super::MAX_PAYLOAD_BYTES`].
    pub payload: Bytes,
    /// If it is there already.
    pub condition: Condition,
}

/// What scheduling did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// No task had this id.
    pub new: bool,
    /// The task is now as asked; else the condition said no and nothing changed.
    pub scheduled: bool,
    /// The task as it is now.
    pub task: Task,
}

/// A task handed to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Unique in the queue.
    pub id: TaskId,
    /// What it was scheduled for.
    pub due_at: Millis,
    /// When it could have been handed out at the earliest: lateness counts from here.
    pub visible_at: Millis,
    /// Bytes of the caller's.
    pub payload: Bytes,
    /// 1 the first time.
    pub attempt: u32,
    /// What every answer needs.
    pub receipt: Receipt,
    /// Then another may have it.
    pub lease_until: Millis,
    /// Whoever had it before may have died of it (see `rules::is_suspect`): handle it with nothing beside it.
    pub suspect: bool,
}

/// What a worker says of a task it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Done: the task goes.
    Ack,
    /// Back as it was, and the attempt is not charged.
    Release,
    /// The lease ends so many milliseconds from now ([`super::MIN_LEASE_MS`]..=[`super::MAX_LEASE_MS`]).
    Extend(i64),
    /// Again later; dead if that was the last attempt.
    Retry {
        /// Milliseconds from now, `0..=MAX_DELAY_MS`; left out: see [`super::retry_delay_ms`].
        delay_ms: Option<i64>,
        /// Drawn by the caller, `0..=`[`super::rules::SPREAD`]: spreads the delay that was left out.
        spread: u16,
        /// Kept as the task's `last_error`, at most [`super::rules::MAX_ERROR_BYTES`], without NUL; an empty one is none.
        error: Option<String>,
    },
}

/// A verdict on a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The task.
    pub id: TaskId,
    /// What its claim gave.
    pub receipt: Receipt,
    /// What to do.
    pub verdict: Verdict,
}

/// What a verdict did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// It is done.
    Done,
    /// The receipt is not (or no longer) the task's; nothing was done.
    Lost,
    /// The retry was the last attempt: the task is dead now.
    Dead,
}

/// A queue in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Waiting, due or not.
    pub pending: u64,
    /// Waiting and due.
    pub due: u64,
    /// Held by workers.
    pub leased: u64,
    /// Dead.
    pub dead: u64,
    /// The earliest `visible_at` of those that are due.
    pub oldest_due_at: Option<Millis>,
}

/// Why a task cannot be scheduled or settled. `Display` says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskError {
    /// The instant cannot be printed: before year 1 or after year 9999.
    Instant,
    /// The delay is negative or above [`super::MAX_DELAY_MS`].
    Delay,
    /// The payload is above [`super::MAX_PAYLOAD_BYTES`].
    Payload(usize),
    /// The lease is outside [`super::MIN_LEASE_MS`]..=[`super::MAX_LEASE_MS`].
    Lease,
    /// The reason is above [`super::rules::MAX_ERROR_BYTES`].
    Error(usize),
    /// The reason has a NUL character, which not every store keeps.
    Nul,
}

impl std::fmt::Display for TaskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use super::rules::{MAX_DELAY_MS, MAX_ERROR_BYTES, MAX_LEASE_MS, MAX_PAYLOAD_BYTES, MIN_LEASE_MS};
        match self {
            Self::Instant => f.write_str("must lie in the years 1 to 9999"),
            Self::Delay => write!(f, "must be 0 to {MAX_DELAY_MS} milliseconds"),
            Self::Payload(bytes) => {
                write!(
                    f,
                    "is {bytes} bytes: at most {MAX_PAYLOAD_BYTES}; store it elsewhere and schedule a reference to it"
                )
            }
            Self::Lease => write!(f, "must be {MIN_LEASE_MS} to {MAX_LEASE_MS} milliseconds"),
            Self::Error(bytes) => write!(f, "is {bytes} bytes: at most {MAX_ERROR_BYTES}; shorten it"),
            Self::Nul => f.write_str("must not contain NUL characters"),
        }
    }
}

impl std::error::Error for TaskError {}

impl Schedule {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`TaskError`] names the first that is broken.
    pub fn check(&self) -> Result<(), TaskError> {
        if self.payload.len() > super::MAX_PAYLOAD_BYTES {
            return Err(TaskError::Payload(self.payload.len()));
        }
        match self.due {
            Due::At(at) if !(Millis::MIN..=Millis::MAX).contains(&at) => Err(TaskError::Instant),
            Due::In(delay) if !(0..=super::MAX_DELAY_MS).contains(&delay) => Err(TaskError::Delay),
            Due::At(_) | Due::In(_) => Ok(()),
        }
    }
}

impl Verdict {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`TaskError`] names the first that is broken.
    pub fn check(&self) -> Result<(), TaskError> {
        match self {
            Self::Ack | Self::Release => Ok(()),
            Self::Extend(lease_ms) => super::rules::check_lease(*lease_ms),
            Self::Retry { delay_ms: Some(delay), .. } if !(0..=super::MAX_DELAY_MS).contains(delay) => {
                Err(TaskError::Delay)
            }
            Self::Retry { error: Some(error), .. } if error.len() > super::rules::MAX_ERROR_BYTES => {
                Err(TaskError::Error(error.len()))
            }
            Self::Retry { error: Some(error), .. } if error.contains('\0') => Err(TaskError::Nul),
            Self::Retry { .. } => Ok(()),
        }
    }
}

impl Due {
    /// The instant, given the store's now; never after [`Millis::MAX`].
    #[must_use]
    pub fn at(self, now: Millis) -> Millis {
        match self {
            Self::At(at) => at,
            Self::In(delay) => now.plus(delay).min(Millis::MAX),
        }
    }
}
