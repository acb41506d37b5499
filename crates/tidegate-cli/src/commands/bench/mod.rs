//! `tidegate bench`: rates and latencies, each beside the bare thing it is built on, measured in the same run.
//!
//! - [`orders`], [`cache`], [`deadlines`], [`locks`], [`feed`], [`big_keys`], [`watch`]: the cases.
//! - [`child`]: the server under test, a process of its own. [`process`]: processes that obey. [`server`]: private Redis
//!   servers; [`private`]: private servers of other kinds. [`redis`]: the client by itself; [`on_redis`]: what
//!   cases on Redis share. [`bare`]: the bare HTTP handler.
//! - [`line`]: one figure, and how it is printed. [`machine`]: on what it was measured.

mod bare;
mod big_keys;
mod cache;
mod child;
mod deadlines;
mod feed;
mod line;
mod locks;
mod machine;
mod on_redis;
mod orders;
mod private;
mod process;
mod redis;
mod server;
mod watch;

use clap::ValueEnum;

use self::line::Printer;
use crate::failure::{Failure, Result};

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to measure
    #[arg(value_enum)]
    what: What,
    /// Size of every case: 1 is what docs/reference/benchmarks.md reports
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Only these cases
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Orders in the ledger of the cases with a full one, before --scale
    #[arg(long, value_name = "ORDERS", default_value_t = 1_000_000)]
    preload: u64,
    /// Measure on this database server: mysql://.. or postgres://.. of a user who may create databases [default: SQLite]
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
    /// The store beside it; keys named tidegate_bench_.. are left there
    #[arg(long, value_name = "URL", default_value = "embedded")]
    store: String,
    /// Folder for the ledgers: put it on the disk that is to be measured [default: a temporary one]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<std::path::PathBuf>,
    /// Measure cache, deadlines, locks, feed, big-keys, watch on this Redis or Valkey; keys named tidegate_bench_.. are made and deleted [default: a private one]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Orders: placing, refusing, cancelling on time
    Orders,
    /// The cache: hits, crowds, bad days
    Cache,
    /// A process with a cache, for the cases with several
    #[value(hide = true)]
    CacheProcess,
    /// The delay queue: rates, lateness, bad days, and beside it a broker and the loop that many teams write
    Deadlines,
    /// A process that schedules and works
    #[value(hide = true)]
    DeadlinesProcess,
    /// Locks: taking, many processes, hand-over
    Locks,
    /// A process that takes locks
    #[value(hide = true)]
    LocksProcess,
    /// The feed: pages beside the pipelined read of every set and a join, first visits, publishing, memory, a loss
    Feed,
    /// Big keys: both routes beside redis-cli --memkeys, and whether they find the largest
    BigKeys,
    /// The watch: what it costs to be watched, and to be looked at by the doctor
    Watch,
    /// The bare HTTP handler beside which refusals are measured
    #[value(hide = true)]
    Bare,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    if !(args.scale > 0.0 && args.scale <= 100.0) {
        return Err(Failure::Usage(format!("--scale {}: must be above 0 and at most 100", args.scale)));
    }
    match args.what {
        What::Bare => bare::serve(),
        What::CacheProcess => cache::serve(),
        What::DeadlinesProcess => deadlines::serve(),
        What::LocksProcess => locks::serve(),
        What::Orders => measure("orders", &args, orders::run),
        What::Cache => measure("cache", &args, cache::run),
        What::Deadlines => measure("deadlines", &args, deadlines::run),
        What::Locks => measure("locks", &args, locks::run),
        What::Feed => measure("feed", &args, feed::run),
        What::BigKeys => measure("big-keys", &args, big_keys::run),
        What::Watch => measure("watch", &args, watch::run),
    }
}

fn measure(bench: &'static str, args: &Args, run: fn(&Args, &mut Printer) -> Result) -> Result {
    let mut printer = Printer::new(bench, args.json);
    printer.machine()?;
    let measured = run(args, &mut printer);
    printer.finish()?;
    measured
}

/// What `args` ask for of `cases`, in their order.
///
/// # Errors
/// [`Failure::Usage`] for a case there is not.
fn wanted<'a>(args: &Args, cases: &'a [(&'static str, &'static str)]) -> Result<Vec<&'a (&'static str, &'static str)>> {
    for name in &args.only {
        if !cases.iter().any(|(case, _)| case == name) {
            let list: Vec<String> = cases.iter().map(|(case, what)| format!("  {case}: {what}")).collect();
            let list = list.join("\n");
            return Err(Failure::Usage(format!("--only {name}: there is no such case; there are\n{list}")));
        }
    }
    Ok(cases.iter().filter(|(case, _)| args.only.is_empty() || args.only.iter().any(|only| only == case)).collect())
}
