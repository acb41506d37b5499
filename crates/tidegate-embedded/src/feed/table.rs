//! A sharded map from a name to the copy of it.
//!
//! Reads share their shard's lock. Eviction is CLOCK (Corbató, "A Paging Experiment with the Multics System", 1968): a hand
//! goes round; what was used since it last came by is spared once. What changed within the last minute leaves a floor, so that
//! nothing that was read before the change is filled in; the same hand frees floors that are older.

use std::hash::{BuildHasher, Hash};
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use foldhash::fast::RandomState;
use tidegate_core::Map;
use tidegate_core::feed::Version;
use tidegate_core::feed::copy::Copy;
use tokio::time::Instant;

/// Shards of a table: enough that a change seldom meets a reader.
pub(super) const SHARDS: usize = 64;
/// How long a floor is kept: what is filled in was read less than a minute before.
pub(super) const FLOOR: Duration = Duration::from_secs(61);
/// Slots that the hand passes with each change: more than a change can add.
const SWEPT: usize = 4;
/// Slots that the hand passes under one lock when room must be made.
const EVICT_STEPS: usize = 32;

/// What is kept.
pub(super) trait Weigh {
    /// About how many bytes it holds outside itself.
    fn bytes(&self) -> usize;
}

#[derive(Debug)]
pub(super) struct Table<K, V> {
    hasher: RandomState,
    shards: Box<[RwLock<Shard<K, V>>]>,
}

#[derive(Debug)]
struct Shard<K, V> {
    places: Map<K, usize>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    hand: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    name: K,
    /// `None` only while it changes.
    copy: Option<Copy<V>>,
    bytes: usize,
    used: AtomicBool,
    /// When it was told something last.
    told: Instant,
}

impl<K, V: Weigh> Slot<K, V> {
    fn weigh(&self) -> usize {
        let copy = self.copy.as_ref().and_then(Copy::known).map_or(0, |(_, value)| value.bytes());
        // The slot, and the name's row in the index, with what both leave free.
        2 * size_of::<Option<Self>>() + 2 * size_of::<(K, usize)>() + 64 + copy
    }
}

/// Adds the difference that a slot's change makes.
fn account(total: &AtomicUsize, before: usize, after: usize) {
    if after >= before {
        total.fetch_add(after - before, Ordering::Relaxed);
    } else {
        total.fetch_sub(before - after, Ordering::Relaxed);
    }
}

impl<K: Clone + Eq + Hash, V: Weigh> Shard<K, V> {
    fn find(&self, name: &K) -> Option<&Slot<K, V>> {
        self.slots[*self.places.get(name)?].as_ref()
    }

    /// Changes a copy, or makes one.
    fn change(&mut self, name: &K, total: &AtomicUsize, change: impl FnOnce(Option<Copy<V>>) -> Copy<V>) {
        let (at, now) = (self.place(name), Instant::now());
        let Some(slot) = &mut self.slots[at] else { return };
        let before = slot.copy.as_ref().map_or(0, |_| slot.bytes);
        slot.copy = Some(change(slot.copy.take()));
        slot.told = now;
        slot.bytes = slot.weigh();
        account(total, before, slot.bytes);
        self.sweep(SWEPT, total, now, usize::MAX);
    }

    fn place(&mut self, name: &K) -> usize {
        if let Some(at) = self.places.get(name) {
            return *at;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let used = AtomicBool::new(false);
        self.slots[at] = Some(Slot { name: name.clone(), copy: None, bytes: 0, used, told: Instant::now() });
        self.places.insert(name.clone(), at);
        at
    }

    /// Passes `steps` slots: frees old floors and, while there is more than `most`, what is known and was not used since the last
    /// time.
    fn sweep(&mut self, steps: usize, total: &AtomicUsize, now: Instant, most: usize) {
        for _ in 0..steps.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(slot) = &mut self.slots[self.hand] else { continue };
            let evict = total.load(Ordering::Relaxed) > most;
            let is_old = now.duration_since(slot.told) >= FLOOR;
            match &slot.copy {
                Some(Copy::Known(..)) if !evict || slot.used.swap(false, Ordering::Relaxed) => {}
                Some(Copy::Known(version, _)) if !is_old => {
                    let before = slot.bytes;
                    slot.copy = Some(Copy::Floor(*version));
                    slot.bytes = slot.weigh();
                    account(total, before, slot.bytes);
                }
                Some(Copy::Floor(_)) if !is_old => {}
                Some(_) | None => self.free(self.hand, total),
            }
        }
    }

    fn free(&mut self, at: usize, total: &AtomicUsize) {
        if let Some(slot) = self.slots[at].take() {
            account(total, slot.bytes, 0);
            self.places.remove(&slot.name);
            self.free.push(at);
        }
    }
}

impl<K: Clone + Eq + Hash, V: Weigh> Table<K, V> {
    pub(super) fn new() -> Self {
        let shard = || Shard { places: Map::default(), slots: Vec::new(), free: Vec::new(), hand: 0 };
        let shards = (0..SHARDS).map(|_| RwLock::new(shard())).collect();
        Self { hasher: RandomState::default(), shards }
    }

    fn reading(&self, shard: usize) -> RwLockReadGuard<'_, Shard<K, V>> {
        // Each step leaves a shard whole.
        self.shards[shard].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self, shard: usize) -> RwLockWriteGuard<'_, Shard<K, V>> {
        self.shards[shard].write().unwrap_or_else(PoisonError::into_inner)
    }

    fn shard_of(&self, name: &K) -> usize {
        (self.hasher.hash_one(name) % SHARDS as u64) as usize
    }

    /// What is seen of a copy that is known.
    pub(super) fn look<T>(&self, name: &K, look: impl FnOnce(Version, &V) -> T) -> Option<T> {
        let shard = self.reading(self.shard_of(name));
        let slot = shard.find(name)?;
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        let (version, value) = slot.copy.as_ref()?.known()?;
        Some(look(version, value))
    }

    pub(super) fn change(&self, name: &K, total: &AtomicUsize, change: impl FnOnce(Option<Copy<V>>) -> Copy<V>) {
        self.writing(self.shard_of(name)).change(name, total, change);
    }

    /// Takes a value, unless something newer was told; whether it did.
    pub(super) fn fill(&self, name: &K, total: &AtomicUsize, version: Version, value: impl FnOnce() -> V) -> bool {
        let mut shard = self.writing(self.shard_of(name));
        let may = Copy::may_fill(shard.find(name).and_then(|slot| slot.copy.as_ref()), version);
        if may {
            shard.change(name, total, |_| Copy::Known(version, value()));
        }
        may
    }

    /// Forgets what was not used lately, as far as a few steps go, while there is more than `most`.
    pub(super) fn evict(&self, shard: usize, total: &AtomicUsize, most: usize) {
        self.writing(shard).sweep(EVICT_STEPS, total, Instant::now(), most);
    }

    /// Forgets all that is known.
    pub(super) fn forget(&self, shard: usize, total: &AtomicUsize) {
        let mut shard = self.writing(shard);
        let all = shard.slots.len();
        // The first round only notes that nothing was used.
        for _ in 0..2 {
            shard.sweep(all, total, Instant::now(), 0);
        }
    }

    pub(super) fn len(&self) -> usize {
        (0..SHARDS).map(|shard| self.reading(shard).places.len()).sum()
    }
}
