//! Whether the ledger can write, where no commit says so: twice a second while commits fail, so that readiness returns with
//! the ledger also on a node that is sent nothing meanwhile; and once after every read that failed, so that an idle node
//! hears of an outage. An idle node whose reads succeed writes nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::tidegate::Inner;

/// How often it is tried at most.
const EVERY: Duration = Duration::from_millis(500);

/// Tries until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let doubted = inner.health.take_failed_read();
        if doubted || inner.health.ledger_failure().is_some() {
            let tried = inner.ledger.probe_write().await;
            inner.health.wrote(tried.err().map(|e| e.to_string()));
        }
    }
}
