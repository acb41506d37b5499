//! The ledger: the only arbiter of orders, stock, payments and events.

use std::fmt;
use std::sync::Arc;

use tidegate_core::command::Parked;
use tidegate_core::gate::Copy;
use tidegate_core::{
    Command, Event, IdempotencyKey, Millis, Order, OrderId, OrderNo, Payment, PaymentId, PaymentOutcome, Refund,
    RefundStatus, Sku, SkuId, Status, StockChange, Verdict,
};

use crate::{BoxFuture, Clock, Fences, Outbox, OutboxEntry, Result};

/// Most orders in one committed batch.
pub const MAX_BATCH_COMMANDS: usize = 512;
/// Most order lines in one committed batch.
pub const MAX_BATCH_LINES: usize = 8_192;
/// Largest page a list gives.
pub const MAX_PAGE: usize = 500;
/// Largest number of probes in one read.
pub const MAX_PROBES: usize = 500;

/// What a ledger can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// A short name for metrics and messages: `sqlite`, `mysql`, `postgres`.
    pub name: &'static str,
    /// No other process can write: gate copies taken from its commits are exact.
    pub sole_writer: bool,
}

/// Which ledger it is: a random number that is made with it and kept for ever. A copy of its data is the same ledger.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LedgerId(pub u64);

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LedgerId({self})")
    }
}

/// A change of an order's deadline that a commit made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Due at this instant from now on.
    At(OrderNo, Millis),
    /// No longer due (it was at this instant).
    Gone(OrderNo, Millis),
}

/// A committed batch: durable before this value exists.
#[derive(Debug)]
pub struct Commit {
    /// The ledger's clock, read after the rows were locked: every instant the batch wrote.
    pub now: Millis,
    /// One a command, in order.
    pub verdicts: Vec<Verdict>,
    /// Every SKU whose row changed, as it is now.
    pub copies: Vec<(SkuId, Copy)>,
    /// Every deadline that changed.
    pub deadlines: Vec<Deadline>,
    /// The cursor of its newest event, if it made any.
    pub last_cursor: Option<i64>,
    /// What it made old in caches: one entry for each SKU whose card changed. They are in the outbox, too, so that they are
    /// delivered if this process dies; delivered at once, they are to be marked.
    pub outbox: Vec<OutboxEntry>,
}

/// What the gate asks the ledger's readers before it refuses.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The id the caller chose, if it did.
    pub order_id: Option<OrderId>,
    /// The key the caller gave, if it did.
    pub key: Option<IdempotencyKey>,
    /// SKUs to look at.
    pub skus: Vec<SkuId>,
}

/// The answer to a [`Probe`].
#[derive(Debug, Clone)]
pub struct Probed {
    /// The id or the key is taken (by an order or a tombstone): the ledger must decide.
    pub known: bool,
    /// A copy of each SKU asked for, in order; `None` when there is no such SKU.
    pub copies: Vec<Option<Copy>>,
}

/// A page to read. `cursor` is what the page before gave as `next`.
#[derive(Debug, Clone, Default)]
pub struct PageRequest {
    /// Where to go on.
    pub cursor: Option<String>,
    /// Most items, `1..=`[`MAX_PAGE`].
    pub limit: usize,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// Which orders to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct OrderFilter {
    /// In this status.
    pub status: Option<Status>,
    /// Of this buyer.
    pub buyer_id: Option<tidegate_core::BuyerId>,
    /// With this SKU.
    pub sku: Option<SkuId>,
}

/// Which payments to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct PaymentFilter {
    /// With this outcome.
    pub outcome: Option<PaymentOutcome>,
    /// With this id.
    pub payment_id: Option<PaymentId>,
    /// That name this order.
    pub order_id: Option<OrderId>,
}

/// Which refunds to list, newest first.
#[derive(Debug, Clone, Default)]
pub struct RefundFilter {
    /// In this status.
    pub status: Option<RefundStatus>,
    /// Of payments that name this order.
    pub order_id: Option<OrderId>,
}

/// An event as it is read back.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// Its place in the log, dense from 1.
    pub cursor: i64,
    /// The event.
    pub event: Event,
    /// The order as the event's command left it (its unchanging parts joined in), if there is one.
    pub order: Option<Order>,
}

