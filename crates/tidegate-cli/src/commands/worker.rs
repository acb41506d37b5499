//! `tidegate worker`: the background work alone. With the ledgers of this release there is nothing it could do: a SQLite
//! file is owned by one process.

use crate::failure::{Failure, Result};

/// Flags of `worker`.
#[derive(clap::Args)]
pub struct Args {
    /// The ledger whose background work to do
    #[arg(long, value_name = "URL")]
    ledger: Option<String>,
}

/// Says why it cannot run.
pub fn run(args: Args) -> Result {
    let which =
        args.ledger.map_or_else(String::new, |url| format!(" ({})", crate::config::value::without_password(&url)));
    Err(Failure::Usage(format!(
        "a SQLite ledger{which} is owned by one process, which does its own background work: run `tidegate serve` without \
         --no-workers; separate workers come with the MySQL and PostgreSQL ledgers of a later release"
    )))
}
