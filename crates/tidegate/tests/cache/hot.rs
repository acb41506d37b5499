//! Hot keys: which they are, that a scan leaves them in process, and that nobody waits for them.

use std::sync::Arc;
use std::time::Duration;

use tidegate::cache::*;

use super::common::*;

/// Draws of a Zipf distribution with exponent 1 over the keys from 1 on.
pub struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    pub fn new(keys: usize, seed: u64) -> Self {
        let mut sum = 0.0;
        let add = |rank| {
            sum += 1.0 / f64::from(rank);
            sum
        };
        Self { sums: (1..=keys as u32).map(add).collect(), state: seed }
    }

    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let at = (self.state >> 11) as f64 / (1_u64 << 53) as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= at) as u64 + 1
    }
}

#[tokio::test(start_paused = true)]
async fn the_hottest_are_told_with_their_rates() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<600>()).absent_for(Ttl::seconds::<600>());
    let cache = cache.load_budget(1_000).loader(db.loader()).unwrap();
    let mut zipf = Zipf::new(2_000, 7);
    for _ in 0..200 {
        for _ in 0..1_000 {
            cache.get(&zipf.draw()).await.unwrap();
        }
        pause(100).await;
    }
    // Time is paused: more reads in a true second than are all counted.
    let hottest = cache.hottest(1_000);
    let known = hottest.iter().take(20).filter(|hot| hot.key <= 25).count();
    assert!(hottest.len() > 200 && known >= 14 && hottest[0].key == 1, "{known}: {:?}", &hottest[..20]);
    // 10,000 reads a second by Zipf's law: an eighth of them are of the first.
    let rate = hottest[0].reads_per_second;
    assert!((800.0..1_700.0).contains(&rate) && hottest[0].error < 100.0, "{:?}", hottest[0]);
    assert_eq!(u64::decode(&hottest[0].encoded), Some(1));
    assert_eq!(cache.hottest(3).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_hot_keys_are_known_where_none_are_wanted() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).hot_keys(0).loader(db.loader()).unwrap();
    for _ in 0..1_000 {
        cache.get(&1).await.unwrap();
    }
    assert!(cache.hottest(10).is_empty());
    assert!(builder(&world, 0).hot_keys(MAX_HOT_KEYS + 1).loader(db.loader()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_scan_of_cold_keys_leaves_the_hot_ones_in_process() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<600>()).local(1 << 20, Ttl::seconds::<600>());
    let cache = cache.load_budget(1_000).loader(db.loader()).unwrap();
    (1..=20_000).for_each(|key| db.set(key, key));
    // More than there is room for, so that what comes next is on probation.
    for key in 10_000..15_000 {
        cache.get(&key).await.unwrap();
    }
    for _ in 0..200 {
        for key in (1..=50).chain(1..=50) {
            cache.get(&key).await.unwrap();
        }
        pause(100).await;
    }
    assert!(cache.stats().pinned >= 50, "{:?}", cache.stats());
    for key in 10_000..20_000 {
        cache.get(&key).await.unwrap();
    }
    let loads = db.loads();
    for key in 1..=50 {
        let read = cache.get(&key).await.unwrap();
        assert_eq!((value(&read), read.source), (Some(key), Source::Local));
    }
    assert_eq!(db.loads(), loads);
    assert!(cache.stats().local_bytes <= 1 << 20, "{:?}", cache.stats());
    // What is invalidated is gone at once, pinned or not.
    db.set(7, 1_007);
    cache.invalidate(&7).await.unwrap();
    assert_eq!(value(&cache.get(&7).await.unwrap()), Some(1_007));
}

#[tokio::test(start_paused = true)]
async fn pinned_copies_have_a_share_and_no_more() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<600>()).local(1 << 18, Ttl::seconds::<600>());
    let cache = cache.load_budget(1_000).loader(db.loader()).unwrap();
    (1..=3_000).for_each(|key| db.set(key, key));
    for _ in 0..100 {
        for key in 1..=900 {
            cache.get(&key).await.unwrap();
        }
        pause(200).await;
    }
    let pinned = cache.stats().pinned;
    // A copy weighs some 300 bytes, and a quarter of the level is 64 KiB.
    assert!((100..=230).contains(&pinned), "{:?}", cache.stats());
    for key in 2_000..3_000 {
        cache.get(&key).await.unwrap();
    }
    let read = cache.get(&2_999).await.unwrap();
    assert_eq!(read.source, Source::Local, "there is room for others");
}

/// Reads a key ten times a second for a minute; how often it was loaded, and how often a reader had to wait or got
/// something stale.
async fn read_for_a_minute(early_refresh: f64) -> (u64, u64) {
    let (world, db) = (World::new(2), Database::new());
    let caches: Vec<Cache<u64, u64>> = (0..2)
        .map(|process| {
            let cache =
                builder(&world, process).fresh_for(Ttl::seconds::<10>()).jitter(0.0).early_refresh(early_refresh);
            cache.loader(db.loader()).unwrap()
        })
        .collect();
    db.set(1, 1);
    // Cheap: by chance alone, weighted by its cost, it would rarely be refreshed before its end.
    db.takes(3);
    let mut waited = 0;
    for round in 0..600 {
        for cache in &caches {
            let read = cache.get(&1).await.unwrap();
            waited += u64::from(round > 150 && (read.stale || read.source == Source::Load));
        }
        pause(100).await;
    }
    (db.loads(), waited)
}

#[tokio::test(start_paused = true)]
async fn the_hottest_are_refreshed_before_anybody_waits() {
    // A tiny eagerness: chance would not do it.
    let (loads, waited) = read_for_a_minute(1e-9).await;
    assert_eq!(waited, 0, "{loads} loads");
    assert!((6..=9).contains(&loads), "one refresh a period for both processes: {loads}");
    let (_, waited) = read_for_a_minute(0.0).await;
    assert!(waited >= 4, "without it, readers wait: {waited}");
}

#[tokio::test(start_paused = true)]
async fn what_is_read_rarely_is_not_refreshed_by_itself() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<10>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    for _ in 0..10 {
        cache.get(&1).await.unwrap();
        pause(5_000).await;
    }
    let loads = db.loads();
    pause(60_000).await;
    assert_eq!(db.loads(), loads);
}

/// Cloned, and not read back.
#[derive(Clone)]
struct Opaque(u64);

impl Key for Opaque {
    fn write(&self, to: &mut KeyWriter) {
        to.field(&self.0.to_be_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_any_type_may_be_hot() {
    let store = Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap());
    let caches = Caches::builder(store).start().unwrap();
    let load = |key: Opaque, _: LoadContext| async move { Ok::<_, DbError>(Loaded::value(key.0)) };
    let cache: Cache<Opaque, u64> = caches.cache("opaque").loader(load).unwrap();
    for _ in 0..200 {
        cache.get(&Opaque(3)).await.unwrap();
    }
    assert_eq!(cache.hottest(5)[0].key.0, 3);
    tokio::time::sleep(Duration::from_millis(300)).await;
    caches.close().await;
}
