//! Torture of the typed cache over the store in memory: no read is older than it promises, whatever is slow, fails or is
//! killed; and each mutant of the cache's design is caught.
//!
//! `TIDEGATE_TEST_LONG=1` makes 20 million reads of the 1 million.
#![allow(clippy::unwrap_used, reason = "tests")]

mod jitter;
mod subject;

use std::time::Duration;

use tidegate_conformance::cache::bent::Bend;
use tidegate_conformance::cache::torture::{Settings, Tally, torture};

fn run(settings: Settings) -> Tally {
    let start = subject::start(false);
    torture(&|| Box::pin(async { subject::open() }), &start, settings)
}

fn promises_are_kept(tally: &Tally) {
    assert!(tally.broken.is_empty(), "{tally:#?}");
    let Tally { strong, bounded, failed, acknowledged, loads, .. } = *tally;
    assert!(strong > 0 || bounded > 0);
    assert!(acknowledged > 100 && loads > 100, "nothing happened: {tally:?}");
    assert!(failed < (strong + bounded) / 2, "most reads failed: {tally:?}");
    assert!(tally.stale < (strong + bounded) / 20, "{tally:?}");
}

/// How many reads the torture makes.
fn reads() -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 20_000_000 } else { 1_000_000 }
}

#[test]
fn no_read_is_older_than_its_promise() {
    let tally = run(Settings { reads: reads(), time: Duration::from_secs(1_800), ..Settings::default() });
    promises_are_kept(&tally);
    assert!(tally.reads() >= reads(), "{tally:?}");
    assert!(tally.killed >= 5 && tally.strong > tally.reads() / 10, "{tally:?}");
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

#[test]
fn a_deaf_process_keeps_to_the_bound() {
    let settings = Settings {
        reads: u64::MAX,
        time: Duration::from_secs(6),
        bend: Some(Bend::Deaf),
        kill_every: None,
        only_bounded: true,
        ..Settings::default()
    };
    promises_are_kept(&run(settings));
}

/// A mutant must be caught within so many reads or so long.
fn is_caught(name: &str, tally: &Tally) {
    assert!(!tally.broken.is_empty(), "{name} was not caught: {tally:?}");
    assert!(tally.reads() <= 100_000 || tally.took < Duration::from_secs(30), "{name}: {tally:?}");
}

const MUTANT: Settings = Settings {
    reads: u64::MAX,
    time: Duration::from_secs(30),
    processes: 3,
    kill_every: None,
    bend: None,
    only_bounded: false,
};

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
    let settings = Settings { bend: Some(Bend::DeafUnawares), only_bounded: true, ..MUTANT };
    is_caught("a bus that drops everything", &run(settings));
}

#[test]
fn mutant_joining_old_flights_is_caught() {
    let start = subject::start(true);
    let tally = torture(&|| Box::pin(async { subject::open() }), &start, MUTANT);
    is_caught("joining a flight that began before the invalidation", &tally);
}
