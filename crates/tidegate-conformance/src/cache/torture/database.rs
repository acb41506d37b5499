//! The database under torture: a register a key, and what its readers may be given.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng;

/// A bounded read never serves a value for longer than this after its invalidation was acknowledged.
pub const BOUND: Duration = Duration::from_secs(1);
/// How far the replica lags.
const LAG: Duration = Duration::from_millis(30);
/// Every so many versions the row is deleted.
const ABSENT_EACH: u64 = 7;

/// How a key is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Invalidated by the cache, or by a plain delete of a foreign client that tells nobody: no bound is promised.
    Foreign,
    /// Its rows have versions, its loads may come from the lagging replica, its invalidations carry a floor.
    Versioned,
    /// Invalidated by the cache, or by a relay.
    Told,
    /// Invalidated by its tag.
    Tagged,
}

/// The registers.
pub struct Database {
    rows: Vec<Row>,
    lags: bool,
    /// Loads that were begun.
    pub loads: AtomicU64,
}

struct Row {
    next: AtomicU64,
    committed: AtomicU64,
    /// The newest whose invalidation was acknowledged.
    acknowledged: AtomicU64,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    /// Commits that the replica may not have, oldest first.
    commits: VecDeque<(Instant, u64)>,
    replica: u64,
    /// Acknowledged within the bound, oldest first.
    acknowledged: VecDeque<(Instant, u64)>,
    /// The newest acknowledged before that.
    settled: u64,
}

/// What a reader may be given: this version, or a newer one.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// Not older.
    pub from: u64,
    /// When the read began.
    pub began: Instant,
}

/// A load that failed on purpose.
#[derive(Debug)]
pub struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the test let this load fail")
    }
}

impl std::error::Error for Refused {}

/// What a load found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Of the row, or of its deletion.
    pub version: u64,
    /// Whether there is a row.
    pub present: bool,
    /// Whether the cache is told the version.
    pub versioned: bool,
}

/// Whether a row of this version was deleted.
#[must_use]
pub fn is_deletion(version: u64) -> bool {
    version.is_multiple_of(ABSENT_EACH)
}

impl Database {
    /// `keys` rows, each of version 1. `lags`: it has a replica.
    #[must_use]
    pub fn new(keys: u32, lags: bool) -> Self {
        let row = |_| Row {
            next: AtomicU64::new(2),
            committed: AtomicU64::new(1),
            acknowledged: AtomicU64::new(0),
            history: Mutex::new(History { replica: 1, ..History::default() }),
        };
        Self { rows: (0..keys).map(row).collect(), lags, loads: AtomicU64::new(0) }
    }

    /// How a key is written and read.
    #[must_use]
    pub fn kind(key: u32) -> Kind {
        [Kind::Foreign, Kind::Versioned, Kind::Told, Kind::Tagged][key as usize % 4]
    }

    fn row(&self, key: u32) -> &Row {
        &self.rows[key as usize]
    }

    /// Loads a key as an application would: sometimes slowly before or after it has read, sometimes in vain; of a
    /// versioned key sometimes from the replica. `floor`: known to be committed; `retried`: the replica was too old.
    ///
    /// # Errors
    /// [`Refused`], now and then.
    pub async fn load(&self, key: u32, floor: Option<u64>, retried: bool) -> Result<Loaded, Refused> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let (before, after, fails, from_replica) = {
            let mut dice = rand::rng();
            let slow = |dice: &mut rand::rngs::ThreadRng| match dice.random_range(0..20) {
                0..12 => 0,
                12..19 => dice.random_range(100..2_000),
                _ => dice.random_range(2_000..15_000),
            };
            (slow(&mut dice), slow(&mut dice), dice.random_bool(0.02), dice.random_bool(0.3))
        };
        pause(before).await;
        let versioned = Self::kind(key) == Kind::Versioned;
        let lagging = self.lags && versioned && from_replica && !retried;
        let version = if lagging { self.replica(key) } else { self.committed(key) };
        debug_assert!(floor.is_none_or(|floor| lagging || version >= floor), "the primary is never behind");
        pause(after).await;
        if fails {
            return Err(Refused);
        }
        Ok(Loaded { version, present: !is_deletion(version), versioned })
    }

    fn committed(&self, key: u32) -> u64 {
        self.row(key).committed.load(Ordering::SeqCst)
    }

    fn replica(&self, key: u32) -> u64 {
        let mut history = self.row(key).lock();
        while history.commits.front().is_some_and(|(at, _)| at.elapsed() > LAG) {
            let (_, version) = history.commits.pop_front().expect("it was there");
            history.replica = history.replica.max(version);
        }
        history.replica
    }

    /// Commits a new version, and gives it.
    pub fn commit(&self, key: u32) -> u64 {
        let row = self.row(key);
        let version = row.next.fetch_add(1, Ordering::SeqCst);
        row.committed.fetch_max(version, Ordering::SeqCst);
        row.lock().commits.push_back((Instant::now(), version));
        version
    }

    /// The invalidation of `version` was acknowledged.
    pub fn acknowledge(&self, key: u32, version: u64) {
        let row = self.row(key);
        row.lock().acknowledged.push_back((Instant::now(), version));
        row.acknowledged.fetch_max(version, Ordering::SeqCst);
    }

    /// What a read that begins now may be given.
    #[must_use]
    pub fn begin(&self, key: u32, strong: bool) -> Allowed {
        let (row, began) = (self.row(key), Instant::now());
        if strong {
            return Allowed { from: row.acknowledged.load(Ordering::SeqCst), began };
        }
        let mut history = row.lock();
        while history.acknowledged.front().is_some_and(|(at, _)| began.saturating_duration_since(*at) > BOUND) {
            let (_, version) = history.acknowledged.pop_front().expect("it was there");
            history.settled = history.settled.max(version);
        }
        Allowed { from: history.settled, began }
    }

    /// What a load may give that begins from now on; `None`: it may come from the replica.
    #[must_use]
    pub fn begin_forced(&self, key: u32) -> Option<Allowed> {
        let asks_replica = self.lags && Self::kind(key) == Kind::Versioned;
        (!asks_replica).then(|| Allowed { from: self.committed(key), began: Instant::now() })
    }

    /// Whether an answer (a version, or "there is none") was allowed; why not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, key: u32, allowed: Allowed, answer: Option<u64>) -> Result<(), String> {
        let newest = self.committed(key);
        let Allowed { from, began } = allowed;
        let right = match answer {
            Some(version) => (from..=newest).contains(&version) && !is_deletion(version),
            // Some version from then on said that there is none.
            None => from.next_multiple_of(ABSENT_EACH).max(ABSENT_EACH) <= newest,
        };
        if right {
            return Ok(());
        }
        let acknowledged = self.row(key).acknowledged.load(Ordering::SeqCst);
        Err(format!(
            "key {key} ({:?}): {answer:?} is older than {from}; acknowledged {acknowledged}, committed {newest}; the read \
             began {:?} ago",
            Self::kind(key),
            began.elapsed()
        ))
    }
}

impl Row {
    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn pause(us: u64) {
    if us > 0 {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }
}
