//! Runs the processes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::Rng;
use tidegate_backend::cache::{CacheKey, CacheNotice, CacheStore};
use tidegate_core::cache::{Key, Op, Reply, RowVersion};
use tokio::runtime::Runtime;

use super::super::bent::{Bend, Bent};
use super::super::{Harness, Open};
use super::{Answer, Database, Kind, NAMESPACE, Process, SCHEMAS, Start};

/// Keys that everybody reads and writes all the time.
const HOT: u32 = 16;
/// Keys that are only read within the bound, and written seldom enough for it to matter.
const COOL: u32 = 48;
/// Readers of a process.
const READERS: u32 = 24;
/// A hot key is written about this often, and a cool one so much less often.
const HOT_EVERY: Duration = Duration::from_millis(12);
const COOL_EVERY: Duration = Duration::from_millis(1_500);
/// Every so many writes of a process are a clear.
const CLEAR_EACH: u32 = 300;
/// Somewhere something is evicted this often.
const EVICT_EVERY: Duration = Duration::from_millis(4);
/// A runtime has so long to drop its tasks.
const ENDING: Duration = Duration::from_secs(5);
/// Foreign clients do not answer for ever either.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which reads are made. A strong read, or one of many keys, may mend what a bounded one would have got wrong for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Strong, forced, bounded, of many keys.
    All,
    /// Bounded, also of many keys.
    Bounded,
    /// Bounded, one by one.
    OneByOne,
}

/// How much, and how hard.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Ends after so many reads of both kinds.
    pub reads: u64,
    /// Ends after so long in any case.
    pub time: Duration,
    /// How many processes.
    pub processes: usize,
    /// One of them is killed, and another started, this often.
    pub kill_every: Option<Duration>,
    /// What is wrong with their stores.
    pub bend: Option<Bend>,
    /// Which reads are made.
    pub mix: Mix,
    /// [`Harness::disturb`] is called this often. Then there is no replica: a store that lost its floors cannot know that
    /// it lags.
    pub disturb_every: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reads: 1_000_000,
            time: Duration::from_secs(300),
            processes: 3,
            kill_every: Some(Duration::from_millis(150)),
            bend: None,
            mix: Mix::All,
            disturb_every: None,
        }
    }
}

/// What happened.
#[derive(Debug, Default)]
pub struct Tally {
    /// Strong reads that were answered.
    pub strong: u64,
    /// Bounded reads that were answered.
    pub bounded: u64,
    /// Answers that said they were stale.
    pub stale: u64,
    /// Reads that failed.
    pub failed: u64,
    /// Invalidations that were acknowledged.
    pub acknowledged: u64,
    /// Loads that were begun.
    pub loads: u64,
    /// Processes that were killed.
    pub killed: u64,
    /// Reads that broke their promise (the first of them).
    pub broken: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl Tally {
    /// Reads that were answered.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.strong + self.bounded
    }
}

#[derive(Default)]
struct Counts {
    strong: AtomicU64,
    bounded: AtomicU64,
    stale: AtomicU64,
    failed: AtomicU64,
    acknowledged: AtomicU64,
    broken: Mutex<Vec<String>>,
    /// Set with the first broken promise.
    over: AtomicBool,
}

impl Counts {
    fn reads(&self) -> u64 {
        self.strong.load(Ordering::Relaxed) + self.bounded.load(Ordering::Relaxed)
    }

    fn broke(&self, what: String) {
        self.over.store(true, Ordering::SeqCst);
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.len() < 8 {
            broken.push(what);
        }
    }
}

/// What every process is started with.
#[derive(Clone)]
struct World {
    harness: Arc<dyn Harness>,
    database: Arc<Database>,
    counts: Arc<Counts>,
    start: Start,
    settings: Settings,
}

/// Tortures what `start` builds on fresh stores from `open`. Not to be called within a runtime.
#[must_use]
pub fn torture(open: Open<'_>, start: &Start, settings: Settings) -> Tally {
    let outside = runtime();
    // A store that fails makes the cache load without a lease and so without a floor: from the primary, then.
    let lags = !matches!(settings.bend, Some(Bend::Fails(_))) && settings.disturb_every.is_none();
    let world = World {
        harness: outside.block_on(open()).into(),
        database: Arc::new(Database::new(HOT + COOL, lags)),
        counts: Arc::default(),
        start: Arc::clone(start),
        settings,
    };
    let begun = Instant::now();
    let mut processes: Vec<Runtime> = (0..settings.processes).map(|_| world.process()).collect();
    for hot in [true, false] {
        outside.spawn(world.clone().write_past_the_cache(hot));
    }
    outside.spawn(world.clone().evict());
    outside.spawn(world.clone().disturb());
    let (mut killed, mut last) = (0, Instant::now());
    while world.counts.reads() < settings.reads
        && begun.elapsed() < settings.time
        && !world.counts.over.load(Ordering::SeqCst)
    {
        std::thread::sleep(Duration::from_millis(5));
        if settings.kill_every.is_some_and(|every| last.elapsed() > every) {
            let victim = rand::rng().random_range(0..processes.len());
            std::mem::replace(&mut processes[victim], world.process()).shutdown_background();
            (killed, last) = (killed + 1, Instant::now());
        }
    }
    let counts = &world.counts;
    let tally = Tally {
        strong: counts.strong.load(Ordering::Relaxed),
        bounded: counts.bounded.load(Ordering::Relaxed),
        stale: counts.stale.load(Ordering::Relaxed),
        failed: counts.failed.load(Ordering::Relaxed),
        acknowledged: counts.acknowledged.load(Ordering::Relaxed),
        loads: world.database.loads.load(Ordering::Relaxed),
        killed,
        broken: std::mem::take(&mut counts.broken.lock().unwrap_or_else(PoisonError::into_inner)),
        took: begun.elapsed(),
    };
    // Waited for, so that no task holds the store's server when this returns.
    processes.into_iter().for_each(|process| process.shutdown_timeout(ENDING));
    outside.shutdown_timeout(ENDING);
    tally
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread can be had")
}

