//! The task that asks for a lock and waits for it. It outlives the caller: what is granted to nobody is given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::{Error, ErrorKind};
use tidegate_core::lock::{Acquire, Acquired, AskId, Leave, LockName, LockToken, MAX_TTL_MS};
use tokio::sync::oneshot;

use super::guard::Guard;
use super::locks::{Ask, Inner, Sync, random_ask, random_token};
use super::renew::Held;
use super::wait::Waiter;
use super::{LockError, metrics};

/// Between two attempts while the store does not answer.
const RETRY: Duration = Duration::from_millis(50);
/// For how long a call that failed tries to give back what it may have been granted; the longest pause meanwhile; most who do.
const LEAVES_FOR: Duration = Duration::from_secs(10);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
pub(super) const MAX_LEAVING: usize = 1_000;
/// Who is not first in the line asks so much later after the holder's time for each one before it: whoever is first has
/// been served then, and told.
const LATER: Duration = Duration::from_millis(20);

/// Where nobody hands the lock over: between the first two attempts, and at most; somewhere between half and all of it.
const AGAIN: Duration = Duration::from_millis(40);
const AGAIN_AT_MOST: Duration = Duration::from_millis(640);

fn jittered(pause: Duration) -> Duration {
    let thousandths = u32::try_from(uuid::Uuid::new_v4().as_u128() % 500).unwrap_or(0);
    pause / 2 + pause * thousandths / 1_000
}

type Answer = oneshot::Sender<Result<Guard, LockError>>;

pub(super) async fn run(inner: Arc<Inner>, name: LockName, ask: Ask, mut answer: Answer) {
    let token = ask.token.clone().unwrap_or_else(random_token);
    let asking = Asking { inner: &inner, name: &name, ask: &ask, token: &token, call: random_ask() };
    let call = asking.call;
    let outcome = tokio::select! {
        outcome = asking.acquire() => Some(outcome),
        () = answer.closed() => None,
    };
    let waited = !ask.wait.is_zero();
    match outcome {
        Some(Ok((held, again))) => {
            metrics::granted();
            if ask.renewed {
                inner.renewals.begin(&held);
            }
            // If the caller went away meanwhile, the guard is dropped here, and gives the lock back.
            let _ = answer.send(Ok(Guard::new(inner, held, again)));
        }
        Some(Err(e)) => {
            // What was answered too late, or not at all, may have been granted.
            let unknown = matches!(e, LockError::Unreachable(_));
            let mut owes = waited || unknown;
            if owes {
                owes = inner.store.leave(&name, &token, call, Leave::Untold).await.is_err() && unknown;
            }
            if matches!(e, LockError::Timeout { .. }) {
                metrics::timeout();
            }
            let _ = answer.send(Err(e));
            if owes {
                tokio::time::sleep(RETRY).await;
                give_up(&inner, &name, &token, call, Leave::Untold).await;
            }
        }
        None => give_up(&inner, &name, &token, call, Leave::Untold).await,
    }
}

