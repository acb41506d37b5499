//! Warm-up: what was hot comes back after a restart, a flush or an eviction, spread over time, and hinders nobody.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::cache::*;
use tidegate_conformance::servers::Redis;
use tidegate_redis::RedisOptions;

use super::common::*;
use super::hot::Zipf;

fn embedded(file: &Path) -> Caches {
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    Caches::builder(store).hot_keys_in(file).start().unwrap()
}

fn cached(caches: &Caches, db: &Arc<Database>) -> Cache<u64, u64> {
    caches.cache("t").fresh_for(Ttl::seconds::<600>()).loader(db.loader()).unwrap()
}

async fn until(what: &str, patience: Duration, done: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < patience, "{what}");
        pause(5).await;
    }
    began.elapsed()
}

const PATIENCE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn what_was_hot_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.hot");
    let db = Database::new();
    (1..=200).for_each(|key| db.set(key, key));
    let caches = embedded(&file);
    let cache = cached(&caches, &db);
    for round in 0..5 {
        for key in 1..=60 {
            if key <= 60 - round * 10 {
                cache.get(&key).await.unwrap();
            }
        }
    }
    caches.close().await;
    drop((cache, caches));

    let (db, began) = (Database::new(), Instant::now());
    (1..=200).for_each(|key| db.set(key, key));
    db.takes(1);
    let caches = embedded(&file);
    let cache = cached(&caches, &db);
    assert!(began.elapsed() < Duration::from_millis(500), "nobody waits for it");
    until("the hottest come back", PATIENCE, || cache.stats().local_copies >= 60).await;
    assert!(db.starts.lock().unwrap().len() == 60, "{}", db.loads());
    assert!(began.elapsed() > Duration::from_millis(400), "spread over time: {:?}", began.elapsed());
    for key in 1..=60 {
        assert_eq!(cache.get(&key).await.unwrap().source, Source::Local, "{key}");
    }
    assert_eq!(db.loads(), 60, "without a load");
    // Without a read in between, the list stays as it is.
    caches.close().await;
    drop((cache, caches));
    let caches = embedded(&file);
    let cache = cached(&caches, &db);
    until("they come back once more", PATIENCE, || cache.stats().local_copies >= 60).await;
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_list_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.hot");
    for damage in [&b""[..], b"garbage", &[0xff; 3_000]] {
        std::fs::write(&file, damage).unwrap();
        let db = Database::new();
        let caches = embedded(&file);
        let cache = cached(&caches, &db);
        for _ in 0..20 {
            cache.get(&1).await.unwrap();
        }
        pause(50).await;
        caches.close().await;
        assert_ne!(std::fs::read(&file).unwrap(), damage, "a good one takes its place");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_gives_way_to_whoever_asks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.hot");
    let db = Database::new();
    (1..=900).for_each(|key| db.set(key, key));
    let caches = embedded(&file);
    let cache = cached(&caches, &db);
    for key in (1..=300).chain(1..=300) {
        cache.get(&key).await.unwrap();
    }
    caches.close().await;
    drop((cache, caches));
    let caches = embedded(&file);
    db.takes(20);
    let cache: Cache<u64, u64> = caches.cache("t").load_budget(4).loader(db.loader()).unwrap();
    pause(60).await;
    for key in 500..530 {
        let began = Instant::now();
        cache.get(&key).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(80), "{:?}", began.elapsed());
    }
    assert!(db.most_running.load(Ordering::SeqCst) <= 4);
    let began = Instant::now();
    caches.close().await;
    assert!(began.elapsed() < Duration::from_secs(2), "it ends with the caches");
}