impl World {
    /// Starts a process.
    fn process(&self) -> Runtime {
        let runtime = runtime();
        let schema = rand::rng().random_range(0..SCHEMAS);
        let world = self.clone();
        runtime.spawn(async move {
            let mut store = world.harness.another().await;
            if let Some(bend) = world.settings.bend {
                store = Arc::new(Bent::new(store, Arc::clone(&world.harness), bend));
            }
            let cache = (world.start)(store, Arc::clone(&world.database), schema);
            for _ in 0..READERS {
                tokio::spawn(world.clone().read(Arc::clone(&cache)));
            }
            for hot in [true, false] {
                tokio::spawn(world.clone().write(Arc::clone(&cache), hot));
            }
        });
        runtime
    }

    async fn read(self, cache: Arc<dyn Process>) {
        let mix = self.settings.mix;
        while !self.counts.over.load(Ordering::Relaxed) {
            let (choice, hot, key) = {
                let mut dice = rand::rng();
                let hot = dice.random_bool(0.7);
                (dice.random_range(0..1_000), hot, any_key(&mut dice, hot))
            };
            match choice {
                0..500 if hot && mix == Mix::All => self.read_one(&*cache, key, true).await,
                0..960 => self.read_one(&*cache, key, false).await,
                960..965 if hot && mix == Mix::All => self.force(&*cache, key).await,
                _ if mix == Mix::OneByOne => self.read_one(&*cache, key, false).await,
                _ => self.read_several(&*cache).await,
            }
            if choice % 8 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn read_one(&self, cache: &dyn Process, key: u32, strong: bool) {
        let allowed = self.database.begin(key, strong);
        let counter = if strong { &self.counts.strong } else { &self.counts.bounded };
        match cache.read(key, strong).await {
            Ok(answer) => {
                counter.fetch_add(1, Ordering::Relaxed);
                self.judge(key, strong, allowed, answer);
            }
            Err(_) => drop(self.counts.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn force(&self, cache: &dyn Process, key: u32) {
        let allowed = self.database.begin_forced(key);
        match cache.force(key).await {
            Ok(answer) => {
                self.counts.strong.fetch_add(1, Ordering::Relaxed);
                if let Some(Err(why)) = allowed.map(|allowed| self.database.check(key, allowed, answer.version)) {
                    self.counts.broke(format!("forced: {why}; {answer:?}"));
                }
            }
            Err(_) => drop(self.counts.failed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    async fn read_several(&self, cache: &dyn Process) {
        let keys: Vec<u32> = {
            let mut dice = rand::rng();
            (0..6).map(|n| any_key(&mut dice, n % 2 == 0)).collect()
        };
        let allowed: Vec<_> = keys.iter().map(|key| self.database.begin(*key, false)).collect();
        let answers = cache.read_many(&keys).await;
        if answers.len() != keys.len() {
            self.counts.broke(format!("{keys:?}: {answers:?}"));
        }
        for ((key, allowed), answer) in keys.iter().zip(allowed).zip(answers) {
            match answer {
                Ok(answer) => {
                    self.counts.bounded.fetch_add(1, Ordering::Relaxed);
                    self.judge(*key, false, allowed, answer);
                }
                Err(_) => drop(self.counts.failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    fn judge(&self, key: u32, strong: bool, allowed: super::Allowed, answer: Answer) {
        if answer.stale {
            self.counts.stale.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody told the processes what a foreign client deletes. A stale answer says that it is one.
        if !strong && (Database::kind(key) == Kind::Foreign || answer.stale) {
            return;
        }
        if let Err(why) = self.database.check(key, allowed, answer.version) {
            self.counts.broke(format!("{}: {why}; {answer:?}", if strong { "strong" } else { "bounded" }));
        }
    }

    /// A process' writer. Some writes come in bursts: a reader that the first sends to the database meets the second there.
    async fn write(self, cache: Arc<dyn Process>, hot: bool) {
        loop {
            let (key, pause, clears, more) = {
                let mut dice = rand::rng();
                let clears = dice.random_range(0..CLEAR_EACH) == 0;
                (any_key(&mut dice, hot), self.pause(&mut dice, hot), clears, dice.random_range(0..3))
            };
            tokio::time::sleep(pause).await;
            if clears {
                self.write_all(&*cache).await;
            }
            self.write_one(&*cache, key).await;
            for _ in 0..more {
                let burst = Duration::from_micros(rand::rng().random_range(0..10_000));
                tokio::time::sleep(burst).await;
                self.write_one(&*cache, key).await;
            }
        }
    }

    /// Commits, then invalidates through the cache in one of the ways that the key's kind allows.
    async fn write_one(&self, cache: &dyn Process, key: u32) {
        let version = self.database.commit(key);
        let way = rand::rng().random_range(0..3);
        let answer = match (Database::kind(key), way) {
            (Kind::Tagged, 0..2) => cache.invalidate_tag(key).await,
            (Kind::Versioned, 0..2) if !super::is_deletion(version) => cache.put(key, version).await,
            (Kind::Versioned, _) => cache.invalidate(key, Some(version)).await,
            _ => cache.invalidate(key, None).await,
        };
        if answer.is_ok() {
            self.acknowledge(key, version);
        }
    }

    /// Those who write past the cache, each with a handle of its own: a foreign client, which commits, deletes what lies in
    /// the store and tells nobody, and a relay of invalidations.
    async fn write_past_the_cache(self, hot: bool) {
        let store = self.harness.store();
        loop {
            let (key, pause) = {
                let mut dice = rand::rng();
                (any_key(&mut dice, hot), self.pause(&mut dice, hot))
            };
            tokio::time::sleep(pause).await;
            let version = self.database.commit(key);
            let done = match Database::kind(key) {
                Kind::Foreign => tokio::time::timeout(PATIENCE, self.delete(key)).await.is_ok(),
                Kind::Versioned => relay(&*store, key, Some(version)).await,
                Kind::Told | Kind::Tagged => relay(&*store, key, None).await,
            };
            if done {
                self.acknowledge(key, version);
            }
        }
    }

    /// The store drops an entry or a lease to make room.
    async fn evict(self) {
        loop {
            tokio::time::sleep(EVICT_EVERY).await;
            let key = any_key(&mut rand::rng(), true);
            let schema = rand::rng().random_range(0..SCHEMAS);
            let _ = tokio::time::timeout(PATIENCE, self.harness.delete_raw(&cache_key(key, schema))).await;
        }
    }

    async fn delete(&self, key: u32) {
        for schema in 0..SCHEMAS {
            self.harness.delete_raw(&cache_key(key, schema)).await;
        }
    }

    /// Commits every key whose rows have no versions (a clear raises no floor against the replica), then clears.
    async fn write_all(&self, cache: &dyn Process) {
        let keys = (0..HOT + COOL).filter(|key| Database::kind(*key) != Kind::Versioned);
        let committed: Vec<_> = keys.map(|key| (key, self.database.commit(key))).collect();
        if cache.clear().await.is_ok() {
            committed.into_iter().for_each(|(key, version)| self.acknowledge(key, version));
        }
    }

    async fn disturb(self) {
        while let Some(every) = self.settings.disturb_every {
            tokio::time::sleep(every).await;
            self.harness.disturb().await;
        }
    }

    /// Until a writer's next commit.
    fn pause(&self, dice: &mut impl Rng, hot: bool) -> Duration {
        let (keys, every) = if hot { (HOT, HOT_EVERY) } else { (COOL, COOL_EVERY) };
        // A write is two on average, and there is one writer more than processes.
        let mean = 2 * every * (self.settings.processes as u32 + 1) / keys;
        Duration::from_micros(dice.random_range(0..=2 * mean.as_micros() as u64))
    }

    fn acknowledge(&self, key: u32, version: u64) {
        self.database.acknowledge(key, version);
        self.counts.acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

fn any_key(dice: &mut impl Rng, hot: bool) -> u32 {
    if hot { dice.random_range(0..HOT) } else { HOT + dice.random_range(0..COOL) }
}

fn cache_key(key: u32, schema: u32) -> CacheKey {
    let encoded = key.encode().expect("4 bytes are few");
    CacheKey { namespace: NAMESPACE.into(), schema, key: Bytes::copy_from_slice(encoded.as_bytes()) }
}

/// What a relay of invalidations does: the store, then the others.
async fn relay(store: &dyn CacheStore, key: u32, version: Option<u64>) -> bool {
    let key = cache_key(key, 0);
    let op = Op::Invalidate { floor: version.and_then(RowVersion::new), keep_floor_ms: 60_000 };
    let reply = store.apply(&[(key.clone(), op)]).await.remove(0);
    let notice = CacheNotice::Invalidated { namespace: key.namespace, key: key.key };
    matches!(reply, Ok(Reply::Held)) && store.tell(&[notice]).await.is_ok()
}
