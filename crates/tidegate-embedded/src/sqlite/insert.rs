//! Rows of an order and how they are inserted. The ceiling loop uses the same statements, so that it does the same work.

use rusqlite::{Connection, Error as Sql, Result};
use tidegate_core::{Event, Order};

use tidegate_backend::stored::codec::{Extra, Numbered, PaymentDoc, RefundDoc};

pub(super) const INSERT_ORDER: &str = "INSERT INTO orders (order_no, id, buyer_id, status, placed_at, pay_by, release_at, paid_at, \
    cancelled_at, cancel_reason, fulfilled_at, version, closed, last_seq, payment_count, first_cursor, requested_hold, supersedes, \
    total, currency, lines, metadata) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
    ?20, ?21, ?22)";
pub(super) const INSERT_ID: &str = "INSERT INTO order_ids (id, order_no, tombstone_at, loose) VALUES (?1, ?2, ?3, ?4)";
pub(super) const INSERT_LINE: &str = "INSERT INTO order_lines (sku_no, order_no, quantity) VALUES (?1, ?2, ?3)";
pub(super) const INSERT_STOCK: &str = "INSERT INTO stock_changes (sku_no, stock_version, at, kind, order_no, reason, on_hand_delta, \
    held_delta, sold_delta, on_hand, held, sold) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
pub(super) const INSERT_EVENT: &str = "INSERT INTO events (cursor, order_no, seq, kind, at, status, pay_by, release_at, paid_at, \
    cancelled_at, cancel_reason, fulfilled_at, version, extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
pub(super) const UPDATE_COUNTS: &str =
    "UPDATE skus SET on_hand = ?2, held = ?3, sold = ?4, stock_version = ?5, changed_at = ?6 WHERE sku_no = ?1";

/// Inserts an order; `lines` are its encoded lines.
pub(super) fn insert_order(
    insert: &mut rusqlite::Statement<'_>,
    o: &Order,
    first_cursor: Option<i64>,
    lines: &[u8],
) -> Result<usize> {
    let s = &o.state;
    let currency =
        o.total.map(|t| t.currency).or_else(|| o.lines.iter().find_map(|l| l.unit_price).map(|p| p.currency));
    insert.execute(rusqlite::params![
        o.no.0,
        o.id.as_str().as_bytes(),
        o.buyer_id.as_str().as_bytes(),
        s.status.number(),
        o.placed_at.0,
        s.pay_by.0,
        s.release_at.0,
        s.paid_at.map(|t| t.0),
        s.cancelled_at.map(|t| t.0),
        s.cancel_reason.map(Numbered::number),
        s.fulfilled_at.map(|t| t.0),
        s.version,
        o.closed,
        o.last_seq,
        o.payments.len() as i64,
        first_cursor,
        o.requested_hold,
        o.supersedes.as_ref().map(|s| s.as_str().as_bytes()),
        o.total.map(|t| t.amount),
        currency.as_ref().map(|c| c.code()),
        lines,
        (!o.metadata.is_empty()).then(|| o.metadata.as_str()),
    ])
}

/// Inserts an event under its cursor.
pub(super) fn insert_event(insert: &mut rusqlite::Statement<'_>, cursor: i64, event: &Event) -> Result<usize> {
    let s = event.state.as_ref();
    let plain =
        event.payments.is_empty() && event.payment.is_none() && event.refund.is_none() && event.reason.is_none();
    let extra = if plain { None } else { Some(extra_of(event)?) };
    insert.execute((
        cursor,
        event.order.as_ref().map(|(no, _)| no.0),
        event.seq,
        event.kind.number(),
        event.at.0,
        s.map(|s| s.status.number()),
        s.map(|s| s.pay_by.0),
        s.map(|s| s.release_at.0),
        s.and_then(|s| s.paid_at).map(|t| t.0),
        s.and_then(|s| s.cancelled_at).map(|t| t.0),
        s.and_then(|s| s.cancel_reason).map(Numbered::number),
        s.and_then(|s| s.fulfilled_at).map(|t| t.0),
        s.map(|s| s.version),
        extra,
    ))
}

fn extra_of(event: &Event) -> Result<String> {
    let extra = Extra {
        payments: event.payments.iter().map(PaymentDoc::from).collect(),
        payment: event.payment.as_ref().map(PaymentDoc::from),
        refund: event.refund.as_ref().map(RefundDoc::from),
        reason: event.reason.clone(),
    };
    serde_json::to_string(&extra).map_err(|e| Sql::ToSqlConversionFailure(e.into()))
}

/// Writes what a SKU shows and limits (its counts are written apart).
pub(super) fn write_card(conn: &Connection, no: i64, sku: &tidegate_core::Sku) -> Result<()> {
    let sql = "UPDATE skus SET version = ?2, archived = ?3, title = ?4, price = ?5, currency = ?6, hold_seconds = ?7, \
        max_per_order = ?8, max_per_buyer = ?9, buyer_limit_since = ?10, on_sale_from = ?11 WHERE sku_no = ?1";
    conn.prepare_cached(sql)?.execute((
        no,
        sku.version,
        sku.archived,
        sku.title.as_deref(),
        sku.price.map(|p| p.amount),
        sku.price.as_ref().map(|p| p.currency.code()),
        sku.hold_seconds,
        sku.max_per_order,
        sku.max_per_buyer,
        sku.buyer_limit_since.map(|t| t.0),
        sku.on_sale_from.map(|t| t.0),
    ))?;
    match &sku.attributes {
        Some(attributes) => {
            let sql = "INSERT OR REPLACE INTO sku_attributes (sku_no, attributes) VALUES (?1, ?2)";
            conn.prepare_cached(sql)?.execute((no, attributes.as_str()))?;
        }
        None => {
            conn.prepare_cached("DELETE FROM sku_attributes WHERE sku_no = ?1")?.execute([no])?;
        }
    }
    Ok(())
}
