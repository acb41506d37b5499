//! A sharded map from (namespace, key) to something that lives for a while, bounded by bytes.
//!
//! Reads share their shard's lock. Eviction is CLOCK (Corbató, "A Paging Experiment with the Multics System", 1968): a hand
//! goes round; what was used since it last came by is spared once. The same hand frees what is dead, a few slots with
//! every change.

use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use foldhash::fast::RandomState;
use tidegate_core::{Map, Millis};

use super::Time;

/// Shards of a table: enough that a change seldom meets a reader. A power of two.
pub(super) const SHARDS: usize = 64;
/// Slots that the hand passes with each change: more than a change can add, so that the dead never outrun it.
const SWEPT: usize = 4;
/// Slots that the hand passes under one lock when room must be made.
const EVICT_STEPS: usize = 32;

/// What a table keeps.
pub(super) trait Lives: Default {
    /// Frees what is dead of it; whether any of it is alive.
    fn sweep(&mut self, now: Millis) -> bool;

    /// Bytes it holds outside itself.
    fn bytes(&self) -> usize;
}

/// The map.
pub(super) struct Table<V> {
    hasher: RandomState,
    shards: Box<[RwLock<Shard<V>>]>,
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Whose turn it is to make room.
    turn: AtomicUsize,
    evictions: AtomicU64,
}

struct Shard<V> {
    ids: Map<Arc<str>, Map<Bytes, usize>>,
    slots: Vec<Option<Slot<V>>>,
    free: Vec<usize>,
    hand: usize,
}

struct Slot<V> {
    namespace: Arc<str>,
    key: Bytes,
    value: V,
    weight: usize,
    used: AtomicBool,
}

impl<V: Lives> Slot<V> {
    fn weigh(&self) -> usize {
        // The slot, and the key's row in the index with what hash maps leave free.
        size_of::<Option<Self>>() + 2 * size_of::<(Bytes, usize)>() + self.key.len() + self.value.bytes()
    }
}

impl<V> Default for Shard<V> {
    fn default() -> Self {
        Self { ids: Map::default(), slots: Vec::new(), free: Vec::new(), hand: 0 }
    }
}

impl<V: Lives> Shard<V> {
    fn find(&self, namespace: &str, key: &[u8]) -> Option<&Slot<V>> {
        let at = *self.ids.get(namespace)?.get(key)?;
        self.slots[at].as_ref()
    }

