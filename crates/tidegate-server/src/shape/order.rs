//! Orders on the wire.

use serde::Serialize;
use tidegate::core::{Line, Order, command::Parked};
use utoipa::ToSchema;

use super::instant::Instant;
use super::names::{CancelReasonName, StatusName};
use super::payment::PaymentShape;
use super::{Kept, MoneyShape};

/// An order.
#[derive(Serialize, ToSchema)]
#[schema(as = Order)]
pub(crate) struct OrderShape<'a> {
    /// The caller's id for it, or the server's.
    #[schema(example = "o-1001")]
    id: &'a str,
    /// Who buys.
    #[schema(example = "buyer-7")]
    buyer_id: &'a str,
    #[schema(inline)]
    status: StatusName,
    /// What was ordered, one line a SKU.
    lines: Vec<LineShape<'a>>,
    /// Sum of the lines, when they are priced.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<MoneyShape<'a>>,
    /// When it was placed.
    #[schema(inline)]
    placed_at: Instant,
    /// What the buyer is shown.
    #[schema(inline)]
    pay_by: Instant,
    /// When the clock cancels it, unless it is paid.
    #[schema(inline)]
    release_at: Instant,
    /// When it was paid.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    paid_at: Option<Instant>,
    /// When it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    cancelled_at: Option<Instant>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    cancel_reason: Option<CancelReasonName>,
    /// When it left the house.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    fulfilled_at: Option<Instant>,
    /// Money reported for it, oldest first.
    payments: Vec<PaymentShape<'a>>,
    /// The caller's own.
    #[schema(inline)]
    metadata: Kept<'a>,
    /// Counts its changes from 1; the `ETag`.
    version: i64,
}

/// A line of an order.
#[derive(Serialize, ToSchema)]
#[schema(as = Line)]
pub(crate) struct LineShape<'a> {
    #[schema(example = "mug-blue")]
    sku: &'a str,
    /// Units.
    #[schema(minimum = 1, maximum = 1_000_000)]
    quantity: i64,
    /// The price of one unit when the order was placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_price: Option<MoneyShape<'a>>,
}

impl<'a> LineShape<'a> {
    fn new(line: &'a Line) -> Self {
        Self {
            sku: line.sku.as_str(),
            quantity: line.quantity,
            unit_price: line.unit_price.as_ref().map(MoneyShape::new),
        }
    }
}

impl<'a> OrderShape<'a> {
    /// Borrows `order`.
    pub(crate) fn new(order: &'a Order) -> Self {
        let state = &order.state;
        Self {
            id: order.id.as_str(),
            buyer_id: order.buyer_id.as_str(),
            status: StatusName(state.status),
            lines: order.lines.iter().map(LineShape::new).collect(),
            total: order.total.as_ref().map(MoneyShape::new),
            placed_at: Instant(order.placed_at),
            pay_by: Instant(state.pay_by),
            release_at: Instant(state.release_at),
            paid_at: state.paid_at.map(Instant),
            cancelled_at: state.cancelled_at.map(Instant),
            cancel_reason: state.cancel_reason.map(CancelReasonName),
            fulfilled_at: state.fulfilled_at.map(Instant),
            payments: order.payments.iter().map(PaymentShape::new).collect(),
            metadata: Kept(&order.metadata),
            version: state.version,
        }
    }
}

/// An id that was cancelled before any order had it: no order can be placed under it for a week.
#[derive(Serialize, ToSchema)]
#[schema(as = CancelledId)]
pub(crate) struct TombstoneShape<'a> {
    id: &'a str,
    /// Always `cancelled`.
    #[schema(example = "cancelled")]
    status: &'static str,
}

impl<'a> TombstoneShape<'a> {
    /// Of this id.
    pub(crate) fn new(id: &'a str) -> Self {
        Self { id, status: "cancelled" }
    }
}

/// An order whose deadline could not be acted on.
#[derive(Serialize, ToSchema)]
#[schema(as = Parked)]
pub(crate) struct ParkedShape<'a> {
    order_id: &'a str,
    /// Since when.
    #[schema(inline)]
    at: Instant,
    /// Tries so far.
    tries: i64,
    /// What went wrong the last time.
    reason: &'a str,
}

impl<'a> ParkedShape<'a> {
    /// Borrows `parked`.
    pub(crate) fn new(parked: &'a Parked) -> Self {
        Self { order_id: parked.order_id.as_str(), at: Instant(parked.at), tries: parked.tries, reason: &parked.reason }
    }
}
