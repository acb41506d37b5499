//! Reconciliation: gate and deadline index against the ledger, repaired; on demand also parked orders tried again and
//! every invariant checked.
//!
//! A commit is in the ledger a moment before it is in the gate and in the index (and a moment more before other nodes have
//! heard of it), so a difference is drift only if it is still there when both are looked at again after [`SETTLE`].

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_backend::{IndexState, Probe};
use tidegate_core::audit::{Finding, MAX_FINDINGS};
use tidegate_core::gate::Copy;
use tidegate_core::{Millis, OrderNo, SkuId};

use crate::operations::{NotCompared, ReconcileReport};
use crate::tidegate::Inner;
use crate::workers::health;
use crate::{Error, Result, workers};

/// Rows of one page.
const PAGE: usize = 5_000;
/// Pages of deadlines that a comparison of the near future reads, nearest first.
const NEAR_PAGES: usize = 20;
/// How long a commit may take to reach gate and index.
const SETTLE: Duration = Duration::from_millis(200);
/// SKUs of one question to the ledger's readers.
const SKUS_PER_PROBE: usize = 500;

/// Compares, repairs, audits.
pub(crate) async fn run(inner: &Inner) -> Result<ReconcileReport> {
    let mut report = repair(inner, None).await?;
    if inner.options.workers {
        report.repaired += workers::housekeeping::retry_parked(inner).await?;
    }
    let audit = inner.ledger.audit(workers::audited_lag_ms(inner)).await?;
    report.checked += audit.checked;
    report.invariants = audit.invariants;
    report.findings.extend(audit.findings);
    Ok(report)
}

/// Compares the gate, and the deadline index up to `before` (all of it without), with the ledger and repairs them.
pub(crate) async fn repair(inner: &Inner, before: Option<Millis>) -> Result<ReconcileReport> {
    let mut report = ReconcileReport::default();
    gate(inner, &mut report).await?;
    if inner.options.workers || inner.deadlines.is_shared() {
        match health::index_trouble(inner) {
            // An index that is being filled lacks deadlines, which is no drift.
            None if before.is_some() && inner.health.index_is_settling() => {}
            None => match deadlines(inner, before, &mut report).await {
                Err(Error::Index(why)) => report.not_compared = not_compared(inner, why),
                done => {
                    done?;
                    report.not_compared = inner.deadlines.failing().and_then(|why| not_compared(inner, why));
                }
            },
            Some(why) => report.not_compared = not_compared(inner, why),
        }
    }
    Ok(report)
}

fn not_compared(inner: &Inner, detail: String) -> Option<NotCompared> {
    let unreachable = matches!(inner.deadlines.state(), IndexState::Unavailable(_));
    Some(NotCompared { unreachable, detail })
}

fn note(report: &mut ReconcileReport, detail: String) {
    if report.findings.len() < MAX_FINDINGS {
        report.findings.push(Finding { invariant: "I9", detail });
    }
}

fn repaired(report: &mut ReconcileReport, detail: String) {
    report.repaired += 1;
    metrics::counter!("tidegate_drift_total", "invariant" => "I9").increment(1);
    note(report, detail);
}

/// A copy that did not agree with a page of the ledger, and what that said.
struct Suspect {
    sku: SkuId,
    first: Copy,
    held: Option<Copy>,
}

async fn gate(inner: &Inner, report: &mut ReconcileReport) -> Result<()> {
    // Without a link nobody tells this gate what other nodes sell: that it is behind is no drift.
    let told = inner.ledger.capabilities().sole_writer || inner.bus.is_some();
    let mut after: Option<SkuId> = None;
    loop {
        let page = inner.ledger.copies(after.take(), PAGE).await?;
        report.checked += page.len() as u64;
        let full = page.len() == PAGE;
        after = page.last().map(|(sku, _)| sku.clone());
        let suspects: Vec<Suspect> = page
            .into_iter()
            .map(|(sku, first)| Suspect { held: inner.gate.copy_of(&sku), sku, first })
            .filter(|suspect| suspect.held.as_ref() != Some(&suspect.first))
            .collect();
        if !suspects.is_empty() {
            tokio::time::sleep(SETTLE).await;
            for some in suspects.chunks(SKUS_PER_PROBE) {
                settle(inner, some, told, report).await?;
            }
        }
        if !full {
            return Ok(());
        }
    }
}

