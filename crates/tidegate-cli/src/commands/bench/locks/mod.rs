//! `tidegate bench locks`: what a lock costs beside a bare `SET NX PX` and a script that compares and deletes, many processes
//! with locks of their own, and the hand-over of one lock through a long line.
//!
//! - [`pair`]: one caller. [`crowd`]: many processes. [`line`]: the hand-over. [`child`]: the processes.

mod child;
mod crowd;
mod line;
mod pair;

use super::line::Printer;
use super::redis::{Redis, broken};
use super::server::Server;
use super::{Args, wanted};
use crate::failure::{Failure, Result};
use crate::runtime;

pub use self::child::run as serve;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 3] = [
    ("pair", "one caller takes and releases, beside SET NX PX and a script that compares and deletes, by turns"),
    ("crowd", "8 processes with 32 callers each, every caller its own lock"),
    ("line", "4 processes with 250 waiters each for one lock that nobody holds for long"),
];

/// What the cases share.
pub struct Bench<'a> {
    /// Of the Redis that is measured.
    url: String,
    /// Under what its keys lie: nobody else's.
    name: String,
    scale: f64,
    /// Prints figures.
    printer: &'a mut Printer,
}

impl Bench<'_> {
    /// `n` at this scale, at least `least`.
    fn scaled(&self, n: u64, least: u64) -> u64 {
        ((n as f64 * self.scale) as u64).max(least)
    }

    fn setup(&self) -> child::Setup {
        child::Setup { url: self.url.clone(), name: self.name.clone() }
    }
}

fn failed(e: impl std::fmt::Display) -> Failure {
    Failure::Work(format!("the lock: {e}"))
}

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let folder = tempfile::Builder::new().prefix("tidegate-bench-").tempdir();
    let folder = folder.map_err(|e| Failure::Work(format!("cannot make a folder for a private Redis: {e}")))?;
    let server = if args.redis.is_none() { Some(Server::start(folder.path())?) } else { None };
    let url = args.redis.clone().or_else(|| server.as_ref().map(Server::url)).unwrap_or_default();
    let name = format!("tidegate_bench_{}", std::process::id());
    let mut bench = Bench { url, name, scale: args.scale, printer };
    for (name, what) in wanted {
        bench.printer.step(what);
        let measured = match *name {
            "pair" => pair::measure(&mut bench),
            "crowd" => crowd::measure(&mut bench),
            _ => line::measure(&mut bench),
        };
        runtime::run(async {
            let redis = Redis::open(&bench.url, &bench.name).await?;
            let erased = redis.connector().erase().await.map_err(broken);
            redis.close().await;
            erased
        })?;
        measured?;
    }
    Ok(())
}
