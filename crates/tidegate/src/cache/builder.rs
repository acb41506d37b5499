//! The knobs of one cache.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::cache::{Key, Life, Ttl};

use super::caches::Caches;
use super::codec::{Codec, Json, MAX_PAYLOAD_BYTES};
use super::errors::CacheError;
use super::handle::Cache;
use super::hot::MAX_HOT_KEYS;
use super::loader::{Loader, erase};
use super::membership::{Membership, Plan};
use super::space::{Inner, Knobs, LocalKnob, TagsOf};

/// Sets up a [`Cache`]. What is not said has the default that its method names.
pub struct CacheBuilder<K, V, C = Json> {
    caches: Caches,
    namespace: Arc<str>,
    codec: C,
    knobs: Knobs,
    tags: Option<TagsOf<K>>,
    membership: Option<Plan>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V, C> CacheBuilder<K, V, C> {
    pub(super) fn new(caches: Caches, namespace: &str, codec: C, types: PhantomData<fn(K) -> V>) -> Self {
        let knobs = Knobs { hot_keys: caches.hub.hot_keys, ..Knobs::default() };
        Self { caches, namespace: namespace.into(), codec, knobs, tags: None, membership: None, types }
    }

    /// Of the value's type, 0 by default: binaries with different numbers never see each other's values, and an
    /// invalidation reaches all of them. Up to four numbers can be in use at a time.
    #[must_use]
    pub fn schema(mut self, schema: u32) -> Self {
        self.knobs.schema = schema;
        self
    }

    /// A value is fresh for so long from the start of its load; 60 s by default.
    #[must_use]
    pub fn fresh_for(mut self, ttl: Ttl) -> Self {
        self.knobs.life.fresh_for = ttl;
        self
    }

    /// After that it may be served for so long, marked as stale, while one refresh runs, when loads fail or are not
    /// admitted, and when the store is away; never by default.
    #[must_use]
    pub fn stale_for(mut self, ttl: Ttl) -> Self {
        self.knobs.life.stale_for = Some(ttl);
        self
    }

    /// "There is none" is believed for so long; not stored by default.
    #[must_use]
    pub fn absent_for(mut self, ttl: Ttl) -> Self {
        self.knobs.life.absent_for = Some(ttl);
        self
    }

    /// The part of `fresh_for` and `absent_for` that chance may take away, 0.0 to 0.9; 0.1 by default.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.knobs.life.jitter = part;
        self
    }

    /// How eagerly a value that is read often is refreshed before its time; 0 is never, 1 the default.
    #[must_use]
    pub fn early_refresh(mut self, eagerness: f64) -> Self {
        self.knobs.life.early_refresh = eagerness;
        self
    }

    /// Loads of this cache at once in this process, within that of all caches; the same by default.
    #[must_use]
    pub fn load_budget(mut self, loads: usize) -> Self {
        self.knobs.load_budget = Some(loads);
        self
    }

    /// Loads of this cache a second in this process; no bound by default.
    #[must_use]
    pub fn load_rate(mut self, loads: NonZeroU32) -> Self {
        self.knobs.load_rate = Some(loads);
        self
    }

    /// After `soft` a reader that could have an older value gets it, while the load goes on; after `hard` the load has
    /// failed. 1 s and 10 s by default.
    #[must_use]
    pub fn load_timeout(mut self, soft: Duration, hard: Duration) -> Self {
        self.knobs.soft_timeout = soft;
        self.knobs.hard_timeout = hard;
        self
    }

    /// Life of a lease and of a refresh, renewed at a third of it while the load runs: if the process dies, others wait
    /// for so long at most. 2 s by default.
    #[must_use]
    pub fn lease(mut self, ttl: Ttl) -> Self {
        self.knobs.lease_ms = ttl.as_millis();
        self
    }

    /// How long a version that was invalidated or put is remembered, so that nothing older is stored; 60 s by default.
    #[must_use]
    pub fn keep_floor(mut self, ttl: Ttl) -> Self {
        self.knobs.keep_floor_ms = ttl.as_millis();
        self
    }

    /// Longest stored payload, bytes, at most [`MAX_PAYLOAD_BYTES`]; 256 KiB by default. A longer one is not stored, only kept in
    /// process if that has room.
    #[must_use]
    pub fn max_value(mut self, bytes: usize) -> Self {
        self.knobs.max_value = bytes;
        self
    }

    /// The in-process level: its bytes, and the longest life of a copy. By default a quarter of all in-process bytes, or
    /// what is left of them, and 60 s.
    #[must_use]
    pub fn local(mut self, bytes: usize, life: Ttl) -> Self {
        self.knobs.local = LocalKnob::Of { bytes: Some(bytes), life_ms: life.as_millis() };
        self
    }

