//! Reads. Each takes a connection and gives the rules' values; one that takes several statements runs them in one snapshot.
//!
//! - `orders.rs`: one order, deadlines, the parked list. `filter.rs`: lists of orders. `events.rs`: events.
//! - `money.rs`: payments and refunds. `stock.rs`: SKUs and their ledger. `probe.rs`: what the gate asks. `audit.rs`: all.

pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod money;
pub(crate) mod orders;
pub(crate) mod probe;
pub(crate) mod stock;
