//! Locks of one process: each is `tidegate_core::lock::Lock` itself, in sharded maps.
//!
//! A handle is to the store what a process is to a shared one: it has a line of messages of its own, and its waiters are
//! passed over once it gives no sign of life.

use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_backend::{BoxFuture, Clock, LockCapabilities, LockStore, Renewal, Renewed, Result};
use tidegate_core::Map;
use tidegate_core::Millis;
use tidegate_core::lock::model::Step;
use tidegate_core::lock::rules::ALIVE_MS;
use tidegate_core::lock::{
    Acquire, Acquired, AskId, Handed, Leave, Lock, LockName, LockToken, Look, MAX_TTL_MS, Process,
};
use tokio::sync::Notify;

/// Maps that the locks are spread over.
const SHARDS: usize = 64;
/// Names that wait to be heard; of more, the handle is told that it missed some.
const MAX_WOKEN: usize = 100_000;

/// Locks of a shard before those that ran out unreleased are looked for.
const SWEEP: usize = 256;

/// Some of the locks.
struct Shard {
    locks: Map<LockName, Lock>,
    /// How many there are when the next sweep is due: twice what the last one left, so that a step costs little.
    sweep_at: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { locks: Map::default(), sweep_at: SWEEP }
    }
}

struct Store {
    shards: Vec<Mutex<Shard>>,
    hasher: foldhash::fast::RandomState,
    clock: Arc<dyn Clock>,
    processes: Mutex<Map<Process, Arc<Handle>>>,
    next_process: AtomicU64,
}

/// What a handle hears, and when it was last heard of.
struct Handle {
    woken: Mutex<Woken>,
    bell: Notify,
    seen: Mutex<Millis>,
}

#[derive(Default)]
struct Woken {
    names: VecDeque<(LockName, LockToken)>,
    missed: bool,
}

/// Locks in this process: one handle on them.
pub struct EmbeddedLocks {
    store: Arc<Store>,
    process: Process,
    handle: Arc<Handle>,
}

impl fmt::Debug for EmbeddedLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLocks").field("process", &self.process).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every step leaves what it guards whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EmbeddedLocks {
    /// No locks yet. Their time is `clock`'s.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let store = Arc::new(Store {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
            clock,
            processes: Mutex::default(),
            next_process: AtomicU64::new(1),
        });
        Self::on(store)
    }

    /// Another handle on the same locks.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self::on(self.store.clone())
    }

    fn on(store: Arc<Store>) -> Self {
        let process = Process(store.next_process.fetch_add(1, Ordering::Relaxed));
        let seen = Mutex::new(store.clock.now());
        let handle = Arc::new(Handle { woken: Mutex::default(), bell: Notify::new(), seen });
        lock(&store.processes).insert(process, handle.clone());
        Self { store, process, handle }
    }

    fn leave_all(&self) {
        lock(&self.store.processes).remove(&self.process);
    }
}

impl Drop for EmbeddedLocks {
    fn drop(&mut self) {
        self.leave_all();
    }
}

impl Store {
    /// One step on a lock, and whoever it wakes is told.
    fn on<T>(&self, name: &LockName, step: impl FnOnce(&mut Lock, Step<'_>) -> (T, Vec<Handed>)) -> T {
        let now = self.clock.now();
        let now_us = now.0.max(0).unsigned_abs() * 1_000;
        let alive = |process: Process| self.is_alive(process, now);
        let at = usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).expect("it is small");
        let mut shard = lock(&self.shards[at]);
        let held = shard.locks.entry(name.clone()).or_default();
        let (answer, wake) = step(held, Step { now, now_us, alive: &alive });
        // Forgotten once the clock alone makes the next fence a larger one.
        let over = |lock: &Lock| lock.is_idle(now) && lock.last_fence().0 < now_us;
        if over(held) {
            shard.locks.remove(name);
        }
        if shard.locks.len() >= shard.sweep_at {
            shard.locks.retain(|_, lock| !over(lock));
            shard.sweep_at = SWEEP.max(2 * shard.locks.len());
        }
        drop(shard);
        for handed in wake {
            self.wake(handed, name);
        }
        answer
    }

    fn is_alive(&self, process: Process, now: Millis) -> bool {
        let handle = lock(&self.processes).get(&process).cloned();
        handle.is_some_and(|handle| now.since(*lock(&handle.seen)) <= ALIVE_MS)
    }

