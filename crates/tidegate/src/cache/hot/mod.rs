//! Which keys of a cache are read most, in this process and lately.
//!
//! - The counters are [`tidegate_core::hot::Sketch`]. `sample`: which reads are counted. `list`: how the hottest are saved. `told`: how
//!   processes tell each other of them.
//! - What is done with them: `local` pins them, `warm` refreshes them early and brings them back, `touch` keeps the store from
//!   evicting what is read from copies in process.

pub(super) mod list;
pub(super) mod sample;
pub(super) mod told;
pub(super) mod touch;

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use tidegate_core::Set;
use tidegate_core::hot::{MAX_REPORTED, Ranked, Report, Sketch};

/// How many hot keys a cache knows, if not said otherwise.
pub const DEFAULT_HOT_KEYS: usize = 1_000;
/// Most hot keys that a cache may be told to know.
pub const MAX_HOT_KEYS: usize = 10_000;
/// Fewer reads a second do not make a key hot enough to be pinned and refreshed before its time: as many as keep it in process
/// by themselves.
const HOT_A_SECOND: f64 = 1.0;
/// Shorter spans say too little of a rate, seconds.
const SHORTEST_SPAN_S: f64 = 10.0;

/// A key that is read often.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HotKey<K> {
    /// The key.
    pub key: K,
    /// The same, encoded.
    pub encoded: Bytes,
    /// Reads a second of this process lately, estimated from samples.
    pub reads_per_second: f64,
    /// The estimate counts at most so many reads a second that were of other keys. (Chance in sampling is not in it.)
    pub error: f64,
}

/// A key, encoded and as it is.
type Named<K> = (Bytes, K);

/// What a cache knows of its hot keys.
pub(super) struct Hot<K> {
    /// How many; 0: none is looked for.
    pub(super) most: usize,
    sketch: Mutex<Sketch<Named<K>>>,
    hasher: foldhash::fast::RandomState,
    /// The hashes of the hottest, for whoever must know at once.
    hottest: Arc<Hottest>,
    /// Which of them missed lately.
    missed: Mutex<Set<u64>>,
    pub(super) rounds: Rounds,
}

/// When upkeep does what next, by the process' clock.
#[derive(Default)]
pub(super) struct Rounds {
    /// The hottest are ranked again.
    pub(super) rank_at: Mutex<i64>,
    /// A warm-up runs.
    pub(super) warms: AtomicBool,
    /// The last was begun, plus one; 0: never.
    pub(super) warmed_at: AtomicU64,
    /// Notices were missed since, or somebody asked for it.
    pub(super) gap: AtomicBool,
    /// So many in a row ended because loads fail.
    pub(super) failed: AtomicU32,
    /// Keys are being touched.
    pub(super) touches: AtomicBool,
    /// How often keys were touched.
    pub(super) touched: AtomicUsize,
}

/// The hashes of the hottest keys, and those whose copies are pinned.
#[derive(Default)]
pub(super) struct Hottest {
    known: RwLock<Set<u64>>,
    pinned: RwLock<Set<u64>>,
}

impl Hottest {
    fn has(set: &RwLock<Set<u64>>, hash: u64) -> bool {
        let set = set.read().unwrap_or_else(PoisonError::into_inner);
        !set.is_empty() && set.contains(&hash)
    }

    pub(super) fn is_pinned(&self, hash: u64) -> bool {
        Self::has(&self.pinned, hash)
    }

    pub(super) fn pin(&self, hashes: Set<u64>) {
        *self.pinned.write().unwrap_or_else(PoisonError::into_inner) = hashes;
    }

