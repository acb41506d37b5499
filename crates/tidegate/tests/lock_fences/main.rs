//! Fences: whoever is late is refused by the data, whatever became of the locks.
//!
//! - `data`: a row in each database that counts who wrote late. `late`: paused and frozen holders, lost stores, clocks that went
//!   back. `levels`: two holders at once, under each level of isolation. `torture`: all of it at random, and the mutant without
//!   the check.
#![allow(clippy::unwrap_used, reason = "tests")]

mod data;
mod late;
mod levels;
mod torture;
