//! The delay queue of one process.
//!
//! - [`memory`]: [`MemoryQueues`], in memory: it ends with the process.
//! - `SqliteQueues` (feature `sqlite`): durable, in a file of its own.

pub mod memory;

use tidegate_backend::BoxFuture;

use tokio::sync::watch;

#[cfg(feature = "sqlite")]
pub use crate::sqlite::queue::{SqliteQueueOptions, SqliteQueues};
pub use memory::MemoryQueues;

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
