//! Pages of viewers in every state: never seen, far down, in process, and unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::feed::{Ask, Feed, PostId, UserId};

use super::community::{Taste, Viewer, user};
use super::node::{How, Node, ask, ids, timed};
use super::{PAGE, Times, World, broken};
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::Redis;
use crate::failure::{Failure, Result};
use crate::load::record::Percentiles;

/// Pages that a walk goes down, and walks of each viewer.
const DEEP: usize = 10;
const WALKS: u64 = 20;
/// First visits of each viewer.
const VISITS: u64 = 100;
/// Pages in process of each viewer.
const EMBEDDED: u64 = 5_000;
/// Pages from memory of which the time is taken together, and for how long they are asked for.
const BATCH: usize = 1_000;
const KEPT_MS: u64 = 3_000;
/// Followees of viewers who follow few, in most cases, and of those who follow most.
const FEW: usize = 50;
const MANY: usize = 500;
const MOST: usize = 10_000;
const TASTES: [Taste; 3] = [Taste::Busy, Taste::Mixed, Taste::Quiet];

fn viewers(world: &World<'_, '_>, followees: usize) -> Vec<Viewer> {
    TASTES.iter().map(|taste| world.community.viewer(followees, *taste).clone()).collect()
}

/// The same for several numbers, each that there is.
fn groups(world: &World<'_, '_>, followees: &[usize]) -> Vec<Vec<Viewer>> {
    let mut groups: Vec<Vec<Viewer>> = followees.iter().map(|followees| viewers(world, *followees)).collect();
    groups.dedup_by(|a, b| a[0].name == b[0].name);
    groups
}

/// Sets that are read for a page far down.
pub async fn walk(world: &mut World<'_, '_>) -> Result {
    let node = world.node(How::NoPages).await?;
    let mut sets = [0; DEEP];
    let mut times: Vec<Times> = (0..DEEP).map(|_| Times::new()).collect();
    let walks = world.bench.scaled(WALKS, 2);
    for viewer in world.community.viewers.clone() {
        // What it does not know yet it learns.
        timed(&node.feed, &ask(&viewer.name)).await?;
        for _ in 0..walks {
            let mut ask = ask(&viewer.name);
            for (sets, times) in sets.iter_mut().zip(&mut times) {
                let (page, cost, took) = timed(&node.feed, &ask).await?;
                times.add(took);
                *sets = cost.sets.max(*sets);
                match &page.next {
                    Ok(cursor) => ask = Ask { after: Some(cursor.clone()), ..ask },
                    Err(_) => break,
                }
            }
        }
    }
    let count = world.community.viewers.len();
    for k in [1, 2, 5, DEEP] {
        let what = format!("page {k}: author sets read, the most of {count} viewers");
        let bound = ((PAGE + 1) * k) as f64;
        world.line(Line::new(what, sets[k - 1] as f64, "sets").beside("(N + 1) x k", Some(bound)))?;
        world.line(times[k - 1].line(format!("page {k}, posts in process, all viewers")))?;
    }
    node.close().await;
    Ok(())
}

/// First visits of viewers to a process that knows nobody.
pub async fn first(world: &mut World<'_, '_>) -> Result {
    let visits = world.scaled(VISITS, 4);
    let nobody = user("reader-of-nobody");
    for viewers in groups(world, &[MANY, MOST]) {
        let mut all = Times::new();
        let mut rounds = 0;
        for viewer in &viewers {
            let (mut times, mut queries, mut right) = (Times::new(), 0, None);
            for _ in 0..visits {
                let node = world.node(How::Default).await?;
                // Its connections are warm, and it knows where the news are.
                timed(&node.feed, &ask(&nobody)).await?;
                let before = node.ledger.reads();
                let (page, took) = visit(&node.feed, &viewer.name).await?;
                rounds = page.1.max(rounds);
                times.add(took);
                all.add(took);
                queries += node.ledger.reads() - before;
                if *right.get_or_insert_with(|| page.0.clone()) != page.0 {
                    return Err(broken("two first pages differ"));
                }
                node.close().await;
            }
            world.line(times.line(format!("{}: first visit, to a new process", viewer.label())))?;
            let queries = queries as f64 / visits as f64;
            world.line(Line::new(format!("{}: database queries", viewer.label()), queries, "a visit"))?;
        }
        let followees = viewers[0].followees.len();
        let what = format!("{followees} followees, all three: first visit, at most {rounds} rounds of reads");
        world.line(all.line(what))?;
    }
    Ok(())
}

type Seen = (Vec<PostId>, u64);

/// On a thread of the runtime, as callers ask.
async fn visit(feed: &Feed, viewer: &UserId) -> Result<(Seen, Duration)> {
    let (feed, ask) = (feed.clone(), ask(viewer));
    let asked = tokio::spawn(async move {
        let (page, cost, took) = timed(&feed, &ask).await?;
        Ok::<_, Failure>(((ids(&page), cost.rounds), took))
    });
    asked.await.map_err(broken)?
}

