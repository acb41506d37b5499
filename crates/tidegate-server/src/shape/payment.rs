//! Payments and refunds on the wire.

use serde::Serialize;
use tidegate::Paid;
use tidegate::core::{Currency, Payment, Refund};
use utoipa::ToSchema;

use super::instant::Instant;
use super::names::{OutcomeName, RefundReasonName, RefundStatusName};
use super::order::OrderShape;

/// A payment report, as it was stored.
#[derive(Serialize, ToSchema)]
#[schema(as = Payment)]
pub(crate) struct PaymentShape<'a> {
    /// The provider's id of it.
    #[schema(example = "pi_3Q")]
    payment_id: &'a str,
    /// The order it names.
    order_id: &'a str,
    /// Minor units: as sent, or the order's total once the order is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    /// Of this currency, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<&'a str>,
    /// When the provider took it, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    captured_at: Option<Instant>,
    /// When it was stored.
    #[schema(inline)]
    received_at: Instant,
    #[schema(inline)]
    outcome: OutcomeName,
    /// Its refund, if any of it is due back or was given back (the first, if there are several).
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_id: Option<&'a str>,
}

impl<'a> PaymentShape<'a> {
    /// Borrows `payment`.
    pub(crate) fn new(payment: &'a Payment) -> Self {
        Self {
            payment_id: payment.id.as_str(),
            order_id: payment.order_id.as_str(),
            amount: payment.amount,
            currency: payment.currency.as_ref().map(Currency::code),
            captured_at: payment.captured_at.map(Instant),
            received_at: Instant(payment.received_at),
            outcome: OutcomeName(payment.outcome),
            refund_id: payment.refunds.first().map(|refund| refund.id.as_str()),
        }
    }
}

/// Money that is due back, or was given back.
#[derive(Serialize, ToSchema)]
#[schema(as = Refund)]
pub(crate) struct RefundShape<'a> {
    refund_id: &'a str,
    /// The order the payment named.
    order_id: &'a str,
    /// The payment it gives back (a part of).
    payment_id: &'a str,
    /// Minor units; absent when neither the report nor an order told how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    /// Of this currency, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<&'a str>,
    #[schema(inline)]
    status: RefundStatusName,
    #[schema(inline)]
    reason: RefundReasonName,
    /// Since when it is owed.
    #[schema(inline)]
    due_at: Instant,
    /// When it was reported as paid back.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    settled_at: Option<Instant>,
}

impl<'a> RefundShape<'a> {
    /// Borrows `refund`.
    pub(crate) fn new(refund: &'a Refund) -> Self {
        Self {
            refund_id: refund.id.as_str(),
            order_id: refund.order_id.as_str(),
            payment_id: refund.payment_id.as_str(),
            amount: refund.amount,
            currency: refund.currency.as_ref().map(Currency::code),
            status: RefundStatusName(refund.status),
            reason: RefundReasonName(refund.reason),
            due_at: Instant(refund.due_at),
            settled_at: refund.settled_at.map(Instant),
        }
    }
}

/// What a payment report did. It is stored durably.
#[derive(Serialize, ToSchema)]
#[schema(as = PaymentAnswer)]
pub(crate) struct PaidShape<'a> {
    #[schema(inline)]
    outcome: OutcomeName,
    /// The order as it is now; null while no order has the id.
    #[schema(required)]
    order: Option<OrderShape<'a>>,
    /// Money due back because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refund: Option<RefundShape<'a>>,
}

impl<'a> PaidShape<'a> {
    /// Borrows `paid`.
    pub(crate) fn new(paid: &'a Paid) -> Self {
        Self {
            outcome: OutcomeName(paid.outcome),
            order: paid.order.as_ref().map(OrderShape::new),
            refund: paid.refund.as_ref().map(RefundShape::new),
        }
    }
}
