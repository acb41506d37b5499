//! Orders that live and die on time: stock is held while a buyer pays, what is not paid by its deadline is cancelled
//! and its stock comes back, exactly once, on time; a payment racing the deadline never loses; nothing is oversold.
//!
//! - [`Stores`]: which ledger and which store, by their URLs.
//! - [`Tidegate`]: open one, keep it, clone it; [`Tidegate::stop`] ends its workers.
//! - [`Orders`]: place, pay, cancel, extend, fulfil, and the money around them.
//! - [`Catalog`]: SKUs, their stock, its ledger.
//! - [`Operations`]: events, readiness, the clock, reconciliation.
//! - [`cache`] (feature `cache`): a typed cache in front of a database; [`Products`]: product pages through it.
//! - [`feed`] (feature `feed`): home pages of what the people a user follows posted.
//! - [`queue`] (feature `queue`): a delay queue. [`lock`] (feature `lock`): locks with fences.
//! - [`watch`] (feature `watch`): the watch over Redis and Valkey. [`big_keys`] (with `redis`): which of their keys take the most memory,
//!   [`hot_keys`]: which are read most. [`doctor`] (with `redis`): how they are set up.
//! - `workers/`: group commit in front of the ledger, the probe batcher in front of its readers, due orders, the sweep, what
//!   nodes tell each other and how they find what was lost on the way.
//!
//! With the default feature `embedded` no server is needed: SQLite beside the process, everything else in it.

#[cfg(all(feature = "watch", feature = "redis"))]
pub mod big_keys;
#[cfg(feature = "cache")]
pub mod cache;
mod catalog;
#[cfg(all(feature = "watch", feature = "redis"))]
pub mod doctor;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
#[cfg(feature = "feed")]
pub mod feed;
#[cfg(all(feature = "watch", feature = "redis"))]
pub mod hot_keys;
#[cfg(feature = "lock")]
pub mod lock;
mod operations;
mod orders;
#[cfg(any(feature = "lock", feature = "queue"))]
mod pending;
#[cfg(feature = "cache")]
pub mod products;
#[cfg(feature = "queue")]
pub mod queue;
#[cfg(all(feature = "redis", any(feature = "mysql", feature = "postgres")))]
mod redis;
#[cfg(any(feature = "lock", feature = "queue"))]
mod refused;
mod stores;
mod tidegate;
#[cfg(feature = "watch")]
pub mod watch;
mod workers;

pub use catalog::Catalog;
#[cfg(feature = "embedded")]
pub use embedded::Embedded;
pub use error::{Error, Result};
pub use operations::{NotCompared, Operations, Readiness, ReconcileReport};
pub use orders::{Cancelled, Orders, Paid, Placed};
#[cfg(feature = "cache")]
pub use products::Products;
pub use stores::Stores;
pub use tidegate::{Options, Parts, Tidegate};

pub use tidegate_backend::{
    BoxFuture, Clock, ClockStatus, EventRecord, Ledger, OrderFilter, Page, PageRequest, PaymentFilter, RefundFilter,
    SystemClock,
};
/// The rules and their types.
pub use tidegate_core as core;
/// The bare insert loop that `tidegate bench orders` prints as its ceiling.
#[cfg(feature = "ceiling")]
pub use tidegate_embedded::sqlite::ceiling;
/// The cache's map by itself and the client by itself, which `tidegate bench cache` prints as the ceilings of hits.
#[cfg(feature = "ceiling")]
pub mod bare_cache {
    pub use crate::cache::ceiling::BareMap;
    pub use tidegate_redis::BareReads;
}
/// The client by itself, which `tidegate bench deadlines` and `tidegate bench locks` compare with.
#[cfg(feature = "ceiling")]
pub mod bare_redis {
    pub use tidegate_redis::{BareAnswer, BareClient};
}
/// The parts of a feed one by one, with the pages that plain joins make: what `tidegate bench feed` measures and compares with.
#[cfg(feature = "ceiling")]
pub mod bare_feed {
    pub use tidegate_backend::feed::{FeedCapabilities, FeedCommit, Found, MAX_FEED_READS, Reads};
    pub use tidegate_backend::outbox::MAX_OUTBOX_BATCH;
    pub use tidegate_backend::{FeedStore, Result};
    pub use tidegate_embedded::{MemoryFeed, MemoryFeedOptions, Options as SqliteOptions, SqliteLedger};
    pub use tidegate_redis::{RedisFeed, RedisFeedOptions};
    pub use tidegate_sql::{SqlLedger, SqlOptions};
}
/// What the bench needs on a database server: databases of its own, and what it compares with.
#[cfg(feature = "ceiling")]
pub mod on_servers {
    pub use tidegate_sql::scratch::{create, delete};
    pub use tidegate_sql::{Ceiling, ceiling, one_by_one};

    #[cfg(feature = "redis")]
    pub use tidegate_backend::{DeadlineQueue, IndexState, clock::host_now};
    #[cfg(feature = "redis")]
    pub use tidegate_redis::{DeadlineOptions, RedisDeadlines};
}
/// Two building blocks on Redis for teams whose order data live elsewhere: an atomic, idempotent stock counter and an atomic
/// change of a cached order's status. They need none of the rest.
#[cfg(feature = "redis")]
pub mod blocks {
    pub use tidegate_redis::{
        Connector, OrderStatus, RedisOptions, StatusChange, StatusOutcome, StockAnswer, StockCounter, StockOperation,
    };
}

/// The example of the cache's guide, as a test.
#[cfg(all(doctest, feature = "cache"))]
#[doc = include_str!("../../../docs/guides/cache.md")]
pub struct CacheGuide;

/// The example of the queue's guide, as a test.
#[cfg(all(doctest, feature = "queue"))]
#[doc = include_str!("../../../docs/guides/queue.md")]
pub struct QueueGuide;

/// The example of the feed's guide, as a test.
#[cfg(all(doctest, feature = "feed", feature = "embedded"))]
#[doc = include_str!("../../../docs/guides/feed.md")]
pub struct FeedGuide;

/// The example of the locks' guide, as a test.
#[cfg(all(doctest, feature = "lock", feature = "embedded"))]
#[doc = include_str!("../../../docs/guides/locks.md")]
pub struct LockGuide;
