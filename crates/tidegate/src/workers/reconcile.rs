//! Reconciliation on demand: gate and deadline index against the ledger, repaired; parked orders tried again; every
//! invariant checked.

use tidegate_core::audit::{Finding, MAX_FINDINGS};
use tidegate_core::{Millis, OrderNo, SkuId};

use crate::operations::ReconcileReport;
use crate::tidegate::Inner;
use crate::{Result, workers};

/// Rows of one page.
const PAGE: usize = 5_000;

/// Compares, repairs, audits.
pub(crate) async fn run(inner: &Inner) -> Result<ReconcileReport> {
    let mut report = repair(inner).await?;
    if inner.options.workers {
        report.repaired += workers::housekeeping::retry_parked(inner).await?;
    }
    let audit = inner.ledger.audit(workers::audited_lag_ms(inner)).await?;
    report.checked += audit.checked;
    report.invariants = audit.invariants;
    report.findings.extend(audit.findings);
    Ok(report)
}

/// Compares gate and deadline index with the ledger and repairs them.
pub(crate) async fn repair(inner: &Inner) -> Result<ReconcileReport> {
    let mut report = ReconcileReport::default();
    gate(inner, &mut report).await?;
    if inner.options.workers {
        deadlines(inner, &mut report).await?;
    }
    Ok(report)
}

fn found(report: &mut ReconcileReport, invariant: &'static str, detail: String) {
    report.repaired += 1;
    metrics::counter!("tidegate_drift_total", "invariant" => invariant).increment(1);
    if report.findings.len() < MAX_FINDINGS {
        report.findings.push(Finding { invariant, detail });
    }
}

async fn gate(inner: &Inner, report: &mut ReconcileReport) -> Result<()> {
    let mut after: Option<SkuId> = None;
    loop {
        let page = inner.ledger.copies(after.take(), PAGE).await?;
        report.checked += page.len() as u64;
        for (sku, truth) in &page {
            let held = inner.gate.copy_of(sku);
            // A commit since this page was read may have left a newer copy; only an older or a different one of the
            // same version is drift.
            let drifted = held.as_ref().is_none_or(|held| {
                held.stock_version < truth.stock_version
                    || (held.stock_version == truth.stock_version && held.available != truth.available)
            });
            if drifted {
                found(report, "I9", format!("the gate's copy of SKU {sku} differed from the ledger and was replaced"));
                inner.gate.replace(std::slice::from_ref(&(sku.clone(), truth.clone())), true);
            }
        }
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(sku, _)| sku.clone());
    }
}

async fn deadlines(inner: &Inner, report: &mut ReconcileReport) -> Result<()> {
    let mut after: Option<(Millis, OrderNo)> = None;
    loop {
        let page = inner.ledger.deadlines(None, after, PAGE).await?;
        report.checked += page.len() as u64;
        let there = inner.deadlines.contains(&page).await?;
        let missing: Vec<_> =
            page.iter().zip(there).filter(|(_, there)| !there).map(|(deadline, _)| *deadline).collect();
        for (order, _) in &missing {
            found(report, "I9", format!("the deadline of order number {} was not indexed and is now", order.0));
        }
        inner.deadlines.schedule(&missing).await?;
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(order, at)| (*at, *order));
    }
}
