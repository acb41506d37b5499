//! Holders: renewals, lost answers, servers that go away.

use std::time::Instant;

use tidegate::lock::{Fence, Guard, LockError};
use tidegate_conformance::servers::{Engine, Proxy, Redis, Sentinel, Setup};

use super::{MS, SECOND, ask, dice, open, scaled, until};

fn keys(redis: &Redis) -> usize {
    redis.tell(&["KEYS", "*:h:*"]).lines().filter(|key| key.contains(":h:")).count()
}

/// Scripts that the server ran so far.
fn scripts(redis: &Redis) -> u64 {
    let stats = redis.tell(&["INFO", "commandstats"]);
    let calls = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter(|line| line.starts_with("cmdstat_evalsha:")).filter_map(calls).sum()
}

/// L1: releases race the grants; nothing is renewed afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_what_is_released_is_never_renewed() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let rounds = scaled(2_000u64, 10_000);
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let locks = locks.clone();
        tasks.push(tokio::spawn(async move {
            for n in 0..rounds / 8 {
                let guard = locks.acquire(&format!("l-{worker}-{}", n % 5), ask().wait(SECOND)).await.unwrap();
                if n % 3 == 0 {
                    drop(guard)
                } else {
                    drop(guard.release().await)
                }
                if n % 3 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    until("no key", SECOND, || keys(&redis) == 0).await;
    assert_eq!((locks.renewed(), locks.waiting()), (0, 0));
    let before = scripts(&redis);
    tokio::time::sleep(700 * MS).await;
    assert_eq!(scripts(&redis), before, "nothing is sent for them any more");
}

/// L2: the caller goes away between the request and its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_caller_that_left_before_the_answer_leaves_no_key() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let locks = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    // The script is there after it.
    locks.acquire("warm", ask()).await.unwrap().release().await.unwrap();
    proxy.delay(60 * MS);
    for n in 0..5 {
        let name = format!("l-{n}");
        let left = tokio::time::timeout(30 * MS, locks.acquire(&name, ask())).await;
        assert!(left.is_err());
        // Twice the way there and back, and 100 ms.
        until("no key", 220 * MS, || keys(&redis) == 0).await;
    }
    assert_eq!(locks.renewed(), 0);
}

/// Futures that are dropped anywhere leave no key, and nobody in a line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancellations_at_random_points_leave_no_key() {
    let redis = Redis::start();
    let (one, two) = (open(&redis.url()).await, open(&redis.url()).await);
    let (all, mut seed) = (scaled(4_000u64, 100_000), 3u64);
    for _ in 0..all / 500 {
        let mut tasks = Vec::new();
        for n in 0..500 {
            let (locks, patience) = (if n % 2 == 0 { one.clone() } else { two.clone() }, dice(&mut seed) % 6_000);
            tasks.push(tokio::spawn(async move {
                let hold = async {
                    let guard = locks.acquire(&format!("l-{}", n % 37), ask().wait(5 * SECOND)).await?;
                    tokio::time::sleep(MS / 5).await;
                    guard.release().await
                };
                let _ = tokio::time::timeout(std::time::Duration::from_micros(patience), hold).await;
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }
    until("no key", SECOND, || keys(&redis) == 0).await;
    for locks in [one, two] {
        until("nobody waits", SECOND, || (locks.renewed(), locks.waiting()) == (0, 0)).await;
        // The last ones may be on their way out of their lines.
        let began = Instant::now();
        for n in 0..37 {
            while locks.look(&format!("l-{n}")).await.unwrap().waiters > 0 {
                assert!(began.elapsed() < SECOND, "somebody stays in the line of l-{n}");
                tokio::time::sleep(MS).await;
            }
        }
    }
}

/// Answers are lost after their effect: a waiter asks again and finds the lock its own; a caller's token makes it the same
/// request; what nobody heard of is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_lost_after_their_effect_lose_no_lock() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let locks = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let mut last = Fence(0);
    for n in 0..20 {
        proxy.cut_replies(1);
        let guard = locks.acquire("l", ask().wait(5 * SECOND)).await.unwrap();
        assert!(guard.fence() > last, "round {n}");
        last = guard.fence();
        if n % 2 == 0 {
            proxy.cut_replies(1);
            match guard.release().await {
                // It was released, or not: nobody knows; it is free soon, or ends by itself.
                Ok(_) => {}
                Err(LockError::Unreachable(_)) => {
                    redis.tell(&["DEL", redis.tell(&["KEYS", "*:h:l"]).trim()]);
                }
                Err(e) => panic!("{e}"),
            }
        } else {
            until("the way is there", 5 * SECOND, || locks.trouble().is_none()).await;
            let _ = guard.release().await;
        }
        until("the way is there", 5 * SECOND, || locks.trouble().is_none()).await;
        proxy.cut_replies(1);
        // Without a wait the caller is told that nobody knows, and it is given back.
        if let Ok(guard) = locks.acquire("once", ask()).await {
            drop(guard);
        }
        until("no key", 3 * SECOND, || keys(&redis) == 0).await;
    }
}

/// The way to the server is away for a while just when a lock is to be given back: that costs nobody the lock's whole time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_given_back_is_given_back_later() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let locks = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let away = async || {
        proxy.refuse(true);
        proxy.cut();
    };
    let back = async |what: &str| {
        tokio::time::sleep(SECOND).await;
        assert_eq!(keys(&redis), 1, "{what}");
        proxy.refuse(false);
        until(what, 8 * SECOND, || keys(&redis) == 0).await;
        until("the way is there", 5 * SECOND, || locks.trouble().is_none()).await;
    };
    let hour = || tidegate::lock::Ask::new(3_600 * SECOND);
    let guard = locks.acquire("dropped", hour()).await.unwrap();
    away().await;
    drop(guard);
    back("a dropped guard").await;

    // Granted, and nobody heard of it.
    proxy.delay(200 * MS);
    let asking = {
        let locks = locks.clone();
        tokio::spawn(async move { locks.acquire("unheard", hour()).await })
    };
    until("it is granted", 5 * SECOND, || keys(&redis) == 1).await;
    away().await;
    proxy.delay(std::time::Duration::ZERO);
    let told = asking.await.unwrap();
    assert!(matches!(told, Err(LockError::Unreachable(_))), "{told:?}");
    back("a grant that nobody heard of").await;
}

/// A question is still on its way when its connection is given up; asked again on the next, the lock is granted and given
/// back. The first question, once it arrives, must not take it for somebody who is done with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_arrives_after_its_caller_is_done_takes_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let locks = open(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    locks.acquire("warm", ask()).await.unwrap().release().await.unwrap();
    let held_for = 6 * SECOND;
    proxy.hold_request(b":late", held_for);
    let began = Instant::now();
    let hour = tidegate::lock::Ask::new(3_600 * SECOND).wait(20 * SECOND);
    let guard = locks.acquire("late", hour).await.unwrap();
    assert!(began.elapsed() > SECOND && began.elapsed() < held_for, "on another connection: {:?}", began.elapsed());
    assert!(guard.release().await.unwrap());
    assert_eq!(keys(&redis), 0);
    tokio::time::sleep((held_for + SECOND).saturating_sub(began.elapsed())).await;
    assert_eq!(keys(&redis), 0, "what was on its way took the lock");
    // Nothing of it is left in the way of the next.
    locks.acquire("late", ask()).await.unwrap().release().await.unwrap();
}

/// L4: the server is busy with somebody's script for longer than a renewal's turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_a_busy_server_is_asked_again_until_the_deadline() {
    let redis = Redis::start_with(Setup::default().option("lua-time-limit", "50"));
    let locks = open(&redis.url()).await;
    let guard = locks.acquire("l", tidegate::lock::Ask::new(3 * SECOND)).await.unwrap();
    let script = "local t = redis.call('TIME') local function us(t) return t[1] * 1000000 + t[2] end local from = us(t) \
                  while us(redis.call('TIME')) - from < 2000000 do end return 1";
    let busy = tokio::task::spawn_blocking(move || {
        let _ = redis.try_tell(&["EVAL", script, "0"]);
        redis
    });
    let redis = busy.await.unwrap();
    tokio::time::sleep(1_500 * MS).await;
    assert!(guard.is_valid(), "it is kept");
    assert!(guard.release().await.unwrap());
    assert_eq!(keys(&redis), 0);
}

