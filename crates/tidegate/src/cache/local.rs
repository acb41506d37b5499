//! The in-process level: copies of entries, bounded by weight.
//!
//! A copy may be kept only if nothing was heard of its key since before it was read: whoever wants to keep one takes the
//! key's [`Local::generation`] first, and every invalidation moves it. Both happen under the lock of the key's stripe, so
//! no order of the two leaves an old copy behind. Hits take no such lock.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Lifecycle, OptionsBuilder, Weighter};
use tidegate_core::cache::{EntryId, KeyWriter, RowVersion};

use super::hot::Hottest;
use super::tags::Tagged;

/// What a copy weighs beside its key and payload: the map's and the copy's own bytes.
const OVERHEAD: u64 = 288;
const STRIPES: usize = 512;
/// A shard of the map is at least so large, since no copy can be larger than its shard.
const SHARD_BYTES: usize = 4 << 20;
const MAX_SHARDS: usize = 64;
/// The part of the bytes that copies of the hottest keys may keep to themselves.
const PINNED_PART: u64 = 4;
/// A copy that is more than this part of a shard is not pinned: some of them could fill it.
const PINNED_PART_OF_SHARD: u64 = 16;

/// A value or an absence as a process holds it. Instants are of the process' own clock ([`super::ticks`]).
pub(super) struct Kept<V> {
    pub(super) value: Option<Arc<V>>,
    /// No invalidation acknowledged before this instant is missing in it.
    pub(super) as_of: i64,
    /// When its load began.
    pub(super) born: i64,
    pub(super) soft: i64,
    pub(super) hard: i64,
    /// Not served as fresh from this level from here on.
    pub(super) until: i64,
    /// Before this instant there is nothing to think about: it is fresh, and not yet to be refreshed.
    pub(super) quiet: i64,
    pub(super) id: EntryId,
    pub(super) version: Option<RowVersion>,
    /// What its load took, milliseconds.
    pub(super) cost_ms: f32,
    pub(super) weight: u32,
    pub(super) tags: Option<Arc<[Tagged]>>,
}

impl<V> Clone for Kept<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), tags: self.tags.clone(), ..*self }
    }
}

/// What the map holds and gives clones of. A clone has what a plain hit needs, and that is little: the rest stays behind.
pub(super) struct Held<V> {
    pub(super) value: Option<Arc<V>>,
    pub(super) born: i64,
    /// As in [`Kept`]; always past if there are tags to be looked at.
    pub(super) quiet: i64,
    rest: Option<Box<Kept<V>>>,
}

impl<V> Clone for Held<V> {
    #[inline]
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), born: self.born, quiet: self.quiet, rest: None }
    }
}

impl<V> Held<V> {
    fn of(kept: Kept<V>) -> Self {
        let quiet = if kept.tags.is_some() { i64::MIN } else { kept.quiet };
        Self { value: kept.value.clone(), born: kept.born, quiet, rest: Some(Box::new(kept)) }
    }
}

/// Longest key that lies in the map itself.
const SHORT_KEY: usize = 30;

#[derive(PartialEq, Eq)]
enum LocalKey {
    /// Its length and its bytes, zeros behind.
    Short(u8, [u8; SHORT_KEY]),
    Long(Box<[u8]>),
}

impl LocalKey {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Hash for LocalKey {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write(self.bytes());
    }
}

/// A key to be looked up.
#[derive(Clone, Copy)]
pub(super) struct Query<'a> {
    bytes: &'a [u8],
    /// With zeros behind, if it is short.
    padded: Option<&'a [u8; SHORT_KEY]>,
}

impl<'a> Query<'a> {
    #[inline]
    pub(super) fn written(key: &'a KeyWriter) -> Self {
        Self { bytes: key.as_bytes(), padded: key.padded() }
    }

    fn of(bytes: &'a [u8], padded: &'a mut [u8; SHORT_KEY]) -> Self {
        let is_short = bytes.len() <= SHORT_KEY;
        if is_short {
            padded[..bytes.len()].copy_from_slice(bytes);
        }
        Self { bytes, padded: is_short.then_some(padded) }
    }
}

impl Hash for Query<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write(self.bytes);
    }
}

impl Equivalent<LocalKey> for Query<'_> {
    #[inline]
    fn equivalent(&self, key: &LocalKey) -> bool {
        match (key, self.padded) {
            (LocalKey::Short(length, held), Some(padded)) => usize::from(*length) == self.bytes.len() && held == padded,
            (LocalKey::Long(held), None) => **held == *self.bytes,
            _ => false,
        }
    }
}

#[derive(Clone)]
struct Weigh;