/// A store of orders, stock, payments and events. Every method may be called at any time from any task.
pub trait Ledger: Send + Sync {
    /// What it can promise.
    fn capabilities(&self) -> Capabilities;

    /// Which one it is; the same on every node, and after every reopening.
    fn id(&self) -> LedgerId;

    /// Its clock.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Decides and writes up to [`MAX_BATCH_COMMANDS`] commands with up to [`MAX_BATCH_LINES`] lines in one
    /// transaction and returns once that is durable.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unavailable`]: nothing was written. [`crate::ErrorKind::Command`]: nothing was written,
    /// and smaller batches may work.
    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<Commit>>;

    /// Answers up to [`MAX_PROBES`] probes from one read that begins after this call.
    fn probe(&self, probes: Vec<Probe>) -> BoxFuture<'_, Result<Vec<Probed>>>;

    /// Pending orders by deadline, earliest first, after `after`, due before `before` if that is given; at most `limit`.
    /// Orders on the parked list are left out.
    fn deadlines(
        &self,
        before: Option<Millis>,
        after: Option<(Millis, OrderNo)>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OrderNo, Millis)>>>;

    /// Gate copies of all SKUs, by id, after `after`; at most `limit`.
    fn copies(&self, after: Option<SkuId>, limit: usize) -> BoxFuture<'_, Result<Vec<(SkuId, Copy)>>>;

    /// An order with its payments.
    fn order(&self, id: OrderId) -> BoxFuture<'_, Result<Option<Order>>>;

    /// Orders, newest first.
    fn orders(&self, filter: OrderFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Order>>>;

    /// An order's events, oldest first; `None` when there is no such order.
    fn order_events(&self, id: OrderId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<EventRecord>>>>;

    /// Events with a cursor above `after`, oldest first, at most `limit` (`1..=`[`MAX_PAGE`]).
    fn events(&self, after: i64, limit: usize) -> BoxFuture<'_, Result<Vec<EventRecord>>>;

    /// The cursor of the newest event; 0 when there is none.
    fn newest_cursor(&self) -> BoxFuture<'_, Result<i64>>;

    /// Payments, newest first.
    fn payments(&self, filter: PaymentFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Payment>>>;

    /// Refunds, newest first.
    fn refunds(&self, filter: RefundFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Refund>>>;

    /// Pending orders on the parked list, newest first.
    fn parked(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Parked>>>;

    /// A SKU.
    fn sku(&self, id: SkuId) -> BoxFuture<'_, Result<Option<Sku>>>;

    /// SKUs, newest first.
    fn skus(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Sku>>>;

    /// A SKU's stock ledger, oldest first; `None` when there is no such SKU.
    fn stock_changes(&self, id: SkuId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<StockChange>>>>;

    /// Payments that have matched no order since before `before` and were not flagged yet; at most `limit`.
    fn stale_unmatched(&self, before: Millis, limit: usize) -> BoxFuture<'_, Result<Vec<PaymentId>>>;

    /// Deletes tombstones made before `tombstones` and request keys bound before `keys`, a bounded number a call.
    /// Returns whether more is left.
    fn prune(&self, tombstones: Millis, keys: Millis) -> BoxFuture<'_, Result<bool>>;

    /// Moves a manual clock.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Configuration`] when the ledger has none.
    fn advance(&self, ms: i64) -> BoxFuture<'_, Result<Millis>>;

    /// Streams every row through `tidegate_core::audit::Auditor` in one consistent read.
    fn audit(&self, lag_bound_ms: i64) -> BoxFuture<'_, Result<tidegate_core::audit::Report>>;

    /// What its commits, and its callers' own transactions, made old in caches.
    fn outbox(&self) -> &dyn Outbox;

    /// Where holders of locks record their fences.
    fn fences(&self) -> &dyn Fences;

    /// Whether it can write now; used by readiness checks while commits fail.
    fn probe_write(&self) -> BoxFuture<'_, Result<()>>;

    /// Finishes what was begun and closes. Calls after this fail with [`crate::ErrorKind::Unavailable`].
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}
