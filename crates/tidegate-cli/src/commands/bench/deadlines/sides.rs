//! Side by side: the same tasks in every way there is, each on a private store of its own.

use std::path::Path;
use std::time::{Duration, Instant};

use super::child::{Due, Order, Report, now_ms};
use super::side::Side;
use super::way::{How, PAYLOAD};
use super::{Bench, ask, rate, start};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::{Process, now_us};
use crate::failure::{Failure, Result};
use crate::output;

/// Far tasks, whose memory is taken.
const PENDING: u64 = 100_000;
const FAR: i64 = 80_000_000;
/// Tasks that are due together, and how long they are waited for.
const DUE: u64 = 50_000;
const FIRE_MS: u64 = 15_000;
/// A steady stream.
const RATE: u64 = 1_000;
const FOR_MS: u64 = 5_000;
const AHEAD_MS: i64 = 1_000;
const LATE_MS: u64 = 5_000;
/// How long a store takes tasks before it is killed, tasks of one order, when they are due (at a small scale), and how long
/// after that they are waited for: a little where it can be seen whether they are there, else until they come.
const LOADED: Duration = Duration::from_secs(1);
const STEP: u64 = 100;
const DUE_AFTER_MS: i64 = 5_000;
const SMALL_DUE_AFTER_MS: i64 = 2_000;
const SETTLED_US: u64 = 3_000_000;
const AFTER_KILL_US: u64 = 20_000_000;
/// Between two looks.
const LOOK_US: u64 = 500_000;

/// Measures one.
pub fn measure(bench: &mut Bench<'_>, open: fn(&Path) -> Result<Side>) -> Result {
    let own = tempfile::Builder::new().prefix("side-").tempdir_in(bench.folder());
    let own = own.map_err(|e| Failure::Work(format!("cannot make a folder for a private server: {e}")))?;
    let opened = open(own.path()).and_then(|side| Ok((start(&side.kind())?, side)));
    let (load, mut side) = match opened {
        Ok(opened) => opened,
        // A server that is not installed is left out, and said to be.
        Err(Failure::Usage(why)) => {
            output::note(format!("  left out: {why}"));
            return Ok(());
        }
        Err(other) => return Err(other),
    };
    let mut pair = Pair::new(&side, load)?;
    pending(bench, &side, &mut pair)?;
    fire(bench, &side, &mut pair)?;
    stream(bench, &side, &mut pair)?;
    killed(bench, &mut side, pair)
}

/// The processes of a side: one that schedules, and one that works where two can.
struct Pair {
    load: Process,
    worker: Option<Process>,
}

impl Pair {
    fn new(side: &Side, load: Process) -> Result<Self> {
        let kind = side.kind();
        let worker = if kind.is_shared() { Some(start(&kind)?) } else { None };
        Ok(Self { load, worker })
    }

    fn load(&mut self, order: Order) -> Result<Report> {
        ask(&mut self.load, order)
    }

    fn work(&mut self, order: Order) -> Result<Report> {
        ask(self.worker.as_mut().unwrap_or(&mut self.load), order)
    }
}

/// Schedules far tasks, and what they take.
fn pending(bench: &mut Bench<'_>, side: &Side, pair: &mut Pair) -> Result {
    let count = bench.scaled(PENDING, 2_000);
    let (before, _) = side.bytes()?;
    let due = Due::At(now_ms() + FAR);
    let report = pair.load(Order::Schedule { queue: "far".to_owned(), from: 0, count, due })?;
    let (after, of) = side.bytes()?;
    let line = Line::new(format!("{}: schedule, batches of 512", side.name), rate(count, report.took_us), "tasks/s");
    bench.printer.line(line)?;
    let bytes = after.saturating_sub(before) as f64 / count as f64 - (PAYLOAD.len() + 2) as f64;
    bench.printer.line(Line::new(format!("{}: {of} a pending task, less its payload", side.name), bytes, "bytes"))
}

