//! What all caches of a process share: the store and its breaker, the bus, the budget of loads, the tasks.

use std::future::Future;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::{CacheKey, CacheNotice, CacheStore};
use tidegate_core::Map;
use tidegate_core::hot::Report;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::errors::CacheError;
use super::governor::Gate;
use super::guard::Guarded;
use super::hot::list::Lists;
use super::hot::told;
use super::membership::Register;
use super::sink::Sink;
use super::ticks::{COARSE_LAG_MS, Ticks, chance};

/// A bounded read never serves a value for longer than this after its invalidation was acknowledged, milliseconds, however
/// many notices are lost.
pub const STALENESS_BOUND_MS: i64 = 1_000;
/// Between two rounds of upkeep (counters to the recorder).
const UPKEEP: Duration = Duration::from_millis(250);
/// A bus that gives nothing at once is asked again after this.
const EMPTY_BUS_PAUSE: Duration = Duration::from_millis(50);
/// Hot keys are saved so often, half of it more or less.
const SAVE_HOT_KEYS: Duration = Duration::from_secs(30);
/// How long that may take at the end.
const SAVING: Duration = Duration::from_secs(1);
/// How long the tasks have to end.
const CLOSING: Duration = Duration::from_secs(5);

/// A cache as the bus and upkeep see it.
pub(super) trait Space: Send + Sync {
    /// A notice about this namespace.
    fn hear(&self, notice: &CacheNotice);
    /// This process has committed what makes `key` old, and the store does not know it yet.
    fn owe(&self, key: &Bytes);
    /// Now it does.
    fn paid(&self, key: &[u8]);
    /// Its membership filter.
    fn register(&self) -> Option<Arc<Register>>;
    /// Notices were missed.
    fn gap(&self);
    /// Once in a while.
    fn upkeep(self: Arc<Self>);
    /// The encoded keys that are read most, the hottest first.
    fn hot_keys(&self) -> Vec<Bytes>;
    /// What was read most in the last windows.
    fn hot_report(&self) -> Report<CacheKey>;
    /// The store may have lost entries: those that are read most are to be brought back.
    fn rewarm(&self);
}

pub(super) struct Hub {
    pub(super) store: Guarded,
    pub(super) gate: Arc<Gate>,
    pub(super) ticks: Ticks,
    /// In-process copies are known to be within the bound until this instant.
    trusted_until: AtomicI64,
    /// Orders the beginnings of reads and loads.
    sequence: AtomicU64,
    runtime: Handle,
    pub(super) stop: watch::Sender<bool>,
    /// How often notices were missed.
    pub(super) gaps: watch::Sender<u64>,
    /// Every task holds a clone: closed once all have ended.
    running: Mutex<Option<mpsc::Sender<()>>>,
    ended: tokio::sync::Mutex<mpsc::Receiver<()>>,
    spaces: RwLock<Map<Arc<str>, Weak<dyn Space>>>,
    /// Who takes what the outbox says of the feed.
    pub(super) sink: OnceLock<Weak<dyn Sink>>,
    /// What is left for in-process levels, bytes.
    local_left: Mutex<usize>,
    pub(super) local_bytes: usize,
    /// Hot keys as they were saved.
    pub(super) lists: Lists,
    /// How many a cache knows that says nothing of it.
    pub(super) hot_keys: usize,
    /// See `CachesBuilder::mutant_joins_old_flights`.
    pub(super) mutant_joins_old_flights: bool,
}

/// What a hub is started with.
pub(super) struct HubOptions {
    pub(super) load_budget: usize,
    pub(super) load_rate: Option<NonZeroU32>,
    pub(super) local_bytes: usize,
    pub(super) ticks: Ticks,
    pub(super) hot_file: Option<PathBuf>,
    pub(super) hot_keys: usize,
    pub(super) mutant_joins_old_flights: bool,
}

impl Hub {
    /// Starts the tasks of its own on `runtime`.
    pub(super) fn start(store: Arc<dyn CacheStore>, options: HubOptions, runtime: Handle) -> Arc<Self> {
        let (running, ended) = mpsc::channel(1);
        let ticks = options.ticks;
        let hub = Arc::new(Self {
            lists: Lists::new(Arc::clone(&store), options.hot_file),
            hot_keys: options.hot_keys,
            store: Guarded::new(store, ticks),
            gate: Arc::new(Gate::new(options.load_budget, options.load_rate, ticks)),
            ticks,
            trusted_until: AtomicI64::new(i64::MIN),
            sequence: AtomicU64::new(1),
            runtime,
            stop: watch::Sender::new(false),
            gaps: watch::Sender::new(0),
            running: Mutex::new(Some(running)),
            ended: tokio::sync::Mutex::new(ended),
            spaces: RwLock::default(),
            sink: OnceLock::new(),
            local_left: Mutex::new(options.local_bytes),
            local_bytes: options.local_bytes,
            mutant_joins_old_flights: options.mutant_joins_old_flights,
        });
        hub.spawn({
            let hub = Arc::clone(&hub);
            async move { hub.listen().await }
        });
        hub.spawn({
            let hub = Arc::clone(&hub);
            async move {
                loop {
                    tokio::time::sleep(UPKEEP).await;
                    hub.each_space(|space| Arc::clone(space).upkeep());
                }
            }
        });
        hub.spawn({
            let hub = Arc::clone(&hub);
            async move {
                loop {
                    // Processes that were started together do not save together.
                    tokio::time::sleep(SAVE_HOT_KEYS.mul_f64(0.5 + chance())).await;
                    hub.save_hot_keys().await;
                }
            }
        });
        hub.spawn(told::run(Arc::clone(&hub)));
        hub
    }

