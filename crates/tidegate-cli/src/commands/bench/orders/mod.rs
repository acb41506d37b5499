//! `tidegate bench orders`: the cases, in the order in which they run.
//!
//! - [`ledger`]: where each case's ledger is. [`library`]: in process, and the bare insert loop. [`http`]: over HTTP.
//!   [`deadlines`]: the clock. [`store`]: Redis by itself. [`idle`]: at rest.

mod deadlines;
mod http;
mod idle;
mod ledger;
mod library;
mod store;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

pub use self::ledger::{CaseLedger, Place};

use super::line::Printer;
use super::{Args, wanted};
use crate::failure::{Failure, Result};
use crate::runtime;

/// The cases by name, with what each measures.
const CASES: [(&str, &str); 13] = [
    (
        "ceiling",
        "the baseline: on SQLite the bare insert loop (the same rows in the same batches), on a server one transaction an order",
    ),
    ("library", "orders placed through the library, in process"),
    ("place", "orders placed over HTTP, one a request, one hot SKU, an empty ledger"),
    ("batch", "orders placed over HTTP, 500 a request"),
    ("sold-out", "orders refused over HTTP, beside a bare handler"),
    ("cancel", "orders cancelled through the library, their stock of 5 hot SKUs released"),
    ("nodes", "orders placed over HTTP at two servers of one ledger, beside one (database servers only)"),
    ("expiry", "100,000 orders due at once while 2,000 orders/s arrive and fall due"),
    ("lateness", "1,000 deadlines a second"),
    ("index", "10,000 deadlines a second in the store's index, and the memory of a pending order (Redis only)"),
    ("counter", "the idempotent stock counter beside redis-benchmark with the same script (Redis only)"),
    ("idle", "an empty server at rest"),
    ("full", "a server with 1,000,000 pending orders: start, rest, placing"),
];

/// What the cases share.
pub struct Bench<'a> {
    folder: &'a Path,
    place: Place,
    scale: f64,
    preload: u64,
    /// Prints figures.
    pub printer: &'a mut Printer,
}

impl Bench<'_> {
    /// `n` at this scale, at least `least`.
    pub fn scaled(&self, n: u64, least: u64) -> u64 {
        ((n as f64 * self.scale) as u64).max(least)
    }
}

/// Measures.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not; [`Failure::Work`].
pub fn run(args: &Args, printer: &mut Printer) -> Result {
    let wanted = wanted(args, &CASES)?;
    let made = |e| Failure::Work(format!("cannot make a folder for the ledgers: {e}; name one with --folder"));
    let mut builder = tempfile::Builder::new();
    builder.prefix("tidegate-bench-");
    let folder: TempDir = match &args.folder {
        Some(parent) => builder.tempdir_in(parent),
        None => builder.tempdir(),
    }
    .map_err(made)?;
    let place = Place::new(args.ledger.as_deref(), &args.store, folder.path().to_owned())?;
    let mut bench = Bench { folder: folder.path(), place, scale: args.scale, preload: args.preload, printer };
    for (name, what) in wanted {
        bench.printer.step(what);
        match *name {
            "ceiling" => library::ceiling(&mut bench)?,
            "library" => library::place(&mut bench)?,
            "place" => http::place(&mut bench)?,
            "batch" => http::batch(&mut bench)?,
            "sold-out" => http::sold_out(&mut bench)?,
            "cancel" => library::cancel(&mut bench)?,
            "nodes" => http::nodes(&mut bench)?,
            "expiry" => deadlines::expiry(&mut bench)?,
            "lateness" => deadlines::lateness(&mut bench)?,
            "index" => store::index(&mut bench)?,
            "counter" => store::counter(&mut bench)?,
            "idle" => idle::empty(&mut bench)?,
            _ => idle::full(&mut bench)?,
        }
    }
    Ok(())
}

/// Runs the load generator's `work` to its end, or until Ctrl-C or SIGTERM, so that servers and ledgers are cleared away.
/// It has one thread: it shares the cores with the server and should use as little of them as it can.
pub fn generate<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let generator = built.map_err(|e| Failure::Work(format!("cannot start the load generator: {e}")))?;
    generator.block_on(async {
        tokio::select! {
            done = work => done,
            () = runtime::interrupted() => Err(Failure::Interrupted),
        }
    })
}

/// Waits, unless it is interrupted.
pub fn wait(time: Duration) -> Result {
    generate(async {
        tokio::time::sleep(time).await;
        Ok(())
    })
}
