//! Holders that come late.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tidegate::lock::{
    Ask, EmbeddedLocks, Fence, FenceError, Fenced, Guard, HostTime, LockError, LockName, LockToken, Locks, RedisLocks,
    Seal, Sealed, StaleFence, TimeSource,
};
use tidegate_backend::{ManualClock, SystemClock};
use tidegate_conformance::servers::{Engine, Folder, Redis, Setup, wait_until};
use tidegate_core::Millis;
use tidegate_redis::{Connector, RedisOptions};

use super::data::{Shop, Target, mariadb, postgres, sqlite};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// The time of a lock that is outlived.
const SHORT: Duration = Duration::from_millis(150);

/// A clock that stands still: of a holder that does not know that it was paused.
pub struct Held(AtomicI64);

impl Held {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(HostTime.boot_ns())))
    }
}

impl TimeSource for Held {
    fn wall_ns(&self) -> i64 {
        self.boot_ns()
    }
    fn boot_ns(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A clock that jumps when it is told.
struct Jumping(AtomicI64);

impl TimeSource for Jumping {
    fn wall_ns(&self) -> i64 {
        self.boot_ns()
    }
    fn boot_ns(&self) -> i64 {
        HostTime.boot_ns() + self.0.load(Ordering::SeqCst)
    }
}

pub async fn on_redis(url: &str, time: Arc<dyn TimeSource>) -> Locks {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name("fences").unwrap()).await.unwrap();
    Locks::with_time(Arc::new(RedisLocks::open(connector)), time)
}

fn stale(refused: Result<(), FenceError>) -> Fence {
    match refused {
        Err(FenceError::Stale(StaleFence { floor })) => floor,
        other => panic!("not refused as late: {other:?}"),
    }
}

fn ask() -> Ask {
    Ask::new(10 * SECOND)
}

async fn a_paused_holder_is_refused(shop: Shop) {
    let store = EmbeddedLocks::new(Arc::new(SystemClock));
    let others = Locks::new(Arc::new(store.handle()));
    let paused = Locks::with_time(Arc::new(store), Held::new());
    let late = paused.acquire("row", Ask::new(SHORT).without_renewal()).await.unwrap();
    shop.write(&late, true).await.expect("it is the newest");
    tokio::time::sleep(SHORT + 50 * MS).await;
    let newer = Fenced::new(others, shop.fences.clone()).acquire("row", ask()).await.unwrap();
    assert!(newer.fence() > late.fence());
    // It believes that it holds the lock; the newer one has written nothing yet, but it may have read.
    assert!(late.is_valid());
    assert_eq!(stale(shop.write(&late, true).await), newer.fence());
    shop.write(&newer, true).await.unwrap();
    assert!(!late.is_valid(), "it knows now");
    tokio::time::timeout(SECOND, late.lost()).await.expect("and hears it");
    assert!(matches!(shop.write(&late, true).await, Err(FenceError::Lock(LockError::Lost))));
    assert_eq!(shop.counts().await, (2, 0));
    // What happens without the check: this test can fail.
    shop.write(&late, false).await.unwrap();
    assert_eq!(shop.counts().await, (3, 1));
    shop.close().await;
}

/// L26: a clock that runs through suspend says that the time is over; the data are not even asked.
async fn a_holder_that_slept_is_refused(shop: Shop) {
    let time = Arc::new(Jumping(AtomicI64::new(0)));
    let locks = Locks::with_time(Arc::new(EmbeddedLocks::new(Arc::new(SystemClock))), time.clone());
    let guard = locks.acquire("row", ask()).await.unwrap();
    time.0.store(10_000_000_000, Ordering::SeqCst);
    assert!(!guard.is_valid());
    assert!(matches!(shop.write(&guard, true).await, Err(FenceError::Lock(LockError::Lost))));
    assert!(matches!(guard.seal(&*shop.fences).await, Err(FenceError::Lock(LockError::Lost))));
    assert_eq!(shop.counts().await, (0, 0));
    shop.close().await;
}

async fn a_store_that_lost_everything_is_outlived(shop: Shop) {
    let redis = Redis::start();
    // It does not even renew: nothing but the data can tell it.
    let late = on_redis(&redis.url(), Held::new()).await.acquire("row", ask().without_renewal()).await.unwrap();
    shop.write(&late, true).await.unwrap();
    redis.tell(&["FLUSHALL"]);
    let locks = on_redis(&redis.url(), Arc::new(HostTime)).await;
    let newer = Fenced::new(locks, shop.fences.clone()).acquire("row", ask()).await.expect("it is free again");
    assert!(newer.fence() > late.fence());
    assert_eq!(stale(shop.write(&late, true).await), newer.fence());
    shop.write(&newer, true).await.unwrap();
    assert_eq!(shop.counts().await, (2, 0));
    shop.close().await;
}

/// A replica is promoted that never heard of the lock.
async fn a_failover_that_loses_the_key_is_outlived(shop: Shop) {
    let master = Redis::start();
    let replica = Redis::start_with(Setup::default().option("replicaof", &format!("127.0.0.1 {}", master.port())));
    wait_until("the replica to follow", || replica.tell(&["INFO", "replication"]).contains("master_link_status:up"));
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    let late = on_redis(&master.url(), Held::new()).await.acquire("row", ask().without_renewal()).await.unwrap();
    shop.write(&late, true).await.unwrap();
    master.kill();
    let locks = on_redis(&replica.url(), Arc::new(HostTime)).await;
    let newer = Fenced::new(locks, shop.fences.clone()).acquire("row", ask()).await.expect("it is free there");
    assert!(newer.fence() > late.fence());
    assert_eq!(stale(shop.write(&late, true).await), newer.fence());
    shop.write(&newer, true).await.unwrap();
    assert_eq!(shop.counts().await, (2, 0));
    shop.close().await;
}

/// Its clock is an hour behind, too: the first grant is below what the data have seen, the second above.
async fn a_store_that_lost_its_clock_is_told_the_floor(shop: Shop) {
    let now = tidegate_backend::Clock::now(&SystemClock);
    let first = Locks::new(Arc::new(EmbeddedLocks::new(Arc::new(ManualClock::new(now)))));
    let late = Fenced::new(first, shop.fences.clone()).acquire("row", ask()).await.unwrap();
    let behind = Arc::new(ManualClock::new(Millis(now.0 - 3_600_000)));
    let second = Locks::new(Arc::new(EmbeddedLocks::new(behind)));
    let below = second.acquire("row", ask()).await.unwrap();
    assert!(below.fence() < late.fence());
    assert_eq!(stale(below.seal(&*shop.fences).await), late.fence());
    assert!(below.release().await.is_ok());
    let newer = Fenced::new(second, shop.fences.clone()).acquire("row", ask()).await.expect("it asks above the floor");
    assert!(newer.fence() > late.fence());
    shop.write(&newer, true).await.unwrap();
    assert_eq!(stale(shop.write(&late, true).await), newer.fence());
    shop.close().await;
}

/// Equal fences of two stores are two grants; the same grant seals as often as it likes.
async fn one_fence_has_one_owner(shop: Shop) {
    let token = |text: &str| LockToken::parse(text).unwrap();
    let seal = |fence, owner: &str| Seal::new(LockName::parse("row").unwrap(), Fence(fence), &token(owner));
    let one = seal(7, "one-0123456789abcdef");
    for _ in 0..2 {
        assert_eq!(shop.fences.seal(&one).await.unwrap(), Sealed::Newest);
    }
    let other = seal(7, "other-0123456789abcdef");
    assert_eq!(shop.fences.seal(&other).await.unwrap(), Sealed::Stale { floor: Fence(7) });
    assert_eq!(shop.fences.seal(&seal(6, "one-0123456789abcdef")).await.unwrap(), Sealed::Stale { floor: Fence(7) });
    assert_eq!(shop.fences.seal(&seal(8, "other-0123456789abcdef")).await.unwrap(), Sealed::Newest);
    assert_eq!(shop.fences.seal(&one).await.unwrap(), Sealed::Stale { floor: Fence(8) });
    let elsewhere = Seal { name: LockName::parse("Row").unwrap(), ..one };
    assert_eq!(shop.fences.seal(&elsewhere).await.unwrap(), Sealed::Newest, "names are bytes");
    assert!(shop.fences.seal(&seal(0, "one-0123456789abcdef")).await.is_err(), "0 is no fence");
    shop.close().await;
}

/// Runs in a process of its own: it takes the lock, writes, is stopped like a suspended machine, and writes again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other half of a test"]
async fn child_that_is_frozen() {
    let (Ok(url), Ok(target)) = (std::env::var("CHILD_URL"), std::env::var("CHILD_TARGET")) else { return };
    let target = Target::parse(&target);
    let of = async |time: Arc<dyn TimeSource>, name: &str| {
        on_redis(&url, time).await.acquire(name, Ask::new(SECOND)).await.unwrap()
    };
    let (unaware, aware): (Guard, Guard) = (of(Held::new(), "row").await, of(Arc::new(HostTime), "row-2").await);
    target.write(&unaware, true).await.unwrap();
    target.write(&aware, true).await.unwrap();
    let mut seen = Instant::now();
    Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status().unwrap();
    // On a busy machine this thread may run on for a while before it is stopped.
    while seen.elapsed() < SECOND * 7 / 10 {
        seen = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (unaware, aware) = (target.write(&unaware, true).await, target.write(&aware, true).await);
    assert!(matches!(unaware, Err(FenceError::Stale(_) | FenceError::Lock(LockError::Lost))), "{unaware:?}");
    assert!(matches!(aware, Err(FenceError::Stale(_) | FenceError::Lock(LockError::Lost))), "{aware:?}");
}

async fn a_frozen_process_is_refused(shop: Shop) {
    let redis = Redis::start();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["late::child_that_is_frozen", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
    let mut child = child.env("CHILD_URL", redis.url()).env("CHILD_TARGET", shop.target.text()).spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    let stopped =
        || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.rsplit(") ").next().unwrap().starts_with('T'));
    wait_until("the child to be stopped", stopped);
    let fenced = Fenced::new(on_redis(&redis.url(), Arc::new(HostTime)).await, shop.fences.clone());
    let began = Instant::now();
    for name in ["row", "row-2"] {
        let newer = fenced.acquire(name, ask().wait(5 * SECOND)).await.expect("its time runs out");
        shop.write(&newer, true).await.unwrap();
    }
    assert!(began.elapsed() < 3 * SECOND, "{:?}", began.elapsed());
    Command::new("kill").args(["-CONT", &child.id().to_string()]).status().unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert!(ended.success(), "the late writes were refused");
    assert_eq!(shop.counts().await, (4, 0));
    shop.close().await;
}

/// The server's clock goes back an hour, and forward again (libfaketime; Redis itself does not start under it).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_clock_is_stepped_gives_larger_fences() {
    let folder = Folder::new();
    let offset = folder.path().join("offset");
    let step = |by: &str| std::fs::write(&offset, format!("{by}\n")).unwrap();
    step("+0");
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    let library =
        folders.iter().map(|folder| std::path::Path::new(folder).join("libfaketimeMT.so.1")).find(|l| l.exists());
    let library = library.expect("libfaketime is missing; ./scripts/test installs it (Debian's package faketime)");
    let setup = Setup::default().engine(Engine::Valkey).env("FAKETIME_NO_CACHE", "1");
    let setup = setup.env("DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let setup = setup.env("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap());
    let valkey = Redis::start_with(setup.env("LD_PRELOAD", library.to_str().unwrap()));
    let (shop, real) = (sqlite().await, on_redis(&valkey.url(), Arc::new(HostTime)).await);
    let fenced = Fenced::new(real, shop.fences.clone());
    let unaware = on_redis(&valkey.url(), Held::new()).await;
    let mut last = Fence(0);
    for (by, flushed) in [("-3600", false), ("+3600", false), ("+0", false), ("-3600", true), ("+0", true)] {
        let late =
            Fenced::new(unaware.clone(), shop.fences.clone()).acquire("row", ask().without_renewal()).await.unwrap();
        assert!(late.fence() > last, "{by}");
        shop.write(&late, true).await.unwrap();
        step(by);
        tokio::time::sleep(100 * MS).await;
        if flushed {
            valkey.tell(&["FLUSHALL"]);
        } else if by != "+3600" {
            // It lasts an hour longer there, and is given back; forward, it is over.
            assert!(late.release().await.unwrap());
            last = next_fence(&fenced).await;
            continue;
        }
        let newer = fenced.acquire("row", ask()).await.expect("it is free");
        assert!(newer.fence() > late.fence(), "{by}");
        assert_eq!(stale(shop.write(&late, true).await), newer.fence(), "{by}");
        last = newer.fence();
        newer.release().await.unwrap();
    }
    assert_eq!(shop.counts().await.1, 0);
    shop.close().await;
}

async fn next_fence(fenced: &Fenced) -> Fence {
    let guard = fenced.acquire("row", ask()).await.unwrap();
    let fence = guard.fence();
    guard.release().await.unwrap();
    fence
}

macro_rules! on_each {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(super::sqlite().await).await } )+ }
        mod on_mariadb { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(super::mariadb().await).await } )+ }
        mod on_postgres { $( #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case(super::postgres().await).await } )+ }
    };
}

on_each!(
    a_paused_holder_is_refused,
    a_holder_that_slept_is_refused,
    a_store_that_lost_everything_is_outlived,
    a_failover_that_loses_the_key_is_outlived,
    a_store_that_lost_its_clock_is_told_the_floor,
    one_fence_has_one_owner,
    a_frozen_process_is_refused,
);
