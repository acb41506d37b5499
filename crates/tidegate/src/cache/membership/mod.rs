//! The membership filter: an id that surely does not exist is answered without a load.
//!
//! - [`Membership`]: the knob. [`IdSource`]: where the ids of all rows come from. [`MembershipHandle`]: add, rebuild, look.
//! - `register`: the filter of a namespace in this process: asks, adds; `recent`: what was added lately. `build`: the task that
//!   builds it anew.
//!
//! # Why nobody who exists is refused
//!
//! Processes share a *state* in the store: the generation that may refuse, and the one that is built. An addition names the
//! state that it believes in; where another is, it does nothing and is made again. So it reaches every generation that is
//! there at that moment.
//!
//! A generation is registered first (its buckets are made before), then its builder waits for `settle`, then it reads all ids
//! from the source, sets their bits, and puts it in the place of the current one. Take an id that was added. If it was added
//! after the registration, its bits were set in this generation. If before, its row was committed before the reading began,
//! because no commit comes later than `settle` after its addition: the reading finds it. An id may also be added *after* its
//! commit, as invalidations do; then no wait is needed: either the commit was before the reading, or the addition was after
//! the registration.
//!
//! Refused is an id only by a generation that was current when the store was asked, all of whose bits were asked at that same
//! moment. A local "no" is only a reason to ask. What is not there lets through: no state, a state of another version, a
//! bucket that was evicted, a store that does not answer. A bucket that is lost stays lost, since additions make none.
//!
//! A failover may lose acknowledged additions. A generation carries what its server called itself when it was registered
//! ([`tidegate_backend::membership`]); under another name it refuses nobody, and it is built anew. A cut-off old master may
//! acknowledge an addition after the new one's generation was registered: each process makes its additions of the last
//! minute again when it sees another server. What remains: the id of such an addition whose process dies before that, until
//! the next rebuild, unless an outbox adds it; and a process that goes on reading a master that was replaced.
//!
//! A filter never costs a value: an answer that either level of the cache has is given without asking it, and what it refuses
//! is not stored.

mod build;
mod recent;
mod register;
mod source;

pub use self::source::IdSource;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::cache::MAX_CACHE_BATCH;
use tidegate_core::Millis;
use tidegate_core::cache::membership::{DEFAULT_FALSE_POSITIVES, FALSE_POSITIVES, MAX_CAPACITY, MIN_CAPACITY, Shape};
use tidegate_core::cache::{Key, Ttl};

use self::build::Builder;
pub(super) use self::register::Register;
use self::source::AnySource;
use super::errors::CacheError;
use super::handle::{Cache, encoded};

/// The membership filter of a cache: how it is kept.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tidegate::cache::{Caches, EmbeddedCache, EmbeddedCacheOptions, LoadContext, Loaded, Membership, Source};
///
/// /// Stands for `SELECT id FROM users WHERE id > ? ORDER BY id LIMIT 1000`.
/// async fn ids_after(after: Option<u64>) -> Result<Vec<u64>, std::io::Error> {
///     Ok((1..=5_000).filter(|id| after.is_none_or(|after| *id > after)).take(1_000).collect())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let caches = Caches::builder(Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?)).start()?;
/// let users = caches
///     .cache::<u64, String>("users")
///     .membership(Membership::of(ids_after).settle(Duration::ZERO))
///     .loader(|id: u64, _: LoadContext| async move { Ok::<_, std::io::Error>(Loaded::value(format!("user {id}"))) })?;
/// let filter = users.membership().expect("it was built with one");
/// filter.rebuild().await?; // it is built at the start by itself, too
/// assert_eq!(users.get(&7_000_000).await?.source, Source::Filter);
/// filter.add(&7_000_000).await?; // before the commit of a new row
/// assert_eq!(users.get(&7_000_000).await?.source, Source::Load);
/// # caches.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Membership<K> {
    plan: Plan,
    types: std::marker::PhantomData<fn(K)>,
}

/// The same without the type of the ids.
#[derive(Clone)]
pub(super) struct Plan {
    source: Option<Arc<dyn AnySource>>,
    capacity: u64,
    false_positives: f64,
    rebuild_every: Duration,
    settle: Duration,
    mutant: Option<Mutant>,
}

/// Ways to break the filter on purpose, to see that the tests notice.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// A builder reads the ids before it registers its generation.
    ReadsFirst,
    /// A builder makes its generation current whatever happened meanwhile.
    SwapsBlindly,
    /// A bucket that is not there is taken for an empty one.
    MissingIsEmpty,
    /// A filter refuses on whatever server it is found.
    TrustsAnyServer,
}

