//! One server that is killed, emptied, frozen.

use std::time::{Duration, Instant};

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_conformance::servers::{Redis, Setup};
use tidegate_core::{Millis, OrderNo};

use crate::common::shop::Shop;
use crate::common::{deadlines, open, open_whole, until};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_flushed_are_sent_again() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    for round in 0..5 {
        redis.tell(&["SCRIPT", "FLUSH"]);
        q.schedule(&deadlines(0..100)).await.unwrap();
        redis.tell(&["SCRIPT", "FLUSH"]);
        assert_eq!(q.len().await.unwrap(), 100);
        redis.tell(&["SCRIPT", "FLUSH"]);
        let claims = q.claim(Millis(1_000), 512, 1_000).await.unwrap();
        assert_eq!(claims.len(), 100, "round {round}");
        redis.tell(&["SCRIPT", "FLUSH"]);
        q.ack(&claims.iter().map(|c| (c.order, c.receipt)).collect::<Vec<_>>()).await.unwrap();
        assert_eq!(q.state(), IndexState::Whole);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_server_is_noticed_within_a_second_and_filled_again() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    q.schedule(&deadlines(0..1_000)).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 1_000);
    let old = q.claim(Millis(10), 512, 1_000_000).await.unwrap();
    redis.tell(&["FLUSHALL"]);
    let took = until("the loss is noticed", SECOND, || matches!(q.state(), IndexState::Incomplete(_))).await;
    assert!(took < SECOND);
    let IndexState::Incomplete(token) = q.state() else { unreachable!() };
    q.schedule(&deadlines(0..1_000)).await.unwrap();
    // Emptied once more in the middle: the rebuild does not count.
    redis.tell(&["FLUSHALL"]);
    q.rebuilt(token).await.unwrap();
    until("another rebuild is asked for", SECOND, || matches!(q.state(), IndexState::Incomplete(t) if t != token))
        .await;
    let IndexState::Incomplete(token) = q.state() else { unreachable!() };
    q.schedule(&deadlines(0..1_000)).await.unwrap();
    q.rebuilt(token).await.unwrap();
    assert_eq!((q.state(), q.len().await.unwrap()), (IndexState::Whole, 1_000));
    let new = q.claim(Millis(10), 512, 1_000_000).await.unwrap();
    assert!(new[0].receipt.0 > old.iter().map(|c| c.receipt.0).max().unwrap(), "receipts grow after a loss, too");
    q.ack(&old.iter().map(|c| (c.order, c.receipt)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 1_000, "old receipts are worthless");
}

async fn killed_and_started_again(setup: Setup) {
    let redis = Redis::start_with(setup);
    let q = open_whole(&redis.url()).await;
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..300 {
        shop.place(&q, order, 500 + order * 10).await;
    }
    tokio::time::sleep(SECOND).await;
    redis.kill();
    until("it is down", 2 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    let began = Instant::now();
    for order in 300..400 {
        shop.place(&q, order, 100).await;
    }
    assert!(began.elapsed() < SECOND / 10, "nobody waits for a dead server");
    tokio::time::sleep(2 * SECOND).await;
    redis.restart();
    let back = Instant::now();
    until("it is up and whole", 3 * SECOND, || q.state() == IndexState::Whole).await;
    let overdue = shop.undone();
    shop.all_done(5 * SECOND).await;
    assert!(overdue > 0 && back.elapsed() < 5 * SECOND, "{overdue} in {:?}", back.elapsed());
    shop.place(&q, 400, 50).await;
    assert!(shop.all_done(SECOND).await >= 0);
    assert!(shop.lateness(400).unwrap() < 200, "{:?}", shop.lateness(400));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_started_again_with_nothing() {
    killed_and_started_again(Setup::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_started_again_with_its_file() {
    killed_and_started_again(Setup::default().persistent()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_for_five_seconds() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..200 {
        shop.place(&q, order, order * 20).await;
    }
    redis.freeze();
    let took = until("it is down", 3 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    assert!(took < 3 * SECOND);
    let began = Instant::now();
    shop.place(&q, 1_000, 10).await;
    assert!(began.elapsed() < SECOND / 20, "{:?}", began.elapsed());
    let claimed = Instant::now();
    assert!(q.claim(host_now(), 10, 1_000).await.is_err());
    assert!(claimed.elapsed() < SECOND / 20, "a server known to be down costs no waiting");
    tokio::time::sleep(5 * SECOND - took).await;
    redis.thaw();
    let back = Instant::now();
    until("it is up", 2 * SECOND, || !matches!(q.state(), IndexState::Unavailable(_))).await;
    shop.all_done(4 * SECOND).await;
    assert!(back.elapsed() < 5 * SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_later_is_found() {
    let redis = Redis::start();
    redis.kill();
    let q = open(&redis.url()).await;
    assert!(matches!(q.state(), IndexState::Unavailable(_)));
    q.schedule(&deadlines(0..10)).await.unwrap();
    redis.restart();
    until("it asks to be filled", 3 * SECOND, || matches!(q.state(), IndexState::Incomplete(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_no_room_makes_the_index_incomplete() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    redis.kill();
    until("it is down", 2 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    // More than the buffer holds, a commit at a time.
    for from in (0..220_000).step_by(1_000) {
        q.schedule(&deadlines(from..from + 1_000)).await.unwrap();
    }
    redis.restart();
    until("it is incomplete", 5 * SECOND, || matches!(q.state(), IndexState::Incomplete(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_is_unavailable_until_it_has_room() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "noeviction"));
    let q = open_whole(&redis.url()).await;
    let mut shop = Shop::default();
    shop.run(&q);
    shop.place(&q, 1, 500).await;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    until("it is noticed", 2 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    let IndexState::Unavailable(why) = q.state() else { unreachable!() };
    assert!(why.contains("OOM"), "{why}");
    tokio::time::sleep(SECOND).await;
    assert!(matches!(q.state(), IndexState::Unavailable(_)), "as long as it is full");
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    until("it is back", 2 * SECOND, || !matches!(q.state(), IndexState::Unavailable(_))).await;
    shop.all_done(4 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_a_rebuild_come_fast_and_cost_little() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    let all: Vec<_> = (0..200_000).map(|n| (OrderNo(n), Millis(1_764_448_000_000 + n))).collect();
    let began = Instant::now();
    for page in all.chunks(20_000) {
        q.schedule(page).await.unwrap();
    }
    assert_eq!(q.len().await.unwrap(), 200_000);
    let rate = 200_000.0 / began.elapsed().as_secs_f64();
    let used: u64 = (0..16)
        .map(|p| {
            redis.tell(&["MEMORY", "USAGE", &format!("{{tg:shop:d{p}}}:due"), "SAMPLES", "0"]).parse::<u64>().unwrap()
        })
        .sum();
    println!("{rate:.0} deadlines/s in a debug build, {} bytes each", used / 200_000);
    assert!(used / 200_000 <= 140, "{used} bytes");
    for key in redis.tell(&["KEYS", "*"]).lines().filter(|key| !key.ends_with(":probe")) {
        assert_eq!(redis.tell(&["TTL", key]), "-1", "{key} expires");
    }
}
