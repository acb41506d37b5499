//! Guards, waiting, renewals, and callers that go away.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::lock::{
    Ask, AskId, EmbeddedLocks, Fence, Guard, Leave, LockCapabilities, LockError, LockName, LockStore, LockToken, Locks,
    Look, TimeSource,
};
use tidegate_backend::{BoxFuture, Error, ErrorKind, Renewal, Renewed, Result, SystemClock};
use tidegate_core::lock::{Acquire, Acquired, Process};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn locks() -> Locks {
    Locks::new(Arc::new(EmbeddedLocks::new(Arc::new(SystemClock))))
}

fn ask() -> Ask {
    Ask::new(5 * SECOND)
}

/// A store that does as it is told about failures.
struct Bent {
    real: EmbeddedLocks,
    away: AtomicBool,
    /// Answers come so much later, milliseconds.
    slow: AtomicU64,
    renewals: AtomicUsize,
}

impl Bent {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            real: EmbeddedLocks::new(Arc::new(SystemClock)),
            away: AtomicBool::new(false),
            slow: AtomicU64::new(0),
            renewals: AtomicUsize::new(0),
        })
    }

    async fn way(&self) -> Result<()> {
        tokio::time::sleep(Duration::from_millis(self.slow.load(Ordering::SeqCst))).await;
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "it is away"));
        }
        Ok(())
    }
}

impl LockStore for Bent {
    fn capabilities(&self) -> LockCapabilities {
        self.real.capabilities()
    }
    fn process(&self) -> Process {
        self.real.process()
    }
    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            // The effect comes first, then the answer may be lost.
            let acquired = self.real.acquire(name, asked).await;
            self.way().await?;
            acquired
        })
    }
    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        self.real.release(name, token)
    }
    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        self.real.leave(name, token, ask, why)
    }
    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        Box::pin(async move {
            self.renewals.fetch_add(locks.len(), Ordering::SeqCst);
            if let Err(e) = self.way().await {
                return locks.iter().map(|_| Err(Error::new(e.kind(), "away"))).collect();
            }
            self.real.renew(locks).await
        })
    }
    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        self.real.look(name)
    }
    fn sign<'a>(&'a self, names: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        self.real.sign(names)
    }
    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        self.real.woken()
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        self.real.close()
    }
}

async fn is_free(locks: &Locks, name: &str) -> bool {
    locks.look(name).await.unwrap().held.is_none()
}

/// How long until the lock is free.
async fn freed(locks: &Locks, name: &str) -> Duration {
    let began = Instant::now();
    while !is_free(locks, name).await {
        assert!(began.elapsed() < 10 * SECOND, "{name} stays held");
        tokio::time::sleep(MS).await;
    }
    began.elapsed()
}

#[tokio::test]
async fn one_at_a_time_with_growing_fences() {
    let locks = locks();
    let mut last = Fence(0);
    for _ in 0..5 {
        let guard = locks.acquire("report", ask()).await.unwrap();
        assert!(guard.fence() > last && guard.is_valid());
        assert!(guard.remaining() <= 5 * SECOND && guard.remaining() > 4 * SECOND);
        last = guard.fence();
        let refused = locks.acquire("report", ask()).await.unwrap_err();
        assert!(matches!(refused, LockError::Held { retry_after } if retry_after > 4 * SECOND), "{refused}");
        assert!(guard.release().await.unwrap());
    }
    let dropped = locks.acquire("report", ask()).await.unwrap();
    drop(dropped);
    assert!(freed(&locks, "report").await < 100 * MS);
    assert_eq!((locks.renewed(), locks.waiting()), (0, 0));
}

