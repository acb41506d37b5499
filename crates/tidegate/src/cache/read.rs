//! Reads: the in-process level, the store, a flight, and what is served when none of them has an answer.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::cache::{EntryId, Key, KeyWriter};

use super::chain;
use super::crowd::Way;
use super::errors::CacheError;
use super::flight::{Landed, Landing, Outcome, Purpose};
use super::governor::{Permit, admit_spare};
use super::hot::sample;
use super::load::{Hint, Leader, Want};
use super::local::{Held, Kept, Query};
use super::space::{EARLIEST, Inner, Seen};
use super::ticks::chance;

/// Most times that a read looks again because what it waited for was too old for it or came to nothing.
const MAX_ROUNDS: u32 = 16;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The in-process level.
    Local,
    /// The store.
    Store,
    /// A load, by this caller's wish or another's.
    Load,
    /// The membership filter: there surely is none.
    Filter,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Read<V> {
    /// The value; `None`: there is none.
    pub value: Option<Arc<V>>,
    /// Since its load began, as far as this process knows; in milliseconds.
    pub age: Duration,
    /// Where it came from.
    pub source: Source,
    /// It is past its freshness, or served because nothing newer could be had.
    pub stale: bool,
}

impl<V> Clone for Read<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), ..*self }
    }
}

/// How a read wants to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    /// Nothing whose invalidation was acknowledged before.
    pub(super) strong: bool,
    /// Whether to load what is not there.
    pub(super) load: bool,
    /// Only what a load gives that began after the call.
    pub(super) forced: bool,
}

