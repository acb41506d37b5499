//! `tidegate openapi`: the description of the HTTP API.

use crate::failure::Result;
use crate::output;

/// Flags of `openapi`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: Args) -> Result {
    output::line(tidegate_server::openapi_json().trim_end())
}
