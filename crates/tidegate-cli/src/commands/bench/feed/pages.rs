//! Pages of viewers whom the process knows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::feed::Feed;

use super::community::Viewer;
use super::node::{How, ask, timed};
use super::plain::{Plain, Shown};
use super::truth::Truth;
use super::{Times, World, broken};
use crate::commands::bench::line::Line;
use crate::commands::bench::redis::Redis;
use crate::failure::{Failure, Result};
use crate::output;

/// Rounds in which everybody has a turn.
const ROUNDS: u64 = 40;
/// Pages of ours in a round, and of a peer.
const OURS: usize = 50;
const PEER: usize = 10;
/// How long a peer may take for one viewer, evenly over the rounds, unless it has had fewer turns than these.
const PATIENCE: Duration = Duration::from_secs(3);
const LEAST_TURNS: u64 = 5;
/// Pages whose bytes are counted.
const COUNTED: usize = 100;
/// Callers at once, and for how long they ask.
const CALLERS: usize = 8;
const CROWDED_MS: u64 = 1_000;

/// Who makes a page.
#[derive(Clone)]
enum Maker {
    Ours(Feed),
    Plain(Arc<Plain>),
    Join(Truth),
}

impl Maker {
    /// A page, and how long it took.
    async fn page(&self, viewer: &Viewer) -> Result<(Vec<Shown>, Duration)> {
        let ask = ask(&viewer.name);
        match self {
            Self::Ours(feed) => {
                let (page, cost, took) = timed(feed, &ask).await?;
                if cost.kept || cost.direct {
                    return Err(broken(format!("a page was not made of Redis' copies: {cost:?}")));
                }
                Ok((page.items.iter().map(|item| Shown::of(&item.root)).collect(), took))
            }
            Self::Plain(plain) => {
                let began = Instant::now();
                let page = plain.page(&viewer.name).await?;
                Ok((page, began.elapsed()))
            }
            Self::Join(truth) => {
                let began = Instant::now();
                let page = truth.page_by_join(&ask).await?;
                let took = began.elapsed();
                Ok((page.iter().map(Shown::of).collect(), took))
            }
        }
    }

    /// Whether it makes one more page in a round, after so many.
    fn goes_on(&self, made: usize, part: f64, times: &Times) -> bool {
        match self {
            Self::Ours(_) => made < OURS,
            _ => made < PEER && (times.spent < PATIENCE.mul_f64(part) || times.record.len() < LEAST_TURNS),
        }
    }
}

/// How long one took for each page.
struct Made {
    times: Times,
    /// It was given up: the database ends statements that take so long.
    given_up: bool,
}

/// Lets all make pages of one viewer by turns, and holds them against each other.
async fn by_turns(makers: Vec<Maker>, viewer: Viewer, rounds: u64) -> Result<Vec<Made>> {
    let mut all: Vec<Made> = makers.iter().map(|_| Made { times: Times::new(), given_up: false }).collect();
    let mut right = None;
    for (maker, made) in makers.iter().zip(&mut all) {
        // Once for what is learned on the way; not measured.
        let began = Instant::now();
        match (maker.page(&viewer).await, maker) {
            (Ok((page, _)), _) => same(&mut right, page, &viewer)?,
            (Err(Failure::Work(why)), Maker::Join(truth)) => {
                output::note(format!("  {}, {}: given up: {why}", viewer.label(), truth.name()));
                made.given_up = true;
                made.times.add(began.elapsed());
            }
            (Err(failure), _) => return Err(failure),
        }
    }
    for round in 0..rounds {
        let part = (round + 1) as f64 / rounds as f64;
        for (maker, made) in makers.iter().zip(&mut all).filter(|(_, made)| !made.given_up) {
            let mut turn = 0;
            while maker.goes_on(turn, part, &made.times) {
                let (page, took) = maker.page(&viewer).await?;
                made.times.add(took);
                same(&mut right, page, &viewer)?;
                turn += 1;
            }
        }
    }
    Ok(all)
}

fn same(right: &mut Option<Vec<Shown>>, page: Vec<Shown>, viewer: &Viewer) -> Result {
    match right {
        None => *right = Some(page),
        Some(right) if *right == page => {}
        Some(right) => {
            let label = viewer.label();
            return Err(Failure::Work(format!("{label}: two pages differ: {right:?} and {page:?}")));
        }
    }
    Ok(())
}

