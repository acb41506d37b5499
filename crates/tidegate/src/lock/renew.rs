//! The one task that renews every guard of the process, in batches, at a third of their time; and what a guard may rely on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_backend::lock::MAX_LOCK_BATCH;
use tidegate_backend::steady::TimeSource;
use tidegate_backend::{LockStore, Renewal, Renewed, Result};
use tidegate_core::lock::{Acquire, AskId, Fence, LockName, LockToken, relied_ms};
use tokio::sync::Notify;

use super::{LockError, metrics};

const NS_PER_MS: i64 = 1_000_000;
/// Renewals that fall due within this are sent together.
const TOGETHER_NS: i64 = 5 * NS_PER_MS;
/// Between two attempts while the store does not answer.
const RETRY_NS: i64 = 50 * NS_PER_MS;
/// The longest sleep: the timer's clock stands still in suspend, the clock of validity does not.
const LONGEST: Duration = Duration::from_millis(200);

/// A lock that is held.
pub(super) struct Held {
    pub name: LockName,
    pub token: LockToken,
    /// The call it was granted to.
    pub ask: AskId,
    pub fence: Fence,
    pub ttl_ms: i64,
    /// Until when it may be relied on, on the clock that runs through suspend.
    valid_until: AtomicI64,
    lost: AtomicBool,
    /// Rung when it is.
    told: Notify,
    /// It may have reached no replica.
    pub degraded: bool,
    /// Its key in the list of renewals; 0: it is not in it.
    place: AtomicU64,
}

impl Held {
    /// Granted by a request that was sent at `sent` (nanoseconds of the boot clock).
    pub(super) fn new(name: LockName, asked: &Acquire, fence: Fence, sent: i64) -> Self {
        let held = Self {
            name,
            token: asked.token.clone(),
            ask: asked.ask,
            fence,
            ttl_ms: asked.ttl_ms,
            valid_until: AtomicI64::new(0),
            lost: AtomicBool::new(false),
            told: Notify::new(),
            degraded: false,
            place: AtomicU64::new(0),
        };
        held.renewed_at(sent);
        held
    }

    fn renewed_at(&self, sent: i64) {
        self.valid_until.store(sent.saturating_add(relied_ms(self.ttl_ms) * NS_PER_MS), Ordering::Release);
    }

    pub(super) fn remaining(&self, time: &dyn TimeSource) -> Duration {
        if self.lost.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let left = self.valid_until.load(Ordering::Acquire).saturating_sub(time.boot_ns());
        Duration::from_nanos(left.max(0).unsigned_abs())
    }

    pub(super) async fn lost(&self) {
        // It hears what is told from here on, before it is asked for the first time.
        let told = self.told.notified();
        if !self.lost.load(Ordering::Acquire) {
            told.await;
        }
    }

    /// It is nobody's any more; whether it was valid until now.
    pub(super) fn end(&self) -> bool {
        let was_valid = !self.lost.swap(true, Ordering::AcqRel);
        self.told.notify_waiters();
        was_valid
    }

    pub(super) fn lose(&self) {
        if self.end() {
            tracing::warn!(name = %self.name, fence = self.fence.0, "a lock is lost: it ran out or was taken");
            metrics::lost();
        }
    }
}

/// Guards by the instant of their next renewal.
pub(super) struct Renewals {
    time: Arc<dyn TimeSource>,
    due: Mutex<Due>,
    bell: Notify,
}

#[derive(Default)]
struct Due {
    by_instant: BTreeMap<(i64, u64), Arc<Held>>,
    instants: std::collections::HashMap<u64, i64>,
    last: u64,
}

