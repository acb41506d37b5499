//! How values lie in columns: numbers for names, order lines in a short binary form, an event's extras as JSON.

use serde::{Deserialize, Serialize};
use tidegate_core::order::OrderState;
use tidegate_core::{
    CancelReason, Currency, Event, EventKind, Line, Millis, Money, Order, Payment, PaymentOutcome, Refund,
    RefundReason, RefundStatus, SkuId, Status, StockKind,
};

use crate::EventRecord;

/// A name and its stored number; numbers are never given to another name.
pub trait Numbered: Copy + PartialEq + Sized + 'static {
    /// Every name; its place is its number.
    const ALL: &'static [Self];

    /// The stored number.
    fn number(self) -> i64 {
        let at = Self::ALL.iter().position(|v| *v == self);
        at.expect("every value is listed") as i64
    }

    /// The name with this number.
    fn from_number(n: i64) -> Option<Self> {
        usize::try_from(n).ok().and_then(|i| Self::ALL.get(i)).copied()
    }
}

impl Numbered for Status {
    const ALL: &'static [Self] = &[Self::Pending, Self::Paid, Self::Cancelled, Self::Fulfilled];
}

impl Numbered for CancelReason {
    const ALL: &'static [Self] = &[Self::PaymentTimeout, Self::Requested, Self::Superseded, Self::Refunded];
}

impl Numbered for PaymentOutcome {
    const ALL: &'static [Self] = &[
        Self::Applied,
        Self::Partial,
        Self::Duplicate,
        Self::Revived,
        Self::Surplus,
        Self::RefundDue,
        Self::Unmatched,
    ];
}

impl Numbered for RefundStatus {
    const ALL: &'static [Self] = &[Self::Due, Self::Settled];
}

impl Numbered for RefundReason {
    const ALL: &'static [Self] = &[Self::Excess, Self::Surplus, Self::OrderCancelled, Self::Unmatched, Self::Requested];
}

impl Numbered for StockKind {
    const ALL: &'static [Self] = &[
        Self::Created,
        Self::Held,
        Self::Released,
        Self::Sold,
        Self::Returned,
        Self::WrittenOff,
        Self::Fulfilled,
        Self::Adjusted,
    ];
}

/// First byte of encoded lines; another form gets another number.
const LINES_FORM: u8 = 1;

fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// Writes `lines` to `out` (cleared first): the form, then for each the SKU's length and bytes, the quantity, and the
/// unit price plus one (0: none), numbers in 7-bit groups, low first.
pub fn encode_lines(lines: &[Line], out: &mut Vec<u8>) {
    out.clear();
    out.push(LINES_FORM);
    for line in lines {
        put_number(out, line.sku.as_str().len() as u64);
        out.extend_from_slice(line.sku.as_str().as_bytes());
        put_number(out, line.quantity.unsigned_abs());
        put_number(out, line.unit_price.map_or(0, |p| p.amount.unsigned_abs() + 1));
    }
}

/// What [`encode_lines`] wrote; unit prices are in the order's `currency`.
pub fn decode_lines(bytes: &[u8], currency: Option<Currency>) -> Option<Vec<Line>> {
    let (form, mut rest) = bytes.split_first()?;
    if *form != LINES_FORM {
        return None;
    }
    let mut lines = Vec::with_capacity(1);
    while !rest.is_empty() {
        let length = usize::try_from(take_number(&mut rest)?).ok()?;
        let (sku, after) = rest.split_at_checked(length)?;
        rest = after;
        let sku = SkuId::parse(std::str::from_utf8(sku).ok()?).ok()?;
        let quantity = i64::try_from(take_number(&mut rest)?).ok()?;
        let unit_price = match take_number(&mut rest)? {
            0 => None,
            n => Some(Money { amount: i64::try_from(n - 1).ok()?, currency: currency? }),
        };
        lines.push(Line { sku, quantity, unit_price });
    }
    Some(lines)
}

/// What few events have. Short keys: an event is written once and kept for ever.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Extra {
    #[serde(rename = "ps", default, skip_serializing_if = "Vec::is_empty")]
    /// The order's payments.
    pub payments: Vec<PaymentDoc>,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    /// The payment the event is about.
    pub payment: Option<PaymentDoc>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    /// The refund the event is about.
    pub refund: Option<RefundDoc>,
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    /// Why, in words.
    pub reason: Option<String>,
}

