//! How a filter comes to be, grows, is lost and comes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::cache::membership::Mutant;
use tidegate::cache::*;
use tidegate_backend::membership::{Agreed, Change, MembershipStore};
use tidegate_core::cache::membership::{Generation, State};

use super::common::*;

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Nobody is refused before the first filter is complete, and additions meanwhile are in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_first_is_built_everything_is_let_through() {
    let table = Table::with(1..=3_000);
    let park = table.parks();
    let caches = process(Arc::new(memory()));
    let cache = table.cache_with(&caches, table.membership().capacity(5_000));
    let building = until(&cache, "it is begun", |status| status.building).await;
    assert!(!building.complete);
    assert!(!refuses(&cache, 10_000).await);
    cache.membership().unwrap().add(&20_000).await.unwrap();
    table.commit(20_000);
    cache.invalidate(&20_001).await.unwrap();
    park.add_permits(1_000);
    let built = complete(&cache).await;
    assert!((3_001..=3_003).contains(&built.ids), "{built:?}");
    assert!(!refuses(&cache, 20_000).await && !refuses(&cache, 20_001).await && !refuses(&cache, 3_000).await);
    assert!(refuses(&cache, 30_000).await);
    caches.close().await;
}

/// A rebuild forgets what was deleted, keeps what was added meanwhile, and is one process' work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_forgets_the_deleted_and_keeps_the_new() {
    let table = Table::with(1..=2_000);
    let store = memory();
    let world = processes(&store, 3);
    let caches: Vec<_> =
        world.iter().map(|caches| table.cache_with(caches, table.membership().capacity(3_000))).collect();
    let first = complete(&caches[0]).await;
    let pages = table.pages.load(Ordering::SeqCst);
    assert_eq!(pages, 3, "one process reads two pages and the end");
    table.rows.lock().unwrap().retain(|id| id % 2 == 0);
    assert!(!refuses(&caches[1], 1_001).await);
    let park = table.parks();
    let rebuilding = tokio::spawn({
        let filter = caches[0].membership().unwrap();
        async move { filter.rebuild().await }
    });
    until(&caches[1], "it is begun", |status| status.building).await;
    caches[2].membership().unwrap().add(&1).await.unwrap();
    table.commit(1);
    park.add_permits(1_000);
    rebuilding.await.unwrap().unwrap();
    for cache in &caches {
        let now = status(cache).await;
        assert!(now.complete && now.generation != first.generation && now.begun >= first.begun, "{now:?}");
        assert!(refuses(cache, 1_003).await && !refuses(cache, 1).await && !refuses(cache, 1_000).await);
    }
    for caches in world {
        caches.close().await;
    }
}

/// A filter with more ids than it was made for grows, at its first reading and later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_grows() {
    let table = Table::with(1..=5_000);
    let caches = process(Arc::new(memory()));
    let cache = table.cache(&caches);
    let built = complete(&cache).await;
    assert_eq!((built.capacity, built.ids), (7_500, 5_000), "{built:?}");
    let filter = cache.membership().unwrap();
    let more: Vec<u64> = (10_001..=15_000).collect();
    filter.add_many(&more).await.unwrap();
    more.iter().for_each(|id| table.commit(*id));
    filter.rebuild().await.unwrap();
    let grown = status(&cache).await;
    assert!((14_900..=15_000).contains(&grown.capacity), "{grown:?}");
    assert_eq!(grown.ids, 10_000, "{grown:?}");
    assert!(grown.false_positives < 0.000_1);
    caches.close().await;
}

/// A source that fails for a moment is asked again; one that stays away leaves the filter as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_fails_costs_time_only() {
    let table = Table::with(1..=100);
    table.faults.store(2, Ordering::SeqCst);
    let caches = process(Arc::new(memory()));
    let cache = table.cache(&caches);
    let built = complete(&cache).await;
    let filter = cache.membership().unwrap();
    table.faults.store(u64::MAX, Ordering::SeqCst);
    let failed = tokio::time::timeout(Duration::from_secs(9), filter.rebuild()).await.unwrap().unwrap_err();
    assert!(failed.to_string().contains("the table is away"), "{failed}");
    let now = status(&cache).await;
    assert!(now.complete && now.generation == built.generation, "{now:?}");
    assert!(refuses(&cache, 500).await && !refuses(&cache, 50).await);
    caches.close().await;
}

