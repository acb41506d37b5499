//! Rows of the schema as the rules' values.

use tidegate_backend::stored::codec::{Numbered, decode_lines};
use tidegate_core::command::Parked;
use tidegate_core::gate::Copy;
use tidegate_core::{
    BuyerId, Counts, Currency, IdError, JsonObject, Millis, Money, Order, OrderId, OrderNo, Payment, PaymentId, Refund,
    RefundId, Sku, SkuId, order::OrderState,
};

use crate::fault::{Fault, Result};
use crate::fetched::Row;

/// Columns that [`order`] reads, of `orders o`.
pub(crate) const ORDER_COLUMNS: &str = "o.order_no, o.id, o.buyer_id, o.status, o.placed_at, o.pay_by, o.release_at, \
    o.paid_at, o.cancelled_at, o.cancel_reason, o.fulfilled_at, o.version, o.closed, o.last_seq, o.payment_count, \
    o.requested_hold, o.supersedes, o.total, o.currency, o.line_items, o.metadata";

/// Columns that [`payment`] reads, of `payments p`.
pub(crate) const PAYMENT_COLUMNS: &str = "p.payment_no, p.payment_id, p.order_id, p.amount, p.currency, p.captured_at, \
    p.received_at, p.outcome, p.flagged_at";

/// Columns that [`refund`] reads, of `refunds r`. Its payment's id is looked up row by row, as no plan of a join can spoil.
pub(crate) const REFUND_COLUMNS: &str = "r.refund_no, r.refund_id, \
    (SELECT its.payment_id FROM payments its WHERE its.payment_no = r.payment_no), r.order_id, r.amount, r.currency, \
    r.status, r.reason, r.due_at, r.settled_at, r.payment_no";

/// Columns that [`sku`] reads, of `skus s LEFT JOIN sku_attributes a`.
pub(crate) const SKU_COLUMNS: &str = "s.sku_no, s.sku, s.on_hand, s.held, s.sold, s.stock_version, s.version, s.archived, \
    s.title, s.price, s.currency, s.hold_seconds, s.max_per_order, s.max_per_buyer, s.buyer_limit_since, s.on_sale_from, \
    a.attributes";

/// Columns that [`copy`] reads, of `skus s`.
pub(crate) const COPY_COLUMNS: &str =
    "s.sku, s.archived, s.on_sale_from, s.max_per_order, s.on_hand - s.held - s.sold, s.stock_version";

/// An id type that lies in a column of bytes.
pub(crate) trait BytesId: Sized {
    fn from_text(text: &str) -> std::result::Result<Self, IdError>;
}

macro_rules! bytes_id {
    ($($id:ty),*) => {
        $(impl BytesId for $id {
            fn from_text(text: &str) -> std::result::Result<Self, IdError> {
                Self::parse(text)
            }
        })*
    };
}

bytes_id!(SkuId, BuyerId, OrderId, PaymentId, RefundId);

/// The id in a column of bytes.
pub(crate) fn id<T: BytesId>(row: &Row, column: usize) -> Result<T> {
    id_from(row.bytes(column)?)
}

/// The id in a column of bytes, or `None` for NULL.
pub(crate) fn opt_id<T: BytesId>(row: &Row, column: usize) -> Result<Option<T>> {
    row.opt_bytes(column)?.map(id_from).transpose()
}

fn id_from<T: BytesId>(bytes: &[u8]) -> Result<T> {
    let text = std::str::from_utf8(bytes).map_err(|e| Fault::corrupt(format!("an id of the database: {e}")))?;
    T::from_text(text).map_err(|e| Fault::corrupt(format!("the id {text:?} of the database {e}")))
}

/// The name behind a stored number.
pub(crate) fn numbered<T: Numbered>(row: &Row, column: usize) -> Result<T> {
    name(row.int(column)?, column)
}

/// The name behind a stored number, or `None` for NULL.
pub(crate) fn opt_numbered<T: Numbered>(row: &Row, column: usize) -> Result<Option<T>> {
    row.opt_int(column)?.map(|n| name(n, column)).transpose()
}

fn name<T: Numbered>(n: i64, column: usize) -> Result<T> {
    T::from_number(n).ok_or_else(|| Fault::corrupt(format!("{n} in column {column} of a row names nothing")))
}

/// An instant.
pub(crate) fn millis(row: &Row, column: usize) -> Result<Millis> {
    row.int(column).map(Millis)
}

/// An instant, or `None` for NULL.
pub(crate) fn opt_millis(row: &Row, column: usize) -> Result<Option<Millis>> {
    row.opt_int(column).map(|n| n.map(Millis))
}

/// A currency, or `None` for NULL.
pub(crate) fn opt_currency(row: &Row, column: usize) -> Result<Option<Currency>> {
    let parse = |code| Currency::parse(code).ok_or_else(|| Fault::corrupt(format!("{code:?} is no currency")));
    row.opt_text(column)?.map(parse).transpose()
}

/// An amount of money, or `None` when it is NULL.
fn opt_money(row: &Row, amount: usize, currency: usize) -> Result<Option<Money>> {
    let Some(amount) = row.opt_int(amount)? else { return Ok(None) };
    match opt_currency(row, currency)? {
        Some(currency) => Ok(Some(Money { amount, currency })),
        None => Err(Fault::corrupt("an amount of the database has no currency")),
    }
}

