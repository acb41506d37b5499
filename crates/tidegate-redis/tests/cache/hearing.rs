//! What is heard when streams and connections are not what they should be.

use std::time::{Duration, Instant};

use tidegate_backend::{CacheNotice, CacheStore, ErrorKind};
use tidegate_conformance::servers::{Proxy, Redis};
use tidegate_redis::{RedisCache, RedisCacheOptions, RedisOptions};

use super::common::until;
use super::shelf::{self, SECOND, begin_to_hear, hear_until, hearing, invalidated, key};

fn cleared(namespace: &str) -> CacheNotice {
    CacheNotice::Cleared { namespace: namespace.into() }
}

async fn tell(cache: &RedisCache, notice: CacheNotice) {
    cache.tell(&[notice]).await.unwrap();
}

/// Hears until a gap is heard.
async fn hear_a_gap(cache: &RedisCache) {
    let began = Instant::now();
    while !tokio::time::timeout(10 * SECOND, cache.heard()).await.unwrap().contains(&CacheNotice::Gap) {
        assert!(began.elapsed() < 10 * SECOND, "no gap");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_was_trimmed_is_a_gap() {
    let redis = Redis::start();
    let options = RedisCacheOptions { buckets: 1, notices_kept: 100, ..RedisCacheOptions::default() };
    let a = shelf::open_with(&redis.url(), "x", options.clone()).await;
    let b = shelf::open_with(&redis.url(), "x", options).await;
    begin_to_hear(&b).await;
    for n in 0..3_000 {
        tell(&a, invalidated(&key(&n.to_string()))).await;
    }
    tell(&a, cleared("last")).await;
    let entries: usize = redis.tell(&["XLEN", "{tg:x:cb0}:inv"]).parse().unwrap();
    assert!(entries <= 300, "{entries} entries");
    let heard = hear_until(&b, &cleared("last")).await;
    assert!(heard.contains(&CacheNotice::Gap), "{} heard", heard.len());
    tell(&a, cleared("after")).await;
    assert_eq!(hear_until(&b, &cleared("after")).await, [cleared("after")], "and all is well again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_gone_is_a_gap() {
    let redis = Redis::start();
    let (a, b) = (hearing(&redis.url(), "x").await, hearing(&redis.url(), "x").await);
    tell(&a, cleared("first")).await;
    assert_eq!(hear_until(&b, &cleared("first")).await, [cleared("first")]);
    redis.tell(&["FLUSHALL"]);
    hear_a_gap(&b).await;
    // Between two looks a stream is deleted and begun again: its numbers are others.
    for round in 0..20 {
        let (lost, kept) = (cleared(&format!("lost {round}")), cleared(&format!("kept {round}")));
        tell(&a, lost.clone()).await;
        redis.tell(&["FLUSHALL"]);
        tell(&a, kept.clone()).await;
        let began = Instant::now();
        let mut heard = Vec::new();
        // Both, or a word that something is missing.
        while !heard.contains(&CacheNotice::Gap) {
            assert!(began.elapsed() < 5 * SECOND, "{heard:?}");
            heard.extend(tokio::time::timeout(5 * SECOND, b.heard()).await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_is_a_gap_and_a_cut_connection_is_none() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let b = hearing(&format!("redis://127.0.0.1:{}", proxy.port()), "x").await;
    let a = hearing(&redis.url(), "x").await;
    for round in 0..5 {
        proxy.refuse(true);
        proxy.cut();
        for n in 0..50 {
            tell(&a, invalidated(&key(&format!("{round} {n}")))).await;
        }
        tell(&a, cleared("last")).await;
        proxy.refuse(false);
        let mut heard = hear_until(&b, &cleared("last")).await;
        while heard.len() < 51 {
            heard.extend(b.heard().await);
        }
        assert!(!heard.contains(&CacheNotice::Gap), "the stream holds it all: {heard:?}");
        for n in 0..50 {
            assert!(heard.contains(&invalidated(&key(&format!("{round} {n}")))), "{n}");
        }
    }
    redis.restart();
    hear_a_gap(&b).await;
    hear_a_gap(&a).await;
    // Whichever call finds out that the connection is dead fails.
    let began = Instant::now();
    while a.tell(&[cleared("again")]).await.is_err() {
        assert!(began.elapsed() < 5 * SECOND, "{:?}", a.trouble());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    hear_until(&b, &cleared("again")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_himself() {
    let redis = Redis::start();
    let (a, b) = (hearing(&redis.url(), "x").await, hearing(&redis.url(), "x").await);
    tell(&a, cleared("own")).await;
    tell(&b, cleared("other's")).await;
    assert_eq!(hear_until(&a, &cleared("other's")).await, [cleared("other's")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_makes_nothing_fresher_than_it_is() {
    const DELAY: Duration = Duration::from_millis(350);
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let options = RedisCacheOptions { timeout: 2 * SECOND, ..RedisCacheOptions::default() };
    let cache = shelf::open_with(&format!("redis://127.0.0.1:{}", proxy.port()), "x", options).await;
    begin_to_hear(&cache).await;
    let listener = tokio::spawn({
        let cache = cache.clone();
        async move {
            loop {
                cache.heard().await;
            }
        }
    });
    until("it hears", 5 * SECOND, || cache.silence() < SECOND / 2).await;
    proxy.delay(DELAY);
    // An answer that was on its way already.
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    let mut least = Duration::MAX;
    while began.elapsed() < 3 * SECOND {
        least = least.min(cache.silence());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What was told less than the delay ago cannot have been heard.
    assert!(least >= DELAY - Duration::from_millis(5), "{least:?}");
    proxy.delay(Duration::ZERO);
    until("it is as it was", 5 * SECOND, || cache.silence() < SECOND / 2).await;
    proxy.silence(true);
    tokio::time::sleep(2 * SECOND).await;
    assert!(cache.silence() > Duration::from_millis(1_600), "{:?}", cache.silence());
    listener.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lags_behind_knows_how_far() {
    const MANY: usize = 3_000;
    let redis = Redis::start();
    let options = RedisCacheOptions { buckets: 1, ..RedisCacheOptions::default() };
    let a = shelf::open_with(&redis.url(), "x", options.clone()).await;
    let b = shelf::open_with(&redis.url(), "x", options).await;
    begin_to_hear(&b).await;
    let names: Vec<_> = (0..MANY).map(|n| key(&n.to_string())).collect();
    let mut told = Vec::new();
    for name in &names {
        tell(&a, invalidated(name)).await;
        told.push(Instant::now());
    }
    tokio::time::sleep(SECOND / 2).await;
    let mut next = 0;
    while next < MANY {
        for notice in tokio::time::timeout(10 * SECOND, b.heard()).await.unwrap() {
            assert_eq!(notice, invalidated(&names[next]));
            next += 1;
        }
        if let Some(told) = told.get(next) {
            let age = told.elapsed();
            assert!(b.silence() >= age, "{:?}, and number {next} was told {age:?} ago", b.silence());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_divided_in_two_ways_are_refused() {
    let redis = Redis::start();
    let first = hearing(&redis.url(), "x").await;
    let other = RedisCacheOptions { buckets: 2, ..RedisCacheOptions::default() };
    let options = |name| RedisOptions::parse(&redis.url()).unwrap().name(name).unwrap();
    let refused = RedisCache::open(options("x"), other.clone()).await.err().expect("it is refused");
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    assert!(refused.to_string().contains("buckets"), "{refused}");
    assert!(RedisCache::open(options("y"), other).await.is_ok(), "another name is free");
    // Somebody got in all the same: nobody trusts what is heard, and so in-process copies, until it is as it should be.
    redis.tell(&["SET", "{tg:x:cb}:layout", "3", "PX", "2500"]);
    until("it is noticed", 3 * SECOND, || first.silence() == Duration::MAX).await;
    until("it is over", 5 * SECOND, || first.silence() < Duration::MAX).await;
}
