//! The process of [`super::process`]: a test that does nothing unless it is started as a child.

use std::fmt;
use std::io::BufRead;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate::blocks::RedisOptions;
use tidegate::cache::*;

use super::process::{MARK, Order, Report, SETUP, Setup, Table, now_us};

const HOT: u64 = u64::MAX;

#[derive(Debug)]
pub struct Down;

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the database is down")
    }
}

impl std::error::Error for Down {}

/// What programs of different schema numbers store.
trait Row: Serialize + DeserializeOwned + Send + Sync + 'static {
    fn of(version: u64) -> Self;
    fn version(&self) -> u64;
}

impl Row for u64 {
    fn of(version: u64) -> Self {
        version
    }
    fn version(&self) -> u64 {
        *self
    }
}

/// Of schema 2: `{"row": {"version": 7}}` instead of `7`.
#[derive(Serialize, serde::Deserialize)]
struct Newer {
    row: Inner,
}

#[derive(Serialize, serde::Deserialize)]
struct Inner {
    version: u64,
}

impl Row for Newer {
    fn of(version: u64) -> Self {
        Self { row: Inner { version } }
    }
    fn version(&self) -> u64 {
        self.row.version
    }
}

pub fn ttl(ms: u64) -> Ttl {
    Ttl::try_from(Duration::from_millis(ms)).unwrap()
}

pub async fn store(url: &str) -> Arc<RedisCache> {
    let options = RedisOptions::parse(url).unwrap().name("days").unwrap();
    Arc::new(RedisCache::open(options, RedisCacheOptions::default()).await.unwrap())
}

#[test]
#[ignore = "a process of other tests"]
fn run() {
    let Ok(setup) = std::env::var(SETUP) else { return };
    let setup: Setup = serde_json::from_str(&setup).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match setup.schema {
        2 => runtime.block_on(serve::<Newer>(setup)),
        _ => runtime.block_on(serve::<u64>(setup)),
    }
}

#[expect(clippy::print_stdout, reason = "how it answers")]
fn answer(report: &Report) {
    println!("{MARK}{}", serde_json::to_string(report).unwrap());
}

async fn serve<V: Row>(setup: Setup) {
    let part = Part::<V>::open(setup).await;
    answer(&Report::default());
    let mut begun = None;
    loop {
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            (std::io::stdin().lock().read_line(&mut line).unwrap() > 0).then_some(line)
        });
        let Some(line) = line.await.unwrap() else { return };
        let report = match serde_json::from_str(&line).unwrap() {
            Order::Crowd { callers, key, at_us } => part.crowd(callers, key, at_us).await,
            Order::Begin { key } => {
                let cache = part.cache.clone();
                begun = Some(tokio::spawn(async move { cache.get(&key).await }));
                while part.running() == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Report::default()
            }
            Order::End => {
                let ended = begun.take().unwrap().await.unwrap();
                part.report([(ended, 0)])
            }
            Order::Get { key, strong } => {
                let began = now_us();
                let read = if strong { part.cache.read(&key).strong().await } else { part.cache.get(&key).await };
                part.report([(read, now_us().saturating_sub(began))])
            }
            Order::Invalidate { key } => {
                let done = part.cache.invalidate(&key).await;
                Report { error: done.err().map(|e| e.to_string()), ..part.report([]) }
            }
            Order::Stream { per_second, for_ms, keys } => part.stream(per_second, for_ms, keys).await,
        };
        answer(&report);
    }
}

#[derive(Default)]
struct Log {
    running: u64,
    ended: Vec<(u64, u64)>,
}

struct Part<V> {
    cache: Cache<u64, V>,
    hot: Cache<u64, u64>,
    log: Arc<Mutex<Log>>,
}

type Answer<V> = Result<Read<V>, CacheError>;

