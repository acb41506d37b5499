//! The locks of one store.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_backend::LockStore;
use tidegate_backend::steady::{HostTime, TimeSource};
use tidegate_core::lock::{AskId, Fence, LockName, LockToken, Look, MAX_FLOOR, MAX_TTL_MS, MAX_WAIT_MS, MIN_TTL_MS};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::guard::Guard;
use super::renew::Renewals;
use super::wait::Waits;
use super::watched::Watched;
use super::{LockError, acquire};
use crate::pending::Pending;

/// How long a close waits for callers that leave their lines.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The locks of one store. Cloning it is cheap; every clone shares the tasks that renew and listen.
#[derive(Clone)]
pub struct Locks {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub store: Arc<dyn LockStore>,
    pub time: Arc<dyn TimeSource>,
    pub renewals: Arc<Renewals>,
    pub waits: Arc<Waits>,
    /// Asking for locks: it outlives callers.
    pub pending: Pending,
    /// Whose turn it is to give back again and again, while the store is away.
    pub leaving: Semaphore,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("store", &self.inner.store.capabilities().name).finish_non_exhaustive()
    }
}

/// What is asked of a lock.
#[derive(Debug, Clone)]
pub struct Ask {
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
    pub(super) floor: Option<Fence>,
    /// The floor is a fence that was granted.
    sealed: bool,
    pub(super) token: Option<LockToken>,
    pub(super) renewed: bool,
    pub(super) sync: Sync,
}

/// What a grant must have reached beside the server that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// Nothing: a failover right after it may lose it.
    #[default]
    None,
    /// One replica, if one answers within that time; else the guard says that it is degraded.
    Best {
        /// How long the grant waits for it.
        within: Duration,
    },
    /// So many replicas; else there is no grant.
    Replicas {
        /// How many.
        count: usize,
        /// How long the grant waits for them.
        within: Duration,
    },
}

impl Ask {
    /// For `ttl` (100 ms to a day), renewed at a third of it while the guard lives: it is how long the others wait if this
    /// process dies. Without waiting, unless [`Ask::wait`] says so.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, wait: Duration::ZERO, floor: None, sealed: false, token: None, renewed: true, sync: Sync::None }
    }

    /// Waits in the line for up to `wait` (30 s at most).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The fence must be above this one: what a ledger said was sealed. At most [`MAX_FLOOR`].
    #[must_use]
    pub fn floor(mut self, floor: Fence) -> Self {
        (self.floor, self.sealed) = (Some(floor), false);
        self
    }

    /// The same of a fence that was sealed: it was granted once, so there is one above it.
    pub(super) fn above_sealed(mut self, floor: Fence) -> Self {
        (self.floor, self.sealed) = (Some(floor), true);
        self
    }

    /// With a token of the caller's own: asking again with it after a lost reply is the same request.
    #[must_use]
    pub fn token(mut self, token: LockToken) -> Self {
        self.token = Some(token);
        self
    }

    /// What the grant must have reached beside the server that gave it. The wait for that is a part of the lock's time.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// It ends after its time unless the caller renews it by [`Guard::renew`].
    #[must_use]
    pub fn without_renewal(mut self) -> Self {
        self.renewed = false;
        self
    }

    fn check(&self, longest_ms: i64) -> Result<(), LockError> {
        let ms = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let (least, most) = (ms(MIN_TTL_MS), ms(longest_ms.min(MAX_TTL_MS)));
        if !(least..=most).contains(&self.ttl) {
            return Err(LockError::Time { what: "a lock's time", least, most });
        }
        if !self.sealed && self.floor.is_some_and(|floor| floor.0 > MAX_FLOOR) {
            return Err(LockError::Floor);
        }
        let most = ms(MAX_WAIT_MS);
        if self.wait > most {
            return Err(LockError::Time { what: "the wait for a lock", least: Duration::ZERO, most });
        }
        if let Sync::Best { within } | Sync::Replicas { within, .. } = self.sync
            && within >= self.ttl
        {
            return Err(LockError::Time { what: "the wait for replicas", least: Duration::ZERO, most: self.ttl });
        }
        Ok(())
    }
}

/// A token that nobody guesses.
pub(super) fn random_token() -> LockToken {
    LockToken::parse(&uuid::Uuid::new_v4().simple().to_string()).expect("32 visible characters")
}

/// A number that no other call has.
pub(super) fn random_ask() -> AskId {
    // The bits of either half that are not random lie beside random ones of the other.
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    AskId(high ^ low)
}