/// L6: very many leases are renewed by one task, none of them late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l6_very_many_leases_are_renewed_in_time() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let (count, ttl, lasts) = scaled((10_000u32, 4 * SECOND, 6 * SECOND), (100_000, 30 * SECOND, 120 * SECOND));
    let mut guards: Vec<Guard> = Vec::new();
    for from in (0..count).step_by(500) {
        let taken = (from..from + 500).map(|n| {
            let locks = locks.clone();
            tokio::spawn(async move { locks.acquire(&format!("l-{n}"), tidegate::lock::Ask::new(ttl)).await.unwrap() })
        });
        for guard in taken.collect::<Vec<_>>() {
            guards.push(guard.await.unwrap());
        }
    }
    let (began, mut least) = (Instant::now(), ttl);
    while began.elapsed() < lasts {
        least = guards.iter().map(Guard::remaining).min().unwrap().min(least);
        tokio::time::sleep(50 * MS).await;
    }
    assert!(least >= ttl / 3, "{least:?} of {ttl:?}");
    assert!(guards.iter().all(Guard::is_valid));
}

/// L14, L19: a renewal moves the end and makes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l14_l19_a_renewal_moves_the_end_and_makes_no_key() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let guard = locks.acquire("l", ask().without_renewal()).await.unwrap();
    let key = redis.tell(&["KEYS", "*:h:l"]).trim().to_owned();
    let left = |redis: &Redis| redis.tell(&["PTTL", &key]).trim().parse::<i64>().unwrap();
    tokio::time::sleep(100 * MS).await;
    let before = left(&redis);
    guard.renew().await.unwrap();
    assert!(left(&redis) > before + 50, "{before} ms before, {} after", left(&redis));
    redis.tell(&["DEL", &key]);
    let other = open(&redis.url()).await.acquire("l", ask()).await.unwrap();
    assert!(other.fence() > guard.fence());
    other.release().await.unwrap();
    assert!(matches!(guard.renew().await.unwrap_err(), LockError::Lost));
    assert_eq!(keys(&redis), 0);
}

