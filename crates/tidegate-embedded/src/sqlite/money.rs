//! Reads of payments and refunds.

use rusqlite::{Connection, Result, params_from_iter, types::Value};
use tidegate_backend::{Page, PaymentFilter, RefundFilter};
use tidegate_core::{Millis, Payment, PaymentId, PaymentOutcome, Refund};

use super::orders::page;
use super::row;
use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::cursor::List;

/// A `WHERE` that grows term by term, with its values.
struct Terms {
    sql: String,
    values: Vec<Value>,
}

impl Terms {
    fn new(first: &str, value: i64) -> Self {
        Self { sql: format!("{first} ?1"), values: vec![Value::Integer(value)] }
    }

    fn and(&mut self, term: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.values.push(value);
            self.sql.push_str(&format!(" AND {term} = ?{}", self.values.len()));
        }
    }
}

fn blob(text: &str) -> Value {
    Value::Blob(text.as_bytes().to_vec())
}

/// Payments, newest first, from below the number `before`.
pub(super) fn payments(
    conn: &Connection,
    filter: &PaymentFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Payment>> {
    let mut terms = Terms::new("payment_no <", before.unwrap_or(i64::MAX));
    terms.and("payment_id", filter.payment_id.as_ref().map(|id| blob(id.as_str())));
    terms.and("order_id", filter.order_id.as_ref().map(|id| blob(id.as_str())));
    terms.and("outcome", filter.outcome.map(|o| Value::Integer(o.number())));
    // The index leaves out `applied`, by far the most common: for the others the planner must see that it serves.
    if filter.outcome.is_some_and(|o| o != PaymentOutcome::Applied) {
        terms.sql.push_str(" AND outcome <> 0");
    }
    terms.values.push(Value::Integer(limit as i64 + 1));
    let sql = format!(
        "SELECT {} FROM payments WHERE {} ORDER BY payment_no DESC LIMIT ?{}",
        row::PAYMENT_COLUMNS,
        terms.sql,
        terms.values.len()
    );
    let mut select = conn.prepare_cached(&sql)?;
    let rows = select.query_map(params_from_iter(terms.values), row::payment)?;
    let mut page = page(rows.map(|row| row.map(|(no, p)| (no, (no, p)))), limit, List::Payments)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (no, mut payment) in std::mem::take(&mut page.items) {
        payment.refunds = row::refunds_of(conn, no)?;
        items.push(payment);
    }
    Ok(Page { items, next: page.next })
}

/// Refunds, newest first, from below the number `before`.
pub(super) fn refunds(
    conn: &Connection,
    filter: &RefundFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Refund>> {
    let mut terms = Terms::new("r.refund_no <", before.unwrap_or(i64::MAX));
    terms.and("r.order_id", filter.order_id.as_ref().map(|id| blob(id.as_str())));
    terms.and("r.status", filter.status.map(|s| Value::Integer(s.number())));
    terms.values.push(Value::Integer(limit as i64 + 1));
    let sql = format!(
        "SELECT {} FROM refunds r CROSS JOIN payments p ON p.payment_no = r.payment_no WHERE {} ORDER BY r.refund_no DESC LIMIT ?{}",
        row::REFUND_COLUMNS,
        terms.sql,
        terms.values.len()
    );
    let mut select = conn.prepare_cached(&sql)?;
    page(select.query_map(params_from_iter(terms.values), row::refund)?, limit, List::Refunds)
}

/// Payments that wait for an order since before `before` and were not flagged yet, oldest first.
pub(super) fn stale_unmatched(conn: &Connection, before: Millis, limit: usize) -> Result<Vec<PaymentId>> {
    let sql = "SELECT payment_id FROM payments INDEXED BY payments_stale WHERE outcome = 6 AND flagged_at IS NULL AND received_at < ?1 \
        ORDER BY received_at LIMIT ?2";
    let mut select = conn.prepare_cached(sql)?;
    select.query_map((before.0, limit as i64), |r| row::id(r, 0))?.collect()
}
