//! One load: the loader under its time limit, its lease renewed, its panics caught; then what becomes of the result.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_backend::CacheKey;
use tidegate_core::Millis;
use tidegate_core::cache::cell::{Holder, Notes};
use tidegate_core::cache::defence::LONGEST_SHARED_MS;
use tidegate_core::cache::{
    Codec as CodecNumber, Failed, Header, Key, Op, Reply, RowVersion, Stamp, TagStamp, backoff_ms,
};

use super::codec::pack;
use super::errors::{CacheError, LoadTimedOut, LoaderPanicked};
use super::flight::{Landed, Outcome};
use super::guard::Down;
use super::load::{Leader, Point};
use super::loader::{LoadContext, Loaded};
use super::space::{Inner, class};
use super::ticks::chance;
use super::trace::KeyHash;

/// How often a load is tried again because its source lags behind a known version; after 50, 100 and 200 ms.
const MAX_BEHIND_RETRIES: u32 = 3;
const FIRST_BEHIND_PAUSE: Duration = Duration::from_millis(50);
/// A lease is never renewed more often than this.
const SHORTEST_RENEWAL: Duration = Duration::from_millis(5);

/// Runs the loader: retried while it lags behind `floor`, its lease renewed meanwhile, under the hard time limit.
pub(super) async fn load_once<K, V>(
    inner: &Inner<K, V>,
    key: &K,
    cache_key: &CacheKey,
    holder: Option<Holder>,
    floor: Option<RowVersion>,
) -> Result<Loaded<V>, CacheError> {
    let load = async {
        let mut retries = 0;
        loop {
            let loaded = inner.loader.load(key, LoadContext { floor, retries }).await?;
            let (Some(floor), Some(version)) = (floor, loaded.version) else { return Ok(loaded) };
            if version >= floor {
                return Ok(loaded);
            }
            if retries == MAX_BEHIND_RETRIES {
                return Err(CacheError::Behind { floor, version });
            }
            tokio::time::sleep(FIRST_BEHIND_PAUSE * (1 << retries)).await;
            retries += 1;
        }
    };
    guarded(inner.knobs.hard_timeout, load, renewing(inner, cache_key, holder)).await
}

/// `load` under its time limit with `beside` running beside it; a panic is an error like others.
pub(super) async fn guarded<T>(
    limit: Duration,
    load: impl Future<Output = Result<T, CacheError>>,
    beside: impl Future<Output = ()>,
) -> Result<T, CacheError> {
    let load = tokio::time::timeout(limit, AssertUnwindSafe(load).catch_unwind());
    tokio::select! {
        biased;
        loaded = load => match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(panic)) => Err(CacheError::load(LoaderPanicked { message: words(&*panic) })),
            Err(_) => Err(CacheError::Timeout),
        },
        () = beside => Err(CacheError::Timeout),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Between two renewals: a third of a lease's life.
pub(super) fn renewal(lease_ms: i64) -> Duration {
    Duration::from_millis(lease_ms.unsigned_abs() / 3).max(SHORTEST_RENEWAL)
}

/// Renews a lease or a refresh until it is lost. Never ends.
async fn renewing<K, V>(inner: &Inner<K, V>, cache_key: &CacheKey, holder: Option<Holder>) {
    let for_ms = inner.knobs.lease_ms;
    if let Some(holder) = holder {
        loop {
            tokio::time::sleep(renewal(for_ms)).await;
            if let Ok(Reply::Lost) = inner.hub.store.apply(cache_key, Op::Renew { holder, for_ms }).await {
                break;
            }
        }
    }
    std::future::pending().await
}

/// A load that has come to its end.
pub(super) struct Attempt<'a, K, V> {
    pub(super) leader: &'a Leader<K, V>,
    pub(super) holder: Option<Holder>,
    pub(super) notes: Notes,
    /// The tags' counters before it began; `None`: the store did not say, so nothing of it may be stored.
    pub(super) stamps: Option<Vec<TagStamp>>,
    /// Before its lease was asked for; without one, its beginning.
    pub(super) point: Point,
    /// Its beginning, in the order of reads and loads.
    pub(super) order: u64,
    pub(super) born: Millis,
    pub(super) took: Duration,
}

