//! Redis restarts, is flushed, replaced, frozen, full, behind a bad network; the bus is silent; the database is down.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::cache::*;
use tidegate_conformance::servers::{Engine, Proxy, Redis, Sentinel};

use super::child::{Down, store};
use super::process::{Order, Process, Setup, Table, all, loads, most_in_a_second, now_us};
use super::scaled;

const KEYS: u64 = 200;
/// Reads a second of all processes.
const READS: u64 = 2_000;
const RATE: u32 = 50;
/// Between two writes.
const WRITES: Duration = Duration::from_millis(40);
/// What a busy machine may add to a bound.
const SLACK: Duration = Duration::from_millis(500);

/// Rows whose changes are invalidated; what is read of them is held against what was acknowledged.
struct Rows {
    versions: Vec<AtomicU64>,
    /// Of each key: when which version was acknowledged as invalidated.
    acknowledged: Mutex<Vec<BTreeMap<u64, Instant>>>,
    loads: Mutex<Vec<(u64, u64)>>,
    fails: AtomicBool,
}

/// What readers met.
#[derive(Debug, Default, Clone)]
struct Tally {
    reads: u64,
    stale: u64,
    overloaded: u64,
    /// For how long what was read had been outdated, at most; not of what was marked as stale.
    outdated: Duration,
    slowest: Duration,
    errors: Vec<String>,
    /// When the last read was not answered.
    last_unanswered: Option<Instant>,
}

impl Rows {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            versions: (0..KEYS).map(|_| AtomicU64::new(1)).collect(),
            acknowledged: Mutex::new(vec![BTreeMap::new(); KEYS as usize]),
            loads: Mutex::default(),
            fails: AtomicBool::new(false),
        })
    }

    fn version(&self, key: u64) -> u64 {
        self.versions[key as usize].load(Ordering::SeqCst)
    }

    /// For how long `version` of `key` had been outdated at `asked`.
    fn outdated(&self, key: u64, version: u64, asked: Instant) -> Duration {
        let acknowledged = self.acknowledged.lock().unwrap();
        let newer = acknowledged[key as usize].range(version + 1..).next();
        newer.map_or(Duration::ZERO, |(_, at)| asked.saturating_duration_since(*at))
    }

    fn loader(self: &Arc<Self>) -> impl Loader<u64, u64> {
        let rows = self.clone();
        move |key: u64, _: LoadContext| {
            let rows = rows.clone();
            async move {
                let (began, version) = (now_us(), rows.version(key));
                tokio::time::sleep(Duration::from_millis(5)).await;
                rows.loads.lock().unwrap().push((began, now_us()));
                if rows.fails.load(Ordering::SeqCst) { Err(Down) } else { Ok(Loaded::value(version)) }
            }
        }
    }
}

/// Processes under load: two read, the first of them writes, too.
struct Shop {
    rows: Arc<Rows>,
    caches: Vec<(Cache<u64, u64>, Caches)>,
}

impl Shop {
    async fn open(url: &str, knobs: impl Fn(CacheBuilder<u64, u64>) -> CacheBuilder<u64, u64>) -> Self {
        let rows = Rows::new();
        let mut caches = Vec::new();
        for _ in 0..2 {
            let all = Caches::builder(store(url).await).load_budget(16).start().unwrap();
            let builder = all.cache("t").fresh_for(Ttl::seconds::<5>()).stale_for(Ttl::seconds::<300>());
            caches.push((knobs(builder).loader(rows.loader()).unwrap(), all));
        }
        let shop = Self { rows, caches };
        for key in 0..KEYS {
            for (cache, _) in &shop.caches {
                cache.get(&key).await.unwrap();
            }
        }
        shop.rows.loads.lock().unwrap().clear();
        shop
    }

    /// Reads and writes while `day` happens, and until it has.
    async fn run(&self, day: impl Future<Output = ()>) -> Tally {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(write(self.caches[0].0.clone(), self.rows.clone(), stop.clone()));
        let tally = Arc::new(Mutex::new(Tally::default()));
        let reading = tokio::spawn({
            let (tally, rows, stop) = (tally.clone(), self.rows.clone(), stop.clone());
            let caches: Vec<_> = self.caches.iter().map(|(cache, _)| cache.clone()).collect();
            async move {
                let mut readers = tokio::task::JoinSet::new();
                let (mut ticks, mut sent) = (tokio::time::interval(Duration::from_millis(1)), 0);
                let began = tokio::time::Instant::now();
                while !stop.load(Ordering::SeqCst) {
                    ticks.tick().await;
                    let due = began.elapsed().as_micros() as u64 * READS / 1_000_000;
                    for n in sent..due {
                        let (cache, rows, tally) = (caches[n as usize % 2].clone(), rows.clone(), tally.clone());
                        // Far from each other, and each by both processes.
                        readers.spawn(async move { read(&cache, &rows, n / 2 * 7 % KEYS, &tally).await });
                    }
                    sent = due;
                    while readers.try_join_next().is_some() {}
                }
                readers.join_all().await;
            }
        });
        day.await;
        stop.store(true, Ordering::SeqCst);
        reading.await.unwrap();
        writer.await.unwrap();
        tally.lock().unwrap().clone()
    }

