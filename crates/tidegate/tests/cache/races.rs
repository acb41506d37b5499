//! Loads against invalidations.

use crate::common::*;
use tidegate::cache::*;

#[tokio::test(start_paused = true)]
async fn case_01_a_fill_after_an_invalidation_is_rejected() {
    let (world, db) = (World::new(1), Database::new());
    let cache = world.processes[0].cache("t").loader(db.loader()).unwrap();
    db.set(1, 1);
    let park = db.parks();
    let reader = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get(&1).await }
    });
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
