//! Lives, absences, garbage, keys, large values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate::cache::*;
use tidegate_core::cache::entry::lease;
use tidegate_core::cache::{Entry, EntryId};

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn case_39_a_row_is_there_as_soon_as_its_insert_is_told() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).absent_for(Ttl::seconds::<30>()).loader(db.loader()).unwrap();
    assert_eq!(value(&cache.get(&1).await.unwrap()), None);
    assert_eq!(cache.get(&1).await.unwrap().source, Source::Local, "believed");
    assert_eq!(cache.stats().negatives, 1);
    db.set(1, 1);
    cache.invalidate(&1).await.unwrap();
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(1));
    // An absence has its own life; without one it is not stored.
    assert_eq!(value(&cache.get(&2).await.unwrap()), None);
    pause(30_001).await;
    db.set(2, 2);
    assert_eq!(value(&cache.get(&2).await.unwrap()), Some(2));
    let none = world.processes[0].cache("none").loader(db.loader()).unwrap();
    assert_eq!((value(&none.get(&3_u64).await.unwrap()), value(&none.get(&3).await.unwrap())), (None, None));
    assert_eq!(none.stats().absent_loads, 2);
}

#[tokio::test(start_paused = true)]
async fn case_31_absent_false_and_zero_are_hits() {
    let world = World::new(1);
    let loads = Arc::new(AtomicU64::new(0));
    let counting = |value: Option<Option<u64>>| {
        let loads = loads.clone();
        move |_: u64, _: LoadContext| {
            loads.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok::<_, DbError>(Loaded::from(value)))
        }
    };
    for (n, stored) in [None, Some(None), Some(Some(0))].into_iter().enumerate() {
        let cache: Cache<u64, Option<u64>> = world.processes[0]
            .cache(&format!("c{n}"))
            .absent_for(Ttl::seconds::<9>())
            .no_local()
            .loader(counting(stored))
            .unwrap();
        for _ in 0..3 {
            assert_eq!(cache.get(&1).await.unwrap().value.as_deref(), stored.as_ref());
        }
    }
    assert_eq!(loads.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn case_41_durations_that_mean_nothing_cannot_be_set() {
    let (world, db) = (World::new(1), Database::new());
    assert_eq!(Ttl::try_from(Duration::ZERO), Err(ZeroTtl));
    let cache = builder(&world, 0).fresh_for(Ttl::try_from(Duration::from_nanos(1)).unwrap());
    let cache = cache.loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    pause(2).await;
    cache.get(&1).await.unwrap();
    assert_eq!(db.loads(), 2, "never without an end");
}

#[tokio::test(start_paused = true)]
async fn case_44_a_load_slower_than_the_refresh_lands_and_nothing_outlives_its_hard_end() {
    let (world, db) = (World::new(1), Database::new());
    let knobs = |name| {
        let cache = world.processes[0].cache(name).fresh_for(Ttl::millis::<1_000>()).jitter(0.0);
        cache.early_refresh(0.0)
    };
    let cache = knobs("slow").stale_for(Ttl::seconds::<60>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(3_000);
    cache.get(&1).await.unwrap();
    db.set(1, 2);
    let mut seen = Vec::new();
    for _ in 0..40 {
        seen.push(value(&cache.get(&1).await.unwrap()).unwrap());
        pause(100).await;
    }
    assert_eq!((seen[0], seen[39]), (1, 2), "{seen:?}");
    assert!(seen.is_sorted());
    // After its hard end the old one is gone, whatever the loader does.
    db.takes(0);
    let short = knobs("short").stale_for(Ttl::seconds::<2>()).loader(db.loader()).unwrap();
    assert_eq!(value(&short.get(&1).await.unwrap()), Some(2));
    db.fails.store(true, Ordering::SeqCst);
    for ms in (0..3_500).step_by(100) {
        let read = short.get(&1).await;
        match ms {
            0..1_000 => assert!(!read.unwrap().stale, "{ms}"),
            1_000..3_000 => assert!(read.unwrap().stale, "{ms}"),
            _ => assert!(read.is_err(), "{ms}"),
        }
        pause(100).await;
    }
}

#[tokio::test(start_paused = true)]
async fn stale_values_are_served_while_one_refresh_runs() {
    let (world, db) = (World::new(2), Database::new());
    let knobs = |process| {
        let cache = builder(&world, process).fresh_for(Ttl::seconds::<1>()).stale_for(Ttl::seconds::<60>());
        cache.jitter(0.0).early_refresh(0.0).loader(db.loader()).unwrap()
    };
    let caches = [knobs(0), knobs(1)];
    db.set(1, 1);
    caches[0].get(&1).await.unwrap();
    caches[1].get(&1).await.unwrap();
    pause(1_500).await;
    db.set(1, 2);
    db.takes(500);
    for _ in 0..100 {
        for cache in &caches {
            let read = cache.get(&1).await.unwrap();
            assert!(read.stale && value(&read) == Some(1), "{read:?}");
        }
        settle().await;
    }
    pause(700).await;
    for cache in &caches {
        cache.get(&1).await.unwrap();
    }
    pause(150).await;
    for cache in &caches {
        let read = cache.get(&1).await.unwrap();
        assert!(!read.stale && value(&read) == Some(2), "{read:?}");
    }
    assert_eq!(db.loads(), 2);
    let asked = world.stores[0].count("refresh") + world.stores[1].count("refresh");
    assert!(asked <= 12, "{asked}: who does not refresh does not ask again and again");
}

#[tokio::test(start_paused = true)]
async fn a_hot_value_is_refreshed_before_its_time() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<10>()).jitter(0.0).loader(db.loader()).unwrap();
    db.set(1, 1);
    db.takes(200);
    cache.get(&1).await.unwrap();
    let misses = cache.stats().misses;
    for _ in 0..6_000 {
        cache.get(&1).await.unwrap();
        pause(10).await;
    }
    let stats = cache.stats();
    assert!(stats.misses - misses <= 1, "nobody waited: {stats:?}");
    assert!((6..=12).contains(&stats.loads), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn case_46_garbage_is_a_miss_and_is_repaired_and_schemas_do_not_see_each_other() {
    let (world, db) = (World::new(1), Database::new());
    let store = &world.stores[0].inner;
    let cache = builder(&world, 0).no_local().loader(db.loader()).unwrap();
    db.set(1, 7);
    let key = world.key(1);
    let sealed = {
        cache.get(&1).await.unwrap();
        store.read(&key).await.unwrap().unwrap()
    };
    let mut flipped = sealed.to_vec();
    flipped[20] ^= 1;
    let other_key = store.read(&world.key(1)).await.unwrap().unwrap();
    let long_lease = [&lease(EntryId([1; 16]))[..], b"and more"].concat();
    for garbage in [b"".to_vec(), b"x".to_vec(), vec![0; 100], flipped, sealed[..40].to_vec(), long_lease] {
        let loads = db.loads();
        store.overwrite(&key, Bytes::from(garbage.clone()), Duration::from_secs(600));
        assert_eq!(value(&cache.get(&1).await.unwrap()), Some(7), "{garbage:?}");
        assert_eq!(db.loads(), loads + 1);
        let now = store.read(&key).await.unwrap().unwrap();
        assert!(Entry::read(&now, &key.key, 0).is_ok(), "repaired");
    }
    // The entry of another key under this one.
    store.overwrite(&world.key(2), other_key, Duration::from_secs(600));
    db.set(2, 8);
    assert_eq!(value(&cache.get(&2).await.unwrap()), Some(8));
    assert_eq!(cache.stats().unreadable, 7);
}

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct New {
    name: String,
}

#[tokio::test(start_paused = true)]
async fn case_46_old_and_new_binaries_share_a_store() {
    let (world, db) = (World::new(2), Database::new());
    // 1 and 5 share a slot, 2 has its own.
    for (old, new) in [(1, 2), (1, 5)] {
        let name = format!("shared-{new}");
        let old: Cache<u64, u64> = world.processes[0].cache(&name).schema(old).loader(db.loader()).unwrap();
        let load = {
            let db = db.clone();
            move |key, context| {
                let db = db.clone();
                async move {
                    let loaded = db.load(key, context).await?;
                    let _ = loaded;
                    Ok::<_, DbError>(Loaded::value(New { name: "new".to_owned() }))
                }
            }
        };
        let new: Cache<u64, New> = world.processes[1].cache(&name).schema(new).loader(load).unwrap();
        db.set(1, 1);
        for _ in 0..5 {
            assert_eq!(value(&old.get(&1).await.unwrap()), Some(1));
            assert_eq!(new.get(&1).await.unwrap().value.unwrap().name, "new");
        }
        db.set(1, 2);
        new.invalidate(&1).await.unwrap();
        assert_eq!(value(&old.read(&1).strong().await.unwrap()), Some(2), "it reaches every schema");
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_47_keys_that_look_alike_are_different() {
    let world = World::new(1);
    let load = |key: (String, String), _| std::future::ready(Ok::<_, DbError>(Loaded::value(format!("{key:?}"))));
    let cache: Cache<(String, String), String> = world.processes[0].cache("pairs").loader(load).unwrap();
    let pairs = [("a:b", "c"), ("a", "b:c"), ("", "a:b:c"), ("a:b:c", ""), ("a\0", "b"), ("a", "\0b")];
    let pairs = pairs.map(|(a, b)| (a.to_owned(), b.to_owned()));
    for _ in 0..2 {
        for pair in &pairs {
            assert_eq!(*cache.get(pair).await.unwrap().value.unwrap(), format!("{pair:?}"));
        }
    }
    let long = ("x".repeat(2_000), String::new());
    assert!(matches!(cache.get(&long).await, Err(CacheError::KeyTooLong(_))));
    assert!(matches!(cache.invalidate(&long).await, Err(CacheError::KeyTooLong(_))));
}

fn text_cache(world: &World, process: usize, loads: &Arc<AtomicU64>, length: usize) -> Cache<u64, String> {
    let loads = loads.clone();
    let load = move |_: u64, _| {
        loads.fetch_add(1, Ordering::SeqCst);
        async move {
            pause(20).await;
            // Text that does not compress.
            let mut state = 1_u64;
            let mut letter = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'0' + (state >> 58) as u8)
            };
            Ok::<_, DbError>(Loaded::value((0..length).map(|_| letter()).collect()))
        }
    };
    let cache = world.processes[process].cache("t").max_value(1 << 20);
    cache.local(32 << 20, Ttl::seconds::<60>()).loader(load).unwrap()
}

#[tokio::test(start_paused = true)]
async fn case_49_a_large_value_is_not_stored_but_still_loaded_once() {
    let (world, loads) = (World::new(2), Arc::new(AtomicU64::new(0)));
    let large = text_cache(&world, 0, &loads, 2 << 20);
    let readers: Vec<_> = (0..100)
        .map(|_| {
            let large = large.clone();
            tokio::spawn(async move { large.get(&1).await.unwrap().value.unwrap().len() })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.unwrap(), 2 << 20);
    }
    assert_eq!((loads.load(Ordering::SeqCst), large.stats().oversize), (1, 1));
    assert_eq!(world.stores[0].inner.read(&world.key(1)).await.unwrap(), None);
    assert_eq!(large.get(&1).await.unwrap().source, Source::Local, "within its weight it is kept in process");
    let huge = text_cache(&world, 1, &loads, 17 << 20);
    assert_eq!(huge.get(&2).await.unwrap().value.unwrap().len(), 17 << 20);
    assert_eq!(huge.stats().local_copies, 0);
}

#[tokio::test(start_paused = true)]
async fn uncacheable_values_are_shared_and_not_kept() {
    let (world, loads) = (World::new(1), Arc::new(AtomicU64::new(0)));
    let load = {
        let loads = loads.clone();
        move |key: u64, _| {
            loads.fetch_add(1, Ordering::SeqCst);
            async move {
                pause(10).await;
                Ok::<_, DbError>(Loaded::uncacheable(key))
            }
        }
    };
    let cache = builder(&world, 0).loader(load).unwrap();
    let readers: Vec<_> = (0..50).map(|_| start(&cache, 1)).collect();
    for reader in readers {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(1));
    }
    assert_eq!(loads.load(Ordering::SeqCst), 1);
    cache.get(&1).await.unwrap();
    assert_eq!(loads.load(Ordering::SeqCst), 2);
    assert!(cache.get_if_cached(&1).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stepped_clock_lengthens_no_life() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).fresh_for(Ttl::seconds::<60>()).no_local().loader(db.loader()).unwrap();
    db.set(1, 1);
    cache.get(&1).await.unwrap();
    // Back by an hour: without a stale life it is not believed for an hour more.
    world.clock.ahead.store(-3_600_000, Ordering::SeqCst);
    let read = cache.get(&1).await.unwrap();
    assert!(read.stale || read.source == Source::Load, "{read:?}");
    world.clock.ahead.store(3_600_000, Ordering::SeqCst);
    assert_eq!(cache.get(&1).await.unwrap().source, Source::Load);
}