/// Tasks that are due together, while a worker waits for them.
fn fire(bench: &mut Bench<'_>, side: &Side, pair: &mut Pair) -> Result {
    let count = bench.scaled(DUE, 1_000);
    let queue = || "fire".to_owned();
    pair.work(Order::Work { queue: queue(), how: How::fast(), most: count })?;
    // Time enough to schedule them; a broker counts its delays from there.
    let ahead = 1_000 + i64::try_from(count / 10).unwrap_or(0);
    let began = now_ms();
    let exact = side.kind().takes_instants();
    let due = if exact { Due::At(began + ahead) } else { Due::Ahead(1_000) };
    pair.load(Order::Schedule { queue: queue(), from: 0, count, due })?;
    let first = if exact { began + ahead } else { began + 1_000 }.max(0).unsigned_abs() * 1_000;
    let until_us = first.max(now_us()) + bench.scaled(FIRE_MS, 2_000) * 1_000;
    pair.work(Order::Wait { queue: queue(), count, until_us })?;
    let Report { seen, .. } = pair.work(Order::Stop { queue: queue() })?;
    let what = format!("{}: {} of {count} due tasks handed out", side.name, seen.distinct);
    let took = seen.last_us.saturating_sub(first);
    bench.printer.line(Line::new(what, rate(seen.distinct, took), "tasks/s").errors(seen.early))
}

/// A steady stream.
fn stream(bench: &mut Bench<'_>, side: &Side, pair: &mut Pair) -> Result {
    let for_ms = bench.scaled(FOR_MS, 1_000);
    let (count, queue) = (RATE * for_ms / 1_000, || "stream".to_owned());
    pair.work(Order::Work { queue: queue(), how: How::each(), most: count })?;
    pair.load(Order::Stream { queue: queue(), per_second: RATE, for_ms, ahead_ms: AHEAD_MS })?;
    let until_us = now_us() + (AHEAD_MS.unsigned_abs() + bench.scaled(LATE_MS, 500)) * 1_000;
    pair.work(Order::Wait { queue: queue(), count, until_us })?;
    let Report { seen, .. } = pair.work(Order::Stop { queue: queue() })?;
    let what = format!("{}: lateness of those that came, of {count} at {RATE}/s", side.name);
    bench.printer.line(Line::new(what, seen.distinct as f64, "deadlines").times(seen.lateness()).errors(seen.early))
}

/// Schedules until the store is killed; what was acknowledged and is gone.
fn killed(bench: &mut Bench<'_>, side: &mut Side, mut pair: Pair) -> Result {
    let (mut acknowledged, queue) = (0, || "killed".to_owned());
    let small = bench.scale < 1.0;
    let (loaded, after_ms) = if small { (LOADED / 5, SMALL_DUE_AFTER_MS) } else { (LOADED, DUE_AFTER_MS) };
    let settled_us = bench.scaled(SETTLED_US, SETTLED_US / 3);
    let step = |from| Order::Schedule { queue: queue(), from, count: STEP, due: Due::Ahead(after_ms) };
    let began = Instant::now();
    while began.elapsed() < loaded {
        pair.load(step(acknowledged))?;
        acknowledged += STEP;
    }
    // One more is on its way, which nobody was told of.
    pair.load.order(&step(acknowledged))?;
    pair.load.kill()?;
    side.kill();
    drop(pair);
    let due_us = now_us() + after_ms.unsigned_abs() * 1_000;
    side.restart()?;
    let load = start(&side.kind())?;
    let mut pair = Pair::new(side, load)?;
    pair.work(Order::Work { queue: queue(), how: How::fast(), most: acknowledged })?;
    let until_us = due_us.max(now_us()) + AFTER_KILL_US;
    let (mut missing, mut left) = (acknowledged, 0);
    while missing > 0 && now_us() < until_us {
        let part = (now_us() + LOOK_US).min(until_us);
        pair.work(Order::Wait { queue: queue(), count: acknowledged, until_us: part })?;
        missing = pair.work(Order::Missing { queue: queue(), count: acknowledged })?.done;
        left = pair.load(Order::Left { queue: queue() })?.done;
        // What lies there still is not lost, and what is gone does not come; a broker does not say.
        if side.kind().takes_instants() && now_us() > due_us + settled_us && (left == 0 || left >= missing) {
            break;
        }
    }
    let seen = pair.work(Order::Stop { queue: queue() })?.seen;
    let lost = missing.saturating_sub(left);
    let what = format!("{}: lost by kill -9 of the store, of {acknowledged} acknowledged", side.name);
    bench.printer.line(Line::new(what, lost as f64, "tasks").errors(seen.early))
}
