//! One rule: a lock is a key that expires, so a server that may delete such keys before their end grants none. It is looked at
//! with every connection, and every [`ROUND`] in case that somebody changes the policy.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

use crate::connect::Connector;

/// How often the policy is looked at.
const ROUND: Duration = Duration::from_secs(2);

/// The task that looks; it ends with its owner.
pub(super) struct Policy(Mutex<Option<JoinHandle<()>>>);

impl Policy {
    /// Runs in the runtime this is called in.
    pub(super) fn watch(connector: Connector) -> Self {
        Self(Mutex::new(Some(tokio::spawn(watch(connector)))))
    }

    pub(super) fn end(&self) {
        if let Some(task) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.end();
    }
}

async fn watch(connector: Connector) {
    let mut told = false;
    loop {
        let refused = refuse_eviction(&connector);
        match &refused {
            Err(e) if !told => tracing::warn!(why = %e, "no lock is granted"),
            Ok(()) if told => tracing::info!("the server evicts nothing any more: locks are granted"),
            _ => {}
        }
        told = refused.is_err();
        tokio::time::sleep(ROUND).await;
        // One that cannot be asked grants nothing anyway.
        let _ = connector.look_at_policy().await;
    }
}

/// Whether `connector`'s server, as it was seen last, may be trusted with locks.
///
/// # Errors
/// [`ErrorKind::Configuration`], with the setting and the command that mend it.
pub(super) fn refuse_eviction(connector: &Connector) -> Result<()> {
    if connector.evicts_expiring() {
        let why = "the server's maxmemory-policy would delete locks under pressure: locks need `maxmemory-policy noeviction` (on the \
                   server: CONFIG SET maxmemory-policy noeviction, and the same in its file), or a server of their own";
        return Err(Error::new(ErrorKind::Configuration, why));
    }
    Ok(())
}
