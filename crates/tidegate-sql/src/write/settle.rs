//! A COMMIT whose answer was lost: did it take place?
//!
//! Each batch inserted its random id first. Inserting the same id again clashes when the batch was committed, waits while
//! that is open, and succeeds when it was not committed: then it never will be, since its transaction has ended.

use std::time::{Duration, Instant};

use crate::fault::{Class, Fault, Result};
use crate::open::Parts;
use crate::session::{Isolation, Session};

/// Longest time to find out.
const BOUND: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// What became of the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is in the ledger, as durable as any commit, and so its answers hold.
    Committed,
    /// It is not, and never will be.
    RolledBack,
}

/// Finds out what became of the batch with this id, whose COMMIT ended in `lost`.
///
/// # Errors
/// Unavailable when the database stays away.
pub(super) async fn settle(parts: &Parts, batch_id: &[u8; 16], lost: &Fault) -> Result<Settled> {
    metrics::counter!("tidegate_sql_retries_total", "reason" => "commit").increment(1);
    tracing::warn!(fault = %lost, "the answer to a COMMIT was lost; asking the database what became of it");
    let begun = Instant::now();
    loop {
        parts.writes.forget_idle();
        match ask(parts, batch_id).await {
            Ok(settled) => return Ok(settled),
            Err(fault) if begun.elapsed() > BOUND => {
                let text = format!(
                    "the database went away while a batch was being committed, and whether it was is not known ({fault}); the same request gives the answer once it is back"
                );
                return Err(Fault::new(Class::Unavailable, text));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn ask(parts: &Parts, batch_id: &[u8; 16]) -> Result<Settled> {
    let mut session = parts.writes.get().await?;
    session.begin(Isolation::Write).await?;
    let inserted = super::begin_batch(&mut session, batch_id).await;
    session.rollback().await?;
    match inserted {
        Ok(_) => Ok(Settled::RolledBack),
        Err(fault) if fault.class == Class::Unique => {
            commit_after(&mut session).await?;
            Ok(Settled::Committed)
        }
        Err(fault) => Err(fault),
    }
}

/// Commits an empty batch; when this returns, all that was visible before is durable.
async fn commit_after(session: &mut Session) -> Result<()> {
    session.begin(Isolation::Write).await?;
    match super::begin_batch(session, uuid::Uuid::new_v4().as_bytes()).await {
        Ok(_) => session.commit().await,
        Err(fault) => {
            // A connection that cannot even roll back is closed, which does it.
            let _ = session.rollback().await;
            Err(fault)
        }
    }
}
