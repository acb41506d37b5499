//! Big keys, on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod parser;
mod planted;
