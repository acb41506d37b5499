//! Rows of orders, events and stock changes as they are written. The ceiling loop writes the same ones.

use tidegate_backend::stored::codec::{Extra, Numbered, PaymentDoc, RefundDoc, encode_lines};
use tidegate_core::{Currency, Event, Money, Order, Sku, StockChange};

use crate::bulk::Bulk;
use crate::fault::{Class, Fault, Result};

/// A new order. `buffer` is used again from row to row.
pub(super) fn new_order(bulk: &mut Bulk, o: &Order, buffer: &mut Vec<u8>) {
    let priced = || o.lines.iter().find_map(|l| l.unit_price).map(|p| p.currency);
    let currency: Option<Currency> = o.total.map(|t| t.currency).or_else(priced);
    encode_lines(&o.lines, buffer);
    changing(bulk, o);
    bulk.int(o.requested_hold)
        .bytes(o.supersedes.as_ref().map(|s| s.as_str().as_bytes()))
        .int(o.total.map(|t| t.amount))
        .text(currency.as_ref().map(Currency::code))
        .bytes(buffer.as_slice())
        .text((!o.metadata.is_empty()).then(|| o.metadata.as_str()));
}

/// The changing part of an order there is; its lines stay as they are.
pub(super) fn old_order(bulk: &mut Bulk, o: &Order) {
    changing(bulk, o);
    bulk.bytes(&b""[..]);
}

fn changing(bulk: &mut Bulk, o: &Order) {
    let s = &o.state;
    bulk.int(o.no.0)
        .bytes(o.id.as_str().as_bytes())
        .bytes(o.buyer_id.as_str().as_bytes())
        .int(s.status.number())
        .int(o.placed_at.0)
        .int(s.pay_by.0)
        .int(s.release_at.0)
        .int(s.paid_at.map(|t| t.0))
        .int(s.cancelled_at.map(|t| t.0))
        .int(s.cancel_reason.map(Numbered::number))
        .int(s.fulfilled_at.map(|t| t.0))
        .int(s.version)
        .int(i64::from(o.closed))
        .int(o.last_seq)
        .int(o.payments.len() as i64);
}

/// An event under its cursor.
pub(super) fn event(bulk: &mut Bulk, cursor: i64, event: &Event) -> Result<()> {
    let s = event.state.as_ref();
    let plain =
        event.payments.is_empty() && event.payment.is_none() && event.refund.is_none() && event.reason.is_none();
    let extra = if plain { None } else { Some(extra_of(event)?) };
    bulk.int(cursor)
        .int(event.order.as_ref().map(|(no, _)| no.0))
        .int(event.seq)
        .int(event.kind.number())
        .int(event.at.0)
        .int(s.map(|s| s.status.number()))
        .int(s.map(|s| s.pay_by.0))
        .int(s.map(|s| s.release_at.0))
        .int(s.and_then(|s| s.paid_at).map(|t| t.0))
        .int(s.and_then(|s| s.cancelled_at).map(|t| t.0))
        .int(s.and_then(|s| s.cancel_reason).map(Numbered::number))
        .int(s.and_then(|s| s.fulfilled_at).map(|t| t.0))
        .int(s.map(|s| s.version))
        .text(extra.as_deref());
    Ok(())
}

fn extra_of(event: &Event) -> Result<String> {
    let extra = Extra {
        payments: event.payments.iter().map(PaymentDoc::from).collect(),
        payment: event.payment.as_ref().map(PaymentDoc::from),
        refund: event.refund.as_ref().map(RefundDoc::from),
        reason: event.reason.clone(),
    };
    serde_json::to_string(&extra).map_err(|e| Fault::new(Class::Data, format!("an event cannot be written: {e}")))
}

/// A row of the stock ledger.
pub(super) fn stock_change(bulk: &mut Bulk, sku_no: i64, c: &StockChange) {
    bulk.int(sku_no)
        .int(c.stock_version)
        .int(c.at.0)
        .int(c.kind.number())
        .int(c.order.as_ref().map(|(no, _)| no.0))
        .text(c.reason.as_deref())
        .int(c.delta.on_hand)
        .int(c.delta.held)
        .int(c.delta.sold)
        .int(c.after.on_hand)
        .int(c.after.held)
        .int(c.after.sold);
}

/// Id, counts and what a SKU's row must have besides.
pub(super) fn counts(bulk: &mut Bulk, sku: &Sku, now: i64) {
    let c = sku.counts;
    bulk.bytes(sku.id.as_str().as_bytes())
        .int(c.on_hand)
        .int(c.held)
        .int(c.sold)
        .int(sku.stock_version)
        .int(sku.version)
        .int(i64::from(sku.archived))
        .int(now);
}

/// What a SKU shows and limits.
pub(super) fn card(bulk: &mut Bulk, sku: &Sku) {
    let currency = sku.price.map(|p: Money| p.currency);
    bulk.text(sku.title.as_deref())
        .int(sku.price.map(|p| p.amount))
        .text(currency.as_ref().map(Currency::code))
        .int(sku.hold_seconds)
        .int(sku.max_per_order)
        .int(sku.max_per_buyer)
        .int(sku.buyer_limit_since.map(|t| t.0))
        .int(sku.on_sale_from.map(|t| t.0));
}
