//! The contract every back end passes: named cases, a seeded workload, the auditor.
//!
//! - [`oracle`]: the engine over plain maps; what a ledger must agree with.
//! - [`workload`]: random commands from seeded (or shrinkable) entropy.

pub mod oracle;
pub mod workload;

pub use oracle::Oracle;
pub use workload::Workload;
