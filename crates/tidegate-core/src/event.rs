//! Events: the operation log and the outbox at once.

use serde::{Deserialize, Serialize};

use crate::order::OrderState;
use crate::{Millis, OrderId, OrderNo, Payment, Refund};

/// What happened. The names in [`EventKind::name`] are contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each is named by its wire name below and defined in docs/reference/events.md")]
pub enum EventKind {
    OrderPlaced,
    OrderPaid,
    OrderExtended,
    OrderExpired,
    OrderCancelled,
    OrderRevived,
    OrderFulfilled,
    OrderParked,
    OrderClosed,
    PaymentPartial,
    PaymentRefundDue,
    PaymentUnmatched,
    RefundSettled,
}

impl EventKind {
    /// Every kind with its wire name. The position is stable: ledgers store it.
    pub const ALL: [(EventKind, &'static str); 13] = [
        (EventKind::OrderPlaced, "order.placed"),
        (EventKind::OrderPaid, "order.paid"),
        (EventKind::OrderExtended, "order.extended"),
        (EventKind::OrderExpired, "order.expired"),
        (EventKind::OrderCancelled, "order.cancelled"),
        (EventKind::OrderRevived, "order.revived"),
        (EventKind::OrderFulfilled, "order.fulfilled"),
        (EventKind::OrderParked, "order.parked"),
        (EventKind::OrderClosed, "order.closed"),
        (EventKind::PaymentPartial, "payment.partial"),
        (EventKind::PaymentRefundDue, "payment.refund_due"),
        (EventKind::PaymentUnmatched, "payment.unmatched"),
        (EventKind::RefundSettled, "refund.settled"),
    ];

    /// The wire name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL[self.number() as usize].1
    }

    /// The stable number ledgers store.
    #[must_use]
    pub fn number(self) -> i64 {
        self as i64
    }

    /// The kind with this stored number.
    #[must_use]
    pub fn from_number(n: i64) -> Option<Self> {
        usize::try_from(n).ok().and_then(|i| Self::ALL.get(i)).map(|(k, _)| *k)
    }
}

/// An event as a batch makes it. The ledger numbers it (its cursor) when it writes the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The order, or `None` for money returned without one.
    pub order: Option<(OrderNo, OrderId)>,
    /// Position in the order's own history from 1; 0 without an order.
    pub seq: i64,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: Millis,
    /// How the command left the order.
    pub state: Option<OrderState>,
    /// The order's payments as the command left them (empty for most).
    pub payments: Vec<Payment>,
    /// The payment it is about, for `payment.*`.
    pub payment: Option<Payment>,
    /// The refund it is about, for `payment.refund_due` and `refund.settled`.
    pub refund: Option<Refund>,
    /// Why, for `order.cancelled` and `order.parked`.
    pub reason: Option<String>,
}
