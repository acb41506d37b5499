//! The oracle: the engine over plain maps. It writes back only what [`Changes`] names, so a change that the engine
//! forgets to name is lost here too, and the auditor finds it.

use std::collections::BTreeMap;

use tidegate_core::audit::{Auditor, EventRow, Report};
use tidegate_core::command::Parked;
use tidegate_core::engine::{Changes, KeyScope, Keys, RequestRecord, Rows, Slot, Source, decide, missing};
use tidegate_core::{
    BuyerId, Command, Event, IdempotencyKey, Map, Millis, Order, OrderId, OrderNo, Payment, PaymentId, RefundId,
    Settings, Sku, SkuId, Status, StockChange, Verdict,
};

/// Numbers from a counter.
#[derive(Debug)]
pub struct Counter {
    orders: i64,
    refunds: i64,
    refund_prefix: &'static str,
}

impl Default for Counter {
    fn default() -> Self {
        Self { orders: 0, refunds: 0, refund_prefix: "r" }
    }
}

impl Source for Counter {
    fn order_no(&mut self) -> OrderNo {
        self.orders += 1;
        OrderNo(self.orders)
    }

    fn refund_id(&mut self) -> RefundId {
        self.refunds += 1;
        RefundId::parse(&format!("{}{}", self.refund_prefix, self.refunds)).expect("letters and digits")
    }
}

/// The payments that name an id, in the order in which they came.
fn payments_of<'a>(rows: &'a Rows, order: &OrderId) -> impl Iterator<Item = &'a Payment> {
    let slot = &rows.ids[order];
    slot.order.iter().flat_map(|order| &order.payments).chain(&slot.unmatched)
}

/// A ledger of maps.
#[derive(Debug, Default)]
pub struct Oracle {
    settings: Settings,
    source: Counter,
    ids: Map<OrderId, Slot>,
    numbers: BTreeMap<OrderNo, OrderId>,
    order_keys: Map<IdempotencyKey, OrderId>,
    request_keys: Map<(KeyScope, IdempotencyKey), RequestRecord>,
    payments: Map<PaymentId, OrderId>,
    refunds: Map<RefundId, (PaymentId, OrderId)>,
    skus: BTreeMap<SkuId, Sku>,
    buyers: Map<(SkuId, BuyerId), i64>,
    parked: Map<OrderNo, Parked>,
    /// Every event, in order; its cursor is its position from 1.
    pub events: Vec<Event>,
    /// Every stock-ledger row, in order.
    pub stock: Vec<StockChange>,
    /// The SKUs whose card the last batch changed, with its version now; seen from the rows, not from what the engine says.
    pub cards: BTreeMap<SkuId, i64>,
}

impl Oracle {
    /// An empty ledger with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// An empty ledger whose refunds are `<prefix>1`, `<prefix>2`, ..
    #[must_use]
    pub fn with_refunds_named(settings: Settings, refund_prefix: &'static str) -> Self {
        Self { settings, source: Counter { refund_prefix, ..Counter::default() }, ..Self::default() }
    }

    /// Decides and keeps a batch.
    pub fn commit(&mut self, commands: &[Command], now: Millis) -> Vec<Verdict> {
        let mut rows = Rows::default();
        for round in 0.. {
            let keys = missing(commands, &rows);
            if keys.is_empty() {
                break;
            }
            assert!(round < 8, "the engine asks for the same rows again and again: {keys:?}");
            self.load(keys, &mut rows);
        }
        let decided = decide(&mut rows, commands, now, &self.settings, &mut self.source);
        self.write(&rows, decided.changes);
        decided.verdicts
    }

    fn load(&mut self, keys: Keys, rows: &mut Rows) {
        for no in keys.numbers {
            rows.numbers.insert(no, self.numbers.get(&no).cloned());
        }
        for id in keys.ids {
            let slot = self.ids.get(&id).cloned().unwrap_or_default();
            rows.ids.insert(id, slot);
        }
        for key in keys.order_keys {
            let bound = self.order_keys.get(&key).cloned();
            rows.order_keys.insert(key, bound);
        }
        for key in keys.request_keys {
            let bound = self.request_keys.get(&key).cloned();
            rows.request_keys.insert(key, bound);
        }
        for id in keys.payments {
            let owner = self.payments.get(&id).cloned();
            rows.payments.insert(id, owner);
        }
        for id in keys.refunds {
            let owner = self.refunds.get(&id).cloned();
            rows.refunds.insert(id, owner);
        }
        for sku in keys.recounts {
            self.recount(&sku);
            rows.recounted.insert(sku);
        }
        for id in keys.skus {
            let sku = self.skus.get(&id).cloned();
            rows.skus.insert(id, sku);
        }
        for key in keys.buyers {
            let units = self.buyers.get(&key).copied().unwrap_or(0);
            rows.buyers.insert(key, units);
        }
        for no in keys.parked {
            let parked = self.parked.get(&no).cloned();
            rows.parked.insert(no, parked);
        }
    }

    fn recount(&mut self, sku: &SkuId) {
        self.buyers.retain(|(id, _), _| id != sku);
        for order in self.ids.values().filter_map(|slot| slot.order.as_ref()).filter(|order| order.counts_for_buyer()) {
            for line in order.lines.iter().filter(|line| line.sku == *sku) {
                *self.buyers.entry((sku.clone(), order.buyer_id.clone())).or_default() += line.quantity;
            }
        }
    }

