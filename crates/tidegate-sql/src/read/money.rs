//! Reads of payments and refunds.

use tidegate_backend::stored::cursor::List;
use tidegate_backend::{Page, PaymentFilter, RefundFilter};
use tidegate_core::{Map, Millis, Order, OrderId, Payment, PaymentId, Refund};

use super::{MAX_ROWS, bytes, finish, page};
use crate::fault::Result;
use crate::fetched::Row;
use crate::row;
use crate::session::{Isolation, Session};
use crate::value::{Value, number};

/// Gives each order its payments with their refunds, in two statements.
pub(crate) async fn attach(session: &mut Session, orders: impl IntoIterator<Item = &mut Order>) -> Result<()> {
    let orders: Vec<&mut Order> = orders.into_iter().collect();
    let ids: Vec<&[u8]> = orders.iter().map(|order| order.id.as_str().as_bytes()).collect();
    let mut payments = payments_of(session, &ids).await?;
    for order in orders {
        order.payments = payments.remove(&order.id).unwrap_or_default();
    }
    Ok(())
}

/// The payments that name each of these order ids, oldest first, with their refunds.
async fn payments_of(session: &mut Session, orders: &[&[u8]]) -> Result<Map<OrderId, Vec<Payment>>> {
    let mut of_order: Map<OrderId, Vec<Payment>> = Map::default();
    for (_, payment) in numbered_payments_of(session, orders).await? {
        of_order.entry(payment.order_id.clone()).or_default().push(payment);
    }
    Ok(of_order)
}

/// The payments that name one of these order ids, each with its number, oldest first, with their refunds.
pub(crate) async fn numbered_payments_of(session: &mut Session, orders: &[&[u8]]) -> Result<Vec<(i64, Payment)>> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    // Sorted here: asked to do it, PostgreSQL may walk the primary key.
    let sql = format!("SELECT {} FROM payments p WHERE p.order_id IN ?", row::PAYMENT_COLUMNS);
    let rows = session.rows(&sql, &[Value::Blobs(orders)]).await?;
    let mut payments: Vec<(i64, Payment)> = rows.iter().map(row::payment).collect::<Result<_>>()?;
    payments.sort_unstable_by_key(|(no, _)| *no);
    with_refunds(session, payments).await
}

/// Numbered payments with their refunds, in their order.
pub(super) async fn with_refunds(
    session: &mut Session,
    mut payments: Vec<(i64, Payment)>,
) -> Result<Vec<(i64, Payment)>> {
    let numbers: Vec<i64> = payments.iter().map(|(no, _)| *no).collect();
    let mut refunds: Map<i64, Vec<(i64, Refund)>> = Map::default();
    if !numbers.is_empty() {
        let sql = format!("SELECT {} FROM refunds r WHERE r.payment_no IN ?", row::REFUND_COLUMNS);
        for r in session.rows(&sql, &[Value::Ints(&numbers)]).await? {
            refunds.entry(r.int(10)?).or_default().push(row::refund(&r)?);
        }
    }
    for (no, payment) in &mut payments {
        let mut own = refunds.remove(no).unwrap_or_default();
        own.sort_unstable_by_key(|(no, _)| *no);
        payment.refunds = own.into_iter().map(|(_, refund)| refund).collect();
    }
    Ok(payments)
}

/// A `WHERE` that grows term by term, with its values.
struct Terms<'a> {
    sql: String,
    values: Vec<Value<'a>>,
}

impl<'a> Terms<'a> {
    fn new(first: &str, value: Value<'a>) -> Self {
        Self { sql: format!("WHERE {first} ?"), values: vec![value] }
    }

    fn and(&mut self, term: &str, value: Option<Value<'a>>) {
        if let Some(value) = value {
            self.values.push(value);
            self.sql.push_str(&format!(" AND {term} = ?"));
        }
    }
}

