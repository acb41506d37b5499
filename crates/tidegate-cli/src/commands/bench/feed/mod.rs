//! `tidegate bench feed`: pages of a community that is made up, beside what teams do without this, in the same run.
//!
//! - [`pages`]: pages whose viewer is known, beside the pipelined read of every set and the plain join, and whom a viewer
//!   follows in numbers. [`visits`]: first visits, later pages, pages in process and from memory. [`publish`]: what publishing
//!   costs. [`memory`]: what the copies weigh. [`flush`]: Redis loses all under load.
//! - [`community`]: who there is. [`truth`]: the ledgers. [`node`]: a process' feed. [`plain`]: the peer that reads every set.

mod community;
mod flush;
mod memory;
mod node;
mod pages;
mod plain;
mod publish;
mod truth;
mod visits;

use std::time::{Duration, Instant};

use self::community::Community;
use self::node::{How, Node};
use self::plain::Plain;
use self::truth::{Server, Truth};
use super::line::{Line, Printer};
use super::on_redis::Bench;
use super::{Args, wanted};
use crate::failure::{Failure, Result};
use crate::load::record::{Percentiles, Record};
use crate::{output, runtime};

/// Items of a page.
const PAGE: usize = 20;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 9] = [
    ("memory", "what sets, ties and posts weigh in Redis"),
    ("pages", "pages of 15 viewers, beside every followee's set read in one pipeline, and a join in three databases"),
    ("sizes", "the same viewers by turns: whether it matters whom they follow, and how many"),
    ("walk", "sets that are read for page 1 to 10"),
    ("first", "first visits: nothing is known of the viewer, nor of whom he follows"),
    ("embedded", "pages in process, with SQLite"),
    ("kept", "unchanged first pages from memory"),
    ("publish", "posts of authors with 0, 10,000 and 20,000 followers"),
    ("flush", "FLUSHALL under 8 callers (left out with --redis)"),
];

/// What cases look at.
struct World<'a, 'b> {
    bench: &'a mut Bench<'b>,
    community: Community,
    /// What the copies in Redis are of.
    truth: Truth,
    /// All ledgers that have the community.
    truths: Vec<Truth>,
    /// The peer, once it is filled.
    plain: Option<Plain>,
}

impl World<'_, '_> {
    async fn node(&self, how: How) -> Result<Node> {
        Node::on_redis(&self.bench.url, &self.bench.name, &self.truth, how).await
    }

    fn line(&mut self, line: Line) -> Result {
        self.bench.printer.line(line)
    }

    fn scaled(&self, n: u64, least: u64) -> usize {
        usize::try_from(self.bench.scaled(n, least)).unwrap_or(usize::MAX)
    }
}

fn broken(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("the feed: {e}"))
}

/// How long calls took, one after the other.
struct Times {
    record: Record,
    spent: Duration,
}

impl Times {
    fn new() -> Self {
        Self { record: Record::new(), spent: Duration::ZERO }
    }

    fn add(&mut self, took: Duration) {
        self.record.time(took);
        self.spent += took;
    }

    fn percentiles(&self) -> Percentiles {
        self.record.percentiles()
    }

    /// Of one caller, calls a second.
    fn rate(&self) -> f64 {
        self.record.len() as f64 / self.spent.as_secs_f64().max(1e-9)
    }

    /// In a line of its own.
    fn line(&self, what: impl Into<String>) -> Line {
        Line::new(what, self.rate(), "pages/s").times(self.percentiles())
    }
}

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let mut bench = Bench::start(args, printer)?;
    let measured = prepare_and_measure(&wanted, &mut bench);
    if bench.server.is_none() {
        bench.erase()?;
    }
    measured
}

/// Starts a database server in a folder.
type Open = fn(&std::path::Path) -> Result<Server>;

fn prepare_and_measure(wanted: &[&(&str, &str)], bench: &mut Bench<'_>) -> Result {
    let has = |name: &str| wanted.iter().any(|(case, _)| *case == name);
    let folder = bench.folder().to_owned();
    let mut servers = Vec::new();
    let opens: [(bool, Open); 2] =
        [(wanted.iter().any(|(case, _)| *case != "embedded"), Server::postgres), (has("pages"), Server::mariadb)];
    for (_, open) in opens.into_iter().filter(|(is_needed, _)| *is_needed) {
        match open(&folder) {
            Ok(server) => servers.push(server),
            // What is not installed is left out, and said to be.
            Err(Failure::Usage(why)) => output::note(format!("  left out: {why}")),
            Err(other) => return Err(other),
        }
    }
    let needs_file = servers.is_empty() || has("pages") || has("embedded");
    runtime::run(async {
        let mut truths = Vec::new();
        for server in &servers {
            truths.push(server.open().await?);
        }
        if needs_file {
            truths.push(Truth::sqlite(&folder.join("feed.db")).await?);
        }
        let now = truths[0].ledger().clock().now();
        let community = Community::new(bench.scale, now);
        for truth in &truths {
            load(bench, truth, &community).await?;
        }
        let mut world = World { bench, community, truth: truths[0].clone(), truths, plain: None };
        if wanted.iter().any(|(case, _)| *case != "embedded") {
            memory::fill(&mut world, has("memory")).await?;
        }
        if has("pages") {
            world.plain = Some(Plain::fill(&world.bench.url, &world.bench.name, &world.community).await?);
        }
        for (name, what) in wanted {
            world.bench.printer.step(what);
            match *name {
                "memory" => {}
                "pages" => pages::beside(&mut world).await?,
                "sizes" => pages::sizes(&mut world).await?,
                "walk" => visits::walk(&mut world).await?,
                "first" => visits::first(&mut world).await?,
                "embedded" => visits::embedded(&mut world).await?,
                "kept" => visits::kept(&mut world).await?,
                "publish" => publish::publish(&mut world).await?,
                _ => flush::flush(&mut world).await?,
            }
        }
        if let Some(plain) = world.plain.take() {
            plain.close().await;
        }
        Ok(())
    })
}

/// Loads the community into a ledger, and says how long that took.
async fn load(bench: &mut Bench<'_>, truth: &Truth, community: &Community) -> Result {
    let what =
        format!("{} authors, {} posts, {} follows", community.authors.len(), community.posts(), community.follows());
    bench.printer.step(&format!("loading {what} into {}", truth.name()));
    let began = Instant::now();
    let [posts, follows, index] = truth.load(community).await?;
    let rate = |count: f64, took: f64| count / took.max(1e-9);
    let name = truth.name();
    let line =
        Line::new(format!("{name}: posts loaded, 500 a commit"), rate(community.posts() as f64, posts), "posts/s");
    bench.printer.line(line)?;
    let line = Line::new(
        format!("{name}: follows loaded, 5,000 a commit"),
        rate(community.follows() as f64, follows),
        "follows/s",
    );
    bench.printer.line(line)?;
    let all = began.elapsed().as_secs_f64();
    bench.printer.line(Line::new(format!("{name}: loaded, {index:.0} s of it for the join's index"), all, "s"))
}
