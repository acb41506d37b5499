//! The in-process level: copies of entries, bounded by weight.
//!
//! A copy may be kept only if nothing was heard of its key since before it was read: whoever wants to keep one takes the
//! key's [`Local::generation`] first, and every invalidation moves it. Both happen under the lock of the key's stripe, so
//! no order of the two leaves an old copy behind. Hits take no such lock.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use tidegate_core::cache::{EntryId, RowVersion};

use super::tags::Tagged;

/// What a copy weighs beside its key and payload: the map's and the copy's own bytes.
const OVERHEAD: u64 = 224;
const STRIPES: usize = 512;

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
    #[inline]
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), tags: self.tags.clone(), ..*self }
    }
}

#[derive(PartialEq, Eq)]
struct LocalKey(Bytes);

impl Hash for LocalKey {
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write(&self.0);
    }
}

/// A key to be looked up without a copy of it.
struct Borrowed<'a>(&'a [u8]);

impl Hash for Borrowed<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, to: &mut H) {
        to.write(self.0);
    }
}

impl Equivalent<LocalKey> for Borrowed<'_> {
    #[inline]
    fn equivalent(&self, key: &LocalKey) -> bool {
        self.0 == &key.0[..]
    }
}

#[derive(Clone)]
struct Weigh;

impl<V> Weighter<LocalKey, Kept<V>> for Weigh {
    fn weight(&self, key: &LocalKey, kept: &Kept<V>) -> u64 {
        OVERHEAD + key.0.len() as u64 + u64::from(kept.weight)
    }
}

type Copies<V> = Cache<LocalKey, Kept<V>, Weigh, foldhash::fast::RandomState, DefaultLifecycle<LocalKey, Kept<V>>>;

pub(super) struct Local<V> {
    copies: Copies<V>,
    generations: Box<[Mutex<u64>]>,
    hasher: foldhash::fast::RandomState,
    /// Longest life of a copy, milliseconds.
    life_ms: i64,
}

impl<V> Local<V> {
    pub(super) fn new(bytes: usize, life_ms: i64) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / 1_024).max(64))
            .weight_capacity(bytes as u64)
            .build()
            .expect("both capacities are set");
        let copies = Cache::with_options(options, Weigh, hasher.clone(), DefaultLifecycle::default());
        let generations = (0..STRIPES).map(|_| Mutex::new(0)).collect();
        Self { copies, generations, hasher, life_ms }
    }

    fn stripe(&self, key: &[u8]) -> MutexGuard<'_, u64> {
        let at = self.hasher.hash_one(Borrowed(key)) as usize % STRIPES;
        self.generations[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn get(&self, key: &[u8]) -> Option<Kept<V>> {
        self.copies.get(&Borrowed(key))
    }

    /// To be taken before the store is asked, for [`Local::keep`].
    pub(super) fn generation(&self, key: &[u8]) -> u64 {
        *self.stripe(key)
    }

    /// Keeps a copy, unless something was heard since `generation`, or what is kept is newer.
    pub(super) fn keep(&self, key: &Bytes, mut kept: Kept<V>, generation: u64) {
        let stripe = self.stripe(key);
        if *stripe != generation {
            return;
        }
        if let Some(present) = self.copies.peek(&Borrowed(key)) {
            let newer = match (present.version, kept.version) {
                (Some(present), Some(kept)) if present != kept => present > kept,
                _ => present.as_of > kept.as_of,
            };
            if newer && present.id != kept.id {
                return;
            }
        }
        kept.until = kept.until.min(kept.as_of.saturating_add(self.life_ms));
        kept.quiet = kept.quiet.min(kept.until);
        // A key that borrows from a larger buffer would keep all of it.
        self.copies.insert(LocalKey(Bytes::copy_from_slice(key)), kept);
    }

    /// The key was invalidated: no copy of it is left, and none that is on its way will be kept.
    pub(super) fn forget(&self, key: &[u8]) {
        let mut stripe = self.stripe(key);
        *stripe += 1;
        self.copies.remove(&Borrowed(key));
    }

    /// The key may have been invalidated: its copy is only a fallback from now on.
    pub(super) fn doubt(&self, key: &[u8], now: i64) {
        let mut stripe = self.stripe(key);
        *stripe += 1;
        if let Some(present) = self.copies.peek(&Borrowed(key)) {
            let doubted = Kept { quiet: i64::MIN, until: i64::MIN, soft: present.soft.min(now), ..present };
            // Not there any more: evicted in between.
            let _ = self.copies.replace(LocalKey(Bytes::copy_from_slice(key)), doubted, true);
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

    fn value(local: &Local<u32>) -> Option<u32> {
        local.get(b"key").and_then(|kept| kept.value).map(|value| *value)
    }

    #[test]
    fn a_copy_on_its_way_is_dropped_by_an_invalidation() {
        let (local, key) = (Local::new(1 << 20, 60_000), Bytes::from_static(b"key"));
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
        let (local, key) = (Local::new(1 << 20, 60_000), Bytes::from_static(b"key"));
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
    fn a_doubted_copy_is_only_a_fallback_and_life_is_bounded() {
        let (local, key) = (Local::new(1 << 20, 3_000), Bytes::from_static(b"key"));
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
    fn weight_is_bounded_and_what_is_too_heavy_is_not_kept() {
        let local: Local<u32> = Local::new(1 << 20, 60_000);
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
}
