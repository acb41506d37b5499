//! Locks for stock and money: the data themselves refuse whoever is late.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tidegate_backend::fence::{Fences, Seal, Sealed, fence_in};
use tidegate_backend::outbox::Execute;
use tidegate_backend::{BoxFuture, Ledger};
use tidegate_core::lock::Fence;

use super::guard::Guard;
use super::locks::{Ask, Locks};
use super::{LockError, metrics};

/// Grants that may turn out to be below what the data have seen before an acquisition is given up: after the first, the
/// store is told the floor, so a second is rare and a third means that something is very wrong.
const MAX_STALE: usize = 3;

/// A newer holder of the lock was here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a newer holder of the lock was here, with fence {}", floor.0)]
pub struct StaleFence {
    /// Its fence: a grant must be above it ([`Ask::floor`]).
    pub floor: Fence,
}

/// Why a fenced write does not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A newer holder was here. The transaction must be rolled back; the lock is lost.
    #[error(transparent)]
    Stale(#[from] StaleFence),
    /// The lock was not taken, or its time is over.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The database does not do as it was told; the transaction should be rolled back. It may be tried again.
    #[error("the fence is not recorded: {0}")]
    Database(#[source] tidegate_backend::Error),
}

/// Begins the fenced part of the caller's own `transaction` (`SqliteTransaction`, `MySqlTransaction`, `PostgresTransaction`):
/// checks that no newer holder was here, records this one, and keeps others of this lock's holders out until the transaction
/// ends. With SQLite the work is done when this returns, and the future is ready.
///
/// It must be the transaction's first statement: what was read before may be older than what the last holder wrote. Whoever
/// must read earlier, seals first ([`Guard::seal`]). It is right under READ COMMITTED, REPEATABLE READ and SERIALIZABLE; under the
/// latter two a database may refuse one of two that meet ([`FenceError::Database`]): roll back, try again.
///
/// # Errors
/// [`FenceError::Stale`], [`LockError::Lost`], [`FenceError::Database`]: roll the transaction back.
pub fn fenced_tx<'a>(guard: &'a Guard, transaction: &'a mut dyn Execute) -> BoxFuture<'a, Result<(), FenceError>> {
    if !guard.is_valid() {
        return Box::pin(std::future::ready(Err(LockError::Lost.into())));
    }
    let checked = fence_in(transaction, &guard.as_seal());
    Box::pin(async move { guard.judge(checked.await) })
}

impl Guard {
    fn as_seal(&self) -> Seal {
        Seal::new(self.name().clone(), self.fence(), self.token())
    }

    fn judge(&self, answer: tidegate_backend::Result<Sealed>) -> Result<(), FenceError> {
        match answer.map_err(FenceError::Database)? {
            Sealed::Newest => Ok(()),
            Sealed::Stale { floor } => {
                metrics::stale();
                self.lose();
                Err(StaleFence { floor }.into())
            }
        }
    }

    /// Records the fence in `ledger`, in a transaction of its own: from now on every older holder is refused there. What is read
    /// after it, and before this guard is refused, no older holder changes any more.
    ///
    /// # Errors
    /// [`FenceError::Stale`]: the lock is lost, and taken again above its floor; [`LockError::Lost`];
    /// [`FenceError::Database`]: it may be tried again.
    pub async fn seal(&self, ledger: &dyn Fences) -> Result<(), FenceError> {
        if !self.is_valid() {
            return Err(LockError::Lost.into());
        }
        self.judge(ledger.seal(&self.as_seal()).await)
    }
}

/// The grade for stock and money: a lock is granted once its fence is recorded where the data are.
///
/// The locks beneath may be of one store ([`super::Advisory`]) or of a quorum: what they lose (a flush, a failover, a paused
/// holder), the data notice.
#[derive(Clone)]
pub struct Fenced {
    locks: Locks,
    ledger: Arc<dyn Fences>,
}

/// A lock whose fence is recorded: [`fenced_tx`] takes it.
#[derive(Debug)]
pub struct FencedGuard(Guard);

impl fmt::Debug for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced").field("locks", &self.locks).finish_non_exhaustive()
    }
}

impl Fenced {
    /// `locks`, checked by `ledger`: a `SqliteLedger` or `SqlLedger`, or what `Tidegate::fences` gives.
    #[must_use]
    pub fn new(locks: Locks, ledger: Arc<dyn Fences>) -> Self {
        Self { locks, ledger }
    }

    /// Takes a lock and seals it. A store that lost its memory and its clock may grant a fence below what the data have seen; then
    /// it is told, and asked again.
    ///
    /// # Errors
    /// [`FenceError::Lock`] as [`Locks::acquire`]; [`FenceError::Database`]: the lock was given back; [`FenceError::Stale`]: the
    /// store does not give a fence above what the data have seen.
    pub async fn acquire(&self, name: &str, mut ask: Ask) -> Result<FencedGuard, FenceError> {
        let mut tries = 1;
        loop {
            let guard = self.locks.acquire(name, ask.clone()).await?;
            match guard.seal(&*self.ledger).await {
                Ok(()) => return Ok(FencedGuard(guard)),
                Err(e) => {
                    guard.give_back().await;
                    match e {
                        FenceError::Stale(StaleFence { floor }) if tries < MAX_STALE => ask = ask.above_sealed(floor),
                        other => return Err(other),
                    }
                }
            }
            tries += 1;
        }
    }

    /// The locks beneath.
    #[must_use]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }
}

impl Deref for FencedGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl FencedGuard {
    /// The guard by itself.
    #[must_use]
    pub fn into_guard(self) -> Guard {
        self.0
    }

    /// Gives it back; whether it was still held.
    ///
    /// # Errors
    /// [`LockError::Unreachable`]: it ends by itself.
    pub async fn release(self) -> Result<bool, LockError> {
        self.0.release().await
    }
}

/// The fences of a ledger that was chosen at run time.
pub(crate) struct LedgerFences(pub(crate) Arc<dyn Ledger>);

impl Fences for LedgerFences {
    fn seal<'a>(&'a self, seal: &'a Seal) -> BoxFuture<'a, tidegate_backend::Result<Sealed>> {
        self.0.fences().seal(seal)
    }
}
