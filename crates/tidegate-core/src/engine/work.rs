//! The state a batch changes, and the bookkeeping every rule shares: stock rows, buyer counters, refunds, events.
//!
//! A rule first asks everything that could refuse (`can_move`, the slots), then changes; [`Work::seal`] ends the command:
//! it numbers its events (`order.*` before `payment.*`) and counts the versions of the orders it touched.

use super::rows::{Changes, KeyScope, RequestRecord, Rows, Slot, Source};
use crate::command::{Failure, Rejection};
use crate::{
    Counts, Event, EventKind, IdempotencyKey, Millis, Order, OrderId, Payment, PaymentId, PaymentOutcome, Refund,
    RefundReason, RefundStatus, Refusal, RefusalCode, Set, Settings, Sku, SkuId, StockChange, StockKind,
};

/// How long keys of operations other than placing are bound, seconds.
const REQUEST_KEY_SECONDS: i64 = 7 * 86_400;

/// An event of the present command, not numbered yet.
struct Draft {
    order: Option<OrderId>,
    kind: EventKind,
    payment: Option<Payment>,
    refund: Option<Refund>,
    reason: Option<String>,
}

pub(super) struct Work<'a> {
    pub(super) rows: &'a mut Rows,
    pub(super) now: Millis,
    pub(super) settings: &'a Settings,
    pub(super) source: &'a mut dyn Source,
    pub(super) changes: Changes,
    new_orders: Set<OrderId>,
    drafts: Vec<Draft>,
    touched: Vec<OrderId>,
}

/// What moves for each unit of an order's lines.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) kind: StockKind,
    pub(super) on_hand: i64,
    pub(super) held: i64,
    pub(super) sold: i64,
}

impl Move {
    pub(super) const HOLD: Move = Move { kind: StockKind::Held, on_hand: 0, held: 1, sold: 0 };
    pub(super) const RELEASE: Move = Move { kind: StockKind::Released, on_hand: 0, held: -1, sold: 0 };
    pub(super) const SELL_HELD: Move = Move { kind: StockKind::Sold, on_hand: 0, held: -1, sold: 1 };
    pub(super) const SELL: Move = Move { kind: StockKind::Sold, on_hand: 0, held: 0, sold: 1 };
    pub(super) const RETURN: Move = Move { kind: StockKind::Returned, on_hand: 0, held: 0, sold: -1 };
    pub(super) const WRITE_OFF: Move = Move { kind: StockKind::WrittenOff, on_hand: -1, held: 0, sold: -1 };
    pub(super) const FULFIL: Move = Move { kind: StockKind::Fulfilled, on_hand: -1, held: 0, sold: -1 };

    fn times(self, quantity: i64) -> Counts {
        Counts { on_hand: self.on_hand * quantity, held: self.held * quantity, sold: self.sold * quantity }
    }
}

impl<'a> Work<'a> {
    pub(super) fn new(rows: &'a mut Rows, now: Millis, settings: &'a Settings, source: &'a mut dyn Source) -> Self {
        Self {
            rows,
            now,
            settings,
            source,
            changes: Changes::default(),
            new_orders: Set::default(),
            drafts: Vec::new(),
            touched: Vec::new(),
        }
    }

    pub(super) fn into_changes(self) -> Changes {
        self.changes
    }

    // --- rows ---

    pub(super) fn slot(&self, id: &OrderId) -> Option<&Slot> {
        self.rows.ids.get(id)
    }

    pub(super) fn order(&self, id: &OrderId) -> Option<&Order> {
        self.slot(id)?.order.as_ref()
    }

    /// The order a refusal must exist for.
    pub(super) fn known_order(&self, id: &OrderId) -> Result<&Order, Rejection> {
        self.order(id).ok_or_else(|| unknown_order(id).into())
    }

    /// The order, to change it: its version is counted when the command is sealed.
    pub(super) fn touch(&mut self, id: &OrderId) -> &mut Order {
        if !self.touched.contains(id) {
            self.touched.push(id.clone());
        }
        self.rows.ids.get_mut(id).and_then(|slot| slot.order.as_mut()).expect("the caller has found this order")
    }

    pub(super) fn sku(&self, id: &SkuId) -> Option<&Sku> {
        self.rows.skus.get(id)?.as_ref()
    }

    pub(super) fn insert_order(&mut self, order: Order) {
        let id = order.id.clone();
        self.rows.numbers.insert(order.no, Some(id.clone()));
        self.rows.ids.entry(id.clone()).or_default().order = Some(order);
        self.changes.new_orders.push(id.clone());
        self.new_orders.insert(id.clone());
        self.touched.push(id);
    }

    // --- stock ---