/// Looks at suspects again and repairs those that did not settle.
async fn settle(inner: &Inner, suspects: &[Suspect], told: bool, report: &mut ReconcileReport) -> Result<()> {
    // The copies first: a read of the ledger that begins after a copy was made is at least as new as it.
    let now: Vec<Option<Copy>> = suspects.iter().map(|suspect| inner.gate.copy_of(&suspect.sku)).collect();
    let skus = suspects.iter().map(|suspect| suspect.sku.clone()).collect();
    let probed = inner.ledger.probe(vec![Probe { order_id: None, key: None, skus }]).await?;
    let truths = probed.into_iter().flat_map(|answer| answer.copies);
    for ((suspect, held), truth) in suspects.iter().zip(now).zip(truths) {
        let Some(truth) = truth else { continue };
        let went_back = held.as_ref().is_some_and(|held| held.stock_version > truth.stock_version);
        if told && has_drifted(suspect, held.as_ref(), &truth) {
            let detail = format!("the gate's copy of SKU {} differed from the ledger and was replaced", suspect.sku);
            repaired(report, detail);
        }
        // Only a ledger that lost commits is behind a copy; else a newer copy set meanwhile must stay.
        inner.gate.replace(&[(suspect.sku.clone(), truth)], went_back);
    }
    Ok(())
}

/// Whether the gate's copy, seen twice, is wrong: `held` is its second sight, `truth` a read that began after it.
fn has_drifted(suspect: &Suspect, held: Option<&Copy>, truth: &Copy) -> bool {
    let Some(held) = held else { return true };
    let never_came = held.stock_version < suspect.first.stock_version;
    let went_back = held.stock_version > truth.stock_version;
    // The same version with other contents, and nothing has moved since the first sight.
    let stuck = suspect.held.as_ref() == Some(held) && held.stock_version == truth.stock_version && held != truth;
    never_came || went_back || (stuck && suspect.first == *truth)
}

async fn deadlines(inner: &Inner, before: Option<Millis>, report: &mut ReconcileReport) -> Result<()> {
    let pages = if before.is_some() { NEAR_PAGES } else { usize::MAX };
    let mut after: Option<(Millis, OrderNo)> = None;
    for _ in 0..pages {
        let page = inner.ledger.deadlines(before, after, PAGE).await?;
        report.checked += page.len() as u64;
        let mut missing = missing(inner, &page).await?;
        if !missing.is_empty() {
            tokio::time::sleep(SETTLE).await;
            // The index first: an order leaves it only after the ledger has decided about it, so that a read which begins
            // later no longer has an order that was just acted on.
            missing = self::missing(inner, &missing).await?;
            let again: BTreeSet<_> = inner.ledger.deadlines(before, after, PAGE).await?.into_iter().collect();
            missing.retain(|deadline| again.contains(deadline));
        }
        for (order, _) in &missing {
            repaired(report, format!("the deadline of order number {} was not indexed and is now", order.0));
        }
        inner.deadlines.schedule(&missing).await.map_err(Error::index)?;
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(order, at)| (*at, *order));
    }
    Ok(())
}

async fn missing(inner: &Inner, deadlines: &[(OrderNo, Millis)]) -> Result<Vec<(OrderNo, Millis)>> {
    let there = inner.deadlines.contains(deadlines).await.map_err(Error::index)?;
    Ok(deadlines.iter().zip(there).filter(|(_, there)| !there).map(|(deadline, _)| *deadline).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(stock_version: i64, available: i64) -> Copy {
        Copy { archived: false, on_sale_from: None, max_per_order: None, available, stock_version }
    }

    #[test]
    fn only_what_stays_different_has_drifted() {
        // (first sight of the ledger, of the gate; second sight of the gate, of the ledger; drifted)
        let cases = [
            ("settled", (5, 1), Some((4, 2)), Some((5, 1)), (5, 1), false),
            ("settled while the next commit is under way", (5, 1), Some((4, 2)), Some((5, 1)), (6, 0), false),
            ("never came", (5, 1), Some((4, 2)), Some((4, 2)), (5, 1), true),
            ("never came while the next is under way", (5, 1), Some((4, 2)), Some((4, 2)), (6, 0), true),
            ("newer from the start", (5, 1), Some((6, 0)), Some((6, 0)), (6, 0), false),
            ("the ledger lost commits", (5, 1), Some((9, 0)), Some((9, 0)), (5, 1), true),
            ("a wrong number", (5, 1), Some((5, 7)), Some((5, 7)), (5, 1), true),
            ("a wrong number that was mended", (5, 1), Some((5, 7)), Some((5, 1)), (5, 1), false),
            ("unknown", (5, 1), None, None, (5, 1), true),
        ];
        for (case, first, held, again, truth, drifted) in cases {
            let copy = |(version, available)| copy(version, available);
            let suspect = Suspect { sku: SkuId::parse("a").expect("a SKU"), first: copy(first), held: held.map(copy) };
            assert_eq!(has_drifted(&suspect, again.map(copy).as_ref(), &copy(truth)), drifted, "{case}");
        }
    }
}
