//! Locks and loads the rows of a batch.
//!
//! Every batch locks in one order: SKUs by bytes, then ids and orders, then request keys, and at its end the event counter.
//! What belongs to a SKU (its buyers' counters) or to an order (payments, refunds, its place on the parked list) is read
//! and written under that lock and needs none of its own. A key that nobody has yet cannot be locked: inserting it clashes
//! with whoever was quicker, and the batch runs again.

use std::time::Duration;

use tidegate_core::command::Parked;
use tidegate_core::engine::{KeyScope, Keys, RequestRecord, Rows, Slot};
use tidegate_core::{
    BuyerId, Command, IdempotencyKey, JsonObject, Map, Millis, Order, OrderId, OrderNo, PaymentId, RefundId, Set,
    SkuId, Status,
};

use crate::connect::STATEMENT_BOUND;
use crate::fault::{Fault, Result};
use crate::read::money;
use crate::row;
use crate::session::Session;
use crate::value::Value;

/// Longest time for a statement that counts all orders of a SKU.
const RECOUNT_BOUND: Duration = Duration::from_secs(120);

/// A batch's rows, and what writing them back needs to know of how they lay.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub rows: Rows,
    /// Number and card version of each SKU that has a row.
    pub skus: Map<SkuId, SkuRow>,
    /// Orders that were pending, with their deadline.
    pub pending: Map<OrderNo, Millis>,
    /// Order ids that have a row, as an order or otherwise.
    pub ids: Set<OrderId>,
    /// Request keys that have a row.
    pub request_keys: Set<(KeyScope, IdempotencyKey)>,
    /// Numbers of the payments that have a row.
    pub payments: Map<PaymentId, i64>,
    /// Whether free attributes of SKUs are loaded: only catalog commands show or change them.
    attributes: bool,
}

/// Where a SKU lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkuRow {
    pub no: i64,
    pub version: i64,
}

/// Byte strings, sorted and without repeats.
fn sorted<'a>(strings: impl IntoIterator<Item = &'a str>) -> Vec<&'a [u8]> {
    let mut strings: Vec<&[u8]> = strings.into_iter().map(str::as_bytes).collect();
    strings.sort_unstable();
    strings.dedup();
    strings
}

