//! Many keys at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::cache::*;

use crate::common::*;

/// Loads many at once and counts the questions.
struct Batches {
    db: Arc<Database>,
    questions: Arc<AtomicU64>,
    answers_short: bool,
}

impl Loader<u64, u64> for Batches {
    type Error = DbError;
    const BATCHES: bool = true;

    async fn load(&self, key: &u64, context: LoadContext) -> Result<Loaded<u64>, DbError> {
        self.db.clone().load(*key, context).await
    }

    async fn load_many(&self, keys: &[u64], _: LoadContext) -> Result<Vec<Loaded<u64>>, DbError> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let rows: HashMap<u64, u64> = self.db.rows.lock().unwrap().clone();
        pause(100).await;
        if self.db.fails.load(Ordering::SeqCst) {
            return Err(DbError("no rows today".to_owned()));
        }
        let keys = if self.answers_short { &keys[1..] } else { keys };
        Ok(keys.iter().map(|key| Loaded::from(rows.get(key).copied())).collect())
    }
}

fn batches(db: &Arc<Database>) -> (Arc<AtomicU64>, Batches) {
    let questions = Arc::new(AtomicU64::new(0));
    (questions.clone(), Batches { db: db.clone(), questions, answers_short: false })
}

fn values(answers: Vec<Result<Read<u64>, CacheError>>) -> Vec<Option<u64>> {
    answers.into_iter().map(|answer| value(&answer.unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn many_keys_are_one_question_to_the_store_and_one_load() {
    let (world, db) = (World::new(2), Database::new());
    let (questions, loader) = batches(&db);
    let cache = builder(&world, 0).absent_for(Ttl::seconds::<60>()).loader(loader).unwrap();
    let (elsewhere, loader) = batches(&db);
    let other = builder(&world, 1).absent_for(Ttl::seconds::<60>()).loader(loader).unwrap();
    for key in 0..50 {
        db.set(key, key + 1);
    }
    let keys: Vec<u64> = (0..100).chain([3, 3, 99]).collect();
    let expected: Vec<Option<u64>> = keys.iter().map(|key| (*key < 50).then_some(key + 1)).collect();
    let (here, there) = tokio::join!(cache.get_many(&keys), other.get_many(&keys));
    assert_eq!((values(here), values(there)), (expected.clone(), expected.clone()));
    assert_eq!(questions.load(Ordering::SeqCst) + elsewhere.load(Ordering::SeqCst), 1, "for both processes");
    let (reads, locals) = (world.stores[0].reads.load(Ordering::SeqCst), cache.stats().local_hits);
    assert_eq!(values(cache.get_many(&keys).await), expected);
    assert_eq!(world.stores[0].reads.load(Ordering::SeqCst), reads, "all from the in-process level");
    assert_eq!(cache.stats().local_hits, locals + 103);
    assert_eq!(value(&cache.get(&4).await.unwrap()), Some(5));
}

#[tokio::test(start_paused = true)]
async fn without_the_in_process_level_a_page_is_one_read() {
    let (world, db) = (World::new(1), Database::new());
    let cache = builder(&world, 0).no_local().loader(db.loader()).unwrap();
    let keys: Vec<u64> = (0..2_500).collect();
    for key in &keys {
        db.set(*key, *key);
    }
    let expected: Vec<_> = keys.iter().copied().map(Some).collect();
    assert_eq!(values(cache.get_many(&keys).await), expected, "one by one, within the budget");
    assert!(db.most_running.load(Ordering::SeqCst) <= 64);
    let reads = world.stores[0].reads.load(Ordering::SeqCst);
    assert_eq!(values(cache.get_many(&keys).await), expected);
    assert_eq!(world.stores[0].reads.load(Ordering::SeqCst) - reads, 3, "in chunks of 1,000");
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_the_rules_of_a_single_load() {
    let (world, db) = (World::new(1), Database::new());
    let (questions, loader) = batches(&db);
    let cache = builder(&world, 0).loader(loader).unwrap();
    for key in 0..10 {
        db.set(key, 1);
    }
    let keys: Vec<u64> = (0..10).collect();
    // An invalidation while the batch loads.
    let reading = tokio::spawn({
        let (cache, keys) = (cache.clone(), keys.clone());
        async move { cache.get_many(&keys).await }
    });
    pause(50).await;
    db.set(5, 2);
    cache.invalidate(&5).await.unwrap();
    assert_eq!(value(&cache.get(&5).await.unwrap()), Some(2));
    reading.await.unwrap();
    assert_eq!(value(&cache.get(&5).await.unwrap()), Some(2));
    assert_eq!(cache.stats().rejected_fills, 1);
    // A key whose floor is known is loaded by itself, and told the floor.
    cache.invalidate_version(&6, RowVersion::new(3).unwrap()).await.unwrap();
    db.set(6, 3);
    cache.invalidate(&7).await.unwrap();
    assert_eq!(value(cache.get_many(&keys).await[6].as_ref().unwrap()), Some(3));
    assert!(db.contexts.lock().unwrap().iter().any(|context| context.floor == RowVersion::new(3)));
    // A failure is every key's.
    let asked = questions.load(Ordering::SeqCst);
    cache.clear().await.unwrap();
    db.fails.store(true, Ordering::SeqCst);
    for answer in cache.get_many(&[1, 2, 3]).await {
        assert!(answer.expect_err("it fails").loader_error::<DbError>().is_some());
    }
    for key in [1, 2, 3] {
        cache.get(&key).await.expect_err("shared");
    }
    assert_eq!(questions.load(Ordering::SeqCst), asked + 1);
    assert_eq!(cache.stats().flights, 0);
}

#[tokio::test(start_paused = true)]
async fn keys_that_fail_fail_alone() {
    let (world, db) = (World::new(1), Database::new());
    let load = {
        let db = db.clone();
        move |key: u64, context| {
            let db = db.clone();
            async move { if key == 3 { Err(DbError("three".to_owned())) } else { db.load(key, context).await } }
        }
    };
    let cache = builder(&world, 0).loader(load).unwrap();
    db.set(1, 1);
    let answers = cache.get_many(&[1, 3]).await;
    assert_eq!(value(answers[0].as_ref().unwrap()), Some(1));
    assert!(answers[1].is_err());
    let short = Batches { db, questions: Arc::default(), answers_short: true };
    let short = world.processes[0].cache("short").loader(short).unwrap();
    let answers = short.get_many(&[1, 2]).await;
    assert!(matches!(&answers[0], Err(CacheError::Configuration(what)) if what.contains("1 answers for 2 keys")));
}

#[tokio::test(start_paused = true)]
async fn case_42_what_is_warmed_together_turns_stale_apart() {
    let (world, db) = (World::new(2), Database::new());
    let (questions, loader) = batches(&db);
    let warmer = builder(&world, 0).fresh_for(Ttl::seconds::<1_000>()).jitter(0.2).loader(loader).unwrap();
    let keys: Vec<u64> = (0..10_000).collect();
    for key in &keys {
        db.set(*key, 1);
    }
    assert_eq!(warmer.warm(&keys).await.unwrap(), 10_000);
    assert_eq!(questions.load(Ordering::SeqCst), 100);
    assert_eq!(warmer.warm(&keys).await.unwrap(), 10_000, "nothing is loaded twice");
    assert_eq!(questions.load(Ordering::SeqCst), 100);
    let mut ends = Vec::new();
    for key in &keys {
        let bytes = world.stores[0].inner.read(&world.key(*key)).await.unwrap().unwrap();
        match tidegate_core::cache::Entry::read(&bytes, &world.key(*key).key, 0).unwrap() {
            tidegate_core::cache::Entry::Value { header, .. } => {
                let life = header.stamp.soft.since(header.stamp.born);
                assert!((800_000..=1_000_000).contains(&life), "{life}");
                ends.push(header.stamp.soft.0);
            }
            other => panic!("{other:?}"),
        }
    }
    let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
    let mut parts = [0; 100];
    for end in ends {
        parts[((end - first) * 100 / (last - first + 1)) as usize] += 1;
    }
    assert!(parts.iter().max().unwrap() <= &300, "{parts:?}");
}

#[tokio::test(start_paused = true)]
async fn warming_gives_way_to_those_who_wait() {
    let (world, db) = (World::with(1, |builder| builder.load_budget(4)), Database::new());
    let cache = builder(&world, 0).loader(db.loader()).unwrap();
    let keys: Vec<u64> = (0..200).collect();
    for key in &keys {
        db.set(*key, 1);
    }
    db.takes(50);
    let warming = tokio::spawn({
        let (cache, keys) = (cache.clone(), keys.clone());
        async move { cache.warm(&keys).await }
    });
    pause(60).await;
    for key in 1_000..1_020 {
        db.set(key, 1);
        let began = tokio::time::Instant::now();
        cache.get(&key).await.unwrap();
        assert!(began.elapsed() <= Duration::from_millis(60), "{:?}: one place is always free", began.elapsed());
    }
    assert_eq!(warming.await.unwrap().unwrap(), 200);
    assert_eq!(db.most_running.load(Ordering::SeqCst), 4);
}
