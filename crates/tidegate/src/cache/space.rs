//! One cache's insides: its settings, its in-process level, its flights, and how stored bytes become something to serve.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::{CacheKey, CacheNotice};
use tidegate_core::Millis;
use tidegate_core::cache::entry::MAX_TAGS;
use tidegate_core::cache::{Entry, EntryId, Freshness, Header, Key, Life, TagStamp, Ttl};
use tidegate_core::hot::Report;

use super::codec::{Codec, unpack};
use super::crowd::Askers;
use super::errors::{CacheError, LoadFailed, LoaderPanicked};
use super::flight::Flights;
use super::governor::Gate;
use super::guard::Down;
use super::hot::Hot;
use super::hub::{Hub, Space};
use super::loader::AnyLoader;
use super::local::{Kept, Local};
use super::membership::{Plan, Register};
use super::memory::Memory;
use super::metrics::{CacheStats, Metrics};
use super::owed::Owed;
use super::tags::TagCells;

/// How far two processes' ideas of the store's clock may differ, milliseconds.
const CLOCK_SLACK_MS: i64 = 2_000;
/// The unluckiest draw of an early refresh is so many times the load's cost ahead: -ln(1e-12).
pub(super) const EARLIEST: f64 = 27.7;
/// Tags' counters outlive the entries that carry them by this, milliseconds.
const TAGS_KEPT_LONGER_MS: i64 = 600_000;

/// What a stored failure says it was.
pub(super) mod class {
    pub(crate) const LOADER: u8 = 0;
    pub(crate) const TIMEOUT: u8 = 1;
    pub(crate) const PANIC: u8 = 2;
}

pub(super) type TagsOf<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

#[derive(Debug, Clone, Copy)]
pub(super) enum LocalKnob {
    Off,
    Of { bytes: Option<usize>, life_ms: i64 },
}

/// The settings of one cache. [`super::CacheBuilder`] says what each means.
#[derive(Debug, Clone)]
pub(super) struct Knobs {
    pub(super) schema: u32,
    pub(super) life: Life,
    pub(super) load_budget: Option<usize>,
    pub(super) load_rate: Option<NonZeroU32>,
    pub(super) soft_timeout: Duration,
    pub(super) hard_timeout: Duration,
    pub(super) lease_ms: i64,
    pub(super) keep_floor_ms: i64,
    pub(super) max_value: usize,
    pub(super) compress_above: usize,
    pub(super) local: LocalKnob,
    pub(super) hot_keys: usize,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            schema: 0,
            life: Life {
                fresh_for: Ttl::seconds::<60>(),
                stale_for: None,
                absent_for: None,
                jitter: 0.1,
                early_refresh: 1.0,
            },
            load_budget: None,
            load_rate: None,
            soft_timeout: Duration::from_secs(1),
            hard_timeout: Duration::from_secs(10),
            lease_ms: 2_000,
            keep_floor_ms: 60_000,
            max_value: 256 << 10,
            compress_above: 1 << 10,
            local: LocalKnob::Of { bytes: None, life_ms: 60_000 },
            hot_keys: super::hot::DEFAULT_HOT_KEYS,
        }
    }
}

pub(super) struct Inner<K, V> {
    pub(super) hub: Arc<Hub>,
    pub(super) namespace: Arc<str>,
    pub(super) knobs: Knobs,
    pub(super) codec: Box<dyn Codec<V>>,
    tags: Option<TagsOf<K>>,
    pub(super) loader: Arc<dyn AnyLoader<K, V>>,
    pub(super) local: Option<Local<V>>,
    local_bytes: usize,
    pub(super) flights: Arc<Flights<V>>,
    pub(super) gate: Arc<Gate>,
    pub(super) cells: TagCells,
    pub(super) memory: Memory,
    pub(super) owed: Owed,
    pub(super) askers: Askers,
    pub(super) hot: Hot<K>,
    pub(super) metrics: Metrics,
    /// Its membership filter.
    pub(super) register: Option<Arc<Register>>,
}

