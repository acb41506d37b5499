//! What the contract's random operations seldom meet: lives of what is remembered, and refreshers of others.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_backend::CacheKey;
use tidegate_conformance::servers::Redis;
use tidegate_core::Millis;
use tidegate_core::cache::cell::Holder;
use tidegate_core::cache::{Failed, Header, Op, Reply, RowVersion, Stamp};
use tidegate_redis::RedisCache;

use super::shelf::{apply, fill, id, invalidate, key, lease, load, open, value};

/// The notes of a key, longer than failures are remembered.
const LONG_MS: i64 = 600_000;

async fn cache(redis: &Redis) -> Arc<RedisCache> {
    open(&redis.url(), "x").await
}

fn notes_live(redis: &Redis, name: &str) -> i64 {
    redis.tell(&["PTTL", &format!("tg:x:c:ns:{{:{name}}}:n")]).parse().unwrap()
}

fn long_floor(version: u64) -> Op {
    Op::Invalidate { floor: RowVersion::new(version), keep_floor_ms: LONG_MS }
}

fn fail(n: u8) -> Op {
    let error = Failed { id: id(n), retry_at: Millis(0), class: 0, message: String::new() };
    Op::Fail { holder: Holder::Lease(id(n)), error: error.bytes().into(), for_ms: 60_000 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_shortens_the_life_of_a_floor() {
    let redis = Redis::start();
    let cache = cache(&redis).await;
    let k = key("k");
    apply(&cache, &k, long_floor(5)).await.unwrap();
    let left = || notes_live(&redis, "k");
    for op in [
        lease(1),
        fail(1),
        invalidate(Some(7)),
        lease(2),
        fill(2, &value(&k, 2, Some(8))),
        Op::Put { bytes: value(&k, 3, Some(9)), ttl_ms: 1_000, keep_floor_ms: 1_000 },
    ] {
        let said = format!("{op:?}");
        let reply = apply(&cache, &k, op).await.unwrap();
        assert!(matches!(reply, Reply::Granted(_) | Reply::Held), "{said}: {reply:?}");
        assert!(left() > LONG_MS - 60_000, "{said} left {} ms", left());
    }
    // And what is remembered of failures lasts when a load works: the same life counts for the floor that comes next.
    let other = key("other");
    for op in [lease(1), fail(1)] {
        apply(&cache, &other, op).await.unwrap();
    }
    apply(&cache, &other, invalidate(None)).await.unwrap();
    load(&cache, &other, &value(&other, 1, None)).await;
    apply(&cache, &other, Op::Invalidate { floor: RowVersion::new(1), keep_floor_ms: 100 }).await.unwrap();
    let left = notes_live(&redis, "other");
    assert!(left > 30_000, "{left} ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_or_an_invalidation_ends_the_refreshes_of_every_schema() {
    let redis = Redis::start();
    let cache = cache(&redis).await;
    for end in 0..3 {
        for schema in 0..4 {
            let k = CacheKey { schema, ..key(&format!("{end} {schema}")) };
            load(&cache, &k, &value(&k, 1, Some(1))).await;
            let refresh = |fill, token| Op::Refresh { fill: id(fill), token: id(token), for_ms: 60_000 };
            assert!(matches!(apply(&cache, &k, refresh(1, 2)).await.unwrap(), Reply::Granted(_)));
            let by = CacheKey { schema: 1, ..k.clone() };
            let ends = match end {
                0 => Op::Put { bytes: value(&by, 3, Some(2)), ttl_ms: 60_000, keep_floor_ms: 1_000 },
                1 => invalidate(Some(2)),
                _ => invalidate(None),
            };
            assert_eq!(apply(&cache, &by, ends).await.unwrap(), Reply::Held);
            if end > 0 || schema != 1 {
                let lease = apply(&cache, &k, lease(4)).await.unwrap();
                assert!(matches!(lease, Reply::Granted(_)), "{end} {schema}: {lease:?}");
                let filled = fill(4, &value(&k, 4, Some(3)));
                assert_eq!(apply(&cache, &k, filled).await.unwrap(), Reply::Held);
            }
            let there = if end == 0 && schema == 1 { 3 } else { 4 };
            let again = apply(&cache, &k, refresh(there, 5)).await.unwrap();
            assert!(matches!(again, Reply::Granted(_)), "{end} {schema}: {again:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_ends_the_refresh_of_another() {
    let redis = Redis::start();
    let cache = cache(&redis).await;
    let k = key("k");
    load(&cache, &k, &value(&k, 1, None)).await;
    let refresh = |token| Op::Refresh { fill: id(1), token: id(token), for_ms: 60_000 };
    let other = Holder::Refresh { fill: id(1), token: id(9) };
    assert!(matches!(apply(&cache, &k, refresh(2)).await.unwrap(), Reply::Granted(_)));
    assert_eq!(apply(&cache, &k, Op::Release { holder: other }).await.unwrap(), Reply::Held);
    assert_eq!(apply(&cache, &k, refresh(3)).await.unwrap(), Reply::Busy);
    assert_eq!(apply(&cache, &k, Op::Renew { holder: other, for_ms: 1 }).await.unwrap(), Reply::Lost);
    assert_eq!(apply(&cache, &k, refresh(3)).await.unwrap(), Reply::Busy);
    let filled = Op::Fill { holder: other, bytes: value(&k, 1, None), ttl_ms: 60_000 };
    assert_eq!(apply(&cache, &k, filled).await.unwrap(), Reply::Held, "what counts is the value it began from");
    assert_eq!(apply(&cache, &k, refresh(3)).await.unwrap(), Reply::Busy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_is_not_older_than_an_absence_with_a_version() {
    let redis = Redis::start();
    let cache = cache(&redis).await;
    let k = key("k");
    let header = Header {
        id: id(1),
        version: RowVersion::new(5),
        schema: 0,
        stamp: Stamp::default(),
        cost_us: 0,
        tags: Vec::new(),
    };
    load(&cache, &k, &Bytes::from(header.absent(&k.key))).await;
    let put = |version| Op::Put { bytes: value(&k, 2, Some(version)), ttl_ms: 1_000, keep_floor_ms: 1_000 };
    let below = Reply::Below(RowVersion::new(5).unwrap());
    assert_eq!(apply(&cache, &k, put(4)).await.unwrap(), below);
    assert_eq!(apply(&cache, &k, put(5)).await.unwrap(), Reply::Held);
}
