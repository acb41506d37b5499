//! `tidegate demo`.

use crate::failure::Result;

/// Flags of `demo`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: Args) -> Result {
    Ok(())
}
