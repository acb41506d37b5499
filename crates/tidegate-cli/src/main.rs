//! The `tidegate` command.
//!
//! - `commands/<verb>.rs`: each verb's flags and what it does.
//! - `config/`: the layered configuration of `serve` (file, environment, flags).
//! - `client.rs`: the HTTP client of the tools; `progress.rs`, `output.rs`: what they show.
//! - `runtime.rs`, `failure.rs`: how a command starts and how it ends.
//! - `load/`: the open- and closed-loop load generator of `demo` and `bench`.

mod client;
mod commands;
mod config;
mod failure;
mod load;
mod local;
mod output;
mod progress;
mod runtime;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    failure::exit(commands::run(commands::Cli::parse()))
}
