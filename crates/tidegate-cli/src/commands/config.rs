//! `tidegate config`: what a server would run with.

use crate::config::{Config, ConfigArgs, keys};
use crate::failure::Result;
use crate::output;

/// Flags of `config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check the configuration and print what is in force and where each value comes from, without secrets
    #[command(after_help = "Example:\n  tidegate config check --config tidegate.toml")]
    Check(CheckArgs),
    /// List every setting with its default, unit, variable, flag and meaning
    #[command(after_help = "Example:\n  tidegate config keys | less -S")]
    Keys,
}

#[derive(clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print one JSON object: {"key": {"value", "from"}}
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let args = match args.what {
        What::Keys => return list_keys(),
        What::Check(args) => args,
    };
    let config = Config::load(&args.config)?;
    if args.json {
        return output::json(&config.shown_json());
    }
    let head = ["setting", "value", "from"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(config.shown().into_iter().map(Vec::from)).collect();
    output::raw(output::table(&rows))
}

fn list_keys() -> Result {
    let head = ["setting", "default", "unit", "variable", "flag", "meaning"].map(str::to_owned).to_vec();
    let plain = |row: [String; 6]| row.map(|cell| cell.trim_matches('`').to_owned()).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(keys::reference_rows().into_iter().map(plain)).collect();
    output::raw(output::table(&rows))
}
