//! The typed cache, one test for each reported case (`case_NN`, the numbers of the project's list of reports):
//!
//! - `races`: 1, 2, 4, 6, 7, 9, 12: loads against invalidations and puts.
//! - `flights`: 16, 17, 19, 21, 22, 24, 26, 27, 29, 31: who loads, who waits, who goes away.
//! - `counts`: what is counted, and by which name.
//! - `crowds`: many callers of many processes at once.
//! - `levels`: 14, 32, 36, 37: two levels, several processes, tags.
//! - `entries`: 39, 41, 44, 46, 47, 49: lives, absences, garbage, keys, large values.
//! - `away`: 51, 52: the store away, budgets and rates.
//! - `invalidate_in`: 11, on SQLite and PostgreSQL. `examples`: the examples run.
//! - `hot`, `warm`, `rewarm`: keys that are read most; pinned, refreshed early, kept in the store, brought back by all processes together.
//! - `spans`: what is told to a collector of traces.
//! - `many`: `get_many`, `warm`; 42 through the whole cache (its property is tested in `tidegate-core`).
//!
//! Not here: 34 and the frozen server of 51 need Redis, see `tidegate-redis`.

#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod away;
mod common;
mod counts;
mod crowds;
mod entries;
#[cfg(feature = "embedded")]
mod examples;
mod flights;
mod hot;
#[cfg(all(feature = "embedded", feature = "postgres", feature = "redis"))]
mod invalidate_in;
mod levels;
mod many;
mod one_key;
mod races;
#[cfg(feature = "redis")]
mod rewarm;
#[cfg(feature = "embedded")]
mod spans;
mod speed;
#[cfg(feature = "redis")]
mod warm;
