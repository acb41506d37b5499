//! Bad days: nothing is heard of writes, Redis freezes, the database is down.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate::cache::{Cache, Caches, Loaded, Source, Ttl};

use super::child::NoRow;
use super::process::{Order, Report, Setup, now_us, start_all};
use super::{Bench, broken, ttl, wait_until_us};
use crate::commands::bench::line::Line;
use crate::failure::Result;
use crate::load::record::Record;
use crate::{output, runtime};

/// Between two writes, and between two reads.
const WRITES: Duration = Duration::from_millis(50);
const READS: Duration = Duration::from_millis(1);
/// The frozen Redis: processes, reads a second of all, keys, loads a second of each.
const PROCESSES: usize = 2;
const READ_RATE: u64 = 5_000;
const KEYS: u64 = 1_000;
const LOAD_RATE: NonZeroU32 = NonZeroU32::new(50).expect("50 is not 0");
/// How long before and after it is watched.
const BEFORE_MS: u64 = 2_000;
const AFTER_MS: u64 = 3_000;
const SECOND_US: u64 = 1_000_000;

/// A database with one row, and when each version was known to be invalidated.
#[derive(Default)]
struct Row {
    version: AtomicU64,
    acknowledged: Mutex<Vec<Instant>>,
}

impl Row {
    /// For how long a read of `version` that began at `asked` had been outdated.
    fn outdated(&self, version: u64, asked: Instant) -> Duration {
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        let next = usize::try_from(version).ok().and_then(|version| acknowledged.get(version));
        next.map_or(Duration::ZERO, |at| asked.saturating_duration_since(*at))
    }
}

fn cache_of(caches: &Caches, row: &Arc<Row>) -> Result<Cache<u64, u64>> {
    let row = Arc::clone(row);
    let builder = caches.cache("bus").fresh_for(Ttl::seconds::<3_600>());
    let loader = move |_: u64, _| {
        let version = row.version.load(Ordering::SeqCst);
        async move { Ok::<_, NoRow>(Loaded::value(version)) }
    };
    builder.loader(loader).map_err(broken)
}

/// One process writes; another hears nothing of it.
pub fn bus(bench: &mut Bench<'_>) -> Result {
    let Some(server) = &bench.server else {
        output::note("left out: what processes tell each other is silenced on a private Redis only");
        return Ok(());
    };
    let silent = Duration::from_millis(bench.scaled(10_000, 3_000));
    let (oldest, heard) = runtime::run(async {
        let row = Arc::new(Row::default());
        let open = async || Caches::builder(bench.store().await?).start().map_err(broken);
        let (reading, writing) = (open().await?, open().await?);
        let (reader, writer) = (cache_of(&reading, &row)?, cache_of(&writing, &row)?);
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(write(writer, Arc::clone(&row), Arc::clone(&stop)));
        let heard = oldest_read(&reader, &row, silent.min(Duration::from_secs(2))).await?;
        server.silence_streams(true)?;
        let oldest = oldest_read(&reader, &row, silent).await?;
        server.silence_streams(false)?;
        stop.store(true, Ordering::SeqCst);
        task.await.map_err(broken)??;
        reading.close().await;
        writing.close().await;
        Ok((oldest, heard))
    })?;
    let times = heard.percentiles();
    bench.printer.line(Line::new("bus heard: oldest local read while writing", times.max, "ms").times(times))?;
    let times = oldest.percentiles();
    let what = format!("bus silent for {:.0} s: oldest local read while writing", silent.as_secs_f64());
    bench.printer.line(Line::new(what, times.max, "ms").times(times))
}

async fn write(cache: Cache<u64, u64>, row: Arc<Row>, stop: Arc<AtomicBool>) -> Result {
    while !stop.load(Ordering::SeqCst) {
        row.version.fetch_add(1, Ordering::SeqCst);
        cache.invalidate(&1).await.map_err(broken)?;
        row.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        tokio::time::sleep(WRITES).await;
    }
    Ok(())
}

/// For how long what the in-process level gave had been outdated.
async fn oldest_read(cache: &Cache<u64, u64>, row: &Row, time: Duration) -> Result<Record> {
    let (began, mut record) = (Instant::now(), Record::new());
    while began.elapsed() < time {
        let asked = Instant::now();
        let read = cache.get(&1).await.map_err(broken)?;
        if read.source == Source::Local {
            record.time(row.outdated(read.value.as_deref().copied().unwrap_or(0), asked));
        }
        tokio::time::sleep(READS).await;
    }
    Ok(record)
}