impl<V: Row> Part<V> {
    async fn open(setup: Setup) -> Self {
        let caches = Caches::builder(store(&setup.url).await).start().unwrap();
        let mut builder = caches.cache("t").schema(setup.schema).fresh_for(ttl(setup.fresh_ms));
        builder = builder.jitter(0.0).early_refresh(0.0).lease(ttl(setup.lease_ms));
        if setup.stale_ms > 0 {
            builder = builder.stale_for(ttl(setup.stale_ms));
        }
        if !setup.local {
            builder = builder.no_local();
        }
        if let Some(rate) = setup.load_rate {
            builder = builder.load_rate(rate).load_timeout(Duration::from_secs(1), Duration::from_secs(2));
        }
        let log = Arc::new(Mutex::new(Log::default()));
        let (own, table) = (log.clone(), Arc::new(Table::open(&setup.table)));
        let loader = move |key: u64, _| {
            let (log, table) = (own.clone(), table.clone());
            async move {
                let (began, version) = (now_us(), table.get(key));
                log.lock().unwrap().running += 1;
                tokio::time::sleep(Duration::from_millis(setup.load_ms)).await;
                let mut log = log.lock().unwrap();
                log.running -= 1;
                log.ended.push((began, now_us()));
                if setup.fails { Err(Down) } else { Ok(Loaded::value(V::of(version))) }
            }
        };
        let hot = caches.cache("hot").fresh_for(Ttl::seconds::<3_600>()).stale_for(Ttl::seconds::<3_600>());
        let hot = hot.local(1 << 20, Ttl::seconds::<3_600>());
        let hot = hot.loader(|key: u64, _| async move { Ok::<_, Down>(Loaded::value(key)) }).unwrap();
        Self { cache: builder.loader(loader).unwrap(), hot, log }
    }

    fn running(&self) -> u64 {
        self.log.lock().unwrap().running
    }

    fn report(&self, answers: impl IntoIterator<Item = (Answer<V>, u64)>) -> Report {
        let loads = std::mem::take(&mut self.log.lock().unwrap().ended);
        let mut report = Report { loads, rejected: self.cache.stats().rejected_fills, ..Report::default() };
        for (answer, took) in answers {
            report.longest_us = report.longest_us.max(took);
            match answer {
                Ok(read) => {
                    report.values += 1;
                    report.stale += u64::from(read.stale);
                    report.age_ms = read.age.as_millis() as u64;
                    report.value = read.value.map(|row| row.version());
                }
                Err(CacheError::Overloaded { .. }) => report.overloaded += 1,
                Err(error) => {
                    report.errors += 1;
                    report.error = Some(error.to_string());
                }
            }
        }
        report
    }

    async fn crowd(&self, callers: usize, key: u64, at_us: u64) -> Report {
        tokio::time::sleep(Duration::from_micros(at_us.saturating_sub(now_us()))).await;
        let mut crowd = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let cache = self.cache.clone();
            crowd.spawn(async move {
                let began = now_us();
                let answer = cache.get(&key).await;
                let ended = now_us();
                (answer, ended - began, ended)
            });
        }
        let answers = crowd.join_all().await;
        let last_us = answers.iter().map(|(_, _, ended)| *ended).max().unwrap_or(0);
        Report { last_us, ..self.report(answers.into_iter().map(|(answer, took, _)| (answer, took))) }
    }

    async fn stream(&self, per_second: u64, for_ms: u64, keys: u64) -> Report {
        self.hot.get(&HOT).await.unwrap();
        let mut readers = tokio::task::JoinSet::new();
        let (mut ticks, mut sent) = (tokio::time::interval(Duration::from_millis(1)), 0);
        let (mut hot_longest_us, mut hot) = (0, 0);
        let began = tokio::time::Instant::now();
        while began.elapsed() < Duration::from_millis(for_ms) {
            ticks.tick().await;
            let due = began.elapsed().as_micros() as u64 * per_second / 1_000_000;
            for n in sent..due {
                let cache = self.cache.clone();
                readers.spawn(async move {
                    let began = now_us();
                    (cache.get(&(n % keys)).await, now_us() - began)
                });
            }
            sent = sent.max(due);
            let asked = std::time::Instant::now();
            // From here, unless Redis has just answered again and is believed more than a copy.
            let read = self.hot.get(&HOT).await.unwrap();
            assert!(read.source != Source::Load, "{read:?}");
            (hot_longest_us, hot) = (hot_longest_us.max(asked.elapsed().as_micros() as u64), hot + 1);
        }
        let answers = readers.join_all().await;
        Report { hot_longest_us, hot, ..self.report(answers) }
    }
}
