//! Nodes that are gone, stand still, or were never missed.

use std::time::{Duration, Instant};

use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_conformance::servers::{Proxy, Redis};
use tidegate_core::{Millis, OrderNo};

use crate::common::shop::Shop;
use crate::common::{deadlines, open, open_whole, until};

const SECOND: Duration = Duration::from_secs(1);
const LONG_LEASE: i64 = 1_000_000;

/// How long until another node's claims come to `q`.
async fn until_claimable(q: &dyn DeadlineQueue, count: usize) -> (Duration, Vec<u32>) {
    let began = Instant::now();
    let mut attempts = Vec::new();
    while attempts.len() < count {
        assert!(began.elapsed() < 5 * SECOND, "{} of {count}", attempts.len());
        attempts.extend(q.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap().iter().map(|claim| claim.attempt));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (began.elapsed(), attempts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_gone_is_taken_over_within_a_second_of_its_lost_heartbeat() {
    let redis = Redis::start();
    let (a, b) = (open_whole(&redis.url()).await, open_whole(&redis.url()).await);
    b.schedule(&deadlines(0..700)).await.unwrap();
    assert_eq!(b.len().await.unwrap(), 700);
    let held = a.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap().len();
    assert_eq!(held, 512);
    assert_eq!(b.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap().len(), 700 - held);
    // As kill -9: no word to anybody.
    drop(a);
    let (took, attempts) = until_claimable(&*b, held).await;
    assert!(took < 2 * SECOND, "{took:?}");
    assert!(attempts.iter().all(|attempt| *attempt == 2), "a crash counts as a try");
    assert_eq!(redis.tell(&["HLEN", "{tg:shop}:nodes"]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_in_order_hands_back_at_once_and_uncharged() {
    let redis = Redis::start();
    let (a, b) = (open_whole(&redis.url()).await, open_whole(&redis.url()).await);
    a.schedule(&deadlines(0..100)).await.unwrap();
    a.len().await.unwrap();
    let held = a.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap().len();
    a.close().await;
    let (took, attempts) = until_claimable(&*b, held).await;
    assert!(took < SECOND / 2, "{took:?}");
    assert!(attempts.iter().all(|attempt| *attempt == 1));
    assert_eq!(redis.tell(&["HLEN", "{tg:shop}:nodes"]), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_finds_its_receipts_worthless() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let frozen = open_whole(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let b = open_whole(&redis.url()).await;
    b.schedule(&deadlines(0..10)).await.unwrap();
    b.len().await.unwrap();
    let old = frozen.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap();
    assert_eq!(old.len(), 10);
    proxy.silence(true);
    proxy.cut();
    proxy.refuse(true);
    let (took, _) = until_claimable(&*b, 10).await;
    assert!(took < 2 * SECOND, "{took:?}");
    proxy.silence(false);
    proxy.refuse(false);
    until("it is back", 3 * SECOND, || frozen.state() == IndexState::Whole).await;
    frozen.ack(&old.iter().map(|c| (c.order, c.receipt)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(b.len().await.unwrap(), 10, "the new holder's leases stand");
    until("it beats again", 2 * SECOND, || redis.tell(&["HLEN", "{tg:shop}:nodes"]) == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_taken_over_because_the_server_stood_still() {
    let redis = Redis::start();
    let (a, b) = (open_whole(&redis.url()).await, open_whole(&redis.url()).await);
    a.schedule(&deadlines(0..10)).await.unwrap();
    a.len().await.unwrap();
    let held = a.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap();
    redis.freeze();
    tokio::time::sleep(3 * SECOND).await;
    redis.thaw();
    until("it is back", 3 * SECOND, || a.state() == IndexState::Whole && b.state() == IndexState::Whole).await;
    tokio::time::sleep(2 * SECOND).await;
    assert!(b.claim(Millis(1_000), 512, LONG_LEASE).await.unwrap().is_empty());
    a.ack(&held.iter().map(|c| (c.order, c.receipt)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(b.len().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_at_a_time_is_told_to_rebuild() {
    let redis = Redis::start();
    let nodes = [open(&redis.url()).await, open(&redis.url()).await, open(&redis.url()).await];
    let told = || nodes.iter().filter(|q| matches!(q.state(), IndexState::Incomplete(_))).count();
    for _ in 0..20 {
        assert_eq!(told(), 1);
        tokio::time::sleep(SECOND / 20).await;
    }
    let (at, token) = nodes
        .iter()
        .enumerate()
        .find_map(|(at, q)| if let IndexState::Incomplete(token) = q.state() { Some((at, token)) } else { None })
        .unwrap();
    nodes[at].rebuilt(token).await.unwrap();
    tokio::time::sleep(SECOND).await;
    assert_eq!(told(), 0, "the others see that it was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_whose_node_dies_is_another_nodes() {
    let redis = Redis::start();
    let (a, b) = (open(&redis.url()).await, open(&redis.url()).await);
    assert!(matches!(a.state(), IndexState::Incomplete(_)));
    assert_eq!(b.state(), IndexState::Whole, "not told");
    drop(a);
    until("it is told", 8 * SECOND, || matches!(b.state(), IndexState::Incomplete(_))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_asks_little() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    q.schedule(&[(OrderNo(1), Millis(i64::MAX / 2))]).await.unwrap();
    q.len().await.unwrap();
    tokio::time::sleep(SECOND).await;
    let before = q.connector().commands_sent();
    tokio::time::sleep(3 * SECOND).await;
    let own = q.connector().commands_sent() - before;
    assert!((4..=8).contains(&own), "{own} commands in 3 s");
    let mut shop = Shop::default();
    shop.run(&q);
    tokio::time::sleep(SECOND).await;
    let before = q.connector().commands_sent();
    tokio::time::sleep(3 * SECOND).await;
    let with_worker = q.connector().commands_sent() - before;
    println!("{own} commands in 3 s, {with_worker} with a worker");
    assert!(with_worker <= own + 20, "{with_worker} commands in 3 s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_share_the_work_and_one_dies() {
    let redis = Redis::start();
    let (a, b) = (open_whole(&redis.url()).await, open_whole(&redis.url()).await);
    let (mut shop, mut other) = (Shop::default(), Shop::default());
    shop.run(&a);
    other.run(&b);
    drop(other);
    for order in 0..500 {
        shop.place(&b, order, order % 800).await;
    }
    // `b` claims and dies with it.
    let claims = b.claim(tidegate_backend::clock::host_now().plus(400), 512, 5_000).await.unwrap();
    drop(b);
    let latest = shop.all_done(5 * SECOND).await;
    assert!(latest < 3_000, "{latest} ms late; {} were held", claims.len());
}
