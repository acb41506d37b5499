//! Orders.

use serde::{Deserialize, Serialize};

use crate::{BuyerId, JsonObject, Millis, Money, OrderId, OrderNo, Payment, SkuId};

/// Most lines of one order.
pub const MAX_LINES: usize = 1_000;
/// Most units of one line, after lines of one SKU are merged.
pub const MAX_QUANTITY: i64 = 1_000_000;
/// Largest `metadata`, in bytes of compact JSON.
pub const MAX_METADATA_BYTES: usize = 4 * 1024;
/// Longest `reason`, in bytes.
pub const MAX_REASON_BYTES: usize = 1_000;

/// Where an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Stock is held, money is awaited.
    Pending,
    /// Paid; its units are sold.
    Paid,
    /// Ended unpaid, or given back after it was paid.
    Cancelled,
    /// Left the house; final.
    Fulfilled,
}

/// Why an order was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// The clock: not paid by `release_at`.
    PaymentTimeout,
    /// Somebody asked while it was pending.
    Requested,
    /// A new order of the same buyer took its place.
    Superseded,
    /// Somebody asked after it was paid.
    Refunded,
}

/// One line: a SKU, how many, and the unit price frozen when the order was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The SKU.
    pub sku: SkuId,
    /// Units, `1..=`[`MAX_QUANTITY`].
    pub quantity: i64,
    /// Price of one unit then, if the SKU had one.
    pub unit_price: Option<Money>,
}

/// The parts of an order that change; what an event remembers of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderState {
    /// Where it stands.
    pub status: Status,
    /// What the buyer is shown.
    pub pay_by: Millis,
    /// When the clock acts.
    pub release_at: Millis,
    /// When it was paid.
    pub paid_at: Option<Millis>,
    /// When it was cancelled (absent again after a revival).
    pub cancelled_at: Option<Millis>,
    /// Why it was cancelled.
    pub cancel_reason: Option<CancelReason>,
    /// When it left the house.
    pub fulfilled_at: Option<Millis>,
    /// Counts changes of this order, from 1 (the `ETag`).
    pub version: i64,
}

/// An order with all its payments: the unit the rules change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The ledger's own number.
    pub no: OrderNo,
    /// The id its buyers know.
    pub id: OrderId,
    /// Who buys.
    pub buyer_id: BuyerId,
    /// What, one line a SKU, in order of first appearance. Never changes.
    pub lines: Vec<Line>,
    /// Sum of the lines, if they are priced.
    pub total: Option<Money>,
    /// When it was placed.
    pub placed_at: Millis,
    /// The caller's own data.
    pub metadata: JsonObject,
    /// `hold_seconds` as the request named it (part of what makes a repeat the same).
    pub requested_hold: Option<i64>,
    /// The order it took the place of, as the request named it.
    pub supersedes: Option<OrderId>,
    /// What changes.
    pub state: OrderState,
    /// Cancelled by the deadline and then by request: later money is due back, it never revives.
    pub closed: bool,
    /// `seq` of its newest event.
    pub last_seq: i64,
    /// Money reported for it, oldest first.
    pub payments: Vec<Payment>,
}

impl Order {
    /// Minor units that count towards the total: what was paid less what is due back or settled.
    #[must_use]
    pub fn kept(&self) -> i64 {
        self.payments.iter().map(Payment::kept).sum()
    }

    /// Whether it holds or has sold units that a buyer limit counts.
    #[must_use]
    pub fn counts_for_buyer(&self) -> bool {
        self.state.status != Status::Cancelled
    }
}
