//! The rows a batch needs, the rows it has, and what it changed.

use crate::command::{Outcome, Parked};
use crate::{
    BuyerId, Event, IdempotencyKey, Map, Millis, Order, OrderId, OrderNo, Payment, PaymentId, RefundId, Set, Sku,
    SkuId, StockChange,
};

/// Which operation an idempotency key of [`RequestRecord`] belongs to. Order keys are kept apart, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i64)]
pub enum KeyScope {
    /// `POST /v1/skus/{sku}/adjustments`.
    Adjust = 1,
    /// `POST /v1/payments/{id}/refund`.
    RefundPayment = 2,
    /// `POST /v1/refunds/{id}/settle`.
    SettleRefund = 3,
}

/// What a kept request key stands for: the command in canonical text, and when it was bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// The bound command, canonical text (two commands are the same when these are equal).
    pub command: String,
    /// When it was bound; kept for 7 days.
    pub at: Millis,
}

/// Rows to load next. Every list is free of repeats; a ledger locks each sorted by bytes (orders.md section 7).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// Order ids: the order with its payments and refunds, or the tombstone and the unmatched payments of the id.
    pub ids: Vec<OrderId>,
    /// Orders by number.
    pub numbers: Vec<OrderNo>,
    /// Idempotency keys of orders.
    pub order_keys: Vec<IdempotencyKey>,
    /// Idempotency keys of other operations.
    pub request_keys: Vec<(KeyScope, IdempotencyKey)>,
    /// Payments: which order id they name.
    pub payments: Vec<PaymentId>,
    /// Refunds: which payment and order id they belong to.
    pub refunds: Vec<RefundId>,
    /// SKUs.
    pub skus: Vec<SkuId>,
    /// Count every buyer's units of these SKUs afresh from the orders and keep them as counters, before `buyers` is read.
    pub recounts: Vec<SkuId>,
    /// Buyer counters.
    pub buyers: Vec<(SkuId, BuyerId)>,
    /// Orders on the parked list.
    pub parked: Vec<OrderNo>,
}

impl Keys {
    /// Whether nothing is left to load.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What an order id stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    /// The order.
    pub order: Option<Order>,
    /// Since when the id is out of use (cancelled before it was placed).
    pub tombstone: Option<Millis>,
    /// Money that names this id while there is no order, oldest first.
    pub unmatched: Vec<Payment>,
}

/// The rows of a batch: `Some(None)`-like entries say "looked up, not there". A ledger fills it from [`Keys`].
#[derive(Debug, Default)]
pub struct Rows {
    /// By order id.
    pub ids: Map<OrderId, Slot>,
    /// Which id an order number has.
    pub numbers: Map<OrderNo, Option<OrderId>>,
    /// Which order an idempotency key is an alias of.
    pub order_keys: Map<IdempotencyKey, Option<OrderId>>,
    /// Other operations' keys.
    pub request_keys: Map<(KeyScope, IdempotencyKey), Option<RequestRecord>>,
    /// Which order id a payment names.
    pub payments: Map<PaymentId, Option<OrderId>>,
    /// Which payment and order id a refund belongs to.
    pub refunds: Map<RefundId, Option<(PaymentId, OrderId)>>,
    /// SKUs.
    pub skus: Map<SkuId, Option<Sku>>,
    /// SKUs whose buyer counters were counted afresh in this batch.
    pub recounted: Set<SkuId>,
    /// Units a buyer has taken (0 when there is no row).
    pub buyers: Map<(SkuId, BuyerId), i64>,
    /// The parked list.
    pub parked: Map<OrderNo, Option<Parked>>,
}

impl Rows {
    /// Whether buyers' units of this SKU are counted in this batch: it has a limit, or its counters were made afresh.
    #[must_use]
    pub fn counts_buyers(&self, sku: &SkuId) -> bool {
        let limited = |row: &Option<Sku>| row.as_ref().is_some_and(|sku| sku.max_per_buyer.is_some());
        self.skus.get(sku).is_some_and(limited) || self.recounted.contains(sku)
    }
}

/// What a decided batch changed. The final row of each named key is in [`Rows`]; events and stock changes are complete.
#[derive(Debug, Default)]
pub struct Changes {
    /// Orders to insert, in the order of their numbers.
    pub new_orders: Vec<OrderId>,
    /// Orders to update (none of them in `new_orders`).
    pub updated_orders: Set<OrderId>,
    /// Ids with a new tombstone.
    pub tombstones: Vec<OrderId>,
    /// Payments to insert or update, with the order id they name (look in the order, else in the slot's unmatched).
    pub payments: Map<PaymentId, OrderId>,
    /// Refunds to insert or update, with the payment they belong to.
    pub refunds: Map<RefundId, PaymentId>,
    /// SKUs to insert, oldest first; each is in `skus` too.
    pub new_skus: Vec<SkuId>,
    /// SKUs to insert or update.
    pub skus: Set<SkuId>,
    /// SKUs whose card changed (made, changed, archived, brought back); each is in `skus` too. A cached page of one of
    /// these is old, whatever became of its counts.
    pub cards: Set<SkuId>,
    /// Buyer counters to write.
    pub buyers: Set<(SkuId, BuyerId)>,
    /// Aliases to insert.
    pub order_keys: Vec<(IdempotencyKey, OrderId)>,
    /// Other operations' keys to insert (or to replace, when an old one had run out).
    pub request_keys: Vec<(KeyScope, IdempotencyKey)>,
    /// Orders whose place on the parked list changed.
    pub parked: Set<OrderNo>,
    /// Events, in order; the ledger numbers them.
    pub events: Vec<Event>,
    /// Stock-ledger rows, in order.
    pub stock: Vec<StockChange>,
}

impl Changes {
    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.stock.is_empty()
            && self.new_orders.is_empty()
            && self.updated_orders.is_empty()
            && self.tombstones.is_empty()
            && self.payments.is_empty()
            && self.refunds.is_empty()
            && self.skus.is_empty()
            && self.buyers.is_empty()
            && self.order_keys.is_empty()
            && self.request_keys.is_empty()
            && self.parked.is_empty()
    }
}

/// Where new numbers and ids come from; injected so that a test can repeat a run.
pub trait Source {
    /// The next order number: larger than every one before.
    fn order_no(&mut self) -> OrderNo;
    /// A new refund id.
    fn refund_id(&mut self) -> RefundId;
}

/// A decided batch.
#[derive(Debug)]
pub struct Decided {
    /// One answer a command, in order.
    pub verdicts: Vec<Result<Outcome, crate::command::Rejection>>,
    /// What to write.
    pub changes: Changes,
}