    /// The slot of a key, made if there is none.
    fn slot(&mut self, namespace: &Arc<str>, key: &Bytes) -> usize {
        if let Some(at) = self.ids.get(&**namespace).and_then(|keys| keys.get(&**key)) {
            return *at;
        }
        let slot = Slot {
            namespace: namespace.clone(),
            key: key.clone(),
            value: V::default(),
            weight: 0,
            used: AtomicBool::new(false),
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(slot);
        self.ids.entry(namespace.clone()).or_default().insert(key.clone(), at);
        at
    }

    /// Frees a slot; the bytes that it weighed.
    fn remove(&mut self, at: usize) -> usize {
        let Some(slot) = self.slots[at].take() else { return 0 };
        self.free.push(at);
        if let Entry::Occupied(mut keys) = self.ids.entry(slot.namespace) {
            keys.get_mut().remove(&slot.key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
        slot.weight
    }

    /// Frees what is dead in a slot; the change in bytes.
    fn settle(&mut self, at: usize, now: Millis) -> isize {
        let Some(slot) = &mut self.slots[at] else { return 0 };
        if !slot.value.sweep(now) {
            return -(self.remove(at) as isize);
        }
        let before = std::mem::replace(&mut slot.weight, 0);
        slot.weight = slot.weigh();
        slot.weight as isize - before as isize
    }

    /// Moves the hand by up to `steps`, freeing the dead; with `evict`, also what was not used since it last came by.
    /// The change in bytes, and how many were evicted.
    fn turn_hand(&mut self, steps: usize, now: Millis, evict: bool) -> (isize, u64) {
        let (mut bytes, mut evicted) = (0, 0);
        for _ in 0..steps.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            bytes += self.settle(self.hand, now);
            let unused = |slot: &mut Slot<V>| !std::mem::take(slot.used.get_mut());
            if evict && self.slots[self.hand].as_mut().is_some_and(unused) {
                bytes -= self.remove(self.hand) as isize;
                evicted += 1;
            }
        }
        (bytes, evicted)
    }
}

impl<V: Lives> Table<V> {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            hasher: RandomState::default(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            bytes: AtomicUsize::new(0),
            max_bytes,
            turn: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    fn shard(&self, namespace: &str, key: &[u8]) -> &RwLock<Shard<V>> {
        // The high bits pick the shard, so that the low ones stay evenly spread inside its maps.
        let hash = self.hasher.hash_one((namespace, key));
        &self.shards[(hash >> 58) as usize % SHARDS]
    }

    /// What `look` sees in what is kept under a key.
    pub(super) fn read<R>(&self, namespace: &str, key: &[u8], look: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        let shard = read(self.shard(namespace, key));
        let slot = shard.find(namespace, key)?;
        // Written only when it changes something: readers of a hot key share its cache line.
        if !slot.used.load(Ordering::Relaxed) {
            slot.used.store(true, Ordering::Relaxed);
        }
        look(&slot.value)
    }

    /// Changes what is kept under a key, alone with it; what was not there is `V::default()`. Then makes room.
    pub(super) fn change<R>(
        &self,
        namespace: &Arc<str>,
        key: &Bytes,
        time: &Time,
        f: impl FnOnce(&mut V, Millis) -> R,
    ) -> R {
        let mut shard = write(self.shard(namespace, key));
        // Read under the lock, so that a cell never sees it go back.
        let now = time.now();
        let at = shard.slot(namespace, key);
        let slot = shard.slots[at].as_mut().expect("`slot` gave a slot that is taken");
        *slot.used.get_mut() = true;
        let answer = f(&mut slot.value, now);
        let mut bytes = shard.settle(at, now);
        bytes += shard.turn_hand(SWEPT, now, false).0;
        self.count(bytes);
        drop(shard);
        self.make_room(now);
        answer
    }

    /// Changes everything of a namespace in one shard.
    pub(super) fn change_all(&self, shard: usize, namespace: &str, time: &Time, mut f: impl FnMut(&mut V, Millis)) {
        let mut shard = write(&self.shards[shard]);
        let now = time.now();
        let all: Vec<usize> = shard.ids.get(namespace).into_iter().flat_map(Map::values).copied().collect();
        let mut bytes = 0;
        for at in all {
            if let Some(slot) = &mut shard.slots[at] {
                f(&mut slot.value, now);
            }
            bytes += shard.settle(at, now);
        }
        self.count(bytes);
    }

    fn count(&self, bytes: isize) {
        if bytes >= 0 {
            self.bytes.fetch_add(bytes.unsigned_abs(), Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(bytes.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Evicts, shard after shard, until the bytes are within their bound. One lock at a time.
    fn make_room(&self, now: Millis) {
        while self.bytes() > self.max_bytes {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let mut shard = write(&self.shards[turn % SHARDS]);
            let (bytes, evicted) = shard.turn_hand(EVICT_STEPS, now, true);
            self.count(bytes);
            self.evictions.fetch_add(evicted, Ordering::Relaxed);
        }
    }
}

fn read<V>(shard: &RwLock<Shard<V>>) -> RwLockReadGuard<'_, Shard<V>> {
    shard.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<V>(shard: &RwLock<Shard<V>>) -> RwLockWriteGuard<'_, Shard<V>> {
    shard.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl<V: Lives> Table<V> {
    /// Keys and slots of each shard.
    pub(super) fn shards_for_tests(&self) -> Vec<(usize, usize)> {
        let sizes = |shard: &RwLock<Shard<V>>| {
            let shard = read(shard);
            (shard.ids.values().map(Map::len).sum(), shard.slots.iter().flatten().count())
        };
        self.shards.iter().map(sizes).collect()
    }

    /// What everything weighs, counted anew.
    pub(super) fn weighed_for_tests(&self) -> usize {
        self.shards.iter().map(|shard| read(shard).slots.iter().flatten().map(|slot| slot.weigh()).sum::<usize>()).sum()
    }
}
