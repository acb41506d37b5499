//! What a flight does: take the lease, or wait for another's; load; fill.
//!
//! Every result carries the point up to which it is proven right. What the store held at a moment was invalidated by
//! nothing acknowledged before that moment; a fill that the store accepted, the same at its own moment, since an
//! invalidation in between would have removed the lease. A load whose fill was refused is right as of the moment before its
//! lease was asked for: whatever was acknowledged by then was committed before the load, and the floor that came with the
//! lease keeps a lagging replica from hiding it. Not as of its beginning: what was acknowledged after the lease was granted
//! is in no floor that the loader was told. Without the store there is no floor, and a load is right as of its beginning if
//! its source does not lag.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::CacheKey;
use tidegate_core::cache::cell::{Holder, Notes};
use tidegate_core::cache::{EntryId, Key, Op, Reply};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::attempt::{Attempt, load_once};
use super::chain::{self, Chain};
use super::errors::CacheError;
use super::flight::{Flight, Landed, Outcome};
use super::governor::{Permit, admit};
use super::local::Kept;
use super::read::mark_began;
use super::space::{Inner, Seen};
use super::trace::KeyHash;

/// A lease that is waited for is looked at again after this, doubling to [`LONGEST_LOOK`], unless a notice comes first.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// The longest pause between two looks at a lease.
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// Another process refreshes: this one looks whether it is done after so long, milliseconds.
const BUSY_HOLD_MS: i64 = 100;
/// Most attempts of a forced load to get hold of its key in the store; then it loads without.
const MAX_FORCE_ATTEMPTS: u32 = 5;

/// What a flight is started for.
pub(super) enum Want {
    /// The store had nothing to serve.
    Load(Hint),
    /// Nobody has asked the store yet.
    Look,
    /// The value with this fill id is stale, or soon will be.
    Refresh(EntryId),
    /// A caller wants a load that begins now.
    Force,
}

/// What the store had instead of something to serve.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hint {
    Nothing,
    /// Somebody loads, under this lease if it was seen.
    Leased(Option<EntryId>),
    /// The value of this fill, made old by a tag.
    Old(EntryId),
    /// Bytes of no use.
    Remove,
}

impl Hint {
    /// Whether nobody is known to load the key, or to have loaded it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Nothing | Self::Remove)
    }

    pub(super) fn old<V>(kept: &Kept<V>) -> Self {
        // Only values can be refreshed in place.
        if kept.value.is_some() { Self::Old(kept.id) } else { Self::Remove }
    }
}

/// The task of one flight.
pub(super) struct Leader<K, V> {
    pub(super) inner: Arc<Inner<K, V>>,
    pub(super) key: K,
    pub(super) bytes: Bytes,
    pub(super) cache_key: CacheKey,
    pub(super) flight: Arc<Flight<V>>,
    pub(super) chain: Chain,
    /// A lease that was asked for and not answered: it may be held.
    unanswered: Mutex<Option<EntryId>>,
}

/// A point up to which a result is proven: in the order of reads and loads, by the process' clock, and by the generation
/// of the key's copies.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) order: u64,
    pub(super) at: i64,
    pub(super) generation: u64,
}

pub(super) enum Look<V> {
    Landed(Landed<V>),
    Hint(Hint),
    Down,
}

