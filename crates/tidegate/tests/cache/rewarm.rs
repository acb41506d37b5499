//! Hot keys that the store has lost are brought back by all processes together at one pace, whatever else goes wrong.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate::cache::*;
use tidegate_backend::cache::MAX_HOT_LIST_BYTES;
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::cache::write_list;
use tidegate_redis::RedisOptions;

use super::common::*;

/// Loads a second of all processes, and what may begin beside it: a seat that was lost is worked on for a moment.
const PACE: usize = 200;
const SLACK: usize = 30;

async fn store(url: &str) -> Arc<RedisCache> {
    let redis = RedisOptions::parse(url).unwrap().name("warm").unwrap();
    Arc::new(RedisCache::open(redis, RedisCacheOptions::default()).await.unwrap())
}

fn key(key: u64) -> CacheKey {
    CacheKey { namespace: "t".into(), schema: 0, key: Bytes::copy_from_slice(key.encode().unwrap().as_bytes()) }
}

/// Processes that know the same keys as hot, from an earlier one, and hold no copies of them.
struct Fleet {
    redis: Redis,
    db: Arc<Database>,
    processes: Vec<Caches>,
    caches: Vec<Cache<u64, u64>>,
    watching: Arc<RedisCache>,
    keys: u64,
}

impl Fleet {
    async fn start(processes: usize, keys: u64, rate: u32) -> Self {
        Self::on(Redis::start(), processes, keys, rate).await
    }

    async fn on(redis: Redis, processes: usize, keys: u64, rate: u32) -> Self {
        let db = Database::new();
        (1..=keys).for_each(|key| db.set(key, key));
        let watching = store(&redis.url()).await;
        let encoded: Vec<Bytes> = (1..=keys).map(|n| key(n).key).collect();
        let list = write_list(encoded.iter().map(|key| &key[..]), MAX_HOT_LIST_BYTES);
        watching.save_hot_keys("t", &list, Duration::from_secs(600)).await.unwrap();
        let mut fleet = Self { db, processes: Vec::new(), caches: Vec::new(), watching, keys, redis };
        for _ in 0..processes {
            let builder = Caches::builder(store(&fleet.redis.url()).await);
            let caches = NonZeroU32::new(rate).into_iter().fold(builder, CachesBuilder::load_rate).start().unwrap();
            let builder = caches.cache("t").fresh_for(Ttl::seconds::<600>()).absent_for(Ttl::seconds::<600>());
            fleet.caches.push(builder.no_local().loader(fleet.db.loader()).unwrap());
            fleet.processes.push(caches);
        }
        // What the list names comes back at the start; that is no part of what is tested here.
        fleet.is_whole("the start").await;
        fleet.db.starts.lock().unwrap().clear();
        fleet.db.takes(5);
        fleet
    }

    /// How many of the keys the store has.
    async fn there(&self) -> usize {
        let keys: Vec<CacheKey> = (1..=self.keys).map(key).collect();
        let there = self.watching.touch(&keys).await.unwrap_or_default();
        there.into_iter().filter(|there| *there).count()
    }

    /// Waits until the store has all of them; how long that took.
    async fn is_whole(&self, after: &str) -> Duration {
        let began = Instant::now();
        loop {
            let there = self.there().await;
            if there as u64 == self.keys {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(40), "after {after}: {there} of {}", self.keys);
            pause(50).await;
        }
    }

    fn loads(&self) -> usize {
        self.db.starts.lock().unwrap().len()
    }

    /// No second, wherever it begins, had more loads than the pace.
    fn keeps_the_pace(&self) {
        let starts = self.db.starts.lock().unwrap();
        for (n, start) in starts.iter().enumerate() {
            let second = |other: &&tokio::time::Instant| other.duration_since(*start) < Duration::from_secs(1);
            let within = starts[n..].iter().take_while(second).count();
            assert!(within <= PACE + SLACK, "{within} loads in a second, {} in all", starts.len());
        }
    }