/// One call leaves the line, and gives back what it was granted. A question that is still on its way comes before this one:
/// the store answers them in order. While the store is away it is tried again for some seconds: a connection that breaks must
/// not cost everybody the lock's time. After that it ends by itself.
pub(super) async fn give_up(inner: &Inner, name: &LockName, token: &LockToken, call: AskId, why: Leave) {
    let (began, mut pause) = (Instant::now(), RETRY);
    let mut turn = None;
    while let Err(e) = inner.store.leave(name, token, call, why).await {
        turn = turn.or_else(|| inner.leaving.try_acquire().ok());
        if turn.is_none() || began.elapsed() >= LEAVES_FOR {
            tracing::debug!(lock = %name, error = %e, "a lock is not given back; it ends by itself");
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

struct Asking<'a> {
    inner: &'a Inner,
    name: &'a LockName,
    ask: &'a Ask,
    token: &'a LockToken,
    call: AskId,
}

impl Asking<'_> {
    /// The lock, and whether another call with the token was told of it before.
    async fn acquire(&self) -> Result<(Arc<Held>, bool), LockError> {
        let deadline = Instant::now() + self.ask.wait;
        let waits = !self.ask.wait.is_zero();
        let waiter = waits.then(|| self.inner.waits.begin(self.name, self.token));
        let fair = self.inner.store.capabilities().fair;
        let mut again = AGAIN;
        let mut stood = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let sent = self.inner.time.boot_ns();
            // The last question joins no line that nobody will stand in.
            let asked = self.asked(waits && !left.is_zero());
            let pause = match self.inner.store.acquire(self.name, &asked).await {
                Ok(Acquired::Granted { fence, again, .. }) => {
                    if let Some(waiter) = waiter.as_ref().filter(|_| stood) {
                        waiter.was_not_told(self.name);
                    }
                    let mut held = Held::new(self.name.clone(), &asked, fence, sent);
                    held.degraded = self.is_degraded().await?;
                    if !held.remaining(&*self.inner.time).is_zero() {
                        return Ok((Arc::new(held), again));
                    }
                    // The answer took so long that nothing can be relied on: that is no grant.
                    if left.is_zero() {
                        let why = "its answer came when the time of the lock was over";
                        return Err(LockError::Unreachable(Error::new(ErrorKind::Unavailable, why)));
                    }
                    RETRY
                }
                Ok(Acquired::Held { for_ms, before, joined }) => {
                    match &waiter {
                        Some(waiter) if joined && stood => waiter.was_not_told(self.name),
                        Some(waiter) => waiter.stands(),
                        None => {}
                    }
                    stood |= before.is_some();
                    let retry_after = Duration::from_millis(for_ms.max(0).unsigned_abs());
                    if !waits {
                        return Err(LockError::Held { retry_after });
                    }
                    if left.is_zero() {
                        return Err(LockError::Timeout { retry_after });
                    }
                    if fair {
                        let place = u32::try_from(before.unwrap_or(0)).unwrap_or(u32::MAX);
                        retry_after + LATER.saturating_mul(place)
                    } else {
                        // Nobody tells us when it is free, and two that ask at once split the votes.
                        let pause = jittered(again);
                        again = (again * 2).min(AGAIN_AT_MOST);
                        pause.min(retry_after.max(AGAIN))
                    }
                }
                Ok(Acquired::Full) => return Err(LockError::Crowded),
                Ok(Acquired::Spent) => return Err(LockError::Spent),
                Err(e) if left.is_zero() => return Err(LockError::Unreachable(e)),
                Err(_) => RETRY,
            };
            self.pause(waiter.as_ref(), pause.min(left)).await;
        }
    }

    /// Waits for replicas, if they were asked for; whether there should be more.
    async fn is_degraded(&self) -> Result<bool, LockError> {
        let (wanted, within) = match self.ask.sync {
            Sync::None => return Ok(false),
            Sync::Best { within } => (1, within),
            Sync::Replicas { count, within } => (count, within),
        };
        let reached = self.inner.store.replicated(self.name, self.token, wanted, within).await;
        match (self.ask.sync, reached) {
            (_, Ok(reached)) if reached >= wanted => Ok(false),
            (Sync::Replicas { .. }, reached) => {
                // Nobody is to have it; it is given back before anything is said.
                let back = self.inner.store.leave(self.name, self.token, self.call, Leave::Untold).await;
                let reached = reached.map_err(LockError::Unreachable)?;
                back.map_err(LockError::Unreachable)?;
                Err(LockError::NotReplicated { wanted, reached })
            }
            _ => Ok(true),
        }
    }

    async fn pause(&self, waiter: Option<&Waiter>, pause: Duration) {
        match waiter {
            // Told, or not: it asks again.
            Some(waiter) => drop(tokio::time::timeout(pause, waiter.told()).await),
            None => tokio::time::sleep(pause).await,
        }
    }

    fn asked(&self, wait: bool) -> Acquire {
        Acquire {
            token: self.token.clone(),
            ask: self.call,
            process: self.inner.store.process(),
            ttl_ms: i64::try_from(self.ask.ttl.as_millis()).unwrap_or(MAX_TTL_MS),
            floor: self.ask.floor,
            wait,
        }
    }
}
