//! The hottest 1,000 keys are lost in Redis: how soon their reads are hits again, and at how many loads a second.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::cache::{Cache, Caches, Loaded, Source, Ttl};

use super::child::NoRow;
use super::days::most_in_a_second;
use super::process::now_us;
use super::{Bench, broken};
use crate::commands::bench::line::Line;
use crate::failure::Result;
use crate::load::random::{Random, Zipf};
use crate::{output, runtime};

const KEYS: usize = 1_000;
/// Caches with a store of their own each, and loads a second that each may make: 200 in all.
const CACHES: usize = 2;
const LOAD_RATE: NonZeroU32 = NonZeroU32::new(100).expect("100 is not 0");
const LOAD: Duration = Duration::from_millis(5);
/// Each cache reads so often: so many keys at each tick.
const TICK: Duration = Duration::from_millis(5);
const A_TICK: usize = 2;
/// The hit rate is told of so much time.
const WINDOW: Duration = Duration::from_millis(250);
const BACK: f64 = 0.95;
/// Reads before the flush, beside some of every key, so that all are known; and how long it is watched after.
const BEFORE: Duration = Duration::from_secs(5);
const OF_EACH: usize = 4;
const PART: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Tally {
    hits: AtomicU64,
    reads: AtomicU64,
    /// When each load began and ended, microseconds.
    loads: Mutex<Vec<(u64, u64)>>,
}

impl Tally {
    fn hit_rate(&self) -> f64 {
        let (hits, reads) = (self.hits.swap(0, Ordering::Relaxed), self.reads.swap(0, Ordering::Relaxed));
        hits as f64 / reads.max(1) as f64
    }
}

/// What came of it.
struct Seen {
    /// From then on the hit rate stayed.
    back_after: Option<Duration>,
    lowest: f64,
    known: usize,
    /// Since the flush.
    loads: Vec<(u64, u64)>,
    warmed: u64,
}

/// Flushes a private Redis under readers by Zipf's law.
///
/// # Errors
/// [`crate::failure::Failure::Work`].
pub fn rewarm(bench: &mut Bench<'_>) -> Result {
    let Some(server) = &bench.server else {
        output::note("left out: only a private Redis is flushed");
        return Ok(());
    };
    let seen = runtime::run(async {
        let tally = Arc::new(Tally::default());
        let mut caches = Vec::with_capacity(CACHES);
        for _ in 0..CACHES {
            let all = Caches::builder(bench.store().await?).load_rate(LOAD_RATE).start().map_err(broken)?;
            caches.push((cache_of(&all, &tally)?, all));
        }
        fill(bench, &tally).await?;
        let readers: Vec<_> = (0_u64..)
            .zip(&caches)
            .map(|(seed, (cache, _))| tokio::spawn(read(cache.clone(), seed, tally.clone())))
            .collect();
        let keys: Vec<u64> = (0..KEYS as u64).collect();
        for part in (0..OF_EACH).flat_map(|_| keys.chunks(PART)) {
            for (cache, _) in &caches {
                cache.get_many(part).await;
            }
            // So slowly that every read is counted.
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(BEFORE).await;
        let known = caches.iter().map(|(cache, _)| cache.hottest(KEYS).len()).min().unwrap_or(0);
        tally.loads.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tally.hit_rate();
        server.flush()?;
        let (back_after, lowest) = watch(&tally).await;
        readers.iter().for_each(tokio::task::JoinHandle::abort);
        let warmed = caches.iter().map(|(cache, _)| cache.stats().rewarm_loads).sum();
        for (_, all) in caches {
            all.close().await;
        }
        let loads = std::mem::take(&mut *tally.loads.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Seen { back_after, lowest, known, loads, warmed })
    })?;
    tell(bench, &seen)
}

fn cache_of(caches: &Caches, tally: &Arc<Tally>) -> Result<Cache<u64, u64>> {
    let tally = Arc::clone(tally);
    let loader = move |key: u64, _| {
        let tally = Arc::clone(&tally);
        async move {
            let began = now_us();
            tokio::time::sleep(LOAD).await;
            tally.loads.lock().unwrap_or_else(PoisonError::into_inner).push((began, now_us()));
            Ok::<_, NoRow>(Loaded::value(key))
        }
    };
    // Copies in process would hide the flush.
    caches.cache("rewarm").fresh_for(Ttl::seconds::<3_600>()).no_local().loader(loader).map_err(broken)
}

/// Fills the store, by caches that are gone when this returns.
async fn fill(bench: &Bench<'_>, tally: &Arc<Tally>) -> Result {
    let filler = Caches::builder(bench.store().await?).start().map_err(broken)?;
    let keys: Vec<u64> = (0..KEYS as u64).collect();
    let filled = cache_of(&filler, tally)?.warm(&keys).await.map_err(broken);
    filler.close().await;
    filled.map(drop)
}

/// Reads by Zipf's law with exponent 1, for ever, and never waits for an answer before it asks on.
async fn read(cache: Cache<u64, u64>, seed: u64, tally: Arc<Tally>) {
    let zipf = Zipf::new(KEYS);
    let (mut random, mut tick) = (Random::of(7, seed), tokio::time::interval(TICK));
    loop {
        tick.tick().await;
        for _ in 0..A_TICK {
            let key = zipf.draw(&mut random) as u64;
            let (cache, tally) = (cache.clone(), Arc::clone(&tally));
            tokio::spawn(async move {
                let hit = cache.get(&key).await.is_ok_and(|read| read.source != Source::Load);
                tally.hits.fetch_add(u64::from(hit), Ordering::Relaxed);
                tally.reads.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
}

/// After which time reads are hits again, and stay so; the lowest hit rate.
async fn watch(tally: &Tally) -> (Option<Duration>, f64) {
    let (began, mut back, mut lowest) = (Instant::now(), None, 1.0_f64);
    while began.elapsed() < AFTER {
        tokio::time::sleep(WINDOW).await;
        let rate = tally.hit_rate();
        lowest = lowest.min(rate);
        back = if rate < BACK { None } else { back.or(Some(began.elapsed())) };
    }
    (back, lowest)
}

fn tell(bench: &mut Bench<'_>, seen: &Seen) -> Result {
    let reads = CACHES as u128 * A_TICK as u128 * 1_000 / TICK.as_millis();
    let what = format!("{KEYS} hot keys flushed, {CACHES} caches, {reads} reads/s by Zipf's law");
    let mut line = |what: String, rate: f64, unit| bench.printer.line(Line::new(what, rate, unit));
    let missing = u64::from(seen.back_after.is_none());
    let back = seen.back_after.unwrap_or(AFTER).as_secs_f64();
    line(format!("{what}: hot keys known before, at least"), seen.known as f64, "keys")?;
    line(format!("{what}: lowest hit rate in {} ms", WINDOW.as_millis()), seen.lowest * 100.0, "%")?;
    line(format!("{what}: loads after it"), seen.loads.len() as f64, "loads")?;
    line(format!("{what}: of these by warm-ups"), seen.warmed as f64, "loads")?;
    let most = most_in_a_second(&seen.loads, 0, u64::MAX);
    line(format!("{what}: loads in a second, at most"), most as f64, "loads")?;
    let text = format!("{what}: until 95 % are hits again");
    bench.printer.line(Line::new(text, back, "s").errors(missing))
}
