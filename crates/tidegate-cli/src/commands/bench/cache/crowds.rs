//! Thousands of callers in eight processes ask for one key at once: when it has expired, while a value is still served, and
//! when its loads fail.

use std::time::Duration;

use tidegate::core::cache::backoff_ms;
use tidegate::core::cache::defence::LONGEST_SHARED_MS;

use super::process::{Order, Report, Setup, all, now_us, soon_us, start_all};
use super::{Bench, wait_until_us};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::Process;
use crate::failure::Result;
use crate::load::record::Record;

/// Processes, and callers in all.
const PROCESSES: usize = 8;
const CALLERS: usize = 8_000;
const FAILING_CALLERS: usize = 10_000;
/// What a load takes.
const LOAD_MS: u64 = 150;
/// A value is fresh for less than a round takes.
const FRESH_MS: u64 = 500;
const ROUND_US: u64 = 700_000;
/// The one key.
const KEY: u64 = 1;
/// What a round of failures takes.
const FAILING_ROUND_US: u64 = 900_000;

/// What a round came to.
struct Round {
    loads: Vec<(u64, u64)>,
    last_us: u64,
    longest_us: u64,
    errors: u64,
    at_us: u64,
}

impl Round {
    fn of(reports: Vec<Report>, at_us: u64) -> Self {
        let mut round = Self { loads: Vec::new(), last_us: 0, longest_us: 0, errors: 0, at_us };
        for report in reports {
            round.loads.extend(&report.loads);
            round.last_us = round.last_us.max(report.last_us);
            round.longest_us = round.longest_us.max(report.longest_us);
            round.errors += report.errors + report.overloaded;
        }
        round.loads.sort_unstable();
        round
    }

    /// From the end of the first load to the last answer; less what a load takes, if nobody loaded.
    fn after_load(&self) -> Duration {
        let took = self.loads.first().map_or(0, |(began, ended)| ended - began);
        Duration::from_micros(self.last_us.saturating_sub(self.at_us + took))
    }
}

fn crowd(processes: &mut [Process], callers: usize, at_us: u64) -> Result<Round> {
    let order = Order::Crowd { callers: callers / PROCESSES, key: KEY, at_us };
    Ok(Round::of(all(processes, &order)?, at_us))
}

fn setup(bench: &Bench<'_>, namespace: &str) -> Setup {
    Setup {
        url: bench.url.clone(),
        name: bench.name.clone(),
        namespace: namespace.to_owned(),
        fresh_ms: FRESH_MS,
        stale_ms: 0,
        local: true,
        load_rate: None,
        load_ms: LOAD_MS,
        fails: false,
    }
}

/// The key has expired: one loads, all wait for it.
pub fn expiry(bench: &mut Bench<'_>) -> Result {
    let rounds = bench.scaled(200, 3);
    let mut processes = start_all(PROCESSES, &setup(bench, "expiry"))?;
    crowd(&mut processes, CALLERS, soon_us())?;
    let (mut loads, mut most, mut errors, mut after) = (0, 0, 0, Record::new());
    for _ in 0..rounds {
        let at = now_us() + ROUND_US - LOAD_MS * 1_000;
        let round = crowd(&mut processes, CALLERS, at)?;
        let wrong = round.loads.len() as u64;
        (loads, most) = (loads + wrong, most.max(wrong));
        errors += round.errors + u64::from(wrong != 1);
        after.time(round.after_load());
    }
    let what = format!("expiry, {PROCESSES} processes x {} callers, {rounds} rounds", CALLERS / PROCESSES);
    let line = Line::new(format!("{what}: loads a round (at most {most})"), loads as f64 / rounds as f64, "loads");
    bench.printer.line(line.errors(errors))?;
    let times = after.percentiles();
    bench.printer.line(Line::new(format!("{what}: last answer after the load"), times.p50, "ms").times(times))
}

