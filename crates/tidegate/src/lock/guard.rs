//! A lock that is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::lock::{Fence, Leave, LockName, LockToken};

use super::LockError;
use super::acquire::give_up;
use super::locks::Inner;
use super::renew::Held;

/// A lock that is held, until it is released, dropped (then it is released by a task), or lost. With a token of the caller's
/// own a drop releases it unless the caller has asked again with the token since.
pub struct Guard {
    inner: Arc<Inner>,
    held: Arc<Held>,
    released: bool,
    /// What a drop means.
    dropped: Leave,
    again: bool,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("name", self.name()).field("fence", &self.fence()).finish_non_exhaustive()
    }
}

impl Guard {
    /// On its way to the caller: dropped there, it is as if it had never been granted.
    pub(super) fn new(inner: Arc<Inner>, held: Arc<Held>, again: bool) -> Self {
        Self { inner, held, released: false, dropped: Leave::Untold, again }
    }

    /// The caller has it.
    pub(super) fn told(mut self) -> Self {
        self.dropped = Leave::Done;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// Whose it is: a secret that lets its owner renew and release it from elsewhere.
    #[must_use]
    pub fn token(&self) -> &LockToken {
        &self.held.token
    }

    /// Larger than every fence of this name before it: what the data must check.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.held.fence
    }

    /// For how long it may be relied on without a further renewal: counted from the sending of the last successful request,
    /// on a clock that runs through suspend. Zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining(&*self.inner.time)
    }

    /// Whether it may still be relied on.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether it reached no replica, though one was hoped for ([`super::Sync::Best`]): a failover may lose it.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.held.degraded
    }

    /// Whether it was granted before, to another call with the same token ([`super::Ask::token`]), with this fence.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.again
    }

    /// Resolves when the lock is lost: it could not be renewed in time, or the store says it is another's. Before anybody
    /// else can have it, as long as the store keeps its data and this process is not paused.
    pub async fn lost(&self) {
        self.held.lost().await;
    }

    /// The data say that it is another's.
    pub(super) fn lose(&self) {
        self.inner.renewals.forget(&self.held);
        self.held.lose();
    }

    /// Moves its end to its full time from now.
    ///
    /// # Errors
    /// [`LockError::Lost`], [`LockError::Unreachable`].
    pub async fn renew(&self) -> Result<Duration, LockError> {
        super::renew::one(&*self.inner.store, &self.held, &*self.inner.time).await?;
        Ok(self.remaining())
    }

    /// Gives it back; whether it was still held. A task does it: it is done, too, if this future is dropped.
    ///
    /// # Errors
    /// [`LockError::Unreachable`]: it ends by itself.
    pub async fn release(mut self) -> Result<bool, LockError> {
        self.released = true;
        self.inner.renewals.forget(&self.held);
        let was_held = self.held.end();
        let (inner, held) = (self.inner.clone(), self.held.clone());
        let piece = inner.pending.begin();
        let releasing = tokio::spawn(async move {
            let there = inner.store.release(&held.name, &held.token).await;
            drop(piece);
            there
        });
        let there = releasing.await.map_err(|_| LockError::Stopping)?;
        there.map(|there| there && was_held).map_err(LockError::Unreachable)
    }

    /// For whoever passes the lock on to a client and cannot reach it: gives it back as if it had never been granted. If another
    /// call with the same token was told of the grant, it stays that call's. A task does it.
    pub fn undelivered(mut self) {
        self.dropped = Leave::Untold;
    }

    /// Gives it back unless another call has it, and waits for that.
    pub(super) async fn give_back(mut self) {
        self.released = true;
        self.inner.renewals.forget(&self.held);
        self.held.end();
        let (inner, held) = (self.inner.clone(), self.held.clone());
        let piece = inner.pending.begin();
        let releasing = tokio::spawn(async move {
            // Whoever waits for this is not kept by a store that is away.
            let _ = inner.store.leave(&held.name, &held.token, held.ask, Leave::Untold).await;
            drop(piece);
        });
        // It is aborted with the runtime only.
        let _ = releasing.await;
    }

    /// Lets it run on without this guard: whoever has the token releases it, or it ends by itself.
    pub fn detach(mut self) {
        self.released = true;
        self.inner.renewals.forget(&self.held);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        self.inner.renewals.forget(&self.held);
        self.held.end();
        // Outside a runtime nobody can send it: it ends by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (inner, held, why) = (self.inner.clone(), self.held.clone(), self.dropped);
            let piece = inner.pending.begin();
            runtime.spawn(async move {
                give_up(&inner, &held.name, &held.token, held.ask, why).await;
                drop(piece);
            });
        }
    }
}
