//! Anti-entropy between nodes: now and then, and at once when something may have been missed, the gate's copies and the
//! deadlines of the near future are compared with the ledger and repaired.

use std::sync::Arc;
use std::time::Duration;

use super::{bus, jitter, reconcile};
use crate::tidegate::Inner;

/// The longest time between two comparisons.
const EVERY: Duration = Duration::from_secs(30);
/// The shortest time between two comparisons, however often notices are missed.
const AT_LEAST: Duration = Duration::from_secs(1);
/// The same while the index is left out of it, because it is being filled.
const AFTER_REBUILD: Duration = Duration::from_secs(6);
/// How far ahead deadlines are compared, milliseconds: each at least once before it falls due.
const HORIZON_MS: i64 = 45_000;

/// Compares until stopped. One process alone with its ledger misses nothing; a failed commit of its own is the
/// business of `housekeeping.rs`.
pub(crate) async fn run(inner: Arc<Inner>) {
    if !inner.is_one_of_several() {
        return;
    }
    loop {
        let settling = inner.health.index_is_settling();
        let pause = if settling { AFTER_REBUILD } else { jitter::between(EVERY / 2, EVERY) };
        let _ = tokio::time::timeout(pause, inner.health.doubt.notified()).await;
        if inner.health.ledger_failure().is_none() {
            inner.health.take_unsure();
            bus::read_newest(&inner).await;
            let before = inner.ledger.clock().now().plus(HORIZON_MS);
            match reconcile::repair(&inner, Some(before)).await {
                Ok(report) if report.repaired > 0 => {
                    tracing::warn!(
                        repaired = report.repaired,
                        "gate or deadline index had drifted from the ledger; repaired"
                    );
                }
                Ok(_) => {}
                Err(e) => {
                    inner.health.be_unsure();
                    if let Some(times) = inner.health.failed_comparisons.due() {
                        tracing::warn!(error = %e, times, "gate and index could not be compared with the ledger; tried again");
                    }
                }
            }
        }
        tokio::time::sleep(AT_LEAST).await;
    }
}
