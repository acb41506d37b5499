//! The delay queue's handles and workers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod verbs;
mod workers;
