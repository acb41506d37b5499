//! Redis loses everything while pages are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::feed::{Ask, Feed, PostId};

use super::node::{How, ask, ids, timed};
use super::{World, broken};
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::Redis;
use crate::failure::{Failure, Result};
use crate::output;

/// Callers at once.
const CALLERS: usize = 8;
/// One look at the speed, and looks before the loss.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: u64 = 20;
/// Speed is back once so many looks in a row are as fast as this part of the slower half of those before.
const IN_A_ROW: usize = 3;
const BACK: f64 = 0.9;
/// Longest wait for it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Pages that callers ask for, and what they must be.
struct Asked {
    asks: Vec<(Ask, Vec<PostId>)>,
    next: AtomicU64,
    stop: AtomicBool,
    pages: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    longest_us: AtomicU64,
}

/// FLUSHALL under load.
pub async fn flush(world: &mut World<'_, '_>) -> Result {
    if world.bench.server.is_none() {
        output::note("left out: only a private Redis is flushed");
        return Ok(());
    }
    let node = world.node(How::NoPages).await?;
    let redis = Redis::open(&world.bench.url, &world.bench.name).await?;
    let mut asks = Vec::new();
    for viewer in world.community.everybody() {
        let ask = ask(&viewer.name);
        let (page, _, _) = timed(&node.feed, &ask).await?;
        asks.push((ask, ids(&page)));
    }
    let viewers = asks.len();
    let asked = Arc::new(Asked {
        asks,
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        pages: AtomicU64::new(0),
        wrong: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        longest_us: AtomicU64::new(0),
    });
    let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(call(node.feed.clone(), Arc::clone(&asked)))).collect();
    let before = looks(&asked, usize::try_from(world.bench.scaled(LOOKS, 5)).unwrap_or(1)).await;
    node.ledger.take_authors();
    let reads = node.ledger.reads();
    asked.longest_us.store(0, Ordering::Relaxed);
    redis.ask(&["FLUSHALL"]).await?;
    let began = Instant::now();
    let enough = slower_half(&before) * BACK;
    let (mut in_a_row, mut slowest) = (0, f64::INFINITY);
    let mut back = None;
    while in_a_row < IN_A_ROW && began.elapsed() < PATIENCE {
        let looked = began.elapsed();
        let speed = looks(&asked, 1).await[0];
        slowest = slowest.min(speed);
        if speed >= enough {
            back.get_or_insert(looked);
            in_a_row += 1;
        } else {
            (back, in_a_row) = (None, 0);
        }
    }
    asked.stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.map_err(broken)?;
    }
    let (authors, most) = node.ledger.take_authors();
    let queries = node.ledger.reads() - reads;
    let all = [&asked.wrong, &asked.failed].map(|count| count.load(Ordering::Relaxed));
    let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
    let what = format!("{CALLERS} callers, {viewers} viewers by turns: pages before FLUSHALL");
    world.line(Line::new(what, mean, "pages/s"))?;
    world.line(Line::new(format!("the slowest {} ms after it", LOOK.as_millis()), slowest, "pages/s"))?;
    let back = back.filter(|_| in_a_row >= IN_A_ROW).unwrap_or(PATIENCE).as_secs_f64();
    let line = Line::new("until pages are as fast as before", back, "s");
    world.line(line.errors(u64::from(in_a_row < IN_A_ROW)))?;
    let longest = asked.longest_us.load(Ordering::Relaxed) as f64 / 1_000.0;
    world.line(Line::new("the longest wait for a page meanwhile", longest, "ms"))?;
    world.line(Line::new("pages that were not right, or failed", all.iter().sum::<u64>() as f64, "pages"))?;
    world.line(Line::new(
        format!("reads of the set of an author in the database, the most of {authors}"),
        most as f64,
        "reads",
    ))?;
    world.line(Line::new("statements in the database meanwhile", queries as f64, "statements"))?;
    redis.close().await;
    node.close().await;
    Ok(())
}

/// Pages a second, look by look.
async fn looks(asked: &Asked, count: usize) -> Vec<f64> {
    let mut speeds = Vec::with_capacity(count);
    for _ in 0..count {
        let (began, before) = (Instant::now(), asked.pages.load(Ordering::Relaxed));
        tokio::time::sleep(LOOK).await;
        let made = asked.pages.load(Ordering::Relaxed) - before;
        speeds.push(made as f64 / began.elapsed().as_secs_f64());
    }
    speeds
}

/// The mean of the slower half.
fn slower_half(speeds: &[f64]) -> f64 {
    let mut speeds = speeds.to_vec();
    speeds.sort_by(f64::total_cmp);
    let half = &speeds[..speeds.len().div_ceil(2)];
    half.iter().sum::<f64>() / half.len().max(1) as f64
}

async fn call(feed: Feed, asked: Arc<Asked>) {
    while !asked.stop.load(Ordering::Relaxed) {
        let n = asked.next.fetch_add(1, Ordering::Relaxed) as usize % asked.asks.len();
        let (ask, right) = &asked.asks[n];
        let began = Instant::now();
        match timed(&feed, ask).await {
            Ok((page, _, _)) if ids(&page) == *right => {}
            Ok(_) => drop(asked.wrong.fetch_add(1, Ordering::Relaxed)),
            Err(e) => {
                let e: Failure = e;
                if asked.failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    output::note(format!("  a page failed: {e}"));
                }
            }
        }
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        asked.longest_us.fetch_max(took, Ordering::Relaxed);
        asked.pages.fetch_add(1, Ordering::Relaxed);
    }
}
