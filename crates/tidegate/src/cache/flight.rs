//! Flights: at most one load a key and process, in a task of its own, whose result everybody shares who may take it.
//!
//! Only the flight itself takes itself out of the map, or an invalidation *detaches* it: then the next reader starts
//! another, while those that wait already still get the result, if it is new enough for them.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_core::Map;
use tokio::sync::{Notify, watch};

use super::errors::CacheError;
use super::local::Kept;

const SHARDS: usize = 64;

/// What a flight came to.
pub(super) struct Landed<V> {
    pub(super) result: Outcome<V>,
    /// Readers that asked before this (by [`super::hub::Hub::next`]) may take it: nothing that was acknowledged before
    /// they asked is missing in it.
    pub(super) as_of: u64,
    /// When its load began, by the same order; 0: no load was needed.
    pub(super) began: u64,
}

pub(super) enum Outcome<V> {
    /// A value or an absence; whether the store had it.
    Found(Kept<V>, bool),
    Failed(CacheError),
    /// Nothing came of it: look again.
    Again,
}

impl<V> Clone for Landed<V> {
    fn clone(&self) -> Self {
        let result = match &self.result {
            Outcome::Found(kept, stored) => Outcome::Found(kept.clone(), *stored),
            Outcome::Failed(error) => Outcome::Failed(error.clone()),
            Outcome::Again => Outcome::Again,
        };
        Self { result, as_of: self.as_of, began: self.began }
    }
}

impl<V> Landed<V> {
    /// An error is nobody's old value: everybody may take it.
    pub(super) fn failed(error: CacheError) -> Self {
        Self { result: Outcome::Failed(error), as_of: u64::MAX, began: 0 }
    }

    pub(super) fn again() -> Self {
        Self { result: Outcome::Again, as_of: 0, began: 0 }
    }
}

pub(super) type Landing<V> = watch::Receiver<Option<Landed<V>>>;

pub(super) struct Flight<V> {
    landed: watch::Sender<Option<Landed<V>>>,
    /// The lease that it waits for may be over.
    pub(super) woken: Notify,
    /// When its load began; 0: not yet.
    pub(super) began: AtomicU64,
    purpose: Purpose,
}

/// What a flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An answer for readers that have none.
    Load,
    /// A newer value than the one that is served meanwhile.
    Refresh,
    /// What a load gives that begins now, whatever is there.
    Force,
}

impl<V> Flight<V> {
    /// Whether it loads whatever is there, and has not begun.
    fn waits_to_load(&self) -> bool {
        self.purpose == Purpose::Force && self.began.load(Ordering::SeqCst) == 0
    }

    pub(super) fn landing(&self) -> Landing<V> {
        self.landed.subscribe()
    }
}

struct Shard<V>(Mutex<Map<Bytes, Arc<Flight<V>>>>);

impl<V> Shard<V> {
    fn lock(&self) -> MutexGuard<'_, Map<Bytes, Arc<Flight<V>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Flights<V> {
    shards: Box<[Shard<V>]>,
    hasher: foldhash::fast::RandomState,
}

/// A flight's own hold on itself. Dropped without landing (a task that was ended): those that wait look again.
pub(super) struct Ticket<V> {
    flights: Arc<Flights<V>>,
    key: Bytes,
    pub(super) flight: Arc<Flight<V>>,
}

impl<V> Flights<V> {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Shard(Mutex::new(Map::default()))).collect();
        Self { shards, hasher: foldhash::fast::RandomState::default() }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Map<Bytes, Arc<Flight<V>>>> {
        self.shards[self.hasher.hash_one(key) as usize % SHARDS].lock()
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.shard(key).contains_key(key)
    }

    /// The flight that looks for an answer to readers of a key, if there is one.
    pub(super) fn loading(&self, key: &[u8]) -> Option<Landing<V>> {
        self.shard(key).get(key).filter(|flight| flight.purpose == Purpose::Load).map(|flight| flight.landing())
    }

    /// The flight of a key, or a new one with its ticket. Forced: one whose load has not begun.
    pub(super) fn board(self: &Arc<Self>, key: &Bytes, purpose: Purpose) -> (Landing<V>, Option<Ticket<V>>) {
        let mut shard = self.shard(key);
        let joined = |flight: &&Arc<Flight<V>>| purpose != Purpose::Force || flight.waits_to_load();
        if let Some(flight) = shard.get(key).filter(joined) {
            return (flight.landing(), None);
        }
        let flight = Arc::new(Flight {
            landed: watch::Sender::new(None),
            woken: Notify::new(),
            began: AtomicU64::new(0),
            purpose,
        });
        shard.insert(key.clone(), Arc::clone(&flight));
        (flight.landing(), Some(Ticket { flights: Arc::clone(self), key: key.clone(), flight }))
    }

    /// What began before now is not joined any more.
    pub(super) fn detach(&self, key: &[u8]) {
        let flight = self.shard(key).remove(key);
        if let Some(flight) = flight {
            flight.woken.notify_one();
        }
    }

    pub(super) fn detach_all(&self) {
        for shard in &self.shards {
            let flights = std::mem::take(&mut *shard.lock());
            flights.values().for_each(|flight| flight.woken.notify_one());
        }
    }

    pub(super) fn wake(&self, key: &[u8]) {
        if let Some(flight) = self.shard(key).get(key) {
            flight.woken.notify_one();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl<V> Ticket<V> {
    fn leave(&self) {
        let mut shard = self.flights.shard(&self.key);
        if shard.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            shard.remove(&self.key);
        }
    }

    /// Shares the result. First nobody joins any more: who finds it too old must not find it again.
    pub(super) fn land(self, landed: Landed<V>) {
        self.leave();
        self.flight.landed.send_replace(Some(landed));
    }
}

impl<V> Drop for Ticket<V> {
    fn drop(&mut self) {
        self.leave();
        self.flight.landed.send_if_modified(|landed| {
            let lost = landed.is_none();
            if lost {
                *landed = Some(Landed::again());
            }
            lost
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_takes_a_flight_out() {
        let (flights, key) = (Arc::new(Flights::<u32>::new()), Bytes::from_static(b"key"));
        let (_, first) = flights.board(&key, Purpose::Load);
        let first = first.expect("nobody flies");
        assert!(flights.board(&key, Purpose::Load).1.is_none(), "joined");
        flights.detach(&key);
        let second = flights.board(&key, Purpose::Load).1.expect("the first is detached");
        first.land(Landed::again());
        assert!(flights.contains(&key), "the second flies on");
        drop(second);
        assert_eq!(flights.count(), 0);
    }

    #[test]
    fn a_lost_flight_tells_those_that_wait() {
        let (flights, key) = (Arc::new(Flights::<u32>::new()), Bytes::from_static(b"key"));
        let (landing, ticket) = flights.board(&key, Purpose::Load);
        drop(ticket);
        assert!(matches!(landing.borrow().as_ref().map(|landed| &landed.result), Some(Outcome::Again)));
    }

    #[test]
    fn a_forced_reader_joins_only_what_has_not_begun() {
        let (flights, key) = (Arc::new(Flights::<u32>::new()), Bytes::from_static(b"key"));
        let _plain = flights.board(&key, Purpose::Load).1.expect("nobody flies");
        assert!(flights.loading(&key).is_some());
        let forced = flights.board(&key, Purpose::Force).1.expect("a plain one is not joined");
        assert!(flights.board(&key, Purpose::Force).1.is_none());
        assert!(flights.loading(&key).is_none(), "it was started for others");
        forced.flight.began.store(5, Ordering::SeqCst);
        assert!(flights.board(&key, Purpose::Force).1.is_some());
    }
}
