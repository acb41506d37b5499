//! Bad days, on real servers: what is lost, what is late, what comes back by itself.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod failover;
mod names;
mod network;
mod nodes;
mod parts;
mod restarts;
