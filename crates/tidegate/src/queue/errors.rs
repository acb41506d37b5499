//! Why a queue did not do what was asked.

use tidegate_core::id::IdError;
use tidegate_core::queue::{NameError, TaskError};

/// Why a call did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The name of the queue.
    #[error("the queue's name {0}")]
    Name(NameError),
    /// The queue belongs to the product itself.
    #[error("the queue {0} is Tidegate's own: it can be looked at, not changed; use another name")]
    Reserved(String),
    /// An id of a task.
    #[error("the task's id {0}")]
    Id(IdError),
    /// A bound of a task.
    #[error("the task {0}")]
    Task(TaskError),
    /// More than [`tidegate_core::queue::MAX_BATCH`] tasks in a call.
    #[error("{0} tasks in one call; split them into calls of at most 512")]
    Batch(usize),
    /// A payload cannot be written or read.
    #[error("the payload is not of the queue's type: {0}")]
    Payload(#[from] serde_json::Error),
    /// The store failed. The call may have been done; repeating it is safe.
    #[error(transparent)]
    Store(#[from] tidegate_backend::Error),
}

impl From<NameError> for QueueError {
    fn from(e: NameError) -> Self {
        Self::Name(e)
    }
}

impl From<IdError> for QueueError {
    fn from(e: IdError) -> Self {
        Self::Id(e)
    }
}

impl From<TaskError> for QueueError {
    fn from(e: TaskError) -> Self {
        Self::Task(e)
    }
}
