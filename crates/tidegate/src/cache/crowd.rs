//! A crowd on one key: while one reader asks the store for it, the others do not ask too but wait for a flight that does.
//!
//! A copy in process answers most readers, and without one each asks the store by itself: nobody waits for another, and an
//! uncontended read needs no task. But a thousand that come at once, as when a key expires, would ask a thousand times
//! before the first load has begun, and be late for it.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tidegate_core::cache::Key;

use super::chain;
use super::flight::{Landed, Landing, Outcome};
use super::load::{Leader, Look, Want};
use super::local::Kept;
use super::read::{How, Read, Source};
use super::space::Inner;

/// Keys are told apart by their hashes, modulo this: that two share one costs a task.
const SLOTS: usize = 1_024;

/// For which keys the store is being asked.
pub(super) struct Askers {
    slots: Box<[AtomicBool]>,
    hasher: foldhash::fast::RandomState,
}

/// Somebody asks the store for a key, until this is dropped.
pub(super) struct Asking<'a>(&'a AtomicBool);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Default for Askers {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicBool::new(false)).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Askers {
    /// `None`: somebody is asking already, or somebody who came for another key of the same hash.
    fn enter(&self, key: &[u8]) -> Option<Asking<'_>> {
        let slot = &self.slots[self.hasher.hash_one(key) as usize % SLOTS];
        (!slot.swap(true, Ordering::Relaxed)).then_some(Asking(slot))
    }
}

/// How a reader goes on.
pub(super) enum Way<'a, V> {
    /// By itself; nobody else of the crowd does, while this is held.
    Alone(Option<Asking<'a>>),
    /// By a flight that asks the store for all.
    Together(Landing<V>),
}

impl How {
    /// Whether it may learn from another's question what the store has: not if it must know what was there after it came,
    /// or loads nothing.
    fn follows(self) -> bool {
        self.load && !self.strong && !self.forced
    }
}

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Whether a reader asks the store by itself. Without copies in process everybody does: there the store is the level
    /// that serves, and is asked in one pipeline.
    pub(super) fn way(self: &Arc<Self>, key: &K, bytes: &Bytes, how: How) -> Way<'_, V> {
        if !how.follows() || self.local.is_none() {
            return Way::Alone(None);
        }
        if let Some(landing) = self.flights.loading(bytes) {
            return Way::Together(landing);
        }
        match self.askers.enter(bytes) {
            Some(asking) => Way::Alone(Some(asking)),
            None => Way::Together(self.start(key, bytes, Want::Look, None, chain::current())),
        }
    }

    /// Counts an answer that a flight gave without its readers having asked the store.
    pub(super) fn count_shared(&self, answer: Option<&Read<V>>) {
        if answer.is_some_and(|read| read.source == Source::Store) {
            self.metrics.counts.store_hits.one();
        } else {
            self.metrics.counts.misses.one();
        }
    }
}

impl<K, V> Leader<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Asks the store for all that wait, and loads if it has nothing to serve.
    pub(super) async fn look_for_all(&self) -> Landed<V> {
        match self.look().await {
            Look::Landed(landed) => landed,
            // Each has its own way out: an older copy, a remembered failure, a load within the budget; or a refusal.
            Look::Down => Landed::again(),
            Look::Hint(hint) if self.inner.refuses(&self.bytes, &hint).await => Landed::again(),
            Look::Hint(hint) => {
                // Now, not when it has landed: what is loaded already needs no warming.
                self.inner.hot.missed(&self.bytes);
                self.load(hint, None).await
            }
        }
    }
}

impl<V> Landed<V> {
    /// What the store had.
    pub(super) fn stored(&self) -> Option<Kept<V>> {
        match &self.result {
            Outcome::Found(kept, true) => Some(kept.clone()),
            _ => None,
        }
    }
}