    /// Runs `work` until it ends or the hub is closed; false: the hub is closed.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(running) = running else { return false };
        let mut stop = self.stop.subscribe();
        self.runtime.spawn(async move {
            tokio::select! {
                () = work => {}
                _ = stop.wait_for(|stopped| *stopped) => {}
            }
            drop(running);
        });
        true
    }

    pub(super) fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Asks every task to end.
    pub(super) fn begin_stop(&self) {
        self.stop.send_replace(true);
        // Nothing is heard any more.
        self.trusted_until.store(i64::MIN, Ordering::Release);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(super) async fn close(&self) {
        self.begin_stop();
        let mut ended = self.ended.lock().await;
        let _ = tokio::time::timeout(CLOSING, ended.recv()).await;
        self.each_space(|space| Arc::clone(space).upkeep());
        let _ = tokio::time::timeout(SAVING, self.save_hot_keys()).await;
        self.store.store.close().await;
    }

    async fn save_hot_keys(&self) {
        let spaces: Vec<_> = {
            let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
            spaces.iter().filter_map(|(name, space)| Some((Arc::clone(name), space.upgrade()?))).collect()
        };
        let lists = spaces.into_iter().map(|(name, space)| (name, space.hot_keys())).collect();
        self.lists.save(lists).await;
    }

    /// The next number of the order in which reads and loads begin.
    pub(super) fn next(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether everything told more than the bound ago has been heard.
    #[inline]
    pub(super) fn trusts_copies(&self, now: i64) -> bool {
        now < self.trusted_until.load(Ordering::Acquire) || self.look_at_bus(now)
    }

    #[cold]
    fn look_at_bus(&self, now: i64) -> bool {
        // `now` was read before: a slow look only makes the answer more careful.
        let silence = i64::try_from(self.store.store.silence().as_millis()).unwrap_or(i64::MAX);
        let left = STALENESS_BOUND_MS - 2 * COARSE_LAG_MS - silence;
        if left <= 0 || self.is_stopping() {
            return false;
        }
        self.trusted_until.fetch_max(now + left, Ordering::AcqRel);
        true
    }

    /// Whether a copy that was right at `as_of` is within the bound whatever was told since.
    pub(super) fn is_within_bound(&self, as_of: i64, now: i64) -> bool {
        now < as_of + STALENESS_BOUND_MS - 2 * COARSE_LAG_MS
    }

    pub(super) fn add(&self, namespace: &Arc<str>, space: Weak<dyn Space>) -> Result<(), CacheError> {
        let mut spaces = self.spaces.write().unwrap_or_else(PoisonError::into_inner);
        if spaces.get(namespace).is_some_and(|space| space.strong_count() > 0) {
            return Err(CacheError::Configuration(format!(
                "a cache named {namespace} exists already in this process; clone its handle, or choose another name"
            )));
        }
        spaces.insert(Arc::clone(namespace), space);
        Ok(())
    }

    /// Takes `wanted` bytes for an in-process level, or what is left of `at_most`.
    pub(super) fn take_local(&self, wanted: Option<usize>, at_most: usize) -> Result<usize, CacheError> {
        let mut left = self.local_left.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = match wanted {
            Some(wanted) if wanted > *left => {
                return Err(CacheError::Configuration(format!(
                    "{wanted} bytes for an in-process level, but {left} of {} are left; raise local_bytes",
                    self.local_bytes
                )));
            }
            Some(wanted) => wanted,
            None => at_most.min(*left),
        };
        *left -= taken;
        Ok(taken)
    }

    /// Bytes that no cache has taken.
    pub(super) fn local_bytes_left(&self) -> usize {
        *self.local_left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cache is gone with its level.
    pub(super) fn give_local_back(&self, bytes: usize) {
        *self.local_left.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
    }

    pub(super) fn each_space(&self, mut act: impl FnMut(&Arc<dyn Space>)) {
        let spaces: Vec<_> = {
            let spaces = self.spaces.read().unwrap_or_else(PoisonError::into_inner);
            spaces.values().filter_map(Weak::upgrade).collect()
        };
        spaces.iter().for_each(&mut act);
    }

    pub(super) fn space(&self, namespace: &str) -> Option<Arc<dyn Space>> {
        self.spaces.read().unwrap_or_else(PoisonError::into_inner).get(namespace)?.upgrade()
    }

    async fn listen(&self) {
        loop {
            let notices = self.store.store.heard().await;
            if notices.is_empty() {
                tokio::time::sleep(EMPTY_BUS_PAUSE).await;
            }
            // No await in here: what was given is acted on before the next look at the store's silence.
            self.hear(&notices);
        }
    }

    /// Acts on notices.
    pub(super) fn hear(&self, notices: &[CacheNotice]) {
        for notice in notices {
            match notice {
                CacheNotice::Invalidated { namespace, .. }
                | CacheNotice::Tag { namespace, .. }
                | CacheNotice::Cleared { namespace }
                | CacheNotice::Woken { namespace, .. } => {
                    if let Some(space) = self.space(namespace) {
                        space.hear(notice);
                    }
                }
                CacheNotice::Lost => self.each_space(|space| space.rewarm()),
                CacheNotice::Gap => {
                    self.each_space(|space| space.gap());
                    self.gaps.send_modify(|gaps| *gaps += 1);
                }
            }
        }
    }
}

/// Ends the tasks when the last handle is gone.
pub(super) struct Owner(pub(super) Arc<Hub>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.begin_stop();
    }
}
