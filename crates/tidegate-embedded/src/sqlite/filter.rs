//! Lists of orders by any combination of status, buyer and SKU, newest first.

use rusqlite::{Connection, Result, Rows, params};
use tidegate_backend::{OrderFilter, Page};
use tidegate_core::{BuyerId, Order, SkuId, Status};

use super::buyers::{self, Buyers};
use super::fault::bad_value;
use super::row;
use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::cursor::{List, encode};

/// Rows one page of a combined filter looks at before it is given as it is, with a cursor to go on from.
const MAX_SCAN: usize = 20_000;

/// Orders, newest first, from below the number `before`.
pub(super) fn orders(
    conn: &Connection,
    buyers: &Buyers,
    filter: &OrderFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Order>> {
    let before = before.unwrap_or(i64::MAX);
    // Memory before the table: see `Buyers::waiting`.
    let buyer = filter.buyer_id.as_ref().map(|id| (id, buyers::hash(id)));
    let waiting = buyer.map_or_else(Vec::new, |(_, hash)| buyers.waiting(hash, before, MAX_SCAN + 1));
    let sku_no = match &filter.sku {
        None => None,
        Some(sku) => match sku_number(conn, sku)? {
            None => return Ok(Page { items: Vec::new(), next: None }),
            found => found,
        },
    };
    let status = filter.status.map(Status::number);
    let found = match (buyer, sku_no, status) {
        (Some((id, hash)), _, _) => of_buyer(conn, id, hash, waiting, status, sku_no, before, limit)?,
        (None, Some(sku), _) => of_sku(conn, sku, status, before, limit)?,
        (None, None, Some(status)) => {
            let sql = "SELECT order_no FROM orders INDEXED BY orders_status WHERE status = ?1 AND order_no < ?2 ORDER BY order_no DESC";
            collect(&mut conn.prepare_cached(sql)?.query((status, before))?, limit)?
        }
        (None, None, None) => {
            let sql = "SELECT order_no FROM orders WHERE order_no < ?1 ORDER BY order_no DESC";
            collect(&mut conn.prepare_cached(sql)?.query([before])?, limit)?
        }
    };
    let mut items = Vec::with_capacity(found.numbers.len());
    for no in found.numbers {
        items.push(
            row::order_by_number(conn, no)?.ok_or_else(|| bad_value(0, format!("order number {no} has no row")))?,
        );
    }
    Ok(Page { items, next: found.next.map(|no| encode(List::Orders, no)) })
}

/// A page being filled.
struct Found {
    numbers: Vec<i64>,
    next: Option<i64>,
    limit: usize,
    scanned: usize,
    last: Option<i64>,
}

impl Found {
    fn new(limit: usize) -> Self {
        Self { numbers: Vec::new(), next: None, limit, scanned: 0, last: None }
    }

    /// Takes a candidate; false when the page ends before it.
    fn take(&mut self, no: i64, wanted: bool) -> bool {
        if self.scanned == MAX_SCAN || (wanted && self.numbers.len() == self.limit) {
            self.next = self.last;
            return false;
        }
        self.scanned += 1;
        self.last = Some(no);
        if wanted {
            self.numbers.push(no);
        }
        true
    }
}

fn collect(rows: &mut Rows<'_>, limit: usize) -> Result<Found> {
    let mut found = Found::new(limit);
    while let Some(no) = next_number(rows)? {
        if !found.take(no, true) {
            break;
        }
    }
    Ok(found)
}

fn next_number(rows: &mut Rows<'_>) -> Result<Option<i64>> {
    rows.next()?.map(|r| r.get(0)).transpose()
}

fn of_sku(conn: &Connection, sku_no: i64, status: Option<i64>, before: i64, limit: usize) -> Result<Found> {
    let sql = "SELECT l.order_no, o.status FROM order_lines l CROSS JOIN orders o ON o.order_no = l.order_no \
        WHERE l.sku_no = ?1 AND l.order_no < ?2 ORDER BY l.order_no DESC";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query((sku_no, before))?;
    let mut found = Found::new(limit);
    while let Some(r) = rows.next()? {
        let its: i64 = r.get(1)?;
        if !found.take(r.get(0)?, status.is_none_or(|s| s == its)) {
            break;
        }
    }
    Ok(found)
}

#[expect(clippy::too_many_arguments, reason = "the parts of one filter, each used once")]
fn of_buyer(
    conn: &Connection,
    buyer: &BuyerId,
    hash: i64,
    waiting: Vec<i64>,
    status: Option<i64>,
    sku_no: Option<i64>,
    before: i64,
    limit: usize,
) -> Result<Found> {
    let sql = "SELECT order_no FROM buyer_orders WHERE buyer = ?1 AND order_no < ?2 ORDER BY order_no DESC";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query((hash, before))?;
    // An order that is newer than this read, or of another buyer with the same hash, fails this look.
    let sql = "SELECT 1 FROM orders o WHERE o.order_no = ?1 AND o.buyer_id = ?2 AND (?3 IS NULL OR o.status = ?3) \
        AND (?4 IS NULL OR EXISTS (SELECT 1 FROM order_lines l WHERE l.sku_no = ?4 AND l.order_no = ?1))";
    let mut wanted = conn.prepare_cached(sql)?;
    let mut found = Found::new(limit);
    let (mut merged, mut waiting) = (next_number(&mut rows)?, waiting.into_iter().peekable());
    while let Some(no) = merged.max(waiting.peek().copied()) {
        if merged == Some(no) {
            merged = next_number(&mut rows)?;
        }
        waiting.next_if_eq(&no);
        if !found.take(no, wanted.exists(params![no, buyer.as_str().as_bytes(), status, sku_no])?) {
            break;
        }
    }
    Ok(found)
}

fn sku_number(conn: &Connection, sku: &SkuId) -> Result<Option<i64>> {
    row::one(conn, "SELECT sku_no FROM skus WHERE sku = ?1", [sku.as_str().as_bytes()])
}
