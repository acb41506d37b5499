//! Values of 50 MB, and a million distinct keys whose loads fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::cache::*;
use tidegate_conformance::servers::Redis;

use super::child::{Down, store};
use super::scaled;

/// Bytes as they are.
struct Raw;

impl Codec<Vec<u8>> for Raw {
    fn number(&self) -> u8 {
        16
    }

    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, CodecError> {
        Ok(value.clone())
    }

    fn decode(&self, bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_50_mb_is_loaded_once_not_stored_and_delays_nobody() {
    const BYTES: usize = 50_000_000;
    let redis = Redis::start();
    let caches = Caches::builder(store(&redis.url()).await).start().unwrap();
    let loads = Arc::new(AtomicU64::new(0));
    // No hot keys: a warm-up that meets the end of a load would load once more what cannot be stored.
    let large = caches.cache("large").codec(Raw).hot_keys(0).loader({
        let loads = loads.clone();
        move |_: u64, _| {
            loads.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok::<_, Down>(Loaded::value(vec![7; BYTES]))
            }
        }
    });
    let large = large.unwrap();
    let small = caches.cache("small").no_local().loader(|key: u64, _| async move { Ok::<_, Down>(Loaded::value(key)) });
    let small: Cache<u64, u64> = small.unwrap();
    small.get(&1).await.unwrap();
    let rounds = scaled(3, 20);
    let reading = tokio::spawn(async move {
        let mut times = Vec::new();
        for _ in 0..rounds * 500 {
            let began = Instant::now();
            small.get(&1).await.unwrap();
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.sort();
        times
    });
    for round in 1..=rounds {
        let crowd: Vec<_> = (0..100)
            .map(|_| {
                let large = large.clone();
                tokio::spawn(async move { large.get(&5).await.unwrap().value.unwrap().len() })
            })
            .collect();
        for reader in crowd {
            assert_eq!(reader.await.unwrap(), BYTES);
        }
        assert_eq!(loads.load(Ordering::SeqCst), round, "one for all who wait");
    }
    let times = reading.await.unwrap();
    let (p99, longest) = (times[times.len() * 99 / 100], times[times.len() - 1]);
    assert!(p99 < Duration::from_millis(100), "p99 {p99:?}, longest {longest:?}");
    let stats = large.stats();
    assert_eq!((stats.oversize, stats.loads, stats.failed_loads), (rounds, rounds, 0), "{stats:?}");
    let used = redis.tell(&["INFO", "memory"]);
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory_peak:")).unwrap();
    assert!(used.trim().parse::<usize>().unwrap() < 20_000_000, "{used} bytes in Redis at the peak");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_distinct_failing_keys_leave_nothing_behind() {
    /// Callers at once.
    const WIDTH: u64 = 500;
    let redis = Redis::start();
    let caches = Caches::builder(store(&redis.url()).await).load_budget(WIDTH as usize).start().unwrap();
    let cache = caches.cache("t").keep_floor(Ttl::seconds::<1>());
    let cache: Cache<u64, u64> = cache.loader(|_: u64, _| async move { Err::<Loaded<u64>, _>(Down) }).unwrap();
    let keys = scaled(40_000, 1_000_000);
    let fail = async |from: u64, to: u64| {
        for first in (from..to).step_by(WIDTH as usize) {
            let mut readers = tokio::task::JoinSet::new();
            for key in first..first + WIDTH {
                let cache = cache.clone();
                readers.spawn(async move { assert!(matches!(cache.get(&key).await, Err(CacheError::Load(_)))) });
            }
            readers.join_all().await;
        }
    };
    // What every cache takes after some use: buffers, remembered failures up to their bound.
    let first = keys / 4;
    fail(0, first).await;
    let before = resident_bytes();
    fail(first, keys).await;
    let after = resident_bytes();
    let stats = cache.stats();
    assert_eq!((stats.flights, stats.failed_loads, stats.local_copies), (0, keys, 0), "{stats:?}");
    let allowed = before + before / 20 + (4 << 20);
    assert!(after <= allowed, "{before} bytes after {first} keys, {after} after {keys}");
    // Nor in Redis: everything there ends by itself within a minute or so.
    let endless = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do
        local left = redis.call('PTTL', key)
        if left == -1 or (left > 61000 and string.find(key, ':c:', 1, true)) then n = n + 1 end
    end return n";
    assert_eq!(redis.tell(&["EVAL", endless, "0"]), "0", "keys that stay in Redis");
    if scaled(0, 1) == 1 {
        tokio::time::sleep(Duration::from_secs(62)).await;
        let left: u64 = redis.tell(&["DBSIZE"]).parse().unwrap();
        assert!(left < 20, "{left} keys are left in Redis");
    }
}