    pub(super) fn pinned(&self) -> usize {
        self.pinned.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl<K> Hot<K> {
    pub(super) fn pinned(&self) -> usize {
        self.hottest.pinned()
    }
}

impl<K: Clone> Hot<K> {
    pub(super) fn new(most: usize, now: i64) -> Self {
        Self {
            most,
            sketch: Mutex::new(Sketch::new(most, now)),
            hasher: foldhash::fast::RandomState::default(),
            hottest: Arc::default(),
            missed: Mutex::default(),
            rounds: Rounds::default(),
        }
    }

    /// For the in-process level: the hasher of keys and the hottest.
    pub(super) fn pins(&self) -> (foldhash::fast::RandomState, Arc<Hottest>) {
        (self.hasher.clone(), Arc::clone(&self.hottest))
    }

    fn sketch(&self) -> MutexGuard<'_, Sketch<Named<K>>> {
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, key: &[u8]) -> u64 {
        // As the map of the in-process level hashes its keys.
        let mut hasher = self.hasher.build_hasher();
        std::hash::Hasher::write(&mut hasher, key);
        std::hash::Hasher::finish(&hasher)
    }

    /// Counts a read of `key` that stands for some.
    #[cold]
    pub(super) fn count(&self, key: &K, encoded: &[u8], now: i64) {
        let stands_for = sample::taken();
        if self.most > 0 {
            let name = || ((Bytes::copy_from_slice(encoded), key.clone()), encoded.len());
            self.sketch().count(now, self.hash(encoded), stands_for, name);
        }
    }

    /// A key that was hot before this process began, the hottest at rank 0: known, until it is read or forgotten.
    pub(super) fn seed(&self, key: &K, encoded: &Bytes, rank: usize) {
        self.sketch().seed(self.hash(encoded), rank, || ((encoded.clone(), key.clone()), encoded.len()));
    }

    /// A key was neither in process nor in the store.
    pub(super) fn missed(&self, key: &[u8]) {
        if self.most > 0 && Hottest::has(&self.hottest.known, self.hash(key)) {
            self.missed.lock().unwrap_or_else(PoisonError::into_inner).insert(self.hash(key));
        }
    }

    /// How many of the hot keys missed since they were last forgiven, and how many hot keys there are.
    pub(super) fn count_missed(&self) -> (usize, usize) {
        let known = self.hottest.known.read().unwrap_or_else(PoisonError::into_inner).len();
        (self.missed.lock().unwrap_or_else(PoisonError::into_inner).len(), known)
    }

    /// Begins to count misses anew.
    pub(super) fn forgive_misses(&self) {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Ages what was counted, and looks which are surely hot now, the hottest first.
    pub(super) fn rank(&self, now: i64) -> Vec<HotKey<K>> {
        let mut sketch = self.sketch();
        sketch.age(now);
        let span = sketch.span_s(now);
        let ranked = rated(sketch.hottest(self.most), span);
        drop(sketch);
        let is_hot =
            |hot: &HotKey<K>| (hot.reads_per_second - hot.error) * span / span.max(SHORTEST_SPAN_S) >= HOT_A_SECOND;
        let hot: Vec<HotKey<K>> = ranked.into_iter().filter(is_hot).collect();
        let hashes = hot.iter().map(|hot| self.hash(&hot.encoded)).collect();
        *self.hottest.known.write().unwrap_or_else(PoisonError::into_inner) = hashes;
        hot
    }

    /// The hottest as they were counted so far.
    pub(super) fn hottest(&self, most: usize, now: i64) -> Vec<HotKey<K>> {
        let sketch = self.sketch();
        rated(sketch.hottest(most.min(self.most)), sketch.span_s(now))
    }

    /// What was read most in the last windows, by encoded keys.
    pub(super) fn report(&self, now: i64) -> Report<Bytes> {
        self.sketch().report(MAX_REPORTED, now).named(|(encoded, _)| encoded)
    }

    /// Pins the copies of these keys, and no others.
    pub(super) fn pin<'a>(&self, keys: impl Iterator<Item = &'a Bytes>) {
        self.hottest.pin(keys.map(|key| self.hash(key)).collect());
    }
}

fn rated<K>(ranked: Vec<Ranked<Named<K>>>, span_s: f64) -> Vec<HotKey<K>> {
    let rated = |Ranked { name: (encoded, key), count, over }: Ranked<Named<K>>| {
        let (reads_per_second, error) = (count as f64 / span_s, over as f64 / span_s);
        HotKey { key, encoded, reads_per_second, error }
    };
    ranked.into_iter().map(rated).collect()
}
