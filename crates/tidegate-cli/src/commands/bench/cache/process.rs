//! A process with a cache of its own, as this one's parent tells it what to do.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::commands::bench::process::{self, Process};
use crate::failure::Result;

pub use crate::commands::bench::process::{all, now_us, soon_us};

/// The cache of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Of the store.
    pub url: String,
    /// Under which it is used.
    pub name: String,
    /// Of the cache.
    pub namespace: String,
    /// How long values are fresh.
    pub fresh_ms: u64,
    /// And how long they are served after that; 0: not at all.
    pub stale_ms: u64,
    /// Whether copies are kept in process.
    pub local: bool,
    /// Loads a second.
    pub load_rate: Option<NonZeroU32>,
    /// How long a load takes.
    pub load_ms: u64,
    /// Whether loads fail.
    pub fails: bool,
}

/// What a process is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// `callers` ask for `key` at the instant `at_us`.
    Crowd {
        /// How many.
        callers: usize,
        /// For what.
        key: u64,
        /// When.
        at_us: u64,
    },
    /// Reads `keys` by turns, and a hot key of a cache with copies in process.
    Stream {
        /// Reads of `keys` in a second.
        per_second: u64,
        /// For so long.
        for_ms: u64,
        /// 0 to this, exclusive.
        keys: u64,
    },
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// When each load began and ended.
    pub loads: Vec<(u64, u64)>,
    /// When the last caller was answered.
    pub last_us: u64,
    /// What the slowest waited.
    pub longest_us: u64,
    /// Answered with a value.
    pub values: u64,
    /// Of these, past their freshness.
    pub stale: u64,
    /// Told that too many loads run.
    pub overloaded: u64,
    /// Told another error.
    pub errors: u64,
    /// Times of the hot key's reads, microseconds: median, 99th of 100, the longest.
    pub hot_us: [u64; 3],
}

/// Several, started one after the other.
///
/// # Errors
/// As [`Process::start`].
pub fn start_all(count: usize, setup: &Setup) -> Result<Vec<Process>> {
    process::start_all("cache-process", count, setup)
}