#[tokio::test]
async fn bad_input_is_refused_and_says_why() {
    let locks = locks();
    for (name, ask, word) in [
        ("", ask(), "empty"),
        ("a", Ask::new(99 * MS), "100ms"),
        ("a", Ask::new(100_000 * SECOND), "86400s"),
        ("a", ask().wait(31 * SECOND), "30s"),
    ] {
        let refused = locks.acquire(name, ask).await.unwrap_err();
        assert!(refused.to_string().contains(word), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_served_in_order_at_once() {
    let locks = locks();
    let first = locks.acquire("a", ask()).await.unwrap();
    let order: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut waiting = Vec::new();
    for n in 0..50u64 {
        let (others, order) = (locks.clone(), order.clone());
        waiting.push(tokio::spawn(async move {
            let guard = others.acquire("a", ask().wait(20 * SECOND)).await.unwrap();
            order.lock().unwrap().push(n);
            guard.release().await.unwrap();
        }));
        while locks.look("a").await.unwrap().waiters < waiting.len() {
            tokio::time::sleep(MS).await;
        }
    }
    let began = Instant::now();
    assert!(first.release().await.unwrap());
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert!(began.elapsed() < 2 * SECOND, "{:?}: nobody waits for a timer", began.elapsed());
    assert_eq!(*order.lock().unwrap(), (0..50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_its_deadline() {
    let locks = locks();
    let held = locks.acquire("a", ask()).await.unwrap();
    let began = Instant::now();
    let refused = locks.acquire("a", ask().wait(200 * MS)).await.unwrap_err();
    assert!(matches!(refused, LockError::Timeout { .. }), "{refused}");
    assert!((200 * MS..400 * MS).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((locks.waiting(), locks.look("a").await.unwrap().waiters), (0, 0));
    assert!(held.release().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let store = Bent::new();
    let locks = Locks::new(store.clone());
    // While the answer is on its way.
    store.slow.store(50, Ordering::SeqCst);
    let gone = tokio::time::timeout(10 * MS, locks.acquire("a", ask())).await;
    assert!(gone.is_err());
    assert!(freed(&locks, "a").await < 200 * MS);
    store.slow.store(0, Ordering::SeqCst);
    // While it waits, and when it is handed the lock.
    let held = locks.acquire("a", ask()).await.unwrap();
    let waiter = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("a", ask().wait(20 * SECOND)).await }
    });
    while locks.look("a").await.unwrap().waiters == 0 {
        tokio::time::sleep(MS).await;
    }
    waiter.abort();
    let _ = waiter.await;
    let began = Instant::now();
    while locks.look("a").await.unwrap().waiters > 0 {
        assert!(began.elapsed() < SECOND, "it stays in the line");
        tokio::time::sleep(MS).await;
    }
    assert!(held.release().await.unwrap());
    assert!(freed(&locks, "a").await < 100 * MS);
    assert_eq!((locks.renewed(), locks.waiting()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_cancellations_at_random_points_leave_no_key() {
    let locks = locks();
    let mut seed = 7u64;
    let mut tasks = Vec::new();
    for n in 0..2_000u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (locks, patience) = (locks.clone(), Duration::from_micros(seed >> 52));
        tasks.push(tokio::spawn(async move {
            let name = format!("lock-{}", n % 7);
            let hold = async {
                let guard = locks.acquire(&name, ask().wait(5 * SECOND)).await?;
                tokio::time::sleep(Duration::from_micros(200)).await;
                guard.release().await
            };
            let _ = tokio::time::timeout(patience, hold).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for n in 0..7 {
        assert!(freed(&locks, &format!("lock-{n}")).await < SECOND);
    }
    let began = Instant::now();
    while (locks.renewed(), locks.waiting()) != (0, 0) {
        assert!(began.elapsed() < SECOND, "something stays behind");
        tokio::time::sleep(MS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_is_renewed_while_it_lives_and_not_after() {
    let store = Bent::new();
    let locks = Locks::new(store.clone());
    let guard = locks.acquire("a", Ask::new(150 * MS)).await.unwrap();
    tokio::time::sleep(600 * MS).await;
    assert!(guard.is_valid(), "four times its time");
    assert!(store.renewals.load(Ordering::SeqCst) >= 8);
    assert!(guard.release().await.unwrap());
    let after = store.renewals.load(Ordering::SeqCst);
    tokio::time::sleep(300 * MS).await;
    assert_eq!(store.renewals.load(Ordering::SeqCst), after, "no renewal after the release");
    let ends = locks.acquire("b", Ask::new(150 * MS).without_renewal()).await.unwrap();
    tokio::time::sleep(200 * MS).await;
    assert!(!ends.is_valid());
    assert!(matches!(ends.renew().await.unwrap_err(), LockError::Lost));
    locks.acquire("b", ask()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_never_not_held() {
    let store = Bent::new();
    let locks = Locks::new(store.clone());
    let guard = locks.acquire("mine", Ask::new(300 * MS)).await.unwrap();
    store.away.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let refused = locks.acquire("a", ask()).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    let refused = locks.acquire("a", ask().wait(200 * MS)).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert!(is_free(&locks, "a").await, "what was granted without an answer is given back");
    // The guard is told before the lock can be another's.
    tokio::time::timeout(SECOND, guard.lost()).await.expect("it hears");
    assert!(!guard.is_valid());
    assert!(began.elapsed() <= 320 * MS + 200 * MS, "{:?}", began.elapsed());
    store.away.store(false, Ordering::SeqCst);
    locks.acquire("mine", ask().wait(SECOND)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_absence_of_the_store_loses_nothing() {
    let store = Bent::new();
    let locks = Locks::new(store.clone());
    let guard = locks.acquire("a", Ask::new(600 * MS)).await.unwrap();
    tokio::time::sleep(100 * MS).await;
    store.away.store(true, Ordering::SeqCst);
    tokio::time::sleep(300 * MS).await;
    store.away.store(false, Ordering::SeqCst);
    tokio::time::sleep(500 * MS).await;
    assert!(guard.is_valid(), "it is tried again until its time is over");
}

/// A clock that can jump.
struct Jumping(AtomicI64);

impl TimeSource for Jumping {
    fn wall_ns(&self) -> i64 {
        self.boot_ns()
    }
    fn boot_ns(&self) -> i64 {
        tidegate::lock::HostTime.boot_ns() + self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_slept_through_its_time_knows() {
    let time = Arc::new(Jumping(AtomicI64::new(0)));
    let locks = Locks::with_time(Arc::new(EmbeddedLocks::new(Arc::new(SystemClock))), time.clone());
    let guard: Guard = locks.acquire("a", ask()).await.unwrap();
    assert!(guard.is_valid());
    time.0.store(5_000_000_000, Ordering::SeqCst);
    assert!(!guard.is_valid(), "at once, without asking anybody");
    tokio::time::timeout(SECOND, guard.lost()).await.expect("it hears");
    assert!(matches!(guard.renew().await.unwrap_err(), LockError::Lost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_callers_own_is_the_same_request() {
    let locks = locks();
    let token = LockToken::parse("0123456789abcdef").unwrap();
    let ask = || Ask::new(5 * SECOND).token(token.clone()).without_renewal();
    let first = locks.acquire("a", ask()).await.unwrap();
    let fence = first.fence();
    assert_eq!(first.token(), &token);
    first.detach();
    let again = locks.acquire("a", ask()).await.unwrap();
    assert_eq!(again.fence(), fence);
    again.detach();
    let (same, valid) = locks.renew("a", &token, 3 * SECOND).await.unwrap();
    assert_eq!(same, fence);
    assert!(valid < 3 * SECOND && valid > 2_900 * MS);
    assert!(locks.release("a", &token).await.unwrap());
    assert!(!locks.release("a", &token).await.unwrap());
    assert!(matches!(locks.renew("a", &token, SECOND).await.unwrap_err(), LockError::Lost));
}

/// K1 of the third breaker: what a call was told stays, whatever becomes of others with its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_with_one_token_give_back_only_what_no_other_has() {
    let store = Arc::new(EmbeddedLocks::new(Arc::new(SystemClock)));
    // Two processes.
    let (one, two) = (Locks::new(Arc::new(store.handle())), Locks::new(store));
    let token = LockToken::parse("0123456789abcdef").unwrap();
    let ask = || ask().token(token.clone());
    let (first, second) = (one.acquire("a", ask()).await.unwrap(), two.acquire("a", ask()).await.unwrap());
    assert!(!first.is_repeated() && second.is_repeated() && first.fence() == second.fence());
    second.undelivered();
    tokio::time::sleep(50 * MS).await;
    assert!(!is_free(&one, "a").await, "the first has it");
    let second = two.acquire("a", ask()).await.unwrap();
    drop(first);
    tokio::time::sleep(50 * MS).await;
    assert!(!is_free(&one, "a").await, "its caller asked again since");
    drop(second);
    freed(&one, "a").await;
    // A process that died had it: its successor asks again, and is done.
    one.acquire("a", ask()).await.unwrap().detach();
    drop(two.acquire("a", ask()).await.unwrap());
    freed(&one, "a").await;
    one.acquire("a", ask()).await.unwrap().detach();
    // Its future is dropped before, or the guard before anybody was told.
    if let Ok(guard) = tokio::time::timeout(Duration::ZERO, two.acquire("a", ask().wait(SECOND))).await {
        guard.unwrap().undelivered();
    }
    tokio::time::sleep(50 * MS).await;
    assert!(!is_free(&one, "a").await);
    assert!(two.release("a", &token).await.unwrap());
}

/// K3: a floor is bounded, and a lock without fences says so.
#[tokio::test]
async fn a_floor_is_bounded() {
    use tidegate::lock::MAX_FLOOR;
    let locks = locks();
    let refused = locks.acquire("a", ask().floor(Fence(MAX_FLOOR + 1))).await.unwrap_err();
    assert!(matches!(refused, LockError::Floor) && refused.to_string().contains("4503599627370496"), "{refused}");
    let guard = locks.acquire("a", ask().floor(Fence(MAX_FLOOR))).await.unwrap();
    assert_eq!(guard.fence(), Fence(MAX_FLOOR + 1));
    guard.release().await.unwrap();
    assert_eq!(locks.acquire("a", ask()).await.unwrap().fence(), Fence(MAX_FLOOR + 2));
}

/// K5: the first in the line dies before it says that it was handed the lock. The next has it soon, not at the end of the time
/// that the holder had left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_to_one_that_died_is_noticed() {
    let store = Arc::new(EmbeddedLocks::new(Arc::new(SystemClock)));
    let (dead, locks) = (store.handle(), Locks::new(store));
    let holder = locks.acquire("a", Ask::new(60 * SECOND)).await.unwrap();
    let name = LockName::parse("a").unwrap();
    let token = LockToken::parse("of-one-that-dies").unwrap();
    let asked = Acquire { token, ask: AskId(7), process: dead.process(), ttl_ms: 60_000, floor: None, wait: true };
    dead.acquire(&name, &asked).await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("a", ask().wait(20 * SECOND)).await.unwrap() }
    });
    while locks.look("a").await.unwrap().waiters < 2 {
        tokio::time::sleep(MS).await;
    }
    dead.sign(&[name]).await.unwrap();
    holder.release().await.unwrap();
    let began = Instant::now();
    waiting.await.unwrap();
    assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
}
