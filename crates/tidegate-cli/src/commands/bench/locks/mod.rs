//! `tidegate bench locks`: what a lock costs beside a bare `SET NX PX` and a script that compares and deletes, many processes
//! with locks of their own, and the hand-over of one lock through a long line.
//!
//! - [`pair`]: one caller. [`crowd`]: many processes. [`line`]: the hand-over. [`child`]: the processes.

mod child;
mod crowd;
mod line;
mod pair;

use super::line::Printer;
use super::on_redis::Bench;
use super::{Args, wanted};
use crate::failure::{Failure, Result};

pub use self::child::run as serve;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 3] = [
    ("pair", "one caller takes and releases, beside SET NX PX and a script that compares and deletes, by turns"),
    ("crowd", "8 processes with 32 callers each, every caller its own lock"),
    ("line", "4 processes with 250 waiters each for one lock that nobody holds for long"),
];

impl Bench<'_> {
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
    let mut bench = Bench::start(args, printer)?;
    for (name, what) in wanted {
        bench.printer.step(what);
        let measured = match *name {
            "pair" => pair::measure(&mut bench),
            "crowd" => crowd::measure(&mut bench),
            _ => line::measure(&mut bench),
        };
        bench.erase()?;
        measured?;
    }
    Ok(())
}
