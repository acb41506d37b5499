//! The delay queue of one process.
//!
//! - [`memory`]: [`MemoryQueues`], in memory: it ends with the process.
//! - `SqliteQueues` (feature `sqlite`): durable, in a file of its own.

pub mod memory;

use tidegate_backend::queue::Listing;
use tidegate_backend::{BoxFuture, Error, ErrorKind};
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{DEFAULT_MAX_ATTEMPTS, Task};

use tokio::sync::watch;

#[cfg(feature = "sqlite")]
pub use crate::sqlite::queue::{SqliteQueueOptions, SqliteQueues};
pub use memory::MemoryQueues;

/// Bounds of a store of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueOptions {
    /// Most queues. Default 1,000.
    pub max_queues: usize,
    /// Attempts a task has, 1 or more. Default [`DEFAULT_MAX_ATTEMPTS`].
    pub max_attempts: u32,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { max_queues: 1_000, max_attempts: DEFAULT_MAX_ATTEMPTS }
    }
}

pub(crate) fn too_many(max: usize) -> Error {
    Error::new(ErrorKind::Limit, format!("there are {max} queues already; use one of them, or raise the bound"))
}

/// Resolves at the next change after this call.
pub(crate) fn moved(sender: &watch::Sender<u64>) -> BoxFuture<'static, ()> {
    let mut moved = sender.subscribe();
    Box::pin(async move {
        if moved.changed().await.is_err() {
            // The store is gone: nothing is scheduled any more.
            std::future::pending::<()>().await;
        }
    })
}

/// Where the page after a full one begins.
pub(crate) fn next_place(listing: &Listing, page: &[Task], limit: usize) -> Option<Place> {
    let last = page.last().filter(|_| page.len() == limit)?;
    let at = match listing {
        Listing::Live(_) => last.visible_at,
        Listing::Dead => last.dead_at.unwrap_or_default(),
    };
    Some((at, last.id.clone()))
}
