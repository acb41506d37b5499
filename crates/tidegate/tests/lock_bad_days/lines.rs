//! Lines: waiters that die or sleep, newcomers, storms.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidegate::lock::Ask;
use tidegate_conformance::servers::Redis;

use super::{MS, SECOND, ask, open, scaled, until};

fn total(redis: &Redis, section: &str, field: &str) -> u64 {
    let info = redis.tell(&["INFO", section]);
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap().trim().parse().unwrap()
}

/// Runs in a process of its own: 49 callers wait until the process is ended.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other half of a test"]
async fn child_that_waits() {
    let Ok(url) = std::env::var("CHILD_URL") else { return };
    let locks = open(&url).await;
    let granted = Arc::new(AtomicU64::new(0));
    for _ in 0..49 {
        let (locks, granted) = (locks.clone(), granted.clone());
        tokio::spawn(async move {
            while locks.acquire("l", ask().wait(30 * SECOND)).await.map(std::mem::forget).is_err() {}
            granted.fetch_add(1, Ordering::SeqCst);
        });
    }
    // An order to end comes as a signal; a thawed child finds out whether it was granted anything meanwhile.
    let frozen = std::env::var_os("CHILD_FROZEN").is_some();
    if frozen {
        tokio::time::sleep(2_500 * MS).await;
        assert_eq!(granted.load(Ordering::SeqCst), 0, "nobody is granted a lock in his sleep");
    } else {
        tokio::time::sleep(60 * SECOND).await;
    }
}

fn child(redis: &Redis, frozen: bool) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["lines::child_that_waits", "--exact", "--ignored", "--nocapture"]).stdout(Stdio::null());
    if frozen {
        child.env("CHILD_FROZEN", "1");
    }
    child.env("CHILD_URL", redis.url()).spawn().unwrap()
}

/// L7, L24: 49 of 50 waiters are killed; the one that is left has the lock at once. Their keys vanish by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l7_l24_dead_waiters_cost_the_living_nothing() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let held = locks.acquire("l", ask()).await.unwrap();
    let mut dead = child(&redis, false);
    while locks.look("l").await.unwrap().waiters < 49 {
        tokio::time::sleep(5 * MS).await;
    }
    let alive = open(&redis.url()).await;
    let survivor = tokio::spawn(async move { alive.acquire("l", ask().wait(20 * SECOND)).await.unwrap() });
    while locks.look("l").await.unwrap().waiters < 50 {
        tokio::time::sleep(5 * MS).await;
    }
    dead.kill().unwrap();
    dead.wait().unwrap();
    // A process that gave a sign of life a moment ago counts as alive for 600 ms.
    tokio::time::sleep(700 * MS).await;
    let began = Instant::now();
    held.release().await.unwrap();
    let guard = survivor.await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    // The successor of the dead is another process: what they asked for is never granted to it.
    assert!(guard.release().await.unwrap());
    let successor = open(&redis.url()).await;
    assert_eq!(successor.look("l").await.unwrap().held, None);
    let keys = redis.tell(&["KEYS", "*tg:bad:*"]);
    for key in keys.lines().filter(|key| key.contains("tg:bad")) {
        let left: i64 = redis.tell(&["PTTL", key.trim()]).trim().parse().unwrap();
        assert!(left > 0 || left == -2, "{key} stays for ever");
    }
}

/// L22: waiters whose process is stopped in the line are passed over, and wake without a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l22_a_waiter_that_sleeps_is_passed_over() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let held = locks.acquire("l", tidegate::lock::Ask::new(20 * SECOND)).await.unwrap();
    let mut sleeper = child(&redis, true);
    while locks.look("l").await.unwrap().waiters < 49 {
        tokio::time::sleep(5 * MS).await;
    }
    let signal = |signal: &str| Command::new("kill").args([signal, &sleeper.id().to_string()]).status().unwrap();
    signal("-STOP");
    tokio::time::sleep(700 * MS).await;
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("l", tidegate::lock::Ask::new(20 * SECOND).wait(20 * SECOND)).await.unwrap() }
    });
    while locks.waiting() == 0 {
        tokio::time::sleep(5 * MS).await;
    }
    let began = Instant::now();
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    signal("-CONT");
    let ended = tokio::task::spawn_blocking(move || sleeper.wait().unwrap()).await.unwrap();
    assert!(ended.success());
    assert!(guard.is_valid());
}