    async fn end(self) {
        for caches in self.processes {
            let began = Instant::now();
            caches.close().await;
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        }
        self.watching.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_without_a_rate_share_one_pace_and_load_each_key_once() {
    let fleet = Fleet::start(4, 600, 0).await;
    fleet.redis.tell(&["FLUSHALL"]);
    let took = fleet.is_whole("a flush").await;
    assert!(took < Duration::from_secs(6), "{took:?}");
    fleet.keeps_the_pace();
    pause(1_000).await;
    assert_eq!(fleet.loads(), 600, "each once");
    let loaded: u64 = fleet.caches.iter().map(|cache| cache.stats().rewarm_loads).sum();
    assert_eq!(loaded, 2 * 600, "at the start and after the flush");
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_a_rate_take_a_part_of_the_pace_each() {
    let fleet = Fleet::start(5, 500, 50).await;
    fleet.redis.kill();
    fleet.redis.restart();
    let took = fleet.is_whole("a restart of an empty server").await;
    assert!(took < Duration::from_secs(8), "{took:?}");
    fleet.keeps_the_pace();
    pause(1_000).await;
    let loaded: Vec<u64> = fleet.caches.iter().map(|cache| cache.stats().rewarm_loads).collect();
    assert!(loaded.iter().filter(|loaded| **loaded > 50).count() >= 3, "{loaded:?}");
    assert!(fleet.loads() <= 520, "{}", fleet.loads());
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_each_second_is_no_storm() {
    let fleet = Fleet::start(3, 500, 0).await;
    for _ in 0..6 {
        fleet.redis.tell(&["FLUSHALL"]);
        pause(1_000).await;
    }
    fleet.keeps_the_pace();
    assert!(fleet.loads() <= 7 * PACE, "{}", fleet.loads());
    fleet.is_whole("flushes").await;
    fleet.keeps_the_pace();
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_meanwhile_is_filled_once_it_is_back() {
    let fleet = Fleet::start(2, 500, 0).await;
    fleet.redis.tell(&["FLUSHALL"]);
    pause(1_200).await;
    let before = fleet.loads();
    assert!(before > 20, "it had begun: {before}");
    fleet.redis.kill();
    pause(1_500).await;
    let without = fleet.loads();
    assert!(without - before < 100, "nothing is loaded for a store that is away: {before} {without}");
    fleet.redis.restart();
    fleet.is_whole("a restart").await;
    fleet.keeps_the_pace();
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loader_that_fails_is_left_alone_for_a_while() {
    let fleet = Fleet::start(2, 300, 0).await;
    fleet.db.fails.store(true, Ordering::SeqCst);
    fleet.redis.tell(&["FLUSHALL"]);
    pause(5_000).await;
    let failed: u64 = fleet.caches.iter().map(|cache| cache.stats().rewarm_failures).sum();
    let tried = fleet.loads();
    assert!(failed >= 8 && tried <= 100, "{failed} failed of {tried} in 5 s");
    fleet.db.fails.store(false, Ordering::SeqCst);
    fleet.is_whole("failures").await;
    fleet.keeps_the_pace();
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loader_that_hangs_takes_a_part_of_the_budget_and_does_not_hold_up_the_end() {
    let fleet = Fleet::start(2, 300, 0).await;
    let _park = fleet.db.parks();
    fleet.redis.tell(&["FLUSHALL"]);
    pause(2_500).await;
    let running = fleet.db.running.load(Ordering::SeqCst);
    assert!((16..=64).contains(&running), "{running}");
    // Others have room in the meantime.
    fleet.db.park.lock().unwrap().take();
    let read = tokio::time::timeout(Duration::from_secs(1), fleet.caches[0].get(&9_999)).await.unwrap().unwrap();
    assert_eq!(value(&read), None);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_gone_come_back_as_absences() {
    let fleet = Fleet::start(2, 300, 0).await;
    fleet.db.rows.lock().unwrap().clear();
    fleet.redis.tell(&["FLUSHALL"]);
    fleet.is_whole("a flush").await;
    fleet.keeps_the_pace();
    pause(500).await;
    let stats: Vec<CacheStats> = fleet.caches.iter().map(Cache::stats).collect();
    let sum = |of: fn(&CacheStats) -> u64| stats.iter().map(of).sum::<u64>();
    assert_eq!((sum(|s| s.rewarm_absences), sum(|s| s.rewarm_failures)), (300, 0));
    let loads = fleet.loads();
    for key in 1..=300 {
        let read = fleet.caches[0].get(&key).await.unwrap();
        assert_eq!((value(&read), read.source), (None, Source::Store), "{key}");
    }
    assert_eq!(fleet.loads(), loads);
    fleet.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_hears_of_a_loss_may_say_so() {
    let fleet = Fleet::start(1, 100, 0).await;
    // It looks once more after the start, for what it may not have heard before it listened.
    pause(1_500).await;
    for n in 1..=40 {
        for name in fleet.watching.redis_keys(&key(n)) {
            fleet.redis.try_tell_bytes(&[b"DEL", &name]).unwrap();
        }
    }
    pause(1_500).await;
    assert_eq!(fleet.there().await, 60, "nobody reads them, so nobody knows");
    fleet.processes[0].rewarm();
    fleet.is_whole("being told").await;
    assert_eq!(fleet.loads(), 40);
    fleet.end().await;
}

/// Fills a server with other keys, each read some times when it is new and then never again.
fn flood(redis: &Redis, keys: std::ops::Range<u32>) {
    const WRITE: &str = "for n = ARGV[1], ARGV[2] do redis.call('SET', 'cold:' .. n, string.rep('x', 1000)) \
                         for _ = 1, 8 do redis.call('GET', 'cold:' .. n) end end";
    for first in keys.step_by(50) {
        redis.tell(&["EVAL", WRITE, "0", &first.to_string(), &(first + 49).to_string()]);
    }
}

/// Room for so many bytes more than there are.
fn bound(redis: &Redis, bytes: u64) {
    let info = redis.tell(&["INFO", "memory"]);
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<u64>().ok());
    redis.tell(&["CONFIG", "SET", "maxmemory", &(used.unwrap() + bytes).to_string()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_evictions_is_noticed_by_its_misses() {
    let fleet = Fleet::start(1, 200, 0).await;
    let cache = fleet.caches[0].clone();
    let reading = tokio::spawn(async move {
        loop {
            for key in 1..=200_u64 {
                let _ = cache.get(&key).await;
            }
            pause(150).await;
        }
    });
    // Now they are known to be read now, not only from before.
    pause(2_500).await;
    for n in 50..=200 {
        for name in fleet.watching.redis_keys(&key(n)) {
            fleet.redis.try_tell_bytes(&[b"DEL", &name]).unwrap();
        }
    }
    fleet.is_whole("a loss of most").await;
    let stats = fleet.caches[0].stats();
    // Who reads them loads some, too.
    assert!(stats.rewarm_loads >= 20 && stats.loads <= 200 + 155, "{stats:?}");
    reading.abort();
    fleet.end().await;
}

/// O24: whether what is read from copies in process alone is still in Redis once much else came, by policy.
async fn survive(policy: &str, settle_ms: u64, rounds: u32, round_ms: u64) {
    // From the start: what was written under another policy has no frequency.
    let setup = Setup::default().option("maxmemory-samples", "10").option("maxmemory-policy", policy);
    // Each read counts, so that a few seconds are enough to tell keys apart.
    let setup = setup.option("lfu-log-factor", "0");
    let redis = Redis::start_with(setup);
    let db = Database::new();
    (1..=1_000).for_each(|key| db.set(key, key));
    let caches = Caches::builder(store(&redis.url()).await).start().unwrap();
    let cache: Cache<u64, u64> = caches.cache("t").fresh_for(Ttl::seconds::<600>()).loader(db.loader()).unwrap();
    for key in 1..=520 {
        cache.get(&key).await.unwrap();
    }
    bound(&redis, 2 << 20);
    let hot = cache.clone();
    let reading = tokio::spawn(async move {
        loop {
            for key in 1..=20_u64 {
                assert_eq!(hot.get(&key).await.unwrap().source, Source::Local);
            }
            pause(20).await;
        }
    });
    pause(settle_ms).await;
    for round in 0..rounds {
        flood(&redis, round * 500..(round + 1) * 500);
        pause(round_ms).await;
    }
    assert!(!reading.is_finished(), "it read from copies all the time");
    reading.abort();
    let there = async |keys: std::ops::RangeInclusive<u64>| {
        let watching = store(&redis.url()).await;
        let there = watching.touch(&keys.map(key).collect::<Vec<_>>()).await.unwrap();
        watching.close().await;
        there.into_iter().filter(|there| *there).count()
    };
    let (hot, cold) = (there(1..=20).await, there(21..=520).await);
    assert!(hot >= 19 && cold <= 250, "{policy}: {hot} of 20 that were read, {cold} of 500 that were not");
    caches.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_from_copies_outlives_lfu() {
    survive("allkeys-lfu", 12_000, 16, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_from_copies_outlives_lru() {
    survive("allkeys-lru", 2_000, 12, 1_000).await;
}
