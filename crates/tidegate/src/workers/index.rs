//! Keeps the deadline index whole: asks it what it knows of itself and, where it lacks deadlines (a start, a store that
//! lost its data), gives it all of the ledger's, nearest first. An index of this process is filled before the instance
//! starts; a shared one beside the running work, while the sweep finds what falls due meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::IndexState;
use tidegate_core::{Millis, OrderNo};

use super::health;
use crate::tidegate::Inner;
use crate::{Error, Result};

/// Rows of one page of a rebuild.
const PAGE: usize = 20_000;
/// How often a shared index is asked what it knows of itself.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// How often the gauges of health are set.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// The pause after a rebuild that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// Keeps a shared index whole and shows how this instance is, until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let every = if inner.deadlines.is_shared() { ASK_EVERY } else { SHOW_EVERY };
    let mut shown = None::<Instant>;
    loop {
        if shown.is_none_or(|at| at.elapsed() >= SHOW_EVERY) {
            health::show(&inner);
            shown = Some(Instant::now());
        }
        let rebuilt = if inner.deadlines.is_shared() { rebuild(&inner).await } else { Ok(()) };
        if let Err(e) = rebuilt {
            if let Some(times) = inner.health.failed_fillings.due() {
                tracing::warn!(error = %e, times, "the deadline index could not be filled; tried again, the sweep goes on");
            }
            tokio::time::sleep(AFTER_FAILURE).await;
        }
        tokio::time::sleep(every).await;
    }
}

/// Fills the index from the ledger if it says that it lacks deadlines.
pub(crate) async fn rebuild(inner: &Inner) -> Result<()> {
    let IndexState::Incomplete(token) = inner.deadlines.state() else { return Ok(()) };
    inner.health.index_is_incomplete();
    inner.health.rebuilding(true);
    let begun = Instant::now();
    let filled = fill(inner, token).await;
    inner.health.index_is_incomplete();
    inner.health.rebuilding(false);
    let orders = filled?;
    metrics::counter!("tidegate_index_rebuilds_total").increment(1);
    tracing::info!(orders, seconds = begun.elapsed().as_secs_f64(), "the deadline index holds every deadline again");
    Ok(())
}

async fn fill(inner: &Inner, token: u64) -> Result<usize> {
    let mut orders = 0;
    let mut page = inner.ledger.deadlines(None, None, PAGE).await?;
    loop {
        orders += page.len();
        if page.len() < PAGE {
            inner.deadlines.schedule(&page).await.map_err(Error::index)?;
            break;
        }
        let after: Option<(Millis, OrderNo)> = page.last().map(|(order, at)| (*at, *order));
        // The next page is read while this one goes to the store.
        let (scheduled, next) =
            tokio::join!(inner.deadlines.schedule(&page), inner.ledger.deadlines(None, after, PAGE));
        scheduled.map_err(Error::index)?;
        page = next?;
    }
    inner.deadlines.rebuilt(token).await.map_err(Error::index)?;
    Ok(orders)
}
