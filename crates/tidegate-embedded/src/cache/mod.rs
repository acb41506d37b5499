//! The cache's store in the memory of one process.
//!
//! - `table`: cells (and counters of tags) in sharded maps, bounded by bytes, the least recently used going first.
//! - `notices`: what the handles on one store tell each other.
//!
//! Every operation is `Cell::apply` under the lock of its shard. Nothing runs in the background: what is dead is freed by
//! later operations, a few cells at each.

mod notices;
mod table;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backend::cache::{CacheCapabilities, CacheKey, CacheNotice, CacheStore};
use tidegate_backend::steady::{HostTime, TimeSource};
use tidegate_backend::{BoxFuture, Clock, Error, ErrorKind, MembershipStore, Result};
use tidegate_core::Millis;
use tidegate_core::cache::{Cell, Op, Reply};

use crate::membership::EmbeddedMembership;
use notices::Inbox;
use table::{Lives, Table};

/// Notices that wait for a handle; of more, [`CacheNotice::Gap`] is what it hears.
pub const MAX_NOTICES: usize = 10_000;
/// The memory that counters of tags may take, bytes. A counter that is evicted makes old what carries it, no more.
const TAG_BYTES: usize = 16 << 20;

/// How an [`EmbeddedCache`] is made.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddedCacheOptions {
    /// The memory that entries and keys may take, with what it costs to keep them, bytes. Default 64 MiB.
    pub max_bytes: usize,
}

impl Default for EmbeddedCacheOptions {
    fn default() -> Self {
        Self { max_bytes: 64 << 20 }
    }
}

/// A store of cached entries in this process: one handle on it. Each handle from [`EmbeddedCache::handle`] is to it what
/// another process is to a shared store.
pub struct EmbeddedCache {
    store: Arc<Store>,
    inbox: Arc<Inbox>,
}

struct Store {
    cells: Table<Cell>,
    tags: Table<Tag>,
    /// The next counter of a tag. It only grows, so no tag ever has the same again.
    next_counter: AtomicU64,
    inboxes: RwLock<Vec<Arc<Inbox>>>,
    members: EmbeddedMembership,
    /// Whether there ever was more than one handle.
    shared: AtomicBool,
    time: Time,
}

/// Where a store takes its time from. In memory nothing outlives the process, so the host's clock is asked once.
enum Time {
    /// What is added to the boot clock, nanoseconds.
    Boot(i64),
    Given(Arc<dyn Clock>),
}

impl Time {
    fn of_host() -> Self {
        Self::Boot(HostTime.wall_ns().saturating_sub(HostTime.boot_ns()))
    }

    fn now(&self) -> Millis {
        match self {
            Self::Boot(offset) => Millis(HostTime.boot_ns().saturating_add(*offset).div_euclid(1_000_000)),
            Self::Given(clock) => clock.now(),
        }
    }
}

/// A tag's counter.
struct Tag {
    counter: u64,
    until: Millis,
}

impl Lives for Cell {
    fn sweep(&mut self, now: Millis) -> bool {
        Cell::sweep(self, now)
    }

    fn bytes(&self) -> usize {
        Cell::bytes(self)
    }
}

impl Lives for Tag {
    fn sweep(&mut self, now: Millis) -> bool {
        now < self.until
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl EmbeddedCache {
    /// An empty store. Its clock starts at the host's and runs on by itself, whatever the host's does.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: `max_bytes` is 0.
    pub fn open(options: EmbeddedCacheOptions) -> Result<Self> {
        Self::with_time(options, Time::of_host())
    }

    /// The same on a clock of the caller's, which must never run backwards.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: `max_bytes` is 0.
    pub fn with_clock(options: EmbeddedCacheOptions, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::with_time(options, Time::Given(clock))
    }

    fn with_time(options: EmbeddedCacheOptions, time: Time) -> Result<Self> {
        if options.max_bytes == 0 {
            return Err(Error::new(ErrorKind::Configuration, "a cache of 0 bytes keeps nothing; set max_bytes higher"));
        }
        let inbox = Arc::new(Inbox::default());
        let store = Store {
            cells: Table::new(options.max_bytes),
            tags: Table::new(TAG_BYTES),
            next_counter: AtomicU64::new(1),
            inboxes: RwLock::new(vec![inbox.clone()]),
            members: EmbeddedMembership::default(),
            shared: AtomicBool::new(false),
            time,
        };
        Ok(Self { store: Arc::new(store), inbox })
    }

    /// Another handle on the same entries, with an ear of its own: as another process would have. From now on all handles
    /// say that they are shared, so take them before a cache is built on one.
    #[must_use]
    pub fn handle(&self) -> Self {
        let inbox = Arc::new(Inbox::default());
        self.store.shared.store(true, Ordering::SeqCst);
        self.store.inboxes.write().unwrap_or_else(PoisonError::into_inner).push(inbox.clone());
        Self { store: self.store.clone(), inbox }
    }

    /// Bytes in use, with what it costs to keep them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store.cells.bytes()
    }

    /// Entries that were dropped to make room.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.store.cells.evictions()
    }

