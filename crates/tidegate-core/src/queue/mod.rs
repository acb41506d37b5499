//! The delay queue: tasks that are handed out at an instant, never early, at least once, until somebody acknowledges them or
//! they are dead.
//!
//! - [`name`]: names of queues and ids of tasks.
//! - [`task`]: a task, what can be asked of it, and what comes back.
//! - [`rules`]: the decisions: who wins when a task is there already, how long to wait before the next attempt, how many of
//!   a batch that was lost are handed out together.
//! - [`model`]: a whole queue in memory. It is the meaning of every operation: the stores are replayed against it, and the
//!   embedded store without a file runs it.
//!
//! A task is *pending* (visible from an instant on), *leased* (handed to a worker until an instant; then it is pending again
//! by itself, there is no recoverer to forget), or *dead* (all attempts used up; it waits for a person).

pub mod model;
pub mod name;
pub mod rules;
pub mod task;

pub use model::Queue;
pub use name::{NameError, QueueName, TaskId};
pub use rules::{
    DEFAULT_MAX_ATTEMPTS, MAX_BATCH, MAX_BATCH_BYTES, MAX_DELAY_MS, MAX_LEASE_MS, MAX_PAYLOAD_BYTES, MIN_LEASE_MS,
    retry_delay_ms,
};
pub use task::{
    Claimed, Condition, Due, Receipt, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskError, TaskState, Verdict,
};
