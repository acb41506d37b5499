//! Who loads, who waits, who goes away.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate::cache::*;
use tokio::time::Instant;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn case_16_one_caller_s_deadline_is_its_own() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(50);
    let hurried = tokio::spawn({
        let cache = cache.clone();
        async move { cache.read(&1).deadline(Duration::from_millis(5)).await }
    });
    let others: Vec<_> = (0..99).map(|_| start(&cache, 1)).collect();
    assert!(matches!(hurried.await.unwrap(), Err(CacheError::Timeout)));
    for other in others {
        assert_eq!(value(&other.await.unwrap().unwrap()), Some(1));
    }
    assert_eq!(db.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn case_17_a_leader_that_is_never_polled_again_stops_nobody() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(50);
    let mut forgotten = pin!(cache.get(&1));
    assert!(forgotten.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(value(&start(&cache, 1).await.unwrap().unwrap()), Some(1));
    assert_eq!(db.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn case_19_callers_that_are_aborted_leave_a_filled_cache() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.takes(20);
    for key in 0..1_000 {
        db.set(key, key);
        let reader = start(&cache, key);
        tokio::task::yield_now().await;
        reader.abort();
    }
    pause(1_000).await;
    assert_eq!(cache.stats().flights, 0);
    assert_eq!(value(&cache.get(&500).await.unwrap()), Some(500));
    assert!(db.loads() <= 1_000, "{}", db.loads());
    assert_eq!(cache.stats().loads, db.loads(), "every load that began has landed");
}

#[tokio::test(start_paused = true)]
async fn case_21_everyone_gets_the_loader_s_own_error() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    db.fails.store(true, Ordering::SeqCst);
    db.takes(50);
    let here: Vec<_> = (0..100).map(|_| start(&cache, 1)).collect();
    pause(5).await;
    let there: Vec<_> = (0..100).map(|_| start(&other, 1)).collect();
    let began = Instant::now();
    for reader in here {
        let error = reader.await.unwrap().expect_err("the loader fails");
        assert_eq!(error.loader_error::<DbError>(), Some(&DbError("no row 1 today".to_owned())));
    }
    for reader in there {
        let error = reader.await.unwrap().expect_err("the loader fails");
        let failed = error.loader_error::<LoadFailed>().expect("another process' words");
        assert_eq!(failed.message, "no row 1 today");
        assert!(failed.retry_after <= Duration::from_millis(50));
    }
    assert!(began.elapsed() <= Duration::from_millis(70), "{:?}", began.elapsed());
    assert_eq!(db.loads(), 1, "one failure for all");
    // Who asks within the back-off gets the very error, too; after it one load is tried, and the back-off doubles.
    assert!(cache.get(&1).await.expect_err("still").loader_error::<DbError>().is_some());
    assert_eq!(db.loads(), 1);
    pause(50).await;
    cache.get(&1).await.expect_err("again");
    assert_eq!(db.loads(), 2);
    pause(60).await;
    cache.get(&1).await.expect_err("not loaded");
    assert_eq!(db.loads(), 2);
    pause(50).await;
    db.fails.store(false, Ordering::SeqCst);
    cache.get(&1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn case_22_loads_of_a_key_never_overlap() {
    let (world, db) = (World::new(3), Database::new());
    let caches: Vec<_> = (0..3).map(|n| builder(&world, n).no_local().loader(db.loader()).unwrap()).collect();
    db.set(1, 1);
    db.takes(7);
    let mut readers = Vec::new();
    for round in 0..200_u64 {
        for cache in &caches {
            readers.push(start(cache, 1));
        }
        if round % 3 == 0 {
            readers[round as usize].abort();
        }
        if round % 10 == 0 {
            // Nobody commits in between: the lease is the same key's, the load is new.
            pause(9).await;
            world.stores[0].inner.delete(&world.key(1));
        }
        pause(1).await;
    }
    for reader in readers {
        if let Ok(read) = reader.await {
            assert_eq!(value(&read.unwrap()), Some(1));
        }
    }
    assert!(db.loads() >= 15);
    assert_eq!(db.most_running.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn case_24_nothing_is_kept_of_keys_that_are_done() {
    let (world, db) = (World::new(1), Database::new());
    let loader = {
        let db = db.clone();
        move |key: u64, _| {
            let db = db.clone();
            async move {
                db.loads.fetch_add(1, Ordering::Relaxed);
                if key.is_multiple_of(2) { Ok(Loaded::value(key)) } else { Err(DbError("odd".to_owned())) }
            }
        }
    };
    let cache = builder(&world, 0).local(1 << 20, Ttl::seconds::<60>()).loader(loader).unwrap();
    for chunk in 0..100_u64 {
        let readers: Vec<_> = (0..1_000).map(|n| start(&cache, chunk * 1_000 + n)).collect();
        for reader in readers {
            let _ = reader.await.unwrap();
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.flights, stats.failed_loads), (0, 50_000), "{stats:?}");
    assert!(stats.local_bytes <= 1 << 20, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn case_26_a_loader_may_ask_the_cache_for_other_keys_and_put() {
    let (world, own) = (World::with(1, |builder| builder.load_budget(1)), Arc::new(OnceLock::<Cache<u64, u64>>::new()));
    let loader = {
        let own = own.clone();
        move |key: u64, _| {
            let own = own.clone();
            async move {
                let cache = own.get().unwrap();
                let other = match key {
                    0 => return Ok::<_, CacheError>(Loaded::value(0)),
                    7 => cache.get(&7).await?,
                    8 => cache.get(&9).await?,
                    9 => cache.get(&8).await?,
                    key => cache.get(&(key - 1)).await?,
                };
                cache.put(&100, 1, RowVersion::new(1).unwrap()).await.unwrap();
                cache.put(&key, 55, RowVersion::new(55).unwrap()).await.unwrap();
                Ok(Loaded::value(other.value.map_or(0, |value| *value) + 1))
            }
        }
    };
    let cache = builder(&world, 0).loader(loader).unwrap();
    own.set(cache.clone()).unwrap();
    let began = Instant::now();
    let read = cache.get(&5).await.unwrap();
    assert!(matches!(value(&read), Some(5 | 55)), "{read:?}");
    assert_eq!(value(&cache.get(&5).await.unwrap()), Some(55), "what was put stays");
    assert_eq!(value(&cache.get(&100).await.unwrap()), Some(1));
    let recursive = |error: &CacheError| matches!(error.loader_error::<CacheError>(), Some(CacheError::Recursion));
    let error = cache.get(&7).await.expect_err("it asks for itself");
    assert!(recursive(&error), "{error:?}");
    // 8 asks for 9, which asks for 8.
    let error = cache.get(&8).await.expect_err("a circle");
    assert!(error.loader_error::<CacheError>().is_some_and(recursive), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "no waiting for time limits: {:?}", began.elapsed());
    assert_eq!(cache.stats().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn case_27_a_leader_that_dies_blocks_others_for_its_lease_at_most() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    let _park = db.parks();
    let reader = start(&cache, 1);
    settle().await;
    // The process dies with its lease: its tasks end, and it says nothing more.
    world.stores[0].set_down(true);
    world.processes[0].close().await;
    assert!(matches!(reader.await.unwrap(), Err(CacheError::Stopping)));
    *db.park.lock().unwrap() = None;
    let began = Instant::now();
    assert_eq!(value(&other.get(&1).await.unwrap()), Some(1));
    assert!(began.elapsed() <= Duration::from_millis(2_150), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn case_29_force_gives_what_was_loaded_after_the_call() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    // While another load runs here, and in another process.
    for leader in [&cache, &other] {
        let park = db.parks();
        let plain = start(leader, 1);
        settle().await;
        let loads = db.loads();
        db.set(1, loads + 10);
        let forced = tokio::spawn({
            let cache = cache.clone();
            async move { cache.force(&1).await }
        });
        settle().await;
        park.add_permits(100);
        assert_eq!(value(&forced.await.unwrap().unwrap()), Some(loads + 10));
        plain.await.unwrap().unwrap();
        assert_eq!(value(&cache.get(&1).await.unwrap()), Some(loads + 10), "and it is what is cached");
        cache.invalidate(&1).await.unwrap();
    }
    // Over a value: that is replaced, also in the other process' eyes; a failure leaves it.
    db.set(1, 100);
    cache.get(&1).await.unwrap();
    db.set(1, 101);
    assert_eq!(value(&cache.force(&1).await.unwrap()), Some(101));
    assert_eq!(value(&other.get(&1).await.unwrap()), Some(101));
    db.fails.store(true, Ordering::SeqCst);
    cache.force(&1).await.expect_err("the loader fails");
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(101));
}

#[tokio::test(start_paused = true)]
async fn case_31_a_crowd_that_waits_for_another_s_load_does_not_poll() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(3_000);
    let first = start(&cache, 1);
    settle().await;
    let crowd: Vec<_> = (0..10_000).map(|_| start(&other, 1)).collect();
    let began = Instant::now();
    for reader in crowd {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(1));
    }
    assert!(began.elapsed() <= Duration::from_millis(3_005), "{:?}", began.elapsed());
    let looks = world.stores[1].reads.load(Ordering::SeqCst);
    assert!(looks <= 40, "{looks} looks in 3 s of 10,000 readers");
    first.await.unwrap().unwrap();
    assert_eq!(db.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn panics_and_slow_loads_are_errors_for_all_who_wait() {
    let world = World::new(1);
    let calls = Arc::new(AtomicU64::new(0));
    let loader = {
        let calls = calls.clone();
        move |key: u64, _| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            assert!(call != 0, "before its first await");
            async move {
                match key {
                    1 => panic!("row {key} is cursed"),
                    2 => std::future::pending().await,
                    _ => Ok::<_, DbError>(Loaded::value(key)),
                }
            }
        }
    };
    let second = Duration::from_secs(1);
    let cache = builder(&world, 0).load_timeout(second, 2 * second).loader(loader).unwrap();
    for message in ["before its first await", "row 1 is cursed"] {
        let readers: Vec<_> = (0..10).map(|_| start(&cache, 1)).collect();
        for reader in readers {
            let error = reader.await.unwrap().expect_err("it panics");
            assert!(error.loader_error::<LoaderPanicked>().expect("a panic").message.contains(message), "{error}");
        }
        pause(500).await;
    }
    let began = Instant::now();
    assert!(matches!(cache.get(&2).await, Err(CacheError::Timeout)));
    assert_eq!(began.elapsed(), 2 * second);
    assert_eq!(value(&cache.get(&3).await.unwrap()), Some(3));
    assert_eq!((cache.stats().flights, cache.stats().failed_loads), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_load_slower_than_its_lease_keeps_it() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).lease(Ttl::millis::<300>()).loader(db.loader()).unwrap();
    let other = builder(&world, 1).lease(Ttl::millis::<300>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(5_000);
    let (here, there) = (start(&cache, 1), start(&other, 1));
    assert_eq!(value(&here.await.unwrap().unwrap()), Some(1));
    assert_eq!(value(&there.await.unwrap().unwrap()), Some(1));
    assert_eq!(db.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_answers_everyone_and_leaves_no_task() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let _park = db.parks();
    let readers: Vec<_> = (0..100).map(|key| start(&cache, key)).collect();
    settle().await;
    world.processes[0].close().await;
    for reader in readers {
        assert!(matches!(reader.await.unwrap(), Err(CacheError::Stopping)));
    }
    assert!(matches!(cache.get(&5).await, Err(CacheError::Stopping)));
    assert_eq!(db.running.load(Ordering::SeqCst), 0, "no load is left");
    assert_eq!(cache.stats().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_cache_serves_no_copies_that_nobody_looks_after() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    world.processes[0].close().await;
    pause(1_000).await;
    assert!(matches!(cache.get(&1).await, Err(CacheError::Stopping)));
}

/// A loader's error with a time limit behind it.
#[derive(Debug)]
struct Late(LoadTimedOut);

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the source sleeps")
    }
}

impl std::error::Error for Late {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn a_loader_s_own_time_limit_is_a_timeout_for_others() {
    let world = World::new(2);
    let late = |_: u64, _| async { Err::<Loaded<u64>, _>(Late(LoadTimedOut)) };
    let cache = builder(&world, 0).loader(late).unwrap();
    let other = builder(&world, 1).loader(late).unwrap();
    assert!(cache.get(&1).await.expect_err("it fails").loader_error::<Late>().is_some());
    assert!(matches!(other.get(&1).await, Err(CacheError::Timeout)), "within the back-off");
}
