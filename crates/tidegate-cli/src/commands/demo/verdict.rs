//! What became of the sale: the answers, the event log and the auditor must tell the same story.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Args;
use super::crowd::{Crowd, sku};
use super::tally::{SoldOut, Told};
use crate::failure::Result;
use crate::load::events;
use crate::load::occupancy::Timeline;
use crate::load::own_server::OwnServer;
use crate::load::record::Record;
use crate::load::summary::Summary;
use crate::load::verify;
use crate::output;

/// How far the host's clock, which dates requests, may be from the ledger's, which dates orders, beyond their measured
/// distance: both are read in whole milliseconds.
const CLOCK_SLACK_MS: i64 = 3;

/// The verdict.
pub struct Verdict {
    /// The figures.
    pub summary: Summary,
    /// What is wrong.
    pub findings: Vec<String>,
    refused: BTreeMap<String, u64>,
    payments: BTreeMap<String, u64>,
    contradictions: usize,
}

impl Verdict {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.summary.is_sound() && self.contradictions == 0
    }

    /// The report for people.
    pub fn text(&self, args: &Args) -> String {
        let list = |counts: &BTreeMap<String, u64>| {
            let parts: Vec<_> = counts.iter().map(|(name, n)| format!("{n} {name}")).collect();
            if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
        };
        format!(
            "{} of {} for {} with {} each, held for {} s\n\n{}\n\nrefused: {}\npayments: {}",
            output::count(args.orders, "order"),
            output::count(args.buyers, "buyer"),
            output::count(args.skus, "SKU"),
            output::count(args.stock.unsigned_abs(), "unit"),
            args.hold_seconds,
            self.summary.table(),
            list(&self.refused),
            list(&self.payments),
        )
    }
}

/// Reads everything again and judges. `selling` is how long orders were sent.
///
/// # Errors
/// When the server cannot be asked.
pub async fn reach(
    args: &Args,
    crowd: &Crowd,
    own: &OwnServer,
    first_event: i64,
    selling: Duration,
) -> Result<Verdict> {
    let told = std::mem::take(&mut *crowd.tally.told());
    let (mut lateness, mut expired_at) = (Record::new(), BTreeMap::new());
    events::read(crowd.others(), first_event, |event| {
        if let ("order.expired", Some(order)) = (event.kind.as_str(), event.data.order) {
            lateness.time_ms(event.at - order.release_at);
            expired_at.insert(order.id, event.at);
        }
    })
    .await?;
    let skus: Vec<String> = (0..args.skus).map(sku).collect();
    let mut seen = verify::look(crowd.others(), &told.accepted, &skus, false, &expired_at).await?;
    let clock = own.tidegate.operations().clock();
    let apart = clock.now.since(clock.host).abs() + CLOCK_SLACK_MS;
    // An order's instants are read when its batch is decided; units are back for others once the batch is durable,
    // which nobody sees from outside but which takes no longer than the longest answer.
    let commit = crowd.tally.place().percentiles().max.ceil() as i64;
    skus.iter().for_each(|sku| seen.occupancy.stock(sku, args.stock));
    let timeline = seen.occupancy.finish();
    let false_sold_out = told.sold_out.iter().filter(|refusal| !was_true(&timeline, refusal, apart, commit)).count();
    if false_sold_out > 0 {
        seen.findings
            .push(format!("I10: {false_sold_out} orders were refused as sold out while there were enough units"));
    }
    seen.invariants.insert("I10".to_owned(), false_sold_out == 0);
    own.audit(&mut seen.invariants, &mut seen.findings).await?;

    let summary = summary(&told, &expired_at, &timeline, seen.invariants, (crowd, selling), &lateness);
    let contradictions = contradictions(&told, &summary, seen.expired, seen.cancelled);
    seen.findings.extend(contradictions.iter().cloned());
    Ok(Verdict {
        summary,
        findings: seen.findings,
        refused: told.refused,
        payments: told.payments,
        contradictions: contradictions.len(),
    })
}

fn was_true(timeline: &Timeline, refusal: &SoldOut, apart: i64, commit: i64) -> bool {
    let (from, to) = (refusal.sent - apart - commit, refusal.answered + apart);
    timeline.was_short(&refusal.sku, refusal.quantity, from, to)
}

fn summary(
    told: &Told,
    expired_at: &BTreeMap<String, i64>,
    timeline: &Timeline,
    invariants: BTreeMap<String, bool>,
    (crowd, selling): (&Crowd, Duration),
    lateness: &Record,
) -> Summary {
    let outcome = |name: &str| told.payments.get(name).copied().unwrap_or(0);
    let place = crowd.tally.place();
    Summary {
        placed: told.accepted.len() as u64,
        paid: outcome("applied") + outcome("revived"),
        expired: expired_at.len() as u64,
        cancelled: told.cancelled,
        revived: outcome("revived"),
        refused: told.refused.values().sum(),
        oversold: timeline.oversold(),
        duplicates: told.duplicates,
        orders_per_second: place.len() as f64 / selling.as_secs_f64().max(f64::EPSILON),
        place_ms: place.percentiles(),
        lateness_ms: lateness.percentiles(),
        invariants,
    }
}

/// Where the answers, the event log and the orders as they are now tell different stories.
fn contradictions(told: &Told, summary: &Summary, expired_now: u64, cancelled_now: u64) -> Vec<String> {
    let mut found: Vec<String> =
        told.strange.iter().map(|what| format!("an answer no buyer should get: {what}")).collect();
    if told.strange_count > found.len() as u64 {
        found.push(format!("{} more such answers", told.strange_count - found.len() as u64));
    }
    let mut differ = |what: &str, a: u64, b: u64| {
        if a != b {
            found.push(format!("{what}: {a} by the answers, {b} by the orders as they are now"));
        }
    };
    differ("orders cancelled by request", summary.cancelled, cancelled_now);
    differ(
        "orders the clock cancelled and nobody revived",
        summary.expired.saturating_sub(summary.revived),
        expired_now,
    );
    let ended = summary.paid + summary.expired.saturating_sub(summary.revived) + summary.cancelled;
    differ("orders that were paid, cancelled or expired", summary.placed, ended);
    found
}