impl How {
    pub(super) const BOUNDED: Self = Self { strong: false, load: true, forced: false };
}

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Counts the read, if it is one of those that are.
    #[inline]
    pub(super) fn sampled(self: &Arc<Self>, key: &K, written: &KeyWriter) -> &Arc<Self> {
        if sample::is_due() {
            self.hot.count(key, written.as_bytes(), self.hub.ticks.now());
        }
        self
    }

    /// The in-process level alone.
    pub(super) fn try_local(self: &Arc<Self>, key: &K, written: &KeyWriter) -> Option<Read<V>> {
        self.plain_hit(written).or_else(|| self.further_hit(key, written.as_bytes()))
    }

    /// A copy that there is nothing to think about: most reads end here.
    #[inline]
    pub(super) fn plain_hit(&self, written: &KeyWriter) -> Option<Read<V>> {
        let now = self.hub.ticks.now();
        let Held { value, born, quiet, .. } = self.local.as_ref()?.hit(&Query::written(written))?;
        if now >= quiet || !self.hub.trusts_copies(now) {
            return None;
        }
        self.metrics.counts.local_hits.one();
        if value.is_none() {
            self.metrics.counts.negatives.one();
        }
        Some(Read { value, age: age(now, born), source: Source::Local, stale: false })
    }

    /// A copy that is tagged, or near its end, or that the bus does not vouch for.
    #[cold]
    pub(super) fn further_hit(self: &Arc<Self>, key: &K, bytes: &[u8]) -> Option<Read<V>> {
        let now = self.hub.ticks.now();
        let kept = self.local.as_ref()?.get(bytes)?;
        if now >= kept.until || now >= kept.hard {
            return None;
        }
        if !self.hub.is_within_bound(kept.as_of, now) && !self.hub.trusts_copies(now) {
            return None;
        }
        if let Some(tags) = &kept.tags {
            // A counter is heard of, too: a copy that was right a moment ago says nothing about it.
            if !self.hub.trusts_copies(now) || !tags.iter().all(|tag| tag.is_current()) {
                return None;
            }
        }
        let stale = now >= kept.soft;
        if stale && self.knobs.life.stale_for.is_none() {
            return None;
        }
        if (stale && kept.value.is_some()) || (!stale && self.is_early(&kept, now)) {
            self.kick(key, &Bytes::copy_from_slice(bytes), kept.id);
        }
        self.metrics.counts.local_hits.one();
        Some(self.answer(kept, Source::Local, now, stale))
    }

    /// Whether a fresh value should be refreshed already.
    pub(super) fn is_early(&self, kept: &Kept<V>, now: i64) -> bool {
        let eagerness = self.knobs.life.early_refresh;
        let stamp = tidegate_core::cache::Stamp {
            born: tidegate_core::Millis(kept.born),
            soft: tidegate_core::Millis(kept.soft),
            hard: tidegate_core::Millis(kept.hard),
        };
        kept.value.is_some()
            && now >= kept.soft.saturating_sub((f64::from(kept.cost_ms) * eagerness * EARLIEST).ceil() as i64)
            && stamp.is_early(tidegate_core::Millis(now), f64::from(kept.cost_ms), eagerness, chance())
    }

    #[inline]
    pub(super) fn answer(&self, kept: Kept<V>, source: Source, now: i64, stale: bool) -> Read<V> {
        if kept.value.is_none() && source != Source::Load {
            self.metrics.counts.negatives.one();
        }
        if stale {
            self.metrics.counts.stale.one();
        }
        Read { value: kept.value, age: age(now, kept.born), source, stale }
    }

    /// What may be served when nothing newer can be had: a copy within its stale life.
    pub(super) fn fallback(&self, bytes: &[u8]) -> Option<(Kept<V>, Read<V>)> {
        self.knobs.life.stale_for?;
        let kept = self.local.as_ref()?.get(bytes)?;
        let now = self.hub.ticks.now();
        if now >= kept.hard || kept.tags.as_ref().is_some_and(|tags| !tags.iter().all(|tag| tag.is_current())) {
            return None;
        }
        Some((kept.clone(), self.answer(kept, Source::Local, now, true)))
    }

    /// Starts a background refresh of the value with this fill id, if there is room to spare and none runs.
    pub(super) fn kick(self: &Arc<Self>, key: &K, bytes: &Bytes, fill: EntryId) {
        if self.memory.holds(bytes, self.hub.ticks.now()) || self.flights.contains(bytes) {
            return;
        }
        let Some(permit) = admit_spare(self.gates()) else { return };
        // Nobody waits for it: it is of no chain, and whether the hub is closing does not matter.
        let _ = self.start(key, bytes, Want::Refresh(fill), Some(permit), None);
    }

    /// The same for what the store had, if it is no longer fresh, or early.
    fn kick_if_old(self: &Arc<Self>, key: &K, bytes: &Bytes, kept: &Kept<V>, now: i64) {
        if kept.value.is_some() && (now >= kept.soft || self.is_early(kept, now)) {
            self.kick(key, bytes, kept.id);
        }
    }

    /// Joins the key's flight, or starts one.
    pub(super) fn start(
        self: &Arc<Self>,
        key: &K,
        bytes: &Bytes,
        want: Want,
        permit: Option<Permit>,
        chain: chain::Chain,
    ) -> Landing<V> {
        let purpose = match want {
            Want::Load(_) | Want::Look => Purpose::Load,
            Want::Refresh(_) => Purpose::Refresh,
            Want::Force => Purpose::Force,
        };
        let (landing, ticket) = self.flights.board(bytes, purpose);
        if let Some(ticket) = ticket {
            let leader = Leader::new(self, key.clone(), bytes.clone(), Arc::clone(&ticket.flight), chain);
            self.hub.spawn(async move {
                let looks = matches!(want, Want::Look);
                let landed = leader.run(want, permit).await;
                let found = looks.then(|| landed.stored()).flatten();
                ticket.land(landed);
                if let Some(kept) = found {
                    leader.inner.kick_if_old(&leader.key, &leader.bytes, &kept, leader.inner.hub.ticks.now());
                }
            });
        } else if let Some(permit) = permit {
            permit.unused();
        }
        landing
    }

    /// A read that the in-process level did not answer.
    pub(super) async fn read_on(
        self: Arc<Self>,
        key: K,
        bytes: Bytes,
        how: How,
        deadline: Option<Duration>,
    ) -> Result<Option<Read<V>>, CacheError> {
        // One place for both, and the rarer one's timer elsewhere: thousands of these may wait at once.
        let reading = pin!(self.read_through(&key, &bytes, how));
        let answer = match deadline {
            None => reading.await,
            Some(deadline) => {
                Box::pin(tokio::time::timeout(deadline, reading)).await.unwrap_or(Err(CacheError::Timeout))
            }
        };
        match answer {
            Err(error) if !how.strong => self.rescue(&bytes, error).map(Some),
            answer => answer,
        }
    }

    /// An older value instead of an error, if there is one and it is better.
    pub(super) fn rescue(&self, bytes: &[u8], error: CacheError) -> Result<Read<V>, CacheError> {
        if !gives_way(&error) {
            return Err(error);
        }
        self.fallback(bytes).map(|(_, read)| read).ok_or(error)
    }

    async fn read_through(self: &Arc<Self>, key: &K, bytes: &Bytes, how: How) -> Result<Option<Read<V>>, CacheError> {
        if chain::contains(Arc::as_ptr(self).addr(), bytes) {
            return Err(CacheError::Recursion);
        }
        let asked = self.hub.next();
        for round in 0..MAX_ROUNDS {
            if self.hub.is_stopping() {
                return Err(CacheError::Stopping);
            }
            // Who follows and is told to look again looks by itself.
            let way = if round == 0 { self.way(key, bytes, how) } else { Way::Alone(None) };
            let asking = match way {
                Way::Alone(asking) => asking,
                Way::Together(mut landing) => {
                    let landed = self.wait(&mut landing, bytes, how).await;
                    let fallback = || self.fallback(bytes).map(|(_, read)| Ok(read));
                    if let Some(answer) = landed.map_or_else(fallback, |landed| self.take(landed, asked, how)) {
                        self.count_shared(answer.as_ref().ok());
                        return answer.map(Some);
                    }
                    if let Some(read) = self.further_hit(key, bytes) {
                        return Ok(Some(read));
                    }
                    None
                }
            };
            let want = if how.forced {
                Want::Force
            } else {
                match self.ask_store(key, bytes, how).await {
                    Asked::Answered(answer) => return answer.map(Some),
                    Asked::Missing(_) if !how.load => return Ok(None),
                    Asked::Missing(hint) if self.refuses(bytes, &hint).await => return Ok(Some(self.refusal())),
                    Asked::Missing(hint) => Want::Load(hint),
                }
            };
            drop(asking);
            if round == 0 {
                self.metrics.counts.misses.one();
                self.hot.missed(bytes);
            }
            let mut landing = self.start(key, bytes, want, None, chain::current());
            let Some(landed) = self.wait(&mut landing, bytes, how).await else {
                if let Some((_, read)) = self.fallback(bytes) {
                    return Ok(Some(read));
                }
                continue;
            };
            if let Some(answer) = self.take(landed, asked, how) {
                return answer.map(Some);
            }
        }
        Err(CacheError::Overloaded { retry_after: AGAIN_AFTER })
    }

    /// Whether the filter may be asked: nobody loads the id, and it is none that this process has just committed.
    pub(super) fn may_refuse(&self, bytes: &Bytes, hint: &Hint) -> bool {
        hint.is_open() && !self.owed.has(bytes)
    }

    /// Whether the membership filter knows that there is no such id. Where something is stored, or somebody loads, it is not
    /// asked.
    pub(super) async fn refuses(&self, bytes: &Bytes, hint: &Hint) -> bool {
        match &self.register {
            Some(register) if self.may_refuse(bytes, hint) => register.refuses(bytes).await,
            _ => false,
        }
    }

    /// "There is none", by the membership filter.
    pub(super) fn refusal(&self) -> Read<V> {
        self.metrics.counts.negatives.one();
        self.metrics.counts.filter_refusals.one();
        Read { value: None, age: Duration::ZERO, source: Source::Filter, stale: false }
    }

    /// What a flight came to, for a reader that asked at `asked`; `None`: nothing that it may take.
    pub(super) fn take(&self, landed: Landed<V>, asked: u64, how: How) -> Option<Result<Read<V>, CacheError>> {
        match landed.result {
            Outcome::Failed(error) => Some(Err(error)),
            Outcome::Again => None,
            Outcome::Found(kept, stored) => {
                let proven = if how.forced { landed.began > asked } else { landed.as_of > asked };
                if !proven && !self.hub.mutant_joins_old_flights {
                    return None;
                }
                let source = if stored { Source::Store } else { Source::Load };
                let now = self.hub.ticks.now();
                let stale = stored && now >= kept.soft;
                Some(Ok(self.answer(kept, source, now, stale)))
            }
        }
    }

    /// Waits for a flight; a reader with an older value only for so long (`None`).
    pub(super) async fn wait(&self, landing: &mut Landing<V>, bytes: &Bytes, how: How) -> Option<Landed<V>> {
        // A flight lands whatever happens, also when the cache is closed: nothing else needs to be listened to. Thousands
        // may wait here, so each does as little as it can.
        if !how.strong && !how.forced && self.fallback_exists(bytes) {
            let soon = tokio::time::timeout(self.knobs.soft_timeout, landing.wait_for(Option::is_some)).await;
            match soon {
                Ok(Ok(landed)) => return landed.clone(),
                Ok(Err(_)) => return Some(Landed::again()),
                Err(_) if self.fallback_exists(bytes) => return None,
                Err(_) => {}
            }
        }
        match landing.wait_for(Option::is_some).await {
            Ok(landed) => landed.clone(),
            Err(_) => Some(Landed::again()),
        }
    }

    fn fallback_exists(&self, bytes: &[u8]) -> bool {
        let kept = self.local.as_ref().and_then(|local| local.get(bytes));
        self.knobs.life.stale_for.is_some() && kept.is_some_and(|kept| self.hub.ticks.now() < kept.hard)
    }

    async fn ask_store(self: &Arc<Self>, key: &K, bytes: &Bytes, how: How) -> Asked<V> {
        let (as_of, generation) = (self.hub.ticks.now(), self.generation(bytes));
        let Ok(found) = self.hub.store.read(&self.cache_key(bytes)).await else {
            return self.without_store(key, bytes, how);
        };
        match self.see(bytes, found.as_deref(), as_of) {
            Seen::Nothing => Asked::Missing(Hint::Nothing),
            Seen::Leased(token) => Asked::Missing(Hint::Leased(token)),
            Seen::Failed(error) => Asked::Answered(Err(error)),
            Seen::Unusable => Asked::Missing(Hint::Remove),
            Seen::Usable(kept, stale, stamps) => match self.are_current(&stamps, how.strong).await {
                Err(_) => self.without_store(key, bytes, how),
                Ok(false) => Asked::Missing(Hint::old(&kept)),
                Ok(true) => {
                    self.keep(bytes, &kept, &stamps, generation);
                    let now = self.hub.ticks.now();
                    self.kick_if_old(key, bytes, &kept, now);
                    self.metrics.counts.store_hits.one();
                    Asked::Answered(Ok(self.answer(kept, Source::Store, now, stale)))
                }
            },
        }
    }

    /// The store is away: an older copy, a failure that is remembered, or a load within the budget.
    pub(super) fn without_store(self: &Arc<Self>, key: &K, bytes: &Bytes, how: How) -> Asked<V> {
        if let Some((kept, read)) = (!how.strong).then(|| self.fallback(bytes)).flatten() {
            if self.hub.ticks.now() >= kept.soft {
                self.kick(key, bytes, kept.id);
            }
            self.metrics.counts.local_hits.one();
            return Asked::Answered(Ok(read));
        }
        match self.memory.error(bytes, self.hub.ticks.now()) {
            Some(error) => Asked::Answered(Err(error)),
            None => Asked::Missing(Hint::Nothing),
        }
    }
}

pub(super) enum Asked<V> {
    Answered(Result<Read<V>, CacheError>),
    Missing(Hint),
}

#[inline]
fn age(now: i64, born: i64) -> Duration {
    Duration::from_millis((now - born).max(0).unsigned_abs())
}

/// Whether an older value is better than this error.
fn gives_way(error: &CacheError) -> bool {
    matches!(error, CacheError::Load(_) | CacheError::Timeout | CacheError::Overloaded { .. })
}

/// Marks a flight's load as begun; the number is its place in the order of reads and loads.
pub(super) fn mark_began<K, V>(inner: &Inner<K, V>, flight: &super::flight::Flight<V>) -> u64 {
    let began = inner.hub.next();
    flight.began.store(began, Ordering::SeqCst);
    began
}
