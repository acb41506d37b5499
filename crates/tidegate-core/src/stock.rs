//! Counts of a SKU and the stock ledger, one row a change.

use serde::{Deserialize, Serialize};

use crate::{Millis, OrderId, OrderNo, SkuId};

/// Units of a SKU. `available` is derived: `on_hand - held - sold`, never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Units in the house: held and sold ones included, fulfilled ones not.
    pub on_hand: i64,
    /// Units of pending orders.
    pub held: i64,
    /// Units of paid orders that are not fulfilled.
    pub sold: i64,
}

impl Counts {
    /// Units that can be ordered now.
    #[must_use]
    pub const fn available(&self) -> i64 {
        self.on_hand - self.held - self.sold
    }

    /// These counts changed by `delta`; `None` when that breaks I1 (a count below zero, or an overflow).
    #[must_use]
    pub fn checked_add(&self, delta: Counts) -> Option<Counts> {
        let next = Counts {
            on_hand: self.on_hand.checked_add(delta.on_hand)?,
            held: self.held.checked_add(delta.held)?,
            sold: self.sold.checked_add(delta.sold)?,
        };
        let committed = next.held.checked_add(next.sold)?;
        let sound = next.on_hand >= 0 && next.held >= 0 && next.sold >= 0 && next.on_hand >= committed;
        sound.then_some(next)
    }
}

/// What kind of change a stock-ledger row records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StockKind {
    /// The SKU was created (also with 0 units).
    Created,
    /// An order holds units: held += q.
    Held,
    /// A pending order ended unpaid: held -= q.
    Released,
    /// An order was paid: held -= q, sold += q (total 0 and revival: sold += q).
    Sold,
    /// A paid order was cancelled, units come back: sold -= q.
    Returned,
    /// A paid order was cancelled, units do not: sold -= q, on_hand -= q.
    WrittenOff,
    /// A paid order left the house: sold -= q, on_hand -= q.
    Fulfilled,
    /// Counted by hand: on_hand += delta.
    Adjusted,
}

/// One row of a SKU's stock ledger. `(sku, stock_version)` is its key; versions run from 1 without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockChange {
    /// Whose counts changed.
    pub sku: SkuId,
    /// The SKU's `stock_version` after this change.
    pub stock_version: i64,
    /// When.
    pub at: Millis,
    /// What kind of change.
    pub kind: StockKind,
    /// The order behind it, if any.
    pub order: Option<(OrderNo, OrderId)>,
    /// Why, for an adjustment.
    pub reason: Option<String>,
    /// By how much each count changed.
    pub delta: Counts,
    /// The counts afterwards.
    pub after: Counts,
}
