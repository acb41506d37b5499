//! The membership filter: which ids surely do not exist.
//!
//! A Bloom filter (Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors", 1970), divided into buckets of
//! [`BUCKET_BYTES`] by a hash of their own, so that processes can share it bucket by bucket. The bits of a bucket are those of
//! a `fastbloom` filter, in little-endian words.
//!
//! - [`Shape`], [`Generation`]: how large a filter is, and one filling of it. [`Generation::place`]: where an id belongs.
//! - [`State`]: what processes that share a filter agree on: the filter that may refuse, and the one that is built.
//! - [`Members`]: the bits in one process.
//!
//! A filter is right only for who computes the same bits for an id. So a generation carries a [fingerprint](Shape::layout)
//! of that computation: whoever has another (an other version of the filter's crate) does not use it.

use std::collections::hash_map::DefaultHasher;
use std::f64::consts::LN_2;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::OnceLock;

use fastbloom::{AtomicBloomFilter, BloomFilter};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

use crate::Millis;

/// Bytes of a bucket: small enough to be sent for one question, large enough that buckets fill evenly; with what Redis puts
/// around a string it fits the 1,024 bytes that an allocator gives.
pub const BUCKET_BYTES: usize = 1_016;
const BUCKET_BITS: usize = BUCKET_BYTES * 8;
const BUCKET_WORDS: usize = BUCKET_BYTES / 8;
/// Fewest ids that a filter is made for.
pub const MIN_CAPACITY: u64 = 1_000;
/// Most ids that a filter is made for: 49 MB at the default rate. With more it still refuses no member, only fewer strangers.
pub const MAX_CAPACITY: u64 = 20_000_000;
/// The part of strangers that a full filter lets through, unless set.
pub const DEFAULT_FALSE_POSITIVES: f64 = 0.000_1;
/// The bounds of that part.
pub const FALSE_POSITIVES: std::ops::RangeInclusive<f64> = 0.000_001..=0.1;
/// Most buckets that a stored generation may name.
const MAX_BUCKETS: u32 = 1 << 17;
const MAX_HASHES: u32 = 32;

/// The filter hashes nothing itself: it is given the hash of an [`Generation::place`].
type Unhashed = BuildHasherDefault<DefaultHasher>;
type Bucket = AtomicBloomFilter<Unhashed>;

/// How large a filter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Buckets, 1 or more.
    pub buckets: u32,
    /// Bits an id, 1 or more.
    pub hashes: u32,
}

impl Shape {
    /// The smallest that lets through at most the part `false_positives` of strangers once it holds `capacity` ids; both are
    /// brought within their bounds. Buckets are not filled evenly, and that is reckoned with.
    #[must_use]
    pub fn of(capacity: u64, false_positives: f64) -> Self {
        let capacity = capacity.clamp(MIN_CAPACITY, MAX_CAPACITY) as f64;
        let target = false_positives.clamp(*FALSE_POSITIVES.start(), *FALSE_POSITIVES.end());
        let mut bits_an_id = -target.ln() / (LN_2 * LN_2);
        loop {
            let hashes = (LN_2 * bits_an_id).round().max(1.0) as u32;
            let ids = BUCKET_BITS as f64 / bits_an_id;
            if rate_of(ids, hashes) <= target {
                let buckets = (capacity / ids).ceil().max(1.0) as u32;
                return Self { buckets, hashes: hashes.min(MAX_HASHES) };
            }
            bits_an_id *= 1.005;
        }
    }

    /// The part of strangers that is let through with so many ids.
    #[must_use]
    pub fn false_positives(&self, ids: u64) -> f64 {
        rate_of(ids as f64 / f64::from(self.buckets), self.hashes)
    }

    /// Bytes of all buckets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.buckets) * BUCKET_BYTES as u64
    }

    /// What tells this process' way of computing bits from every other.
    #[must_use]
    pub fn layout(&self) -> u64 {
        let offsets = [1, 0x9e37_79b9_7f4a_7c15, u64::MAX / 3, u64::MAX - 1].map(|hash| offsets(self.hashes, hash));
        let bytes: Vec<u8> = offsets.iter().flatten().flat_map(|offset| offset.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }
}

