//! What is looked at every two seconds: whether the server may delete floors, and in a Cluster whether a master has been replaced,
//! which no new connection tells.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};

use super::Inner;

/// How often it is looked.
const ROUND: Duration = Duration::from_secs(2);

/// Looks until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut told = false;
    let mut known = HashSet::new();
    loop {
        let refused = inner.refuse_eviction();
        match &refused {
            Err(e) if !told => tracing::warn!(why = %e, "the feed's copies are not used"),
            Ok(()) if told => tracing::info!("the server evicts nothing any more: the feed's copies are used"),
            _ => {}
        }
        told = refused.is_err();
        if inner.parts > 1
            && let Ok(servers) = inner.connector.run_ids().await
        {
            let before = known.len();
            known.extend(servers);
            // One more is a server that was not known, or one that was started again.
            if before > 0 && known.len() > before {
                inner.servers.fetch_add(1, Ordering::AcqRel);
            }
        }
        tokio::time::sleep(ROUND).await;
        // One that cannot be asked answers nothing else.
        let _ = inner.connector.look_at_policy().await;
    }
}

impl Inner {
    /// A floor that was deleted before its time would let an old copy in.
    pub(super) fn refuse_eviction(&self) -> Result<()> {
        if self.connector.evicts_expiring() {
            let why = "the server's maxmemory-policy would delete what a feed must remember: the feed needs `maxmemory-policy \
                       noeviction` (on the server: CONFIG SET maxmemory-policy noeviction, and the same in its file), or a \
                       server of its own";
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        Ok(())
    }

    /// Changes whenever another server may answer than before.
    pub(super) fn era(&self) -> (u64, u64) {
        (self.connector.epoch(), self.servers.load(Ordering::Acquire))
    }
}
