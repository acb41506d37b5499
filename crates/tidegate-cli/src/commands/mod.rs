//! One file a verb: its flags and what it does.

pub mod bench;
pub mod demo;
pub mod replay;

use clap::Subcommand;

use crate::failure::Result;

/// The verbs.
#[derive(Subcommand)]
pub enum Command {
    /// A whole flash sale in one command
    Demo(demo::Args),
    /// Replay real orders from CSV
    Replay(replay::Args),
    /// Measure
    Bench(bench::Args),
}

/// Runs one verb to its end.
pub fn run(command: Command) -> Result {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Bench(args) => bench::run(args),
    }
}