impl<K, V> Attempt<'_, K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Shares what was loaded: through the store if that takes it, and with those that wait in any case.
    pub(super) async fn settle(&self, loaded: Loaded<V>) -> Landed<V> {
        let made = self.made(loaded);
        let Some(op) = self.delivery(&made) else { return self.landed(made, None) };
        let point = self.leader.point();
        let answer = self.leader.inner.hub.store.apply(&self.leader.cache_key, op).await;
        if let (Ok(Reply::Below(_)), Some(holder)) = (&answer, self.holder) {
            let _ = self.leader.inner.hub.store.apply(&self.leader.cache_key, Op::Release { holder }).await;
        }
        self.landed(made, Some((point, answer)))
    }

    /// The entry of what was loaded.
    pub(super) fn made(&self, loaded: Loaded<V>) -> Made<V> {
        let inner = &self.leader.inner;
        let counts = &inner.metrics.counts;
        if loaded.value.is_some() {
            counts.loads.one()
        } else {
            counts.absent_loads.one()
        }
        inner.memory.loaded(&self.leader.bytes);
        let id = self.holder.map_or_else(Inner::<K, V>::id, |holder| holder.token());
        let cost_us = u32::try_from(self.took.as_micros()).unwrap_or(u32::MAX);
        let tags = self.stamps.clone().unwrap_or_default();
        inner.make(&self.leader.bytes, loaded, id, self.born, cost_us, tags)
    }

    /// What to ask of the store: a fill, or a release if there is nothing to be stored.
    pub(super) fn delivery(&self, made: &Made<V>) -> Option<Op> {
        let holder = self.holder?;
        let ttl_ms = made.header.stamp.hard.since(self.leader.inner.hub.store.store.now());
        let bytes = made.bytes.clone().filter(|_| ttl_ms > 0 && self.stamps.is_some());
        Some(match bytes {
            Some(bytes) => Op::Fill { holder, bytes, ttl_ms },
            None => Op::Release { holder },
        })
    }

    /// The result with its proof. `answer`: the store's to the delivery, and the point before it was sent.
    pub(super) fn landed(&self, made: Made<V>, answer: Option<(Point, Result<Reply, Down>)>) -> Landed<V> {
        let (inner, bytes) = (&self.leader.inner, &self.leader.bytes);
        self.tell_fill(&made, answer.as_ref().map(|(_, answer)| answer));
        let (proof, keeps) = match answer {
            // Nothing is known of the key since then: as it was.
            None | Some((_, Err(Down))) => (None, true),
            Some((point, Ok(Reply::Held))) => (Some(point), true),
            Some((_, Ok(Reply::Below(floor)))) if made.header.version.is_some() => {
                inner.metrics.counts.rejected_fills.one();
                let version = made.header.version.unwrap_or(floor);
                return Landed::failed(CacheError::Behind { floor, version });
            }
            Some((_, Ok(_))) => {
                inner.metrics.counts.rejected_fills.one();
                (None, false)
            }
        };
        // A tag can be bumped without touching the lease: a fill proves nothing about tags.
        let tagged = self.stamps.as_ref().is_none_or(|stamps| !stamps.is_empty());
        let point = proof.filter(|_| !tagged).unwrap_or(self.point);
        let kept = inner.kept(&made.header, made.value, made.weight, point.at, inner.hub.store.store.now(), false);
        if let (true, true, Some(stamps)) = (keeps, made.cacheable, &self.stamps) {
            // What was heard of the key since the fill was sent forbids the copy; without one, since the lease was asked for.
            inner.keep(bytes, &kept, stamps, proof.unwrap_or(self.point).generation);
        }
        Landed { result: Outcome::Found(kept, false), as_of: point.order, began: self.order }
    }

    /// Says what became of a fill.
    fn tell_fill(&self, made: &Made<V>, answer: Option<&Result<Reply, Down>>) {
        let outcome = match answer {
            None => "not sent",
            Some(_) if made.bytes.is_none() => "not stored",
            Some(Ok(Reply::Held)) => "stored",
            Some(Ok(Reply::Below(_))) => "older than the floor",
            Some(Ok(_)) => "invalidated meanwhile",
            Some(Err(Down)) => "no answer",
        };
        let inner = &self.leader.inner;
        let age_ms = inner.hub.store.store.now().since(made.header.stamp.born);
        tracing::debug!(namespace = %inner.namespace, key = %KeyHash(&self.leader.bytes), outcome, age_ms, "cache.fill");
    }

    /// Shares the failure for a while, so that nobody queues up for another.
    pub(super) async fn fail(&self, error: CacheError) -> Landed<V> {
        if let Some(op) = self.failure(&error) {
            let _ = self.leader.inner.hub.store.apply(&self.leader.cache_key, op).await;
        }
        Landed::failed(error)
    }

    /// Remembers the failure; what to ask of the store.
    pub(super) fn failure(&self, error: &CacheError) -> Option<Op> {
        let (inner, bytes) = (&self.leader.inner, &self.leader.bytes);
        inner.metrics.counts.failed_loads.one();
        let before = self.notes.failures.max(inner.memory.failures(bytes));
        let refreshes = matches!(self.holder, Some(Holder::Refresh { .. }));
        let for_ms = if refreshes { backoff_ms(before) } else { backoff_ms(before).min(LONGEST_SHARED_MS) };
        let id = self.holder.map_or_else(Inner::<K, V>::id, |holder| holder.token());
        let until = inner.hub.ticks.now().saturating_add(for_ms);
        inner.memory.failed(bytes, until, before.saturating_add(1), id, error);
        tracing::debug!(namespace = %inner.namespace, %error, "a load failed");
        let retry_at = inner.hub.store.store.now().plus(for_ms);
        let failed = Failed { id, retry_at, class: class_of(error), message: message_of(error) };
        Some(Op::Fail { holder: self.holder?, error: failed.bytes().into(), for_ms })
    }
}