    fn write(&mut self, rows: &Rows, changes: Changes) {
        self.cards.clear();
        let order_of = |id: &OrderId| rows.ids[id].order.clone().expect("a changed order is in the rows");
        for id in changes.new_orders {
            let order = order_of(&id);
            assert!(self.numbers.insert(order.no, id.clone()).is_none(), "order numbers are new");
            let slot = self.ids.entry(id).or_default();
            // Money that waited for the id now belongs to the order, whatever else the batch says of it.
            let waiting = std::mem::take(&mut slot.unmatched);
            slot.order = Some(Order { payments: waiting, ..order });
        }
        for id in changes.updated_orders {
            let payments = self.ids[&id].order.as_ref().expect("an updated order exists").payments.clone();
            self.ids.entry(id.clone()).or_default().order = Some(Order { payments, ..order_of(&id) });
        }
        for id in changes.tombstones {
            self.ids.entry(id.clone()).or_default().tombstone = rows.ids[&id].tombstone;
        }
        let mut changed: std::collections::BTreeSet<(OrderId, PaymentId)> =
            changes.payments.into_iter().map(|(p, o)| (o, p)).collect();
        for payment in changes.refunds.into_values() {
            changed.insert((
                rows.payments
                    .get(&payment)
                    .cloned()
                    .flatten()
                    .or_else(|| self.payments.get(&payment).cloned())
                    .expect("a refund's payment is known"),
                payment,
            ));
        }
        // Payments of one order in the order in which they came, whatever their ids.
        let mut changed: Vec<_> = changed.into_iter().collect();
        changed
            .sort_by_key(|(order, payment)| (order.clone(), payments_of(rows, order).position(|p| p.id == *payment)));
        for (order, payment) in changed {
            self.write_payment(rows, &order, &payment);
        }
        for sku in changes.skus {
            let row = rows.skus[&sku].clone().expect("a changed SKU is in the rows");
            let version = row.version;
            if self.skus.insert(sku.clone(), row).is_none_or(|old| old.version != version) {
                self.cards.insert(sku, version);
            }
        }
        for key in changes.buyers {
            self.buyers.insert(key.clone(), rows.buyers[&key]);
        }
        for (key, id) in changes.order_keys {
            assert!(self.order_keys.insert(key, id).is_none(), "an alias is bound once");
        }
        for key in changes.request_keys {
            let record = rows.request_keys[&key].clone().expect("a bound key is in the rows");
            self.request_keys.insert(key, record);
        }
        for no in changes.parked {
            match &rows.parked[&no] {
                Some(parked) => self.parked.insert(no, parked.clone()),
                None => self.parked.remove(&no),
            };
        }
        self.events.extend(changes.events);
        self.stock.extend(changes.stock);
    }

    fn write_payment(&mut self, rows: &Rows, order: &OrderId, payment: &PaymentId) {
        let row =
            payments_of(rows, order).find(|p| p.id == *payment).expect("a changed payment is in the rows").clone();
        for refund in &row.refunds {
            self.refunds.insert(refund.id.clone(), (payment.clone(), order.clone()));
        }
        self.payments.insert(payment.clone(), order.clone());
        let slot = self.ids.entry(order.clone()).or_default();
        let list = match &mut slot.order {
            Some(order) => &mut order.payments,
            None => &mut slot.unmatched,
        };
        match list.iter_mut().find(|p| p.id == *payment) {
            Some(held) => *held = row,
            None => list.push(row),
        }
    }

    /// An order.
    #[must_use]
    pub fn order(&self, id: &OrderId) -> Option<&Order> {
        self.ids.get(id)?.order.as_ref()
    }

    /// A SKU.
    #[must_use]
    pub fn sku(&self, id: &SkuId) -> Option<&Sku> {
        self.skus.get(id)
    }

    /// Every SKU, by id.
    pub fn skus(&self) -> impl Iterator<Item = &Sku> {
        self.skus.values()
    }

    /// Every order, oldest first.
    pub fn orders(&self) -> impl Iterator<Item = &Order> {
        self.numbers.values().filter_map(|id| self.order(id))
    }

    /// The pending orders that are not on the parked list, oldest first.
    pub fn due(&self) -> impl Iterator<Item = &Order> {
        let pending = self.orders().filter(|order| order.state.status == Status::Pending);
        pending.filter(|order| !self.is_parked(order.no))
    }

    /// Whether an order is on the parked list.
    #[must_use]
    pub fn is_parked(&self, no: OrderNo) -> bool {
        self.parked.contains_key(&no)
    }

    /// Checks every invariant that rows alone can show.
    #[must_use]
    pub fn audit(&self, now: Millis, lag_bound_ms: i64) -> Report {
        let mut auditor = Auditor::new();
        self.skus.values().for_each(|sku| auditor.sku(sku));
        self.stock.iter().for_each(|change| auditor.stock_change(change));
        for (event, cursor) in self.events.iter().zip(1..) {
            let order_id = event.order.as_ref().map(|(_, id)| id.clone());
            auditor.event(&EventRow { cursor, order_id, seq: event.seq, kind: event.kind, at: event.at });
        }
        self.buyers.iter().for_each(|((sku, buyer), units)| auditor.buyer(sku, buyer, *units));
        self.orders().for_each(|order| auditor.order(order));
        for slot in self.ids.values().filter(|slot| slot.order.is_none()) {
            slot.unmatched.iter().for_each(|payment| auditor.unmatched(payment));
        }
        auditor.finish(now, lag_bound_ms)
    }
}