    /// Writes over an entry as a client would that knows none of the rules. For tests and repairs.
    pub fn overwrite(&self, key: &CacheKey, bytes: Bytes, life: Duration) {
        let life = millis(life);
        self.store.cells.change(&key.namespace, &key.key, &self.store.time, |cell, now| {
            cell.overwrite(key.schema, bytes, now.plus(life));
        });
    }

    /// Deletes one schema's entry as such a client would: leases are revoked by it, nobody is told. For tests and repairs.
    pub fn delete(&self, key: &CacheKey) {
        self.store.cells.change(&key.namespace, &key.key, &self.store.time, |cell, _| cell.delete(key.schema));
    }

    /// The membership filters of its namespaces.
    #[must_use]
    pub fn members(&self) -> &EmbeddedMembership {
        &self.store.members
    }

    fn apply_one(&self, key: &CacheKey, op: &Op) -> Reply {
        let store = &*self.store;
        let (reply, waited) =
            store.cells.change(&key.namespace, &key.key, &store.time, |cell, now| cell.apply(key.schema, op, now));
        if waited {
            store.tell(CacheNotice::Woken { namespace: key.namespace.clone(), key: key.key.clone() }, None);
        }
        reply
    }

    fn tag(&self, namespace: &Arc<str>, tag: u64, keep: Duration, bump: bool) -> u64 {
        let (store, keep) = (&*self.store, millis(keep));
        store.tags.change(namespace, &Bytes::copy_from_slice(&tag.to_be_bytes()), &store.time, |held, now| {
            if bump || now >= held.until {
                held.counter = store.next_counter.fetch_add(1, Ordering::Relaxed);
            }
            held.until = held.until.max(now.plus(keep));
            held.counter
        })
    }
}

impl Default for Tag {
    /// One whose time is over.
    fn default() -> Self {
        Self { counter: 0, until: Millis(i64::MIN) }
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Store {
    /// Puts `notice` into every inbox but `except`.
    fn tell(&self, notice: CacheNotice, except: Option<&Arc<Inbox>>) {
        let now = Instant::now();
        for inbox in self.inboxes.read().unwrap_or_else(PoisonError::into_inner).iter() {
            if except.is_none_or(|own| !Arc::ptr_eq(own, inbox)) {
                inbox.put(now, notice.clone());
            }
        }
    }

    fn forget(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = self.inboxes.write().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|other| !Arc::ptr_eq(other, inbox));
    }
}

impl CacheStore for EmbeddedCache {
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { name: "embedded", shared: self.store.shared.load(Ordering::Relaxed) }
    }

    fn now(&self) -> Millis {
        self.store.time.now()
    }

    fn membership(&self) -> Option<&dyn MembershipStore> {
        Some(&self.store.members)
    }

    fn read<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(std::future::ready(Ok(self.store.read(key))))
    }

    fn read_many<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>>> {
        Box::pin(async move { Ok(keys.iter().map(|key| self.store.read(key)).collect()) })
    }

    fn apply<'a>(&'a self, operations: &'a [(CacheKey, Op)]) -> BoxFuture<'a, Vec<Result<Reply>>> {
        Box::pin(async move { operations.iter().map(|(key, op)| Ok(self.apply_one(key, op))).collect() })
    }

    fn tags<'a>(&'a self, namespace: &'a str, tags: &'a [u64], keep: Duration) -> BoxFuture<'a, Result<Vec<u64>>> {
        let namespace = Arc::from(namespace);
        Box::pin(async move { Ok(tags.iter().map(|tag| self.tag(&namespace, *tag, keep, false)).collect()) })
    }

    fn bump_tag<'a>(&'a self, namespace: &'a str, tag: u64, keep: Duration) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move { Ok(self.tag(&Arc::from(namespace), tag, keep, true)) })
    }

    fn clear<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let mut entries = 0;
            for shard in 0..table::SHARDS {
                let mut here = 0;
                let store = &*self.store;
                store.cells.change_all(shard, namespace, &store.time, |cell, now| here += cell.clear(now));
                entries += here as u64;
                tokio::task::yield_now().await;
            }
            Ok(entries)
        })
    }

    fn tell<'a>(&'a self, notices: &'a [CacheNotice]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for notice in notices {
                self.store.tell(notice.clone(), Some(&self.inbox));
            }
            Ok(())
        })
    }

    fn heard(&self) -> BoxFuture<'_, Vec<CacheNotice>> {
        Box::pin(self.inbox.take())
    }

    fn silence(&self) -> Duration {
        if self.capabilities().shared { self.inbox.oldest() } else { Duration::ZERO }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.forget(&self.inbox);
        Box::pin(std::future::ready(()))
    }
}

impl Store {
    fn read(&self, key: &CacheKey) -> Option<Bytes> {
        self.cells.read(&key.namespace, &key.key, |cell| cell.read(key.schema, self.time.now()).cloned())
    }
}

impl Drop for EmbeddedCache {
    fn drop(&mut self) {
        self.store.forget(&self.inbox);
    }
}

impl fmt::Debug for EmbeddedCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedCache").field("bytes", &self.bytes()).field("now", &self.now()).finish()
    }
}

#[cfg(test)]
mod tests;
