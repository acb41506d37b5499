//! Two levels, several processes, tags.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::cache::*;

use crate::common::*;

#[tokio::test(start_paused = true)]
async fn case_14_a_copy_lives_no_longer_than_the_stored_value() {
    let (world, db) = (World::new(2), Database::new());
    let knobs = |process| builder(&world, process).fresh_for(Ttl::seconds::<10>()).jitter(0.0).early_refresh(0.0);
    let first = knobs(0).loader(db.loader()).unwrap();
    let second = knobs(1).local(1 << 20, Ttl::seconds::<60>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    first.get(&1).await.unwrap();
    pause(9_800).await;
    let read = second.get(&1).await.unwrap();
    assert_eq!((read.source, read.age.as_millis()), (Source::Store, 9_800));
    pause(150).await;
    assert_eq!(second.get(&1).await.unwrap().source, Source::Local);
    pause(60).await;
    assert_eq!(second.get(&1).await.unwrap().source, Source::Load);
}

#[tokio::test(start_paused = true)]
async fn the_second_level_is_the_store_and_the_first_is_bounded_in_time() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).local(1 << 20, Ttl::seconds::<2>()).loader(db.loader()).unwrap();
    db.set(1, 1);
    let sources = async || cache.get(&1).await.unwrap().source;
    assert_eq!((sources().await, sources().await), (Source::Load, Source::Local));
    pause(2_000).await;
    assert_eq!((sources().await, sources().await), (Source::Store, Source::Local));
    assert_eq!(cache.read(&1).strong().await.unwrap().source, Source::Store);
    let stats = cache.stats();
    assert_eq!((stats.local_hits, stats.store_hits, stats.misses, stats.loads), (2, 2, 1, 1), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn case_32_with_the_bus_silent_no_copy_is_older_than_the_bound() {
    let (world, db) = (World::new(2), Database::new());
    let writer = builder(&world, 0).loader(db.loader()).unwrap();
    let reader = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 0);
    reader.get(&1).await.unwrap();
    world.stores[1].set_deaf(true);
    let mut committed = Vec::new();
    for tick in 0..1_000_u64 {
        if tick % 30 == 0 {
            db.set(1, tick);
            writer.invalidate(&1).await.unwrap();
            committed.push((tick, tick));
        }
        let read = value(&reader.get(&1).await.unwrap()).unwrap();
        let floor = committed.iter().rev().find(|(at, _)| at + 100 < tick).map_or(0, |(_, version)| *version);
        assert!(read >= floor, "at {tick}: {read}, and {floor} was acknowledged over a second ago");
        pause(10).await;
    }
    let stats = reader.stats();
    assert!((9..=12).contains(&stats.misses), "once a second: {stats:?}");
    // Healed, what was missed is told as a gap.
    world.stores[1].set_deaf(false);
    world.stores[0].inner.tell(&[CacheNotice::Gap]).await.unwrap();
    pause(10).await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), value(&writer.get(&1).await.unwrap()));
    assert_eq!(reader.get(&1).await.unwrap().source, Source::Local);
}

#[tokio::test(start_paused = true)]
async fn an_invalidation_is_heard_at_once() {
    let (world, db) = (World::new(2), Database::new());
    let writer = builder(&world, 0).loader(db.loader()).unwrap();
    let reader = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    reader.get(&1).await.unwrap();
    assert_eq!(reader.get(&1).await.unwrap().source, Source::Local);
    db.set(1, 2);
    writer.invalidate(&1).await.unwrap();
    settle().await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), Some(2));
    db.set(1, 3);
    db.set(2, 3);
    writer.invalidate_many(&[1, 2]).await.unwrap();
    settle().await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), Some(3));
    db.set(1, 4);
    assert_eq!(writer.clear().await.unwrap(), 1);
    settle().await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), Some(4));
}

#[tokio::test(start_paused = true)]
async fn case_36_what_the_store_did_not_acknowledge_is_told_to_nobody() {
    let (world, db) = (World::new(2), Database::new());
    let writer = builder(&world, 0).loader(db.loader()).unwrap();
    let reader = builder(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    writer.get(&1).await.unwrap();
    reader.get(&1).await.unwrap();
    world.stores[0].readonly.store(true, Ordering::SeqCst);
    db.set(1, 2);
    for result in [
        writer.invalidate(&1).await,
        writer.put(&1, 2, RowVersion::new(2).unwrap()).await,
        writer.invalidate_tag("any").await,
        writer.clear().await.map(drop),
    ] {
        assert!(matches!(result, Err(CacheError::Store(_))), "{result:?}");
    }
    assert_eq!(world.stores[0].told.load(Ordering::SeqCst), 0);
    settle().await;
    assert_eq!(reader.get(&1).await.unwrap().source, Source::Local, "the other's copy is untouched");
    // The own copy is there, but is not served as fresh by itself: the store is asked.
    assert_eq!(writer.stats().local_copies, 1);
    pause(300).await;
    assert_eq!(writer.get(&1).await.unwrap().source, Source::Store);
    world.stores[0].readonly.store(false, Ordering::SeqCst);
    writer.invalidate(&1).await.unwrap();
    settle().await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), Some(2));
}