/// A lock that vanishes is told within one renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_lock_is_told_within_one_renewal() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let guard = locks.acquire("l", tidegate::lock::Ask::new(900 * MS)).await.unwrap();
    redis.tell(&["FLUSHALL"]);
    tokio::time::timeout(400 * MS, guard.lost()).await.expect("a third of its time, and a moment");
    assert!(!guard.is_valid());
}

/// L21: a server that is away is never "held", and never "free".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l21_a_dead_or_frozen_server_is_told_as_such_in_time() {
    let redis = Redis::start();
    let locks = open(&redis.url()).await;
    let guard = locks.acquire("mine", tidegate::lock::Ask::new(700 * MS)).await.unwrap();
    let began = Instant::now();
    redis.freeze();
    let refused = locks.acquire("l", ask().wait(SECOND)).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert!(began.elapsed() < 1_700 * MS, "{:?}: the wait, and one answer's time", began.elapsed());
    assert!(!guard.is_valid());
    tokio::time::timeout(MS, guard.lost()).await.expect("told before the server can have given it to another");
    redis.thaw();
    redis.kill();
    let began = Instant::now();
    let refused = locks.acquire("l", ask()).await.unwrap_err();
    assert!(matches!(refused, LockError::Unreachable(_)), "{refused}");
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    redis.restart();
    let back = locks.acquire("l", ask().wait(5 * SECOND)).await.unwrap();
    assert!(back.fence() > guard.fence());
}

/// Sentinel promotes a replica: who held a lock keeps it, or is told within its time; fences grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_keeps_a_lock_or_tells_its_holder() {
    let sentinel = tokio::task::spawn_blocking(|| Sentinel::start(Engine::default())).await.unwrap();
    let (locks, other) = (open(&sentinel.url()).await, open(&sentinel.url()).await);
    let ttl = 1_500 * MS;
    let guard = locks.acquire("l", tidegate::lock::Ask::new(ttl)).await.unwrap();
    let before = sentinel.master_port();
    sentinel.fail_over();
    until("another master", 20 * SECOND, || sentinel.master_port().is_some_and(|port| Some(port) != before)).await;
    let began = Instant::now();
    let next = loop {
        match other.acquire("l", ask().wait(SECOND)).await {
            Ok(next) => break next,
            // It is kept: the replica had it.
            Err(LockError::Timeout { .. }) if guard.is_valid() && began.elapsed() > 3 * SECOND => {
                assert!(guard.release().await.unwrap());
                drop(other.acquire("l", ask().wait(SECOND)).await.unwrap());
                return;
            }
            Err(_) => assert!(began.elapsed() < 15 * SECOND, "nobody can have it"),
        }
    };
    // It was lost on the way: two may believe that they hold it, for a moment, and the fence tells them apart.
    assert!(next.fence() > guard.fence());
    tokio::time::timeout(ttl, guard.lost()).await.expect("it is told");
    assert!(next.is_valid());
}