    /// Whether every line of `order` can make this move; a `Failure` when the rows contradict the order.
    pub(super) fn can_move(&self, id: &OrderId, m: Move) -> Result<(), Rejection> {
        let order = self.known_order(id)?;
        for line in &order.lines {
            let moved = self.sku(&line.sku).and_then(|sku| sku.counts.checked_add(m.times(line.quantity)));
            if moved.is_none() {
                let detail = format!(
                    "order {id} has {} units of SKU {}, which its counts {:?} do not allow to move",
                    line.quantity,
                    line.sku,
                    self.sku(&line.sku).map(|sku| sku.counts)
                );
                return Err(Failure { detail }.into());
            }
        }
        Ok(())
    }

    /// Moves every line of the order; [`Work::can_move`] has said that it can.
    pub(super) fn move_stock(&mut self, id: &OrderId, m: Move) {
        let (no, lines) = {
            let order = self.order(id).expect("the caller has found this order");
            (order.no, order.lines.iter().map(|line| (line.sku.clone(), line.quantity)).collect::<Vec<_>>())
        };
        for (sku, quantity) in lines {
            self.change_stock(&sku, m.kind, m.times(quantity), Some((no, id.clone())), None);
        }
    }

    /// Writes one stock-ledger row and the counts it leads to; the caller has checked that they are sound.
    pub(super) fn change_stock(
        &mut self,
        id: &SkuId,
        kind: StockKind,
        delta: Counts,
        order: Option<(crate::OrderNo, OrderId)>,
        reason: Option<String>,
    ) {
        let sku = self.rows.skus.get_mut(id).and_then(Option::as_mut).expect("the caller has found this SKU");
        sku.counts = sku.counts.checked_add(delta).expect("the caller has checked this move");
        sku.stock_version += 1;
        let (stock_version, after) = (sku.stock_version, sku.counts);
        self.changes.stock.push(StockChange {
            sku: id.clone(),
            stock_version,
            at: self.now,
            kind,
            order,
            reason,
            delta,
            after,
        });
        self.changes.skus.insert(id.clone());
    }

    /// Counts the order's units for (`sign` 1) or no longer for (-1) its buyer, where the SKU counts buyers.
    pub(super) fn count_buyer(&mut self, id: &OrderId, sign: i64) {
        let (buyer, lines) = {
            let order = self.order(id).expect("the caller has found this order");
            let counted = order.lines.iter().filter(|line| self.rows.counts_buyers(&line.sku));
            (order.buyer_id.clone(), counted.map(|line| (line.sku.clone(), line.quantity)).collect::<Vec<_>>())
        };
        for (sku, quantity) in lines {
            let key = (sku, buyer.clone());
            *self.rows.buyers.entry(key.clone()).or_default() += sign * quantity;
            self.changes.buyers.insert(key);
        }
    }

    // --- money ---

    /// Makes `amount` of a payment due back, with its event.
    pub(super) fn owe(
        &mut self,
        payment: &PaymentId,
        order_id: &OrderId,
        amount: Option<i64>,
        reason: RefundReason,
    ) -> Refund {
        let id = self.source.refund_id();
        let has_order = self.order(order_id).is_some();
        if has_order {
            self.touch(order_id);
        }
        let now = self.now;
        let row = self.payment_mut(order_id, payment).expect("the caller has found this payment");
        let refund = Refund {
            id: id.clone(),
            payment_id: payment.clone(),
            order_id: order_id.clone(),
            amount,
            currency: row.currency,
            status: RefundStatus::Due,
            reason,
            due_at: now,
            settled_at: None,
        };
        row.refunds.push(refund.clone());
        let row = row.clone();
        self.rows.refunds.insert(id.clone(), Some((payment.clone(), order_id.clone())));
        self.changes.refunds.insert(id, payment.clone());
        self.changes.payments.insert(payment.clone(), order_id.clone());
        let event_order = has_order.then(|| order_id.clone());
        self.event(event_order, EventKind::PaymentRefundDue, Some(row), Some(refund.clone()), None);
        refund
    }

    /// Makes due back whatever still counts towards an order that is being cancelled.
    pub(super) fn owe_all(&mut self, id: &OrderId) {
        let owed: Vec<_> = {
            let order = self.order(id).expect("the caller has found this order");
            let owed = order.payments.iter().filter(|p| p.is_owed_on_cancel());
            owed.map(|p| (p.id.clone(), p.amount.map(|_| p.kept()))).collect()
        };
        for (payment, amount) in owed {
            self.owe(&payment, id, amount, RefundReason::OrderCancelled);
        }
    }

