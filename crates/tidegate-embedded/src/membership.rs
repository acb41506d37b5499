//! Membership filters in the memory of one process.
//!
//! One lock a store: a call holds it for the copy of some buckets at most. What no state names any more is freed when a new
//! generation is prepared and when the state is replaced. A filter takes at most two generations at once, each of at most
//! 49 MB at the default rate.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_backend::membership::{Agreed, Bits, Change, Held, MAX_BITS_A_CALL, MAX_BUCKETS_A_CALL, MembershipStore};
use tidegate_backend::{BoxFuture, Error, ErrorKind, Result};
use tidegate_core::Map;
use tidegate_core::cache::membership::{BUCKET_BYTES, State};

/// What a store in memory calls itself: it ends with its process.
const HOME: &[u8] = b"memory";

/// The filters of a store.
#[derive(Debug, Default)]
pub struct EmbeddedMembership {
    namespaces: Mutex<Map<Arc<str>, Filter>>,
}

#[derive(Debug, Default)]
struct Filter {
    state: Bytes,
    leader: Option<(u64, Instant)>,
    generations: Map<u64, Generation>,
}

#[derive(Debug, Default)]
struct Generation {
    added: u64,
    /// Empty: not there.
    buckets: Vec<Vec<u8>>,
}

impl Generation {
    fn bucket(&mut self, at: u32) -> Option<&mut Vec<u8>> {
        self.buckets.get_mut(at as usize).filter(|bucket| !bucket.is_empty())
    }
}

impl Filter {
    /// Frees what neither the state nor `and` names.
    fn tidy(&mut self, and: Option<u64>) {
        let state = State::read(&self.state).unwrap_or_default();
        let named: Vec<u64> = state.generations().map(|generation| generation.id).chain(and).collect();
        self.generations.retain(|id, _| named.contains(id));
    }
}

fn check(count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::new(ErrorKind::Command, format!("{count} at a time are more than the {most} of one call")));
    }
    Ok(())
}

