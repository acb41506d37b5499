//! One lock and a long line: each holds it for no time, and hands it on.

use std::sync::Arc;
use std::time::Duration;

use tidegate::lock::{Ask, Locks, RedisLocks};

use super::child::{Granted, Order, Report};
use super::{Bench, failed};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::start_all;
use crate::commands::bench::redis::Redis;
use crate::failure::Result;
use crate::load::record::Record;
use crate::runtime;

const PROCESSES: usize = 4;
const WAITERS: u64 = 250;
/// Over which time the waiters of a process come.
const COME_MS: u64 = 1_000;
/// How long the line is watched before the lock is given to its first.
const WATCHED_MS: u64 = 3_000;
/// Who asks so much later than another stands behind it in the line: on its way it may overtake one that asked just before.
const BEHIND_US: u64 = 25_000;
/// The lock's name.
const NAME: &str = "line";

/// Measures.
pub fn measure(bench: &mut Bench<'_>) -> Result {
    let waiters = bench.scaled(WAITERS, 10);
    let watched = Duration::from_millis(bench.scaled(WATCHED_MS, 1_000));
    let mut processes = start_all("locks-process", PROCESSES, &bench.setup())?;
    let commands = runtime::run(async {
        let redis = Redis::open(&bench.url, &bench.name).await?;
        let locks = Locks::new(Arc::new(RedisLocks::open(redis.connector().clone())));
        let first = locks.acquire(NAME, Ask::new(Duration::from_secs(60))).await.map_err(failed)?;
        for process in &mut processes {
            process.order(&Order::Wait { lock: NAME.to_owned(), waiters, over_ms: COME_MS })?;
        }
        tokio::time::sleep(Duration::from_millis(COME_MS) + Duration::from_secs(1)).await;
        let before = redis.info("stats", "total_commands_processed").await?;
        tokio::time::sleep(watched).await;
        let after = redis.info("stats", "total_commands_processed").await?;
        first.release().await.map_err(failed)?;
        locks.close().await;
        Ok((after - before) as f64 / watched.as_secs_f64())
    })?;
    let mut grants: Vec<Granted> = Vec::new();
    let mut errors = 0;
    for process in &mut processes {
        let report: Report = process.report()?;
        errors += report.errors;
        grants.extend(report.grants);
    }
    grants.sort_unstable_by_key(|granted| granted.fence);
    let (times, inversions) = handed_on(&grants);
    let total = waiters * PROCESSES as u64;
    let what = format!(
        "{PROCESSES} processes x {waiters} waiters for one lock: commands while all wait, those in scripts too"
    );
    bench.printer.line(Line::new(what, commands, "commands/s"))?;
    let line = Line::new("hand-over: release sent to the next holder's grant seen", grants.len() as f64, "grants");
    bench.printer.line(line.times(times.percentiles()).errors(errors + total.saturating_sub(grants.len() as u64)))?;
    bench.printer.line(Line::new("grants before one that had asked 25 ms earlier", inversions as f64, "inversions"))
}

/// From each release to the next grant, and how many were granted before one that stood before them.
fn handed_on(grants: &[Granted]) -> (Record, u64) {
    let mut times = Record::new();
    for pair in grants.windows(2) {
        if let [before, after] = pair {
            times.time(Duration::from_micros(after.granted_us.saturating_sub(before.released_us)));
        }
    }
    // Whoever comes after this one and asked clearly earlier was overtaken by it.
    let mut earliest_after = u64::MAX;
    let mut inversions = 0;
    for granted in grants.iter().rev() {
        inversions += u64::from(earliest_after.saturating_add(BEHIND_US) < granted.asked_us);
        earliest_after = earliest_after.min(granted.asked_us);
    }
    (times, inversions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_overtakes_is_counted_and_one_that_asked_at_the_same_time_is_not() {
        let granted =
            |asked_us, fence| Granted { asked_us, granted_us: fence * 10, released_us: fence * 10 + 4, fence };
        let (times, inversions) =
            handed_on(&[granted(0, 1), granted(90_000, 2), granted(70_000, 3), granted(10_000, 4)]);
        assert_eq!((times.len(), times.percentiles().max), (3, 0.006));
        assert_eq!(inversions, 2, "those that asked at 90 and 70 ms came before the one that asked at 10");
        assert_eq!(handed_on(&[granted(20_000, 1), granted(0, 2)]).1, 0);
    }
}