impl<K, V> Leader<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn new(inner: &Arc<Inner<K, V>>, key: K, bytes: Bytes, flight: Arc<Flight<V>>, chain: Chain) -> Self {
        let cache_key = inner.cache_key(&bytes);
        Self { cache_key, inner: Arc::clone(inner), key, bytes, flight, chain, unanswered: Mutex::default() }
    }

    pub(super) async fn run(&self, want: Want, permit: Option<Permit>) -> Landed<V> {
        let landed = match want {
            Want::Load(hint) => self.load(hint, permit).await,
            Want::Look => self.look_for_all().await,
            Want::Refresh(fill) => self.refresh(fill, permit.unwrap_or_else(Permit::nested)).await,
            Want::Force => self.force().await,
        };
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(token) = unanswered {
            // Or all who ask would wait for its end.
            let (inner, key) = (Arc::clone(&self.inner), self.cache_key.clone());
            let release = Op::Release { holder: Holder::Lease(token) };
            self.inner.hub.spawn(async move {
                let _ = inner.hub.store.apply(&key, release).await;
            });
        }
        landed
    }

    /// Now, before something is asked.
    pub(super) fn point(&self) -> Point {
        let (generation, at) = (self.inner.generation(&self.bytes), self.inner.hub.ticks.now());
        Point { generation, at, order: self.inner.hub.next() }
    }

    async fn admitted(&self, had: &mut Option<Permit>) -> Result<Permit, Landed<V>> {
        if let Some(permit) = had.take() {
            return Ok(permit);
        }
        if self.chain.is_some() {
            return Ok(Permit::nested());
        }
        admit(self.inner.gates(), self.inner.knobs.hard_timeout).await.map_err(|retry_after| {
            self.inner.metrics.counts.overloaded.one();
            Landed::failed(CacheError::Overloaded { retry_after })
        })
    }

    /// How long a flight may wait for others' leases: their load, and one lease of a process that died.
    fn patience_ms(&self) -> i64 {
        let load = i64::try_from(self.inner.knobs.hard_timeout.as_millis()).unwrap_or(i64::MAX);
        load.saturating_add(self.inner.knobs.lease_ms).saturating_add(LONGEST_LOOK.as_millis() as i64)
    }

    pub(super) async fn load(&self, mut hint: Hint, mut permit: Option<Permit>) -> Landed<V> {
        let give_up = self.inner.hub.ticks.now().saturating_add(self.patience_ms());
        let mut pause = FIRST_LOOK;
        // The lease whose end this flight will be told of.
        let mut marked = None;
        while self.inner.hub.ticks.now() < give_up {
            hint = match hint {
                Hint::Leased(Some(token)) if marked != Some(token) => {
                    marked = Some(token);
                    match self.ask_to_be_woken(&mut permit).await {
                        Look::Landed(landed) => return landed,
                        Look::Hint(hint) => hint,
                        Look::Down => return self.without_store(permit).await,
                    }
                }
                Hint::Leased(_) => {
                    let _ = tokio::time::timeout(pause, self.flight.woken.notified()).await;
                    pause = (pause * 2).min(LONGEST_LOOK);
                    match self.look().await {
                        Look::Landed(landed) => return landed,
                        Look::Hint(hint) => hint,
                        Look::Down => return self.without_store(permit).await,
                    }
                }
                Hint::Remove => {
                    let owed = self.inner.owed.in_store(&self.bytes);
                    if owed.is_none() {
                        self.inner.metrics.counts.unreadable.one();
                    }
                    let remove = Op::Invalidate { floor: None, keep_floor_ms: 1 };
                    if self.inner.hub.store.apply(&self.cache_key, remove).await.is_err() {
                        return self.without_store(permit).await;
                    }
                    if let Some(number) = owed {
                        self.inner.owed.removed(&self.bytes, number);
                    }
                    Hint::Nothing
                }
                Hint::Nothing => match self.take_lease(&mut permit).await {
                    Look::Landed(landed) => return landed,
                    Look::Hint(hint) => {
                        if let Hint::Leased(token) = hint {
                            marked = token;
                        }
                        hint
                    }
                    Look::Down => return self.without_store(permit).await,
                },
                Hint::Old(fill) => match self.take_over(fill, &mut permit).await {
                    Look::Landed(landed) => return landed,
                    Look::Hint(hint) => hint,
                    Look::Down => return self.without_store(permit).await,
                },
            };
        }
        Landed::failed(CacheError::Timeout)
    }

    /// Looks at the store again.
    pub(super) async fn look(&self) -> Look<V> {
        let point = self.point();
        match self.inner.hub.store.read(&self.cache_key).await {
            Ok(found) => self.judge(found.as_deref(), point).await,
            Err(_) => Look::Down,
        }
    }

    pub(super) async fn judge(&self, found: Option<&[u8]>, point: Point) -> Look<V> {
        match self.inner.see(&self.bytes, found, point.at) {
            Seen::Nothing => Look::Hint(Hint::Nothing),
            Seen::Leased(token) => Look::Hint(Hint::Leased(token)),
            Seen::Unusable => Look::Hint(Hint::Remove),
            Seen::Failed(error) => Look::Landed(Landed::failed(error)),
            Seen::Usable(kept, _, stamps) => match self.inner.are_current(&stamps, true).await {
                Err(_) => Look::Down,
                Ok(false) => Look::Hint(Hint::old(&kept)),
                Ok(true) => {
                    self.inner.keep(&self.bytes, &kept, &stamps, point.generation);
                    Look::Landed(Landed { result: Outcome::Found(kept, true), as_of: point.order, began: 0 })
                }
            },
        }
    }

    async fn take_lease(&self, had: &mut Option<Permit>) -> Look<V> {
        let permit = match self.admitted(had).await {
            Ok(permit) => permit,
            Err(landed) => return Look::Landed(landed),
        };
        let token = Inner::<K, V>::id();
        let lease = Op::Lease { token, for_ms: self.inner.knobs.lease_ms };
        let point = self.point();
        match self.inner.hub.store.apply(&self.cache_key, lease).await {
            Ok(Reply::Granted(notes)) => {
                Look::Landed(self.lead(permit, Some(Holder::Lease(token)), notes, point).await)
            }
            Ok(Reply::Present(bytes)) => {
                permit.unused();
                self.judge(Some(&bytes), point).await
            }
            Ok(_) => {
                permit.unused();
                Look::Hint(Hint::Leased(None))
            }
            Err(_) => {
                // It loads without the store, on the same permit.
                *had = Some(permit);
                *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
                Look::Down
            }
        }
    }

    /// Marks another's lease as waited for, so that its end is told. If it has ended already, the load is this flight's.
    async fn ask_to_be_woken(&self, had: &mut Option<Permit>) -> Look<V> {
        let token = Inner::<K, V>::id();
        let lease = Op::Lease { token, for_ms: self.inner.knobs.lease_ms };
        let point = self.point();
        match self.inner.hub.store.apply(&self.cache_key, lease).await {
            Ok(Reply::Granted(notes)) => {
                let holder = Holder::Lease(token);
                match self.admitted(had).await {
                    Ok(permit) => Look::Landed(self.lead(permit, Some(holder), notes, point).await),
                    Err(landed) => {
                        let _ = self.inner.hub.store.apply(&self.cache_key, Op::Release { holder }).await;
                        Look::Landed(landed)
                    }
                }
            }
            Ok(Reply::Present(bytes)) => self.judge(Some(&bytes), point).await,
            Ok(_) => Look::Hint(Hint::Leased(None)),
            Err(_) => Look::Down,
        }
    }

    /// A value that a tag made old is replaced under its refresh: one process loads, no lease of others is lost.
    async fn take_over(&self, fill: EntryId, had: &mut Option<Permit>) -> Look<V> {
        let permit = match self.admitted(had).await {
            Ok(permit) => permit,
            Err(landed) => return Look::Landed(landed),
        };
        let token = Inner::<K, V>::id();
        let refresh = Op::Refresh { fill, token, for_ms: self.inner.knobs.lease_ms };
        let point = self.point();
        match self.inner.hub.store.apply(&self.cache_key, refresh).await {
            Ok(Reply::Granted(notes)) => {
                Look::Landed(self.lead(permit, Some(Holder::Refresh { fill, token }), notes, point).await)
            }
            // Others are at it.
            Ok(_) => {
                permit.unused();
                Look::Hint(Hint::Leased(None))
            }
            Err(_) => {
                // It loads without the store, on the same permit.
                *had = Some(permit);
                Look::Down
            }
        }
    }

    async fn refresh(&self, fill: EntryId, permit: Permit) -> Landed<V> {
        let token = Inner::<K, V>::id();
        let refresh = Op::Refresh { fill, token, for_ms: self.inner.knobs.lease_ms };
        let point = self.point();
        match self.inner.hub.store.apply(&self.cache_key, refresh).await {
            Ok(Reply::Granted(notes)) => self.lead(permit, Some(Holder::Refresh { fill, token }), notes, point).await,
            Err(_) => self.lead(permit, None, Notes::default(), self.point()).await,
            Ok(reply) => {
                permit.unused();
                if reply == Reply::Busy {
                    let until = self.inner.hub.ticks.now().saturating_add(BUSY_HOLD_MS);
                    self.inner.memory.hold(&self.bytes, until);
                    return Landed::again();
                }
                // It was replaced: the new value is kept in process.
                match self.look().await {
                    Look::Landed(landed) => landed,
                    Look::Hint(_) | Look::Down => Landed::again(),
                }
            }
        }
    }

    /// Takes the place of whatever is there: a value stays to be served meanwhile, a load of others loses its lease.
    async fn force(&self) -> Landed<V> {
        for _ in 0..MAX_FORCE_ATTEMPTS {
            let point = self.point();
            let Ok(found) = self.inner.hub.store.read(&self.cache_key).await else { break };
            let fill = match self.inner.see(&self.bytes, found.as_deref(), point.at) {
                Seen::Usable(kept, ..) if kept.value.is_some() => Some(kept.id),
                Seen::Nothing => None,
                _ => {
                    let remove = Op::Invalidate { floor: None, keep_floor_ms: 1 };
                    if self.inner.hub.store.apply(&self.cache_key, remove).await.is_err() {
                        break;
                    }
                    None
                }
            };
            let permit = match self.admitted(&mut None).await {
                Ok(permit) => permit,
                Err(landed) => return landed,
            };
            let (token, for_ms) = (Inner::<K, V>::id(), self.inner.knobs.lease_ms);
            let op = match fill {
                Some(fill) => Op::Refresh { fill, token, for_ms },
                None => Op::Lease { token, for_ms },
            };
            let point = self.point();
            let reply = self.inner.hub.store.apply(&self.cache_key, op).await;
            match (reply, fill) {
                (Ok(Reply::Granted(notes)), Some(fill)) => {
                    return self.lead(permit, Some(Holder::Refresh { fill, token }), notes, point).await;
                }
                // The fill compares the value, not the token: that another refreshes is no hindrance.
                (Ok(Reply::Busy), Some(fill)) => {
                    return self.lead(permit, Some(Holder::Refresh { fill, token }), Notes::default(), point).await;
                }
                (Ok(Reply::Granted(notes)), None) => {
                    return self.lead(permit, Some(Holder::Lease(token)), notes, point).await;
                }
                (Ok(_), _) => permit.unused(),
                (Err(_), _) => return self.without_store(Some(permit)).await,
            }
        }
        self.without_store(None).await
    }

    /// The store is away: a load within the budget, shared in this process only. A lease that was asked for and not
    /// answered is never filled: it may be granted after the load has read.
    async fn without_store(&self, mut had: Option<Permit>) -> Landed<V> {
        match self.admitted(&mut had).await {
            Ok(permit) => self.lead(permit, None, Notes::default(), self.point()).await,
            Err(landed) => landed,
        }
    }

    /// Loads, and gives the result to the store if there is a holder. `point`: before the lease or refresh was asked for.
    pub(super) async fn lead(&self, permit: Permit, holder: Option<Holder>, notes: Notes, point: Point) -> Landed<V> {
        let kind = match holder {
            Some(Holder::Lease(_)) => "load",
            Some(Holder::Refresh { .. }) => "refresh",
            None => "load without the store",
        };
        let span = tracing::debug_span!("cache.load", namespace = %self.inner.namespace, key = %KeyHash(&self.bytes), kind,
            outcome = Empty, cost_ms = Empty);
        let landed = self.lead_within(&span, permit, holder, notes, point).instrument(span.clone()).await;
        let outcome = match &landed.result {
            Outcome::Found(kept, _) if kept.value.is_some() => "value",
            Outcome::Found(..) => "absent",
            Outcome::Failed(_) => "error",
            Outcome::Again => "again",
        };
        span.record("outcome", outcome);
        landed
    }

    async fn lead_within(
        &self,
        span: &Span,
        permit: Permit,
        holder: Option<Holder>,
        notes: Notes,
        point: Point,
    ) -> Landed<V> {
        let hashes = match self.inner.tag_hashes(&self.key) {
            Ok(hashes) => hashes,
            Err(error) => return Landed::failed(error),
        };
        // Before the load: whoever bumps a tag later makes this entry old.
        let stamps = self.inner.stamps(&hashes).await.ok();
        permit.begin().await;
        let store = &self.inner.hub.store;
        let order = mark_began(&self.inner, &self.flight);
        let born = store.store.now();
        let began = tokio::time::Instant::now();
        let loaded = chain::within(
            Arc::as_ptr(&self.inner).addr(),
            vec![self.bytes.clone()],
            self.chain.clone(),
            load_once(&self.inner, &self.key, &self.cache_key, holder, notes.floor),
        )
        .await;
        let took = began.elapsed();
        span.record("cost_ms", took.as_secs_f64() * 1_000.0);
        self.inner.metrics.load_seconds.record(took.as_secs_f64());
        permit.took(took);
        drop(permit);
        let attempt = Attempt { leader: self, holder, notes, stamps, point, order, born, took };
        match loaded {
            Ok(loaded) => attempt.settle(loaded).await,
            Err(error) => attempt.fail(error).await,
        }
    }
}
