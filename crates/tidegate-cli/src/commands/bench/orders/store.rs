//! The store by itself: how late its index hands out deadlines, how much memory they take, and the stock counter beside
//! `redis-benchmark` with the same script.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::blocks::{Connector, RedisOptions, StockAnswer, StockCounter, StockOperation};
use tidegate::core::{Millis, OrderNo};
use tidegate::on_servers::{DeadlineOptions, DeadlineQueue, IndexState, RedisDeadlines, host_now};

use super::ledger::Place;
use super::{Bench, generate};
use crate::commands::bench::line::Line;
use crate::failure::{Failure, Result};
use crate::load::record::Record;
use crate::output;

/// Deadlines a second, and for how long.
const RATE: i64 = 10_000;
const SECONDS: u64 = 10;
/// Between scheduling a deadline and its instant, milliseconds.
const AHEAD_MS: i64 = 1_000;
/// Deadlines of one claim.
const CLAIM: usize = 512;
/// The lease of a claim, milliseconds.
const LEASE_MS: i64 = 5_000;
/// The longest sleep of the claimer.
const TICK: Duration = Duration::from_millis(500);
/// Pending orders whose memory is measured.
const PENDING: u64 = 100_000;
/// Deadlines of one call while those are scheduled.
const PAGE: usize = 10_000;
/// Operations of the counter, and how many are sent before the first answer is read.
const OPERATIONS: u64 = 200_000;
const PIPELINING: u64 = 64;
/// How long the counter remembers an operation, seconds (as long as by default).
const REMEMBERED: &str = "3600";

/// The store's URL, unless it is this process.
fn url(bench: &Bench<'_>) -> Option<String> {
    match &bench.place {
        Place::Server { store, .. } if store != "embedded" => Some(store.clone()),
        _ => None,
    }
}

fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("the store: {e}"))
}

/// A name that no shop and no other bench has.
fn name(case: &str) -> String {
    format!("tidegate_bench_{}_{case}", std::process::id())
}

async fn connect(url: &str, case: &str) -> Result<Connector> {
    let options = RedisOptions::parse(url).and_then(|options| options.name(&name(case)));
    Connector::start(options.map_err(broken)?).await.map_err(broken)
}

async fn open(connector: &Connector) -> Result<Arc<RedisDeadlines>> {
    let queue = RedisDeadlines::open(connector.clone(), DeadlineOptions::default()).await.map_err(broken)?;
    if let IndexState::Incomplete(token) = queue.state() {
        queue.rebuilt(token).await.map_err(broken)?;
    }
    Ok(Arc::new(queue))
}

/// Runs a program of the package redis-tools against a store that is one plain server; `None` when it is not, or the program
/// is not installed, which is said.
fn tool(url: &str, program: &str, arguments: &[&str]) -> Option<String> {
    if !url.starts_with("redis://") {
        output::note(format!("{program} is asked of redis://.. only; this figure is left out"));
        return None;
    }
    match Command::new(program).args(["-u", url]).args(arguments).output() {
        Ok(out) if out.status.success() => Some(String::from_utf8_lossy(&out.stdout).into_owned()),
        Ok(out) => {
            output::note(format!(
                "{program}: {}; this figure is left out",
                String::from_utf8_lossy(&out.stderr).trim()
            ));
            None
        }
        Err(e) => {
            output::note(format!("{program}: {e}; install the package redis-tools for this figure"));
            None
        }
    }
}

fn used_memory(url: &str) -> Option<u64> {
    let info = tool(url, "redis-cli", &["INFO", "memory"])?;
    info.lines().find_map(|line| line.strip_prefix("used_memory:"))?.trim().parse().ok()
}

/// Measures how late the index hands out deadlines, and what a pending order takes.
pub fn index(bench: &mut Bench<'_>) -> Result {
    let Some(url) = url(bench) else { return Ok(()) };
    let total = bench.scaled(RATE.unsigned_abs() * SECONDS, 10_000);
    let pending = bench.scaled(PENDING, 10_000);
    let (late, early, bytes) = generate(async {
        let connector = connect(&url, "index").await?;
        let queue = open(&connector).await?;
        let bytes = memory(&url, &queue, pending).await?;
        let scheduler = tokio::spawn(schedule(Arc::clone(&queue), i64::try_from(total).unwrap_or(i64::MAX)));
        let (late, early) = claim(&queue, total).await?;
        scheduler.await.map_err(broken)??;
        queue.close().await;
        connector.close().await;
        Ok((late, early, bytes))
    })?;
    let line = Line::new("index, lateness at 10,000 deadlines/s", late.len() as f64, "deadlines");
    bench.printer.line(line.times(late.percentiles()).errors(early))?;
    match bytes {
        Some(bytes) => bench.printer.line(Line::new("index, memory of a pending order", bytes, "bytes")),
        None => Ok(()),
    }
}

