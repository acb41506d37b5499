//! Rows of the schema as the rules' values.

use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Result, Row};
use tidegate_core::{
    BuyerId, Counts, Currency, IdError, JsonObject, Millis, Money, Order, OrderId, OrderNo, Payment, PaymentId, Refund,
    RefundId, Sku, SkuId, order::OrderState,
};

use super::fault::bad_value;
use tidegate_backend::stored::codec::{Numbered, decode_lines};

/// Columns that [`order`] reads, of `orders o`.
pub(super) const ORDER_COLUMNS: &str = "o.order_no, o.id, o.buyer_id, o.status, o.placed_at, o.pay_by, o.release_at, \
    o.paid_at, o.cancelled_at, o.cancel_reason, o.fulfilled_at, o.version, o.closed, o.last_seq, o.payment_count, \
    o.requested_hold, o.supersedes, o.total, o.currency, o.lines, o.metadata";

/// Columns that [`payment`] reads.
pub(super) const PAYMENT_COLUMNS: &str =
    "payment_no, payment_id, order_id, amount, currency, captured_at, received_at, outcome, flagged_at";

/// Columns that [`refund`] reads, of `refunds r JOIN payments p`.
pub(super) const REFUND_COLUMNS: &str = "r.refund_no, r.refund_id, p.payment_id, r.order_id, r.amount, r.currency, r.status, r.reason, r.due_at, r.settled_at";

/// Columns that [`sku`] reads, of `skus s LEFT JOIN sku_attributes a`.
pub(super) const SKU_COLUMNS: &str = "s.sku_no, s.sku, s.on_hand, s.held, s.sold, s.stock_version, s.version, s.archived, \
    s.title, s.price, s.currency, s.hold_seconds, s.max_per_order, s.max_per_buyer, s.buyer_limit_since, s.on_sale_from, \
    a.attributes";

/// An id type that lies in a BLOB.
pub(super) trait BlobId: Sized {
    fn from_text(text: &str) -> std::result::Result<Self, IdError>;
}

macro_rules! blob_id {
    ($($id:ty),*) => {
        $(impl BlobId for $id {
            fn from_text(text: &str) -> std::result::Result<Self, IdError> {
                Self::parse(text)
            }
        })*
    };
}

blob_id!(SkuId, BuyerId, OrderId, PaymentId, RefundId);

/// The id in a BLOB column.
pub(super) fn id<T: BlobId>(row: &Row<'_>, column: usize) -> Result<T> {
    opt_id(row, column)?.ok_or_else(|| bad_value(column, "an id is missing"))
}

/// The id in a BLOB column, or `None` for NULL.
pub(super) fn opt_id<T: BlobId>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|e| bad_value(column, e.to_string()))?;
            T::from_text(text).map(Some).map_err(|e| bad_value(column, format!("id {text:?} {e}")))
        }
        _ => Err(bad_value(column, "an id is no BLOB")),
    }
}

/// The name behind a stored number.
pub(super) fn numbered<T: Numbered>(row: &Row<'_>, column: usize) -> Result<T> {
    opt_numbered(row, column)?.ok_or_else(|| bad_value(column, "a value is missing"))
}

/// The name behind a stored number, or `None` for NULL.
pub(super) fn opt_numbered<T: Numbered>(row: &Row<'_>, column: usize) -> Result<Option<T>> {
    let number: Option<i64> = row.get(column)?;
    number.map(|n| T::from_number(n).ok_or_else(|| bad_value(column, format!("{n} names nothing here")))).transpose()
}

/// An instant.
pub(super) fn millis(row: &Row<'_>, column: usize) -> Result<Millis> {
    row.get(column).map(Millis)
}

/// An instant, or `None` for NULL.
pub(super) fn opt_millis(row: &Row<'_>, column: usize) -> Result<Option<Millis>> {
    row.get::<_, Option<i64>>(column).map(|n| n.map(Millis))
}

/// A currency, or `None` for NULL.
pub(super) fn opt_currency(row: &Row<'_>, column: usize) -> Result<Option<Currency>> {
    let code: Option<&str> = opt_str(row, column)?;
    code.map(|c| Currency::parse(c).ok_or_else(|| bad_value(column, format!("{c:?} is no currency")))).transpose()
}

/// A text that is only looked at.
pub(super) fn opt_str<'a>(row: &'a Row<'_>, column: usize) -> Result<Option<&'a str>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        value => value.as_str().map(Some).map_err(|e| bad_value(column, e.to_string())),
    }
}

/// The columns of an order's changing part, from `first` on, as `orders` and `events` both have them.
pub(super) fn order_state(row: &Row<'_>, columns: [usize; 8]) -> Result<OrderState> {
    let [status, pay_by, release_at, paid_at, cancelled_at, cancel_reason, fulfilled_at, version] = columns;
    Ok(OrderState {
        status: numbered(row, status)?,
        pay_by: millis(row, pay_by)?,
        release_at: millis(row, release_at)?,
        paid_at: opt_millis(row, paid_at)?,
        cancelled_at: opt_millis(row, cancelled_at)?,
        cancel_reason: opt_numbered(row, cancel_reason)?,
        fulfilled_at: opt_millis(row, fulfilled_at)?,
        version: row.get(version)?,
    })
}