/// A JSON object, or `None` for NULL.
fn opt_object(row: &Row, column: usize) -> Result<Option<JsonObject>> {
    row.opt_text(column).map(|text| text.map(JsonObject::from_stored))
}

/// The columns of an order's changing part, as `orders` and `events` both have them.
pub(crate) fn order_state(row: &Row, columns: [usize; 8]) -> Result<OrderState> {
    let [status, pay_by, release_at, paid_at, cancelled_at, cancel_reason, fulfilled_at, version] = columns;
    Ok(OrderState {
        status: numbered(row, status)?,
        pay_by: millis(row, pay_by)?,
        release_at: millis(row, release_at)?,
        paid_at: opt_millis(row, paid_at)?,
        cancelled_at: opt_millis(row, cancelled_at)?,
        cancel_reason: opt_numbered(row, cancel_reason)?,
        fulfilled_at: opt_millis(row, fulfilled_at)?,
        version: row.int(version)?,
    })
}

/// An order without its payments, and how many it has. `at` is the place of the first of [`ORDER_COLUMNS`].
pub(crate) fn order(row: &Row, at: usize) -> Result<(Order, i64)> {
    let currency = opt_currency(row, at + 18)?;
    let lines = decode_lines(row.bytes(at + 19)?, currency);
    let order = Order {
        no: OrderNo(row.int(at)?),
        id: id(row, at + 1)?,
        buyer_id: id(row, at + 2)?,
        lines: lines.ok_or_else(|| Fault::corrupt("the lines of an order of the database cannot be read"))?,
        total: opt_money(row, at + 17, at + 18)?,
        placed_at: millis(row, at + 4)?,
        metadata: opt_object(row, at + 20)?.unwrap_or_else(JsonObject::empty),
        requested_hold: row.opt_int(at + 15)?,
        supersedes: opt_id(row, at + 16)?,
        state: order_state(row, [at + 3, at + 5, at + 6, at + 7, at + 8, at + 9, at + 10, at + 11])?,
        closed: row.int(at + 12)? != 0,
        last_seq: row.int(at + 13)?,
        payments: Vec::new(),
    };
    Ok((order, row.int(at + 14)?))
}

/// A payment without its refunds, and its number.
pub(crate) fn payment(row: &Row) -> Result<(i64, Payment)> {
    let payment = Payment {
        id: id(row, 1)?,
        order_id: id(row, 2)?,
        amount: row.opt_int(3)?,
        currency: opt_currency(row, 4)?,
        captured_at: opt_millis(row, 5)?,
        received_at: millis(row, 6)?,
        outcome: numbered(row, 7)?,
        flagged_at: opt_millis(row, 8)?,
        refunds: Vec::new(),
    };
    Ok((row.int(0)?, payment))
}

/// A refund and its number; the number of its payment is in column 10.
pub(crate) fn refund(row: &Row) -> Result<(i64, Refund)> {
    let refund = Refund {
        id: id(row, 1)?,
        payment_id: id(row, 2)?,
        order_id: id(row, 3)?,
        amount: row.opt_int(4)?,
        currency: opt_currency(row, 5)?,
        status: numbered(row, 6)?,
        reason: numbered(row, 7)?,
        due_at: millis(row, 8)?,
        settled_at: opt_millis(row, 9)?,
    };
    Ok((row.int(0)?, refund))
}

/// A SKU and its number.
pub(crate) fn sku(row: &Row) -> Result<(i64, Sku)> {
    let sku = Sku {
        id: id(row, 1)?,
        title: row.opt_text(8)?.map(str::to_owned),
        price: opt_money(row, 9, 10)?,
        attributes: opt_object(row, 16)?,
        hold_seconds: row.opt_int(11)?,
        max_per_order: row.opt_int(12)?,
        max_per_buyer: row.opt_int(13)?,
        buyer_limit_since: opt_millis(row, 14)?,
        on_sale_from: opt_millis(row, 15)?,
        archived: row.int(7)? != 0,
        counts: Counts { on_hand: row.int(2)?, held: row.int(3)?, sold: row.int(4)? },
        version: row.int(6)?,
        stock_version: row.int(5)?,
    };
    Ok((row.int(0)?, sku))
}

/// The id of a SKU and its gate copy. `at` is the place of the first of [`COPY_COLUMNS`].
pub(crate) fn copy(row: &Row, at: usize) -> Result<(SkuId, Copy)> {
    let copy = Copy {
        archived: row.int(at + 1)? != 0,
        on_sale_from: opt_millis(row, at + 2)?,
        max_per_order: row.opt_int(at + 3)?,
        available: row.int(at + 4)?,
        stock_version: row.int(at + 5)?,
    };
    Ok((id(row, at)?, copy))
}

/// An entry of the parked list: its order's number and id, its instant, its tries, its reason.
pub(crate) fn parked(row: &Row) -> Result<Parked> {
    Ok(Parked {
        order: OrderNo(row.int(0)?),
        order_id: id(row, 1)?,
        at: millis(row, 2)?,
        tries: row.int(3)?,
        reason: row.text(4)?.to_owned(),
    })
}
