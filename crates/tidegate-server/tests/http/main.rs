//! The server over real sockets, on embedded back ends.
#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod bodies;
mod cache;
mod cache_bounds;
mod cache_crowds;
#[allow(dead_code, reason = "other tests use the rest of it")]
mod client;
mod connections;
mod events;
mod orders;
mod origin;
mod pages;
mod products;
mod reference;
mod requests;
mod stock;
mod stopping;
mod warm;
