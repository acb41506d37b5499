//! Who waits in this process: signs of life for them, and what they were handed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_backend::LockStore;
use tidegate_core::Set;
use tidegate_core::lock::rules::SIGN_MS;
use tidegate_core::lock::{LockName, LockToken};
use tokio::sync::Notify;

/// Who waits, by token: several calls may have the same one.
type Waiting = HashMap<LockToken, Vec<(LockName, Arc<Bell>)>>;

/// Signs of life between two questions for a lock that somebody waits for here: who was handed it may have died before it could
/// say so, and the store may have forgotten the line. One a second for each lock and process, whoever waits for it.
const QUESTION_EVERY: usize = 5;

/// What a caller that waits hears.
#[derive(Default)]
struct Bell {
    rung: Notify,
    /// It is to ask whether all is well.
    question: AtomicBool,
}

#[derive(Default)]
pub(super) struct Waits {
    waiting: Mutex<Waiting>,
    /// Rung when the first begins to wait.
    begun: Notify,
}

/// A caller that waits; it is forgotten when this is dropped.
pub(super) struct Waiter {
    waits: Arc<Waits>,
    token: LockToken,
    bell: Arc<Bell>,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>, name: &LockName, token: &LockToken) -> Waiter {
        let bell = Arc::<Bell>::default();
        self.lock().entry(token.clone()).or_default().push((name.clone(), bell.clone()));
        self.begun.notify_one();
        Waiter { waits: self.clone(), token: token.clone(), bell }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().values().map(Vec::len).sum()
    }

    fn names(&self) -> Vec<LockName> {
        let names: Set<LockName> = self.lock().values().flatten().map(|(name, _)| name.clone()).collect();
        names.into_iter().collect()
    }

    fn tell(&self, token: &LockToken) {
        for (_, bell) in self.lock().get(token).into_iter().flatten() {
            bell.rung.notify_one();
        }
    }

    /// Everybody asks again.
    pub(super) fn tell_all(&self) {
        for (_, bell) in self.lock().values().flatten() {
            bell.rung.notify_one();
        }
    }

    /// Everybody who waits for `name` asks again.
    fn tell_of(&self, name: &LockName) {
        for (_, bell) in self.lock().values().flatten().filter(|(other, _)| other == name) {
            bell.rung.notify_one();
        }
    }

    /// For each lock one of those who wait asks again, another each `turn`.
    fn question(&self, turn: usize) {
        let waiting = self.lock();
        let mut by_name: HashMap<&LockName, Vec<&Bell>> = HashMap::new();
        for (name, bell) in waiting.values().flatten() {
            by_name.entry(name).or_default().push(bell);
        }
        for bells in by_name.into_values() {
            let bell = bells[turn % bells.len()];
            bell.question.store(true, Ordering::Relaxed);
            bell.rung.notify_one();
        }
    }

    pub(super) fn close(&self) {
        self.tell_all();
    }
}

impl Waiter {
    pub(super) async fn told(&self) {
        self.bell.rung.notified().await;
    }

    /// It stood in the line, and now does so anew, or has the lock. If it was only to ask whether all is well, the others of `name`
    /// here are told: the line may be forgotten.
    pub(super) fn was_not_told(&self, name: &LockName) {
        if self.bell.question.swap(false, Ordering::Relaxed) {
            self.waits.tell_of(name);
        }
    }

    /// All was well.
    pub(super) fn stands(&self) {
        self.bell.question.store(false, Ordering::Relaxed);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waits.lock();
        if let Some(calls) = waiting.get_mut(&self.token) {
            calls.retain(|(_, bell)| !Arc::ptr_eq(bell, &self.bell));
            if calls.is_empty() {
                waiting.remove(&self.token);
            }
        }
    }
}

/// Hears what was handed to callers of this process.
pub(super) async fn listen(store: Arc<dyn LockStore>, waits: Arc<Waits>) {
    loop {
        let woken = store.woken().await;
        if woken.is_empty() {
            waits.tell_all();
        }
        for (_, token) in woken {
            waits.tell(&token);
        }
    }
}

/// Gives signs of life while somebody waits.
pub(super) async fn sign(store: Arc<dyn LockStore>, waits: Arc<Waits>) {
    let fair = store.capabilities().fair;
    for round in 1_usize.. {
        if fair && round.is_multiple_of(QUESTION_EVERY) {
            waits.question(round / QUESTION_EVERY);
        }
        let names = waits.names();
        if names.is_empty() {
            waits.begun.notified().await;
        } else if let Err(e) = store.sign(&names).await {
            tracing::debug!(error = %e, "a sign of life for waiters of locks did not arrive");
        }
        tokio::time::sleep(Duration::from_millis(SIGN_MS.unsigned_abs())).await;
    }
}
