//! Hot keys: which names are read most, lately.
//!
//! - [`Sketch`]: the counters of a process, in bounded memory. `ring`: counts by window.
//! - [`Report`]: what a process says of its last windows. [`merge`]: what several processes read most together.

mod report;
mod ring;
mod sketch;
#[cfg(test)]
mod tests;

pub use report::{HotName, MAX_REPORT_BYTES, MAX_REPORTED, Merged, Report, merge};
pub use sketch::{Ranked, Recent, Sketch};

/// Counts are halved so often, milliseconds: what was hot a few minutes ago is forgotten.
pub const HALF_LIFE_MS: i64 = 30_000;
/// Reads are told apart by windows of so many milliseconds.
pub const WINDOW_MS: i64 = 2_000;
/// So many of them are remembered, 30 s together.
pub const WINDOWS: usize = (HALF_LIFE_MS / WINDOW_MS) as usize;
