//! Big keys.
pub mod rdb;
pub mod weight;
