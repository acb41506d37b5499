//! The auditor: the invariants of orders.md section 8 over plain rows. A ledger streams its rows in; demo, replay,
//! reconcile and the tests read the same report.
//!
//! I7 needs to know what callers were told, I9 and I10 what the gate did: they are for those who know.

use std::collections::BTreeMap;

use crate::event::EventKind;
use crate::{
    BuyerId, CancelReason, Counts, Map, Millis, Order, OrderId, Payment, PaymentOutcome, Sku, SkuId, Status,
    StockChange, StockKind,
};

/// An event as the auditor reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// Its place in the global log.
    pub cursor: i64,
    /// The order, if there is one.
    pub order_id: Option<OrderId>,
    /// Position in that order's history.
    pub seq: i64,
    /// What happened.
    pub kind: EventKind,
    /// When.
    pub at: Millis,
}

/// What a check of the invariants found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Rows that were looked at.
    pub checked: u64,
    /// The invariants that were checked, with whether each held. What could not be checked is absent.
    pub invariants: BTreeMap<&'static str, bool>,
    /// The first findings, at most [`MAX_FINDINGS`] in all.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether every invariant that was checked held.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.invariants.values().all(|held| *held)
    }
}

/// Most findings a report lists.
pub const MAX_FINDINGS: usize = 100;

/// One broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `I1`..`I9`.
    pub invariant: &'static str,
    /// What contradicts what.
    pub detail: String,
}

/// Where an order's events have led it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Nothing,
    Pending,
    Paid,
    Expired,
    Closed,
    Cancelled,
    Revived,
    Fulfilled,
}

impl Path {
    /// The state after an event, if section 3 knows that step.
    fn step(self, kind: EventKind) -> Option<Path> {
        use EventKind as E;
        Some(match (self, kind) {
            (Path::Nothing, E::OrderPlaced) | (Path::Pending, E::OrderExtended | E::OrderParked) => Path::Pending,
            (Path::Pending | Path::Revived, E::OrderPaid) => Path::Paid,
            (Path::Pending, E::OrderExpired) => Path::Expired,
            (Path::Expired, E::OrderClosed) => Path::Closed,
            (Path::Pending | Path::Paid, E::OrderCancelled) => Path::Cancelled,
            (Path::Expired, E::OrderRevived) => Path::Revived,
            (Path::Paid, E::OrderFulfilled) => Path::Fulfilled,
            (Path::Nothing, _) => return None,
            (here, E::PaymentPartial | E::PaymentRefundDue | E::PaymentUnmatched | E::RefundSettled) => here,
            _ => return None,
        })
    }

    fn matches(self, order: &Order) -> bool {
        let reason = order.state.cancel_reason;
        match (self, order.state.status) {
            (Path::Pending, Status::Pending) | (Path::Paid, Status::Paid) | (Path::Fulfilled, Status::Fulfilled) => {
                true
            }
            (Path::Expired, Status::Cancelled) => reason == Some(CancelReason::PaymentTimeout) && !order.closed,
            (Path::Closed, Status::Cancelled) => reason == Some(CancelReason::PaymentTimeout) && order.closed,
            (Path::Cancelled, Status::Cancelled) => reason != Some(CancelReason::PaymentTimeout),
            _ => false,
        }
    }
}

#[derive(Debug)]
struct SkuSums {
    sku: Sku,
    /// Replayed from the stock ledger.
    replayed: Counts,
    stock_version: i64,
    /// Recomputed from the orders.
    held: i64,
    sold: i64,
}

#[derive(Debug, Default)]
struct Taken {
    units: i64,
    /// When the newest of these units was accepted: placed, or brought back.
    newest: Millis,
}

