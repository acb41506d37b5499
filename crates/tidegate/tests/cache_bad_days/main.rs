//! Bad days of the typed cache, with real processes and real servers.
//!
//! - `process`, `child`: a process with a cache of its own, which is this very program.
//! - `crowds`: eight processes, thousands of callers, one key. `leaders`: processes that die or freeze while they load.
//! - `clocks`: a process whose clock is stepped. `schemas`: old and new programs on one Redis, and bytes of strangers.
//! - `servers`: Redis restarts, is flushed, replaced, frozen, full; the bus silent; the database down. `large`: values of
//!   50 MB, a million failing keys.
//!
//! `TIDEGATE_TEST_LONG=1` runs each in full.

#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod child;
mod clocks;
mod crowds;
mod large;
mod leaders;
mod process;
mod schemas;
mod servers;

/// `whole` with `TIDEGATE_TEST_LONG=1`, else `short`.
fn scaled(short: u64, whole: u64) -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { whole } else { short }
}
