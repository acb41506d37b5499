//! The few fields of the answers that are read.

use serde::Deserialize;

use super::events::instant;

/// An amount of a currency.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct Money {
    /// Minor units.
    pub amount: i64,
}

/// A line of an order.
#[derive(Debug, Clone, Deserialize)]
pub struct Line {
    /// The SKU.
    pub sku: String,
    /// Units.
    pub quantity: i64,
}

/// A payment as an order lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Payment {
    /// Minor units.
    pub amount: Option<i64>,
    /// What became of it.
    pub outcome: String,
    /// The refund it caused.
    pub refund_id: Option<String>,
}

/// An order.
#[derive(Debug, Clone, Deserialize)]
pub struct Order {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub status: String,
    /// Its lines.
    pub lines: Vec<Line>,
    /// Its total.
    pub total: Option<Money>,
    /// When it was placed.
    #[serde(deserialize_with = "instant")]
    pub placed_at: i64,
    /// What the buyer is shown.
    #[serde(deserialize_with = "instant")]
    pub pay_by: i64,
    /// When the clock acts.
    #[serde(deserialize_with = "instant")]
    pub release_at: i64,
    /// When it was cancelled.
    #[serde(default, deserialize_with = "super::events::maybe_instant")]
    pub cancelled_at: Option<i64>,
    /// When it was paid.
    #[serde(default, deserialize_with = "super::events::maybe_instant")]
    pub paid_at: Option<i64>,
    /// Why it was cancelled.
    pub cancel_reason: Option<String>,
    /// Money reported for it.
    #[serde(default)]
    pub payments: Vec<Payment>,
}

/// The answer to a payment.
#[derive(Debug, Clone, Deserialize)]
pub struct Paid {
    /// What it did.
    pub outcome: String,
}

/// A SKU.
#[derive(Debug, Clone, Deserialize)]
pub struct Sku {
    /// Its id.
    pub sku: String,
    /// Units there are.
    pub on_hand: i64,
    /// Units that can be bought.
    pub available: i64,
    /// Units of pending orders.
    pub held: i64,
    /// Units of paid orders.
    pub sold: i64,
}

/// An error.
#[derive(Debug, Clone, Deserialize)]
pub struct Problem {
    /// Its code.
    pub code: String,
    /// What to do.
    #[serde(default)]
    pub detail: String,
}

/// One item of the answer to a `:batch`.
#[derive(Debug, Clone, Deserialize)]
pub struct BatchItem {
    /// As the single call's.
    pub status: u16,
    /// Why not.
    pub problem: Option<Problem>,
}

/// The answer to a `:batch`.
#[derive(Debug, Clone, Deserialize)]
pub struct Batch {
    /// One a request, in order.
    pub results: Vec<BatchItem>,
}