/// Collects rows, then judges. Feed SKUs first, then stock changes and events each in the order of the log, then
/// buyer counters, orders, and payments that name no order.
#[derive(Debug, Default)]
pub struct Auditor {
    checked: u64,
    broken: BTreeMap<&'static str, bool>,
    findings: Vec<Finding>,
    skus: Map<SkuId, SkuSums>,
    /// Units an order has taken of a SKU and not given back.
    lines: Map<(OrderId, SkuId), i64>,
    cursor: i64,
    paths: Map<OrderId, (i64, Path)>,
    /// When an order was last brought back (few are).
    revived: Map<OrderId, Millis>,
    counters: Map<SkuId, Map<BuyerId, i64>>,
    taken: Map<SkuId, Map<BuyerId, Taken>>,
    oldest_pending: Option<(Millis, OrderId)>,
}

impl Auditor {
    /// An auditor that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn broke(&mut self, invariant: &'static str, detail: impl FnOnce() -> String) {
        self.broken.insert(invariant, true);
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(Finding { invariant, detail: detail() });
        }
    }

    /// A SKU with its counts.
    pub fn sku(&mut self, sku: &Sku) {
        self.checked += 1;
        if Counts::default().checked_add(sku.counts).is_none() {
            self.broke("I1", || format!("SKU {}: counts {:?} do not add up", sku.id, sku.counts));
        }
        let sums = SkuSums { sku: sku.clone(), replayed: Counts::default(), stock_version: 0, held: 0, sold: 0 };
        self.skus.insert(sku.id.clone(), sums);
    }

    /// A stock-ledger row; for each SKU in the order of `stock_version`.
    pub fn stock_change(&mut self, change: &StockChange) {
        self.checked += 1;
        let Some(sums) = self.skus.get_mut(&change.sku) else {
            return self.broke("I3", || format!("the stock ledger names SKU {}, which does not exist", change.sku));
        };
        let next = sums.replayed.checked_add(change.delta);
        let sound = next == Some(change.after) && change.stock_version == sums.stock_version + 1;
        sums.replayed = change.after;
        sums.stock_version = change.stock_version;
        if !sound {
            self.broke("I3", || {
                format!(
                    "SKU {}: stock ledger row {} does not follow from the one before",
                    change.sku, change.stock_version
                )
            });
        }
        if let Some((_, order)) = &change.order {
            self.line_moved(change, order);
        }
    }

    fn line_moved(&mut self, change: &StockChange, order: &OrderId) {
        let d = change.delta;
        let (shape_fits, taken) = match change.kind {
            StockKind::Held => (d.held > 0 && d.on_hand == 0 && d.sold == 0, d.held),
            StockKind::Released => (d.held < 0 && d.on_hand == 0 && d.sold == 0, d.held),
            StockKind::Sold => (d.sold > 0 && d.on_hand == 0 && (d.held == 0 || d.held == -d.sold), d.sold + d.held),
            StockKind::Returned => (d.sold < 0 && d.on_hand == 0 && d.held == 0, d.sold),
            StockKind::WrittenOff | StockKind::Fulfilled => (d.sold < 0 && d.on_hand == d.sold && d.held == 0, d.sold),
            StockKind::Created | StockKind::Adjusted => (false, 0),
        };
        let units = self.lines.entry((order.clone(), change.sku.clone())).or_default();
        let before = *units;
        *units += taken;
        // Taken once, given back whole: the balance is 0 or the line's quantity.
        let once = if taken > 0 { before == 0 } else { *units == 0 || taken == 0 };
        if !shape_fits || !once {
            self.broke("I3", || {
                format!("order {order}, SKU {}: {:?} of {:?} after {before} units taken", change.sku, change.kind, d)
            });
        }
    }

    /// An event, in the order of cursors.
    pub fn event(&mut self, event: &EventRow) {
        self.checked += 1;
        if event.cursor != self.cursor + 1 {
            let before = self.cursor;
            self.broke("I4", || format!("event cursor {} follows {before}", event.cursor));
        }
        self.cursor = event.cursor;
        let Some(id) = &event.order_id else { return };
        let (seq, path) = self.paths.get(id).copied().unwrap_or((0, Path::Nothing));
        let next = path.step(event.kind);
        if event.seq != seq + 1 || next.is_none() {
            self.broke("I4", || {
                format!("order {id}: event {} {} after seq {seq}, {path:?}", event.seq, event.kind.name())
            });
        }
        self.paths.insert(id.clone(), (event.seq, next.unwrap_or(path)));
        if event.kind == EventKind::OrderRevived {
            self.revived.insert(id.clone(), event.at);
        }
    }

    /// A buyer counter.
    pub fn buyer(&mut self, sku: &SkuId, buyer: &BuyerId, units: i64) {
        self.checked += 1;
        self.counters.entry(sku.clone()).or_default().insert(buyer.clone(), units);
    }

    /// An order with its payments.
    pub fn order(&mut self, order: &Order) {
        self.checked += 1;
        self.order_stock(order);
        self.order_history(order);
        self.order_money(order);
    }

    fn order_stock(&mut self, order: &Order) {
        let status = order.state.status;
        for line in &order.lines {
            let expected = if matches!(status, Status::Pending | Status::Paid) { line.quantity } else { 0 };
            let balance = self.lines.remove(&(order.id.clone(), line.sku.clone())).unwrap_or(0);
            if balance != expected {
                self.broke("I3", || {
                    format!(
                        "order {} ({status:?}), SKU {}: {balance} units taken, {expected} expected",
                        order.id, line.sku
                    )
                });
            }
            let Some(sums) = self.skus.get_mut(&line.sku) else {
                self.broke("I2", || format!("order {} names SKU {}, which does not exist", order.id, line.sku));
                continue;
            };
            match status {
                Status::Pending => sums.held += line.quantity,
                Status::Paid => sums.sold += line.quantity,
                Status::Cancelled | Status::Fulfilled => {}
            }
            if sums.sku.max_per_buyer.is_some() && order.counts_for_buyer() {
                let taken = self.taken.entry(line.sku.clone()).or_default().entry(order.buyer_id.clone()).or_default();
                taken.units += line.quantity;
                let accepted = self.revived.get(&order.id).copied().unwrap_or(order.placed_at);
                taken.newest = taken.newest.max(accepted);
            }
        }
    }

    fn order_history(&mut self, order: &Order) {
        let (seq, path) = self.paths.remove(&order.id).unwrap_or((0, Path::Nothing));
        if seq != order.last_seq || !path.matches(order) {
            self.broke("I4", || {
                format!(
                    "order {} is {:?} (seq {}), its events lead to {path:?} (seq {seq})",
                    order.id, order.state, order.last_seq
                )
            });
        }
        let state = &order.state;
        if state.status == Status::Pending && self.oldest_pending.as_ref().is_none_or(|(at, _)| state.release_at < *at)
        {
            self.oldest_pending = Some((state.release_at, order.id.clone()));
        }
        let early = state.cancel_reason == Some(CancelReason::PaymentTimeout)
            && state.cancelled_at.is_none_or(|at| at < state.release_at);
        if early {
            self.broke("I5", || format!("order {} was cancelled by the deadline before its release_at", order.id));
        }
    }

    fn order_money(&mut self, order: &Order) {
        order.payments.iter().for_each(|payment| self.payment(payment));
        if order.payments.iter().any(|payment| payment.outcome == PaymentOutcome::Unmatched) {
            self.broke("I6", || format!("order {} exists, yet a payment that names it is unmatched", order.id));
        }
        let sum =
            order.lines.iter().map(|line| line.unit_price.map_or(0, |price| price.amount) * line.quantity).sum::<i64>();
        let kept = order.kept();
        let Some(total) = order.total else { return };
        let fits = match order.state.status {
            Status::Pending => kept < total.amount,
            Status::Paid | Status::Fulfilled => kept == total.amount,
            Status::Cancelled => kept == 0,
        };
        if !fits || sum != total.amount {
            self.broke("I6", || {
                format!(
                    "order {} is {:?} with total {}, lines {sum}, money kept {kept}",
                    order.id, order.state.status, total.amount
                )
            });
        }
    }

    fn payment(&mut self, payment: &Payment) {
        let refunded = payment.refunded();
        let due_whole = matches!(payment.outcome, PaymentOutcome::Surplus | PaymentOutcome::RefundDue);
        let sound = match payment.amount {
            None => payment.refunds.len() <= 1,
            Some(amount) => {
                (0..=amount).contains(&refunded)
                    && (!due_whole || refunded == amount)
                    && (payment.outcome != PaymentOutcome::Unmatched || refunded == 0)
            }
        };
        if !sound || payment.outcome == PaymentOutcome::Duplicate {
            self.broke("I6", || {
                format!(
                    "payment {}: {:?}, amount {:?}, due or given back {refunded}",
                    payment.id, payment.outcome, payment.amount
                )
            });
        }
    }

    /// A payment that names no order.
    pub fn unmatched(&mut self, payment: &Payment) {
        self.checked += 1;
        self.payment(payment);
        if payment.counted() {
            self.broke("I6", || format!("payment {} counts towards an order that does not exist", payment.id));
        }
    }

    /// The verdict at `now`; an order still pending after `release_at + lag_bound_ms` breaks I5.
    #[must_use]
    pub fn finish(mut self, now: Millis, lag_bound_ms: i64) -> Report {
        for (id, sums) in std::mem::take(&mut self.skus) {
            if (sums.held, sums.sold) != (sums.sku.counts.held, sums.sku.counts.sold) {
                self.broke("I2", || {
                    format!(
                        "SKU {id}: counts {:?}, its orders hold {} and have bought {}",
                        sums.sku.counts, sums.held, sums.sold
                    )
                });
            }
            if sums.replayed != sums.sku.counts || sums.stock_version != sums.sku.stock_version {
                self.broke("I3", || {
                    format!(
                        "SKU {id}: the stock ledger ends at {:?}, the counts are {:?}",
                        sums.replayed, sums.sku.counts
                    )
                });
            }
            self.buyers_of(&sums.sku);
        }
        if let Some((id, sku)) = self.lines.iter().find(|(_, units)| **units != 0).map(|(key, _)| key.clone()) {
            self.broke("I3", || {
                format!("the stock ledger moved SKU {sku} for order {id}, which does not exist or has no such line")
            });
        }
        if let Some(id) = self.paths.keys().next().cloned() {
            self.broke("I4", || format!("there are events of order {id}, which does not exist"));
        }
        if let Some((at, id)) = self.oldest_pending.take()
            && at.plus(lag_bound_ms) < now
        {
            self.broke("I5", || format!("order {id} is pending {} ms after its release_at", now.since(at)));
        }
        let checked_here = ["I1", "I2", "I3", "I4", "I5", "I6", "I8"];
        let invariants = checked_here.into_iter().map(|i| (i, !self.broken.contains_key(i))).collect();
        Report { checked: self.checked, invariants, findings: self.findings }
    }

    fn buyers_of(&mut self, sku: &Sku) {
        let Some(limit) = sku.max_per_buyer else { return };
        let mut counters = self.counters.remove(&sku.id).unwrap_or_default();
        for (buyer, taken) in self.taken.remove(&sku.id).unwrap_or_default() {
            let (units, counter) = (taken.units, counters.remove(&buyer).unwrap_or(0));
            if counter != units {
                self.broke("I8", || format!("SKU {}, buyer {buyer}: counter {counter}, orders {units}", sku.id));
            }
            // Orders older than the limit may exceed it; no order that came after may.
            if units > limit && sku.buyer_limit_since.is_none_or(|since| taken.newest > since) {
                self.broke("I8", || {
                    format!("SKU {}, buyer {buyer}: {units} units accepted, the limit is {limit}", sku.id)
                });
            }
        }
        if let Some((buyer, units)) = counters.into_iter().find(|(_, units)| *units != 0) {
            self.broke("I8", || format!("SKU {}, buyer {buyer}: counter {units}, no orders", sku.id));
        }
    }
}
