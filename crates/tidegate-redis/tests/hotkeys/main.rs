//! Hot keys: what processes tell, on real servers; what a server counts, on one that answers as Redis 8.6 is documented to.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod counting;
mod told;