/// The rate of buckets that hold so many ids on average, each by chance.
fn rate_of(ids: f64, hashes: u32) -> f64 {
    let unset = 1.0 - 1.0 / BUCKET_BITS as f64;
    let of = |n: f64| (1.0 - unset.powf(n * f64::from(hashes))).powi(hashes.cast_signed());
    // Close to a normal distribution around `ids`, in 97 steps over six deviations to both sides.
    let deviation = ids.sqrt();
    let (mut sum, mut weights) = (0.0, 0.0);
    for step in -48..=48 {
        let distance = f64::from(step) / 8.0;
        let weight = (-distance * distance / 2.0).exp();
        sum += weight * of((ids + distance * deviation).max(0.0));
        weights += weight;
    }
    sum / weights
}

/// The bits of an id within its bucket, ascending, as Redis counts them: from the highest of the first byte.
fn offsets(hashes: u32, hash: u64) -> Vec<u32> {
    let mut scratch = BloomFilter::with_num_bits(BUCKET_BITS).hasher(Unhashed::default()).hashes(hashes);
    scratch.insert_hash(hash);
    let mut offsets = Vec::with_capacity(hashes as usize);
    for (at, word) in scratch.iter().enumerate() {
        let mut rest = word;
        while rest != 0 {
            let bit = at as u32 * 64 + rest.trailing_zeros();
            offsets.push((bit & !7) | (7 - (bit & 7)));
            rest &= rest - 1;
        }
    }
    offsets.sort_unstable();
    offsets
}

/// One filling of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Random: no two are ever alike.
    pub id: u64,
    /// Of the hashes.
    pub seed: u64,
    /// How large it is.
    pub shape: Shape,
    /// How many ids it was made for.
    pub capacity: u64,
    /// When it was begun, on the store's clock.
    pub begun: Millis,
    /// Hash of what its server called itself then: on another one, or after a restart, additions may be missing in it.
    pub home: u64,
    /// [`Shape::layout`] of who began it.
    pub layout: u64,
}

/// Where an id belongs in a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its bucket.
    pub bucket: u32,
    /// Its hash within the bucket.
    hash: u64,
}

impl Generation {
    /// Where an id (an encoded key) belongs.
    #[must_use]
    pub fn place(&self, id: &[u8]) -> Place {
        let hash = xxh3_128_with_seed(id, self.seed);
        let (high, low) = ((hash >> 64) as u64, hash as u64);
        let bucket = (u128::from(high) * u128::from(self.shape.buckets)) >> 64;
        Place { bucket: bucket as u32, hash: low }
    }

    /// The bits of a place within its bucket, ascending; the first is the highest of the first byte.
    #[must_use]
    pub fn offsets(&self, place: Place) -> Vec<u32> {
        offsets(self.shape.hashes, place.hash)
    }

    /// Whether the bits of a bucket are such that the id of `place` may be in. `None`: these are no bucket's bytes.
    #[must_use]
    pub fn may_hold(&self, place: Place, bucket: &[u8]) -> Option<bool> {
        if bucket.len() != BUCKET_BYTES {
            return None;
        }
        let is_set = |offset: &u32| bucket[(offset / 8) as usize] & (0x80 >> (offset % 8)) != 0;
        Some(self.offsets(place).iter().all(is_set))
    }

    /// Whether this process computes the same bits.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.layout == self.shape.layout()
    }
}

/// The hash of what a server calls itself, for [`Generation::home`].
#[must_use]
pub fn home(name: &[u8]) -> u64 {
    xxh3_64(name)
}

/// What the processes that share a filter agree on. It is replaced as a whole, and only where it is what the replacer
/// believed: so an addition that names the state it knows reaches every generation there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Holds every id: it may refuse.
    pub current: Option<Generation>,
    /// Is filled, and refuses nothing yet.
    pub building: Option<Generation>,
}

/// Bytes that are no state of a version that this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoState;

impl fmt::Display for NoState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are no state of a membership filter that this version can read")
    }
}

impl std::error::Error for NoState {}

const MAGIC: [u8; 4] = *b"TGM1";
const GENERATION_BYTES: usize = 8 * 6 + 4 * 2;

