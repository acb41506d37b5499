//! Writes what a decided batch changed.

use rusqlite::{Connection, Error as Sql, Result};
use tidegate_core::engine::Changes;
use tidegate_core::{Map, Millis, Order, OrderId, OrderNo, Payment, SkuId};

use super::fault::bad_value;
use super::insert::{
    INSERT_EVENT, INSERT_ID, INSERT_LINE, INSERT_ORDER, INSERT_STOCK, UPDATE_COUNTS, insert_event, insert_order,
    write_card,
};
use super::load::{Loaded, SkuRow};
use tidegate_backend::stored::codec::{Numbered, encode_lines};

/// A batch being written at `now`; `cursor` is its first event's.
pub(super) struct Batch<'a> {
    pub conn: &'a Connection,
    pub loaded: &'a mut Loaded,
    pub changes: &'a Changes,
    pub now: Millis,
    pub cursor: i64,
}

/// A change that names a row the batch does not have: a fault of the rules, caught before it is written.
fn absent(what: impl std::fmt::Display) -> Sql {
    bad_value(0, format!("{what} was changed and is not in the batch"))
}

impl Batch<'_> {
    /// Writes everything.
    pub(super) fn write(&mut self) -> Result<()> {
        self.skus()?;
        self.new_orders()?;
        self.updated_orders()?;
        self.slots()?;
        self.payments()?;
        self.refunds()?;
        self.counters_and_keys()?;
        self.parked()?;
        self.stock()?;
        self.events()
    }

    fn order(&self, id: &OrderId) -> Result<&Order> {
        self.loaded.rows.ids.get(id).and_then(|slot| slot.order.as_ref()).ok_or_else(|| absent(id))
    }

    fn skus(&mut self) -> Result<()> {
        // Insert new ones in the order they were made: their numbers tell their age.
        let new = &self.changes.new_skus;
        for id in new.iter().chain(self.changes.skus.iter().filter(|id| !new.contains(id))) {
            let sku = self.loaded.rows.skus.get(id).and_then(Option::as_ref).ok_or_else(|| absent(id))?;
            let (c, now) = (sku.counts, self.now.0);
            let old = self.loaded.skus.get(id).copied();
            let no = match old {
                Some(row) => {
                    let mut update = self.conn.prepare_cached(UPDATE_COUNTS)?;
                    update.execute((row.no, c.on_hand, c.held, c.sold, sku.stock_version, now))?;
                    row.no
                }
                None => {
                    let sql = "INSERT INTO skus (sku, on_hand, held, sold, stock_version, version, archived, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, ?6)";
                    self.conn.prepare_cached(sql)?.insert((
                        id.as_str().as_bytes(),
                        c.on_hand,
                        c.held,
                        c.sold,
                        sku.stock_version,
                        now,
                    ))?
                }
            };
            if old.is_none_or(|row| row.version != sku.version) {
                write_card(self.conn, no, sku)?;
            }
            self.loaded.skus.insert(id.clone(), SkuRow { no, version: sku.version });
        }
        Ok(())
    }

    fn new_orders(&mut self) -> Result<()> {
        if self.changes.new_orders.is_empty() {
            return Ok(());
        }
        let firsts: Map<OrderNo, i64> = (self.cursor..)
            .zip(&self.changes.events)
            .filter(|(_, e)| e.seq == 1)
            .filter_map(|(cursor, e)| e.order.as_ref().map(|(no, _)| (*no, cursor)))
            .collect();
        let mut insert = self.conn.prepare_cached(INSERT_ORDER)?;
        let mut insert_id = self.conn.prepare_cached(INSERT_ID)?;
        let sql =
            "UPDATE order_ids SET order_no = ?2, tombstone_at = NULL, loose = 0 WHERE id = ?1 AND order_no IS NULL";
        let mut take_id = self.conn.prepare_cached(sql)?;
        let mut insert_line = self.conn.prepare_cached(INSERT_LINE)?;
        let mut bytes = Vec::new();
        let mut lines = Vec::new();
        for id in &self.changes.new_orders {
            let o = self.order(id)?;
            let no = o.no;
            encode_lines(&o.lines, &mut bytes);
            insert_order(&mut insert, o, firsts.get(&no).copied(), &bytes)?;
            if self.loaded.ids.contains(id) {
                if take_id.execute((id.as_str().as_bytes(), no.0))? != 1 {
                    return Err(bad_value(0, format!("order id {id} is taken")));
                }
            } else {
                insert_id.execute((id.as_str().as_bytes(), no.0, None::<i64>, 0))?;
            }
            lines.extend(o.lines.iter().map(|l| (l.sku.clone(), no, l.quantity)));
        }
        for (sku, no, quantity) in lines {
            let sku_no = self.loaded.sku_no(self.conn, &sku)?.ok_or_else(|| absent(&sku))?;
            insert_line.execute((sku_no, no.0, quantity))?;
        }
        Ok(())
    }

    fn updated_orders(&self) -> Result<()> {
        let sql = "UPDATE orders SET status = ?2, pay_by = ?3, release_at = ?4, paid_at = ?5, cancelled_at = ?6, cancel_reason = ?7, \
            fulfilled_at = ?8, version = ?9, closed = ?10, last_seq = ?11, payment_count = ?12 WHERE order_no = ?1";
        let mut update = self.conn.prepare_cached(sql)?;
        for id in &self.changes.updated_orders {
            let o = self.order(id)?;
            let s = &o.state;
            update.execute((
                o.no.0,
                s.status.number(),
                s.pay_by.0,
                s.release_at.0,
                s.paid_at.map(|t| t.0),
                s.cancelled_at.map(|t| t.0),
                s.cancel_reason.map(Numbered::number),
                s.fulfilled_at.map(|t| t.0),
                s.version,
                o.closed,
                o.last_seq,
                o.payments.len() as i64,
            ))?;
        }
        Ok(())
    }

    /// Ids without an order: tombstones, and money that waits.
    fn slots(&self) -> Result<()> {
        let sql = "INSERT INTO order_ids (id, order_no, tombstone_at, loose) VALUES (?1, NULL, ?2, ?3)
            ON CONFLICT (id) DO UPDATE SET tombstone_at = excluded.tombstone_at, loose = excluded.loose WHERE order_no IS NULL";
        let mut upsert = self.conn.prepare_cached(sql)?;
        for id in self.changes.tombstones.iter().chain(self.changes.payments.values()) {
            let slot = self.loaded.rows.ids.get(id).ok_or_else(|| absent(id))?;
            if slot.order.is_none() {
                upsert.execute((id.as_str().as_bytes(), slot.tombstone.map(|t| t.0), slot.unmatched.len() as i64))?;
            }
        }
        Ok(())
    }

    fn payment(&self, payment: &tidegate_core::PaymentId, order: &OrderId) -> Result<&Payment> {
        let slot = self.loaded.rows.ids.get(order).ok_or_else(|| absent(order))?;
        let ordered = slot.order.iter().flat_map(|o| &o.payments);
        ordered.chain(&slot.unmatched).find(|p| p.id == *payment).ok_or_else(|| absent(payment))
    }

    fn payments(&self) -> Result<()> {
        if self.changes.payments.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO payments (payment_id, order_id, amount, currency, captured_at, received_at, outcome, \
            flagged_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
            ON CONFLICT (payment_id) DO UPDATE SET amount = excluded.amount, currency = excluded.currency, \
            outcome = excluded.outcome, flagged_at = excluded.flagged_at";
        let mut upsert = self.conn.prepare_cached(sql)?;
        let mut payments = Vec::with_capacity(self.changes.payments.len());
        for (id, order) in &self.changes.payments {
            payments.push(self.payment(id, order)?);
        }
        for p in self.in_order_of_arrival(payments) {
            upsert.execute((
                p.id.as_str().as_bytes(),
                p.order_id.as_str().as_bytes(),
                p.amount,
                p.currency.as_ref().map(|c| c.code()),
                p.captured_at.map(|t| t.0),
                p.received_at.0,
                p.outcome.number(),
                p.flagged_at.map(|t| t.0),
            ))?;
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

    fn refunds(&self) -> Result<()> {
        if self.changes.refunds.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO refunds (refund_id, payment_no, order_id, amount, currency, status, reason, due_at, settled_at) \
            VALUES (?1, (SELECT payment_no FROM payments WHERE payment_id = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9)
            ON CONFLICT (refund_id) DO UPDATE SET amount = excluded.amount, currency = excluded.currency, status = excluded.status, \
            settled_at = excluded.settled_at";
        let mut upsert = self.conn.prepare_cached(sql)?;
        let mut refunds = Vec::with_capacity(self.changes.refunds.len());
        for (id, payment) in &self.changes.refunds {
            let order = self
                .changes
                .payments
                .get(payment)
                .or_else(|| self.loaded.rows.payments.get(payment).and_then(Option::as_ref));
            let by_row = || self.loaded.rows.refunds.get(id).and_then(Option::as_ref).map(|(_, order)| order);
            let order = order.or_else(by_row).ok_or_else(|| absent(payment))?;
            let owner = self.payment(payment, order)?;
            refunds.push(owner.refunds.iter().find(|r| r.id == *id).ok_or_else(|| absent(id))?);
        }
        // Refund ids grow with time, so sorting keeps those of one batch in the order they were made.
        refunds.sort_by(|a, b| (a.due_at, &a.id).cmp(&(b.due_at, &b.id)));
        for r in refunds {
            upsert.execute((
                r.id.as_str().as_bytes(),
                r.payment_id.as_str().as_bytes(),
                r.order_id.as_str().as_bytes(),
                r.amount,
                r.currency.as_ref().map(|c| c.code()),
                r.status.number(),
                r.reason.number(),
                r.due_at.0,
                r.settled_at.map(|t| t.0),
            ))?;
        }
        Ok(())
    }

    fn counters_and_keys(&mut self) -> Result<()> {
        for (sku, buyer) in &self.changes.buyers {
            let units =
                self.loaded.rows.buyers.get(&(sku.clone(), buyer.clone())).copied().ok_or_else(|| absent(buyer))?;
            let sku_no = self.loaded.sku_no(self.conn, sku)?.ok_or_else(|| absent(sku))?;
            let sql = "INSERT INTO buyer_counters (sku_no, buyer_id, units) VALUES (?1, ?2, ?3)
                ON CONFLICT (sku_no, buyer_id) DO UPDATE SET units = excluded.units";
            self.conn.prepare_cached(sql)?.execute((sku_no, buyer.as_str().as_bytes(), units))?;
        }
        for (key, id) in &self.changes.order_keys {
            let sql = "INSERT INTO order_keys (key, order_no) VALUES (?1, ?2)";
            self.conn.prepare_cached(sql)?.execute((key.as_str().as_bytes(), self.order(id)?.no.0))?;
        }
        for at in &self.changes.request_keys {
            let record = self.loaded.rows.request_keys.get(at).and_then(Option::as_ref).ok_or_else(|| absent(&at.1))?;
            let sql = "INSERT OR REPLACE INTO request_keys (scope, key, command, at) VALUES (?1, ?2, ?3, ?4)";
            self.conn.prepare_cached(sql)?.execute((
                at.0 as i64,
                at.1.as_str().as_bytes(),
                &record.command,
                record.at.0,
            ))?;
        }
        Ok(())
    }

    fn parked(&self) -> Result<()> {
        for no in &self.changes.parked {
            match self.loaded.rows.parked.get(no).and_then(Option::as_ref) {
                Some(p) => {
                    let sql = "INSERT INTO parked (order_no, at, tries, reason) VALUES (?1, ?2, ?3, ?4)
                        ON CONFLICT (order_no) DO UPDATE SET at = excluded.at, tries = excluded.tries, reason = excluded.reason";
                    self.conn.prepare_cached(sql)?.execute((no.0, p.at.0, p.tries, &p.reason))?;
                }
                None => {
                    self.conn.prepare_cached("DELETE FROM parked WHERE order_no = ?1")?.execute([no.0])?;
                }
            }
        }
        Ok(())
    }

    fn stock(&mut self) -> Result<()> {
        let mut insert = self.conn.prepare_cached(INSERT_STOCK)?;
        let mut last: Option<(&SkuId, i64)> = None;
        for c in &self.changes.stock {
            let sku_no = match last {
                Some((sku, no)) if *sku == c.sku => no,
                _ => self.loaded.sku_no(self.conn, &c.sku)?.ok_or_else(|| absent(&c.sku))?,
            };
            last = Some((&c.sku, sku_no));
            insert.execute((
                sku_no,
                c.stock_version,
                c.at.0,
                c.kind.number(),
                c.order.as_ref().map(|(no, _)| no.0),
                c.reason.as_deref(),
                c.delta.on_hand,
                c.delta.held,
                c.delta.sold,
                c.after.on_hand,
                c.after.held,
                c.after.sold,
            ))?;
        }
        Ok(())
    }

    fn events(&self) -> Result<()> {
        let mut insert = self.conn.prepare_cached(INSERT_EVENT)?;
        for (cursor, event) in (self.cursor..).zip(&self.changes.events) {
            insert_event(&mut insert, cursor, event)?;
        }
        Ok(())
    }
}
