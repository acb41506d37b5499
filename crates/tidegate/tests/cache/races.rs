//! Loads against invalidations and puts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::cache::*;

use crate::common::*;

fn version(version: u64) -> RowVersion {
    RowVersion::new(version).unwrap()
}

#[tokio::test(start_paused = true)]
async fn case_01_a_fill_after_an_invalidation_is_rejected() {
    let (world, db) = (World::new(1), Database::new());
    let cache = world.processes[0].cache("t").loader(db.loader()).unwrap();
    db.set(1, 1);
    let park = db.parks();
    let reader = start(&cache, 1);
    settle().await;
    db.set(1, 2);
    cache.invalidate(&1).await.unwrap();
    park.add_permits(100);
    assert_eq!(value(&reader.await.unwrap().unwrap()), Some(1), "it asked before");
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
    assert_eq!(value(&cache.read(&1).strong().await.unwrap()), Some(2));
    assert_eq!(cache.stats().rejected_fills, 1);
    assert_eq!(db.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_02_nor_that_of_a_refresh_and_the_stamp_is_of_the_load_s_start() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<10>()).stale_for(Ttl::seconds::<60>());
    let cache = cache.early_refresh(0.0).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(700);
    let first = cache.get(&1).await.unwrap();
    assert_eq!(first.age.as_millis(), 700, "of its load's start");
    pause(9_400).await;
    let stale = cache.get(&1).await.unwrap();
    assert!(stale.stale && stale.age.as_millis() == 10_100, "{stale:?}");
    settle().await;
    assert_eq!(db.running.load(Ordering::SeqCst), 1, "a refresh runs");
    db.set(1, 2);
    cache.invalidate(&1).await.unwrap();
    let after = cache.get(&1).await.unwrap();
    assert_eq!((value(&after), after.stale), (Some(2), false));
    pause(2_000).await;
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2), "the refresh did not land");
    assert_eq!(cache.stats().rejected_fills, 1);
}

#[tokio::test(start_paused = true)]
async fn case_04_a_reader_after_an_invalidation_does_not_join_the_load_before_it() {
    // The invalidation comes from this process, from another, and from a client that tells nobody.
    for who in 0..3 {
        let (world, db) = (World::new(2), Database::new());
        let cache = builder(&world, 0).loader(db.loader()).unwrap();
        let other = builder(&world, 1).loader(db.loader()).unwrap();
        db.set(1, 1);
        let park = db.parks();
        let before = start(&cache, 1);
        settle().await;
        db.set(1, 2);
        match who {
            0 => cache.invalidate(&1).await.unwrap(),
            1 => other.invalidate(&1).await.unwrap(),
            _ => world.stores[0].inner.delete(&world.key(1)),
        }
        let after = tokio::spawn({
            let cache = cache.clone();
            async move { cache.read(&1).strong().await }
        });
        settle().await;
        park.add_permits(100);
        assert_eq!(value(&after.await.unwrap().unwrap()), Some(2), "{who}");
        assert!(before.await.unwrap().is_ok());
        assert_eq!(db.loads(), 2, "{who}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_06_a_load_does_not_overwrite_a_put() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    let park = db.parks();
    let reader = start(&cache, 1);
    settle().await;
    db.set(1, 2);
    cache.put(&1, 2, version(2)).await.unwrap();
    park.add_permits(100);
    reader.await.unwrap().unwrap();
    for cache in [&cache, &other] {
        assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
        assert_eq!(value(&cache.read(&1).strong().await.unwrap()), Some(2));
    }
    assert_eq!(db.loads(), 1);
    let behind = cache.put(&1, 1, version(1)).await.expect_err("older");
    assert!(matches!(behind, CacheError::Behind { floor, .. } if floor == version(2)));
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_07_versions_never_go_down_for_a_reader() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 0);
    let (done, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (cache, done, seen) = (cache.clone(), done.clone(), seen.clone());
            tokio::spawn(async move {
                let mut last = 0;
                while !done.load(Ordering::SeqCst) {
                    for _ in 0..100 {
                        let now = value(&cache.get(&1).await.unwrap()).unwrap();
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let mut n = 0;
    while seen.load(Ordering::Relaxed) < 100_000 {
        n += 1;
        db.set(1, n);
        cache.put(&1, n, version(n)).await.unwrap();
        if n % 7 == 0 {
            cache.invalidate(&1).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(n > 100, "{n} versions");
}

#[tokio::test(start_paused = true)]
async fn case_09_a_lagging_replica_is_not_cached() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 6);
    cache.get(&1).await.unwrap();
    cache.invalidate_version(&1, version(7)).await.unwrap();
    let error = cache.get(&1).await.expect_err("only version 6 can be had");
    assert!(matches!(error, CacheError::Behind { floor, version: had } if floor.get() == 7 && had.get() == 6));
    let contexts = db.contexts.lock().unwrap().clone();
    assert!(contexts[1..].iter().all(|context| context.floor == Some(version(7))), "{contexts:?}");
    assert_eq!(contexts.last().unwrap().retries, 3);
    assert!(cache.get_if_cached(&1).await.unwrap().is_none());
    // The replica catches up while a load is at it: one read, no error.
    pause(1_000).await;
    let reader = start(&cache, 1);
    pause(60).await;
    db.set(1, 7);
    assert_eq!(value(&reader.await.unwrap().unwrap()), Some(7));
    assert_eq!(value(&cache.get_if_cached(&1).await.unwrap().unwrap()), Some(7));
}

#[tokio::test(start_paused = true)]
async fn case_09_a_floor_raised_between_a_grant_and_its_load_is_not_missed() {
    let (world, db) = (World::new(2), Database::new());
    let cache = builder(&world, 0).tags(|_| vec!["all".into()]).loader(db.loader()).unwrap();
    let other = builder(&world, 1).loader(db.loader()).unwrap();
    // What the replica has. The lease is granted at once, the load begins 100 ms later.
    db.set(1, 1);
    *world.stores[0].slow_tags.lock().unwrap() = Duration::from_millis(100);
    world.stores[0].set_deaf(true);
    let before = start(&cache, 1);
    pause(50).await;
    other.invalidate_version(&1, version(2)).await.unwrap();
    let after = tokio::spawn({
        let cache = cache.clone();
        async move { cache.read(&1).strong().await }
    });
    pause(60).await;
    assert_eq!(db.loads(), 1, "it has read the replica, and was told no floor");
    db.set(1, 2);
    assert!(before.await.unwrap().is_ok());
    assert_eq!(value(&after.await.unwrap().unwrap()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn case_12_a_failed_load_does_not_make_the_invalidated_fresh_again() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).stale_for(Ttl::seconds::<600>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    db.set(1, 2);
    cache.invalidate(&1).await.unwrap();
    db.fails.store(true, Ordering::SeqCst);
    cache.get(&1).await.expect_err("neither the old value nor a new one");
    db.fails.store(false, Ordering::SeqCst);
    pause(60).await;
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
    assert_eq!(db.loads(), 3);
}
