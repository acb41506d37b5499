//! Every row through the auditor, from one snapshot, some thousand rows a statement.

use tidegate_core::audit::{Auditor, EventRow, Report};
use tidegate_core::{BuyerId, Map, Millis, Order, Payment, SkuId};

use super::{bytes, events, finish, money, stock};
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::{Isolation, Session};
use crate::value::Value;

/// Short rows that one statement reads.
const CHUNK: usize = 5_000;
/// Orders that one statement reads: each may have a thousand lines.
const ORDERS_CHUNK: usize = 500;

/// What the auditor says of every row, as of one snapshot; `now` is the ledger's clock before it.
pub(crate) async fn audit(session: &mut Session, now: Millis, lag_bound_ms: i64) -> Result<Report> {
    let mut auditor = Auditor::new();
    session.begin(Isolation::Snapshot).await?;
    let read = feed_all(session, &mut auditor).await;
    finish(session, read).await?;
    Ok(auditor.finish(now, lag_bound_ms))
}

/// In the order that the auditor asks for.
async fn feed_all(session: &mut Session, auditor: &mut Auditor) -> Result<()> {
    let skus = feed_skus(session, auditor).await?;
    feed_stock(session, auditor, &skus).await?;
    feed_events(session, auditor).await?;
    feed_buyers(session, auditor, &skus).await?;
    feed_orders(session, auditor).await?;
    feed_unmatched(session, auditor).await
}

async fn feed_skus(session: &mut Session, auditor: &mut Auditor) -> Result<Map<i64, SkuId>> {
    let mut ids = Map::default();
    let mut last = i64::MIN;
    loop {
        let rows = stock::skus_from(session, last, CHUNK).await?;
        let full = rows.len() == CHUNK;
        for (no, sku) in rows {
            auditor.sku(&sku);
            ids.insert(no, sku.id);
            last = no;
        }
        if !full {
            return Ok(ids);
        }
    }
}

fn named(skus: &Map<i64, SkuId>, no: i64) -> Result<&SkuId> {
    skus.get(&no).ok_or_else(|| Fault::corrupt(format!("the SKU number {no} of the database has no row")))
}

/// A chunk of a table with a key of two columns: what is left of the SKU that the last chunk ended in, then the rest.
async fn chunk_by_sku(session: &mut Session, select: &str, second: &str, last: (i64, Value<'_>)) -> Result<Vec<Row>> {
    let own = format!("{select} WHERE c.sku_no = ? AND c.{second} > ? ORDER BY c.{second} LIMIT ?");
    let mut rows = session.rows(&own, &[last.0.into(), last.1, Value::from(CHUNK as i64)]).await?;
    if rows.len() < CHUNK {
        let others = format!("{select} WHERE c.sku_no > ? ORDER BY c.sku_no, c.{second} LIMIT ?");
        let left = (CHUNK - rows.len()) as i64;
        rows.extend(session.rows(&others, &[last.0.into(), left.into()]).await?);
    }
    Ok(rows)
}

async fn feed_stock(session: &mut Session, auditor: &mut Auditor, skus: &Map<i64, SkuId>) -> Result<()> {
    let select = format!(
        "SELECT {}, c.sku_no FROM stock_changes c LEFT JOIN orders o ON o.order_no = c.order_no",
        stock::CHANGE_COLUMNS
    );
    let mut last = (i64::MIN, i64::MIN);
    loop {
        let rows = chunk_by_sku(session, &select, "stock_version", (last.0, last.1.into())).await?;
        for r in &rows {
            let change = stock::change(r, named(skus, r.int(12)?)?)?;
            last = (r.int(12)?, change.stock_version);
            auditor.stock_change(&change);
        }
        if rows.len() < CHUNK {
            return Ok(());
        }
    }
}

async fn feed_events(session: &mut Session, auditor: &mut Auditor) -> Result<()> {
    let sql = "SELECT e.event_no, o.id, e.seq, e.kind, e.at FROM events e LEFT JOIN orders o ON o.order_no = e.order_no \
        WHERE e.event_no > ? ORDER BY e.event_no LIMIT ?";
    let mut last = i64::MIN;
    loop {
        let rows = session.rows(sql, &[last.into(), Value::from(CHUNK as i64)]).await?;
        for r in &rows {
            last = r.int(0)?;
            auditor.event(&EventRow {
                cursor: last,
                order_id: row::opt_id(r, 1)?,
                seq: r.int(2)?,
                kind: events::kind(r, 3)?,
                at: row::millis(r, 4)?,
            });
        }
        if rows.len() < CHUNK {
            return Ok(());
        }
    }
}

async fn feed_buyers(session: &mut Session, auditor: &mut Auditor, skus: &Map<i64, SkuId>) -> Result<()> {
    let select = "SELECT c.sku_no, c.buyer_id, c.units FROM buyer_counters c";
    let mut last = (i64::MIN, String::new());
    loop {
        let rows = chunk_by_sku(session, select, "buyer_id", (last.0, bytes(&last.1))).await?;
        for r in &rows {
            let buyer: BuyerId = row::id(r, 1)?;
            auditor.buyer(named(skus, r.int(0)?)?, &buyer, r.int(2)?);
            last = (r.int(0)?, buyer.to_string());
        }
        if rows.len() < CHUNK {
            return Ok(());
        }
    }
}

async fn feed_orders(session: &mut Session, auditor: &mut Auditor) -> Result<()> {
    let sql = format!("SELECT {} FROM orders o WHERE o.order_no > ? ORDER BY o.order_no LIMIT ?", row::ORDER_COLUMNS);
    let mut last = i64::MIN;
    loop {
        let rows = session.rows(&sql, &[last.into(), Value::from(ORDERS_CHUNK as i64)]).await?;
        let mut orders: Vec<(Order, i64)> = rows.iter().map(|r| row::order(r, 0)).collect::<Result<_>>()?;
        let paid = orders.iter_mut().filter(|(_, payments)| *payments > 0).map(|(order, _)| order);
        money::attach(session, paid).await?;
        for (order, _) in &orders {
            auditor.order(order);
            last = order.no.0;
        }
        if rows.len() < ORDERS_CHUNK {
            return Ok(());
        }
    }
}

/// Payments that name no order, also those of which the ids know nothing.
async fn feed_unmatched(session: &mut Session, auditor: &mut Auditor) -> Result<()> {
    let sql = format!(
        "SELECT {} FROM payments p WHERE p.payment_no > ? \
        AND NOT EXISTS (SELECT 1 FROM order_ids i WHERE i.id = p.order_id AND i.order_no IS NOT NULL) \
        ORDER BY p.payment_no LIMIT ?",
        row::PAYMENT_COLUMNS
    );
    let mut last = i64::MIN;
    loop {
        let rows = session.rows(&sql, &[last.into(), Value::from(ORDERS_CHUNK as i64)]).await?;
        let payments: Vec<(i64, Payment)> = rows.iter().map(row::payment).collect::<Result<_>>()?;
        last = payments.last().map_or(last, |(no, _)| *no);
        for (_, payment) in money::with_refunds(session, payments).await? {
            auditor.unmatched(&payment);
        }
        if rows.len() < ORDERS_CHUNK {
            return Ok(());
        }
    }
}
