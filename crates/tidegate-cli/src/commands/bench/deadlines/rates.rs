//! How much in a second: scheduling, working off, cancelling.

use std::time::Instant;

use super::child::{Due, Order, now_ms};
use super::slow::Watch;
use super::way::{How, PAYLOAD};
use super::{Bench, ask, rate};
use crate::commands::bench::line::Line;
use crate::commands::bench::process::now_us;
use crate::commands::bench::redis::{Redis, broken};
use crate::failure::Result;

/// Tasks of the first two cases.
const TASKS: u64 = 500_000;
/// Far from now, milliseconds.
const FAR: i64 = 86_400_000;
/// Pending tasks while some are cancelled; how many are, and by how many callers.
const PENDING: u64 = 1_000_000;
const CANCELS: u64 = 100_000;
const CALLERS: u64 = 128;
/// Tasks that others claim meanwhile.
const CLAIMED: u64 = 200_000;
/// Commands in one of the bare client's pipelines: as many tasks as a batch has.
const PIPELINE: u64 = 512;
/// Longest wait for what must come, microseconds.
const PATIENCE_US: u64 = 120_000_000;

/// Schedules in batches.
pub fn schedule(bench: &mut Bench<'_>) -> Result {
    let count = bench.scaled(TASKS, 2_000);
    let bare = bench.on_redis(async |redis| bare_schedule(redis, &bench.name, count).await)?;
    bench.clear()?;
    let mut process = bench.process()?;
    let due = Due::At(now_ms() + FAR);
    let report = ask(&mut process, Order::Schedule { queue: "schedule".to_owned(), from: 0, count, due })?;
    let line = Line::new("schedule, batches of 512", rate(count, report.took_us), "tasks/s");
    bench.printer.line(line.beside("pipelined ZADD and HSET of the same, bare client", Some(bare)))
}

/// The same fields in the same pipelines without rules: no conditions, no receipts, no clock.
async fn bare_schedule(redis: &Redis, name: &str, count: u64) -> Result<f64> {
    let (set, hash) = bare_keys(name);
    let due = (now_ms() + FAR).to_string();
    let began = Instant::now();
    for first in (0..count).step_by(PIPELINE as usize) {
        let ids: Vec<String> = (first..(first + PIPELINE).min(count)).map(|n| format!("t{n}")).collect();
        let mut commands: Vec<Vec<&[u8]>> = Vec::with_capacity(ids.len() * 2);
        for id in &ids {
            commands.push(vec![b"ZADD", set.as_bytes(), due.as_bytes(), id.as_bytes()]);
            commands.push(vec![b"HSET", hash.as_bytes(), id.as_bytes(), PAYLOAD.as_bytes()]);
        }
        redis.bare.ask_all(&commands).await.map_err(broken)?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn bare_keys(name: &str) -> (String, String) {
    (format!("tg:{name}:bare"), format!("tg:{name}:bare:p"))
}

/// Works off what is all due.
pub fn drain(bench: &mut Bench<'_>) -> Result {
    let count = bench.scaled(TASKS, 2_000);
    let bare = bench.on_redis(async |redis| {
        bare_schedule(redis, &bench.name, count).await?;
        bare_drain(redis, &bench.name, count).await
    })?;
    bench.clear()?;
    let mut process = bench.process()?;
    let queue = || "drain".to_owned();
    ask(&mut process, Order::Schedule { queue: queue(), from: 0, count, due: Due::At(now_ms()) })?;
    let began = now_us();
    ask(&mut process, Order::Work { queue: queue(), how: How::fast(), most: count })?;
    ask(&mut process, Order::Wait { queue: queue(), count, until_us: began + PATIENCE_US })?;
    // The last answers count as well.
    let report = ask(&mut process, Order::Stop { queue: queue() })?;
    let took = now_us() - began;
    let line = Line::new("claim and acknowledge, all due at once", rate(report.seen.distinct, took), "tasks/s");
    let errors = count - report.seen.distinct + report.seen.early;
    bench.printer.line(line.beside("ZRANGEBYSCORE, HMGET, ZREM, HDEL of 512, bare client", Some(bare)).errors(errors))
}

async fn bare_drain(redis: &Redis, name: &str, count: u64) -> Result<f64> {
    let (set, hash) = bare_keys(name);
    let (began, most, mut gone) = (Instant::now(), PIPELINE.to_string(), 0);
    while gone < count {
        let due = redis.ask(&["ZRANGEBYSCORE", &set, "-inf", "+inf", "LIMIT", "0", &most]).await?.list();
        let ids: Vec<String> = due.iter().map(|id| id.text()).collect();
        let with = |command: &'static str, key: &str| {
            let head = [command, key].map(str::to_owned);
            head.into_iter().chain(ids.iter().cloned()).collect::<Vec<String>>()
        };
        let commands = [with("HMGET", &hash), with("ZREM", &set), with("HDEL", &hash)];
        let commands: Vec<Vec<&[u8]>> =
            commands.iter().map(|parts| parts.iter().map(String::as_bytes).collect()).collect();
        redis.bare.ask_all(&commands).await.map_err(broken)?;
        gone += ids.len() as u64;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Cancels at random, alone and while others claim from the same queue.
pub fn cancel(bench: &mut Bench<'_>) -> Result {
    let (pending, count) = (bench.scaled(PENDING, 20_000), bench.scaled(CANCELS, 2_000));
    let claimed = bench.scaled(CLAIMED, 2_000);
    let (mut process, mut worker) = (bench.process()?, bench.process()?);
    let queue = || "cancel".to_owned();
    let far = Due::Over(now_ms() + FAR, FAR);
    ask(&mut process, Order::Schedule { queue: queue(), from: 0, count: pending, due: far })?;
    let mut watch = Watch::begin(bench)?;
    let cancels = Order::Cancel { queue: queue(), of: pending, count, callers: CALLERS };
    let report = ask(&mut process, cancels)?;
    let line = Line::new(format!("cancel at random, {pending} pending"), rate(report.done, report.took_us), "tasks/s");
    bench.printer.line(line.errors(count - report.done))?;
    let due = Due::At(now_ms());
    let (report, worked) = watch.beside(bench, || {
        // Others are due while as many go as went, and those that are gone once more.
        ask(&mut process, Order::Schedule { queue: queue(), from: pending, count: claimed, due })?;
        process.order(&Order::Cancel { queue: queue(), of: pending, count: 2 * count, callers: CALLERS })?;
        ask(&mut worker, Order::Work { queue: queue(), how: How::fast(), most: pending + claimed })?;
        let report: super::Report = process.report()?;
        let until_us = now_us() + PATIENCE_US;
        Ok((report, ask(&mut worker, Order::Wait { queue: queue(), count: claimed, until_us })?))
    })?;
    ask(&mut worker, Order::Stop { queue: queue() })?;
    let what = format!("the same while {claimed} others are claimed (half of them gone already)");
    let line = Line::new(what, rate(2 * count, report.took_us), "tasks/s");
    bench.printer.line(line.errors(count - report.done + claimed - worked.seen.distinct + worked.seen.early))?;
    watch.end(bench)
}
