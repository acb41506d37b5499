//! What is looked at every two seconds: whether the server may delete floors, and in a Cluster whether a partition is on another
//! server than it was, which no new connection tells.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};

use super::Inner;
use crate::connect::Call;
use crate::scripts;

/// How often it is looked.
const ROUND: Duration = Duration::from_secs(2);

/// Looks until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut told = false;
    let mut known = vec![Vec::new(); inner.parts];
    loop {
        let refused = inner.refuse_eviction();
        match &refused {
            Err(e) if !told => tracing::warn!(why = %e, "the feed's copies are not used"),
            Ok(()) if told => tracing::info!("the server evicts nothing any more: the feed's copies are used"),
            _ => {}
        }
        told = refused.is_err();
        if inner.parts > 1 {
            inner.look_at_servers(&mut known).await;
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

    /// Asks each partition which server it is. The client's own list of masters does not do: it may lack the newest.
    async fn look_at_servers(&self, known: &mut [Vec<u8>]) {
        let call = |part| Call::script(&scripts::SERVER, vec![self.keys.feed_news(part)], Vec::new());
        let answers = self.connector.run((0..self.parts).map(call).collect()).await;
        let mut others = false;
        for (known, answer) in known.iter_mut().zip(answers) {
            if let Ok(Value::BulkString(server)) = answer {
                others |= !known.is_empty() && *known != server;
                *known = server;
            }
        }
        if others {
            self.servers.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Changes whenever another server may answer than before.
    pub(super) fn era(&self) -> (u64, u64) {
        (self.connector.epoch(), self.servers.load(Ordering::Acquire))
    }
}
