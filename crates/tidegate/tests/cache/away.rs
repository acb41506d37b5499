//! The store away, budgets and rates.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::cache::*;
use tokio::time::Instant;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn case_51_with_the_store_frozen_loads_keep_to_their_rate() {
    let rate = NonZeroU32::new(50).unwrap();
    let (world, db) = (World::with(1, |builder| builder.load_rate(rate)), Database::new());
    let second = Duration::from_secs(1);
    let cache = builder(&world, 0).no_local().load_timeout(second, 2 * second).loader(db.loader()).unwrap();
    let hot = world.processes[0].cache("hot").stale_for(Ttl::seconds::<600>()).loader(db.loader()).unwrap();
    for key in 0..1_000 {
        db.set(key, key);
    }
    hot.get(&1_u64).await.unwrap();
    db.takes(30);
    *world.stores[0].hangs.lock().unwrap() = Duration::from_millis(250);
    world.stores[0].set_down(true);
    let mut readers = Vec::new();
    let mut key = 0;
    for ms in 0..12_000_u64 {
        if ms == 10_000 {
            world.stores[0].set_down(false);
        }
        for _ in 0..5 {
            key = (key + 1) % 1_000;
            readers.push(start(&cache, key));
        }
        let began = Instant::now();
        assert_eq!(value(&hot.get(&1).await.unwrap()), Some(1));
        assert!(began.elapsed() <= Duration::from_millis(250), "local hits are not affected");
        pause(1).await;
    }
    let (mut values, mut overloaded) = (0, 0);
    for reader in readers {
        match reader.await.unwrap() {
            Ok(_) => values += 1,
            Err(CacheError::Overloaded { retry_after }) => {
                assert!(!retry_after.is_zero());
                overloaded += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(values > 0 && overloaded > 0, "{values} {overloaded}");
    let starts = db.starts.lock().unwrap().clone();
    for from in &starts {
        let within = starts.iter().filter(|at| *at >= from && **at < *from + Duration::from_secs(1)).count();
        assert!(within <= 51, "{within} loads in a second");
    }
    assert!(starts.len() > 400, "{} loads", starts.len());
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_never_exceeded_and_beyond_the_queue_s_patience_is_overload() {
    let (world, db) = (World::with(1, |builder| builder.load_budget(8)), Database::new());
    let second = Duration::from_secs(1);
    let cache = builder(&world, 0).load_timeout(second, 2 * second).loader(db.loader()).unwrap();
    db.takes(1_000);
    let readers: Vec<_> = (0..100).map(|key| start(&cache, key)).collect();
    let (mut answered, mut overloaded) = (0, 0);
    for reader in readers {
        match reader.await.unwrap() {
            Ok(_) => answered += 1,
            Err(CacheError::Overloaded { .. }) => overloaded += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(db.most_running.load(Ordering::SeqCst), 8);
    assert!((16..=24).contains(&answered) && answered + overloaded == 100, "{answered} {overloaded}");
    assert_eq!(cache.stats().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn case_52_the_breaker_opens_with_the_store_gone() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).no_local().loader(db.loader()).unwrap();
    db.set(1, 1);
    *world.stores[0].hangs.lock().unwrap() = Duration::from_millis(250);
    world.stores[0].set_down(true);
    let mut slow = 0;
    for _ in 0..200 {
        let began = Instant::now();
        assert_eq!(value(&cache.get(&1).await.unwrap()), Some(1));
        slow += u32::from(began.elapsed() >= Duration::from_millis(250));
        pause(10).await;
    }
    assert!(slow <= 15, "{slow} of 200 waited for the store");
    world.stores[0].set_down(false);
    pause(600).await;
    cache.get(&1).await.unwrap();
    assert_eq!(cache.get(&1).await.unwrap().source, Source::Store, "back");
}

#[tokio::test(start_paused = true)]
async fn with_the_store_away_copies_stretch_over_their_stale_life() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<5>()).stale_for(Ttl::seconds::<600>());
    let cache = cache.local(1 << 20, Ttl::seconds::<2>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    world.stores[0].set_down(true);
    world.stores[0].set_deaf(true);
    db.fails.store(true, Ordering::SeqCst);
    for _ in 0..60 {
        pause(1_000).await;
        let read = cache.get(&1).await.unwrap();
        assert_eq!((value(&read), read.source), (Some(1), Source::Local));
    }
    assert!(cache.get(&1).await.unwrap().stale);
    cache.read(&1).strong().await.expect_err("a strong read has no such answer");
    // The database is back before the store: the value is loaded, by one.
    db.fails.store(false, Ordering::SeqCst);
    db.set(1, 2);
    pause(6_000).await;
    cache.get(&1).await.unwrap();
    pause(100).await;
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
    assert_eq!(value(&cache.read(&1).strong().await.unwrap()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn with_the_store_away_a_crowd_is_one_load_and_a_strong_read_begins_its_own() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).no_local().loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(100);
    world.stores[0].set_down(true);
    let crowd: Vec<_> = (0..1_000).map(|_| start(&cache, 1)).collect();
    pause(50).await;
    db.set(1, 2);
    let strong = cache.read(&1).strong().await.unwrap();
    assert_eq!(value(&strong), Some(2));
    for reader in crowd {
        reader.await.unwrap().unwrap();
    }
    assert_eq!(db.loads(), 2);
    // A failure is remembered, too: no load for each caller.
    db.fails.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        cache.get(&2).await.expect_err("the loader fails");
    }
    assert_eq!(db.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn with_the_database_down_every_key_is_answered_within_its_stale_life() {
    let (world, db) = (World::new(2), Database::new());
    let knobs = |process| builder(&world, process).fresh_for(Ttl::seconds::<10>()).stale_for(Ttl::seconds::<120>());
    let caches = [knobs(0).loader(db.loader()).unwrap(), knobs(1).no_local().loader(db.loader()).unwrap()];
    for key in 0..100 {
        db.set(key, key);
        caches[0].get(&key).await.unwrap();
    }
    db.fails.store(true, Ordering::SeqCst);
    let loads = db.loads();
    for _ in 0..60 {
        pause(1_000).await;
        for cache in &caches {
            for key in 0..100 {
                assert_eq!(value(&cache.get(&key).await.unwrap()), Some(key));
            }
        }
    }
    let per_key = (db.loads() - loads) as f64 / 100.0;
    assert!(per_key < 25.0, "{per_key} attempts a key in 50 s");
}

#[tokio::test(start_paused = true)]
async fn a_reader_with_an_older_value_waits_for_the_soft_limit_only() {
    let (world, db) = (World::new(1), Database::new());
    let second = Duration::from_secs(1);
    let cache = builder(&world, 0).stale_for(Ttl::seconds::<600>());
    let cache = cache.load_timeout(second, 20 * second).local(1 << 20, Ttl::seconds::<1>());
    let cache = cache.loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    pause(2_000).await;
    // Evicted from the store: the copy is past its life in process, but within its stale life.
    world.stores[0].inner.delete(&world.key(1));
    db.takes(10_000);
    let began = Instant::now();
    let read = cache.get(&1).await.unwrap();
    assert!(read.stale && began.elapsed() == second, "{read:?} {:?}", began.elapsed());
    let deadline = cache.read(&1).deadline(Duration::from_millis(10)).await.unwrap();
    assert!(deadline.stale);
    assert!(cache.read(&1).strong().deadline(second).await.is_err());
    pause(10_000).await;
    assert!(!cache.get(&1).await.unwrap().stale);
    assert_eq!(db.loads(), 2);
}