    /// Both processes read what is there.
    async fn agree(&self) {
        for (cache, _) in &self.caches {
            for key in 0..KEYS {
                let read = cache.read(&key).strong().await.unwrap();
                assert_eq!(read.value.as_deref().copied(), Some(self.rows.version(key)), "key {key}: {read:?}");
            }
        }
    }
}

async fn write(cache: Cache<u64, u64>, rows: Arc<Rows>, stop: Arc<AtomicBool>) {
    let mut key = 0;
    while !stop.load(Ordering::SeqCst) {
        key = (key + 11) % KEYS;
        let version = rows.versions[key as usize].fetch_add(1, Ordering::SeqCst) + 1;
        // Until it is acknowledged: so the application's rows are.
        while cache.invalidate(&key).await.is_err() && !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !stop.load(Ordering::SeqCst) {
            rows.acknowledged.lock().unwrap()[key as usize].insert(version, Instant::now());
        }
        tokio::time::sleep(WRITES).await;
    }
    // What was changed last and not acknowledged is repeated.
    while cache.invalidate(&key).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn read(cache: &Cache<u64, u64>, rows: &Rows, key: u64, tally: &Mutex<Tally>) {
    let asked = Instant::now();
    let answer = cache.get(&key).await;
    let took = asked.elapsed();
    let outdated = match &answer {
        Ok(read) if !read.stale => rows.outdated(key, read.value.as_deref().copied().unwrap_or(0), asked),
        _ => Duration::ZERO,
    };
    let mut tally = tally.lock().unwrap();
    tally.reads += 1;
    tally.slowest = tally.slowest.max(took);
    tally.outdated = tally.outdated.max(outdated);
    match answer {
        Ok(read) => tally.stale += u64::from(read.stale),
        Err(error) => {
            tally.last_unanswered = Some(Instant::now());
            if matches!(error, CacheError::Overloaded { .. }) {
                tally.overloaded += 1;
            } else {
                tally.errors.push(error.to_string());
            }
        }
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// No bound was passed, nobody got an error, and no more was loaded than a key a few times.
fn holds(tally: &Tally, bound: Duration) {
    assert!(tally.errors.is_empty() && tally.overloaded == 0, "{tally:?}");
    assert!(tally.outdated <= bound + SLACK, "{tally:?}");
    assert!(tally.reads > READS, "{tally:?}");
}

const BOUND: Duration = Duration::from_millis(STALENESS_BOUND_MS as u64);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_and_a_restart_under_load_are_no_error_and_load_each_key_once() {
    let redis = Arc::new(Redis::start());
    let shop = Shop::open(&redis.url(), |builder| builder).await;
    for restart in [false, true] {
        shop.rows.loads.lock().unwrap().clear();
        let server = redis.clone();
        let tally = shop
            .run(async {
                pause(1_000).await;
                let happen = move || if restart { server.restart() } else { drop(server.tell(&["FLUSHALL"])) };
                tokio::task::spawn_blocking(happen).await.unwrap();
                pause(scaled(2_500, 20_000)).await;
            })
            .await;
        holds(&tally, BOUND);
        let loads = shop.rows.loads.lock().unwrap().len() as u64;
        // Each key that was lost, what was written, and refreshes.
        assert!(loads < 6 * KEYS, "{loads} loads: {tally:?}");
        shop.agree().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_is_no_error_and_nothing_stays_old() {
    let sentinel = Arc::new(Sentinel::start(Engine::default()));
    let shop = Shop::open(&sentinel.url(), |builder| builder).await;
    let old = sentinel.master_port().unwrap();
    let servers = sentinel.clone();
    let tally = shop
        .run(async {
            pause(1_000).await;
            let fail_over = move || {
                let master = servers.servers.iter().find(|server| server.port() == old).unwrap();
                master.kill();
                let began = Instant::now();
                while servers.master_port() == Some(old) {
                    assert!(began.elapsed().as_secs() < 20, "no failover");
                    std::thread::sleep(Duration::from_millis(20));
                }
            };
            tokio::task::spawn_blocking(fail_over).await.unwrap();
            pause(scaled(3_000, 20_000)).await;
        })
        .await;
    // Until every process has repeated its deletes on the new master, another may read there what they deleted.
    holds(&tally, BOUND + Duration::from_millis(1_500));
    shop.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_and_lossy_network_is_no_error_and_makes_nothing_older_than_the_bound() {
    let redis = Redis::start();
    let proxy = Arc::new(Proxy::start(redis.port()));
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let shop = Shop::open(&url, |builder| builder).await;
    let network = proxy.clone();
    let tally = shop
        .run(async {
            for _ in 0..scaled(1, 5) {
                pause(500).await;
                network.delay(Duration::from_millis(200));
                pause(1_500).await;
                network.delay(Duration::ZERO);
                for _ in 0..5 {
                    network.tear_replies(1);
                    pause(100).await;
                    network.cut_replies(2);
                    pause(100).await;
                    network.cut();
                    pause(50).await;
                }
                network.silence(true);
                pause(1_500).await;
                // What was swallowed is lost: connections that wait for it are of no use any more.
                network.silence(false);
                network.cut();
                pause(1_500).await;
            }
        })
        .await;
    holds(&tally, BOUND);
    shop.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_is_read_and_what_cannot_be_stored_is_loaded_within_its_rate() {
    let redis = Redis::start();
    let rate = NonZeroU32::new(RATE).unwrap();
    let shop = Shop::open(&redis.url(), |builder| builder.load_rate(rate)).await;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    let tally = shop.run(pause(scaled(4_000, 30_000))).await;
    // A miss cannot be stored for the other process, and its load waits its turn.
    assert!(tally.errors.is_empty() && tally.outdated <= BOUND + SLACK, "{tally:?}");
    assert!(tally.overloaded < tally.reads / 100, "{tally:?}");
    let most = most_in_a_second(&shop.rows.loads.lock().unwrap());
    assert!(most <= 2 * (RATE as usize + 1), "{most} loads in a second of two processes");
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    shop.agree().await;
}

#[test]
fn a_frozen_redis_at_5_000_reads_a_second_starts_no_more_loads_than_allowed() {
    const KEYS: u64 = 1_000;
    let (redis, table) = (Redis::start(), Table::new(KEYS));
    let setup = Setup { local: false, fresh_ms: 600_000, ..Setup::new(&redis.url(), &table) };
    let mut filler = Process::start(&setup);
    let filled = filler.ask(&Order::Stream { per_second: 2_000, for_ms: 1_000, keys: KEYS });
    assert_eq!(filled.errors + filled.overloaded, 0, "{filled:?}");
    let limited = Setup { load_rate: NonZeroU32::new(RATE), load_ms: 20, ..setup };
    let mut processes: Vec<_> = (0..2).map(|_| Process::start(&limited)).collect();
    let frozen_ms = scaled(3_000, 10_000);
    let order = Order::Stream { per_second: 2_500, for_ms: frozen_ms + 3_000, keys: KEYS };
    let day = std::thread::scope(|scope| {
        let day = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(1_000));
            redis.freeze();
            let frozen = now_us();
            std::thread::sleep(Duration::from_millis(frozen_ms));
            redis.thaw();
            (frozen, now_us())
        });
        (all(&mut processes, &order), day.join().unwrap())
    });
    let (reports, (frozen, thawed)) = day;
    for report in &reports {
        assert_eq!(report.errors, 0, "{report:?}");
        // A load's log is a moment later than its beginning.
        assert!(most_in_a_second(&report.loads) <= RATE as usize + 2, "{:?}", most_in_a_second(&report.loads));
        assert!(report.hot > frozen_ms / 2, "hits in process went on: {} of them", report.hot);
        assert!(report.hot_longest_us < 400_000, "{}", report.hot_longest_us);
        assert!(report.longest_us < 4_000_000, "{}", report.longest_us);
    }
    let of = |from: u64, to: u64| loads(&reports).iter().filter(|(began, _)| (from..to).contains(began)).count() as u64;
    let during = of(frozen, thawed);
    assert!(during > 2 * u64::from(RATE) * frozen_ms / 1_000 / 2, "{during} loads while it was frozen");
    // Everything is in Redis: once it answers there is nothing to load.
    assert!(of(thawed + 500_000, u64::MAX) < 2 * u64::from(RATE), "loads after the thaw");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_bus_silent_no_copy_is_older_than_the_bound() {
    let redis = Redis::start();
    let shop = Shop::open(&redis.url(), |builder| builder.fresh_for(Ttl::seconds::<3_600>())).await;
    let tally = shop
        .run(async {
            pause(500).await;
            // Who reads streams is refused: what is told arrives nowhere.
            redis.tell(&["ACL", "SETUSER", "default", "-xread"]);
            pause(scaled(4_000, 10_000)).await;
            redis.tell(&["ACL", "SETUSER", "default", "+xread"]);
            pause(1_500).await;
        })
        .await;
    holds(&tally, BOUND);
    shop.agree().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_database_down_every_key_within_its_stale_life_is_answered() {
    let redis = Redis::start();
    let shop = Shop::open(&redis.url(), |builder| builder.fresh_for(Ttl::seconds::<1>())).await;
    shop.rows.fails.store(true, Ordering::SeqCst);
    let (began, mut reads) = (Instant::now(), 0_u64);
    while began.elapsed() < Duration::from_millis(scaled(4_000, 60_000)) {
        for (cache, _) in &shop.caches {
            let key = reads % KEYS;
            assert_eq!(cache.get(&key).await.unwrap().value.as_deref(), Some(&1));
            reads += 1;
        }
        pause(1).await;
    }
    let tries = shop.rows.loads.lock().unwrap().len() as f64 / KEYS as f64 / began.elapsed().as_secs_f64();
    assert!(reads > 1_000 && tries < 10.0, "{reads} reads, {tries} tries a second and key");
    shop.rows.fails.store(false, Ordering::SeqCst);
    shop.agree().await;
}
