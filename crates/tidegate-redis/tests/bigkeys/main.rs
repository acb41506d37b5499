//! Big keys, on real servers.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests; they show what they measured")]

mod encoded;
mod keysizes;
mod parser;
mod planted;
mod rough;
mod routes;
