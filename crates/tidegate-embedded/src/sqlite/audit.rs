//! Streams every row through the auditor, from one consistent read.

use rusqlite::{Connection, Result};
use tidegate_core::audit::{Auditor, EventRow};
use tidegate_core::{EventKind, Map, SkuId};

use super::fault::bad_value;
use super::{row, stock};

/// Feeds `auditor` in the order it asks for. The caller holds a read transaction.
pub(super) fn feed(conn: &Connection, auditor: &mut Auditor) -> Result<()> {
    let skus = feed_skus(conn, auditor)?;
    feed_stock(conn, auditor, &skus)?;
    feed_events(conn, auditor)?;
    feed_buyers(conn, auditor, &skus)?;
    feed_orders(conn, auditor)?;
    feed_unmatched(conn, auditor)
}

fn feed_skus(conn: &Connection, auditor: &mut Auditor) -> Result<Map<i64, SkuId>> {
    let sql = format!(
        "SELECT {} FROM skus s LEFT JOIN sku_attributes a ON a.sku_no = s.sku_no ORDER BY s.sku_no",
        row::SKU_COLUMNS
    );
    let mut ids = Map::default();
    for sku in conn.prepare(&sql)?.query_map([], row::sku)? {
        let (no, sku) = sku?;
        auditor.sku(&sku);
        ids.insert(no, sku.id);
    }
    Ok(ids)
}

fn named(skus: &Map<i64, SkuId>, no: i64) -> Result<&SkuId> {
    skus.get(&no).ok_or_else(|| bad_value(0, format!("SKU number {no} has no row")))
}

fn feed_stock(conn: &Connection, auditor: &mut Auditor, skus: &Map<i64, SkuId>) -> Result<()> {
    let sql = format!(
        "SELECT {}, c.sku_no FROM stock_changes c LEFT JOIN orders o ON o.order_no = c.order_no ORDER BY c.sku_no, c.stock_version",
        stock::CHANGE_COLUMNS
    );
    let mut select = conn.prepare(&sql)?;
    let mut rows = select.query([])?;
    while let Some(r) = rows.next()? {
        let sku = named(skus, r.get(12)?)?;
        auditor.stock_change(&stock::change(r, sku)?);
    }
    Ok(())
}

fn feed_events(conn: &Connection, auditor: &mut Auditor) -> Result<()> {
    let sql = "SELECT e.cursor, o.id, e.seq, e.kind, e.at FROM events e LEFT JOIN orders o ON o.order_no = e.order_no ORDER BY e.cursor";
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query([])?;
    while let Some(r) = rows.next()? {
        auditor.event(&EventRow {
            cursor: r.get(0)?,
            order_id: row::opt_id(r, 1)?,
            seq: r.get(2)?,
            kind: EventKind::from_number(r.get(3)?).ok_or_else(|| bad_value(3, "an event of no known kind"))?,
            at: row::millis(r, 4)?,
        });
    }
    Ok(())
}

fn feed_buyers(conn: &Connection, auditor: &mut Auditor, skus: &Map<i64, SkuId>) -> Result<()> {
    let mut select = conn.prepare("SELECT sku_no, buyer_id, units FROM buyer_counters ORDER BY sku_no, buyer_id")?;
    let mut rows = select.query([])?;
    while let Some(r) = rows.next()? {
        auditor.buyer(named(skus, r.get(0)?)?, &row::id(r, 1)?, r.get(2)?);
    }
    Ok(())
}

fn feed_orders(conn: &Connection, auditor: &mut Auditor) -> Result<()> {
    let mut select = conn.prepare(&format!("SELECT {} FROM orders o ORDER BY o.order_no", row::ORDER_COLUMNS))?;
    let mut rows = select.query([])?;
    while let Some(r) = rows.next()? {
        let (mut order, payments) = row::order(r, 0)?;
        if payments > 0 {
            order.payments = row::payments_of(conn, &order.id)?;
        }
        auditor.order(&order);
    }
    Ok(())
}

fn feed_unmatched(conn: &Connection, auditor: &mut Auditor) -> Result<()> {
    let sql = format!(
        "SELECT {} FROM payments WHERE NOT EXISTS (SELECT 1 FROM order_ids i WHERE i.id = payments.order_id AND i.order_no IS NOT NULL) \
        ORDER BY payment_no",
        row::PAYMENT_COLUMNS
    );
    for payment in conn.prepare(&sql)?.query_map([], row::payment)? {
        let (no, mut payment) = payment?;
        payment.refunds = row::refunds_of(conn, no)?;
        auditor.unmatched(&payment);
    }
    Ok(())
}
