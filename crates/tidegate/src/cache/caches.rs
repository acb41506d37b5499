//! [`Caches`]: what the caches of a process share, and where they are made.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_backend::CacheStore;
use tokio::runtime::Handle;

use super::builder::CacheBuilder;
use super::codec::Json;
use super::errors::CacheError;
use super::hot::{DEFAULT_HOT_KEYS, MAX_HOT_KEYS};
use super::hub::{Hub, HubOptions, Owner};
use super::ticks::Ticks;

/// Loads at once in a process, if not said otherwise.
pub const DEFAULT_LOAD_BUDGET: usize = 64;
/// Bytes of all in-process levels together, if not said otherwise.
pub const DEFAULT_LOCAL_BYTES: usize = 64 << 20;

/// The caches of a process on one store. Cheap to clone. The tasks of its own end with [`Caches::close`], or when the last
/// handle of it and of its caches is dropped.
#[derive(Clone)]
pub struct Caches {
    pub(super) hub: Arc<Hub>,
    pub(super) owner: Arc<Owner>,
}

impl Caches {
    /// Begins to set up caches on `store`.
    #[must_use]
    pub fn builder(store: Arc<dyn CacheStore>) -> CachesBuilder {
        CachesBuilder {
            store,
            load_budget: DEFAULT_LOAD_BUDGET,
            load_rate: None,
            local_bytes: DEFAULT_LOCAL_BYTES,
            tokio_time: false,
            hot_file: None,
            hot_keys: DEFAULT_HOT_KEYS,
            mutant_joins_old_flights: false,
        }
    }

    /// Begins to set up the cache of `namespace`: 1 to 64 of `a-z 0-9 . _ -`; one a process. Every process that uses the
    /// namespace should give it the same settings.
    #[must_use]
    pub fn cache<K, V>(&self, namespace: &str) -> CacheBuilder<K, V, Json> {
        CacheBuilder::new(self.clone(), namespace, Json, PhantomData)
    }

    /// Whether the store keeps membership filters.
    pub(crate) fn keep_membership(&self) -> bool {
        self.hub.store.store.membership().is_some()
    }

    /// Bytes of in-process levels that no cache has taken yet.
    #[must_use]
    pub fn local_bytes_left(&self) -> usize {
        self.hub.local_bytes_left()
    }

    /// The store may have lost entries, by a restart, a flush or evictions: those that are read most are looked for now, and what the store
    /// lacks of them is loaded, as after notices that were missed. Caches find most such losses themselves; this is for whoever hears
    /// of one earlier, such as a watch.
    pub fn rewarm(&self) {
        self.hub.each_space(|space| space.rewarm());
    }

    /// Ends the tasks: loads that run are dropped, whoever waits for them is told [`CacheError::Stopping`]; then closes the
    /// store. Takes at most 5 s and what the store takes.
    pub async fn close(&self) {
        self.hub.close().await;
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.hub.store.store.capabilities();
        f.debug_struct("Caches").field("store", &store).field("stopping", &self.hub.is_stopping()).finish()
    }
}

/// Sets up [`Caches`].
pub struct CachesBuilder {
    store: Arc<dyn CacheStore>,
    load_budget: usize,
    load_rate: Option<NonZeroU32>,
    local_bytes: usize,
    tokio_time: bool,
    hot_file: Option<PathBuf>,
    hot_keys: usize,
    mutant_joins_old_flights: bool,
}

impl CachesBuilder {
    /// Loads at once in this process, all caches together; 1 or more, [`DEFAULT_LOAD_BUDGET`] if not given.
    #[must_use]
    pub fn load_budget(mut self, loads: usize) -> Self {
        self.load_budget = loads;
        self
    }

    /// Loads a second in this process, all caches together; no bound if not given.
    #[must_use]
    pub fn load_rate(mut self, loads: NonZeroU32) -> Self {
        self.load_rate = Some(loads);
        self
    }

    /// Bytes of all in-process levels together; [`DEFAULT_LOCAL_BYTES`] if not given. 0: no in-process levels.
    #[must_use]
    pub fn local_bytes(mut self, bytes: usize) -> Self {
        self.local_bytes = bytes;
        self
    }

    /// The file in which the keys that are read most are kept for the next start (in a folder that exists), for a store
    /// that ends with the process. Without one the store keeps them, if it outlives the process.
    #[must_use]
    pub fn hot_keys_in(mut self, file: impl Into<PathBuf>) -> Self {
        self.hot_file = Some(file.into());
        self
    }

    /// How many of the keys that are read most each cache knows and brings back, at most [`MAX_HOT_KEYS`], unless
    /// [`CacheBuilder::hot_keys`] says otherwise; [`DEFAULT_HOT_KEYS`] if not given, 0 is none.
    #[must_use]
    pub fn hot_keys(mut self, keys: usize) -> Self {
        self.hot_keys = keys;
        self
    }

    /// Takes the time from Tokio's clock, which a test can pause. Dearer at each hit.
    #[must_use]
    pub fn tokio_time(mut self) -> Self {
        self.tokio_time = true;
        self
    }

    /// Breaks the cache on purpose, to see that the tests notice: readers take what a load gave even if it began before
    /// they asked and was invalidated meanwhile.
    #[doc(hidden)]
    #[must_use]
    pub fn mutant_joins_old_flights(mut self) -> Self {
        self.mutant_joins_old_flights = true;
        self
    }

    /// Starts the tasks of its own on the current Tokio runtime.
    ///
    /// # Errors
    /// [`CacheError::Configuration`]: a budget of 0, too many hot keys, or not called in a Tokio runtime.
    pub fn start(self) -> Result<Caches, CacheError> {
        if !(1..=tokio::sync::Semaphore::MAX_PERMITS).contains(&self.load_budget) {
            return Err(CacheError::Configuration("load_budget must be 1 or more".to_owned()));
        }
        if self.hot_keys > MAX_HOT_KEYS {
            let why = format!("hot_keys is 0 to {MAX_HOT_KEYS}, not {}", self.hot_keys);
            return Err(CacheError::Configuration(why));
        }
        let runtime = Handle::try_current().map_err(|_| {
            CacheError::Configuration("start caches within a Tokio runtime: their loads run there".to_owned())
        })?;
        let options = HubOptions {
            load_budget: self.load_budget,
            load_rate: self.load_rate,
            local_bytes: self.local_bytes,
            ticks: if self.tokio_time { Ticks::tokio() } else { Ticks::coarse() },
            hot_file: self.hot_file,
            hot_keys: self.hot_keys,
            mutant_joins_old_flights: self.mutant_joins_old_flights,
        };
        let hub = Hub::start(self.store, options, runtime);
        Ok(Caches { owner: Arc::new(Owner(Arc::clone(&hub))), hub })
    }
}

impl fmt::Debug for CachesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachesBuilder").field("load_budget", &self.load_budget).finish_non_exhaustive()
    }
}