impl State {
    /// Its stored bytes. Nothing at all is stored for a state without generations.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let mut out = MAGIC.to_vec();
        for generation in [&self.current, &self.building] {
            out.push(u8::from(generation.is_some()));
            let Some(g) = generation else { continue };
            for number in [g.id, g.seed, g.capacity, g.begun.0.cast_unsigned(), g.home, g.layout] {
                out.extend(number.to_be_bytes());
            }
            out.extend(g.shape.buckets.to_be_bytes());
            out.extend(g.shape.hashes.to_be_bytes());
        }
        out.extend(xxh3_64(&out).to_be_bytes());
        out
    }

    /// Reads stored bytes; none at all are a state without generations.
    ///
    /// # Errors
    /// [`NoState`].
    pub fn read(bytes: &[u8]) -> Result<Self, NoState> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or(NoState)?;
        if xxh3_64(body) != u64::from_be_bytes(*sum) {
            return Err(NoState);
        }
        let mut rest = body.strip_prefix(&MAGIC).ok_or(NoState)?;
        let state = Self { current: generation(&mut rest)?, building: generation(&mut rest)? };
        if rest.is_empty() { Ok(state) } else { Err(NoState) }
    }

    /// Both generations that there may be.
    pub fn generations(&self) -> impl Iterator<Item = &Generation> {
        self.current.iter().chain(&self.building)
    }

    /// Whether this process computes the bits of all of them.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.generations().all(Generation::is_known)
    }
}

fn generation(rest: &mut &[u8]) -> Result<Option<Generation>, NoState> {
    let (there, after) = rest.split_first().ok_or(NoState)?;
    *rest = after;
    if *there == 0 {
        return Ok(None);
    }
    let (own, after) = rest.split_at_checked(GENERATION_BYTES).ok_or(NoState)?;
    *rest = after;
    let mut words = own.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().expect("eight bytes")));
    let mut next = || words.next().expect("as many as were split off");
    let (id, seed, capacity, begun, home, layout, last) = (next(), next(), next(), next(), next(), next(), next());
    let shape = Shape { buckets: (last >> 32) as u32, hashes: last as u32 };
    if !(1..=MAX_BUCKETS).contains(&shape.buckets) || !(1..=MAX_HASHES).contains(&shape.hashes) {
        return Err(NoState);
    }
    Ok(Some(Generation { id, seed, shape, capacity, begun: Millis(begun.cast_signed()), home, layout }))
}

/// The bits of one generation in this process; a bucket takes memory once it holds something. Any number of threads may use
/// it.
pub struct Members {
    hashes: u32,
    buckets: Box<[OnceLock<Bucket>]>,
}

impl Members {
    /// Nothing is in.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Self { hashes: shape.hashes, buckets: (0..shape.buckets).map(|_| OnceLock::new()).collect() }
    }

    fn bucket(&self, at: u32) -> Option<&OnceLock<Bucket>> {
        self.buckets.get(at as usize)
    }

    /// Whether the id of this place may be in.
    #[must_use]
    pub fn contains(&self, place: Place) -> bool {
        self.bucket(place.bucket).and_then(OnceLock::get).is_some_and(|bucket| bucket.contains_hash(place.hash))
    }

    /// Puts an id in; whether it was not in before.
    pub fn insert(&self, place: Place) -> bool {
        let Some(bucket) = self.bucket(place.bucket) else { return false };
        let bucket = bucket.get_or_init(|| self.filled(vec![0; BUCKET_WORDS]));
        !bucket.insert_hash(place.hash)
    }

    /// Puts the ids of a stored bucket in; what is no bucket's bytes is left out.
    pub fn merge(&self, at: u32, bytes: &[u8]) {
        let Some(bucket) = self.bucket(at).filter(|_| bytes.len() == BUCKET_BYTES) else { return };
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
        let stored = self.filled(words.collect());
        match bucket.get() {
            Some(own) => own.union(&stored),
            None => {
                // Another thread may have been first.
                if let Err(stored) = bucket.set(stored)
                    && let Some(own) = bucket.get()
                {
                    own.union(&stored);
                }
            }
        }
    }

    /// A bucket as it is stored; `None`: nothing is in.
    #[must_use]
    pub fn bytes(&self, at: u32) -> Option<Vec<u8>> {
        let bucket = self.bucket(at)?.get()?;
        Some(bucket.iter().flat_map(u64::to_le_bytes).collect())
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        let used = self.buckets.iter().filter(|bucket| bucket.get().is_some()).count();
        used * BUCKET_BYTES + self.buckets.len() * size_of::<OnceLock<Bucket>>()
    }

    fn filled(&self, words: Vec<u64>) -> Bucket {
        AtomicBloomFilter::from_vec(words).hasher(Unhashed::default()).hashes(self.hashes)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("buckets", &self.buckets.len()).field("memory", &self.memory()).finish()
    }
}

#[cfg(test)]
mod tests;
