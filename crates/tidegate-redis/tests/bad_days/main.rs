//! Bad days, on real servers: what is lost, what is late, what comes back by itself.

#[path = "../common/mod.rs"]
mod common;

mod failover;
mod network;
mod nodes;
mod restarts;
