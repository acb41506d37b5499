//! What the tests share: caches as separate processes would have them, a database that counts, a store with faults.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tidegate::cache::*;
use tidegate::{BoxFuture, Clock, ClockStatus};
use tidegate_backend::{Error, ErrorKind, Result as StoreResult};
use tidegate_core::Millis;
use tidegate_core::cache::{Op, Reply};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The store's clock: Tokio's, so that a paused test moves both. `ahead` sets it.
pub struct TestClock {
    origin: Instant,
    pub ahead: std::sync::atomic::AtomicI64,
}

impl TestClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { origin: Instant::now(), ahead: Default::default() })
    }
}

impl Clock for TestClock {
    fn now(&self) -> Millis {
        Millis(1_700_000_000_000 + self.origin.elapsed().as_millis() as i64 + self.ahead.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let left = at.since(self.now()).max(0);
            tokio::time::sleep(Duration::from_millis(left as u64)).await;
        })
    }
    fn status(&self) -> ClockStatus {
        ClockStatus { now: self.now(), host: self.now(), stepped: false, catching_up: false, manual: false }
    }
    fn accept(&self) -> ClockStatus {
        self.status()
    }
}

/// A store whose faults a test turns on and off.
pub struct Faulty {
    pub inner: EmbeddedCache,
    /// Nothing is answered.
    pub down: AtomicBool,
    /// Calls take this long before they fail while it is down.
    pub hangs: Mutex<Duration>,
    /// Notices neither leave nor arrive, and the silence grows.
    pub deaf: Mutex<Option<Instant>>,
    /// Reads of single keys take so long.
    pub slow_reads: Mutex<Duration>,
    /// Counters of tags take so long.
    pub slow_tags: Mutex<Duration>,
    /// Writes fail.
    pub readonly: AtomicBool,
    pub told: AtomicU64,
    pub reads: AtomicU64,
    /// Keys that were touched.
    pub touched: AtomicU64,
    pub operations: Mutex<HashMap<&'static str, u64>>,
}

pub fn kind(op: &Op) -> &'static str {
    match op {
        Op::Lease { .. } => "lease",
        Op::Refresh { .. } => "refresh",
        Op::Renew { .. } => "renew",
        Op::Fill { .. } => "fill",
        Op::Release { .. } => "release",
        Op::Fail { .. } => "fail",
        Op::Put { .. } => "put",
        Op::Invalidate { .. } => "invalidate",
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Unavailable, "the test says that the store is away")
}

impl Faulty {
    pub fn new(inner: EmbeddedCache) -> Arc<Self> {
        Arc::new(Self {
            inner,
            down: AtomicBool::new(false),
            hangs: Mutex::new(Duration::ZERO),
            deaf: Mutex::new(None),
            slow_reads: Mutex::default(),
            slow_tags: Mutex::new(Duration::ZERO),
            readonly: AtomicBool::new(false),
            told: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            operations: Mutex::default(),
        })
    }

    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    pub fn reads_take(&self, ms: u64) {
        *self.slow_reads.lock().unwrap() = Duration::from_millis(ms);
    }

    pub fn set_deaf(&self, deaf: bool) {
        *self.deaf.lock().unwrap() = deaf.then(Instant::now);
    }

    pub fn count(&self, op: &str) -> u64 {
        self.operations.lock().unwrap().get(op).copied().unwrap_or(0)
    }

    async fn up(&self) -> StoreResult<()> {
        if self.down.load(Ordering::SeqCst) {
            let hangs = *self.hangs.lock().unwrap();
            tokio::time::sleep(hangs).await;
            return Err(refused());
        }
        Ok(())
    }

    async fn writable(&self) -> StoreResult<()> {
        self.up().await?;
        if self.readonly.load(Ordering::SeqCst) { Err(refused()) } else { Ok(()) }
    }
}