fn tagged(world: &World, process: usize) -> CacheBuilder<u64, u64> {
    builder(world, process).stale_for(Ttl::seconds::<60>()).tags(|key| vec![format!("shop-{}", key % 2), "all".into()])
}

#[tokio::test(start_paused = true)]
async fn case_37_a_tag_makes_old_what_carries_it_and_nothing_else() {
    let (world, db) = (World::new(3), Database::new());
    let first = tagged(&world, 0).loader(db.loader()).unwrap();
    let second = tagged(&world, 1).loader(db.loader()).unwrap();
    for key in 0..4 {
        db.set(key, 1);
        first.get(&key).await.unwrap();
        second.get(&key).await.unwrap();
        assert_eq!(second.get(&key).await.unwrap().source, Source::Local);
    }
    for key in 0..4 {
        db.set(key, 2);
    }
    first.invalidate_tag("shop-1").await.unwrap();
    settle().await;
    let cold = tagged(&world, 2).loader(db.loader()).unwrap();
    for cache in [&cold, &first, &second] {
        for key in 0..4 {
            let expected = Some(1 + key % 2);
            assert_eq!(value(&cache.get(&key).await.unwrap()), expected, "key {key}");
            assert_eq!(value(&cache.read(&key).strong().await.unwrap()), expected, "key {key}");
        }
    }
    assert_eq!(db.loads(), 6, "only what carries the tag was loaded again");
    // Asking for the counter changes nothing.
    pause(2_000).await;
    assert_eq!(cold.get(&1).await.unwrap().source, Source::Local);
    db.set(0, 3);
    second.invalidate_tag("all").await.unwrap();
    assert_eq!(value(&first.read(&0).strong().await.unwrap()), Some(3), "strong: before any notice was heard");
}

#[tokio::test(start_paused = true)]
async fn a_tag_is_bounded_with_the_bus_silent_too() {
    let (world, db) = (World::new(2), Database::new());
    let writer = tagged(&world, 0).loader(db.loader()).unwrap();
    let reader = tagged(&world, 1).loader(db.loader()).unwrap();
    db.set(1, 1);
    reader.get(&1).await.unwrap();
    world.stores[1].set_deaf(true);
    db.set(1, 2);
    writer.invalidate_tag("all").await.unwrap();
    pause(1_001).await;
    assert_eq!(value(&reader.get(&1).await.unwrap()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_tag_bumped_during_a_load_makes_its_value_old() {
    let (world, db) = (World::new(1), Database::new());
    let cache = tagged(&world, 0).loader(db.loader()).unwrap();
    db.set(1, 1);
    let park = db.parks();
    let before = start(&cache, 1);
    settle().await;
    db.set(1, 2);
    cache.invalidate_tag("all").await.unwrap();
    let after = start(&cache, 1);
    settle().await;
    park.add_permits(100);
    before.await.unwrap().unwrap();
    assert_eq!(value(&after.await.unwrap().unwrap()), Some(2));
    assert_eq!(value(&cache.get(&1).await.unwrap()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn an_old_tagged_value_is_replaced_by_one_load_of_all_processes() {
    let (world, db) = (World::new(3), Database::new());
    let caches: Vec<_> = (0..3).map(|n| tagged(&world, n).loader(db.loader()).unwrap()).collect();
    db.set(1, 1);
    caches[0].get(&1).await.unwrap();
    db.takes(100);
    db.set(1, 2);
    caches[0].invalidate_tag("all").await.unwrap();
    let readers: Vec<_> = (0..300).map(|n| start(&caches[n % 3], 1)).collect();
    for reader in readers {
        assert_eq!(value(&reader.await.unwrap().unwrap()), Some(2));
    }
    assert_eq!(db.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn too_many_tags_are_an_error_that_says_so() {
    let (world, db) = (World::new(1), Database::new());
    let tags = |_: &u64| (0..17).map(|n| n.to_string()).collect();
    let cache = builder(&world, 0).tags(tags).loader(db.loader()).unwrap();
    let error = cache.get(&1).await.expect_err("17 tags");
    assert!(error.to_string().contains("16"), "{error}");
    let deadline = Duration::from_millis(500);
    assert!(cache.read(&1).deadline(deadline).await.is_err());
}
