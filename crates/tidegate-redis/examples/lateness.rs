//! How late deadlines are handed out: `cargo run --release -p tidegate-redis --example lateness -- <url> [per second] [seconds]`.
//! The server must be one that may be filled with deadlines of the shop `lateness`.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::{Connector, DeadlineOptions, RedisDeadlines, RedisOptions};

/// Between scheduling and falling due.
const AHEAD_MS: i64 = 1_000;
const LEASE_MS: i64 = 5_000;
const BATCH: usize = 512;

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Fallible<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().ok_or("the first argument is the server's URL")?;
    let rate: i64 = args.next().map_or(Ok(10_000), |n| n.parse())?;
    let seconds: i64 = args.next().map_or(Ok(10), |n| n.parse())?;
    let connector = Connector::start(RedisOptions::parse(&url)?.name("lateness")?).await?;
    let queue = Arc::new(RedisDeadlines::open(connector.clone(), DeadlineOptions::default()).await?);
    if let IndexState::Incomplete(token) = queue.state() {
        queue.rebuilt(token).await?;
    }
    let total = rate * seconds;
    let scheduler = tokio::spawn(schedule(Arc::clone(&queue), rate, total));
    let mut late = Vec::new();
    let mut claims = 0_u64;
    while late.len() < usize::try_from(total)? {
        let batch = queue.claim(host_now(), BATCH, LEASE_MS).await?;
        claims += 1;
        if batch.is_empty() {
            wait(&queue).await?;
            continue;
        }
        let now = host_now();
        late.extend(batch.iter().map(|claim| now.since(claim.due_at)));
        let receipts: Vec<_> = batch.iter().map(|claim| (claim.order, claim.receipt)).collect();
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.ack(&receipts).await });
    }
    scheduler.await??;
    late.sort_unstable();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize];
    println!("{total} deadlines at {rate}/s, {claims} claims, {} commands", connector.commands_sent());
    println!("lateness in ms: p50 {} p99 {} p99.9 {} max {} min {}", at(0.5), at(0.99), at(0.999), at(1.0), at(0.0));
    queue.close().await;
    connector.close().await;
    Ok(())
}

/// A handful a millisecond, as orders are placed.
async fn schedule(queue: Arc<RedisDeadlines>, rate: i64, total: i64) -> Fallible<()> {
    let start = host_now();
    let mut placed = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while placed < total {
        tick.tick().await;
        let now = host_now();
        let goal = total.min(now.since(start) * rate / 1_000);
        let some: Vec<_> = (placed..goal).map(|n| (OrderNo(n), Millis(now.0 + AHEAD_MS + n % 10))).collect();
        placed = placed.max(goal);
        queue.schedule(&some).await?;
    }
    Ok(())
}

async fn wait(queue: &RedisDeadlines) -> Fallible<()> {
    let at = queue.next_at().await?;
    let left = at.map_or(500, |at| at.since(host_now()).clamp(0, 500)).unsigned_abs();
    tokio::select! {
        () = queue.earlier() => {}
        () = tokio::time::sleep(Duration::from_millis(left)) => {}
    }
    Ok(())
}