impl Renewals {
    pub(super) fn new(time: Arc<dyn TimeSource>) -> Self {
        Self { time, due: Mutex::default(), bell: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().by_instant.len()
    }

    /// Renews it from now on.
    pub(super) fn begin(&self, held: &Arc<Held>) {
        let mut due = self.lock();
        due.last += 1;
        let place = due.last;
        held.place.store(place, Ordering::Release);
        let now = self.time.boot_ns();
        let at = next(held, now);
        due.put(at, place, held.clone());
        drop(due);
        // Later than that it is seen without being told of.
        if Duration::from_nanos(at.saturating_sub(now).max(0).unsigned_abs()) < LONGEST {
            self.bell.notify_one();
        }
    }

    /// Renews it no more.
    pub(super) fn forget(&self, held: &Held) {
        let place = held.place.swap(0, Ordering::AcqRel);
        self.lock().take(place);
    }

    /// What is due now, and otherwise how long until something is.
    fn due(&self) -> std::result::Result<Vec<Arc<Held>>, Duration> {
        let now = self.time.boot_ns();
        let mut due = self.lock();
        let Some(((first, _), _)) = due.by_instant.first_key_value() else { return Err(LONGEST) };
        if *first > now {
            return Err(Duration::from_nanos((first - now).unsigned_abs()).min(LONGEST));
        }
        let mut some = Vec::new();
        while some.len() < MAX_LOCK_BATCH
            && let Some(entry) = due.by_instant.first_entry()
            && entry.key().0 <= now + TOGETHER_NS
        {
            let ((_, place), held) = entry.remove_entry();
            due.instants.remove(&place);
            some.push(held);
        }
        Ok(some)
    }

    /// Puts it back, unless it was released meanwhile.
    fn put_back(&self, held: &Arc<Held>, at: i64) {
        let mut due = self.lock();
        let place = held.place.load(Ordering::Acquire);
        if place != 0 {
            due.put(at, place, held.clone());
        }
    }
}

impl Due {
    fn put(&mut self, at: i64, place: u64, held: Arc<Held>) {
        self.take(place);
        self.instants.insert(place, at);
        self.by_instant.insert((at, place), held);
    }

    fn take(&mut self, place: u64) {
        if let Some(at) = self.instants.remove(&place) {
            self.by_instant.remove(&(at, place));
        }
    }
}

/// A third of its time from now, up to a tenth of that sooner, so that locks that were taken together part.
fn next(held: &Held, now: i64) -> i64 {
    let third = held.ttl_ms * NS_PER_MS / 3;
    let spread = i64::try_from(held.ask.0 % 1_000).unwrap_or(0);
    now.saturating_add(third - third / 10 * spread / 1_000)
}

fn renewal(held: &Held) -> Renewal {
    Renewal {
        name: held.name.clone(),
        token: held.token.clone(),
        ask: Some(held.ask),
        ttl_ms: held.ttl_ms,
        fence: Some(held.fence),
    }
}

/// Renews one now.
pub(super) async fn one(
    store: &dyn LockStore,
    held: &Held,
    time: &dyn TimeSource,
) -> std::result::Result<(), LockError> {
    if held.remaining(time).is_zero() {
        held.lose();
        return Err(LockError::Lost);
    }
    let sent = time.boot_ns();
    let answer = store.renew(&[renewal(held)]).await.pop().unwrap_or(Ok(None));
    match answer.map_err(LockError::Unreachable)? {
        Some(_) => {
            held.renewed_at(sent);
            Ok(())
        }
        None => {
            held.lose();
            Err(LockError::Lost)
        }
    }
}

/// Renews until it is aborted. Nothing is renewed that was lost.
pub(super) async fn run(store: Arc<dyn LockStore>, renewals: Arc<Renewals>) {
    loop {
        let some = match renewals.due() {
            Ok(some) => some,
            Err(sleep) => {
                let _ = tokio::time::timeout(sleep, renewals.bell.notified()).await;
                continue;
            }
        };
        let (valid, over): (Vec<_>, Vec<_>) =
            some.into_iter().partition(|held| !held.remaining(&*renewals.time).is_zero());
        for held in over {
            held.lose();
        }
        if valid.is_empty() {
            continue;
        }
        let sent = renewals.time.boot_ns();
        let asked: Vec<Renewal> = valid.iter().map(|held| renewal(held)).collect();
        // A store that hangs must not keep a loss from being told.
        let soonest = valid.iter().map(|held| held.remaining(&*renewals.time)).min().unwrap_or(LONGEST);
        let answers = tokio::time::timeout(soonest, store.renew(&asked)).await;
        let answers: Vec<Result<Renewed>> = answers.unwrap_or_else(|_| {
            let silent = || tidegate_backend::Error::new(tidegate_backend::ErrorKind::Unavailable, "no answer in time");
            valid.iter().map(|_| Err(silent())).collect()
        });
        let now = renewals.time.boot_ns();
        for (held, answer) in valid.iter().zip(answers) {
            match answer {
                Ok(Some(_)) => {
                    held.renewed_at(sent);
                    renewals.put_back(held, next(held, now));
                }
                Ok(None) => held.lose(),
                Err(_) => {
                    let until = held.valid_until.load(Ordering::Acquire);
                    renewals.put_back(held, until.min(now.saturating_add(RETRY_NS)));
                }
            }
        }
    }
}
