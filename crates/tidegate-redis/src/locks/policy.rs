//! One rule: a lock is a key that expires, so a server that may delete such keys before their end grants none. It is looked at
//! with every connection, and every [`ROUND`] in case that somebody changes the policy.

use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};

use crate::connect::Connector;
use crate::tasks::Tasks;

/// How often the policy is looked at.
const ROUND: Duration = Duration::from_secs(2);

/// The task that looks, in the runtime this is called in.
pub(super) fn watching(connector: Connector) -> Tasks {
    Tasks::new(vec![tokio::spawn(watch(connector))])
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
