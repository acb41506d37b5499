//! `tidegate completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Result;
use crate::output;

/// Flags of `completions`.
#[derive(clap::Args)]
pub struct Args {
    /// The shell they are for
    shell: Shell,
}

/// Runs it.
pub fn run(args: Args) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tidegate", &mut script);
    output::raw(script)
}