impl Extra {
    /// The event with the columns that stand beside these extras. `now` is the order as it is today: its unchanging parts
    /// are joined in, the rest is shown as the event's command left it.
    #[must_use]
    pub fn into_record(
        self,
        (cursor, seq, kind, at): (i64, i64, EventKind, Millis),
        state: Option<OrderState>,
        now: Option<Order>,
    ) -> EventRecord {
        let payments: Vec<Payment> = self.payments.into_iter().map(Into::into).collect();
        let id = now.as_ref().map(|o| (o.no, o.id.clone()));
        let order = now.zip(state.clone()).map(|(mut order, state)| {
            // Closed is the last thing that happens to an order, so before its newest event it was open.
            order.closed &= kind == EventKind::OrderClosed || seq == order.last_seq;
            order.last_seq = seq;
            order.state = state;
            order.payments.clone_from(&payments);
            order
        });
        let event = Event {
            order: id,
            seq,
            kind,
            at,
            state,
            payments,
            payment: self.payment.map(Into::into),
            refund: self.refund.map(Into::into),
            reason: self.reason,
        };
        EventRecord { cursor, event, order }
    }
}

/// A payment inside an event.
#[derive(Debug, Serialize, Deserialize)]
pub struct PaymentDoc {
    i: tidegate_core::PaymentId,
    o: tidegate_core::OrderId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<Currency>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca: Option<Millis>,
    ra: Millis,
    oc: PaymentOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    f: Option<Millis>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rf: Vec<RefundDoc>,
}

/// A refund inside an event.
#[derive(Debug, Serialize, Deserialize)]
pub struct RefundDoc {
    i: tidegate_core::RefundId,
    p: tidegate_core::PaymentId,
    o: tidegate_core::OrderId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    c: Option<Currency>,
    s: RefundStatus,
    w: RefundReason,
    d: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<Millis>,
}

impl From<&Refund> for RefundDoc {
    fn from(r: &Refund) -> Self {
        Self {
            i: r.id.clone(),
            p: r.payment_id.clone(),
            o: r.order_id.clone(),
            a: r.amount,
            c: r.currency,
            s: r.status,
            w: r.reason,
            d: r.due_at,
            t: r.settled_at,
        }
    }
}

impl From<RefundDoc> for Refund {
    fn from(d: RefundDoc) -> Self {
        Self {
            id: d.i,
            payment_id: d.p,
            order_id: d.o,
            amount: d.a,
            currency: d.c,
            status: d.s,
            reason: d.w,
            due_at: d.d,
            settled_at: d.t,
        }
    }
}

impl From<&Payment> for PaymentDoc {
    fn from(p: &Payment) -> Self {
        Self {
            i: p.id.clone(),
            o: p.order_id.clone(),
            a: p.amount,
            c: p.currency,
            ca: p.captured_at,
            ra: p.received_at,
            oc: p.outcome,
            f: p.flagged_at,
            rf: p.refunds.iter().map(RefundDoc::from).collect(),
        }
    }
}

impl From<PaymentDoc> for Payment {
    fn from(d: PaymentDoc) -> Self {
        Self {
            id: d.i,
            order_id: d.o,
            amount: d.a,
            currency: d.c,
            captured_at: d.ca,
            received_at: d.ra,
            outcome: d.oc,
            flagged_at: d.f,
            refunds: d.rf.into_iter().map(Refund::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let eur = Currency::parse("EUR");
        let line = |sku: &str, quantity, price: Option<i64>| Line {
            sku: SkuId::parse(sku).unwrap(),
            quantity,
            unit_price: price.map(|amount| Money { amount, currency: eur.unwrap() }),
        };
        let long = "x".repeat(128);
        let lines =
            [line("a", 1, Some(0)), line("É b/%", 1_000_000, Some(9_007_199_254_740_991)), line(&long, 127, Some(128))];
        let mut bytes = Vec::new();
        encode_lines(&lines, &mut bytes);
        assert_eq!(decode_lines(&bytes, eur).unwrap(), lines);
        for cut in 1..bytes.len() {
            if let Some(shorter) = decode_lines(&bytes[..cut], eur) {
                assert!(shorter.len() < lines.len());
            }
        }
        let free = [line("a", 2, None)];
        encode_lines(&free, &mut bytes);
        assert_eq!(decode_lines(&bytes, None).unwrap(), free);
        assert!(decode_lines(&[9], None).is_none() && decode_lines(&[], None).is_none());
    }
}
