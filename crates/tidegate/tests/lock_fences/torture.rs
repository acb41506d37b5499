//! Holders that are paused, a store that forgets, clocks that step, at random: no write comes late. Without the check some do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::lock::{
    Ask, AskId, EmbeddedLocks, FenceError, Fenced, Leave, LockCapabilities, LockError, LockName, LockStore, LockToken,
    Locks, Look,
};
use tidegate_backend::{BoxFuture, Clock, ManualClock, Renewal, Renewed, Result, SystemClock};
use tidegate_core::Millis;
use tidegate_core::lock::{Acquire, Acquired, Process};

use super::data::{Shop, mariadb, postgres, sqlite};
use super::late::Held;

/// A store whose clock steps and that forgets everything, as a flush or a failover makes it.
struct Shaky {
    now: Mutex<(Arc<EmbeddedLocks>, Arc<ManualClock>)>,
}

fn fresh(at: Millis) -> (Arc<EmbeddedLocks>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(at));
    (Arc::new(EmbeddedLocks::new(clock.clone())), clock)
}

impl Shaky {
    fn new() -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(fresh(SystemClock.now())) })
    }

    fn store(&self) -> Arc<EmbeddedLocks> {
        self.now.lock().unwrap().0.clone()
    }

    /// Time passes: what is held may run out.
    fn pass(&self, ms: i64) {
        let clock = self.now.lock().unwrap().1.clone();
        clock.advance_to(clock.now().plus(ms)).unwrap();
    }

    /// Everything is forgotten, and the clock is `by` away from where it was.
    fn forget(&self, by: i64) {
        let mut now = self.now.lock().unwrap();
        let at = now.1.now().plus(by);
        *now = fresh(at);
    }
}

impl LockStore for Shaky {
    fn capabilities(&self) -> LockCapabilities {
        self.store().capabilities()
    }
    fn process(&self) -> Process {
        Process(1)
    }
    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move { self.store().acquire(name, asked).await })
    }
    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.store().release(name, token).await })
    }
    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.store().leave(name, token, ask, why).await })
    }
    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        Box::pin(async move { self.store().renew(locks).await })
    }
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        Box::pin(async move { self.store().look(name).await })
    }
    fn sign<'a>(&'a self, _: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        Box::pin(std::future::pending())
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Default, Debug)]
struct Seen {
    written: AtomicU64,
    refused: AtomicU64,
    held: AtomicU64,
    retried: AtomicU64,
}

fn dice(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// `operations` (writes that are tried) by eight holders that never know that their time is over.
async fn torture(shop: &Shop, operations: u64, checked: bool) -> Seen {
    let store = Shaky::new();
    let (seen, left) = (Seen::default(), AtomicU64::new(operations));
    let holder = async |n: u64| {
        let mut seed = n + 1;
        let locks = Locks::with_time(store.clone(), Held::new());
        let fenced = Fenced::new(locks.clone(), shop.fences.clone());
        let mut floor = None;
        while left.load(Ordering::SeqCst) > 0 {
            let roll = dice(&mut seed) % 100;
            match roll {
                0..8 => store.forget(0),
                8..12 => store.forget(-(dice(&mut seed).cast_signed() % 60_000)),
                12..40 => store.pass(150),
                _ => {}
            }
            // Sealed before it reads, or only in its transaction.
            let mut ask = Ask::new(Duration::from_millis(100)).without_renewal();
            if let Some(floor) = floor {
                ask = ask.floor(floor);
            }
            let guard = if checked && roll.is_multiple_of(2) {
                fenced.acquire("row", ask).await.map(tidegate::lock::FencedGuard::into_guard)
            } else {
                locks.acquire("row", ask).await.map_err(FenceError::Lock)
            };
            let guard = match guard {
                Ok(guard) => guard,
                Err(FenceError::Lock(LockError::Held { .. })) => {
                    seen.held.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_micros(200)).await;
                    continue;
                }
                Err(FenceError::Stale(_)) => {
                    seen.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Err(e) => panic!("{e}"),
            };
            for _ in 0..=dice(&mut seed) % 3 {
                let _ = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                if dice(&mut seed).is_multiple_of(3) {
                    // A pause, long enough for others.
                    for _ in 0..dice(&mut seed) % 8 {
                        tokio::task::yield_now().await;
                    }
                    tokio::time::sleep(Duration::from_micros(dice(&mut seed) % 3_000)).await;
                }
                let counted = match shop.write(&guard, checked).await {
                    Ok(()) => &seen.written,
                    Err(FenceError::Stale(stale)) => {
                        floor = Some(stale.floor);
                        &seen.refused
                    }
                    Err(FenceError::Lock(_)) => &seen.refused,
                    // Two that met; the database chose.
                    Err(FenceError::Database(_)) => &seen.retried,
                    Err(e) => panic!("{e}"),
                };
                counted.fetch_add(1, Ordering::Relaxed);
            }
            if roll.is_multiple_of(3) {
                let _ = guard.release().await;
            } else {
                guard.detach();
            }
        }
    };
    tokio::join!(holder(0), holder(1), holder(2), holder(3), holder(4), holder(5), holder(6), holder(7));
    seen
}

async fn nobody_writes_late(shop: Shop, operations: u64) {
    let seen = torture(&shop, operations, true).await;
    let (writes, late) = shop.counts().await;
    assert_eq!(late, 0, "{seen:?}");
    assert_eq!(writes.cast_unsigned(), seen.written.load(Ordering::Relaxed), "what was refused was not written");
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(of(&seen.written) > operations / 20 && of(&seen.refused) > operations / 50, "poor in {seen:?}");
    shop.close().await;
}

fn scaled(few: u64, many: u64) -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { many } else { few }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_writes_late_on_sqlite() {
    // In full: a million, as the case says; as many as a build without optimization writes in four minutes or so.
    let whole = if cfg!(debug_assertions) { 350_000 } else { 1_000_000 };
    nobody_writes_late(sqlite().await, scaled(1_500, whole)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_writes_late_on_mariadb() {
    nobody_writes_late(mariadb().await, scaled(400, 20_000)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_writes_late_on_postgresql() {
    nobody_writes_late(postgres().await, scaled(400, 20_000)).await;
}

/// The mutant: the same without the check. The torture can see what it is there to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_check_some_write_late() {
    let shop = sqlite().await;
    let seen = torture(&shop, 400, false).await;
    let (_, late) = shop.counts().await;
    assert!(late > 0, "{seen:?}");
    shop.close().await;
}
