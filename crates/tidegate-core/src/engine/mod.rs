//! The batch engine: which rows a list of commands needs, and what the rules make of it.
//!
//! A ledger calls [`missing`] and loads what it names until nothing is missing (two or three rounds: an order names
//! its SKUs, a SKU with `max_per_buyer` names a counter), then [`decide`] once, then writes [`Changes`] and commits.

mod rows;

pub use rows::{Changes, Decided, KeyScope, Keys, RequestRecord, Rows, Slot, Source};

use crate::{Command, Millis, Settings};

/// The rows `commands` need that `rows` does not have. Empty when [`decide`] can run.
#[must_use]
pub fn missing(commands: &[Command], rows: &Rows) -> Keys {
    let _ = (commands, rows);
    Keys::default()
}

/// Decides `commands` in order on `rows`, which it changes to what they are afterwards. A rejected command changes nothing.
pub fn decide(rows: &mut Rows, commands: &[Command], now: Millis, settings: &Settings, source: &mut dyn Source) -> Decided {
    let _ = (rows, commands, now, settings, source);
    Decided { verdicts: Vec::new(), changes: Changes::default() }
}
