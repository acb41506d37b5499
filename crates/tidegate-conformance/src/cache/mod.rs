//! The cases every store of the cache passes.
//!
//! - [`entries`]: leases, fills, refreshes, floors, puts, invalidations.
//! - [`hearing`]: waking, telling and hearing, gaps, silence.
//! - [`wide`]: clearing, tags, batches, large values, keys of every kind, foreign clients.
//! - [`bent`]: stores that fail, or are wrong on purpose.
//! - [`torture`]: what is built on a store, in several processes that are killed, against the promises of its reads.
//! - [`replay`]: seeded random operations, each answer held against `tidegate_core::cache::Cell`.
//!
//! Stores whose time is real cannot be asked for the edges of a life: a life here is long, or it has clearly passed. A
//! store whose time is a test's is replayed with short ones as well.

pub mod bent;
pub mod entries;
pub mod hearing;
pub mod replay;
pub mod torture;
pub mod wide;

pub use entries::*;
pub use hearing::*;
pub use replay::*;
pub use wide::*;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::BoxFuture;
use tidegate_backend::cache::{CacheKey, CacheStore};
use tidegate_core::cache::cell::{Holder, Notes};
use tidegate_core::cache::{Codec, EntryId, Failed, Header, Op, Packing, Reply, RowVersion, Stamp};
use tidegate_core::{Millis, cache::entry};

/// A fresh, empty store under test, with what its tests need beside the trait.
pub trait Harness: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn CacheStore>;

    /// The same entries, as another process would have them.
    fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>>;

    /// Writes an entry as a foreign client would (`SET key bytes PX life`).
    fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()>;

    /// Deletes one schema's entry as a foreign client would (`DEL key`).
    fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()>;

    /// Lets time pass: by a clock of the test's own, or by sleeping.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Something bad that may happen to such a store at any time: restarted, emptied, frozen for a while. Another thing each
    /// time.
    fn disturb(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether time passes by [`Harness::pass`] only.
    fn exact(&self) -> bool {
        false
    }
}

/// Opens a fresh, empty store.
pub type Open<'a> = &'a (dyn Fn() -> BoxFuture<'static, Box<dyn Harness>> + Sync);

/// A life that no case outlives, milliseconds.
const LONG: i64 = 600_000;
/// A life that [`Subject::outlive`] outlives, and that some calls in a row on a busy machine do not.
const SHORT: i64 = 400;

/// The answer to a lease when nothing is remembered.
const GRANTED: Reply = Reply::Granted(Notes { floor: None, failures: 0 });

struct Subject {
    harness: Box<dyn Harness>,
    store: Arc<dyn CacheStore>,
}

impl Subject {
    async fn open(open: Open<'_>) -> Self {
        let harness = open().await;
        let store = harness.store();
        Self { harness, store }
    }

    async fn read(&self, key: &CacheKey) -> Option<Bytes> {
        self.store.read(key).await.expect("the store answers")
    }

    async fn apply(&self, key: &CacheKey, op: Op) -> Reply {
        apply(&*self.store, key, op).await
    }

    async fn outlive(&self) {
        self.harness.pass(Duration::from_millis(SHORT.unsigned_abs() + 100)).await;
    }

    /// Fills a key that nobody holds.
    async fn filled(&self, key: &CacheKey, n: u8, version: Option<u64>) -> Bytes {
        assert!(matches!(self.apply(key, lease(n)).await, Reply::Granted(_)), "nothing was there");
        let bytes = value(key, n, version);
        assert_eq!(self.apply(key, fill(by_lease(n), &bytes)).await, Reply::Held);
        bytes
    }
}

async fn apply(store: &dyn CacheStore, key: &CacheKey, op: Op) -> Reply {
    let mut replies = store.apply(&[(key.clone(), op)]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0).expect("the store answers")
}

fn key(name: &str) -> CacheKey {
    CacheKey { namespace: "ns".into(), schema: 0, key: Bytes::copy_from_slice(name.as_bytes()) }
}

fn of_schema(key: &CacheKey, schema: u32) -> CacheKey {
    CacheKey { schema, ..key.clone() }
}

fn id(n: u8) -> EntryId {
    EntryId([n; 16])
}

fn header(key: &CacheKey, n: u8, version: Option<u64>) -> Header {
    let version = version.map(|version| RowVersion::new(version).expect("small"));
    Header { id: id(n), version, schema: key.schema, stamp: Stamp::default(), cost_us: 0, tags: Vec::new() }
}

fn value(key: &CacheKey, n: u8, version: Option<u64>) -> Bytes {
    header(key, n, version).value(&key.key, Codec(0), Packing::Plain, b"payload").into()
}

fn absence(key: &CacheKey, n: u8, version: Option<u64>) -> Bytes {
    header(key, n, version).absent(&key.key).into()
}

fn error(n: u8) -> Bytes {
    Failed { id: id(n), retry_at: Millis(1), class: 3, message: "no such luck".into() }.bytes().into()
}

/// The bytes of a lease, as they lie there once somebody waits for it.
fn waited_lease(n: u8) -> Bytes {
    let mut bytes = entry::lease(id(n));
    entry::set_waited(&mut bytes);
    bytes.into()
}

fn by_lease(n: u8) -> Holder {
    Holder::Lease(id(n))
}

/// Of the value `fill` by the refresh `token`.
fn by_refresh(fill: u8, token: u8) -> Holder {
    Holder::Refresh { fill: id(fill), token: id(token) }
}

fn lease(n: u8) -> Op {
    Op::Lease { token: id(n), for_ms: LONG }
}

fn refresh(fill: u8, token: u8) -> Op {
    Op::Refresh { fill: id(fill), token: id(token), for_ms: LONG }
}

fn fill(holder: Holder, bytes: &Bytes) -> Op {
    Op::Fill { holder, bytes: bytes.clone(), ttl_ms: LONG }
}

fn put(bytes: &Bytes) -> Op {
    Op::Put { bytes: bytes.clone(), ttl_ms: LONG, keep_floor_ms: LONG }
}

fn invalidate(floor: Option<u64>) -> Op {
    Op::Invalidate { floor: floor.and_then(RowVersion::new), keep_floor_ms: LONG }
}

fn below(version: u64) -> Reply {
    Reply::Below(RowVersion::new(version).expect("small"))
}

fn noted(floor: Option<u64>, failures: u32) -> Reply {
    Reply::Granted(Notes { floor: floor.and_then(RowVersion::new), failures })
}
