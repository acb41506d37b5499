//! Lists of orders by any combination of status, buyer and SKU, newest first.
//!
//! One term leads through its index; the others are looked at in the orders it names. How many it may name is bounded,
//! so that a rare combination gives a short page with a cursor to go on from, never a read of the whole table.

use tidegate_backend::stored::cursor::{List, encode};
use tidegate_backend::{OrderFilter, Page};
use tidegate_core::{Order, SkuId};

use super::{bytes, finish, money, page};
use crate::fault::Result;
use crate::row;
use crate::session::{Isolation, Session};
use crate::value::{Value, number};

/// Orders that one page of a combined filter looks at.
const MAX_SCAN: i64 = 10_000;

/// Orders, newest first, from below the number `before`.
pub(crate) async fn orders(
    session: &mut Session,
    filter: &OrderFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Order>> {
    session.begin(Isolation::Snapshot).await?;
    let read = filtered(session, filter, before.unwrap_or(i64::MAX), limit).await;
    finish(session, read).await
}

/// Where the numbers of orders come from: a table and its index, and what leads into it.
struct Lead<'a> {
    table: &'static str,
    term: &'static str,
    value: Option<Value<'a>>,
}

impl Lead<'_> {
    /// The numbers below one, newest first, as many as the last value says.
    fn numbers(&self) -> String {
        let Lead { table, term, .. } = self;
        format!("SELECT order_no FROM {table} WHERE {term} order_no < ? ORDER BY order_no DESC LIMIT ?")
    }

    fn values(&self, before: i64) -> Vec<Value<'_>> {
        self.value.into_iter().chain([Value::from(before)]).collect()
    }
}

async fn filtered(session: &mut Session, filter: &OrderFilter, before: i64, limit: usize) -> Result<Page<Order>> {
    let sku_no = match &filter.sku {
        None => None,
        Some(sku) => match sku_number(session, sku).await? {
            None => return Ok(Page { items: Vec::new(), next: None }),
            found => found,
        },
    };
    let status = filter.status.map(number);
    // MySQL is told the index: for `ORDER BY .. LIMIT` it may walk the primary key instead.
    let hint = session
        .dialect()
        .pick(["orders FORCE INDEX (orders_buyer)", "orders FORCE INDEX (orders_status)"], ["orders"; 2]);
    let mut terms: Vec<(&str, Value<'_>)> = Vec::new();
    let lead = if let Some(buyer) = &filter.buyer_id {
        terms.extend(status.map(|s| ("o.status = ?", s)));
        let has_line = "EXISTS (SELECT 1 FROM order_lines l WHERE l.order_no = o.order_no AND l.sku_no = ?)";
        terms.extend(sku_no.map(|no| (has_line, no.into())));
        Lead { table: hint[0], term: "buyer_id = ? AND", value: Some(bytes(buyer.as_str())) }
    } else if let Some(no) = sku_no {
        terms.extend(status.map(|s| ("o.status = ?", s)));
        Lead { table: "order_lines", term: "sku_no = ? AND", value: Some(no.into()) }
    } else if status.is_some() {
        Lead { table: hint[1], term: "status = ? AND", value: status }
    } else {
        Lead { table: "orders", term: "", value: None }
    };
    let scan = if terms.is_empty() { limit as i64 + 1 } else { MAX_SCAN };
    let mut page = matching(session, &lead, &terms, (before, scan), limit).await?;
    if page.next.is_none() && !terms.is_empty() {
        page.next = end_of_scan(session, &lead, before).await?.map(|no| encode(List::Orders, no));
    }
    Ok(page)
}

/// The page of those among the first `scan` orders below `before` that meet `terms`.
async fn matching(
    session: &mut Session,
    lead: &Lead<'_>,
    terms: &[(&str, Value<'_>)],
    (before, scan): (i64, i64),
    limit: usize,
) -> Result<Page<Order>> {
    let mut sql =
        format!("SELECT {} FROM ({}) w JOIN orders o ON o.order_no = w.order_no", row::ORDER_COLUMNS, lead.numbers());
    let mut values = lead.values(before);
    values.push(scan.into());
    for (at, (term, value)) in terms.iter().enumerate() {
        sql.push_str(if at == 0 { " WHERE " } else { " AND " });
        sql.push_str(term);
        values.push(*value);
    }
    sql.push_str(" ORDER BY o.order_no DESC LIMIT ?");
    values.push(Value::from(limit as i64 + 1));
    let rows = session.rows(&sql, &values).await?;
    let read = rows.iter().map(|r| row::order(r, 0).map(|(order, payments)| (order.no.0, (order, payments))));
    let Page { items, next } = page(read, limit, List::Orders)?;
    let mut items: Vec<(Order, i64)> = items;
    let paid = items.iter_mut().filter(|(_, payments)| *payments > 0).map(|(order, _)| order);
    money::attach(session, paid).await?;
    Ok(Page { items: items.into_iter().map(|(order, _)| order).collect(), next })
}

/// The last order that a page of [`MAX_SCAN`] has looked at; `None` when there are no more.
async fn end_of_scan(session: &mut Session, lead: &Lead<'_>, before: i64) -> Result<Option<i64>> {
    let sql = format!("{} OFFSET {}", lead.numbers(), MAX_SCAN - 1);
    let mut values = lead.values(before);
    values.push(1.into());
    session.one(&sql, &values).await?.map(|r| r.int(0)).transpose()
}

async fn sku_number(session: &mut Session, sku: &SkuId) -> Result<Option<i64>> {
    let found = session.one("SELECT sku_no FROM skus WHERE sku = ?", &[bytes(sku.as_str())]).await?;
    found.map(|r| r.int(0)).transpose()
}
