//! Replaces a connection that no longer works, and one whose master is no longer the master.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::Shared;
use super::link;
use super::options::{Host, Mode};

/// The first pause between two attempts; it doubles up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(500);
/// How often a link that nobody uses is tried, and how often the sentinels are asked.
const ROUND: Duration = Duration::from_secs(1);

/// Watches until it is aborted.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut known = None;
    loop {
        let told = tokio::time::timeout(ROUND, shared.wake.notified()).await.is_ok();
        let ill = shared.link.load().is_none() || (told && !shared.failing.is_empty());
        if ill || replaced(&shared, &mut known).await {
            restore(&shared).await;
        }
    }
}

/// Tries until a connection works for every key that failed.
async fn restore(shared: &Shared) {
    let mut pause = SHORTEST;
    loop {
        match shared.reconnect().await {
            Ok(()) => {
                tracing::info!("Redis can be used again");
                return;
            }
            Err(e) => tracing::debug!(error = %e, "Redis still cannot be used"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
        if shared.link.load().is_some() && shared.failing.is_empty() {
            // A Cluster's old connection has found its way by itself.
            return;
        }
    }
}

/// Whether the sentinels name another master than they did. A master that is cut off from them may still take commands.
async fn replaced(shared: &Shared, known: &mut Option<Host>) -> bool {
    if !matches!(shared.options.mode, Mode::Sentinel { .. }) {
        return false;
    }
    let Ok(master) = link::master(&shared.options).await else { return false };
    let before = known.replace(master.clone());
    before.is_some_and(|before| before != master) && !leads_to(shared, &master).await
}

/// Whether the present connection goes to `master` already.
async fn leads_to(shared: &Shared, master: &Host) -> bool {
    let Some(link) = shared.link.load_full() else { return false };
    let Some(mut connection) = link.to_one() else { return true };
    let mut port = redis::cmd("CONFIG");
    port.arg("GET").arg("port");
    let answer: redis::RedisResult<Vec<Value>> = port.query_async(&mut connection).await;
    let named = |value: &Value| matches!(value, Value::BulkString(port) if *port == master.port.to_string().as_bytes());
    answer.is_ok_and(|parts| parts.iter().any(named))
}
