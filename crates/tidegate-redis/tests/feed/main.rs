//! The feed's copies on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "tests that measure say what they measured")]

#[path = "../common/mod.rs"]
mod common;

mod bad_days;
mod contract;
mod cost;
mod days_in_a_cluster;
mod shelf;