fn class_of(error: &CacheError) -> u8 {
    match error {
        CacheError::Timeout => class::TIMEOUT,
        CacheError::Load(error) if error.is::<LoaderPanicked>() => class::PANIC,
        CacheError::Load(error) if LoadTimedOut::is_behind(&**error) => class::TIMEOUT,
        _ => class::LOADER,
    }
}

fn message_of(error: &CacheError) -> String {
    match error {
        CacheError::Load(error) => match error.downcast_ref::<LoaderPanicked>() {
            Some(panicked) => panicked.message.clone(),
            None => error.to_string(),
        },
        error => error.to_string(),
    }
}

/// An entry made from what was loaded.
pub(super) struct Made<V> {
    pub(super) header: Header,
    pub(super) value: Option<Arc<V>>,
    /// To be stored; `None`: not to be.
    pub(super) bytes: Option<Bytes>,
    pub(super) weight: usize,
    /// Whether a copy may be kept in process.
    pub(super) cacheable: bool,
}

impl<K, V: 'static> Inner<K, V> {
    /// The entry of what was loaded from `born` on, and whether and where it may lie.
    pub(super) fn make(
        &self,
        key: &[u8],
        loaded: Loaded<V>,
        id: tidegate_core::cache::EntryId,
        born: Millis,
        cost_us: u32,
        tags: Vec<TagStamp>,
    ) -> Made<V> {
        let life = &self.knobs.life;
        let stamp = match loaded.value {
            Some(_) => Some(life.of_value(born, chance())),
            None => life.of_absence(born, chance()),
        };
        let unstored = Stamp { born, soft: born, hard: born };
        let (version, schema) = (loaded.version, self.knobs.schema);
        let header = Header { id, version, schema, stamp: stamp.unwrap_or(unstored), cost_us, tags };
        let cacheable = loaded.cacheable && stamp.is_some();
        let Some(value) = loaded.value else {
            let bytes = cacheable.then(|| header.absent(key).into());
            return Made { header, value: None, bytes, weight: 0, cacheable };
        };
        let (bytes, weight) = if cacheable { self.encode(key, &header, &value) } else { (None, 0) };
        let cacheable = cacheable && weight > 0;
        Made { header, value: Some(Arc::new(value)), bytes, weight, cacheable }
    }

    /// The bytes to store, unless they are too many, and the weight in process; 0: it cannot be encoded.
    fn encode(&self, key: &[u8], header: &Header, value: &V) -> (Option<Bytes>, usize) {
        let plain = match self.codec.encode(value) {
            Ok(plain) => plain,
            Err(error) => {
                tracing::warn!(namespace = %self.namespace, %error, "a value cannot be encoded and is not cached");
                return (None, 0);
            }
        };
        let weight = plain.len().max(1);
        let (packing, payload) = pack(plain, self.knobs.compress_above);
        if payload.len() > self.knobs.max_value || weight > super::codec::MAX_PAYLOAD_BYTES {
            self.metrics.counts.oversize.one();
            if self.memory.reports(key) {
                let (bytes, most) = (payload.len(), self.knobs.max_value);
                tracing::warn!(namespace = %self.namespace, bytes, most, key = %KeyHash(key),
                    "a value is too large for the store");
            }
            return (None, weight);
        }
        (Some(header.value(key, CodecNumber(self.codec.number()), packing, &payload).into()), weight)
    }
}
