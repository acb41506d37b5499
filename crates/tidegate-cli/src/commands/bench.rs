//! `tidegate bench`.

use crate::failure::Result;

/// Flags of `bench`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: Args) -> Result {
    Ok(())
}
