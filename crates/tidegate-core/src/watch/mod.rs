//! The watch over Redis and Valkey: from samples to findings, for the person who is paged.
//!
//! - [`info`]: the text of `INFO`. [`sample`]: one look at one server. `facts.rs`: what later samples are compared with.
//! - [`settings`]: the rules by name, what may be set of each. `rules/`: each as a pure function.
//! - `known.rs`: what is remembered beyond the last samples. [`judge`]: from samples to messages.
//! - [`finding`]: what is told. [`memory`]: a server's memory in numbers.
//!
//! It works with `INFO` alone. What a server may not or does not say is unknown, and by what is unknown nothing is judged.

mod facts;
pub mod finding;
pub mod info;
pub mod judge;
mod known;
pub mod memory;
mod rules;
pub mod sample;
pub mod settings;

#[cfg(test)]
mod tests;

pub use facts::Facts;
pub use finding::{Change, Finding, Severity, bytes, evidence_words};
pub use info::{Info, Kind, Server};
pub use judge::{BadState, Judge, MAX_SERVERS};
pub use memory::Memory;
pub use sample::{Answer, Client, Config, Host, Reply, Sample, Silence, SlowCommand};
pub use settings::{Purpose, Rule, RuleSettings, Settings};