impl<K: Key + Clone + Send + Sync + 'static> Membership<K> {
    /// A filter of the ids that `source` gives.
    #[must_use]
    pub fn of(source: impl IdSource<K>) -> Self {
        Self::with(Some(source::erase(source)))
    }

    /// No filter is kept by this process, and none is asked: what it writes is added to those of others. For a process that
    /// writes rows whose readers have a filter.
    #[must_use]
    pub fn additions_only() -> Self {
        Self::with(None)
    }

    fn with(source: Option<Arc<dyn AnySource>>) -> Self {
        let plan = Plan {
            source,
            capacity: 1_000_000,
            false_positives: DEFAULT_FALSE_POSITIVES,
            rebuild_every: Duration::from_secs(86_400),
            settle: Duration::from_secs(30),
            mutant: None,
        };
        Self { plan, types: std::marker::PhantomData }
    }

    /// How many ids it is made for, 1,000 to 20 million; a million by default. It takes 2.4 bytes an id at the default rate,
    /// twice that while it is built anew. With more ids than this it is built anew, larger.
    #[must_use]
    pub fn capacity(mut self, ids: u64) -> Self {
        self.plan.capacity = ids;
        self
    }

    /// The part of unknown ids that it lets through when it is full, 0.000001 to 0.1; 0.0001 by default.
    #[must_use]
    pub fn false_positives(mut self, part: f64) -> Self {
        self.plan.false_positives = part;
        self
    }

    /// It is built anew after this, less up to a tenth; a day by default. Only this forgets ids of deleted rows.
    #[must_use]
    pub fn rebuild_every(mut self, period: Ttl) -> Self {
        self.plan.rebuild_every = period.as_duration();
        self
    }

    /// The longest time from [`MembershipHandle::add`] until the commit can be seen by the source; 30 s by default. A row that
    /// is committed later than that after its addition may be refused until the next rebuild. Zero is right where ids are only
    /// added after their commit: by [`Cache::invalidate`], [`Cache::put`], or an outbox.
    #[must_use]
    pub fn settle(mut self, longest: Duration) -> Self {
        self.plan.settle = longest;
        self
    }

    /// Breaks it on purpose.
    #[doc(hidden)]
    #[must_use]
    pub fn mutant(mut self, mutant: Mutant) -> Self {
        self.plan.mutant = Some(mutant);
        self
    }

    pub(super) fn plan(self) -> Plan {
        self.plan
    }
}

impl<K> fmt::Debug for Membership<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan.fmt(f)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("capacity", &self.capacity)
            .field("false_positives", &self.false_positives)
            .field("rebuild_every", &self.rebuild_every)
            .field("settle", &self.settle)
            .finish_non_exhaustive()
    }
}

impl Plan {
    pub(super) fn check(&self) -> Result<(), String> {
        if !(MIN_CAPACITY..=MAX_CAPACITY).contains(&self.capacity) {
            return Err(format!(
                "a membership filter is made for {MIN_CAPACITY} to {MAX_CAPACITY} ids, not {}",
                self.capacity
            ));
        }
        if !FALSE_POSITIVES.contains(&self.false_positives) {
            return Err(format!(
                "a membership filter lets through the part 0.000001 to 0.1 of unknown ids, not {}",
                self.false_positives
            ));
        }
        Ok(())
    }

    /// How long a generation is kept if nobody replaces it.
    fn keep(&self) -> Duration {
        self.rebuild_every.saturating_mul(2) + Duration::from_secs(86_400)
    }

    fn shape(&self, capacity: u64) -> Shape {
        Shape::of(capacity, self.false_positives)
    }
}

/// What a membership filter is at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct MembershipStatus {
    /// It may refuse: it holds every id. False: everything is let through until it was built.
    pub complete: bool,
    /// Number of its generation; 0: there is none.
    pub generation: u64,
    /// When that was begun, on the store's clock.
    pub begun: Millis,
    /// Ids in it, about; 0: not known.
    pub ids: u64,
    /// Ids it was made for.
    pub capacity: u64,
    /// The part of unknown ids that it lets through now, by its ids.
    pub false_positives: f64,
    /// Bytes of it in the store.
    pub bytes: u64,
    /// Bytes of what this process knows of it.
    pub local_bytes: usize,
    /// Another generation is being built.
    pub building: bool,
}

/// The membership filter of a cache: from [`Cache::membership`].
pub struct MembershipHandle<K, V> {
    cache: Cache<K, V>,
    register: Arc<Register>,
}

impl<K, V> Cache<K, V> {
    /// Its membership filter; `None` unless it was built with one.
    #[must_use]
    pub fn membership(&self) -> Option<MembershipHandle<K, V>> {
        let register = Arc::clone(self.inner.register.as_ref()?);
        Some(MembershipHandle { cache: self.clone(), register })
    }
}

impl<K, V> MembershipHandle<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Says that `key` will exist: call it *before* the commit of its row. From then on no process refuses it. If nothing
    /// comes of the commit, the id is let through until the next rebuild, no more.
    ///
    /// # Errors
    /// [`CacheError::Store`]: it was not added. Do not commit; or commit and call [`Cache::invalidate`] until it returns:
    /// until then the row may be refused.
    pub async fn add(&self, key: &K) -> Result<(), CacheError> {
        self.add_many(std::slice::from_ref(key)).await
    }

    /// The same for many.
    ///
    /// # Errors
    /// As [`MembershipHandle::add`]: any of them may not have been added.
    pub async fn add_many(&self, keys: &[K]) -> Result<(), CacheError> {
        for part in keys.chunks(MAX_CACHE_BATCH) {
            let ids = part.iter().map(encoded).collect::<Result<Vec<_>, _>>()?;
            self.register.add(&ids).await.map_err(CacheError::store)?;
        }
        Ok(())
    }

    /// Builds a new generation now, from a reading of the source that begins after this call ([`Membership::settle`] after it),
    /// and returns once it is current. If another process builds, it is waited for first.
    ///
    /// # Errors
    /// [`CacheError::Configuration`]: there is no source. [`CacheError::Load`]: the source failed; [`CacheError::Store`]: the
    /// store did. The filter is what it was.
    pub async fn rebuild(&self) -> Result<(), CacheError> {
        let Some(builder) = Builder::of(&self.register) else {
            let why = format!("{}: its membership filter has no source of ids here", self.cache.namespace());
            return Err(CacheError::Configuration(why));
        };
        builder.now().await
    }

    /// What it is now, by the store.
    ///
    /// # Errors
    /// [`CacheError::Store`]: it does not answer.
    pub async fn status(&self) -> Result<MembershipStatus, CacheError> {
        self.register.status().await.map_err(CacheError::store)
    }
}

impl<K, V> fmt::Debug for MembershipHandle<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MembershipHandle").field("cache", &self.cache).finish_non_exhaustive()
    }
}
