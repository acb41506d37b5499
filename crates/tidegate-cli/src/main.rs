//! The `tidegate` command: `commands/<verb>.rs` each, `config/` the layered configuration, `client.rs` the HTTP client
//! of the tools, `load/` the open- and closed-loop load generator of `demo` and `bench`.

mod commands;
mod failure;
mod load;

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