async fn on_redis(url: &str, rate: u32) -> Caches {
    let redis = RedisOptions::parse(url).unwrap().name("warm").unwrap();
    let store = RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap();
    Caches::builder(Arc::new(store)).load_rate(NonZeroU32::new(rate).unwrap()).start().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_shared_through_the_store() {
    let redis = Redis::start();
    let db = Database::new();
    (1..=50).for_each(|key| db.set(key, key));
    let caches = on_redis(&redis.url(), 1_000).await;
    let cache = cached(&caches, &db);
    for key in (1..=50).chain(1..=50) {
        cache.get(&key).await.unwrap();
    }
    caches.close().await;
    let expiry: i64 = redis.tell(&["PTTL", "tg:warm:ch:t"]).trim().trim_start_matches(':').parse().unwrap();
    assert!(expiry > 0, "{expiry}");
    let loads = db.loads();
    let caches = on_redis(&redis.url(), 1_000).await;
    let cache = cached(&caches, &db);
    until("read from the store", PATIENCE, || cache.stats().local_copies >= 50).await;
    assert_eq!(db.loads(), loads, "what the store has is not loaded");
    for key in 1..=50 {
        assert_eq!(cache.get(&key).await.unwrap().source, Source::Local);
    }
    caches.close().await;
}

/// Reads by Zipf's law, one process after the other, until told to stop; hits in every tenth of a second.
struct Readers {
    hits: AtomicU64,
    reads: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_made_good_within_six_seconds_and_the_budget() {
    const KEYS: usize = 1_000;
    let redis = Redis::start();
    let db = Database::new();
    (1..=KEYS as u64).for_each(|key| db.set(key, key));
    db.takes(5);
    // 200 a second for all.
    let caches =
        [on_redis(&redis.url(), 1_000).await, on_redis(&redis.url(), 100).await, on_redis(&redis.url(), 100).await];
    let warmer = cached(&caches[0], &db);
    warmer.warm(&(1..=KEYS as u64).collect::<Vec<_>>()).await.unwrap();
    caches[0].close().await;
    let caches = &caches[1..];
    let all: Vec<Cache<u64, u64>> = caches.iter().map(|caches| cached(caches, &db)).collect();
    let readers = Arc::new(Readers { hits: AtomicU64::new(0), reads: AtomicU64::new(0) });
    let reading: Vec<_> = (0..2)
        .map(|n| {
            let (cache, readers) = (all[n].clone(), Arc::clone(&readers));
            tokio::spawn(async move {
                let mut zipf = Zipf::new(KEYS, 11 + n as u64);
                let mut tick = tokio::time::interval(Duration::from_millis(10));
                loop {
                    tick.tick().await;
                    for _ in 0..10 {
                        let (cache, key, readers) = (cache.clone(), zipf.draw(), Arc::clone(&readers));
                        tokio::spawn(async move {
                            let hit = cache.get(&key).await.is_ok_and(|read| read.source != Source::Load);
                            readers.hits.fetch_add(u64::from(hit), Ordering::Relaxed);
                            readers.reads.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                }
            })
        })
        .collect();
    pause(2_500).await;
    assert!(all.iter().all(|cache| cache.hottest(KEYS).len() > 500));
    let (before, flushed) = (db.loads(), Instant::now());
    redis.tell(&["FLUSHALL"]);
    let mut good_at = None;
    while flushed.elapsed() < Duration::from_millis(6_500) {
        readers.hits.store(0, Ordering::Relaxed);
        readers.reads.store(0, Ordering::Relaxed);
        pause(250).await;
        let rate = readers.hits.load(Ordering::Relaxed) as f64 / readers.reads.load(Ordering::Relaxed).max(1) as f64;
        if rate < 0.95 {
            good_at = None;
        } else if good_at.is_none() {
            good_at = Some(flushed.elapsed());
        }
    }
    reading.iter().for_each(tokio::task::JoinHandle::abort);
    let good_at = good_at.expect("95 % of reads hit again");
    assert!(good_at <= Duration::from_secs(6), "{good_at:?}");
    let starts = db.starts.lock().unwrap().split_off(before as usize);
    // In any second: the rate, and what two processes may begin at once.
    for (n, start) in starts.iter().enumerate() {
        let within =
            starts[n..].iter().take_while(|other| other.duration_since(*start) < Duration::from_secs(1)).count();
        assert!(within <= 210, "{within} loads in a second");
    }
    assert!(starts.len() > KEYS / 2, "the flush was one: {} loads", starts.len());
    for caches in caches {
        caches.close().await;
    }
}
