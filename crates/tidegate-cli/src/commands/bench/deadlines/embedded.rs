//! Our queue in a SQLite file, every answer on the disk.

use std::time::Instant;

use super::child::{Due, Order, now_ms};
use super::way::{How, Kind};
use super::{Bench, ask, rate, start};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::now_us;
use crate::failure::Result;

/// Callers at once, tasks they schedule, tasks that are pending when the file is opened again.
const CALLERS: u64 = 64;
const TASKS: u64 = 500_000;
const PENDING: u64 = 1_000_000;
const FAR: i64 = 86_400_000;
/// Longest wait for what must come.
const PATIENCE_US: u64 = 60_000_000;

/// Many callers, one task a call; then the file is opened again.
pub fn callers(bench: &mut Bench<'_>) -> Result {
    let (count, pending) = (bench.scaled(TASKS, 5_000), bench.scaled(PENDING, 10_000));
    let kind = Kind::Embedded { file: bench.folder().join("embedded.db") };
    let queue = || "embedded".to_owned();
    let mut process = start(&kind)?;
    let due = Due::Over(now_ms() + FAR, FAR);
    let singles = Order::Singles { queue: queue(), from: 0, count, due, callers: CALLERS };
    let report = ask(&mut process, singles)?;
    let what = format!("embedded, durable: schedule, {CALLERS} callers");
    bench.printer.line(Line::new(what, rate(report.done, report.took_us), "tasks/s"))?;
    let rest = pending.saturating_sub(count);
    let report = ask(&mut process, Order::Schedule { queue: queue(), from: count, count: rest, due })?;
    if rest > 0 {
        let line = Line::new("embedded, durable: schedule, batches of 512", rate(rest, report.took_us), "tasks/s");
        bench.printer.line(line)?;
    }
    process.kill()?;
    drop(process);
    let began = Instant::now();
    let mut process = start(&kind)?;
    let opened = began.elapsed().as_secs_f64();
    let total = count + rest;
    ask(&mut process, Order::Work { queue: queue(), how: How::each(), most: total + 1 })?;
    ask(&mut process, Order::Schedule { queue: queue(), from: total, count: 1, due: Due::At(now_ms()) })?;
    let until_us = now_us() + PATIENCE_US;
    let seen = ask(&mut process, Order::Wait { queue: queue(), count: 1, until_us })?.seen;
    let handed = began.elapsed().as_secs_f64();
    let left = ask(&mut process, Order::Left { queue: queue() })?.done;
    let what = format!("embedded: {total} pending, opened again after kill -9");
    bench.printer.line(Line::new(what, opened, "s").errors(total.saturating_sub(left)))?;
    bench.printer.line(Line::new("and a task that is due handed out", handed, "s").errors(1 - seen.distinct.min(1)))
}