impl CacheStore for Faulty {
    fn capabilities(&self) -> CacheCapabilities {
        self.inner.capabilities()
    }
    fn now(&self) -> Millis {
        self.inner.now()
    }
    fn read<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, StoreResult<Option<Bytes>>> {
        Box::pin(async move {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.up().await?;
            let slow = *self.slow_reads.lock().unwrap();
            if !slow.is_zero() {
                tokio::time::sleep(slow).await;
            }
            self.inner.read(key).await
        })
    }
    fn read_many<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, StoreResult<Vec<Option<Bytes>>>> {
        Box::pin(async move {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.up().await?;
            self.inner.read_many(keys).await
        })
    }
    fn apply<'a>(&'a self, operations: &'a [(CacheKey, Op)]) -> BoxFuture<'a, Vec<StoreResult<Reply>>> {
        Box::pin(async move {
            for (_, op) in operations {
                *self.operations.lock().unwrap().entry(kind(op)).or_default() += 1;
            }
            if self.writable().await.is_err() {
                return operations.iter().map(|_| Err(refused())).collect();
            }
            self.inner.apply(operations).await
        })
    }
    fn tags<'a>(&'a self, namespace: &'a str, tags: &'a [u64], keep: Duration) -> BoxFuture<'a, StoreResult<Vec<u64>>> {
        Box::pin(async move {
            self.up().await?;
            let slow = *self.slow_tags.lock().unwrap();
            tokio::time::sleep(slow).await;
            self.inner.tags(namespace, tags, keep).await
        })
    }
    fn bump_tag<'a>(&'a self, namespace: &'a str, tag: u64, keep: Duration) -> BoxFuture<'a, StoreResult<u64>> {
        Box::pin(async move {
            self.writable().await?;
            self.inner.bump_tag(namespace, tag, keep).await
        })
    }
    fn clear<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, StoreResult<u64>> {
        Box::pin(async move {
            self.writable().await?;
            self.inner.clear(namespace).await
        })
    }
    fn tell<'a>(&'a self, notices: &'a [CacheNotice]) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            self.writable().await?;
            self.told.fetch_add(notices.len() as u64, Ordering::SeqCst);
            self.inner.tell(notices).await
        })
    }
    fn touch<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, StoreResult<Vec<bool>>> {
        Box::pin(async move {
            self.touched.fetch_add(keys.len() as u64, Ordering::SeqCst);
            self.up().await?;
            self.inner.touch(keys).await
        })
    }
    fn heard(&self) -> BoxFuture<'_, Vec<CacheNotice>> {
        Box::pin(async move {
            loop {
                let notices = self.inner.heard().await;
                if self.deaf.lock().unwrap().is_none() {
                    return notices;
                }
            }
        })
    }
    fn silence(&self) -> Duration {
        self.deaf.lock().unwrap().map_or_else(|| self.inner.silence(), |since| since.elapsed())
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

/// Several processes on one store.
pub struct World {
    pub clock: Arc<TestClock>,
    pub stores: Vec<Arc<Faulty>>,
    pub processes: Vec<Caches>,
}

impl World {
    /// So many processes, on Tokio's clock.
    pub fn new(processes: usize) -> Self {
        Self::with(processes, |builder| builder)
    }

    pub fn with(processes: usize, knobs: impl Fn(CachesBuilder) -> CachesBuilder) -> Self {
        let clock = TestClock::new();
        let options = EmbeddedCacheOptions { max_bytes: 64 << 20 };
        let store = EmbeddedCache::with_clock(options, clock.clone()).unwrap();
        let mut stores: Vec<_> = (1..processes).map(|_| store.handle()).collect();
        stores.insert(0, store);
        let stores: Vec<_> = stores.into_iter().map(Faulty::new).collect();
        let start = |store: &Arc<Faulty>| knobs(Caches::builder(store.clone()).tokio_time()).start().unwrap();
        Self { clock, processes: stores.iter().map(start).collect(), stores }
    }

    pub fn key(&self, key: u64) -> CacheKey {
        let bytes = Bytes::copy_from_slice(key.encode().unwrap().as_bytes());
        CacheKey { namespace: "t".into(), schema: 0, key: bytes }
    }
}

/// The knobs of a process' cache of the tests.
pub fn builder(world: &World, process: usize) -> CacheBuilder<u64, u64> {
    world.processes[process].cache("t")
}

/// A plain read in a task of its own.
pub fn start(cache: &Cache<u64, u64>, key: u64) -> tokio::task::JoinHandle<Result<Read<u64>, CacheError>> {
    let cache = cache.clone();
    tokio::spawn(async move { cache.get(&key).await })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DbError(pub String);

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DbError {}

/// Rows with versions; counts what it is asked.
#[derive(Default)]
pub struct Database {
    pub rows: Mutex<HashMap<u64, u64>>,
    pub loads: AtomicU64,
    pub running: AtomicU64,
    pub most_running: AtomicU64,
    pub fails: AtomicBool,
    pub takes: Mutex<Duration>,
    /// Loads wait for a permit after they have read, if there is a semaphore.
    pub park: Mutex<Option<Arc<Semaphore>>>,
    pub contexts: Mutex<Vec<LoadContext>>,
    pub starts: Mutex<Vec<Instant>>,
}

impl Database {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn set(&self, key: u64, value: u64) {
        self.rows.lock().unwrap().insert(key, value);
    }

    pub fn takes(&self, ms: u64) {
        *self.takes.lock().unwrap() = Duration::from_millis(ms);
    }

    pub fn parks(&self) -> Arc<Semaphore> {
        let park = Arc::new(Semaphore::new(0));
        *self.park.lock().unwrap() = Some(park.clone());
        park
    }

    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::SeqCst)
    }

    /// A value is the row's version; the answer is made when the load begins.
    pub async fn load(self: Arc<Self>, key: u64, context: LoadContext) -> Result<Loaded<u64>, DbError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.contexts.lock().unwrap().push(context);
        self.starts.lock().unwrap().push(Instant::now());
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let guard = Running(self.clone());
        let row = self.rows.lock().unwrap().get(&key).copied();
        let takes = *self.takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        let park = self.park.lock().unwrap().clone();
        if let Some(park) = park {
            park.acquire().await.unwrap().forget();
        }
        drop(guard);
        if self.fails.load(Ordering::SeqCst) {
            return Err(DbError(format!("no row {key} today")));
        }
        Ok(match row {
            Some(version) => Loaded::value(version).version(RowVersion::new(version).unwrap()),
            None => Loaded::absent(),
        })
    }

    pub fn loader(self: &Arc<Self>) -> impl Loader<u64, u64> {
        let db = self.clone();
        move |key, context| db.clone().load(key, context)
    }
}

struct Running(Arc<Database>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Lets every task run as far as it can without time passing.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

pub fn value(read: &Read<u64>) -> Option<u64> {
    read.value.as_deref().copied()
}
