//! The doctor: how servers of Redis and Valkey are set up, against what they are used for.
//!
//! - [`facts`]: what is known of servers. [`sample`]: what a sample of keys says of all.
//! - [`check`]: the checks by name. `rules/`: each as a pure function, facts in, findings out. [`finding`]: what is told.
//! - [`plan`]: which findings can be mended by settings, and whether a setting is safe when it is set.
//!
//! What may not be seen is unknown: it is named, and nothing is judged by it.

pub mod check;
pub mod facts;
pub mod finding;
pub mod plan;
mod rules;
pub mod sample;

#[cfg(test)]
mod tests;

pub use check::Check;
pub use facts::{Deployment, Keys, Machine, Member, Node, Sentinels, Settings, Silent, Topology};
pub use finding::{Change, Finding, Report, Unknown};
pub use plan::{Step, holds, is_safe, replica_buffer, steps};
pub use rules::{SETTINGS, judge};
pub use sample::{CONFIDENCE, Group, KeySample, Own, Share};