/// Redis stops answering while thousands read.
pub fn frozen(bench: &mut Bench<'_>) -> Result {
    let Some(server) = &bench.server else {
        output::note("left out: only a private Redis is frozen");
        return Ok(());
    };
    let frozen_ms = bench.scaled(10_000, 3_000);
    let setup = Setup {
        url: bench.url.clone(),
        name: bench.name.clone(),
        namespace: "frozen".to_owned(),
        fresh_ms: 3_600_000,
        stale_ms: 0,
        local: false,
        load_rate: Some(LOAD_RATE),
        load_ms: 20,
        fails: false,
    };
    fill(&Setup { load_rate: None, load_ms: 0, ..setup.clone() })?;
    let mut processes = start_all(PROCESSES, &setup)?;
    let for_ms = BEFORE_MS + frozen_ms + AFTER_MS;
    let order = Order::Stream { per_second: READ_RATE / PROCESSES as u64, for_ms, keys: KEYS };
    let began = now_us();
    for process in &mut processes {
        process.order(&order)?;
    }
    wait_until_us(began + BEFORE_MS * 1_000)?;
    server.freeze()?;
    let frozen = now_us();
    let waited = wait_until_us(frozen + frozen_ms * 1_000);
    server.thaw()?;
    let thawed = now_us();
    waited?;
    let mut reports: Vec<Report> = Vec::with_capacity(PROCESSES);
    for process in &mut processes {
        reports.push(process.report()?);
    }
    let most = |from: u64, to: u64| reports.iter().map(|report| most_in_a_second(&report.loads, from, to)).max();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    let what = format!("Redis frozen for {} s at {READ_RATE} reads/s, {PROCESSES} processes", frozen_ms / 1_000);
    let line = |what: String, rate: u64, unit| Line::new(what, rate as f64, unit);
    let frozen_most = most(frozen, thawed).unwrap_or(0);
    let text = format!("{what}: loads a second of a process, at most");
    bench.printer.line(line(text, frozen_most, "loads").errors(sum(|report| report.errors)))?;
    let after = most(thawed, u64::MAX).unwrap_or(0);
    bench.printer.line(line(format!("{what}: the same after the thaw"), after, "loads"))?;
    let hot = reports
        .iter()
        .map(|report| report.hot_us)
        .fold([0; 3], |most, of| [most[0].max(of[0]), most[1].max(of[1]), most[2].max(of[2])]);
    let ms = |us: u64| us as f64 / 1_000.0;
    let times = crate::load::record::Percentiles { p50: ms(hot[0]), p99: ms(hot[1]), max: ms(hot[2]) };
    bench.printer.line(Line::new(format!("{what}: local hits meanwhile"), times.p99, "ms").times(times))?;
    let (values, overloaded) = (sum(|report| report.values), sum(|report| report.overloaded));
    let longest = reports.iter().map(|report| report.longest_us).max().unwrap_or(0);
    bench.printer.line(line(format!("{what}: answered with a value"), values, "reads"))?;
    bench.printer.line(line(format!("{what}: told Overloaded"), overloaded, "reads"))?;
    bench.printer.line(Line::new(format!("{what}: slowest answer"), ms(longest), "ms"))
}

/// Fills the store, by a process that is gone when this returns.
fn fill(setup: &Setup) -> Result {
    let mut filler = start_all(1, setup)?;
    let order = Order::Stream { per_second: 2 * KEYS, for_ms: 1_000, keys: KEYS };
    for process in &mut filler {
        process.order(&order)?;
        process.report::<Report>()?;
    }
    Ok(())
}

/// The most loads that began in any second from one of them on, of those within `from..to`.
pub(super) fn most_in_a_second(loads: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let mut begun: Vec<u64> = loads.iter().map(|(began, _)| *began).filter(|at| (from..to).contains(at)).collect();
    begun.sort_unstable();
    let within = |at: usize| begun[at..].partition_point(|other| *other < begun[at] + SECOND_US);
    (0..begun.len()).map(within).max().unwrap_or(0) as u64
}

/// Every load fails; every key is within its stale life.
pub fn database(bench: &mut Bench<'_>) -> Result {
    let down = Duration::from_millis(bench.scaled(60_000, 5_000));
    // Values are past their freshness for most of it.
    let fresh = ttl(u64::try_from(down.as_millis()).unwrap_or(u64::MAX) / 10);
    let (mut record, mut unanswered, mut loads) = (Record::new(), 0, 0);
    runtime::run(async {
        let fails = Arc::new(AtomicBool::new(false));
        let mut caches = Vec::new();
        for local in [true, false] {
            let all = Caches::builder(bench.store().await?).start().map_err(broken)?;
            let builder = all.cache("database").fresh_for(fresh).stale_for(Ttl::seconds::<3_600>());
            let builder = if local { builder } else { builder.no_local() };
            let fails = Arc::clone(&fails);
            let loader = move |key: u64, _| {
                let failed = fails.load(Ordering::SeqCst);
                async move { if failed { Err(NoRow) } else { Ok(Loaded::value(key)) } }
            };
            caches.push((builder.loader(loader).map_err(broken)?, all));
        }
        for key in 0..KEYS {
            for (cache, _) in &caches {
                cache.get(&key).await.map_err(broken)?;
            }
        }
        fails.store(true, Ordering::SeqCst);
        let (began, mut n) = (Instant::now(), 0_u64);
        while began.elapsed() < down {
            for (cache, _) in &caches {
                let (asked, key) = (Instant::now(), n % KEYS);
                let answer = cache.get(&key).await;
                record.time(asked.elapsed());
                let right = answer.is_ok_and(|read| read.value.as_deref() == Some(&key));
                unanswered += u64::from(!right);
            }
            n += 1;
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        loads = caches.iter().map(|(cache, _)| cache.stats().failed_loads).sum();
        for (_, all) in caches {
            all.close().await;
        }
        Ok(())
    })?;
    let what = format!("database down for {:.0} s, {KEYS} keys within their stale life", down.as_secs_f64());
    let line = Line::new(format!("{what}: answered"), record.len() as f64 - unanswered as f64, "reads");
    bench.printer.line(line.times(record.percentiles()).errors(unanswered))?;
    let rate = loads as f64 / KEYS as f64 / down.as_secs_f64();
    bench.printer.line(Line::new(format!("{what}: tries a second and key, both processes"), rate, "loads/s"))
}

#[cfg(test)]
mod tests {
    use super::most_in_a_second;

    #[test]
    fn the_fullest_second_is_found_wherever_it_begins() {
        let loads: Vec<(u64, u64)> = [0, 900_000, 1_100_000, 1_899_999, 1_900_000].map(|at| (at, at)).to_vec();
        assert_eq!(most_in_a_second(&loads, 0, u64::MAX), 3);
        assert_eq!(most_in_a_second(&loads, 0, 1_000_000), 2);
        assert_eq!(most_in_a_second(&[], 0, u64::MAX), 0);
    }
}