fn sorted_numbers(numbers: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut numbers: Vec<i64> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

impl Loaded {
    /// No rows yet, for `commands`.
    pub(super) fn new(commands: &[Command]) -> Self {
        let catalog = |c: &Command| matches!(c, Command::PutSku(_) | Command::Adjust(_) | Command::ArchiveSku(_));
        Self { attributes: commands.iter().any(catalog), ..Self::default() }
    }

    /// Loads what `keys` names, and the SKUs in `more`.
    pub(super) async fn load(&mut self, session: &mut Session, keys: Keys, more: Vec<SkuId>) -> Result<()> {
        let mut skus = keys.skus;
        skus.extend(more.into_iter().filter(|sku| !self.rows.skus.contains_key(sku)));
        self.skus(session, skus).await?;
        self.recounts(session, keys.recounts).await?;
        self.buyers(session, keys.buyers).await?;
        self.orders(session, keys.ids, keys.numbers).await?;
        self.order_keys(session, keys.order_keys).await?;
        self.request_keys(session, keys.request_keys).await?;
        self.payments(session, keys.payments).await?;
        self.refunds(session, keys.refunds).await?;
        self.parked(session, keys.parked).await
    }

    async fn skus(&mut self, session: &mut Session, skus: Vec<SkuId>) -> Result<()> {
        if skus.is_empty() {
            return Ok(());
        }
        let columns = row::SKU_COLUMNS.replace("a.attributes", "NULL");
        let index = session.dialect().pick("FORCE INDEX (sku)", "");
        let sql = format!("SELECT {columns} FROM skus s {index} WHERE s.sku IN ? ORDER BY s.sku FOR UPDATE");
        let ids = sorted(skus.iter().map(SkuId::as_str));
        let mut found = Map::default();
        for r in session.rows(&sql, &[Value::Blobs(&ids)]).await? {
            let (no, sku) = row::sku(&r)?;
            found.insert(no, sku);
        }
        if self.attributes && !found.is_empty() {
            let numbers = sorted_numbers(found.keys().copied());
            let sql = "SELECT sku_no, attributes FROM sku_attributes WHERE sku_no IN ?";
            for r in session.rows(sql, &[Value::Ints(&numbers)]).await? {
                if let Some(sku) = found.get_mut(&r.int(0)?) {
                    sku.attributes = Some(JsonObject::from_stored(r.text(1)?));
                }
            }
        }
        for id in skus {
            self.rows.skus.insert(id, None);
        }
        for (no, sku) in found {
            self.skus.insert(sku.id.clone(), SkuRow { no, version: sku.version });
            self.rows.skus.insert(sku.id.clone(), Some(sku));
        }
        Ok(())
    }

    /// Counts every buyer's units of these SKUs from the orders there are; the SKUs are locked.
    async fn recounts(&mut self, session: &mut Session, skus: Vec<SkuId>) -> Result<()> {
        for sku in skus {
            if let Some(at) = self.skus.get(&sku) {
                // Seldom, and as long as the SKU has orders: too slow for the bound would be never.
                session.allow(RECOUNT_BOUND).await?;
                let counted = recount(session, at.no).await;
                let as_before = session.allow(STATEMENT_BOUND).await;
                counted.and(as_before)?;
            }
            self.rows.recounted.insert(sku);
        }
        Ok(())
    }

    async fn buyers(&mut self, session: &mut Session, buyers: Vec<(SkuId, BuyerId)>) -> Result<()> {
        let mut of_sku: Map<SkuId, Vec<BuyerId>> = Map::default();
        for (sku, buyer) in buyers {
            self.rows.buyers.insert((sku.clone(), buyer.clone()), 0);
            of_sku.entry(sku).or_default().push(buyer);
        }
        for (sku, buyers) in of_sku {
            let Some(at) = self.skus.get(&sku) else { continue };
            let ids = sorted(buyers.iter().map(BuyerId::as_str));
            let sql = "SELECT buyer_id, units FROM buyer_counters WHERE sku_no = ? AND buyer_id IN ?";
            for r in session.rows(sql, &[at.no.into(), Value::Blobs(&ids)]).await? {
                self.rows.buyers.insert((sku.clone(), row::id(&r, 0)?), r.int(1)?);
            }
        }
        Ok(())
    }

    /// Ids first, then the orders they and `numbers` name, then the payments of both. An order named by its number is
    /// loaded whole, so that its id need not be asked for in another round.
    async fn orders(&mut self, session: &mut Session, ids: Vec<OrderId>, numbers: Vec<OrderNo>) -> Result<()> {
        let mut order_nos: Vec<i64> = numbers.iter().map(|no| no.0).collect();
        let mut with_payments: Vec<OrderId> = Vec::new();
        if !ids.is_empty() {
            let (of_orders, mut loose) = self.ids(session, &ids).await?;
            order_nos.extend(of_orders);
            with_payments.append(&mut loose);
        }
        for no in numbers {
            self.rows.numbers.insert(no, None);
        }
        if !order_nos.is_empty() {
            let order_nos = sorted_numbers(order_nos);
            let index = session.dialect().pick("FORCE INDEX (PRIMARY)", "");
            let sql = format!(
                "SELECT {} FROM orders o {index} WHERE o.order_no IN ? ORDER BY o.order_no FOR UPDATE",
                row::ORDER_COLUMNS
            );
            for r in session.rows(&sql, &[Value::Ints(&order_nos)]).await? {
                let (order, payments) = row::order(&r, 0)?;
                let id = order.id.clone();
                if self.keep(order) && payments > 0 {
                    with_payments.push(id);
                }
            }
        }
        for id in ids {
            if !self.rows.ids.contains_key(&id) {
                return Err(Fault::corrupt(format!("order {id} has no row")));
            }
        }
        self.payments_of(session, &with_payments).await
    }

    /// What the ids stand for that have no order; gives the numbers of those that have one, and the ids with money that
    /// waits. A row without an order is locked, since it may get one.
    async fn ids(&mut self, session: &mut Session, ids: &[OrderId]) -> Result<(Vec<i64>, Vec<OrderId>)> {
        let all = sorted(ids.iter().map(OrderId::as_str));
        let columns = "SELECT id, order_no, tombstone_at, loose FROM order_ids";
        let (mut order_nos, mut open, mut seen) = (Vec::new(), Vec::new(), Set::default());
        for r in session.rows(&format!("{columns} WHERE id IN ?"), &[Value::Blobs(&all)]).await? {
            let id: OrderId = row::id(&r, 0)?;
            match r.opt_int(1)? {
                Some(no) => order_nos.push(no),
                None => open.push(id.clone()),
            }
            seen.insert(id);
        }
        for id in ids.iter().filter(|id| !seen.contains(*id)) {
            self.rows.ids.entry(id.clone()).or_default();
        }
        let mut loose = Vec::new();
        if !open.is_empty() {
            let all = sorted(open.iter().map(OrderId::as_str));
            let index = session.dialect().pick("FORCE INDEX (PRIMARY)", "");
            let sql = format!("{columns} {index} WHERE id IN ? ORDER BY id FOR UPDATE");
            for id in &open {
                // Stays so when it was pruned in between.
                self.rows.ids.insert(id.clone(), Slot::default());
            }
            for r in session.rows(&sql, &[Value::Blobs(&all)]).await? {
                let id: OrderId = row::id(&r, 0)?;
                if let Some(no) = r.opt_int(1)? {
                    order_nos.push(no);
                    self.rows.ids.remove(&id);
                    continue;
                }
                if r.int(3)? > 0 {
                    loose.push(id.clone());
                }
                self.ids.insert(id.clone());
                let slot = Slot { order: None, tombstone: row::opt_millis(&r, 2)?, unmatched: Vec::new() };
                self.rows.ids.insert(id, slot);
            }
        }
        Ok((order_nos, loose))
    }

    /// Takes an order in; false when it is there already.
    fn keep(&mut self, order: Order) -> bool {
        self.rows.numbers.insert(order.no, Some(order.id.clone()));
        let kept = self.rows.ids.get(&order.id).is_some_and(|slot| slot.order.is_some());
        if kept {
            return false;
        }
        if order.state.status == Status::Pending {
            self.pending.insert(order.no, order.state.release_at);
        }
        self.ids.insert(order.id.clone());
        self.rows.ids.insert(order.id.clone(), Slot { order: Some(order), tombstone: None, unmatched: Vec::new() });
        true
    }

    /// Payments with their refunds, oldest first, of these orders and ids.
    async fn payments_of(&mut self, session: &mut Session, ids: &[OrderId]) -> Result<()> {
        let all = sorted(ids.iter().map(OrderId::as_str));
        for (no, payment) in money::numbered_payments_of(session, &all).await? {
            self.payments.insert(payment.id.clone(), no);
            let Some(slot) = self.rows.ids.get_mut(&payment.order_id) else { continue };
            match &mut slot.order {
                Some(order) => order.payments.push(payment),
                None => slot.unmatched.push(payment),
            }
        }
        Ok(())
    }

    async fn order_keys(&mut self, session: &mut Session, keys: Vec<IdempotencyKey>) -> Result<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let all = sorted(keys.iter().map(IdempotencyKey::as_str));
        let sql = "SELECT k.order_key, o.id FROM order_keys k JOIN orders o ON o.order_no = k.order_no WHERE k.order_key IN ?";
        let mut found: Map<Vec<u8>, OrderId> = Map::default();
        for r in session.rows(sql, &[Value::Blobs(&all)]).await? {
            found.insert(r.bytes(0)?.to_vec(), row::id(&r, 1)?);
        }
        for key in keys {
            let id = found.remove(key.as_str().as_bytes());
            self.rows.order_keys.insert(key, id);
        }
        Ok(())
    }

    async fn request_keys(&mut self, session: &mut Session, keys: Vec<(KeyScope, IdempotencyKey)>) -> Result<()> {
        for scope in [KeyScope::Adjust, KeyScope::RefundPayment, KeyScope::SettleRefund] {
            let mine: Vec<&IdempotencyKey> = keys.iter().filter(|(of, _)| *of == scope).map(|(_, key)| key).collect();
            if mine.is_empty() {
                continue;
            }
            let all = sorted(mine.iter().map(|key| key.as_str()));
            let sql = "SELECT request_key, command, at FROM request_keys WHERE scope = ? AND request_key IN ? \
                ORDER BY request_key FOR UPDATE";
            let mut found: Map<Vec<u8>, RequestRecord> = Map::default();
            for r in session.rows(sql, &[(scope as i64).into(), Value::Blobs(&all)]).await? {
                let record = RequestRecord { command: r.text(1)?.to_owned(), at: row::millis(&r, 2)? };
                found.insert(r.bytes(0)?.to_vec(), record);
            }
            for key in mine {
                let record = found.remove(key.as_str().as_bytes());
                if record.is_some() {
                    self.request_keys.insert((scope, key.clone()));
                }
                self.rows.request_keys.insert((scope, key.clone()), record);
            }
        }
        Ok(())
    }

    /// Which order id a payment names never changes, so this needs no lock.
    async fn payments(&mut self, session: &mut Session, payments: Vec<PaymentId>) -> Result<()> {
        if payments.is_empty() {
            return Ok(());
        }
        let all = sorted(payments.iter().map(PaymentId::as_str));
        let sql = "SELECT payment_id, payment_no, order_id FROM payments WHERE payment_id IN ?";
        for payment in &payments {
            self.rows.payments.insert(payment.clone(), None);
        }
        for r in session.rows(sql, &[Value::Blobs(&all)]).await? {
            let id: PaymentId = row::id(&r, 0)?;
            self.payments.insert(id.clone(), r.int(1)?);
            self.rows.payments.insert(id, Some(row::id(&r, 2)?));
        }
        Ok(())
    }

    /// Nor does what a refund belongs to.
    async fn refunds(&mut self, session: &mut Session, refunds: Vec<RefundId>) -> Result<()> {
        if refunds.is_empty() {
            return Ok(());
        }
        let all = sorted(refunds.iter().map(RefundId::as_str));
        let sql = "SELECT r.refund_id, p.payment_id, r.order_id FROM refunds r \
            JOIN payments p ON p.payment_no = r.payment_no WHERE r.refund_id IN ?";
        for refund in &refunds {
            self.rows.refunds.insert(refund.clone(), None);
        }
        for r in session.rows(sql, &[Value::Blobs(&all)]).await? {
            self.rows.refunds.insert(row::id(&r, 0)?, Some((row::id(&r, 1)?, row::id(&r, 2)?)));
        }
        Ok(())
    }

    async fn parked(&mut self, session: &mut Session, orders: Vec<OrderNo>) -> Result<()> {
        if orders.is_empty() {
            return Ok(());
        }
        let numbers = sorted_numbers(orders.iter().map(|no| no.0));
        let sql = "SELECT k.order_no, o.id, k.at, k.tries, k.reason FROM parked k JOIN orders o ON o.order_no = k.order_no \
            WHERE k.order_no IN ?";
        for no in orders {
            self.rows.parked.insert(no, None);
        }
        for r in session.rows(sql, &[Value::Ints(&numbers)]).await? {
            let parked: Parked = row::parked(&r)?;
            self.rows.parked.insert(parked.order, Some(parked));
        }
        Ok(())
    }
}

