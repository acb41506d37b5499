//! Caches under test, and the words their tests use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backend::{CacheKey, CacheNotice, CacheStore};
use tidegate_core::cache::cell::Holder;
use tidegate_core::cache::{Codec, EntryId, Header, Op, Packing, Reply, RowVersion, Stamp};
use tidegate_redis::{RedisCache, RedisCacheOptions, RedisOptions};

pub const SECOND: Duration = Duration::from_secs(1);

/// A name that no other test uses.
pub fn fresh_name() -> String {
    super::common::fresh_name("cache")
}

pub async fn open(url: &str, name: &str) -> Arc<RedisCache> {
    open_with(url, name, RedisCacheOptions::default()).await
}

pub async fn open_with(url: &str, name: &str, options: RedisCacheOptions) -> Arc<RedisCache> {
    let redis = RedisOptions::parse(url).unwrap().name(name).unwrap();
    Arc::new(RedisCache::open(redis, options).await.unwrap())
}

/// A cache that hears: what was told from now on is heard, and the gap before that has been.
pub async fn hearing(url: &str, name: &str) -> Arc<RedisCache> {
    let cache = open(url, name).await;
    begin_to_hear(&cache).await;
    cache
}

pub async fn begin_to_hear(cache: &RedisCache) {
    let began = Instant::now();
    while cache.silence() == Duration::MAX {
        assert!(began.elapsed() < 10 * SECOND, "it hears nothing");
        let _ = tokio::time::timeout(Duration::from_millis(50), cache.heard()).await;
    }
}

/// Everything that is heard until `last` is.
pub async fn hear_until(cache: &RedisCache, last: &CacheNotice) -> Vec<CacheNotice> {
    let mut all = Vec::new();
    while !all.contains(last) {
        let more = tokio::time::timeout(10 * SECOND, cache.heard()).await;
        all.extend(more.unwrap_or_else(|_| panic!("{last:?} is not heard, only {all:?}")));
    }
    all
}

pub fn key(name: &str) -> CacheKey {
    CacheKey { namespace: "ns".into(), schema: 0, key: Bytes::copy_from_slice(name.as_bytes()) }
}

pub fn invalidated(key: &CacheKey) -> CacheNotice {
    CacheNotice::Invalidated { namespace: key.namespace.clone(), key: key.key.clone() }
}

pub fn id(n: u8) -> EntryId {
    EntryId([n; 16])
}

pub fn value(key: &CacheKey, n: u8, version: Option<u64>) -> Bytes {
    sized(key, n, version, 10)
}

pub fn sized(key: &CacheKey, n: u8, version: Option<u64>, bytes: usize) -> Bytes {
    let version = version.and_then(RowVersion::new);
    let header =
        Header { id: id(n), version, schema: key.schema, stamp: Stamp::default(), cost_us: 0, tags: Vec::new() };
    header.value(&key.key, Codec(0), Packing::Plain, &vec![n; bytes]).into()
}

pub fn lease(n: u8) -> Op {
    Op::Lease { token: id(n), for_ms: 60_000 }
}

pub fn fill(n: u8, bytes: &Bytes) -> Op {
    Op::Fill { holder: Holder::Lease(id(n)), bytes: bytes.clone(), ttl_ms: 60_000 }
}

pub fn invalidate(floor: Option<u64>) -> Op {
    Op::Invalidate { floor: floor.and_then(RowVersion::new), keep_floor_ms: 60_000 }
}

pub async fn apply(cache: &RedisCache, key: &CacheKey, op: Op) -> tidegate_backend::Result<Reply> {
    cache.apply(&[(key.clone(), op)]).await.remove(0)
}

/// Takes the lease and fills it.
pub async fn load(cache: &RedisCache, key: &CacheKey, bytes: &Bytes) {
    assert!(matches!(apply(cache, key, lease(1)).await.unwrap(), Reply::Granted(_)), "nobody holds it");
    assert_eq!(apply(cache, key, fill(1, bytes)).await.unwrap(), Reply::Held);
}
