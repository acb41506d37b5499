//! Torture of the typed cache: no read is older than it promises, whatever is slow, fails or is killed; and each mutant of
//! the cache's design is caught.
//!
//! - [`embedded`]: over the store in memory; `TIDEGATE_TEST_LONG=1` makes 20 million reads of the 1 million.
//! - [`shared`] (feature `redis`): over Redis or Valkey (`TIDEGATE_TEST_ENGINE=valkey`), alone and in a Cluster.
//! - [`jitter`]: it only ever shortens.
//! - [`subject`]: the typed cache as the torture sees it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod embedded;
mod jitter;
#[cfg(feature = "redis")]
mod shared;
mod subject;

use std::time::Duration;

use tidegate_conformance::cache::torture::{Mix, Settings, Tally};

/// A mutant must be caught within so many reads, or so long.
const MUTANT: Settings = Settings {
    reads: u64::MAX,
    time: Duration::from_secs(30),
    processes: 3,
    kill_every: None,
    bend: None,
    mix: Mix::All,
    disturb_every: None,
};

fn promises_are_kept(tally: &Tally) {
    assert!(tally.broken.is_empty(), "{tally:#?}");
    assert!(tally.acknowledged > 100 && tally.loads > 100, "nothing happened: {tally:?}");
    assert!(tally.failed < tally.reads() / 10, "many reads failed: {tally:?}");
    assert!(tally.stale < tally.reads() / 20, "{tally:?}");
}

fn is_caught(name: &str, tally: &Tally) {
    assert!(!tally.broken.is_empty(), "{name} was not caught: {tally:?}");
    assert!(tally.reads() <= 100_000 || tally.took <= MUTANT.time, "{name}: {tally:?}");
}

/// How many reads the torture of the suite makes.
fn reads() -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 20_000_000 } else { 1_000_000 }
}
