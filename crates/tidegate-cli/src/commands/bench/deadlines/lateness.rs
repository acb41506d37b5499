//! How late: a steady stream with a million pending, and a pile beside a trickle.

use std::time::Duration;

use super::child::{Due, Order, Report, now_ms};
use super::way::How;
use super::{Bench, ask};
use crate::commands::bench::line::Line;
use crate::commands::bench::orders::wait;
use crate::commands::bench::process::now_us;
use crate::failure::Result;

/// Deadlines a second, for how long, and how long before its instant each is scheduled.
const RATE: u64 = 10_000;
const FOR_MS: u64 = 20_000;
const AHEAD_MS: i64 = 1_000;
/// Tasks that are far.
const PENDING: u64 = 1_000_000;
const FAR: i64 = 86_400_000;
/// The pile, over which time it is due, and the trickle beside it.
const PILE: u64 = 500_000;
const SECOND_MS: i64 = 1_000;
const TRICKLE: u64 = 200;
const TRICKLE_MS: u64 = 5_000;
/// Longest wait for what must come.
const PATIENCE_US: u64 = 60_000_000;

/// A steady stream: one process schedules, another works.
pub fn steady(bench: &mut Bench<'_>) -> Result {
    let (pending, for_ms) = (bench.scaled(PENDING, 10_000), bench.scaled(FOR_MS, 1_000));
    let (mut load, mut worker) = (bench.process()?, bench.process()?);
    let queue = || "steady".to_owned();
    let far = Due::Over(now_ms() + FAR, FAR);
    // Numbers above those of the stream.
    let count = RATE * for_ms / 1_000;
    ask(&mut load, Order::Schedule { queue: queue(), from: count, count: pending, due: far })?;
    ask(&mut worker, Order::Work { queue: queue(), how: How::each(), most: count })?;
    let stream = Order::Stream { queue: queue(), per_second: RATE, for_ms, ahead_ms: AHEAD_MS };
    ask(&mut load, stream)?;
    let until_us = now_us() + PATIENCE_US;
    ask(&mut worker, Order::Wait { queue: queue(), count, until_us })?;
    let Report { seen, .. } = ask(&mut worker, Order::Stop { queue: queue() })?;
    let what = format!("lateness at {RATE} deadlines/s, {pending} pending, at the handler");
    let line = Line::new(what, seen.distinct as f64, "deadlines").times(seen.lateness());
    bench.printer.line(line.errors(count - seen.distinct + seen.early))
}

/// A pile that is due in one second, and a trickle on another queue of the same worker process.
pub fn pile(bench: &mut Bench<'_>) -> Result {
    let (count, for_ms) = (bench.scaled(PILE, 5_000), bench.scaled(TRICKLE_MS, 2_000));
    let (mut load, mut worker) = (bench.process()?, bench.process()?);
    let (pile, trickle) = (|| "pile".to_owned(), || "trickle".to_owned());
    // Time enough to schedule it, however busy the machine is.
    let ahead = i64::try_from(count / 20 + 500).unwrap_or(i64::MAX);
    let from = now_ms() + ahead;
    ask(&mut load, Order::Schedule { queue: pile(), from: 0, count, due: Due::Over(from, SECOND_MS) })?;
    let drops = TRICKLE * for_ms / 1_000;
    ask(&mut worker, Order::Work { queue: pile(), how: How::fast(), most: count })?;
    ask(&mut worker, Order::Work { queue: trickle(), how: How::each(), most: drops })?;
    wait(Duration::from_millis((from - now_ms()).max(0).unsigned_abs()))?;
    // Its first are due as the pile begins to be.
    ask(&mut load, Order::Stream { queue: trickle(), per_second: TRICKLE, for_ms, ahead_ms: 100 })?;
    let until_us = now_us() + PATIENCE_US;
    ask(&mut worker, Order::Wait { queue: pile(), count, until_us })?;
    ask(&mut worker, Order::Wait { queue: trickle(), count: drops, until_us })?;
    let Report { seen: piled, .. } = ask(&mut worker, Order::Stop { queue: pile() })?;
    let Report { seen: dripped, .. } = ask(&mut worker, Order::Stop { queue: trickle() })?;
    let began = from.unsigned_abs() * 1_000;
    let seconds = piled.last_us.saturating_sub(began) as f64 / 1_000_000.0;
    let line = Line::new(format!("{count} due in one second: handed out after"), seconds, "s").times(piled.lateness());
    bench.printer.line(line.errors(count - piled.distinct + piled.early))?;
    let line = Line::new("a trickle on another queue meanwhile, lateness", dripped.distinct as f64, "deadlines");
    bench.printer.line(line.times(dripped.lateness()).errors(drops - dripped.distinct + dripped.early))
}
