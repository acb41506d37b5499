//! The sweep: every second, by index in the ledger, whatever is overdue and not in the deadline queue is put there.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Millis, OrderNo};

use crate::tidegate::Inner;

/// How overdue a deadline must be before the sweep looks at it, milliseconds: the queue has had its chance.
const OVERDUE_MS: i64 = 500;
/// Orders of one page.
const PAGE: usize = 2_000;

/// Sweeps every second until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(e) = once(&inner).await {
            tracing::warn!(error = %e, "the sweep could not read the ledger; it tries again in a second");
        }
    }
}

/// One sweep: gives every overdue order to the deadline queue again (a no-op for those it has).
pub(crate) async fn once(inner: &Inner) -> crate::Result<()> {
    let now = inner.ledger.clock().now();
    let before = now.plus(-OVERDUE_MS);
    let mut after: Option<(Millis, OrderNo)> = None;
    let mut oldest = None;
    loop {
        let page = inner.ledger.deadlines(Some(before), after, PAGE).await?;
        oldest = oldest.or(page.first().map(|(_, at)| *at));
        let there = inner.deadlines.contains(&page).await?;
        let missed: Vec<_> =
            page.iter().zip(there).filter(|(_, there)| !there).map(|(deadline, _)| *deadline).collect();
        if !missed.is_empty() {
            metrics::counter!("tidegate_sweep_found_total").increment(missed.len() as u64);
            inner.deadlines.schedule(&missed).await?;
        }
        if page.len() < PAGE {
            inner.health.overdue(oldest.map_or(0, |at| now.since(at)));
            return Ok(());
        }
        after = page.last().map(|(order, at)| (*at, *order));
    }
}
