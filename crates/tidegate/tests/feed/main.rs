//! The feed's handle, on a ledger and a store in memory (`fNN`: the numbers of the project's list of reports):
//!
//! - `cases`: f1, f2, f4, f6, f7, f9, f12, f14, f16, f17, f19, f21, and who sees what.
//! - `random`: anything in any order against the community, on two processes, with a store that fails.
//! - `cost`: what pages read; `kept`: pages from memory, and how old they may be.
//! - `back_ends`: random operations on SQLite, with the store in memory and on Redis.
//! - `away`: f11, a store that loses everything, or does not answer.

#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

mod away;
#[cfg(feature = "embedded")]
mod back_ends;
mod cases;
mod common;
mod cost;
mod kept;
mod random;
