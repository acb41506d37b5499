//! `tidegate bench big-keys`: both routes of `tidegate big-keys` beside `redis-cli --memkeys`, by turns on the same server: how long
//! each takes, what it costs the server's main thread, and what others notice of it.
//!
//! - [`planted`]: the keys. [`others`]: who else asks the server. [`runs`]: one look of each kind.
//! - [`recall`]: the largest keys by both routes, against an exhaustive check.

mod others;
mod planted;
mod recall;
mod runs;

use self::others::Noticed;
use self::runs::{Look, Seen};
use super::line::{Line, Printer};
use super::on_redis::Bench;
use super::{Args, wanted};
use crate::failure::{Failure, Result};

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 3] = [
    ("snapshot", "the snapshot route beside redis-cli --memkeys, three times by turns, at both paces"),
    ("scan", "the SCAN route beside redis-cli --memkeys"),
    ("recall", "the 100 largest keys by both routes, against MEMORY USAGE of every key"),
];

/// Runs of each kind by turns; the median counts.
const ROUNDS: usize = 3;

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not, or without `redis-cli`; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let cli = super::private::find("redis-cli", "redis-tools")?;
    let mut bench = Bench::start(args, printer)?;
    bench.printer.step("planting the keys");
    let is_private = bench.server.is_some();
    let planted = bench.on_redis(async |redis| {
        if is_private {
            // A wait for further replicas is no work.
            redis.ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await?;
        }
        planted::plant(redis, &bench.name, bench.scale).await
    })?;
    let text = format!("planted: {} small hashes, {} larger keys, memory of Redis", planted.small, planted.large);
    bench.printer.line(Line::new(text, planted.bytes as f64 / 1_048_576.0, "MiB"))?;
    let before = runs::main_thread(&bench)?;
    let idle = others::alone(&bench)?;
    let read_costs = (runs::main_thread(&bench)? - before) / idle.reads().max(1) as f64;
    let looks = runs::Looks { cli, read_costs };
    bench.printer.line(Line::new("others while nobody looks", idle.rate(), "GET/s").times(idle.times()))?;
    let measured = wanted.iter().try_for_each(|(name, what)| {
        bench.printer.step(what);
        match *name {
            "snapshot" => snapshot(&mut bench, &looks),
            "scan" => beside_memkeys(&mut bench, &looks, &[Look::Scan]),
            _ => recall::measure(&mut bench, &looks),
        }
    });
    // A private server goes with all it has.
    if bench.server.is_none() {
        bench.erase()?;
    }
    measured
}

fn snapshot(bench: &mut Bench<'_>, looks: &runs::Looks) -> Result {
    beside_memkeys(bench, looks, &[Look::Snapshot { fast: false }, Look::Snapshot { fast: true }])
}

/// Each of `kinds` and `redis-cli --memkeys` by turns.
fn beside_memkeys(bench: &mut Bench<'_>, looks: &runs::Looks, kinds: &[Look]) -> Result {
    let mut theirs = Vec::new();
    let mut ours: Vec<Vec<(Seen, Noticed)>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        theirs.push(looks.look(bench, Look::Memkeys)?);
        for (kind, seen) in kinds.iter().zip(&mut ours) {
            seen.push(looks.look(bench, *kind)?);
        }
    }
    let (took, server) = medians(&theirs);
    let line = Line::new("redis-cli --memkeys: took", took, "s");
    bench.printer.line(line)?;
    let noticed = Noticed::all(theirs.iter().map(|(_, noticed)| noticed));
    bench.printer.line(Line::new("  others meanwhile", noticed.rate(), "GET/s").times(noticed.times()))?;
    bench.printer.line(Line::new("  processor time of Redis' main thread", server, "s"))?;
    for (kind, seen) in kinds.iter().zip(&ours) {
        told(bench, *kind, seen, (took, server))?;
    }
    Ok(())
}

fn told(bench: &mut Bench<'_>, kind: Look, seen: &[(Seen, Noticed)], theirs: (f64, f64)) -> Result {
    let (took, server) = medians(seen);
    let keys = seen.first().map_or(0, |(seen, _)| seen.keys);
    let line = Line::new(format!("tidegate big-keys, {}: took", kind.name()), took, "s");
    bench.printer.line(line.beside("redis-cli --memkeys", Some(theirs.0)))?;
    bench.printer.line(Line::new("  keys looked at", keys as f64, "keys"))?;
    let line = Line::new("  processor time of Redis' main thread", server, "s");
    bench.printer.line(line.beside("redis-cli --memkeys", Some(theirs.1)))?;
    let noticed = Noticed::all(seen.iter().map(|(_, noticed)| noticed));
    bench.printer.line(Line::new("  others meanwhile", noticed.rate(), "GET/s").times(noticed.times()))?;
    let pause = seen
        .iter()
        .filter_map(|(seen, _)| seen.fork_pause_ms)
        .fold(None, |most: Option<f64>, ms| Some(most.map_or(ms, |most| most.max(ms))));
    match pause {
        Some(ms) => bench.printer.line(Line::new("  of that the longest pause for a fork", ms, "ms")),
        None => Ok(()),
    }
}

/// Seconds that it took, and of the server's main thread.
fn medians(seen: &[(Seen, Noticed)]) -> (f64, f64) {
    let median = |of: fn(&Seen) -> f64| {
        let mut values: Vec<f64> = seen.iter().map(|(seen, _)| of(seen)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    (median(|seen| seen.took), median(|seen| seen.server))
}

fn failed(what: &str, e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("{what}: {e}"))
}
