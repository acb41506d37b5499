//! The `tidegate` command.
//!
//! - `commands/<verb>.rs`: each verb's flags and what it does.
//! - `config/`: the layered configuration of `serve` (file, environment, flags).
//! - `client.rs`: the HTTP client of the tools; `progress.rs`, `output.rs`: what they show.
//! - `runtime.rs`, `failure.rs`: how a command starts and how it ends.
//! - `load/`: the open- and closed-loop load generator of `demo` and `bench`.

mod client;
mod commands;
mod failure;
mod load;
mod output;
mod progress;
mod runtime;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "tidegate", version, about = "Orders that live and die on time: holds, deadlines, payments, nothing oversold")]
struct Cli {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    failure::exit(commands::run(cli.command))
}