impl Locks {
    /// Why the store cannot be asked, if that is known; and what it refused within the last minute and has not done since, though
    /// it can be asked: it is full, a key of it was destroyed. Cheap; for a probe.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.inner.store.trouble()
    }

    /// The locks of `store`. Its tasks run in the runtime this is called in.
    #[must_use]
    pub fn new(store: Arc<dyn LockStore>) -> Self {
        Self::with_time(store, Arc::new(HostTime))
    }

    /// The same, with a clock of a test's own: validity counts on `boot_ns`, which must run through suspend.
    #[must_use]
    pub fn with_time(store: Arc<dyn LockStore>, time: Arc<dyn TimeSource>) -> Self {
        let store: Arc<dyn LockStore> = Arc::new(Watched::new(store));
        let renewals = Arc::new(Renewals::new(time.clone()));
        let waits = Arc::new(Waits::default());
        let tasks = vec![
            tokio::spawn(super::renew::run(store.clone(), renewals.clone())),
            tokio::spawn(super::wait::listen(store.clone(), waits.clone())),
            tokio::spawn(super::wait::sign(store.clone(), waits.clone())),
        ];
        Self {
            inner: Arc::new(Inner {
                store,
                time,
                renewals,
                waits,
                pending: Pending::default(),
                leaving: Semaphore::new(acquire::MAX_LEAVING),
                tasks: Mutex::new(tasks),
            }),
        }
    }

    fn longest_ms(&self) -> i64 {
        self.inner.store.capabilities().longest_ms
    }

    /// Takes a lock.
    ///
    /// # Errors
    /// [`LockError::Name`], [`LockError::Time`], [`LockError::Floor`]: nothing was asked. [`LockError::Held`] (without a wait),
    /// [`LockError::Timeout`] (after it), [`LockError::Crowded`]; [`LockError::Unreachable`]: the store did not answer;
    /// [`LockError::NotReplicated`]; [`LockError::Spent`].
    pub async fn acquire(&self, name: &str, ask: Ask) -> Result<Guard, LockError> {
        ask.check(self.longest_ms())?;
        let name = LockName::parse(name)?;
        let (answer, answered) = oneshot::channel();
        let (inner, piece) = (self.inner.clone(), self.inner.pending.begin());
        tokio::spawn(async move {
            acquire::run(inner, name, ask, answer).await;
            drop(piece);
        });
        answered.await.unwrap_or(Err(LockError::Stopping)).map(Guard::told)
    }

    /// Moves the end of a lock to `ttl` from now, by its token: for callers that keep no guard, such as one of another
    /// language. Its fence, and for how long it may be relied on from the sending of this request.
    ///
    /// # Errors
    /// [`LockError::Lost`]; the others of [`Locks::acquire`].
    pub async fn renew(&self, name: &str, token: &LockToken, ttl: Duration) -> Result<(Fence, Duration), LockError> {
        Ask::new(ttl).check(self.longest_ms())?;
        let name = LockName::parse(name)?;
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(MAX_TTL_MS);
        let renewal = tidegate_backend::Renewal { name, token: token.clone(), ask: None, ttl_ms, fence: None };
        let mut answers = self.inner.store.renew(&[renewal]).await;
        let answer = answers.pop().ok_or(LockError::Stopping)?.map_err(LockError::Unreachable)?;
        let (fence, _) = answer.ok_or(LockError::Lost)?;
        Ok((fence, Duration::from_millis(tidegate_core::lock::relied_ms(ttl_ms).unsigned_abs())))
    }

    /// Gives a lock back, by its token; whether it was held.
    ///
    /// # Errors
    /// [`LockError::Name`], [`LockError::Unreachable`].
    pub async fn release(&self, name: &str, token: &LockToken) -> Result<bool, LockError> {
        let name = LockName::parse(name)?;
        self.inner.store.release(&name, token).await.map_err(LockError::Unreachable)
    }

    /// A lock as it stands.
    ///
    /// # Errors
    /// [`LockError::Name`], [`LockError::Unreachable`].
    pub async fn look(&self, name: &str) -> Result<Look, LockError> {
        self.inner.store.look(&LockName::parse(name)?).await.map_err(LockError::Unreachable)
    }

    /// Guards that are renewed now.
    #[must_use]
    pub fn renewed(&self) -> usize {
        self.inner.renewals.len()
    }

    /// Callers that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waits.len()
    }

    /// Ends the tasks and the store's; guards that are held end by themselves. Release them first. Callers that went away
    /// leave their lines, unless that takes longer than a second.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(LEAVES_WITHIN, self.inner.pending.none()).await;
        let tasks: Vec<_> = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
        for task in tasks {
            task.abort();
            // It was told to end; how it ended is of no interest.
            let _ = task.await;
        }
        self.inner.waits.close();
        self.inner.store.close().await;
    }
}