/// Pages in process: SQLite, copies in memory.
pub async fn embedded(world: &mut World<'_, '_>) -> Result {
    let Some(truth) = world.truths.iter().find(|truth| truth.name() == "SQLite").cloned() else {
        return Err(broken("SQLite was not loaded"));
    };
    let node = Node::embedded(&truth, How::NoPages).await?;
    let count = world.scaled(EMBEDDED, 50);
    for viewers in groups(world, &[FEW, MANY, MOST]) {
        for viewer in viewers {
            let (feed, ask) = (node.feed.clone(), ask(&viewer.name));
            let (page, _, took) = timed(&feed, &ask).await?;
            let label = viewer.label();
            let first = Line::new(format!("{label}: the first page of all, from SQLite"), 1.0, "page");
            let ms = took.as_secs_f64() * 1_000.0;
            world.line(first.times(Percentiles { p50: ms, p99: ms, max: ms }))?;
            let right: Vec<PostId> = truth.page_by_join(&ask).await?.into_iter().map(|post| post.id).collect();
            if ids(&page) != right {
                return Err(broken(format!("{label}: the page is not what a join says")));
            }
            let before = node.ledger.reads();
            let times = tokio::spawn(async move {
                let mut times = Times::new();
                for _ in 0..count {
                    let (page, cost, took) = timed(&feed, &ask).await?;
                    if cost.kept || ids(&page) != right {
                        return Err(broken("a page was kept, or is another"));
                    }
                    times.add(took);
                }
                Ok::<_, Failure>(times)
            });
            let times = times.await.map_err(broken)??;
            if node.ledger.reads() != before {
                return Err(broken("pages in process read the database"));
            }
            world.line(times.line(format!("{label}: page, embedded")))?;
        }
    }
    node.close().await;
    Ok(())
}

/// How often Redis ran each command so far.
async fn commands(redis: &Redis) -> Result<BTreeMap<String, u64>> {
    let text = redis.ask(&["INFO", "commandstats"]).await?.text();
    let of = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let calls = rest.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
        Some((name.to_owned(), calls))
    };
    Ok(text.lines().filter_map(of).collect())
}

/// Commands by which a page reads sets, and heads, ties or posts. (A process that lives has others of its own, now and then.)
const READS: [&str; 3] = ["zrange", "zrevrange", "mget"];

/// Unchanged first pages.
pub async fn kept(world: &mut World<'_, '_>) -> Result {
    let node = Arc::new(world.node(How::Default).await?);
    let redis = Redis::open(&world.bench.url, &world.bench.name).await?;
    let viewers = viewers(world, MANY);
    for viewer in &viewers {
        timed(&node.feed, &ask(&viewer.name)).await?;
    }
    for callers in [1, 2] {
        let (before, news) = (commands(&redis).await?, node.store.calls());
        let for_ms = world.bench.scaled(KEPT_MS, 200);
        let began = Instant::now();
        let until = began + Duration::from_millis(for_ms);
        let tasks: Vec<_> =
            (0..callers).map(|_| tokio::spawn(ask_for(node.feed.clone(), viewers.clone(), until))).collect();
        let (mut all, mut pages) = (Times::new(), 0);
        for task in tasks {
            let (times, asked) = task.await.map_err(broken)??;
            all.record.merge(&times.record);
            pages += asked;
        }
        let seconds = began.elapsed().as_secs_f64();
        let after = commands(&redis).await?;
        let ran = |name: &str| after.get(name).unwrap_or(&0) - before.get(name).unwrap_or(&0);
        let read: u64 = READS.iter().map(|name| ran(name)).sum();
        let kinds: Vec<String> =
            after.keys().map(|name| format!("{name} {}", ran(name))).filter(|kind| !kind.ends_with(" 0")).collect();
        crate::output::note(format!("  commands meanwhile: {}", kinds.join(", ")));
        let each = |us: f64| us / BATCH as f64;
        let p = all.percentiles();
        let p = Percentiles { p50: each(p.p50), p99: each(p.p99), max: each(p.max) };
        let what = format!("unchanged first page from memory, {callers} callers (times: means of {BATCH})");
        world.line(Line::new(what, pages as f64 / seconds, "pages/s").times(p))?;
        let what = format!("reads of sets, ties or posts in Redis meanwhile, of {pages} pages");
        world.line(Line::new(what, read as f64, "commands"))?;
        let tails = (node.store.calls() - news) as f64 / seconds;
        world.line(Line::new("reads of the news' tail meanwhile", tails, "a second"))?;
    }
    redis.close().await;
    if let Some(node) = Arc::into_inner(node) {
        node.close().await;
    }
    Ok(())
}

async fn ask_for(feed: Feed, viewers: Vec<Viewer>, until: Instant) -> Result<(Times, u64)> {
    let asks: Vec<Ask> = viewers.iter().map(|viewer| ask(&viewer.name)).collect();
    let (mut times, mut pages) = (Times::new(), 0);
    while Instant::now() < until {
        let began = Instant::now();
        for n in 0..BATCH {
            let (_, cost) = feed.page_and_cost(&asks[n % asks.len()]).await.map_err(broken)?;
            if !cost.kept {
                return Err(broken("an unchanged page was made anew"));
            }
        }
        times.add(began.elapsed());
        pages += BATCH as u64;
    }
    Ok((times, pages))
}