/// An order without its payments, and how many it has. `at` is the place of the first of [`ORDER_COLUMNS`].
pub(super) fn order(row: &Row<'_>, at: usize) -> Result<(Order, i64)> {
    let currency = opt_currency(row, at + 18)?;
    let total: Option<i64> = row.get(at + 17)?;
    let total = total.map(|amount| {
        currency
            .map(|currency| Money { amount, currency })
            .ok_or_else(|| bad_value(at + 18, "a total without a currency"))
    });
    let lines = row.get_ref(at + 19)?.as_blob().ok().and_then(|bytes| decode_lines(bytes, currency));
    let order = Order {
        no: OrderNo(row.get(at)?),
        id: id(row, at + 1)?,
        buyer_id: id(row, at + 2)?,
        lines: lines.ok_or_else(|| bad_value(at + 19, "order lines cannot be read"))?,
        total: total.transpose()?,
        placed_at: millis(row, at + 4)?,
        metadata: opt_str(row, at + 20)?.map_or_else(JsonObject::empty, JsonObject::from_stored),
        requested_hold: row.get(at + 15)?,
        supersedes: opt_id(row, at + 16)?,
        state: order_state(row, [at + 3, at + 5, at + 6, at + 7, at + 8, at + 9, at + 10, at + 11])?,
        closed: row.get(at + 12)?,
        last_seq: row.get(at + 13)?,
        payments: Vec::new(),
    };
    Ok((order, row.get(at + 14)?))
}

/// A payment without its refunds, and its number.
pub(super) fn payment(row: &Row<'_>) -> Result<(i64, Payment)> {
    let payment = Payment {
        id: id(row, 1)?,
        order_id: id(row, 2)?,
        amount: row.get(3)?,
        currency: opt_currency(row, 4)?,
        captured_at: opt_millis(row, 5)?,
        received_at: millis(row, 6)?,
        outcome: numbered(row, 7)?,
        flagged_at: opt_millis(row, 8)?,
        refunds: Vec::new(),
    };
    Ok((row.get(0)?, payment))
}

/// A refund and its number.
pub(super) fn refund(row: &Row<'_>) -> Result<(i64, Refund)> {
    let refund = Refund {
        id: id(row, 1)?,
        payment_id: id(row, 2)?,
        order_id: id(row, 3)?,
        amount: row.get(4)?,
        currency: opt_currency(row, 5)?,
        status: numbered(row, 6)?,
        reason: numbered(row, 7)?,
        due_at: millis(row, 8)?,
        settled_at: opt_millis(row, 9)?,
    };
    Ok((row.get(0)?, refund))
}

/// A SKU and its number.
pub(super) fn sku(row: &Row<'_>) -> Result<(i64, Sku)> {
    let currency = opt_currency(row, 10)?;
    let price: Option<i64> = row.get(9)?;
    let price = price.map(|amount| {
        currency.map(|currency| Money { amount, currency }).ok_or_else(|| bad_value(10, "a price without a currency"))
    });
    let sku = Sku {
        id: id(row, 1)?,
        title: row.get(8)?,
        price: price.transpose()?,
        attributes: opt_str(row, 16)?.map(JsonObject::from_stored),
        hold_seconds: row.get(11)?,
        max_per_order: row.get(12)?,
        max_per_buyer: row.get(13)?,
        buyer_limit_since: opt_millis(row, 14)?,
        on_sale_from: opt_millis(row, 15)?,
        archived: row.get(7)?,
        counts: Counts { on_hand: row.get(2)?, held: row.get(3)?, sold: row.get(4)? },
        version: row.get(6)?,
        stock_version: row.get(5)?,
    };
    Ok((row.get(0)?, sku))
}

/// The payments that name `order_id`, oldest first, each with its refunds.
pub(super) fn payments_of(conn: &Connection, order_id: &OrderId) -> Result<Vec<Payment>> {
    let sql = format!("SELECT {PAYMENT_COLUMNS} FROM payments WHERE order_id = ?1 ORDER BY payment_no");
    let mut select = conn.prepare_cached(&sql)?;
    let rows = select.query_map([order_id.as_str().as_bytes()], payment)?;
    let mut payments = Vec::new();
    for row in rows {
        let (no, mut payment) = row?;
        payment.refunds = refunds_of(conn, no)?;
        payments.push(payment);
    }
    Ok(payments)
}

/// The refunds of one payment, oldest first.
pub(super) fn refunds_of(conn: &Connection, payment_no: i64) -> Result<Vec<Refund>> {
    let sql = format!(
        "SELECT {REFUND_COLUMNS} FROM refunds r JOIN payments p ON p.payment_no = r.payment_no WHERE r.payment_no = ?1 ORDER BY r.refund_no"
    );
    let mut select = conn.prepare_cached(&sql)?;
    select.query_map([payment_no], |row| refund(row).map(|(_, r)| r))?.collect()
}

/// The order with this number, payments included.
pub(super) fn order_by_number(conn: &Connection, no: i64) -> Result<Option<Order>> {
    let sql = format!("SELECT {ORDER_COLUMNS} FROM orders o WHERE o.order_no = ?1");
    let found = conn.prepare_cached(&sql)?.query_row([no], |row| order(row, 0)).optional()?;
    let Some((mut order, payments)) = found else { return Ok(None) };
    if payments > 0 {
        order.payments = payments_of(conn, &order.id)?;
    }
    Ok(Some(order))
}

/// One value of one row, if there is such a row.
pub(super) fn one<T: FromSql>(conn: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Option<T>> {
    conn.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()
}
