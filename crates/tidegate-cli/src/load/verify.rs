//! What the answers say once every deadline has passed: each accepted order read again, and each SKU.
//!
//! These checks need nothing but the HTTP contract, so they hold for any server. A server in this process is also
//! audited from the inside ([`super::own_server`]).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::events::Event;
use super::occupancy::Occupancy;
use super::pool::Pool;
use super::record::Record;
use super::shapes::{Order, Sku};
use crate::client::segment;
use crate::failure::{Failure, Result};

/// Calls at a time.
const AT_ONCE: usize = 16;
/// Findings that are kept.
const FINDINGS: usize = 20;
/// How often, and how long apart, an order that should have expired is looked at again before that is a finding.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_millis(100);

/// An order the server has accepted, as it was asked for.
#[derive(Debug)]
pub struct Accepted {
    /// Its id.
    pub id: String,
    /// The total it must have, minor units.
    pub total: Option<i128>,
    /// [`digest`] of its lines: they are not kept.
    pub lines: u64,
    /// Whether this run placed it (`201`), not one before.
    pub fresh: bool,
}

/// Tells lines apart: SKU and units, in order. Means nothing outside this process.
#[must_use]
pub fn digest<'a>(lines: impl Iterator<Item = (&'a str, i64)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.for_each(|line| line.hash(&mut hasher));
    hasher.finish()
}

/// What was seen.
pub struct Seen {
    /// Orders of this run that the clock cancelled.
    pub expired: u64,
    /// Orders of this run that were cancelled by request.
    pub cancelled: u64,
    /// How late the clock was.
    pub lateness: Record,
    /// Units taken over time.
    pub occupancy: Occupancy,
    /// Whether each invariant held, of those the answers can tell.
    pub invariants: BTreeMap<String, bool>,
    /// What contradicts what, the first of it.
    pub findings: Vec<String>,
}

impl Seen {
    fn found(&mut self, invariant: &str, detail: String) {
        self.invariants.insert(invariant.to_owned(), false);
        if self.findings.len() < FINDINGS {
            self.findings.push(format!("{invariant}: {detail}"));
        }
    }
}

/// Reads every order of `accepted` and every SKU of `skus`; with `histories`, each order's events too.
/// `expired_at` knows when the clock ended an order that late money revived; without, its deadline stands for that.
///
/// # Errors
/// [`Failure::Unreachable`]; [`Failure::Work`] for an answer the contract does not know.
pub async fn look(
    pool: &Pool,
    accepted: &[Accepted],
    skus: &[String],
    histories: bool,
    expired_at: &BTreeMap<String, i64>,
) -> Result<Seen> {
    let names: &[&str] = if histories { &["I1", "I4", "I5", "I6", "I7"] } else { &["I1", "I5", "I6", "I7"] };
    let mut seen = Seen {
        expired: 0,
        cancelled: 0,
        lateness: Record::new(),
        occupancy: Occupancy::default(),
        invariants: names.iter().map(|name| ((*name).to_owned(), true)).collect(),
        findings: Vec::new(),
    };
    let mut stocks = stream::iter(skus).map(|sku| read_sku(pool, sku)).buffer_unordered(AT_ONCE);
    while let Some(sku) = stocks.try_next().await? {
        seen.occupancy.stock(&sku.sku, sku.on_hand);
        if sku.on_hand != sku.available + sku.held + sku.sold || sku.available.min(sku.held).min(sku.sold) < 0 {
            seen.found("I1", format!("SKU {} has {sku:?}", sku.sku));
        }
    }
    let mut orders = stream::iter(accepted).map(|order| read_order(pool, order, histories)).buffer_unordered(AT_ONCE);
    while let Some((told, now, events)) = orders.try_next().await? {
        match now {
            Some(order) => judge(&mut seen, told, &order, &events, expired_at.get(&order.id).copied()),
            None => seen.found("I7", format!("order {} was accepted and is gone", told.id)),
        }
    }
    Ok(seen)
}

async fn read_sku(pool: &Pool, sku: &str) -> Result<Sku> {
    let answer = pool.get(&format!("/v1/skus/{}", segment(sku))).await?;
    answer.json().map_err(|e| Failure::Work(format!("GET /v1/skus/{sku}: {e}")))
}

