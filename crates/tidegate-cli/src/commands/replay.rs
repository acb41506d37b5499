//! `tidegate replay`.

use crate::failure::Result;

/// Flags of `replay`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: Args) -> Result {
    Ok(())
}