    /// The longest life of a copy in process, 60 s by default.
    #[must_use]
    pub fn local_for(mut self, life: Ttl) -> Self {
        let bytes = match self.knobs.local {
            LocalKnob::Of { bytes, .. } => bytes,
            LocalKnob::Off => None,
        };
        self.knobs.local = LocalKnob::Of { bytes, life_ms: life.as_millis() };
        self
    }

    /// No in-process level.
    #[must_use]
    pub fn no_local(mut self) -> Self {
        self.knobs.local = LocalKnob::Off;
        self
    }

    /// Payloads longer than this are compressed (LZ4), unless that does not help; 1 KiB by default.
    #[must_use]
    pub fn compress_above(mut self, bytes: usize) -> Self {
        self.knobs.compress_above = bytes;
        self
    }

    /// How many of the keys that are read most are known, at most [`super::MAX_HOT_KEYS`]; as many as
    /// [`super::CachesBuilder::hot_keys`] says by default (1,000), 0 is none.
    /// What is hot is not evicted from the in-process level by what is read once (a quarter of its bytes at most),
    /// is refreshed before it turns stale, and is saved, so that it is brought back after a start or a flush of the store.
    #[must_use]
    pub fn hot_keys(mut self, keys: usize) -> Self {
        self.knobs.hot_keys = keys;
        self
    }

    /// How values become bytes; [`Json`] by default. Another codec needs another schema number.
    #[must_use]
    pub fn codec<D: Codec<V>>(self, codec: D) -> CacheBuilder<K, V, D> {
        let Self { caches, namespace, codec: _, knobs, tags, membership, types } = self;
        CacheBuilder { caches, namespace, codec, knobs, tags, membership, types }
    }

    /// The tags of a key, at most 16: [`Cache::invalidate_tag`] makes old all that carry one.
    #[must_use]
    pub fn tags(mut self, tags: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.tags = Some(Box::new(tags));
        self
    }
}

impl<K: Key + Clone + Send + Sync + 'static, V, C> CacheBuilder<K, V, C> {
    /// Ids that surely do not exist are answered "there is none" without a load; none by default. Every process that uses
    /// the namespace must say so, with the same rate; one that only writes may say [`Membership::additions_only`].
    #[must_use]
    pub fn membership(mut self, membership: Membership<K>) -> Self {
        self.membership = Some(membership.plan());
        self
    }
}

impl<K, V, C> CacheBuilder<K, V, C>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
    C: Codec<V>,
{
    /// Builds the cache with what loads its values: a [`Loader`] or a closure.
    ///
    /// # Errors
    /// [`CacheError::Configuration`]: a setting is out of its bounds, or the namespace has a cache in this process.
    pub fn loader(self, loader: impl Loader<K, V>) -> Result<Cache<K, V>, CacheError> {
        self.knobs.check(&self.namespace).map_err(CacheError::Configuration)?;
        let inner = Inner::build(
            &self.caches.hub,
            self.namespace,
            self.knobs,
            Box::new(self.codec),
            self.tags,
            erase(loader),
            self.membership,
        )?;
        inner.begin_warm();
        Ok(Cache { inner, owner: self.caches.owner })
    }
}

impl Knobs {
    fn check(&self, namespace: &str) -> Result<(), String> {
        let Life { jitter, early_refresh, .. } = self.life;
        let good = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
        if !(1..=64).contains(&namespace.len()) || !namespace.bytes().all(good) {
            return Err(format!("the name of a cache is 1 to 64 of a-z 0-9 . _ -, not {namespace:?}"));
        }
        if !(0.0..=0.9).contains(&jitter) {
            return Err(format!("{namespace}: jitter is 0.0 to 0.9, not {jitter}"));
        }
        if !(0.0..=1_000.0).contains(&early_refresh) {
            return Err(format!("{namespace}: early_refresh is 0 to 1000, not {early_refresh}"));
        }
        if self.hot_keys > MAX_HOT_KEYS {
            return Err(format!("{namespace}: hot_keys is 0 to {MAX_HOT_KEYS}, not {}", self.hot_keys));
        }
        if self.load_budget == Some(0) {
            return Err(format!("{namespace}: load_budget must be 1 or more"));
        }
        if self.soft_timeout > self.hard_timeout || self.hard_timeout.is_zero() {
            return Err(format!("{namespace}: load_timeout needs soft <= hard and hard > 0"));
        }
        if !(1..=MAX_PAYLOAD_BYTES).contains(&self.max_value) {
            return Err(format!("{namespace}: max_value is 1 to {MAX_PAYLOAD_BYTES} bytes, not {}", self.max_value));
        }
        Ok(())
    }
}

impl<K, V, C> fmt::Debug for CacheBuilder<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder").field("namespace", &self.namespace).field("knobs", &self.knobs).finish()
    }
}
