//! On a node that does not act on deadlines: whether anybody does. The sweep of a node with workers sees it by itself.

use std::sync::Arc;
use std::time::Duration;

use super::LAG_BOUND_MS;
use crate::tidegate::Inner;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(2);

/// Looks until stopped. A manual clock is left alone: its jumps make everything overdue at once.
pub(crate) async fn run(inner: Arc<Inner>) {
    if inner.ledger.clock().status().manual {
        return;
    }
    loop {
        look(&inner).await;
        tokio::time::sleep(EVERY).await;
    }
}

/// One look: the oldest order that is overdue beyond the lag bound, if any.
async fn look(inner: &Inner) {
    let now = inner.ledger.clock().now();
    let waiting = inner.health.waiting();
    let late = inner.ledger.deadlines(Some(now.plus(-LAG_BOUND_MS)), None, 1).await;
    drop(waiting);
    match late {
        Ok(late) => inner.health.overdue(late.first().map_or(0, |(_, at)| now.since(*at))),
        Err(e) => {
            inner.health.read_failed(&e);
        }
    }
}