/// What lies under a key in the store.
pub(super) enum Seen<V> {
    Nothing,
    /// A value or an absence that may be served if its tags are current; whether it is stale.
    Usable(Kept<V>, bool, Vec<TagStamp>),
    /// Somebody loads it, under this lease; or nobody may yet for a moment.
    Leased(Option<EntryId>),
    /// Nobody may load it yet.
    Failed(CacheError),
    /// Bytes of no use: garbage, another schema's, past their life, or older than what this process has committed.
    Unusable,
}

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    pub(super) fn build(
        hub: &Arc<Hub>,
        namespace: Arc<str>,
        knobs: Knobs,
        codec: Box<dyn Codec<V>>,
        tags: Option<TagsOf<K>>,
        loader: Arc<dyn AnyLoader<K, V>>,
        membership: Option<Plan>,
    ) -> Result<Arc<Self>, CacheError> {
        let register = membership.map(|plan| Register::new(hub, &namespace, plan)).transpose();
        let register = register.map_err(CacheError::Configuration)?;
        let hot = Hot::new(knobs.hot_keys, hub.ticks.now());
        let (local, local_bytes) = match knobs.local {
            LocalKnob::Off => (None, 0),
            LocalKnob::Of { bytes, life_ms } => {
                let taken = hub.take_local(bytes, hub.local_bytes / 4)?;
                ((taken > 0).then(|| Local::new(taken, life_ms, hot.pins())), taken)
            }
        };
        let budget = knobs.load_budget.unwrap_or(tokio::sync::Semaphore::MAX_PERMITS);
        let inner = Arc::new(Self {
            hub: Arc::clone(hub),
            gate: Arc::new(Gate::new(budget, knobs.load_rate, hub.ticks)),
            metrics: Metrics::new(&namespace),
            codec,
            tags,
            loader,
            local,
            local_bytes,
            flights: Arc::new(Flights::new()),
            cells: TagCells::default(),
            memory: Memory::new(),
            owed: Owed::default(),
            askers: Askers::default(),
            register,
            hot,
            namespace,
            knobs,
        });
        let space: Arc<dyn Space> = Arc::clone(&inner) as _;
        let space: Weak<dyn Space> = Arc::downgrade(&space);
        hub.add(&inner.namespace, space)?;
        Ok(inner)
    }
}