    /// Money that names an id no order will ever have (or not with this money): due back.
    pub(super) fn owe_unmatched(&mut self, payment: &PaymentId, order_id: &OrderId, reason: RefundReason) -> Refund {
        let row = self.payment_mut(order_id, payment).expect("the caller has found this payment");
        row.outcome = PaymentOutcome::RefundDue;
        let amount = row.amount;
        self.owe(payment, order_id, amount, reason)
    }

    pub(super) fn payment(&self, order_id: &OrderId, payment: &PaymentId) -> Option<&Payment> {
        let slot = self.slot(order_id)?;
        let of_order = slot.order.iter().flat_map(|order| &order.payments);
        of_order.chain(&slot.unmatched).find(|p| p.id == *payment)
    }

    pub(super) fn payment_mut(&mut self, order_id: &OrderId, payment: &PaymentId) -> Option<&mut Payment> {
        let slot = self.rows.ids.get_mut(order_id)?;
        let of_order = slot.order.iter_mut().flat_map(|order| &mut order.payments);
        of_order.chain(&mut slot.unmatched).find(|p| p.id == *payment)
    }

    // --- request keys ---

    /// What an operation's key is bound to: `Ok(true)` for this command (a repeat), `Ok(false)` for nothing.
    pub(super) fn repeats(&self, scope: KeyScope, key: &IdempotencyKey, command: &str) -> Result<bool, Rejection> {
        let Some(Some(record)) = self.rows.request_keys.get(&(scope, key.clone())) else {
            return Ok(false);
        };
        if record.at < self.now.plus_seconds(-REQUEST_KEY_SECONDS) {
            return Ok(false);
        }
        if record.command == command {
            return Ok(true);
        }
        Err(mismatch("this Idempotency-Key belongs to another request; use a new key").into())
    }

    pub(super) fn bind(&mut self, scope: KeyScope, key: &IdempotencyKey, command: String) {
        let at = self.now;
        self.rows.request_keys.insert((scope, key.clone()), Some(RequestRecord { command, at }));
        self.changes.request_keys.push((scope, key.clone()));
    }

    // --- events ---

    /// An event of an order.
    pub(super) fn order_event(&mut self, id: &OrderId, kind: EventKind) {
        self.event(Some(id.clone()), kind, None, None, None);
    }

    pub(super) fn event(
        &mut self,
        order: Option<OrderId>,
        kind: EventKind,
        payment: Option<Payment>,
        refund: Option<Refund>,
        reason: Option<String>,
    ) {
        self.drafts.push(Draft { order, kind, payment, refund, reason });
    }

    /// Ends a command: counts versions, numbers events.
    pub(super) fn seal(&mut self) {
        for id in std::mem::take(&mut self.touched) {
            if self.new_orders.contains(&id) {
                continue;
            }
            let order = self.rows.ids.get_mut(&id).and_then(|slot| slot.order.as_mut()).expect("touched orders exist");
            order.state.version += 1;
            self.changes.updated_orders.insert(id);
        }
        let mut drafts = std::mem::take(&mut self.drafts);
        drafts.sort_by_key(|draft| !is_order_event(draft.kind));
        for draft in drafts {
            let mut event = Event {
                order: None,
                seq: 0,
                kind: draft.kind,
                at: self.now,
                state: None,
                payments: Vec::new(),
                payment: draft.payment,
                refund: draft.refund,
                reason: draft.reason,
            };
            if let Some(id) = draft.order {
                let order = self
                    .rows
                    .ids
                    .get_mut(&id)
                    .and_then(|slot| slot.order.as_mut())
                    .expect("events name orders that exist");
                order.last_seq += 1;
                event.seq = order.last_seq;
                event.state = Some(order.state.clone());
                event.payments = order.payments.clone();
                event.order = Some((order.no, id.clone()));
                if !self.new_orders.contains(&id) {
                    self.changes.updated_orders.insert(id);
                }
            }
            self.changes.events.push(event);
        }
    }
}

fn is_order_event(kind: EventKind) -> bool {
    kind.name().starts_with("order.")
}

pub(super) fn unknown_order(id: &OrderId) -> Refusal {
    Refusal::new(RefusalCode::UnknownOrder, "no such order; check the id, or place the order first").order(id)
}

pub(super) fn mismatch(detail: &str) -> Refusal {
    Refusal::new(RefusalCode::IdempotencyMismatch, detail)
}

pub(super) fn illegal(order: &Order, what: &str) -> Refusal {
    let status = match order.state.status {
        crate::Status::Pending => "pending",
        crate::Status::Paid => "paid",
        crate::Status::Cancelled => "cancelled",
        crate::Status::Fulfilled => "fulfilled",
    };
    Refusal::new(
        RefusalCode::IllegalTransition,
        format!("the order is {status} and cannot be {what}; GET it to see where it stands"),
    )
    .order(&order.id)
}