/// A store that lost everything refuses nobody until it was built again, which happens by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_store_is_filled_again() {
    let table = Table::with(1..=100);
    let store = memory();
    let world = processes(&store, 2);
    let (one, two) = (table.cache(&world[0]), table.cache(&world[1]));
    let built = complete(&one).await;
    complete(&two).await;
    assert!(refuses(&two, 500).await);
    store.members().flush();
    assert!(!refuses(&two, 501).await);
    until(&two, "it is built again", |status| status.complete && status.generation != built.generation).await;
    assert!(refuses(&two, 502).await && !refuses(&two, 50).await);
    for caches in world {
        caches.close().await;
    }
}

/// A lost bucket refuses nobody, also not after additions to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_bucket_lets_through() {
    for mutant in [None, Some(Mutant::MissingIsEmpty)] {
        let table = Table::with(1..=400);
        let store = memory();
        let world = processes(&store, 2);
        let (builder, reader) = (table.cache(&world[0]), table.cache_with(&world[1], table.mutant(mutant)));
        let built = complete(&builder).await;
        complete(&reader).await;
        for bucket in 0..built.bytes as u32 / 1_016 {
            store.members().evict(NS, built.generation, bucket);
        }
        builder.membership().unwrap().add(&1).await.unwrap();
        let mut refused = 0;
        for id in 1..=400 {
            refused += u32::from(refuses(&reader, id).await);
        }
        assert_eq!(refused > 0, mutant.is_some(), "{mutant:?}: {refused} refused");
        for caches in world {
            caches.close().await;
        }
    }
}

/// The rows of a builder that was killed in the middle are read by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_builder_is_taken_over() {
    let table = Table::with(1..=5_000);
    let store = memory();
    let world = processes(&store, 2);
    let park = table.parks();
    let membership = || table.membership().capacity(6_000);
    let first = table.cache_with(&world[0], membership());
    until(&first, "it is begun", |status| status.building).await;
    world[0].close().await;
    drop(first);
    park.add_permits(1_000);
    let second = table.cache_with(&world[1], membership());
    // Its lease ends after five seconds.
    let built = complete(&second).await;
    assert_eq!(built.ids, 5_000);
    assert!(!refuses(&second, 4_999).await && refuses(&second, 6_001).await);
    world[1].close().await;
}

/// What another version left is not used, and is in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_of_another_version_is_not_used() {
    let table = Table::with(1..=100);
    for strange in [true, false] {
        let store = Arc::new(memory());
        let caches = process(store.clone());
        let state = if strange {
            b"what a later version writes".to_vec()
        } else {
            let shape = tidegate_core::cache::membership::Shape { buckets: 3, hashes: 13 };
            let (begun, layout) = (store.now(), shape.layout() ^ 1);
            let home = tidegate_core::cache::membership::home(b"memory");
            let other = Generation { id: 9, seed: 1, shape, capacity: 1_000, begun, home, layout };
            State { current: Some(other), building: None }.bytes()
        };
        let members = store.members();
        members.prepare(NS, 9, 0..3, Duration::from_secs(60)).await.unwrap();
        let change = Change { state: b"", new: &state, home: b"", leader: 0, keep: Duration::from_secs(60) };
        assert_eq!(members.replace(NS, change).await.unwrap(), Agreed::Done);
        let cache = table.cache(&caches);
        pause(300).await;
        assert!(!status(&cache).await.complete);
        assert!(!refuses(&cache, 50).await && !refuses(&cache, 500).await);
        // Whoever adds cannot reach it, so it goes.
        cache.membership().unwrap().add(&200).await.unwrap();
        complete(&cache).await;
        assert!(refuses(&cache, 501).await);
        caches.close().await;
    }
}
