//! Redis and Valkey: Tidegate's deadline index, the link between its nodes, and two building blocks of their own.
//!
//! - `connect/`: [`RedisOptions`] and [`Connector`], one way to a single server, Sentinel and Cluster.
//! - `keys.rs`: every key. `scripts/`: every script. `reply.rs`: what scripts answer, taken apart.
//! - `deadlines/`: [`RedisDeadlines`], the shared index of what is due.
//! - `bus/`: [`RedisBus`], what nodes tell each other.
//! - `cache/`: [`RedisCache`], the store of the cache.
//! - `membership/`: the bits of membership filters.
//! - `locks.rs`: [`RedisLocks`], [`RedisNode`].
//! - `queue/`: [`RedisQueues`], the delay queue.
//! - `feed/`: [`RedisFeed`], copies that the feed's pages are made from.
//! - `watch/`: [`RedisSamples`], what the watch judges.
//! - [`bigkeys`]: which keys take the most memory. [`hotkeys`]: which are read most. [`doctor`]: how servers are set up.
//! - `blocks/`: [`StockCounter`] and [`OrderStatus`], for teams whose order data live elsewhere.
//! - `bare.rs` (feature `ceiling`): the client by itself, for the benches.
//!
//! Redis 6.2 or Valkey 7.2 and newer. No type of the client crosses this crate's border.

mod asks;
#[cfg(feature = "ceiling")]
mod bare;
pub mod bigkeys;
mod blocks;
mod bus;
mod cache;
mod connect;
mod deadlines;
pub mod doctor;
mod feed;
pub mod hotkeys;
mod keys;
mod locks;
mod members;
mod membership;
mod queue;
mod reply;
mod scripts;
mod tasks;
mod watch;

#[cfg(feature = "ceiling")]
pub use bare::{BareAnswer, BareClient};
pub use blocks::{OrderStatus, StatusChange, StatusOutcome, StockAnswer, StockCounter, StockOperation};
pub use bus::RedisBus;
#[cfg(feature = "ceiling")]
pub use cache::BareReads;
pub use cache::{RedisCache, RedisCacheOptions};
pub use connect::{Connector, RedisOptions};
pub use deadlines::{DeadlineOptions, RedisDeadlines};
pub use feed::{RedisFeed, RedisFeedOptions};
pub use locks::{RedisLocks, RedisNode};
pub use queue::RedisQueues;
pub use watch::RedisSamples;
