//! A ledger that fails on demand: for tests of what is built on ledgers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_backend::{
    BoxFuture, Capabilities, Clock, Commit, Error, ErrorKind, EventRecord, Ledger, LedgerId, OrderFilter, Outbox, Page,
    PageRequest, PaymentFilter, Probe, Probed, RefundFilter, Result,
};
use tidegate_core::audit::Report;
use tidegate_core::command::Parked;
use tidegate_core::gate::Copy;
use tidegate_core::{Command, Millis, Order, OrderId, OrderNo, Payment, PaymentId, Refund, Sku, SkuId, StockChange};
use tokio::sync::watch;

/// Wraps a ledger.
pub struct Faulty {
    inner: Arc<dyn Ledger>,
    fail_before: AtomicI64,
    fail_after: AtomicI64,
    poisoned: Mutex<BTreeSet<OrderNo>>,
    held: watch::Sender<bool>,
    /// Stands for the ledger of one node of several.
    one_of_several: bool,
}

impl Faulty {
    /// A ledger that works until it is told otherwise.
    #[must_use]
    pub fn new(inner: Arc<dyn Ledger>) -> Self {
        Self {
            inner,
            fail_before: AtomicI64::new(0),
            fail_after: AtomicI64::new(0),
            poisoned: Mutex::default(),
            held: watch::Sender::new(false),
            one_of_several: false,
        }
    }

    /// One node's sight of a ledger that other nodes write, too: none of them is the sole writer, and closing it leaves it
    /// open for the others.
    #[must_use]
    pub fn one_of_several(inner: Arc<dyn Ledger>) -> Self {
        Self { one_of_several: true, ..Self::new(inner) }
    }

    /// Commits wait (`true`) until they are let go (`false`).
    pub fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// The next `n` commits fail and write nothing.
    pub fn fail_before(&self, n: i64) {
        self.fail_before.store(n, Ordering::SeqCst);
    }

    /// The next `n` commits are written and then reported as failed: the reply was cut off.
    pub fn fail_after(&self, n: i64) {
        self.fail_after.store(n, Ordering::SeqCst);
    }

    /// Batches that expire this order cannot be written (until it is healed).
    pub fn poison(&self, order: OrderNo) {
        self.poisoned.lock().unwrap_or_else(PoisonError::into_inner).insert(order);
    }

    /// Every order can be expired again.
    pub fn heal(&self) {
        self.poisoned.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn is_poisoned(&self, commands: &[Command]) -> bool {
        let poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        commands.iter().any(|command| matches!(command, Command::Expire(no) if poisoned.contains(no)))
    }
}

fn takes_one(left: &AtomicI64) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n > 0).then_some(n - 1)).is_ok()
}

fn outage() -> Error {
    Error::new(ErrorKind::Unavailable, "the test has cut the ledger off")
}

impl Ledger for Faulty {
    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        Capabilities { sole_writer: inner.sole_writer && !self.one_of_several, ..inner }
    }

    fn id(&self) -> LedgerId {
        self.inner.id()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<Commit>> {
        Box::pin(async move {
            // The sender lives as long as `self`, which this future borrows.
            let _ = self.held.subscribe().wait_for(|held| !held).await;
            if takes_one(&self.fail_before) {
                return Err(outage());
            }
            if self.is_poisoned(&commands) {
                return Err(Error::new(ErrorKind::Command, "the test has poisoned an order of this batch"));
            }
            let committed = self.inner.commit(commands).await;
            if takes_one(&self.fail_after) { committed.and(Err(outage())) } else { committed }
        })
    }

    fn probe(&self, probes: Vec<Probe>) -> BoxFuture<'_, Result<Vec<Probed>>> {
        self.inner.probe(probes)
    }

    fn deadlines(
        &self,
        before: Option<Millis>,
        after: Option<(Millis, OrderNo)>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OrderNo, Millis)>>> {
        self.inner.deadlines(before, after, limit)
    }

    fn copies(&self, after: Option<SkuId>, limit: usize) -> BoxFuture<'_, Result<Vec<(SkuId, Copy)>>> {
        self.inner.copies(after, limit)
    }

    fn order(&self, id: OrderId) -> BoxFuture<'_, Result<Option<Order>>> {
        self.inner.order(id)
    }

    fn orders(&self, filter: OrderFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Order>>> {
        self.inner.orders(filter, page)
    }

    fn order_events(&self, id: OrderId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<EventRecord>>>> {
        self.inner.order_events(id, page)
    }

    fn events(&self, after: i64, limit: usize) -> BoxFuture<'_, Result<Vec<EventRecord>>> {
        self.inner.events(after, limit)
    }

    fn newest_cursor(&self) -> BoxFuture<'_, Result<i64>> {
        self.inner.newest_cursor()
    }

    fn payments(&self, filter: PaymentFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Payment>>> {
        self.inner.payments(filter, page)
    }

    fn refunds(&self, filter: RefundFilter, page: PageRequest) -> BoxFuture<'_, Result<Page<Refund>>> {
        self.inner.refunds(filter, page)
    }

    fn parked(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Parked>>> {
        self.inner.parked(page)
    }

    fn sku(&self, id: SkuId) -> BoxFuture<'_, Result<Option<Sku>>> {
        self.inner.sku(id)
    }

    fn skus(&self, page: PageRequest) -> BoxFuture<'_, Result<Page<Sku>>> {
        self.inner.skus(page)
    }

    fn stock_changes(&self, id: SkuId, page: PageRequest) -> BoxFuture<'_, Result<Option<Page<StockChange>>>> {
        self.inner.stock_changes(id, page)
    }

    fn stale_unmatched(&self, before: Millis, limit: usize) -> BoxFuture<'_, Result<Vec<PaymentId>>> {
        self.inner.stale_unmatched(before, limit)
    }

    fn prune(&self, tombstones: Millis, keys: Millis) -> BoxFuture<'_, Result<bool>> {
        self.inner.prune(tombstones, keys)
    }

    fn advance(&self, ms: i64) -> BoxFuture<'_, Result<Millis>> {
        self.inner.advance(ms)
    }

    fn audit(&self, lag_bound_ms: i64) -> BoxFuture<'_, Result<Report>> {
        self.inner.audit(lag_bound_ms)
    }

    fn outbox(&self) -> &dyn Outbox {
        self.inner.outbox()
    }

    fn fences(&self) -> &dyn tidegate_backend::Fences {
        self.inner.fences()
    }

    fn probe_write(&self) -> BoxFuture<'_, Result<()>> {
        if self.fail_before.load(Ordering::SeqCst) > 0 {
            Box::pin(async { Err(outage()) })
        } else {
            self.inner.probe_write()
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        if self.one_of_several { Box::pin(async { Ok(()) }) } else { self.inner.close() }
    }
}
