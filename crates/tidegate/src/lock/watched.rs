//! A store of locks of which is known what it refuses.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, LockCapabilities, LockStore, Renewal, Renewed, Result};
use tidegate_core::lock::{Acquire, Acquired, AskId, Leave, LockName, LockToken, Look, Process};

use crate::refused::Refused;

/// The same store.
pub(super) struct Watched {
    store: Arc<dyn LockStore>,
    refused: Refused,
}

impl Watched {
    pub(super) fn new(store: Arc<dyn LockStore>) -> Self {
        Self { store, refused: Refused::default() }
    }
}

impl LockStore for Watched {
    fn capabilities(&self) -> LockCapabilities {
        self.store.capabilities()
    }

    fn process(&self) -> Process {
        self.store.process()
    }

    fn trouble(&self) -> Option<String> {
        self.store.trouble().or_else(|| self.refused.trouble())
    }

    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        self.refused.watch("acquire", name.as_str(), self.store.acquire(name, asked))
    }

    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        self.refused.watch("release", name.as_str(), self.store.release(name, token))
    }

    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        self.refused.watch("leave", name.as_str(), self.store.leave(name, token, ask, why))
    }

    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        Box::pin(async move {
            let renewed = self.store.renew(locks).await;
            for (lock, renewed) in locks.iter().zip(&renewed) {
                self.refused.note("renew", lock.name.as_str(), renewed.as_ref().err());
            }
            renewed
        })
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        self.refused.watch("look", name.as_str(), self.store.look(name))
    }

    fn replicated<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        wanted: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<usize>> {
        self.store.replicated(name, token, wanted, within)
    }

    fn sign<'a>(&'a self, names: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        self.store.sign(names)
    }

    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        self.store.woken()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
