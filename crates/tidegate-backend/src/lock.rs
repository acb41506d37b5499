//! Where locks lie.
//!
//! A store keeps a `tidegate_core::lock::Lock` for each name and does to it what the calls say, each call at once. Losing a
//! lock (a flush, a failover) is allowed: fences still grow, so the data stay safe.

use tidegate_core::Millis;
use tidegate_core::lock::{Acquire, Acquired, Fence, LockName, LockToken, Look, Process};

use crate::{BoxFuture, Result};

/// Most locks of one [`LockStore::renew`] or [`LockStore::sign`].
pub const MAX_LOCK_BATCH: usize = 1_000;

/// What a store can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockCapabilities {
    /// A short name for metrics and messages: `embedded`, `redis`.
    pub name: &'static str,
    /// Other processes see the same locks.
    pub shared: bool,
}

/// A lock to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Its name.
    pub name: LockName,
    /// Whose it must be.
    pub token: LockToken,
    /// From now.
    pub ttl_ms: i64,
}

/// A lock's fence and its new end on the store's clock; `None`: it is lost.
pub type Renewed = Option<(Fence, Millis)>;

/// A store of locks. Every method may be called at any time from any task and is answered, or fails, within the store's
/// time limit; one that failed may have been done. Arguments were checked by the caller.
pub trait LockStore: Send + Sync {
    /// What it can promise.
    fn capabilities(&self) -> LockCapabilities;

    /// This life of this process, as it goes into every line.
    fn process(&self) -> Process;

    /// Why it cannot be asked now, if that is known without asking. Cheap.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Takes a lock, keeps it, or joins its line.
    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>>;

    /// Gives a lock back and hands it on; whether it was the caller's.
    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>>;

    /// Leaves a line, and gives back what was handed over meanwhile.
    fn leave<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<()>>;

    /// Moves the ends of locks, each with an answer of its own, in order.
    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>>;

    /// A lock as it stands.
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>>;

    /// A sign of life of this process to the lines of these locks, due every `tidegate_core::lock::rules::SIGN_MS`.
    fn sign<'a>(&'a self, names: &'a [LockName]) -> BoxFuture<'a, Result<()>>;

    /// Locks that were handed to waiters of this process, and to which, at least one; an empty answer says that some may
    /// have been missed. One caller at a time.
    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>>;

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}
