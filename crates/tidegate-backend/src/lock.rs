//! Where locks lie.
//!
//! A store keeps a `tidegate_core::lock::Lock` for each name and does to it what the calls say, each call at once. Losing a
//! lock (a flush, a failover) is allowed: fences still grow, so the data stay safe.

use std::time::Duration;

use tidegate_core::Millis;
use tidegate_core::lock::{Acquire, Acquired, AskId, Fence, Leave, LockName, LockToken, Look, Process};

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
    /// Waiters are served in order, by hand-over; else they ask again now and then.
    pub fair: bool,
    /// The longest time a lock is granted for, milliseconds.
    pub longest_ms: i64,
}

/// A lock to renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// Its name.
    pub name: LockName,
    /// Whose it must be.
    pub token: LockToken,
    /// The call that it was granted to. `None`: whoever renews has the token alone; from then on no call's clean-up gives the
    /// lock back.
    pub ask: Option<AskId>,
    /// From now.
    pub ttl_ms: i64,
    /// The grant's fence, if the caller knows it: a store of several servers teaches it to those that have forgotten it.
    pub fence: Option<Fence>,
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

    /// Gives a lock back by its token, whichever calls asked with it, and hands it on; whether it was the caller's.
    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>>;

    /// One call leaves the line, and gives back what it was granted, unless another call with its token is there still or was
    /// told of the grant.
    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>>;

    /// Moves the ends of locks, each with an answer of its own, in order.
    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>>;

    /// A lock as it stands.
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>>;

    /// How many others than the server that granted a lock know of the grant: waits for `wanted`, but not longer than `within`.
    /// A store that has no others says 0 at once.
    fn replicated<'a>(
        &'a self,
        _name: &'a LockName,
        _token: &'a LockToken,
        _wanted: usize,
        _within: Duration,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(std::future::ready(Ok(0)))
    }

    /// A sign of life of this process to the lines of these locks, due every `tidegate_core::lock::rules::SIGN_MS`.
    fn sign<'a>(&'a self, names: &'a [LockName]) -> BoxFuture<'a, Result<()>>;

    /// Locks that were handed to waiters of this process, and to which, at least one; an empty answer says that some may
    /// have been missed. One caller at a time.
    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>>;

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What one server of several says of a request for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// What it would answer by itself.
    pub acquired: Acquired,
    /// For how long it does not count yet, milliseconds: it may have forgotten what it granted before, and nothing that it
    /// granted outlives this time. 0: it counts.
    pub barred_ms: i64,
}

/// What one server of several does when a lock is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is the caller's there, with this fence.
    Ours(Fence),
    /// It was not there, and is now.
    Mended,
    /// Nobody has it there.
    Absent,
    /// Another has it there, or had it after the caller's grant.
    Anothers,
}

/// How far a server goes to keep a lock that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// It makes nothing.
    Never,
    /// It makes it anew, if it has granted no larger fence since.
    Unless,
    /// It makes it anew.
    Surely,
}

/// One server of several that vote on locks. Whoever votes has no line: nobody waits at a server alone.
pub trait LockNode: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> String;

    /// Why it cannot be asked now, if that is known without asking. Cheap.
    fn trouble(&self) -> Option<String>;

    /// Takes a lock there, or keeps it (the same token). `longest_ms` is the longest time any process of this quorum takes a
    /// lock for; a server that was told another one refuses.
    fn vote<'a>(&'a self, name: &'a LockName, asked: &'a Acquire, longest_ms: i64) -> BoxFuture<'a, Result<Vote>>;

    /// Moves the ends of locks and teaches their fences, each with an answer of its own, in order.
    fn keep<'a>(&'a self, locks: &'a [Renewal], mend: Mend) -> BoxFuture<'a, Vec<Result<Kept>>>;

    /// Gives a lock back, by its token or for one call as [`LockStore::leave`] does; whether it was the caller's and is free.
    fn give_back<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        only: Option<(AskId, Leave)>,
    ) -> BoxFuture<'a, Result<bool>>;

    /// A lock as it stands there.
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>>;

    /// Notes when it was born, if it was; for how long it does not count yet, milliseconds.
    fn beat(&self, longest_ms: i64) -> BoxFuture<'_, Result<i64>>;
}
