//! The auditor: the invariants of orders.md section 8 over plain rows. A ledger streams its rows in; demo, replay,
//! reconcile and the tests read the same report.

use crate::event::EventKind;
use crate::{BuyerId, Millis, Order, OrderId, Payment, Sku, SkuId, StockChange};

/// An event as the auditor reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its place in the global log.
    pub cursor: i64,
    /// The order, if there is one.
    pub order_id: Option<OrderId>,
    /// Position in that order's history.
    pub seq: i64,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: Millis,
}

/// What a check of the invariants found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Rows that were looked at.
    pub checked: u64,
    /// The invariants that were checked, with whether each held. What could not be checked is absent.
    pub invariants: std::collections::BTreeMap<&'static str, bool>,
    /// The first findings of each invariant, at most [`MAX_FINDINGS`] in all.
    pub findings: Vec<Finding>,
}

/// Most findings a report lists.
pub const MAX_FINDINGS: usize = 100;

/// One broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `I1`..`I8`.
    pub invariant: &'static str,
    /// What contradicts what.
    pub detail: String,
}

/// Collects rows, then judges. Feed SKUs first, then stock changes and events each in the order of the log, then
/// buyer counters, orders, and unmatched payments.
#[derive(Debug, Default)]
pub struct Auditor {}

impl Auditor {
    /// An auditor that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A SKU with its counts.
    pub fn sku(&mut self, sku: &Sku) {
        let _ = sku;
    }

    /// A stock-ledger row; for each SKU in the order of `stock_version`.
    pub fn stock_change(&mut self, change: &StockChange) {
        let _ = change;
    }

    /// An event, in the order of cursors.
    pub fn event(&mut self, event: &EventRow) {
        let _ = event;
    }

    /// A buyer counter.
    pub fn buyer(&mut self, sku: &SkuId, buyer: &BuyerId, units: i64) {
        let _ = (sku, buyer, units);
    }

    /// An order with its payments.
    pub fn order(&mut self, order: &Order) {
        let _ = order;
    }

    /// A payment that names no order.
    pub fn unmatched(&mut self, payment: &Payment) {
        let _ = payment;
    }

    /// The verdict at `now`; an order still pending after `release_at + lag_bound_ms` breaks I5.
    #[must_use]
    pub fn finish(self, now: Millis, lag_bound_ms: i64) -> Report {
        let _ = (now, lag_bound_ms);
        Report::default()
    }
}
