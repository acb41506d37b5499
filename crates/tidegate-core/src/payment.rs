//! Money is a fact: payment reports are kept for ever, each with what became of it.

use serde::{Deserialize, Serialize};

use crate::{Currency, Millis, OrderId, PaymentId, RefundId};

/// What a payment report did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentOutcome {
    /// It paid the order.
    Applied,
    /// Less than the total so far.
    Partial,
    /// Seen before (an answer only; never stored).
    Duplicate,
    /// It brought back an order that the clock had cancelled.
    Revived,
    /// The order was paid already; due back.
    Surplus,
    /// The order is cancelled and stays so; due back.
    RefundDue,
    /// No such order yet; kept.
    Unmatched,
}

/// Whether a refund is still owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundStatus {
    /// Owed.
    Due,
    /// Reported as paid back.
    Settled,
}

/// Why money is due back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefundReason {
    /// More than the total.
    Excess,
    /// The order was paid already.
    Surplus,
    /// The order was cancelled before this money arrived, or with it.
    OrderCancelled,
    /// It matched no order, or one in another currency.
    Unmatched,
    /// Asked for by hand.
    Requested,
}

/// Money that is due back, or was given back. Exists exactly once per cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refund {
    /// Its id.
    pub id: RefundId,
    /// The payment it gives back (a part of).
    pub payment_id: PaymentId,
    /// The order that payment named.
    pub order_id: OrderId,
    /// Minor units; absent when the report named none and no order told the total.
    pub amount: Option<i64>,
    /// Of this currency, if it is known.
    pub currency: Option<Currency>,
    /// Owed or paid back.
    pub status: RefundStatus,
    /// Why.
    pub reason: RefundReason,
    /// Since when it is owed.
    pub due_at: Millis,
    /// When it was reported settled.
    pub settled_at: Option<Millis>,
}

/// A payment report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The provider's id, unique in the ledger.
    pub id: PaymentId,
    /// The order it names, which may not exist yet.
    pub order_id: OrderId,
    /// Minor units: as sent, or the order's total once the order is known.
    pub amount: Option<i64>,
    /// As sent, or the order's once the order is known.
    pub currency: Option<Currency>,
    /// When the provider took it (recorded and shown only).
    pub captured_at: Option<Millis>,
    /// When the ledger stored it.
    pub received_at: Millis,
    /// What became of it.
    pub outcome: PaymentOutcome,
    /// When it was flagged as unmatched for a day (`payment.unmatched`).
    pub flagged_at: Option<Millis>,
    /// Refunds of it, oldest first.
    pub refunds: Vec<Refund>,
}

impl Payment {
    /// Minor units given or due back.
    #[must_use]
    pub fn refunded(&self) -> i64 {
        self.refunds.iter().filter_map(|r| r.amount).sum()
    }

    /// Whether this report counted towards its order's total when it was applied.
    #[must_use]
    pub fn counted(&self) -> bool {
        matches!(self.outcome, PaymentOutcome::Applied | PaymentOutcome::Partial | PaymentOutcome::Revived)
    }

    /// Minor units that count towards the order's total; 0 while unmatched.
    #[must_use]
    pub fn kept(&self) -> i64 {
        if self.counted() { self.amount.unwrap_or(0) - self.refunded() } else { 0 }
    }

    /// Whether some of it still counts, so that cancelling the order makes it due back. A report without an amount on
    /// an order without a total counts until it has a refund.
    #[must_use]
    pub fn is_owed_on_cancel(&self) -> bool {
        self.counted() && (self.kept() > 0 || (self.amount.is_none() && self.refunds.is_empty()))
    }
}
