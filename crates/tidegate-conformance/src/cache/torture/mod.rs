//! Torture of a cache that is built on a store: several processes read, write, load slowly, fail and are killed, and no
//! read may be older than its promise.
//!
//! A *process* has a Tokio runtime of its own and a handle of its own on the store; killing it drops the runtime with
//! everything in it, wherever it is. The check: a strong read never gives a version older than the newest whose
//! invalidation was acknowledged before the read began; a bounded one never older than the newest that was acknowledged
//! [`BOUND`] before.
//!
//! - `database`: [`Database`], the registers, and what a read may give.

mod database;
mod run;

use std::sync::Arc;

use tidegate_backend::BoxFuture;
use tidegate_backend::cache::CacheStore;

pub use database::{Allowed, BOUND, Database, Kind, Loaded, Refused, is_deletion};
pub use run::{Mix, Settings, Tally, torture};

/// What a read gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The version; `None`: there is none.
    pub version: Option<u64>,
    /// Served, and marked as such, because nothing newer could be had.
    pub stale: bool,
}

/// One process' cache of the registers of a [`Database`].
pub trait Process: Send + Sync {
    /// Reads one key.
    fn read(&self, key: u32, strong: bool) -> BoxFuture<'_, Result<Answer, String>>;

    /// Loads one key anew: what a load gives that begins after this call.
    fn force(&self, key: u32) -> BoxFuture<'_, Result<Answer, String>>;

    /// Reads several keys at once, bounded; an answer each.
    fn read_many<'a>(&'a self, keys: &'a [u32]) -> BoxFuture<'a, Vec<Result<Answer, String>>>;

    /// Invalidates a key; with the version of its row, if that is known.
    fn invalidate(&self, key: u32, version: Option<u64>) -> BoxFuture<'_, Result<(), String>>;

    /// Invalidates the tag that the key carries.
    fn invalidate_tag(&self, key: u32) -> BoxFuture<'_, Result<(), String>>;

    /// Deletes everything.
    fn clear(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Stores a committed version.
    fn put(&self, key: u32, version: u64) -> BoxFuture<'_, Result<(), String>>;
}

/// Starts a process on a handle of its own, with a schema number: old and new programs run side by side. Called within the
/// process' runtime.
pub type Start = Arc<dyn Fn(Arc<dyn CacheStore>, Arc<Database>, u32) -> Arc<dyn Process> + Send + Sync>;

/// The namespace of the cache under torture, for clients that write past it.
pub const NAMESPACE: &str = "torture";
/// How many schema numbers are in use.
const SCHEMAS: u32 = 2;
