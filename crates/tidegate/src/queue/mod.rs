//! A delay queue: "do this at that time, surely". A task is handed to a worker at its instant, never early, at least once,
//! and again if the worker dies, until it is acknowledged; one that fails too often waits for a person.
//!
//! - [`Queues`]: the queues of one store, and the one loop that claims for every worker of the process.
//! - [`Queue`]: one queue's verbs, for payloads of one type. [`NewTask`]: what is scheduled.
//! - [`Worker`], [`WorkerBuilder`]: handlers, how many at once, how they stop. [`Delivery`], [`Answer`]: what a handler
//!   gets and says.
//! - [`RawQueue`]: a queue as bytes, for callers that keep leases themselves.
//! - `claims`: the loop. `alarm`: its sleeps. `running`: leases of what is being handled. `settle`: answers on their way to the store.
//!   `watched`: what a store refuses.
//!
//! Exactly once is the handler's part: it must bear being called twice with the same task (a compare-and-set, a fence, an
//! idempotency key), since the process may die between the work and its acknowledgement.

mod alarm;
mod claims;
mod errors;
mod handle;
mod metrics;
mod queues;
mod raw;
mod running;
mod settle;
mod watched;
mod worker;

pub use errors::QueueError;
pub use handle::{NewTask, Queue, QueuedTask};
pub use queues::Queues;
pub use raw::{Lease, RawQueue, retry};
pub use worker::{Answer, Delivery, Handler, IntoAnswer, StopReport, Worker, WorkerBuilder};

pub use tidegate_backend::queue::MAX_ATTEMPTS;
pub use tidegate_backend::queue::{Listing, MAX_PURGE, MAX_QUEUE_PAGE};
pub use tidegate_backend::{
    Error as StoreError, ErrorKind as StoreErrorKind, QueueCapabilities, QueueOptions, QueueStore,
};
pub use tidegate_core::queue::model::Place;
pub use tidegate_core::queue::{
    Claimed, Condition, DEFAULT_MAX_ATTEMPTS, Due, MAX_BATCH, MAX_DELAY_MS, MAX_LEASE_MS, MAX_PAYLOAD_BYTES,
    MIN_LEASE_MS, NameError, QueueName, Receipt, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskError, TaskId,
    TaskState, Verdict, rules::MAX_ERROR_BYTES,
};
pub use tidegate_embedded::MemoryQueues;
#[cfg(feature = "embedded")]
pub use tidegate_embedded::{SqliteQueueOptions, SqliteQueues};
#[cfg(feature = "redis")]
pub use tidegate_redis::{Connector, RedisOptions, RedisQueues};
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub use tidegate_sql::{SqlQueueOptions, SqlQueues};
