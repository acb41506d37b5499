//! Writes what a decided batch changed, a statement or two a table.

use tidegate_backend::stored::codec::Numbered;
use tidegate_core::engine::Changes;
use tidegate_core::{Map, Millis, Order, OrderId, Payment, PaymentId, Set, SkuId};

use super::load::{Loaded, SkuRow};
use super::{rows, tables};
use crate::bulk::Bulk;
use crate::fault::{Class, Fault, Result};
use crate::row;
use crate::session::Session;
use crate::value::Value;

/// A batch being written at `now`.
pub(super) struct Store<'a> {
    pub session: &'a mut Session,
    pub loaded: &'a mut Loaded,
    pub changes: &'a Changes,
    pub now: Millis,
}

/// A change that names a row the batch does not have: a fault of the rules, caught before it is written.
fn absent(what: impl std::fmt::Display) -> Fault {
    Fault::new(Class::Data, format!("{what} was changed and is not in the batch"))
}

impl Store<'_> {
    /// Writes everything; gives the cursor of the newest event, if there are events.
    pub(super) async fn write(&mut self) -> Result<Option<i64>> {
        self.skus().await?;
        self.ids().await?;
        self.new_orders().await?;
        self.updated_orders().await?;
        self.keys().await?;
        self.payments().await?;
        self.refunds().await?;
        self.counters().await?;
        self.parked().await?;
        self.stock().await?;
        self.events().await
    }

    fn order(&self, id: &OrderId) -> Result<&Order> {
        self.loaded.rows.ids.get(id).and_then(|slot| slot.order.as_ref()).ok_or_else(|| absent(id))
    }

    async fn skus(&mut self) -> Result<()> {
        let changes = self.changes;
        if changes.skus.is_empty() {
            return Ok(());
        }
        let (mut new, mut counts) = (Bulk::new(&tables::NEW_SKUS), Bulk::new(&tables::SKU_COUNTS));
        let mut cards = Bulk::new(&tables::SKU_CARDS);
        let mut written: Vec<&SkuId> = Vec::new();
        // New ones in the order they were made: their numbers tell their age.
        for id in changes.new_skus.iter().chain(changes.skus.iter().filter(|id| !changes.new_skus.contains(id))) {
            let sku = self.loaded.rows.skus.get(id).and_then(Option::as_ref).ok_or_else(|| absent(id))?;
            let Some(old) = self.loaded.skus.get(id) else {
                rows::counts(&mut new, sku, self.now.0);
                rows::card(&mut new, sku);
                written.push(id);
                continue;
            };
            rows::counts(counts.int(old.no), sku, self.now.0);
            if old.version != sku.version {
                rows::counts(cards.int(old.no), sku, self.now.0);
                rows::card(&mut cards, sku);
                written.push(id);
            }
        }
        self.session.write(&new).await?;
        self.session.write(&counts).await?;
        self.session.write(&cards).await?;
        if !new.is_empty() {
            self.number_skus(&changes.new_skus).await?;
        }
        self.attributes(&written).await
    }

    /// Learns the numbers of SKUs that were just inserted.
    async fn number_skus(&mut self, new: &[SkuId]) -> Result<()> {
        let ids: Vec<&[u8]> = new.iter().map(|id| id.as_str().as_bytes()).collect();
        let sql = "SELECT sku, sku_no, version FROM skus WHERE sku IN ?";
        for r in self.session.rows(sql, &[Value::Blobs(&ids)]).await? {
            self.loaded.skus.insert(row::id(&r, 0)?, SkuRow { no: r.int(1)?, version: r.int(2)? });
        }
        Ok(())
    }

    async fn attributes(&mut self, written: &[&SkuId]) -> Result<()> {
        let mut some = Bulk::new(&tables::SKU_ATTRIBUTES);
        let mut none = Vec::new();
        for id in written {
            let no = self.sku_no(id)?;
            match self.loaded.rows.skus.get(*id).and_then(Option::as_ref).and_then(|sku| sku.attributes.as_ref()) {
                Some(attributes) => {
                    some.int(no).text(attributes.as_str());
                }
                None => none.push(no),
            }
        }
        if !none.is_empty() {
            let sql = "DELETE FROM sku_attributes WHERE sku_no IN ?";
            self.session.execute(sql, &[Value::Ints(&none)]).await?;
        }
        self.session.write(&some).await
    }

    fn sku_no(&self, sku: &SkuId) -> Result<i64> {
        self.loaded.skus.get(sku).map(|at| at.no).ok_or_else(|| absent(sku))
    }

    /// What each id stands for now, sorted: two batches that insert the same ids wait for each other, not in a circle.
    async fn ids(&mut self) -> Result<()> {
        let changes = self.changes;
        let slots = changes.tombstones.iter().chain(changes.payments.values());
        let mut ids: Vec<&OrderId> = changes.new_orders.iter().chain(slots).collect();
        ids.sort_unstable();
        ids.dedup();
        let new_orders: Set<&OrderId> = changes.new_orders.iter().collect();
        let (mut new, mut old) = (Bulk::new(&tables::NEW_IDS), Bulk::new(&tables::OLD_IDS));
        for id in ids {
            let slot = self.loaded.rows.ids.get(id).ok_or_else(|| absent(id))?;
            if slot.order.is_some() && !new_orders.contains(id) {
                continue;
            }
            let bulk = if self.loaded.ids.contains(id) { &mut old } else { &mut new };
            bulk.bytes(id.as_str().as_bytes());
            match &slot.order {
                Some(order) => bulk.int(order.no.0).int(None).int(0),
                None => bulk.int(None).int(slot.tombstone.map(|t| t.0)).int(slot.unmatched.len() as i64),
            };
        }
        self.session.write(&new).await?;
        self.session.write(&old).await
    }

    async fn new_orders(&mut self) -> Result<()> {
        if self.changes.new_orders.is_empty() {
            return Ok(());
        }
        let mut orders = Bulk::new(&tables::NEW_ORDERS);
        let mut buffer = Vec::new();
        let mut lines = Vec::new();
        for id in &self.changes.new_orders {
            let o = self.order(id)?;
            rows::new_order(&mut orders, o, &mut buffer);
            for line in &o.lines {
                lines.push((self.sku_no(&line.sku)?, o.no.0, line.quantity));
            }
        }
        // Neighbours in the table are written together.
        lines.sort_unstable();
        let mut all = Bulk::new(&tables::LINES);
        for (sku_no, order_no, quantity) in lines {
            all.int(sku_no).int(order_no).int(quantity);
        }
        self.session.write(&orders).await?;
        self.session.write(&all).await
    }

    async fn updated_orders(&mut self) -> Result<()> {
        let mut orders = self.changes.updated_orders.iter().map(|id| self.order(id)).collect::<Result<Vec<_>>>()?;
        orders.sort_unstable_by_key(|o| o.no);
        let mut all = Bulk::new(&tables::OLD_ORDERS);
        for o in orders {
            rows::old_order(&mut all, o);
        }
        self.session.write(&all).await
    }

    async fn keys(&mut self) -> Result<()> {
        let mut aliases: Vec<_> = self.changes.order_keys.iter().collect();
        aliases.sort_unstable();
        let mut order_keys = Bulk::new(&tables::ORDER_KEYS);
        for (key, id) in aliases {
            order_keys.bytes(key.as_str().as_bytes()).int(self.order(id)?.no.0);
        }
        let (mut new, mut old) = (Bulk::new(&tables::NEW_REQUEST_KEYS), Bulk::new(&tables::OLD_REQUEST_KEYS));
        // One key may be bound twice in a batch, when the first binding had run out; the row is its last state.
        let mut request_keys: Vec<_> = self.changes.request_keys.iter().collect();
        request_keys.sort_unstable();
        request_keys.dedup();
        for at in request_keys {
            let record = self.loaded.rows.request_keys.get(at).and_then(Option::as_ref).ok_or_else(|| absent(&at.1))?;
            let bulk = if self.loaded.request_keys.contains(at) { &mut old } else { &mut new };
            bulk.int(at.0 as i64).bytes(at.1.as_str().as_bytes()).text(record.command.as_str()).int(record.at.0);
        }
        self.session.write(&order_keys).await?;
        self.session.write(&new).await?;
        self.session.write(&old).await
    }

    fn payment(&self, payment: &PaymentId, order: &OrderId) -> Result<&Payment> {
        let slot = self.loaded.rows.ids.get(order).ok_or_else(|| absent(order))?;
        let ordered = slot.order.iter().flat_map(|o| &o.payments);
        ordered.chain(&slot.unmatched).find(|p| p.id == *payment).ok_or_else(|| absent(payment))
    }

    async fn payments(&mut self) -> Result<()> {
        if self.changes.payments.is_empty() {
            return Ok(());
        }
        let (mut new, mut old) = (Bulk::new(&tables::NEW_PAYMENTS), Bulk::new(&tables::OLD_PAYMENTS));
        let payments = self.changes.payments.iter().map(|(id, order)| self.payment(id, order));
        let payments = payments.collect::<Result<Vec<_>>>()?;
        let mut unknown: Vec<PaymentId> = Vec::new();
        for p in self.in_order_of_arrival(payments) {
            let known = self.loaded.payments.contains_key(&p.id);
            if !known {
                unknown.push(p.id.clone());
            }
            let bulk = if known { &mut old } else { &mut new };
            bulk.bytes(p.id.as_str().as_bytes())
                .bytes(p.order_id.as_str().as_bytes())
                .int(p.amount)
                .text(p.currency.as_ref().map(|c| c.code()))
                .int(p.captured_at.map(|t| t.0))
                .int(p.received_at.0)
                .int(p.outcome.number())
                .int(p.flagged_at.map(|t| t.0));
        }
        self.session.write(&new).await?;
        self.session.write(&old).await?;
        if !unknown.is_empty() && !self.changes.refunds.is_empty() {
            let unknown: Vec<&[u8]> = unknown.iter().map(|id| id.as_str().as_bytes()).collect();
            let sql = "SELECT payment_id, payment_no FROM payments WHERE payment_id IN ?";
            for r in self.session.rows(sql, &[Value::Blobs(&unknown)]).await? {
                self.loaded.payments.insert(row::id(&r, 0)?, r.int(1)?);
            }
        }
        Ok(())
    }

    /// Payments of one order that came in one batch share an instant; their order is that of the order's own list.
    fn in_order_of_arrival<'b>(&'b self, mut payments: Vec<&'b Payment>) -> Vec<&'b Payment> {
        let place = |p: &Payment| {
            let slot = self.loaded.rows.ids.get(&p.order_id);
            let own = slot.and_then(|s| s.order.as_ref()).map(|o| &o.payments).or(slot.map(|s| &s.unmatched));
            own.and_then(|list| list.iter().position(|q| q.id == p.id))
        };
        payments.sort_by(|a, b| {
            let by_order = (a.received_at, &a.order_id).cmp(&(b.received_at, &b.order_id));
            by_order.then_with(|| place(a).cmp(&place(b)))
        });
        payments
    }

    async fn refunds(&mut self) -> Result<()> {
        let mut refunds = Vec::with_capacity(self.changes.refunds.len());
        for (id, payment) in &self.changes.refunds {
            let rows = &self.loaded.rows;
            let order = self.changes.payments.get(payment).or_else(|| rows.payments.get(payment)?.as_ref());
            let by_row = || rows.refunds.get(id).and_then(Option::as_ref).map(|(_, order)| order);
            let order = order.or_else(by_row).ok_or_else(|| absent(payment))?;
            let owner = self.payment(payment, order)?;
            refunds.push(owner.refunds.iter().find(|r| r.id == *id).ok_or_else(|| absent(id))?);
        }
        // Refund ids grow with time, so sorting keeps those of one batch in the order they were made.
        refunds.sort_by(|a, b| (a.due_at, &a.id).cmp(&(b.due_at, &b.id)));
        let mut all = Bulk::new(&tables::REFUNDS);
        for r in refunds {
            let payment_no = self.loaded.payments.get(&r.payment_id).copied().ok_or_else(|| absent(&r.payment_id))?;
            all.bytes(r.id.as_str().as_bytes())
                .int(payment_no)
                .bytes(r.order_id.as_str().as_bytes())
                .int(r.amount)
                .text(r.currency.as_ref().map(|c| c.code()))
                .int(r.status.number())
                .int(r.reason.number())
                .int(r.due_at.0)
                .int(r.settled_at.map(|t| t.0));
        }
        self.session.write(&all).await
    }

    async fn counters(&mut self) -> Result<()> {
        let mut all = Bulk::new(&tables::BUYER_COUNTERS);
        for (sku, buyer) in &self.changes.buyers {
            let units = self.loaded.rows.buyers.get(&(sku.clone(), buyer.clone())).copied();
            let units = units.ok_or_else(|| absent(buyer))?;
            all.int(self.sku_no(sku)?).bytes(buyer.as_str().as_bytes()).int(units);
        }
        self.session.write(&all).await
    }

    async fn parked(&mut self) -> Result<()> {
        let (mut some, mut none) = (Bulk::new(&tables::PARKED), Vec::new());
        for no in &self.changes.parked {
            match self.loaded.rows.parked.get(no).and_then(Option::as_ref) {
                Some(p) => {
                    some.int(no.0).int(p.at.0).int(p.tries).text(p.reason.as_str());
                }
                None => none.push(no.0),
            }
        }
        if !none.is_empty() {
            self.session.execute("DELETE FROM parked WHERE order_no IN ?", &[Value::Ints(&none)]).await?;
        }
        self.session.write(&some).await
    }

    async fn stock(&mut self) -> Result<()> {
        let mut all = Bulk::new(&tables::STOCK_CHANGES);
        let mut numbers: Map<&SkuId, i64> = Map::default();
        for c in &self.changes.stock {
            let sku_no = match numbers.get(&c.sku) {
                Some(no) => *no,
                None => *numbers.entry(&c.sku).or_insert(self.sku_no(&c.sku)?),
            };
            rows::stock_change(&mut all, sku_no, c);
        }
        self.session.write(&all).await
    }

    /// Last of all: the counter row is locked until the commit, so a cursor is visible only when all before it are.
    async fn events(&mut self) -> Result<Option<i64>> {
        let events = &self.changes.events;
        if events.is_empty() {
            return Ok(None);
        }
        let count = events.len() as i64;
        let newest = take_cursors(self.session, count, self.now).await?;
        let mut all = Bulk::new(&tables::EVENTS);
        for (cursor, event) in (newest - count + 1..).zip(events) {
            rows::event(&mut all, cursor, event)?;
        }
        self.session.write(&all).await?;
        Ok(Some(newest))
    }
}

/// Takes the next `count` cursors; gives the last of them.
pub(super) async fn take_cursors(session: &mut Session, count: i64, now: Millis) -> Result<i64> {
    let values = [count.into(), now.into()];
    match session.dialect() {
        crate::dialect::Dialect::MySql => {
            let sql =
                "UPDATE counters SET newest = LAST_INSERT_ID(newest + ?), at = GREATEST(at, ?) WHERE name = 'events'";
            let number = session.execute(sql, &values).await?;
            i64::try_from(number).map_err(|_| Fault::corrupt("the event counter has run over"))
        }
        crate::dialect::Dialect::Postgres => {
            let sql =
                "UPDATE counters SET newest = newest + ?, at = GREATEST(at, ?) WHERE name = 'events' RETURNING newest";
            let row = session.one(sql, &values).await?;
            row.ok_or_else(|| Fault::corrupt("the event counter is gone"))?.int(0)
        }
    }
}