impl<K, V: 'static> Inner<K, V> {
    pub(super) fn cache_key(&self, key: &Bytes) -> CacheKey {
        CacheKey { namespace: Arc::clone(&self.namespace), schema: self.knobs.schema, key: key.clone() }
    }

    pub(super) fn gates(&self) -> [&Arc<Gate>; 2] {
        [&self.gate, &self.hub.gate]
    }

    pub(super) fn generation(&self, key: &[u8]) -> u64 {
        self.local.as_ref().map_or(0, |local| local.generation(key))
    }

    /// Keeps a copy in process if its tags are known and nothing was heard since `generation`.
    pub(super) fn keep(&self, key: &Bytes, kept: &Kept<V>, stamps: &[TagStamp], generation: u64) {
        let Some(local) = &self.local else { return };
        let tags = if stamps.is_empty() { Some(None) } else { self.cells.tie(stamps).map(Some) };
        if let Some(tags) = tags {
            local.keep(key, Kept { tags, ..kept.clone() }, generation);
        }
    }

    /// Reads what the store gave for `key`; `as_of`: before it was asked.
    pub(super) fn see(&self, key: &[u8], bytes: Option<&[u8]>, as_of: i64) -> Seen<V> {
        let Some(bytes) = bytes else { return Seen::Nothing };
        if self.owed.in_store(key).is_some() {
            return Seen::Unusable;
        }
        match Entry::read(bytes, key, self.knobs.schema) {
            Ok(Entry::Lease(token)) => Seen::Leased(Some(token)),
            Ok(Entry::Failed(failed)) => {
                let left = failed.retry_at.since(self.hub.store.store.now());
                if left <= 0 {
                    return Seen::Leased(None);
                }
                Seen::Failed(self.memory.own_error(key, failed.id).unwrap_or_else(|| {
                    let retry_after = Duration::from_millis(left.unsigned_abs());
                    match failed.class {
                        class::TIMEOUT => CacheError::Timeout,
                        class::PANIC => CacheError::load(LoaderPanicked { message: failed.message }),
                        _ => CacheError::load(LoadFailed { message: failed.message, retry_after }),
                    }
                }))
            }
            Ok(Entry::Absent(header)) => self.usable(header, None, bytes.len(), as_of),
            Ok(Entry::Value { header, codec, packing, payload }) => {
                let decode = |plain: &[u8]| self.codec.decode(plain).ok();
                let value = (codec.0 == self.codec.number()).then(|| unpack(packing, payload, decode)).flatten();
                match value {
                    Some(value) => self.usable(header, Some(Arc::new(value)), payload.len(), as_of),
                    None => Seen::Unusable,
                }
            }
            Err(_) => Seen::Unusable,
        }
    }

    fn usable(&self, header: Header, value: Option<Arc<V>>, weight: usize, as_of: i64) -> Seen<V> {
        let now = self.hub.store.store.now();
        match header.stamp.freshness(now, CLOCK_SLACK_MS) {
            Freshness::Dead => Seen::Unusable,
            // An absence has no stale life, only a clock that was set back.
            Freshness::Stale if value.is_none() => Seen::Unusable,
            freshness => {
                let stale = freshness == Freshness::Stale;
                let kept = self.kept(&header, value, weight, as_of, now, stale);
                Seen::Usable(kept, stale, header.tags)
            }
        }
    }

    /// A copy of an entry by the process' own clock; `now` is the store's.
    pub(super) fn kept(
        &self,
        header: &Header,
        value: Option<Arc<V>>,
        weight: usize,
        as_of: i64,
        now: Millis,
        stale: bool,
    ) -> Kept<V> {
        let here = self.hub.ticks.now();
        let at = |instant: Millis| here.saturating_add(instant.0.saturating_sub(now.0));
        let cost_ms = header.cost_us as f32 / 1_000.0;
        let hard = at(header.stamp.hard);
        let soft = if stale { here.min(at(header.stamp.soft)) } else { at(header.stamp.soft) };
        let ahead = f64::from(cost_ms) * self.knobs.life.early_refresh * EARLIEST;
        Kept {
            value,
            as_of,
            born: at(header.stamp.born).min(here),
            soft,
            hard,
            until: hard,
            quiet: soft.saturating_sub(ahead.ceil() as i64),
            id: header.id,
            version: header.version,
            cost_ms,
            weight: u32::try_from(weight).unwrap_or(u32::MAX),
            tags: None,
        }
    }

    /// The hashes of a key's tags.
    pub(super) fn tag_hashes(&self, key: &K) -> Result<Vec<u64>, CacheError> {
        let Some(tags) = &self.tags else { return Ok(Vec::new()) };
        let mut hashes: Vec<u64> = tags(key).iter().map(|tag| TagStamp::hash(tag)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.len() > MAX_TAGS {
            return Err(CacheError::Configuration(format!(
                "{}: a key has {} tags and an entry takes {MAX_TAGS}",
                self.namespace,
                hashes.len()
            )));
        }
        Ok(hashes)
    }

    /// How long the store must keep the counters of tags.
    pub(super) fn keep_tags(&self) -> Duration {
        let ms = self.knobs.life.longest_ms().saturating_add(TAGS_KEPT_LONGER_MS);
        Duration::from_millis(ms.unsigned_abs()) + self.knobs.hard_timeout
    }

    /// The counters of tags now, from the store.
    pub(super) async fn stamps(&self, hashes: &[u64]) -> Result<Vec<TagStamp>, Down> {
        if hashes.is_empty() {
            return Ok(Vec::new());
        }
        let epoch = self.cells.epoch();
        let counters = self.hub.store.tags(&self.namespace, hashes, self.keep_tags()).await?;
        let stamps: Vec<_> =
            hashes.iter().zip(counters).map(|(tag, counter)| TagStamp { tag: *tag, counter }).collect();
        self.cells.learn(stamps.iter().copied(), epoch);
        Ok(stamps)
    }

    /// Whether an entry with these stamps is not made old by a tag. `strong`: the store is asked; else what was heard is
    /// believed while the bus is.
    pub(super) async fn are_current(&self, stamps: &[TagStamp], strong: bool) -> Result<bool, Down> {
        if stamps.is_empty() {
            return Ok(true);
        }
        let believes = !strong && self.hub.trusts_copies(self.hub.ticks.now());
        if let Some(current) = believes.then(|| self.cells.judge(stamps)).flatten() {
            return Ok(current);
        }
        let hashes: Vec<u64> = stamps.iter().map(|stamp| stamp.tag).collect();
        Ok(self.stamps(&hashes).await? == stamps)
    }
}

