//! A worker that is killed; and the other extreme, nothing to do.

use std::time::Duration;

use super::child::{Due, Order, Report, now_ms};
use super::way::{How, PAYLOAD};
use super::{Bench, ask};
use crate::commands::bench::line::Line;
use crate::commands::bench::orders::wait;
use crate::commands::bench::process::{now_us, resident_bytes};
use crate::failure::Result;

/// Tasks that are due, those that the worker has in its hands when it is killed, and its lease.
const DUE: u64 = 5_000;
const IN_HANDS: usize = 1_000;
const LEASE_MS: u64 = 2_000;
/// The heir's handlers take so long: its claims are there while the dead one's receipts are tried.
const HEIR_MS: u64 = 1_500;
/// Longest wait for what must come.
const PATIENCE_US: u64 = 60_000_000;
/// Far tasks, over how many queues, and for how long their worker is watched.
const FAR_TASKS: u64 = 1_000_000;
const QUEUES: [u64; 2] = [1, 100];
const WATCHED: u64 = 10_000;
const FAR: i64 = 86_400_000;
/// What settles after the worker has begun.
const SETTLE: Duration = Duration::from_secs(1);

/// A worker that is killed while its handlers run.
pub fn killed(bench: &mut Bench<'_>) -> Result {
    let queue = || "killed".to_owned();
    let (mut load, mut dead, mut heir) = (bench.process()?, bench.process()?, bench.process()?);
    ask(&mut load, Order::Schedule { queue: queue(), from: 0, count: DUE, due: Due::At(now_ms()) })?;
    // Its handlers never end.
    let busy = How { concurrency: IN_HANDS, batch: 1, lease_ms: LEASE_MS, work_ms: 3_600_000 };
    ask(&mut dead, Order::Work { queue: queue(), how: busy, most: DUE })?;
    let until_us = now_us() + PATIENCE_US;
    ask(&mut dead, Order::Wait { queue: queue(), count: IN_HANDS as u64, until_us })?;
    // Leases are renewed at a third: not the first ones end.
    wait(Duration::from_millis(LEASE_MS))?;
    let Report { seen: held, .. } = ask(&mut dead, Order::Look { queue: queue() })?;
    dead.kill()?;
    let killed = now_us();
    let patient = How { lease_ms: 30_000, work_ms: HEIR_MS, ..How::each() };
    ask(&mut heir, Order::Work { queue: queue(), how: patient, most: DUE })?;
    let Report { seen, .. } =
        ask(&mut heir, Order::Wait { queue: queue(), count: DUE, until_us: killed + PATIENCE_US })?;
    let refused = ask(&mut load, Order::Acknowledge { queue: queue(), receipts: held.receipts.clone() })?.done;
    ask(&mut heir, Order::Stop { queue: queue() })?;
    let left = ask(&mut load, Order::Left { queue: queue() })?.done;
    let after = seen.last_us.saturating_sub(killed) as f64 / 1_000.0;
    let what = format!("kill -9 of a worker with {} tasks, lease {LEASE_MS} ms: all came again after", held.distinct);
    bench.printer.line(Line::new(what, after, "ms"))?;
    bench.printer.line(Line::new("of these and the others lost", (DUE - seen.distinct + left) as f64, "tasks"))?;
    let what = format!("receipts of the dead refused, of {}", held.receipts.len());
    let errors = held.receipts.len() as u64 - refused;
    bench.printer.line(Line::new(what, refused as f64, "receipts").errors(errors))
}

/// Far tasks, and a worker on each queue that has nothing to do.
pub fn idle(bench: &mut Bench<'_>) -> Result {
    let (count, for_ms) = (bench.scaled(FAR_TASKS, 10_000), bench.scaled(WATCHED, 3_000));
    for queues in QUEUES {
        let before = bench.on_redis(async |redis| redis.used_memory().await)?;
        let (mut load, mut worker) = (bench.process()?, bench.process()?);
        let far = Due::Over(now_ms() + FAR, FAR);
        for n in 0..queues {
            let count = count / queues;
            ask(&mut load, Order::Schedule { queue: format!("idle-{n}"), from: 0, count, due: far })?;
        }
        drop(load);
        let after = bench.on_redis(async |redis| redis.used_memory().await)?;
        for n in 0..queues {
            ask(&mut worker, Order::Work { queue: format!("idle-{n}"), how: How::each(), most: 0 })?;
        }
        wait(SETTLE)?;
        let (reads, commands) = bench.on_redis(async |redis| watch(redis, Duration::from_millis(for_ms)).await)?;
        let seconds = for_ms as f64 / 1_000.0;
        let what = format!("{count} far tasks in {queues} queues, a worker on each: round trips at rest");
        bench.printer.line(Line::new(what, reads as f64 / seconds, "reads/s"))?;
        bench.printer.line(Line::new(
            "commands of these, those in scripts too",
            commands as f64 / seconds,
            "commands/s",
        ))?;
        let mib = resident_bytes(worker.id()) as f64 / f64::from(1_u32 << 20);
        bench.printer.line(Line::new("memory of the worker process", mib, "MiB"))?;
        let bytes = after.saturating_sub(before) as f64 / count as f64 - (PAYLOAD.len() + 2) as f64;
        bench.printer.line(Line::new("memory of Redis a task, less its payload", bytes, "bytes"))?;
        drop(worker);
        bench.clear()?;
    }
    Ok(())
}

/// What the server reads meanwhile, and which commands it runs, less what this asks.
async fn watch(redis: &crate::commands::bench::redis::Redis, time: Duration) -> Result<(u64, u64)> {
    let counted = async || {
        let reads = redis.info("stats", "total_reads_processed").await?;
        Ok::<_, crate::failure::Failure>((reads, redis.info("stats", "total_commands_processed").await?))
    };
    let (reads, commands) = counted().await?;
    tokio::time::sleep(time).await;
    let (reads_after, commands_after) = counted().await?;
    // Of the two questions of each look, two came after the first count of each.
    Ok(((reads_after - reads).saturating_sub(2), (commands_after - commands).saturating_sub(2)))
}