    fn wake(&self, handed: Handed, name: &LockName) {
        let Some(handle) = lock(&self.processes).get(&handed.process).cloned() else { return };
        let mut woken = lock(&handle.woken);
        if woken.names.len() < MAX_WOKEN {
            woken.names.push_back((name.clone(), handed.token));
        } else {
            woken.missed = true;
        }
        drop(woken);
        handle.bell.notify_one();
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl LockStore for EmbeddedLocks {
    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities { name: "embedded", shared: false, fair: true, longest_ms: MAX_TTL_MS }
    }

    fn process(&self) -> Process {
        self.process
    }

    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        *lock(&self.handle.seen) = self.store.clock.now();
        ready(Ok(self.store.on(name, |held, step| held.acquire(step, asked))))
    }

    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        let released = self.store.on(name, |held, step| {
            let released = held.release(step, token);
            (released.held, released.wake)
        });
        ready(Ok(released))
    }

    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        self.store.on(name, |held, step| ((), held.leave(step, token, ask, why).wake));
        ready(Ok(()))
    }

    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        let renew = |renewal: &Renewal| {
            let Renewal { name, token, ask, ttl_ms, .. } = renewal;
            Ok(self.store.on(name, |held, step| (held.renew(step.now, token, *ask, *ttl_ms), Vec::new())))
        };
        ready(locks.iter().map(renew).collect())
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        ready(Ok(self.store.on(name, |held, step| (held.look(step.now), Vec::new()))))
    }

    fn sign<'a>(&'a self, _names: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        *lock(&self.handle.seen) = self.store.clock.now();
        ready(Ok(()))
    }

    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        Box::pin(async move {
            loop {
                let rung = self.handle.bell.notified();
                {
                    let mut woken = lock(&self.handle.woken);
                    if std::mem::take(&mut woken.missed) {
                        woken.names.clear();
                        return Vec::new();
                    }
                    if !woken.names.is_empty() {
                        return woken.names.drain(..).collect();
                    }
                }
                rung.await;
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.leave_all();
        ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate_backend::ManualClock;
    use tidegate_conformance::lock::Harness;

    use super::*;

    struct InProcess {
        locks: Arc<EmbeddedLocks>,
        clock: Arc<ManualClock>,
    }

    impl Harness for InProcess {
        fn store(&self) -> Arc<dyn LockStore> {
            self.locks.clone()
        }

        fn another(&self) -> BoxFuture<'_, Arc<dyn LockStore>> {
            ready(Arc::new(self.locks.handle()))
        }

        fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
            let ms = i64::try_from(time.as_millis()).expect("short");
            self.clock.advance_to(self.clock.now().plus(ms)).expect("a manual clock");
            ready(())
        }
    }

    async fn open() -> InProcess {
        let clock = Arc::new(ManualClock::new(Millis(1_800_000_000_000)));
        InProcess { locks: Arc::new(EmbeddedLocks::new(clock.clone())), clock }
    }

    tidegate_conformance::lock_conformance!(open);

    #[tokio::test]
    async fn what_is_idle_takes_no_memory() {
        let it = open().await;
        let token = LockToken::parse("0123456789abcdef").expect("a token");
        let (ask, process) = (AskId(1), it.locks.process());
        let asked = Acquire { token: token.clone(), ask, process, ttl_ms: 1_000, floor: None, wait: false };
        for n in 0..10_000 {
            let name = LockName::parse(&n.to_string()).expect("a name");
            it.locks.acquire(&name, &asked).await.expect("it answers");
            it.clock.advance_to(it.clock.now().plus(1)).expect("a manual clock");
            assert!(it.locks.release(&name, &token).await.expect("it answers"));
        }
        let left = || it.locks.store.shards.iter().map(|shard| lock(shard).locks.len()).sum::<usize>();
        assert_eq!(left(), 0);
        for n in 0..200_000 {
            let name = LockName::parse(&n.to_string()).expect("a name");
            it.locks.acquire(&name, &asked).await.expect("it answers");
            if n % 100 == 0 {
                it.clock.advance_to(it.clock.now().plus(1_001)).expect("a manual clock");
            }
        }
        assert!(left() <= 2 * SHARDS * SWEEP, "{} that ran out are kept", left());
    }
}