/// Runs on a thread of the runtime, as callers do.
async fn apart<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.map_err(broken)?
}

/// Pages a second of callers who all ask for the same viewer, in a row each.
async fn crowd(maker: &Maker, viewer: &Viewer, for_ms: u64) -> Result<Times> {
    let until = Instant::now() + Duration::from_millis(for_ms);
    let began = Instant::now();
    let callers = (0..CALLERS).map(|_| {
        let (maker, viewer) = (maker.clone(), viewer.clone());
        tokio::spawn(async move {
            let mut times = Times::new();
            while Instant::now() < until {
                times.add(maker.page(&viewer).await?.1);
            }
            Ok::<_, Failure>(times)
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut all = Times::new();
    for caller in callers {
        all.record.merge(&caller.await.map_err(broken)??.record);
    }
    all.spent = began.elapsed();
    Ok(all)
}

/// Bytes that the server sends for a page, those that it gets, and how often it reads from a connection.
async fn traffic(redis: &Redis, maker: &Maker, viewer: &Viewer, pages: usize) -> Result<[f64; 3]> {
    const FIELDS: [&str; 3] = ["total_net_output_bytes", "total_net_input_bytes", "total_reads_processed"];
    let look = async || -> Result<[u64; 3]> {
        let text = redis.ask(&["INFO", "stats"]).await?.text();
        Ok(FIELDS.map(|field| {
            let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        }))
    };
    let before = [look().await?, look().await?];
    for _ in 0..pages {
        maker.page(viewer).await?;
    }
    let after = look().await?;
    // Less what a look costs itself.
    let of = |n: usize| (after[n] - before[1][n]).saturating_sub(before[1][n] - before[0][n]) as f64 / pages as f64;
    Ok([of(0), of(1), of(2)])
}

/// Ours and its peers.
pub async fn beside(world: &mut World<'_, '_>) -> Result {
    let (from_redis, from_process) = (world.node(How::NoPosts).await?, world.node(How::NoPages).await?);
    let redis = Redis::open(&world.bench.url, &world.bench.name).await?;
    let Some(plain) = world.plain.take() else { return Err(broken("the peer is not filled")) };
    world.line(Line::new("the peer's sets and posts in Redis", plain.bytes as f64 / 1_048_576.0, "MiB"))?;
    let plain = Arc::new(plain);
    let mut makers = vec![
        Maker::Ours(from_redis.feed.clone()),
        Maker::Ours(from_process.feed.clone()),
        Maker::Plain(Arc::clone(&plain)),
    ];
    makers.extend(world.truths.iter().cloned().map(Maker::Join));
    let (rounds, for_ms) = (world.bench.scaled(ROUNDS, 2), world.bench.scaled(CROWDED_MS, 100));
    let counted = world.scaled(COUNTED as u64, 10);
    for viewer in world.community.viewers.clone() {
        let label = viewer.label();
        // Posts that nobody has read yet are in the cache from here on.
        makers[0].page(&viewer).await?;
        let reads = from_redis.ledger.reads();
        let made = apart(by_turns(makers.clone(), viewer.clone(), rounds)).await?;
        let [ours, copies, every, joins @ ..] = &made[..] else { return Err(broken("a peer is missing")) };
        let (ours, copies, every) = (&ours.times, &copies.times, &every.times);
        let [one, many] = ["(a) every set in one pipeline", "(b) a join"];
        let line = ours.line(format!("{label}: page, posts from Redis"));
        world.line(line.beside(one, Some(every.rate())))?;
        world.line(copies.line(format!("{label}: page, posts in process")).beside(one, Some(every.rate())))?;
        world.line(every.line(format!("{label}: {one}")))?;
        for (truth, join) in world.truths.clone().iter().zip(joins) {
            let line = join.times.line(format!("{label}: {many}, {}", truth.name()));
            world.line(line.errors(u64::from(join.given_up)))?;
        }
        let middle = |times: &Times| times.percentiles().p50.max(1e-6);
        world.line(Line::new(format!("{label}: (a) by ours, p50"), middle(every) / middle(ours), "x"))?;
        for (truth, join) in world.truths.clone().iter().zip(joins) {
            let least = if join.given_up { "at least " } else { "" };
            let what = format!("{label}: (b) on {} by ours, p50", truth.name());
            world.line(Line::new(format!("{least}{what}"), middle(&join.times) / middle(ours), "x"))?;
        }
        let queries = (from_redis.ledger.reads() - reads) as f64 / ours.record.len().max(1) as f64;
        world.line(Line::new(format!("{label}: ours: database queries"), queries, "a page"))?;
        for (maker, name) in makers.iter().zip(["ours, posts from Redis", "ours, posts in process", one]) {
            let [out, into, reads] = traffic(&redis, maker, &viewer, counted).await?;
            world.line(Line::new(format!("{label}: {name}: Redis sends"), out, "bytes a page"))?;
            world.line(Line::new(format!("{label}: {name}: Redis gets"), into, "bytes a page"))?;
            world.line(Line::new(format!("{label}: {name}: Redis reads a connection"), reads, "times a page"))?;
        }
        for (maker, name) in makers.iter().zip(["ours, posts from Redis", "ours, posts in process", one]) {
            let crowd = crowd(maker, &viewer, for_ms).await?;
            world.line(crowd.line(format!("{label}: {name}, {CALLERS} callers")))?;
        }
    }
    drop(makers);
    if let Some(plain) = Arc::into_inner(plain) {
        plain.close().await;
    }
    redis.close().await;
    from_redis.close().await;
    from_process.close().await;
    Ok(())
}

/// Whether it matters whom a viewer follows, and how many.
pub async fn sizes(world: &mut World<'_, '_>) -> Result {
    for (how, which) in [(How::NoPosts, "posts from Redis"), (How::NoPages, "posts in process")] {
        let node = world.node(how).await?;
        let rounds = world.bench.scaled(ROUNDS, 2);
        let viewers = world.community.viewers.clone();
        let times = apart(viewers_by_turns(Maker::Ours(node.feed.clone()), viewers, rounds)).await?;
        report(world, &times, which)?;
        node.close().await;
    }
    Ok(())
}

async fn viewers_by_turns(maker: Maker, viewers: Vec<Viewer>, rounds: u64) -> Result<Vec<Times>> {
    let mut times: Vec<Times> = viewers.iter().map(|_| Times::new()).collect();
    for viewer in &viewers {
        maker.page(viewer).await?;
    }
    for _ in 0..rounds {
        for (viewer, times) in viewers.iter().zip(&mut times) {
            for _ in 0..OURS {
                times.add(maker.page(viewer).await?.1);
            }
        }
    }
    Ok(times)
}

fn report(world: &mut World<'_, '_>, times: &[Times], which: &str) -> Result {
    let viewers = world.community.viewers.clone();
    let all: Vec<(&Viewer, f64)> = viewers.iter().zip(times.iter().map(|times| times.percentiles().p50)).collect();
    for (viewer, times) in viewers.iter().zip(times) {
        world.line(times.line(format!("{}: by turns, {which}", viewer.label())))?;
    }
    let (few, many) = (viewers[0].followees.len(), viewers[viewers.len() - 1].followees.len());
    for (viewer, most) in all.iter().filter(|(viewer, _)| viewer.followees.len() == many) {
        let least = all.iter().find(|(other, _)| other.followees.len() == few && other.taste == viewer.taste);
        let ratio = most / least.map_or(f64::NAN, |(_, p50)| p50.max(1e-6));
        let what = format!("{many} followees against {few}, {}, p50, {which}", viewer.taste.name());
        world.line(Line::new(what, ratio, "x"))?;
    }
    let same = world.community.viewer(500, viewers[0].taste).followees.len();
    let p50s = || all.iter().filter(|(viewer, _)| viewer.followees.len() == same).map(|(_, p50)| *p50);
    let (slowest, fastest) = (p50s().fold(0.0, f64::max), p50s().fold(f64::INFINITY, f64::min));
    let what = format!("{same} followees: the slowest viewer against the fastest, p50, {which}");
    world.line(Line::new(what, slowest / fastest.max(1e-6), "x"))
}