/// L9: ten thousand names are waited for on one connection for wake-ups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l9_waiting_for_many_locks_takes_one_connection() {
    let redis = Redis::start();
    let (holder, locks) = (open(&redis.url()).await, open(&redis.url()).await);
    let channels = || redis.tell(&["PUBSUB", "CHANNELS"]).lines().filter(|line| line.contains(":lw:")).count();
    // A process listens a moment after its locks are opened.
    until("both listen", 10 * SECOND, || channels() == 2).await;
    let clients = total(&redis, "clients", "connected_clients");
    let count = scaled(2_000usize, 10_000);
    let mut held = Vec::new();
    for n in 0..count {
        held.push(holder.acquire(&format!("l-{n}"), tidegate::lock::Ask::new(60 * SECOND)).await.unwrap());
    }
    let waiting: Vec<_> = (0..count)
        .map(|n| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(&format!("l-{n}"), ask().wait(30 * SECOND)).await.map(drop) })
        })
        .collect();
    until("all wait", 20 * SECOND, || locks.waiting() == count).await;
    tokio::time::sleep(500 * MS).await;
    assert!(total(&redis, "clients", "connected_clients") <= clients + 1, "no connection a lock");
    assert_eq!(channels(), 2, "one a process");
    for guard in held {
        drop(guard.release().await);
    }
    for waiter in waiting {
        waiter.await.unwrap().unwrap();
    }
    until("nobody waits", SECOND, || locks.waiting() == 0).await;
}

/// L17: whoever comes between the release and the grant does not get it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l17_a_newcomer_never_overtakes_a_waiter() {
    let redis = Redis::start();
    let (one, two) = (open(&redis.url()).await, open(&redis.url()).await);
    for round in 0..scaled(150, 1_000) {
        let held = one.acquire("l", ask()).await.unwrap();
        let waiter = tokio::spawn({
            let two = two.clone();
            async move { two.acquire("l", ask().wait(10 * SECOND)).await.unwrap() }
        });
        while one.look("l").await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        let newcomers: Vec<_> = (0..3)
            .map(|_| {
                let one = one.clone();
                tokio::spawn(async move { one.acquire("l", ask()).await.is_err() })
            })
            .collect();
        held.release().await.unwrap();
        assert!(one.acquire("l", ask()).await.is_err(), "round {round}: it was handed over");
        for newcomer in newcomers {
            assert!(newcomer.await.unwrap(), "round {round}");
        }
        waiter.await.unwrap().release().await.unwrap();
    }
}

/// L27: everything is flushed below a hundred waiters: they find their places again, and nobody storms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l27_a_flush_below_waiters_starts_no_storm() {
    let redis = Redis::start();
    let (one, two) = (open(&redis.url()).await, open(&redis.url()).await);
    let held = one.acquire("l", tidegate::lock::Ask::new(2 * SECOND)).await.unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let waiting: Vec<_> = (0..100)
        .map(|n| {
            let (locks, served) = (if n % 2 == 0 { one.clone() } else { two.clone() }, served.clone());
            tokio::spawn(async move {
                let guard = locks.acquire("l", ask().wait(20 * SECOND)).await.unwrap();
                served.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        })
        .collect();
    while one.look("l").await.unwrap().waiters < 100 {
        tokio::time::sleep(5 * MS).await;
    }
    redis.tell(&["FLUSHALL"]);
    let (began, before) = (Instant::now(), total(&redis, "stats", "total_commands_processed"));
    // Those that asked for a time of their own ask again after it, at the latest.
    until("all are served", 15 * SECOND, || served.load(Ordering::SeqCst) == 100).await;
    let commands = total(&redis, "stats", "total_commands_processed") - before;
    let rate = commands as f64 / 100.0 / began.elapsed().as_secs_f64().max(1.0);
    assert!(rate < 50.0, "{rate} commands/s a waiter");
    for waiter in waiting {
        waiter.await.unwrap();
    }
    tokio::time::timeout(SECOND, held.lost()).await.expect("its holder was told");
}

/// K5: the store forgets the line (a flush). Those who stood in it do again, and are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_the_store_forgot_stands_again() {
    let redis = Redis::start();
    let (one, two) = (open(&redis.url()).await, open(&redis.url()).await);
    let held = one.acquire("l", Ask::new(60 * SECOND)).await.unwrap();
    let waiting: Vec<_> = (0..40)
        .map(|n| {
            let locks = if n % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move {
                let guard = locks.acquire("l", ask().wait(25 * SECOND)).await.unwrap();
                guard.release().await.unwrap();
            })
        })
        .collect();
    while one.look("l").await.unwrap().waiters < 40 {
        tokio::time::sleep(5 * MS).await;
    }
    redis.tell(&["FLUSHALL"]);
    let began = Instant::now();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert!(began.elapsed() < 12 * SECOND, "{:?}", began.elapsed());
    drop(held);
}
