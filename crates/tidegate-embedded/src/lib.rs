//! Everything Tidegate needs when there is no server beside it.
//!
//! - [`EmbeddedClock`]: the order clock of one process: it survives steps of the host's clock and suspend.
//! - [`gate`]: [`EmbeddedGate`], copies of what is available, in sharded maps.
//! - [`deadlines`]: [`EmbeddedDeadlines`], an index of deadlines in memory; the ledger rebuilds it at a start.
//! - [`feed`]: [`MemoryFeed`], copies that the feed's pages are made from.
//! - [`locks`]: [`EmbeddedLocks`], locks of one process.
//! - [`queue`]: the delay queue: [`MemoryQueues`], and `SqliteQueues` (feature `sqlite`), which outlives the process.
//! - `cache` (feature `cache`): `EmbeddedCache`, cached entries in memory, bounded by bytes.
//! - `membership` (the same): `EmbeddedMembership`, which ids there are.
//! - `sqlite` (feature `sqlite`): `SqliteLedger`, the ledger in one file, with one writer thread and group commit.
//!
//! Nothing here prints, exits or reads the environment; every thread is joined by `close` or by dropping its owner.

#[cfg(feature = "cache")]
pub mod cache;
pub mod deadlines;
pub mod feed;
pub mod gate;
pub mod locks;
#[cfg(feature = "cache")]
pub mod membership;
pub mod queue;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "cache")]
pub use cache::{EmbeddedCache, EmbeddedCacheOptions};
pub use deadlines::EmbeddedDeadlines;
pub use feed::{MemoryFeed, MemoryFeedOptions};
pub use gate::EmbeddedGate;
pub use locks::EmbeddedLocks;
#[cfg(feature = "cache")]
pub use membership::EmbeddedMembership;
pub use queue::MemoryQueues;
#[cfg(feature = "sqlite")]
pub use queue::{SqliteQueueOptions, SqliteQueues};
#[cfg(feature = "sqlite")]
pub use sqlite::{Options, SqliteLedger, SqliteOutbox, SqliteTransaction, Synchronous};
pub use tidegate_backend::SteadyClock as EmbeddedClock;
