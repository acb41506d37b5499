//! Where cached entries lie, and what the processes that share them tell each other.
//!
//! A store keeps a `tidegate_core::cache::Cell` a key and does to it what [`Op`] says, each operation at once (no other
//! comes in between). It trusts nobody: what it loses, somebody loads again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Millis;
use tidegate_core::cache::{Op, Reply};
use tidegate_core::hot::Report;

use crate::{BoxFuture, MembershipStore, Result};

/// Most keys of one [`CacheStore::read`] or operations of one [`CacheStore::apply`].
pub const MAX_CACHE_BATCH: usize = 1_000;

/// Longest list of hot keys.
pub const MAX_HOT_LIST_BYTES: usize = 512 << 10;

/// Under what an entry is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    /// The cache it belongs to: 1 to 64 of `a-z 0-9 . _ -`, checked by the cache.
    pub namespace: Arc<str>,
    /// Of the value's type.
    pub schema: u32,
    /// The encoded key (`tidegate_core::cache::Key`).
    pub key: Bytes,
}

/// What processes tell each other about entries. Each may come late, twice or never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheNotice {
    /// This key was invalidated or replaced: in-process copies of it are old.
    Invalidated {
        /// Its namespace.
        namespace: Arc<str>,
        /// The encoded key.
        key: Bytes,
    },
    /// Entries with this tag are old unless they carry this counter.
    Tag {
        /// Its namespace.
        namespace: Arc<str>,
        /// XXH3-64 of the tag.
        tag: u64,
        /// Its counter now.
        counter: u64,
    },
    /// All of a namespace is old.
    Cleared {
        /// Which.
        namespace: Arc<str>,
    },
    /// A lease that somebody waited for is over: look again.
    Woken {
        /// Its namespace.
        namespace: Arc<str>,
        /// The encoded key.
        key: Bytes,
    },
    /// Notices were missed: every in-process copy may be old.
    Gap,
    /// The store has lost what it held, by a flush or a restart. What each process has heard and keeps is as right as before.
    Lost,
}

/// What a store can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheCapabilities {
    /// A short name for metrics and messages: `embedded`, `redis`.
    pub name: &'static str,
    /// Other processes see the same entries.
    pub shared: bool,
}

/// A store of cached entries. Every method may be called at any time from any task and is answered, or fails, within the
/// store's time limit.
pub trait CacheStore: Send + Sync {
    /// What it can promise.
    fn capabilities(&self) -> CacheCapabilities;

    /// The store's clock, as well as it is known here: every instant in an entry is of this clock. Cheap.
    fn now(&self) -> Millis;

    /// Why it cannot be asked now, if that is known without asking. Cheap.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Where the membership filters of its namespaces lie, if it can keep any.
    fn membership(&self) -> Option<&dyn MembershipStore> {
        None
    }

    /// What lies under one key: the plain, fast way.
    fn read<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Result<Option<Bytes>>>;

    /// What lies under each of up to [`MAX_CACHE_BATCH`] keys, in order.
    fn read_many<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>>>;

    /// Does up to [`MAX_CACHE_BATCH`] operations, in one round trip where there is one, each with an answer of its own.
    /// Those on one key are done in their order. One that failed may have been done.
    fn apply<'a>(&'a self, operations: &'a [(CacheKey, Op)]) -> BoxFuture<'a, Vec<Result<Reply>>>;

    /// The counters of tags, in order; a tag without one is given one that no tag had before, and every counter named is
    /// kept for `keep` at least.
    fn tags<'a>(&'a self, namespace: &'a str, tags: &'a [u64], keep: Duration) -> BoxFuture<'a, Result<Vec<u64>>>;

    /// Moves a tag's counter to one that it never had before, and gives it: whatever carries an older one is old.
    fn bump_tag<'a>(&'a self, namespace: &'a str, tag: u64, keep: Duration) -> BoxFuture<'a, Result<u64>>;

    /// Deletes every entry, lease and refresh of a namespace that is there when it is called, of every schema; how many
    /// entries and leases. Floors and counters of tags stay. Linear in the size of the store; other calls go on beside it.
    fn clear<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<u64>>;

    /// Tells the other processes, and returns once the store has it. `Woken` is the store's own to tell.
    fn tell<'a>(&'a self, notices: &'a [CacheNotice]) -> BoxFuture<'a, Result<()>>;

    /// The next notices, at least one; own ones may be among them. One caller at a time.
    fn heard(&self) -> BoxFuture<'_, Vec<CacheNotice>>;

    /// How long ago, at most, a notice may have been told that [`CacheStore::heard`] has not given yet. A store that is not
    /// shared answers zero. Cheap.
    fn silence(&self) -> Duration;

    /// Keeps a list of the keys of a namespace that are read most, up to [`MAX_HOT_LIST_BYTES`], for `keep`, for processes that
    /// start later: the last one stays. A store that dies with the process keeps none (the default).
    fn save_hot_keys<'a>(&'a self, namespace: &'a str, list: &'a [u8], keep: Duration) -> BoxFuture<'a, Result<()>> {
        let _ = (namespace, list, keep);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The list that was kept last, if it is there still.
    fn hot_keys<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Option<Bytes>>> {
        let _ = namespace;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Counts a read of each of up to [`MAX_CACHE_BATCH`] keys without reading it, for a store that evicts what is not read;
    /// whether anything lies under each, in order.
    fn touch<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(async move { Ok(self.read_many(keys).await?.iter().map(Option::is_some).collect()) })
    }

    /// Keeps what this process reads most for `keep`, for whoever asks the server; the last report stays. A store that has nobody to
    /// tell does nothing (the default).
    fn tell_hot_keys<'a>(&'a self, report: &'a Report<CacheKey>, keep: Duration) -> BoxFuture<'a, Result<()>> {
        let _ = (report, keep);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}