impl<V> Weighter<LocalKey, Held<V>> for Weigh {
    fn weight(&self, key: &LocalKey, held: &Held<V>) -> u64 {
        OVERHEAD + key.bytes().len() as u64 + held.rest.as_ref().map_or(0, |kept| u64::from(kept.weight))
    }
}

/// Keeps the copies of the hottest keys from being evicted; what is invalidated or replaced goes like any other.
///
/// The map's own rule is that what is pinned is admitted however heavy it is, and that a shard full of it takes more than it
/// should: so what is heavy is not, and what is pinned is bounded.
#[derive(Clone)]
struct Pins {
    hottest: Arc<Hottest>,
    hasher: foldhash::fast::RandomState,
    heaviest: u64,
}

impl<V> Lifecycle<LocalKey, Held<V>> for Pins {
    /// What one call evicts is dropped after it, without the lock of its shard.
    type RequestState = [Option<(LocalKey, Held<V>)>; 2];

    fn is_pinned(&self, key: &LocalKey, held: &Held<V>) -> bool {
        Weigh.weight(key, held) <= self.heaviest && self.hottest.is_pinned(self.hasher.hash_one(key))
    }

    fn on_evict(&self, state: &mut Self::RequestState, key: LocalKey, held: Held<V>) {
        if let Some(free) = state.iter_mut().find(|place| place.is_none()) {
            *free = Some((key, held));
        }
    }
}

type Copies<V> = Cache<LocalKey, Held<V>, Weigh, foldhash::fast::RandomState, Pins>;

pub(super) struct Local<V> {
    copies: Copies<V>,
    generations: Box<[Mutex<u64>]>,
    hasher: foldhash::fast::RandomState,
    /// Longest life of a copy, milliseconds.
    life_ms: i64,
    bytes: u64,
    heaviest_pinned: u64,
}

