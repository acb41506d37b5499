//! Warm-up: what was hot comes back after a restart, a flush or an eviction, spread over time, and hinders nobody.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::cache::*;
use tidegate_backend::cache::MAX_HOT_LIST_BYTES;
use tidegate_conformance::servers::Redis;
use tidegate_core::cache::write_list;
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
            if round == 4 || key <= 60 - round * 10 {
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
    assert!(began.elapsed() > Duration::from_millis(250), "spread over time: {:?}", began.elapsed());
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

async fn store(url: &str) -> Arc<RedisCache> {
    let redis = RedisOptions::parse(url).unwrap().name("warm").unwrap();
    Arc::new(RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap())
}

async fn on_redis(url: &str, rate: u32) -> Caches {
    Caches::builder(store(url).await).load_rate(NonZeroU32::new(rate).unwrap()).start().unwrap()
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

/// What was read, and from where.
#[derive(Default)]
struct Tally {
    hits: AtomicU64,
    reads: AtomicU64,
}

/// Reads a cache by Zipf's law, 300 times a second, until it is dropped.
fn read_on(cache: &Cache<u64, u64>, keys: usize, seed: u64, tally: &Arc<Tally>) -> tokio::task::JoinHandle<()> {
    let (cache, tally, mut zipf) = (cache.clone(), Arc::clone(tally), Zipf::new(keys, seed));
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        loop {
            tick.tick().await;
            for _ in 0..3 {
                let (cache, key, tally) = (cache.clone(), zipf.draw(), Arc::clone(&tally));
                tokio::spawn(async move {
                    let hit = cache.get(&key).await.is_ok_and(|read| read.source != Source::Load);
                    tally.hits.fetch_add(u64::from(hit), Ordering::Relaxed);
                    tally.reads.fetch_add(1, Ordering::Relaxed);
                });
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_is_made_good_within_six_seconds_and_the_rate() {
    const KEYS: usize = 1_000;
    let redis = Redis::start();
    let db = Database::new();
    (1..=KEYS as u64).for_each(|key| db.set(key, key));
    let filler = on_redis(&redis.url(), 100_000).await;
    cached(&filler, &db).warm(&(1..=KEYS as u64).collect::<Vec<_>>()).await.unwrap();
    filler.close().await;
    // The list of an earlier process: which thousand are hot is known.
    let encoded: Vec<Vec<u8>> = (1..=KEYS as u64).map(|key| key.encode().unwrap().as_bytes().to_vec()).collect();
    let list = write_list(encoded.iter().map(Vec::as_slice), MAX_HOT_LIST_BYTES);
    let store = store(&redis.url()).await;
    store.save_hot_keys("t", &list, Duration::from_secs(60)).await.unwrap();
    store.close().await;
    // 200 loads a second for both. Without copies in process, which a flush leaves where they are.
    let caches = [on_redis(&redis.url(), 100).await, on_redis(&redis.url(), 100).await];
    let cached = |caches: &Caches| caches.cache("t").fresh_for(Ttl::seconds::<600>()).no_local().loader(db.loader());
    let all = [cached(&caches[0]).unwrap(), cached(&caches[1]).unwrap()];
    db.takes(5);
    let tally = Arc::new(Tally::default());
    let readers = [read_on(&all[0], KEYS, 11, &tally), read_on(&all[1], KEYS, 12, &tally)];
    pause(1_500).await;
    let known: Vec<usize> = all.iter().map(|cache| cache.hottest(KEYS).len()).collect();
    assert!(known.iter().all(|known| *known > 900), "{known:?}");
    let (before, flushed) = (db.loads(), Instant::now());
    redis.tell(&["FLUSHALL"]);
    let (mut good_at, mut seen) = (None, Vec::new());
    while flushed.elapsed() < Duration::from_millis(6_200) {
        tally.hits.store(0, Ordering::Relaxed);
        tally.reads.store(0, Ordering::Relaxed);
        pause(250).await;
        let (hits, reads) = (tally.hits.load(Ordering::Relaxed), tally.reads.load(Ordering::Relaxed));
        seen.push((flushed.elapsed().as_millis(), hits, reads, db.loads() - before));
        if hits * 100 < reads * 95 {
            good_at = None;
        } else if good_at.is_none() {
            good_at = Some(flushed.elapsed());
        }
    }
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    let good_at = good_at.unwrap_or(flushed.elapsed());
    assert!(good_at <= Duration::from_secs(6), "{seen:?}");
    let starts = db.starts.lock().unwrap().split_off(before as usize);
    for (n, start) in starts.iter().enumerate() {
        let second = |other: &&tokio::time::Instant| other.duration_since(*start) < Duration::from_secs(1);
        let within = starts[n..].iter().take_while(second).count();
        // The rate, and what may begin at once in two processes.
        assert!(within <= 205, "{within} loads in a second");
    }
    assert!(starts.len() > KEYS / 2, "the flush was one: {seen:?}");
    for caches in caches {
        caches.close().await;
    }
}