impl EmbeddedMembership {
    fn lock(&self) -> MutexGuard<'_, Map<Arc<str>, Filter>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, namespace: &str, act: impl FnOnce(&mut Filter) -> T) -> T {
        let mut namespaces = self.lock();
        match namespaces.get_mut(namespace) {
            Some(filter) => act(filter),
            None => act(namespaces.entry(namespace.into()).or_default()),
        }
    }

    /// Does `act` if `state` is what is there.
    fn agreed(&self, namespace: &str, state: &[u8], act: impl FnOnce(&mut Filter) -> bool) -> Result<Agreed> {
        self.with(namespace, |filter| {
            let done = filter.state == state && act(filter);
            Ok(if done { Agreed::Done } else { Agreed::Changed(filter.state.clone()) })
        })
    }

    /// Loses everything, as a server that was emptied. For tests.
    pub fn flush(&self) {
        self.lock().clear();
    }

    /// Loses one bucket, as a server that is short of memory. For tests.
    pub fn evict(&self, namespace: &str, generation: u64, bucket: u32) {
        self.with(namespace, |filter| {
            if let Some(bucket) = filter.generations.get_mut(&generation).and_then(|held| held.bucket(bucket)) {
                bucket.clear();
            }
        });
    }

    /// Loses every third bucket of a namespace. For tests.
    pub fn evict_some(&self, namespace: &str) {
        self.with(namespace, |filter| {
            for held in filter.generations.values_mut() {
                held.buckets.iter_mut().step_by(3).for_each(Vec::clear);
            }
        });
    }

    fn look_now(&self, namespace: &str, generation: u64, buckets: &[u32]) -> Result<Held> {
        check(buckets.len(), MAX_BUCKETS_A_CALL)?;
        self.with(namespace, |filter| {
            let mut held = filter.generations.get_mut(&generation);
            let found = |at: &u32| held.as_mut()?.bucket(*at).map(|bucket| Bytes::copy_from_slice(bucket));
            let buckets = buckets.iter().map(found).collect();
            let added = held.map_or(0, |held| held.added);
            Ok(Held { state: filter.state.clone(), home: Bytes::from_static(HOME), added, buckets })
        })
    }

    fn add_now(&self, namespace: &str, state: &[u8], bits: &[Bits]) -> Result<Agreed> {
        check(bits.len(), MAX_BITS_A_CALL)?;
        self.agreed(namespace, state, |filter| {
            for group in bits {
                let Some(held) = filter.generations.get_mut(&group.generation) else { continue };
                let Some(bucket) = held.bucket(group.bucket) else { continue };
                let mut new = false;
                for offset in &group.offsets {
                    let (byte, bit) = (&mut bucket[(offset / 8) as usize], 0x80 >> (offset % 8));
                    new |= *byte & bit == 0;
                    *byte |= bit;
                }
                held.added += u64::from(new);
            }
            true
        })
    }

    fn prepare_now(&self, namespace: &str, generation: u64, buckets: std::ops::Range<u32>) -> Result<()> {
        check(buckets.len(), MAX_BUCKETS_A_CALL)?;
        self.with(namespace, |filter| {
            filter.tidy(Some(generation));
            let held = filter.generations.entry(generation).or_default();
            for at in buckets {
                let at = at as usize;
                if held.buckets.len() <= at {
                    held.buckets.resize(at + 1, Vec::new());
                }
                if held.buckets[at].is_empty() {
                    held.buckets[at] = vec![0; BUCKET_BYTES];
                }
            }
        });
        Ok(())
    }

    fn merge_now(
        &self,
        namespace: &str,
        state: &[u8],
        generation: u64,
        buckets: &[(u32, Bytes)],
        added: Option<u64>,
    ) -> Result<Agreed> {
        check(buckets.len(), MAX_BUCKETS_A_CALL)?;
        self.agreed(namespace, state, |filter| {
            let Some(held) = filter.generations.get_mut(&generation) else { return true };
            for (at, bytes) in buckets {
                let Some(bucket) = held.bucket(*at) else { continue };
                bucket.iter_mut().zip(bytes).for_each(|(own, new)| *own |= new);
            }
            held.added = added.unwrap_or(held.added);
            true
        })
    }

    fn replace_now(&self, namespace: &str, change: Change<'_>) -> Result<Agreed> {
        self.agreed(namespace, change.state, |filter| {
            let leads = filter.leader.is_some_and(|(leader, until)| leader == change.leader && Instant::now() < until);
            if change.leader != 0 && !(leads && change.home == HOME) {
                return false;
            }
            filter.state = Bytes::copy_from_slice(change.new);
            filter.tidy(None);
            true
        })
    }

    fn lead_now(&self, namespace: &str, leader: u64, keep: Duration) -> Result<bool> {
        self.with(namespace, |filter| {
            let now = Instant::now();
            let other = filter.leader.is_some_and(|(other, until)| other != leader && now < until);
            if !other {
                filter.leader = (!keep.is_zero()).then(|| (leader, now + keep));
            }
            Ok(!other)
        })
    }
}

impl MembershipStore for EmbeddedMembership {
    fn look<'a>(&'a self, namespace: &'a str, generation: u64, buckets: &'a [u32]) -> BoxFuture<'a, Result<Held>> {
        Box::pin(std::future::ready(self.look_now(namespace, generation, buckets)))
    }

    fn add<'a>(&'a self, namespace: &'a str, state: &'a [u8], bits: &'a [Bits]) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(async move { self.add_now(namespace, state, bits) })
    }

    fn prepare<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
        _keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.prepare_now(namespace, generation, buckets) })
    }

    fn merge<'a>(
        &'a self,
        namespace: &'a str,
        state: &'a [u8],
        generation: u64,
        buckets: &'a [(u32, Bytes)],
        added: Option<u64>,
    ) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(async move { self.merge_now(namespace, state, generation, buckets, added) })
    }

    fn replace<'a>(&'a self, namespace: &'a str, change: Change<'a>) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(async move { self.replace_now(namespace, change) })
    }

    fn lead<'a>(&'a self, namespace: &'a str, leader: u64, keep: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.lead_now(namespace, leader, keep) })
    }

    fn discard<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check(buckets.len(), MAX_BUCKETS_A_CALL)?;
            self.with(namespace, |filter| {
                let Some(held) = filter.generations.get_mut(&generation) else { return };
                for at in buckets {
                    if let Some(bucket) = held.bucket(at) {
                        *bucket = Vec::new();
                    }
                }
            });
            Ok(())
        })
    }
}
