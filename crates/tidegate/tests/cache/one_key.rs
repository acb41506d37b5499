//! A crowd of one process on one key: who asks the store, and what the others are told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::cache::*;
use tokio::time::Instant;

use crate::common::*;

const CROWD: usize = 1_000;

/// Two processes; the first has loaded row 1, the second asks a store that takes 5 ms.
async fn loaded(knobs: impl Fn(CacheBuilder<u64, u64>) -> CacheBuilder<u64, u64>) -> (World, Cache<u64, u64>) {
    let (world, db) = (World::new(2), Database::new());
    db.set(1, 7);
    let first = knobs(builder(&world, 0)).loader(db.loader()).unwrap();
    assert_eq!(value(&first.get(&1).await.unwrap()), Some(7));
    let other = knobs(builder(&world, 1)).loader(db.loader()).unwrap();
    world.stores[1].reads_take(5);
    (world, other)
}

#[tokio::test(start_paused = true)]
async fn a_crowd_asks_the_store_twice() {
    let (world, cache) = loaded(|cache| cache).await;
    let mut crowd: Vec<_> = (0..CROWD).map(|_| start(&cache, 1)).collect();
    pause(2).await;
    // They come while both questions are out.
    crowd.extend((0..CROWD).map(|_| start(&cache, 1)));
    let began = Instant::now();
    for reader in crowd {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(7));
    }
    assert!(began.elapsed() <= Duration::from_millis(10), "{:?}", began.elapsed());
    let asked = world.stores[1].reads.load(Ordering::SeqCst);
    assert_eq!(asked, 2, "the first reader's question, and one for all others");
    let stats = cache.stats();
    assert_eq!((stats.loads, stats.misses, stats.flights), (0, 0, 0));
    assert_eq!(stats.local_hits + stats.store_hits, 2 * CROWD as u64);
}

#[tokio::test(start_paused = true)]
async fn without_copies_in_process_each_reader_asks() {
    let (world, cache) = loaded(|cache| cache.no_local()).await;
    let crowd: Vec<_> = (0..100).map(|_| start(&cache, 1)).collect();
    for reader in crowd {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(7));
    }
    assert_eq!(world.stores[1].reads.load(Ordering::SeqCst), 100);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_on_a_stale_value_gets_it_at_once_and_refreshes_it_once() {
    let (world, db) = (World::new(2), Database::new());
    let knobs = |process| {
        let cache = builder(&world, process).fresh_for(Ttl::millis::<500>()).jitter(0.0).early_refresh(0.0);
        cache.stale_for(Ttl::seconds::<60>())
    };
    let first = knobs(0).loader(db.loader()).unwrap();
    db.set(1, 7);
    first.get(&1).await.unwrap();
    pause(1_000).await;
    let other = knobs(1).loader(db.loader()).unwrap();
    world.stores[1].reads_take(5);
    db.set(1, 8);
    db.takes(3_000);
    let crowd: Vec<_> = (0..CROWD).map(|_| start(&other, 1)).collect();
    let began = Instant::now();
    for reader in crowd {
        let read = reader.await.unwrap().unwrap();
        assert_eq!((value(&read), read.stale), (Some(7), true));
    }
    assert!(began.elapsed() <= Duration::from_millis(12), "{:?}", began.elapsed());
    pause(3_100).await;
    assert_eq!(value(&other.get(&1).await.unwrap()), Some(8));
    assert_eq!(db.loads(), 2, "the first load, and one refresh");
}

/// Nobody but a follower finds the value: its question must start the refresh.
#[tokio::test(start_paused = true)]
async fn what_followers_find_stale_is_refreshed_though_the_first_reader_went_away() {
    let (world, db) = (World::new(2), Database::new());
    let knobs = |process| {
        let cache = builder(&world, process).fresh_for(Ttl::millis::<500>()).jitter(0.0).early_refresh(0.0);
        cache.stale_for(Ttl::seconds::<60>())
    };
    db.set(1, 7);
    knobs(0).loader(db.loader()).unwrap().get(&1).await.unwrap();
    pause(1_000).await;
    let other = knobs(1).loader(db.loader()).unwrap();
    world.stores[1].reads_take(5);
    db.set(1, 8);
    let first = start(&other, 1);
    settle().await;
    let follower = start(&other, 1);
    settle().await;
    first.abort();
    assert_eq!(value(&follower.await.unwrap().unwrap()), Some(7));
    pause(50).await;
    assert_eq!(value(&other.get(&1).await.unwrap()), Some(8));
    assert_eq!(db.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_whose_first_reader_goes_away_is_answered() {
    let (_world, cache) = loaded(|cache| cache).await;
    let first = start(&cache, 1);
    settle().await;
    let crowd: Vec<_> = (0..CROWD).map(|_| start(&cache, 1)).collect();
    first.abort();
    for reader in crowd {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(7));
    }
    assert!(first.await.unwrap_err().is_cancelled());
    // Nothing is left of it that would send the next reader another way.
    pause(100_000).await;
    assert_eq!(cache.stats().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_whose_store_goes_away_costs_one_load() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 7);
    db.takes(50);
    world.stores[0].set_down(true);
    *world.stores[0].hangs.lock().unwrap() = Duration::from_millis(100);
    let crowd: Vec<_> = (0..CROWD).map(|_| start(&cache, 1)).collect();
    let began = Instant::now();
    for reader in crowd {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(7));
    }
    // The common question, then each one's own way, then the load.
    assert!(began.elapsed() <= Duration::from_millis(400), "{:?}", began.elapsed());
    assert_eq!(db.loads(), 1);
}

/// A strong reader that comes while the store is asked for others is not told what was there before it came.
#[tokio::test(start_paused = true)]
async fn a_strong_reader_follows_nobody() {
    let (world, db) = (World::new(2), Database::new());
    db.set(1, 7);
    let first = builder(&world, 0).loader(db.loader()).unwrap();
    first.get(&1).await.unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    // Heard of nothing: only the store knows.
    world.stores[1].set_deaf(true);
    world.stores[1].reads_take(50);
    let crowd: Vec<_> = (0..10).map(|_| start(&other, 1)).collect();
    pause(10).await;
    db.set(1, 8);
    first.invalidate(&1).await.unwrap();
    world.stores[1].reads_take(1);
    let strong = other.read(&1).strong().await.unwrap();
    assert_eq!(value(&strong), Some(8));
    for reader in crowd {
        assert!(matches!(value(&reader.await.unwrap().unwrap()), Some(7 | 8)));
    }
}
