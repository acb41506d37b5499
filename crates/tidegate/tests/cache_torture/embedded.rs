//! Over the store in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate::cache::{CacheKey, CacheStore, EmbeddedCache, EmbeddedCacheOptions};
use tidegate_backend::BoxFuture;
use tidegate_conformance::cache::Harness;
use tidegate_conformance::cache::bent::Bend;
use tidegate_conformance::cache::torture::{Mix, Settings, Tally, torture};

use super::subject::{Built, start};
use super::{MUTANT, is_caught, promises_are_kept, reads};

struct Embedded(Arc<EmbeddedCache>);

impl Harness for Embedded {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.0.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>> {
        Box::pin(async { Arc::new(self.0.handle()) as Arc<dyn CacheStore> })
    }

    fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.overwrite(key, Bytes::copy_from_slice(bytes), life) })
    }

    fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.delete(key) })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

fn open() -> BoxFuture<'static, Box<dyn Harness>> {
    Box::pin(async {
        let store = EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap();
        Box::new(Embedded(Arc::new(store))) as Box<dyn Harness>
    })
}

fn run(settings: Settings) -> Tally {
    torture(&open, &start(Built::Plainly), settings)
}

#[test]
fn no_read_is_older_than_its_promise() {
    let tally = run(Settings { reads: reads(), time: Duration::from_secs(1_800), ..Settings::default() });
    promises_are_kept(&tally);
    assert!(tally.reads() >= reads(), "{tally:?}");
    assert!(tally.killed >= 5 && tally.strong > tally.reads() / 10, "{tally:?}");
}

#[test]
fn no_read_of_many_keys_at_once_is_older_than_its_promise() {
    let settings = Settings { reads: 200_000, ..Settings::default() };
    promises_are_kept(&torture(&open, &start(Built::Batching), settings));
}

#[test]
fn a_store_that_fails_makes_no_read_old() {
    let settings = Settings { reads: 200_000, bend: Some(Bend::Fails(0.02)), ..Settings::default() };
    promises_are_kept(&run(settings));
}

#[test]
fn a_lease_that_ends_before_its_load_makes_no_read_old() {
    let settings = Settings { reads: 200_000, bend: Some(Bend::RenewsNothing), ..Settings::default() };
    promises_are_kept(&run(settings));
}

#[test]
fn a_clock_that_jumps_makes_no_read_old() {
    let settings = Settings { reads: 200_000, bend: Some(Bend::ClockSteps), ..Settings::default() };
    let tally = run(settings);
    assert!(tally.broken.is_empty(), "{tally:#?}");
    assert!(tally.failed < tally.reads() / 2, "{tally:?}");
}

/// Processes that live long enough to hold a copy for longer than the bound.
const LONG_LIVED: Settings = Settings { mix: Mix::OneByOne, time: Duration::from_secs(8), ..MUTANT };

#[test]
fn no_copy_is_older_than_the_bound() {
    promises_are_kept(&run(LONG_LIVED));
}

#[test]
fn late_answers_make_no_copy_older_than_the_bound() {
    promises_are_kept(&run(Settings { bend: Some(Bend::Slow), ..LONG_LIVED }));
}

#[test]
fn gaps_make_no_copy_older_than_the_bound() {
    promises_are_kept(&run(Settings { bend: Some(Bend::Gaps), mix: Mix::Bounded, ..LONG_LIVED }));
}

#[test]
fn late_answers_make_no_read_old() {
    let settings = Settings { reads: 200_000, bend: Some(Bend::Slow), ..Settings::default() };
    promises_are_kept(&run(settings));
}

#[test]
fn a_deaf_process_keeps_to_the_bound() {
    promises_are_kept(&run(Settings { bend: Some(Bend::Deaf), ..LONG_LIVED }));
}

#[test]
fn mutant_a_blind_set_is_caught() {
    is_caught("a blind SET", &run(Settings { bend: Some(Bend::FillsBlindly), ..MUTANT }));
}

#[test]
fn mutant_an_absence_that_overwrites_is_caught() {
    is_caught("an absence that overwrites", &run(Settings { bend: Some(Bend::AbsenceOverwrites), ..MUTANT }));
}

#[test]
fn mutant_a_bus_that_drops_everything_and_does_not_know_is_caught() {
    let settings = Settings { bend: Some(Bend::DeafUnawares), mix: Mix::Bounded, ..MUTANT };
    is_caught("a bus that drops everything", &run(settings));
}

#[test]
fn mutant_joining_old_flights_is_caught() {
    let tally = torture(&open, &start(Built::JoiningOldFlights), MUTANT);
    is_caught("joining a flight that began before the invalidation", &tally);
}