async fn read_order<'a>(
    pool: &Pool,
    told: &'a Accepted,
    histories: bool,
) -> Result<(&'a Accepted, Option<Order>, Vec<Event>)> {
    let path = format!("/v1/orders/{}", segment(&told.id));
    let mut order = None;
    for _ in 0..LOOKS {
        let answer = pool.get(&path).await?;
        if answer.status == 404 {
            return Ok((told, None, Vec::new()));
        }
        let read: Order = answer.json().map_err(|e| Failure::Work(format!("GET {path}: {e}")))?;
        let ended = read.status != "pending";
        order = Some(read);
        if ended {
            break;
        }
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    let events = if histories { read_history(pool, &path).await? } else { Vec::new() };
    Ok((told, order, events))
}

async fn read_history(pool: &Pool, order: &str) -> Result<Vec<Event>> {
    #[derive(serde::Deserialize)]
    struct Page {
        items: Vec<Event>,
    }
    let answer = pool.get(&format!("{order}/events?limit=500")).await?;
    answer.json::<Page>().map(|page| page.items).map_err(|e| Failure::Work(format!("GET {order}/events: {e}")))
}

fn judge(seen: &mut Seen, told: &Accepted, order: &Order, events: &[Event], expired_at: Option<i64>) {
    let lines = || order.lines.iter().map(|line| (line.sku.as_str(), line.quantity));
    if digest(lines()) != told.lines
        || (told.fresh && told.total.is_some() && order.total.as_ref().map(|t| i128::from(t.amount)) != told.total)
    {
        seen.found(
            "I7",
            format!(
                "order {} is not what was accepted: lines {:?}, total {:?}, wanted {:?}",
                order.id, order.lines, order.total, told.total
            ),
        );
    }
    let expired = order.cancel_reason.as_deref() == Some("payment_timeout");
    match (order.status.as_str(), order.cancelled_at) {
        ("pending", _) => seen.found("I5", format!("order {} is still pending after its deadline", order.id)),
        (_, Some(at)) if expired && at < order.release_at => {
            seen.found("I5", format!("order {} was cancelled {} ms early", order.id, order.release_at - at))
        }
        _ => {}
    }
    if !money_is_right(order) {
        seen.found("I6", format!("order {} is {} with payments {:?}", order.id, order.status, order.payments));
    }
    if !events.is_empty() && !history_is_right(events) {
        seen.found(
            "I4",
            format!(
                "order {} has the events {:?}",
                order.id,
                events.iter().map(|e| (e.seq, e.kind.as_str())).collect::<Vec<_>>()
            ),
        );
    }
    for (sku, units) in lines() {
        if order.payments.iter().any(|payment| payment.outcome == "revived") {
            seen.occupancy.taken(sku, units, order.placed_at, Some(expired_at.unwrap_or(order.release_at)));
            seen.occupancy.taken(sku, units, order.paid_at.unwrap_or(order.release_at), order.cancelled_at);
        } else {
            seen.occupancy.taken(sku, units, order.placed_at, order.cancelled_at);
        }
    }
    if told.fresh {
        seen.expired += u64::from(expired);
        seen.cancelled += u64::from(order.status == "cancelled" && !expired);
        if let (true, Some(at)) = (expired, order.cancelled_at) {
            seen.lateness.time_ms(at - order.release_at);
        }
    }
}

/// Only whole orders are paid: a paid order keeps exactly its total, a cancelled one nothing.
fn money_is_right(order: &Order) -> bool {
    let kept: i64 = order.payments.iter().filter(|p| p.refund_id.is_none()).filter_map(|p| p.amount).sum();
    match order.status.as_str() {
        "paid" | "fulfilled" => order.total.as_ref().is_none_or(|total| total.amount == kept),
        _ => kept == 0,
    }
}

/// The path of section 3, and a sequence without a gap.
fn history_is_right(events: &[Event]) -> bool {
    let dense = events.iter().enumerate().all(|(i, event)| usize::try_from(event.seq) == Ok(i + 1));
    let mut state = "new";
    let stepped = events.iter().filter(|event| event.kind.starts_with("order.")).all(|event| {
        state = match (state, event.kind.as_str()) {
            ("new", "order.placed") | ("pending", "order.extended" | "order.parked") => "pending",
            ("pending" | "revived", "order.paid") => "paid",
            ("pending", "order.expired") => "expired",
            ("expired", "order.revived") => "revived",
            ("pending" | "paid", "order.cancelled") | ("expired", "order.closed") => "cancelled",
            ("paid", "order.fulfilled") => "fulfilled",
            _ => return false,
        };
        true
    });
    dense && stepped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories() {
        let event = |seq: i64, kind: &str| -> Event {
            serde_json::from_value(serde_json::json!({"cursor": seq, "order_id": "1", "seq": seq, "type": kind, "at": "2026-01-01T00:00:00.000Z", "data": {}})).unwrap()
        };
        for (kinds, right) in [
            (&["order.placed", "order.paid"][..], true),
            (&["order.placed", "order.expired", "order.revived", "order.paid"], true),
            (&["order.placed", "order.paid", "order.cancelled", "payment.refund_due"], true),
            (&["order.placed", "order.expired", "order.paid"], false),
            (&["order.placed", "order.paid", "order.expired"], false),
            (&["order.paid"], false),
        ] {
            let events: Vec<_> = kinds.iter().zip(1..).map(|(kind, seq)| event(seq, kind)).collect();
            assert_eq!(history_is_right(&events), right, "{kinds:?}");
        }
        assert!(!history_is_right(&[event(1, "order.placed"), event(3, "order.paid")]));
    }
}
