//! What this process reads most is told to the store, so that whoever asks the store learns what all processes read most.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::CacheKey;
use tidegate_core::hot::{Report, WINDOW_MS, WINDOWS};

use super::super::hub::Hub;

/// Told at the end of each window.
const TELL: Duration = Duration::from_millis(WINDOW_MS as u64);
/// How long a report is kept: a process that is gone is heard of no more.
const KEPT: Duration = Duration::from_secs(10);

/// Tells what is read, as long as something is; ends with the hub.
pub(in crate::cache) async fn run(hub: Arc<Hub>) {
    // A store of one process has nobody to tell.
    if !hub.store.store.capabilities().shared {
        return;
    }
    let mut was_told = false;
    loop {
        tokio::time::sleep(TELL).await;
        let mut report = Report { totals: [0; WINDOWS], hottest: Vec::new(), unnamed: 0 };
        hub.each_space(|space| report.add(space.hot_report()));
        if report.is_empty() && !was_told {
            continue;
        }
        was_told = !report.is_empty();
        tell(&hub, &report).await;
    }
}

async fn tell(hub: &Hub, report: &Report<CacheKey>) {
    if hub.store.store.trouble().is_some() {
        return;
    }
    // It is not worth the breaker's attention: nobody waits for it.
    if let Err(error) = hub.store.store.tell_hot_keys(report, KEPT).await {
        tracing::debug!(%error, "what is read most could not be told");
    }
}