/// What MySQL is told of the index that serves: it may walk the primary key instead.
fn hint(session: &Session, index: Option<&str>) -> String {
    let hint = index.map(|index| format!(" FORCE INDEX ({index})")).unwrap_or_default();
    session.dialect().pick(hint, String::new())
}

/// Payments, newest first, from below the number `before`.
pub(crate) async fn payments(
    session: &mut Session,
    filter: &PaymentFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Payment>> {
    let mut terms = Terms::new("p.payment_no <", before.unwrap_or(i64::MAX).into());
    terms.and("p.payment_id", filter.payment_id.as_ref().map(|id| bytes(id.as_str())));
    terms.and("p.order_id", filter.order_id.as_ref().map(|id| bytes(id.as_str())));
    terms.and("p.outcome", filter.outcome.map(number));
    terms.values.push(Value::from(limit as i64 + 1));
    let index = match filter {
        PaymentFilter { payment_id: Some(_), .. } => None,
        PaymentFilter { order_id: Some(_), .. } => Some("payments_order"),
        PaymentFilter { outcome: Some(_), .. } => Some("payments_outcome"),
        _ => None,
    };
    let sql = format!(
        "SELECT {} FROM payments p{} {} ORDER BY p.payment_no DESC LIMIT ?",
        row::PAYMENT_COLUMNS,
        hint(session, index),
        terms.sql
    );
    session.begin(Isolation::Snapshot).await?;
    let read = payments_page(session, &sql, &terms.values, limit).await;
    finish(session, read).await
}

async fn payments_page(session: &mut Session, sql: &str, values: &[Value<'_>], limit: usize) -> Result<Page<Payment>> {
    let rows = session.rows(sql, values).await?;
    let numbered = |r: &Row| row::payment(r).map(|(no, payment)| (no, (no, payment)));
    let Page { items, next } = page(rows.iter().map(numbered), limit, List::Payments)?;
    let items = with_refunds(session, items).await?.into_iter().map(|(_, payment)| payment).collect();
    Ok(Page { items, next })
}

/// Refunds, newest first, from below the number `before`.
pub(crate) async fn refunds(
    session: &mut Session,
    filter: &RefundFilter,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<Refund>> {
    let mut terms = Terms::new("r.refund_no <", before.unwrap_or(i64::MAX).into());
    terms.and("r.order_id", filter.order_id.as_ref().map(|id| bytes(id.as_str())));
    terms.and("r.status", filter.status.map(number));
    terms.values.push(Value::from(limit as i64 + 1));
    let index = match filter {
        RefundFilter { order_id: Some(_), .. } => Some("refunds_order"),
        RefundFilter { status: Some(_), .. } => Some("refunds_status"),
        _ => None,
    };
    let sql = format!(
        "SELECT {} FROM refunds r{} {} ORDER BY r.refund_no DESC LIMIT ?",
        row::REFUND_COLUMNS,
        hint(session, index),
        terms.sql
    );
    let rows = session.rows(&sql, &terms.values).await?;
    page(rows.iter().map(row::refund), limit, List::Refunds)
}

/// Payments that wait for an order since before `before` and were not flagged yet, oldest first.
pub(crate) async fn stale_unmatched(session: &mut Session, before: Millis, limit: usize) -> Result<Vec<PaymentId>> {
    let sql = format!(
        "SELECT p.payment_id FROM payments p{} WHERE p.outcome = {UNMATCHED} AND p.flagged_at IS NULL AND p.received_at < ? \
        ORDER BY p.received_at LIMIT ?",
        hint(session, Some("payments_stale"))
    );
    let mut found = Vec::new();
    let read = |r: Row| {
        found.push(row::id(&r, 0)?);
        Ok(())
    };
    session.each(&sql, &[before.into(), Value::from(limit.min(MAX_ROWS) as i64)], read).await?;
    Ok(found)
}

/// The stored number of `PaymentOutcome::Unmatched`, written out so that PostgreSQL sees that its partial index serves.
const UNMATCHED: i64 = 6;