impl<K, V> Inner<K, V> {
    pub(super) fn stats(&self) -> CacheStats {
        let (local_copies, local_bytes) = self.local.as_ref().map_or((0, 0), Local::size);
        let (flights, pinned) = (self.flights.count(), self.hot.pinned());
        CacheStats { flights, local_copies, local_bytes, pinned, ..self.metrics.counts.stats() }
    }

    /// A random id: of a lease, a refresh, a fill.
    pub(super) fn id() -> EntryId {
        EntryId(uuid::Uuid::new_v4().into_bytes())
    }
}

impl<K, V> Space for Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn hear(&self, notice: &CacheNotice) {
        match notice {
            CacheNotice::Invalidated { key, .. } => {
                if let Some(local) = &self.local {
                    local.forget(key);
                }
                self.flights.detach(key);
            }
            CacheNotice::Tag { tag, counter, .. } => self.cells.moved(*tag, *counter),
            CacheNotice::Cleared { .. } => {
                if let Some(local) = &self.local {
                    local.forget_all();
                }
                self.flights.detach_all();
            }
            CacheNotice::Woken { key, .. } => self.flights.wake(key),
            CacheNotice::Gap => self.gap(),
            CacheNotice::Lost => self.rewarm(),
        }
    }

    fn owe(&self, key: &Bytes) {
        self.owed.owe(key);
        // No copy of it is a fallback, either: the database has just answered.
        if let Some(local) = &self.local {
            local.forget(key);
        }
        self.flights.detach(key);
    }

    fn paid(&self, key: &[u8]) {
        self.owed.paid(key);
    }

    fn register(&self) -> Option<Arc<Register>> {
        self.register.clone()
    }

    fn gap(&self) {
        if let Some(register) = &self.register {
            // The store may be another server.
            register.look_soon();
        }
        self.cells.forget();
        if let Some(local) = &self.local {
            local.forget_all();
        }
        self.flights.detach_all();
        self.rewarm();
    }

    fn upkeep(self: Arc<Self>) {
        self.metrics.tell();
        self.tend();
    }

    fn hot_keys(&self) -> Vec<Bytes> {
        self.hot.hottest(self.hot.most, self.hub.ticks.now()).into_iter().map(|hot| hot.encoded).collect()
    }

    fn hot_report(&self) -> Report<CacheKey> {
        self.hot.report(self.hub.ticks.now()).named(|encoded| self.cache_key(&encoded))
    }

    fn rewarm(&self) {
        self.hot.rounds.gap.store(true, Ordering::Relaxed);
    }
}

impl<K, V> Drop for Inner<K, V> {
    fn drop(&mut self) {
        self.metrics.tell();
        self.hub.give_local_back(self.local_bytes);
    }
}
