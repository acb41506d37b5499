//! The membership filter of the typed cache: what it refuses, and that it refuses nobody who exists.
//!
//! - `reads`: who is refused, what is asked of the store and the loader, what is counted.
//! - `building`: how a filter comes to be, grows, is lost and comes back.
//! - `torture`: inserts during rebuilds, killed builders, evicted buckets, emptied stores; and mutants that are caught.
//! - `shared` (feature `redis`): the same on Redis and Valkey, with restarts that lose what was acknowledged.
//! - `products` (feature `embedded`): pages of the nodes of one ledger.
//! - `common`: a table of rows, and caches in front of it.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "tests that measure say what they measured")]

mod building;
mod common;
#[cfg(feature = "embedded")]
mod products;
mod reads;
#[cfg(feature = "redis")]
mod shared;
mod torture;