async fn recount(session: &mut Session, sku_no: i64) -> Result<()> {
    session.execute("DELETE FROM buyer_counters WHERE sku_no = ?", &[sku_no.into()]).await?;
    let sum = session.dialect().pick("CAST(SUM(l.quantity) AS SIGNED)", "CAST(SUM(l.quantity) AS BIGINT)");
    let sql = format!(
        "INSERT INTO buyer_counters (sku_no, buyer_id, units)
        SELECT l.sku_no, o.buyer_id, {sum} FROM order_lines l JOIN orders o ON o.order_no = l.order_no
        WHERE l.sku_no = ? AND o.status <> 2 GROUP BY l.sku_no, o.buyer_id"
    );
    session.execute(&sql, &[sku_no.into()]).await.map(|_| ())
}

/// The SKUs of the orders that `commands` name, read without a lock so that they can be locked before the orders are. An
/// order's lines never change; one that comes into being meanwhile is found by the rounds of loading.
pub(super) async fn peek(session: &mut Session, commands: &[Command]) -> Result<Vec<SkuId>> {
    let (mut ids, mut numbers) = (Vec::new(), Vec::new());
    for command in commands {
        match command {
            Command::Place(place) => ids.extend(place.supersedes.as_ref()),
            Command::Pay(pay) => ids.push(&pay.order_id),
            Command::Cancel(cancel) => ids.push(&cancel.order_id),
            Command::Fulfil(id) => ids.push(id),
            Command::Expire(no) => numbers.push(no.0),
            _ => {}
        }
    }
    let mut rows = Vec::new();
    if !ids.is_empty() {
        let all = sorted(ids.into_iter().map(OrderId::as_str));
        let sql =
            "SELECT o.line_items, o.currency FROM order_ids i JOIN orders o ON o.order_no = i.order_no WHERE i.id IN ?";
        rows = session.rows(sql, &[Value::Blobs(&all)]).await?;
    }
    if !numbers.is_empty() {
        let all = sorted_numbers(numbers);
        let sql = "SELECT o.line_items, o.currency FROM orders o WHERE o.order_no IN ?";
        rows.extend(session.rows(sql, &[Value::Ints(&all)]).await?);
    }
    let mut skus = Set::default();
    for r in &rows {
        let currency = row::opt_currency(r, 1)?;
        let lines = tidegate_backend::stored::codec::decode_lines(r.bytes(0)?, currency);
        let lines = lines.ok_or_else(|| Fault::corrupt("the lines of an order cannot be read"))?;
        skus.extend(lines.into_iter().map(|line| line.sku));
    }
    Ok(skus.into_iter().collect())
}