/// Bytes of the server's memory that a pending order takes.
async fn memory(url: &str, queue: &RedisDeadlines, pending: u64) -> Result<Option<f64>> {
    let Some(before) = used_memory(url) else { return Ok(None) };
    let far = host_now().plus(86_400_000);
    let numbers = 0..i64::try_from(pending).unwrap_or(i64::MAX);
    let deadlines: Vec<_> = numbers.map(|n| (OrderNo(1_000_000_000 + n), far.plus(n))).collect();
    for page in deadlines.chunks(PAGE) {
        queue.schedule(page).await.map_err(broken)?;
    }
    // Waits until all of them are there.
    queue.len().await.map_err(broken)?;
    let after = used_memory(url);
    for page in deadlines.chunks(PAGE) {
        queue.cancel(page).await.map_err(broken)?;
    }
    queue.len().await.map_err(broken)?;
    Ok(after.map(|after| after.saturating_sub(before) as f64 / pending as f64))
}

/// Schedules a handful a millisecond, as orders are placed.
async fn schedule(queue: Arc<RedisDeadlines>, total: i64) -> Result {
    let start = host_now();
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    let mut placed = 0;
    while placed < total {
        tick.tick().await;
        let now = host_now();
        let goal = total.min(now.since(start) * RATE / 1_000);
        let some: Vec<_> = (placed..goal).map(|n| (OrderNo(n), Millis(now.0 + AHEAD_MS + n % 10))).collect();
        placed = placed.max(goal);
        queue.schedule(&some).await.map_err(broken)?;
    }
    Ok(())
}

/// Claims until `total` were handed out; how late each was, and how many came early.
async fn claim(queue: &Arc<RedisDeadlines>, total: u64) -> Result<(Record, u64)> {
    let (mut record, mut early) = (Record::new(), 0);
    let mut acknowledging = tokio::task::JoinSet::new();
    while record.len() < total {
        let claims = queue.claim(host_now(), CLAIM, LEASE_MS).await.map_err(broken)?;
        let now = host_now();
        if claims.is_empty() {
            let next = queue.next_at().await.map_err(broken)?;
            let left = next.map_or(TICK, |at| Duration::from_millis(at.since(host_now()).max(0).unsigned_abs()));
            tokio::select! {
                () = queue.earlier() => {}
                () = tokio::time::sleep(left.min(TICK)) => {}
            }
            continue;
        }
        for claim in &claims {
            let late = now.since(claim.due_at);
            early += u64::from(late < 0);
            record.time_ms(late);
        }
        let receipts: Vec<_> = claims.iter().map(|claim| (claim.order, claim.receipt)).collect();
        let queue = Arc::clone(queue);
        acknowledging.spawn(async move { queue.ack(&receipts).await });
        while acknowledging.try_join_next().is_some() {}
    }
    while let Some(acknowledged) = acknowledging.join_next().await {
        acknowledged.map_err(broken)?.map_err(broken)?;
    }
    Ok((record, early))
}

/// Measures the idempotent stock counter beside `redis-benchmark` running the same script at the same pipelining.
pub fn counter(bench: &mut Bench<'_>) -> Result {
    let Some(url) = url(bench) else { return Ok(()) };
    let total = bench.scaled(OPERATIONS, 20_000) / PIPELINING * PIPELINING;
    let rate = generate(async {
        let connector = connect(&url, "counter").await?;
        let stock = StockCounter::new(connector.clone());
        stock.set("mug", 1_000_000_000).await.map_err(broken)?;
        let begun = Instant::now();
        for first in (0..total).step_by(PIPELINING as usize) {
            let operations =
                (first..first + PIPELINING).map(|n| StockOperation::take(&format!("bench-{n}"), &[("mug", 1)]));
            for answer in stock.batch(&operations.collect::<Vec<_>>()).await {
                if !matches!(answer.map_err(broken)?, StockAnswer::Done { repeated: false, .. }) {
                    return Err(broken("an operation of the counter was not done"));
                }
            }
        }
        let rate = total as f64 / begun.elapsed().as_secs_f64();
        connector.close().await;
        Ok(rate)
    })?;
    let (_, hash) = StockCounter::script();
    let tag = format!("{{tg:{}:s:mug}}", name("counter"));
    let (count, pipelining) = (total.to_string(), PIPELINING.to_string());
    let (operation, stock) = (format!("{tag}:op:__rand_int__"), format!("{tag}:stock:mug"));
    let call = ["EVALSHA", hash, "2", &operation, &stock, "0123456789abcdef", REMEMBERED, "-1"];
    let how = ["-q", "--csv", "-c", "1", "-P", &pipelining, "-n", &count, "-r", "1000000000"];
    let printed = tool(&url, "redis-benchmark", &[&how[..], &call[..]].concat());
    let baseline = printed.as_deref().and_then(requests_a_second);
    let line = Line::new("stock counter, through the client, 64 pipelined", rate, "operations/s");
    bench.printer.line(line.beside("redis-benchmark, same script and pipelining", baseline))
}

/// The second column of the last line of `redis-benchmark --csv`.
fn requests_a_second(csv: &str) -> Option<f64> {
    // The command's own words come first and may have commas, but no quotes.
    csv.lines().rev().find_map(|line| line.split("\",\"").nth(1)).and_then(|rate| rate.trim_matches('"').parse().ok())
}

#[cfg(test)]
mod tests {
    use super::requests_a_second;

    #[test]
    fn the_rate_is_read() {
        let printed = "\"test\",\"rps\",\"avg_latency_ms\"\n\"EVALSHA 1,2 x\",\"161290.33\",\"0.351\"\n";
        assert_eq!(requests_a_second(printed), Some(161_290.33));
        assert_eq!(requests_a_second("nonsense"), None);
    }
}
