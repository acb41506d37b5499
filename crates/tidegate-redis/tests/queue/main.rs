//! The delay queue on real servers.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod contract;
mod full;
mod pieces;
