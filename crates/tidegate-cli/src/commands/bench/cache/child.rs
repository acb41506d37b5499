//! The other side of [`super::process`]: `tidegate bench cache-process`, a process with a cache of its own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::cache::{Cache, CacheError, Caches, Loaded, Read, Ttl};

use super::process::{Order, Report, Setup, now_us};
use super::{broken, open_store, ttl};
use crate::commands::bench::process;
use crate::failure::Result;
use crate::load::record::Record;

/// The hot key.
const HOT: u64 = u64::MAX;

/// What the loader says when it is told to fail.
#[derive(Debug)]
pub struct NoRow;

impl fmt::Display for NoRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the database is down")
    }
}

impl std::error::Error for NoRow {}

/// Serves until its stdin ends.
///
/// # Errors
/// [`crate::failure::Failure::Work`].
pub fn run() -> Result {
    process::obey::<Cached>()
}

type Loads = Arc<Mutex<Vec<(u64, u64)>>>;

struct Cached {
    cache: Cache<u64, u64>,
    hot: Cache<u64, u64>,
    loads: Loads,
}

impl process::Part for Cached {
    type Setup = Setup;
    type Order = Order;
    type Report = Report;

    async fn open(setup: Setup) -> Result<Self> {
        let store = open_store(&setup.url, &setup.name).await?;
        let caches = Caches::builder(store).start().map_err(broken)?;
        let loads = Loads::default();
        let mut builder = caches.cache(&setup.namespace).fresh_for(ttl(setup.fresh_ms)).jitter(0.0).early_refresh(0.0);
        if setup.stale_ms > 0 {
            builder = builder.stale_for(ttl(setup.stale_ms));
        }
        if !setup.local {
            builder = builder.no_local();
        }
        if let Some(rate) = setup.load_rate {
            // Whoever asks must not wait for longer than people do.
            builder = builder.load_rate(rate).load_timeout(Duration::from_secs(1), Duration::from_secs(2));
        }
        let (log, load_ms, fails) = (Arc::clone(&loads), setup.load_ms, setup.fails);
        let cache = builder.loader(move |key: u64, _| {
            let log = Arc::clone(&log);
            async move {
                let began = now_us();
                tokio::time::sleep(Duration::from_millis(load_ms)).await;
                log.lock().unwrap_or_else(PoisonError::into_inner).push((began, now_us()));
                if fails { Err(NoRow) } else { Ok(Loaded::value(key)) }
            }
        });
        let hot = caches.cache(&format!("{}.hot", setup.namespace)).fresh_for(Ttl::seconds::<3_600>());
        let hot = hot.local(1 << 20, Ttl::seconds::<3_600>()).stale_for(Ttl::seconds::<3_600>());
        let hot = hot.loader(|key: u64, _| async move { Ok::<_, NoRow>(Loaded::value(key)) });
        Ok(Self { cache: cache.map_err(broken)?, hot: hot.map_err(broken)?, loads })
    }

    async fn obey(&mut self, order: Order) -> Result<Report> {
        match order {
            Order::Crowd { callers, key, at_us } => self.crowd(callers, key, at_us).await,
            Order::Stream { per_second, for_ms, keys } => self.stream(per_second, for_ms, keys).await,
        }
    }
}

impl Cached {
    fn report(&self) -> Report {
        let loads = std::mem::take(&mut *self.loads.lock().unwrap_or_else(PoisonError::into_inner));
        Report { loads, ..Report::default() }
    }

    async fn crowd(&self, callers: usize, key: u64, at_us: u64) -> Result<Report> {
        tokio::time::sleep(Duration::from_micros(at_us.saturating_sub(now_us()))).await;
        // Awaited one after the other: a set of tasks would take longer about each that ends than the cache does.
        let mut crowd = Vec::with_capacity(callers);
        for _ in 0..callers {
            let cache = self.cache.clone();
            crowd.push(tokio::spawn(async move {
                let began = now_us();
                let answer = cache.get(&key).await;
                (began, now_us(), answer)
            }));
        }
        let mut answers = Vec::with_capacity(callers);
        for caller in crowd {
            answers.push(caller.await.map_err(broken)?);
        }
        let mut report = self.report();
        for (began, ended, answer) in answers {
            report.count(&answer);
            report.last_us = report.last_us.max(ended);
            report.longest_us = report.longest_us.max(ended - began);
        }
        Ok(report)
    }

    async fn stream(&self, per_second: u64, for_ms: u64, keys: u64) -> Result<Report> {
        self.hot.get(&HOT).await.map_err(broken)?;
        let (mut readers, mut hot) = (tokio::task::JoinSet::new(), Record::new());
        let (mut ticks, mut sent) = (tokio::time::interval(Duration::from_millis(1)), 0);
        let began = tokio::time::Instant::now();
        while began.elapsed() < Duration::from_millis(for_ms) {
            ticks.tick().await;
            // By the clock: a tick that comes late has more to do.
            let due =
                u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).saturating_mul(per_second) / 1_000_000;
            for n in sent..due {
                let cache = self.cache.clone();
                readers.spawn(async move {
                    let began = now_us();
                    (cache.get(&(n % keys)).await, now_us() - began)
                });
            }
            sent = sent.max(due);
            let asked = std::time::Instant::now();
            self.hot.get(&HOT).await.map_err(broken)?;
            hot.time(asked.elapsed());
        }
        let answers = readers.join_all().await;
        let mut report = self.report();
        for (answer, took) in answers {
            report.count(&answer);
            report.longest_us = report.longest_us.max(took);
        }
        let us = |ms: f64| (ms * 1_000.0) as u64;
        let times = hot.percentiles();
        report.hot_us = [us(times.p50), us(times.p99), us(times.max)];
        Ok(report)
    }
}

impl Report {
    fn count(&mut self, answer: &std::result::Result<Read<u64>, CacheError>) {
        match answer {
            Ok(read) => {
                self.values += 1;
                self.stale += u64::from(read.stale);
            }
            Err(CacheError::Overloaded { .. }) => self.overloaded += 1,
            Err(_) => self.errors += 1,
        }
    }
}
