//! Reads of orders, their deadlines and the parked list.

use rusqlite::{Connection, Result, params};
use tidegate_backend::{OrderFilter, Page};
use tidegate_core::command::Parked;
use tidegate_core::{Millis, Order, OrderId, OrderNo, SkuId, Status};

use super::codec::Numbered;
use super::cursor::{List, encode};
use super::fault::bad_value;
use super::{load, row};

/// Rows one page of a combined filter looks at before it is given as it is, with a cursor to go on from.
const MAX_SCAN: usize = 20_000;

/// The number of the order with this id.
pub(super) fn number(conn: &Connection, id: &OrderId) -> Result<Option<i64>> {
    row::one(conn, "SELECT order_no FROM order_ids WHERE id = ?1", [id.as_str().as_bytes()]).map(Option::flatten)
}

/// The order with this id.
pub(super) fn order(conn: &Connection, id: &OrderId) -> Result<Option<Order>> {
    match number(conn, id)? {
        Some(no) => row::order_by_number(conn, no),
        None => Ok(None),
    }
}

/// Pending orders by deadline.
pub(super) fn deadlines(conn: &Connection, before: Option<Millis>, after: Option<(Millis, OrderNo)>, limit: usize) -> Result<Vec<(OrderNo, Millis)>> {
    let (at, no) = after.map_or((i64::MIN, i64::MIN), |(at, no)| (at.0, no.0));
    let sql = "SELECT order_no, release_at FROM orders INDEXED BY orders_due WHERE status = 0 AND (release_at, order_no) > (?1, ?2) \
        AND release_at < ?3 ORDER BY release_at, order_no LIMIT ?4";
    let mut select = conn.prepare_cached(sql)?;
    let rows = select.query_map((at, no, before.map_or(i64::MAX, |b| b.0), limit as i64), |r| Ok((OrderNo(r.get(0)?), Millis(r.get(1)?))))?;
    rows.collect()
}

/// Orders, newest first, from below the number `before`.
pub(super) fn orders(conn: &Connection, filter: &OrderFilter, before: Option<i64>, limit: usize) -> Result<Page<Order>> {
    let sku_no = match &filter.sku {
        None => None,
        Some(sku) => match sku_number(conn, sku)? {
            None => return Ok(Page { items: Vec::new(), next: None }),
            found => found,
        },
    };
    let found = numbers(conn, filter, sku_no, before.unwrap_or(i64::MAX), limit)?;
    let mut items = Vec::with_capacity(found.numbers.len());
    for no in found.numbers {
        items.push(row::order_by_number(conn, no)?.ok_or_else(|| bad_value(0, format!("order number {no} has no row")))?);
    }
    Ok(Page { items, next: found.next.map(|no| encode(List::Orders, no)) })
}

struct Found {
    numbers: Vec<i64>,
    next: Option<i64>,
}

/// The numbers of a page: one index gives candidates newest first, each is held against the rest of the filter.
fn numbers(conn: &Connection, filter: &OrderFilter, sku_no: Option<i64>, before: i64, limit: usize) -> Result<Found> {
    let status = filter.status.map(Status::number);
    let buyer = filter.buyer_id.as_ref().map(|b| b.as_str().as_bytes());
    let (by_buyer, by_sku) = (
        "SELECT order_no, status, buyer_id FROM orders INDEXED BY orders_buyer WHERE buyer_id = ?1 AND order_no < ?2 ORDER BY order_no DESC",
        "SELECT l.order_no, o.status, o.buyer_id FROM order_lines l CROSS JOIN orders o ON o.order_no = l.order_no \
            WHERE l.sku_no = ?1 AND l.order_no < ?2 ORDER BY l.order_no DESC",
    );
    let by_status =
        "SELECT order_no, status, NULL FROM orders INDEXED BY orders_status WHERE status = ?1 AND order_no < ?2 ORDER BY order_no DESC";
    let all = "SELECT order_no, status, NULL FROM orders WHERE ?1 IS NULL AND order_no < ?2 ORDER BY order_no DESC";
    let mut select = conn.prepare_cached(match (buyer, sku_no, status) {
        (Some(_), _, _) => by_buyer,
        (None, Some(_), _) => by_sku,
        (None, None, Some(_)) => by_status,
        (None, None, None) => all,
    })?;
    let mut has_line = conn.prepare_cached("SELECT 1 FROM order_lines WHERE sku_no = ?1 AND order_no = ?2")?;
    let mut rows = match (buyer, sku_no) {
        (Some(buyer), _) => select.query(params![buyer, before])?,
        (None, Some(sku)) => select.query(params![sku, before])?,
        (None, None) => select.query(params![status, before])?,
    };
    let mut numbers = Vec::new();
    let mut scanned = 0;
    let mut last = before;
    while let Some(r) = rows.next()? {
        if scanned == MAX_SCAN {
            return Ok(Found { numbers, next: Some(last) });
        }
        scanned += 1;
        let (no, its_status): (i64, i64) = (r.get(0)?, r.get(1)?);
        let wanted = status.is_none_or(|s| s == its_status)
            && match (buyer, sku_no) {
                (Some(_), Some(sku)) => has_line.exists((sku, no))?,
                _ => true,
            };
        if wanted {
            // One more than the page holds: there is a next page.
            if numbers.len() == limit {
                return Ok(Found { numbers, next: Some(last) });
            }
            numbers.push(no);
        }
        last = no;
    }
    Ok(Found { numbers, next: None })
}

fn sku_number(conn: &Connection, sku: &SkuId) -> Result<Option<i64>> {
    row::one(conn, "SELECT sku_no FROM skus WHERE sku = ?1", [sku.as_str().as_bytes()])
}

/// The parked list, newest first, from below the number `before`.
pub(super) fn parked(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Page<Parked>> {
    let sql = "SELECT k.order_no, o.id, k.at, k.tries, k.reason, k.parked_no FROM parked k JOIN orders o ON o.order_no = k.order_no \
        WHERE k.parked_no < ?1 ORDER BY k.parked_no DESC LIMIT ?2";
    let mut select = conn.prepare_cached(sql)?;
    let rows = select.query_map((before.unwrap_or(i64::MAX), limit as i64 + 1), |r| Ok((r.get(5)?, load::parked(r)?)))?;
    page(rows, limit, List::Parked)
}

/// A page of numbered items from rows of which one more than `limit` was asked for.
pub(super) fn page<T>(rows: impl Iterator<Item = Result<(i64, T)>>, limit: usize, list: List) -> Result<Page<T>> {
    let mut items = Vec::new();
    let mut last = 0;
    for row in rows {
        let (number, item) = row?;
        if items.len() == limit {
            return Ok(Page { items, next: Some(encode(list, last)) });
        }
        last = number;
        items.push(item);
    }
    Ok(Page { items, next: None })
}