/// The same with a value past its freshness: nobody waits.
pub fn stale(bench: &mut Bench<'_>) -> Result {
    let rounds = bench.scaled(200, 3);
    let mut processes = start_all(PROCESSES, &Setup { stale_ms: 60_000, ..setup(bench, "stale") })?;
    crowd(&mut processes, CALLERS, soon_us())?;
    let (mut loads, mut most, mut errors, mut waits) = (0, 0, 0, Record::new());
    for _ in 0..rounds {
        let at = now_us() + ROUND_US;
        let round = crowd(&mut processes, CALLERS, at)?;
        // The refresh of the round before has ended since; this one's may not have.
        let refreshes = round.loads.len() as u64;
        (loads, most) = (loads + refreshes, most.max(refreshes));
        errors += round.errors + u64::from(refreshes > 1);
        waits.time(Duration::from_micros(round.longest_us));
    }
    let what = format!("expiry with stale_for, {rounds} rounds");
    let line = Line::new(format!("{what}: refreshes a round (at most {most})"), loads as f64 / rounds as f64, "loads");
    bench.printer.line(line.errors(errors))?;
    let times = waits.percentiles();
    bench.printer.line(Line::new(format!("{what}: slowest of all callers"), times.p50, "ms").times(times))
}

/// Loads fail: one for all processes in each back-off.
pub fn failing(bench: &mut Bench<'_>) -> Result {
    let rounds = bench.scaled(20, 3);
    let mut processes = start_all(PROCESSES, &Setup { fails: true, ..setup(bench, "failing") })?;
    let (mut loads, mut wrong, mut after) = (Vec::new(), 0, Record::new());
    for round in 0..rounds {
        let at = soon_us();
        let crowded = crowd(&mut processes, FAILING_CALLERS, at)?;
        after.time(crowded.after_load());
        // All are told of the failure.
        wrong += (FAILING_CALLERS as u64).saturating_sub(crowded.errors);
        let ended = crowded.loads.last().map_or(at, |(_, ended)| *ended);
        loads.extend(crowded.loads);
        // Once more within the back-off, if there is time.
        if now_us() + 30_000 < ended + backoff_us(round) {
            loads.extend(crowd(&mut processes, PROCESSES, now_us() + 5_000)?.loads);
        }
        wait_until_us(at + FAILING_ROUND_US)?;
    }
    let early = early(&loads);
    let backoffs = (loads.len() as u64 - early).max(1);
    let what = format!("failing loader, {FAILING_CALLERS} callers, {PROCESSES} processes");
    let line = Line::new(format!("{what}: loads a back-off"), loads.len() as f64 / backoffs as f64, "loads");
    bench.printer.line(line.errors(wrong + early))?;
    let times = after.percentiles();
    bench.printer.line(Line::new(format!("{what}: last answer after the load"), times.p50, "ms").times(times))
}

/// The pause after a failure that so many have gone before.
fn backoff_us(failures: u64) -> u64 {
    backoff_ms(u32::try_from(failures).unwrap_or(u32::MAX)).min(LONGEST_SHARED_MS).unsigned_abs() * 1_000
}

/// How many of these loads, in the order in which they began, began before the back-off of the one before was over.
fn early(loads: &[(u64, u64)]) -> u64 {
    // The process that loads knows the end of its load a little before it is written down.
    const SLACK_US: u64 = 5_000;
    let is_early =
        |(failures, pair): (usize, &[(u64, u64)])| pair[1].0 + SLACK_US < pair[0].1 + backoff_us(failures as u64);
    loads.windows(2).enumerate().filter(|pair| is_early((pair.0, pair.1))).count() as u64
}

#[cfg(test)]
mod tests {
    use super::early;

    #[test]
    fn loads_within_a_back_off_are_found() {
        // Each takes 10 ms; back-offs of 50, 100 and 200 ms.
        let loads = [0, 60, 170, 380].map(|ms: u64| (ms * 1_000, (ms + 10) * 1_000));
        assert_eq!(early(&loads), 0);
        let loads = [0, 40, 150, 300].map(|ms: u64| (ms * 1_000, (ms + 10) * 1_000));
        assert_eq!(early(&loads), 2);
    }
}