impl<V> Local<V> {
    /// `hasher`: by which `hottest` knows keys.
    pub(super) fn new(
        bytes: usize,
        life_ms: i64,
        (hasher, hottest): (foldhash::fast::RandomState, Arc<Hottest>),
    ) -> Self {
        let shards = (bytes / SHARD_BYTES).clamp(1, MAX_SHARDS);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / 1_024).max(64))
            .weight_capacity(bytes as u64)
            .shards(shards)
            .build()
            .expect("both capacities are set");
        let heaviest = (bytes / shards) as u64 / PINNED_PART_OF_SHARD;
        let pins = Pins { hottest, hasher: hasher.clone(), heaviest };
        let copies = Cache::with_options(options, Weigh, hasher.clone(), pins);
        let generations = (0..STRIPES).map(|_| Mutex::new(0)).collect();
        Self { copies, generations, hasher, life_ms, bytes: bytes as u64, heaviest_pinned: heaviest }
    }

    /// Bytes that pinned copies may have together.
    pub(super) fn most_pinned(&self) -> u64 {
        self.bytes / PINNED_PART
    }

    /// Whether a copy of this weight may be one of them.
    pub(super) fn may_be_pinned(&self, weight: u64) -> bool {
        weight <= self.heaviest_pinned
    }

    /// What a copy weighs in the map.
    pub(super) fn weight_of(&self, key: &[u8], kept: &Kept<V>) -> u64 {
        OVERHEAD + key.len() as u64 + u64::from(kept.weight)
    }

    fn stripe(&self, key: &[u8]) -> MutexGuard<'_, u64> {
        let at = self.hasher.hash_one(key) as usize % STRIPES;
        self.generations[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a plain hit needs.
    #[inline]
    pub(super) fn hit(&self, key: &Query<'_>) -> Option<Held<V>> {
        self.copies.get(key)
    }

    /// All of a copy.
    pub(super) fn get(&self, key: &[u8]) -> Option<Kept<V>> {
        let mut kept = None;
        // The map shows what it holds, and not a clone of it, only here; nothing is removed.
        self.copies.remove_if(&Query::of(key, &mut [0; SHORT_KEY]), |held| {
            kept = held.rest.as_deref().cloned();
            false
        });
        kept
    }

    fn key(bytes: &[u8]) -> LocalKey {
        match Query::of(bytes, &mut [0; SHORT_KEY]).padded {
            Some(padded) => LocalKey::Short(bytes.len() as u8, *padded),
            None => LocalKey::Long(bytes.into()),
        }
    }

    /// To be taken before the store is asked, for [`Local::keep`].
    pub(super) fn generation(&self, key: &[u8]) -> u64 {
        *self.stripe(key)
    }

    /// The key has a new value: no other copy of it is left or will be kept that is on its way; and this one is kept, unless
    /// something was heard since `generation`, which is from before the value was written.
    pub(super) fn replace(&self, key: &[u8], kept: Kept<V>, generation: u64) {
        let mut stripe = self.stripe(key);
        let unheard = *stripe == generation;
        *stripe += 1;
        self.copies.remove(&Query::of(key, &mut [0; SHORT_KEY]));
        if unheard {
            self.insert(key, kept);
        }
    }

    fn insert(&self, key: &[u8], mut kept: Kept<V>) {
        kept.until = kept.until.min(kept.as_of.saturating_add(self.life_ms));
        kept.quiet = kept.quiet.min(kept.until);
        self.copies.insert(Self::key(key), Held::of(kept));
    }

    /// Keeps a copy, unless something was heard since `generation`, or what is kept is newer.
    pub(super) fn keep(&self, key: &[u8], kept: Kept<V>, generation: u64) {
        let stripe = self.stripe(key);
        if *stripe != generation {
            return;
        }
        if let Some(present) = self.get(key) {
            let newer = match (present.version, kept.version) {
                (Some(present), Some(kept)) if present != kept => present > kept,
                _ => present.as_of > kept.as_of,
            };
            if newer && present.id != kept.id {
                return;
            }
        }
        self.insert(key, kept);
    }

    /// The key was invalidated: no copy of it is left, and none that is on its way will be kept.
    pub(super) fn forget(&self, key: &[u8]) {
        let mut stripe = self.stripe(key);
        *stripe += 1;
        self.copies.remove(&Query::of(key, &mut [0; SHORT_KEY]));
    }

    /// The key may have been invalidated: its copy is only a fallback from now on.
    pub(super) fn doubt(&self, key: &[u8], now: i64) {
        let mut stripe = self.stripe(key);
        *stripe += 1;
        if let Some(present) = self.get(key) {
            let doubted = Kept { quiet: i64::MIN, until: i64::MIN, soft: present.soft.min(now), ..present };
            // Not there any more: evicted in between.
            let _ = self.copies.replace(Self::key(key), Held::of(doubted), true);
        }
    }

    /// Every key may have been invalidated.
    pub(super) fn forget_all(&self) {
        for stripe in &self.generations {
            *stripe.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        }
        self.copies.clear();
    }

    /// Copies and their weight.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.copies.len(), self.copies.weight())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn kept(value: u32, as_of: i64) -> Kept<u32> {
        Kept {
            value: Some(Arc::new(value)),
            as_of,
            born: as_of,
            soft: 10_000,
            hard: 20_000,
            until: 20_000,
            quiet: 10_000,
            id: EntryId([value as u8; 16]),
            version: RowVersion::new(u64::from(value)),
            cost_ms: 1.0,
            weight: 4,
            tags: None,
        }
    }

    fn pins() -> (foldhash::fast::RandomState, Arc<Hottest>) {
        Default::default()
    }

    fn local() -> Local<u32> {
        Local::new(1 << 20, 60_000, pins())
    }

    fn value(local: &Local<u32>) -> Option<u32> {
        local.get(b"key").and_then(|kept| kept.value).map(|value| *value)
    }

    #[test]
    fn a_copy_on_its_way_is_dropped_by_an_invalidation() {
        let (local, key) = (local(), Bytes::from_static(b"key"));
        let generation = local.generation(&key);
        local.forget(&key);
        local.keep(&key, kept(1, 0), generation);
        assert_eq!(value(&local), None);
        local.keep(&key, kept(1, 0), local.generation(&key));
        assert_eq!(value(&local), Some(1));
        let generation = local.generation(&key);
        local.forget_all();
        local.keep(&key, kept(1, 0), generation);
        assert_eq!(value(&local), None);
    }

    #[test]
    fn an_older_copy_never_replaces_a_newer_one() {
        let (local, key) = (local(), Bytes::from_static(b"key"));
        let generation = local.generation(&key);
        local.keep(&key, kept(2, 5), generation);
        local.keep(&key, kept(1, 9), generation);
        assert_eq!(value(&local), Some(2), "by version");
        local.keep(&key, Kept { version: None, ..kept(3, 4) }, generation);
        assert_eq!(value(&local), Some(2), "by time");
        local.keep(&key, kept(3, 9), generation);
        assert_eq!(value(&local), Some(3));
    }

    #[test]
    fn a_new_value_drops_what_is_on_its_way_and_gives_way_to_what_was_heard() {
        let local = local();
        let before = local.generation(b"key");
        local.replace(b"key", kept(2, 5), before);
        local.keep(b"key", Kept { version: None, ..kept(1, 9) }, before);
        assert_eq!(value(&local), Some(2), "read before the value was written, whatever its time says");
        let before = local.generation(b"key");
        local.forget(b"key");
        local.replace(b"key", kept(3, 9), before);
        assert_eq!(value(&local), None, "invalidated by another after it was written");
    }

    #[test]
    fn a_doubted_copy_is_only_a_fallback_and_life_is_bounded() {
        let (local, key) = (Local::new(1 << 20, 3_000, pins()), Bytes::from_static(b"key"));
        local.keep(&key, kept(1, 500), local.generation(&key));
        assert_eq!(local.get(&key).map(|kept| (kept.until, kept.quiet)), Some((3_500, 3_500)));
        local.doubt(&key, 700);
        let doubted = local.get(&key).expect("still there");
        assert_eq!((doubted.soft, doubted.hard), (700, 20_000));
        assert!(doubted.until < 0 && doubted.quiet < 0);
        local.doubt(b"another", 700);
        assert!(local.get(b"another").is_none());
    }

    #[test]
    fn short_and_long_keys_are_told_apart() {
        let local = local();
        let keys: Vec<Vec<u8>> = (0..40).map(|length| vec![0; length]).collect();
        for (n, key) in keys.iter().enumerate() {
            local.keep(key, kept(n as u32, 0), local.generation(key));
        }
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(local.get(key).and_then(|kept| kept.value).as_deref(), Some(&(n as u32)));
            let hit = local.hit(&Query::of(key, &mut [0; SHORT_KEY])).expect("kept");
            assert_eq!((hit.value.as_deref(), hit.quiet), (Some(&(n as u32)), 10_000));
        }
        assert!(local.get(&[0; 41]).is_none() && local.get(&[1; 3]).is_none());
    }

    #[test]
    fn weight_is_bounded_and_what_is_too_heavy_is_not_kept() {
        let local = local();
        for n in 0..10_000_u32 {
            let key = Bytes::copy_from_slice(&n.to_be_bytes());
            local.keep(&key, Kept { weight: 1_000, ..kept(n, 0) }, local.generation(&key));
        }
        let (copies, weight) = local.size();
        assert!(weight <= 1 << 20 && copies > 500, "{copies} {weight}");
        let key = Bytes::from_static(b"key");
        local.keep(&key, Kept { weight: 2 << 20, ..kept(1, 0) }, local.generation(&key));
        assert_eq!(value(&local), None);
    }

    fn pinned(keys: &[&[u8]]) -> Local<u32> {
        let (hasher, hottest) = pins();
        let hash = |key: &&[u8]| hasher.hash_one(Query::of(key, &mut [0; SHORT_KEY]));
        hottest.pin(keys.iter().map(hash).collect());
        Local::new(1 << 20, 60_000, (hasher, hottest))
    }

    /// Puts more cold copies in than there is room for.
    fn scan(local: &Local<u32>, from: u32) {
        for n in from..from + 20_000 {
            let key = n.to_be_bytes();
            local.keep(&key, Kept { weight: 500, ..kept(n, 0) }, local.generation(&key));
        }
    }

    #[test]
    fn a_scan_leaves_what_is_pinned() {
        for (keys, stays) in [(&[&b"key"[..]][..], true), (&[], false)] {
            let local = pinned(keys);
            scan(&local, 0);
            local.keep(b"key", kept(1, 0), local.generation(b"key"));
            scan(&local, 20_000);
            assert_eq!(value(&local).is_some(), stays);
            assert!(local.size().1 <= 1 << 20);
        }
    }

    #[test]
    fn what_is_pinned_is_invalidated_and_replaced_like_any_other() {
        let local = pinned(&[b"key"]);
        local.keep(b"key", kept(1, 0), local.generation(b"key"));
        local.keep(b"key", kept(2, 1), local.generation(b"key"));
        assert_eq!(value(&local), Some(2));
        local.forget(b"key");
        assert_eq!(value(&local), None);
        local.keep(b"key", kept(3, 2), local.generation(b"key"));
        local.forget_all();
        assert_eq!(value(&local), None);
    }

    #[test]
    fn what_is_heavy_is_not_pinned() {
        let local = pinned(&[b"key"]);
        scan(&local, 0);
        local.keep(b"key", Kept { weight: 80 << 10, ..kept(1, 0) }, local.generation(b"key"));
        scan(&local, 20_000);
        assert_eq!(value(&local), None);
        local.keep(b"key", Kept { weight: 2 << 20, ..kept(1, 0) }, local.generation(b"key"));
        assert_eq!(value(&local), None, "too heavy for the level");
    }
}
