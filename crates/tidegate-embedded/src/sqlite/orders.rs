//! Reads of orders, their deadlines and the parked list.

use rusqlite::{Connection, Result};
use tidegate_backend::Page;
use tidegate_core::command::Parked;
use tidegate_core::{Millis, Order, OrderId, OrderNo};

use super::{load, row};
use tidegate_backend::stored::cursor::{List, encode};

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

/// Pending orders by deadline, without those on the parked list, after `after`, due before `before`.
///
/// In two steps, so that a million orders of one instant do not make each page walk past all that came before it.
pub(super) fn deadlines(
    conn: &Connection,
    before: Option<Millis>,
    after: Option<(Millis, OrderNo)>,
    limit: usize,
) -> Result<Vec<(OrderNo, Millis)>> {
    let before = before.map_or(i64::MAX, |b| b.0);
    let mut due = Vec::new();
    let read = |r: &rusqlite::Row<'_>| Ok((OrderNo(r.get(0)?), Millis(r.get(1)?)));
    if let Some((at, no)) = after.filter(|(at, _)| at.0 < before) {
        let sql = "SELECT order_no, release_at FROM orders o INDEXED BY orders_due WHERE status = 0 AND release_at = ?1 AND order_no > ?2 \
            AND NOT EXISTS (SELECT 1 FROM parked k WHERE k.order_no = o.order_no) ORDER BY order_no LIMIT ?3";
        due = conn.prepare_cached(sql)?.query_map((at.0, no.0, limit as i64), read)?.collect::<Result<_>>()?;
    }
    let sql = "SELECT order_no, release_at FROM orders o INDEXED BY orders_due WHERE status = 0 AND release_at > ?1 AND release_at < ?2 \
        AND NOT EXISTS (SELECT 1 FROM parked k WHERE k.order_no = o.order_no) ORDER BY release_at, order_no LIMIT ?3";
    let from = after.map_or(i64::MIN, |(at, _)| at.0);
    let left = limit.saturating_sub(due.len()) as i64;
    if left > 0 {
        let mut select = conn.prepare_cached(sql)?;
        for row in select.query_map((from, before, left), read)? {
            due.push(row?);
        }
    }
    Ok(due)
}

/// The parked list, newest first, from below the number `before`.
pub(super) fn parked(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Page<Parked>> {
    let sql = "SELECT k.order_no, o.id, k.at, k.tries, k.reason, k.parked_no FROM parked k JOIN orders o ON o.order_no = k.order_no \
        WHERE k.parked_no < ?1 AND o.status = 0 ORDER BY k.parked_no DESC LIMIT ?2";
    let mut select = conn.prepare_cached(sql)?;
    let rows =
        select.query_map((before.unwrap_or(i64::MAX), limit as i64 + 1), |r| Ok((r.get(5)?, load::parked(r)?)))?;
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
