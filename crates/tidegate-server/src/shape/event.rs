//! Events on the wire.

use serde::Serialize;
use tidegate::EventRecord;
use utoipa::ToSchema;

use super::instant::Instant;
use super::order::OrderShape;
use super::payment::{PaymentShape, RefundShape};

/// Something that happened. Cursors are dense: a reader that goes by them misses nothing.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventShape<'a> {
    /// Its place in the log, from 1.
    pub(crate) cursor: i64,
    /// The order; null for money that was returned without one.
    #[schema(required)]
    order_id: Option<&'a str>,
    /// Its place in the order's own history, from 1; 0 without an order.
    seq: i64,
    /// What happened; see docs/reference/events.md.
    #[serde(rename = "type")]
    #[schema(example = "order.placed")]
    pub(crate) type_: &'static str,
    /// When.
    #[schema(inline)]
    at: Instant,
    /// The things it is about.
    #[serde(rename = "data")]
    about: EventAbout<'a>,
}

/// What an event is about.
#[derive(Serialize, ToSchema)]
#[schema(as = EventData)]
pub(crate) struct EventAbout<'a> {
    /// The order as the event left it; null for money that was returned without one.
    #[schema(required)]
    order: Option<OrderShape<'a>>,
    /// The payment, for `payment.*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    payment: Option<PaymentShape<'a>>,
    /// The refund, for `payment.refund_due` and `refund.settled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    refund: Option<RefundShape<'a>>,
    /// Why, as it was told, for `order.cancelled` and `order.parked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> EventShape<'a> {
    /// Borrows `record`.
    pub(crate) fn new(record: &'a EventRecord) -> Self {
        let event = &record.event;
        Self {
            cursor: record.cursor,
            order_id: event.order.as_ref().map(|(_, id)| id.as_str()),
            seq: event.seq,
            type_: event.kind.name(),
            at: Instant(event.at),
            about: EventAbout {
                order: record.order.as_ref().map(OrderShape::new),
                payment: event.payment.as_ref().map(PaymentShape::new),
                refund: event.refund.as_ref().map(RefundShape::new),
                reason: event.reason.as_deref(),
            },
        }
    }
}
