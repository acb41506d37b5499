//! The promises of the table: eight processes, a thousand callers each, one load.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::cache::*;
use tokio::time::Instant;

use crate::common::*;

const PROCESSES: usize = 8;
const CALLERS: usize = 1_000;

fn crowd(caches: &[Cache<u64, u64>], key: u64) -> Vec<tokio::task::JoinHandle<Result<Read<u64>, CacheError>>> {
    (0..CALLERS * PROCESSES).map(|n| start(&caches[n % PROCESSES], key)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_key_that_expires_under_a_crowd_is_loaded_once() {
    let (world, db) = (World::new(PROCESSES), Database::new());
    let caches: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let cache = builder(&world, process).fresh_for(Ttl::seconds::<5>()).jitter(0.0).early_refresh(0.0);
            cache.loader(db.loader()).unwrap()
        })
        .collect();
    db.set(1, 1);
    db.takes(150);
    for round in 1..=10 {
        let began = Instant::now();
        for reader in crowd(&caches, 1) {
            assert_eq!(value(&reader.await.unwrap().unwrap()), Some(1));
        }
        assert_eq!(db.loads(), round, "one for all processes");
        assert!(began.elapsed() <= Duration::from_millis(170), "{:?}", began.elapsed());
        pause(5_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_stale_life_nobody_of_the_crowd_waits() {
    let (world, db) = (World::new(PROCESSES), Database::new());
    let caches: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let cache = builder(&world, process).fresh_for(Ttl::seconds::<5>()).stale_for(Ttl::seconds::<60>());
            cache.jitter(0.0).loader(db.loader()).unwrap()
        })
        .collect();
    db.set(1, 1);
    caches[0].get(&1).await.unwrap();
    db.takes(150);
    for _ in 0..5 {
        pause(5_200).await;
        let loads = db.loads();
        let began = Instant::now();
        for reader in crowd(&caches, 1) {
            reader.await.unwrap().unwrap();
        }
        assert!(began.elapsed() <= Duration::from_millis(5), "{:?}", began.elapsed());
        pause(400).await;
        assert!(db.loads() <= loads + 1, "one refresh at most");
    }
    assert!(db.loads() >= 4, "{}", db.loads());
}

#[tokio::test(start_paused = true)]
async fn a_failing_loader_is_asked_once_a_back_off_by_all_together() {
    let (world, db) = (World::new(PROCESSES), Database::new());
    let caches: Vec<_> = (0..PROCESSES).map(|n| builder(&world, n).loader(db.loader()).unwrap()).collect();
    db.fails.store(true, Ordering::SeqCst);
    db.takes(100);
    let mut loads = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        for reader in crowd(&caches, 1) {
            let error = reader.await.unwrap().expect_err("it fails");
            assert!(matches!(error, CacheError::Load(_)), "{error}");
        }
        assert!(began.elapsed() <= Duration::from_millis(120), "{:?}", began.elapsed());
        loads.push(db.loads());
        // Within the back-off nobody loads; it doubles.
        pause(20).await;
        caches[3].get(&1).await.expect_err("shared");
        assert_eq!(db.loads(), loads.len() as u64);
        pause(500).await;
    }
    assert_eq!(loads, [1, 2, 3, 4, 5]);
}
