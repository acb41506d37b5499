//! What nodes tell each other.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::{Duration, Instant};

use tidegate_backend::{Bus, Notice};
use tidegate_conformance::servers::{Proxy, Redis};
use tidegate_core::gate::Copy;
use tidegate_core::{Millis, SkuId};
use tidegate_redis::{Connector, RedisBus, RedisOptions};

async fn bus(url: &str) -> RedisBus {
    let bus = RedisBus::open(Connector::start(RedisOptions::parse(url).unwrap()).await.unwrap());
    // The first thing heard is that nothing was heard before.
    let first = bus.heard().await;
    assert!(first[0].gap);
    bus
}

fn notice(sku: &str, version: i64) -> Notice {
    let copy =
        Copy { archived: false, on_sale_from: None, max_per_order: None, available: version, stock_version: version };
    Notice { copies: vec![(SkuId::parse(sku).unwrap(), copy)], newest_event: Some(version), ..Notice::default() }
}

/// Hears until an event this new is told of; the notices on the way.
async fn until_event(bus: &RedisBus, newest: i64) -> Vec<Notice> {
    let mut all = Vec::new();
    while all.iter().all(|notice: &Notice| notice.newest_event < Some(newest)) {
        all.extend(tokio::time::timeout(Duration::from_secs(5), bus.heard()).await.expect("something is heard"));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_hear_it_at_once_and_nobody_hears_himself() {
    let redis = Redis::start();
    let (a, b) = (bus(&redis.url()).await, bus(&redis.url()).await);
    let mut took = Vec::new();
    for n in 1..=200 {
        let began = Instant::now();
        a.tell(notice("x", n));
        let heard = until_event(&b, n).await;
        took.push(began.elapsed());
        assert!(heard.iter().all(|notice| !notice.gap), "{heard:?}");
    }
    took.sort_unstable();
    // A busy machine may hold up a few.
    assert!(took[190] < Duration::from_millis(100), "{took:?}");
    let own = tokio::time::timeout(Duration::from_millis(100), a.heard()).await;
    assert!(own.is_err(), "{own:?}");
    assert_eq!(a.trouble(), None);
    a.tell(Notice { clock: Some(Millis(5)), ..Notice::default() });
    a.close().await;
    assert_eq!(b.heard().await, [Notice { clock: Some(Millis(5)), ..Notice::default() }]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_batched_and_the_newest_copy_counts() {
    let redis = Redis::start();
    let (a, b) = (bus(&redis.url()).await, bus(&redis.url()).await);
    for n in 1..=5_000 {
        a.tell(notice(&format!("sku-{}", n % 7), n));
    }
    let heard = until_event(&b, 5_000).await;
    assert!(heard.iter().all(|notice| !notice.gap));
    let copies = heard.iter().flat_map(|notice| &notice.copies).filter(|(sku, _)| sku.as_str() == "sku-3");
    assert_eq!(copies.map(|(_, copy)| copy.available).max(), Some(4_994));
    assert!(heard.len() < 1_000, "{} messages", heard.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_link_comes_back_and_tells_of_the_gap() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let (a, b) = (bus(&redis.url()).await, bus(&format!("redis://127.0.0.1:{}", proxy.port())).await);
    proxy.refuse(true);
    proxy.cut();
    common::until("the trouble shows", Duration::from_secs(3), || b.trouble().is_some()).await;
    a.tell(notice("x", 1));
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.refuse(false);
    let heard = tokio::time::timeout(Duration::from_secs(5), b.heard()).await.unwrap();
    assert!(heard[0].gap, "{heard:?}");
    a.tell(notice("x", 2));
    until_event(&b, 2).await;
    common::until("the trouble is over", Duration::from_secs(5), || b.trouble().is_none()).await;

    // Connections killed on the server's side, of both kinds.
    redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    redis.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    let heard = tokio::time::timeout(Duration::from_secs(5), b.heard()).await.unwrap();
    assert!(heard[0].gap, "{heard:?}");
    a.tell(notice("x", 3));
    until_event(&b, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_told_is_told_as_a_gap() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let (a, b) = (bus(&format!("redis://127.0.0.1:{}", proxy.port())).await, bus(&redis.url()).await);
    proxy.refuse(true);
    proxy.cut();
    a.tell(notice("x", 1));
    common::until("the trouble shows", Duration::from_secs(3), || a.trouble().is_some()).await;
    proxy.refuse(false);
    let heard = tokio::time::timeout(Duration::from_secs(5), b.heard()).await.unwrap();
    assert!(heard[0].gap, "{heard:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_cluster_hear_each_other_whichever_server_they_listen_to() {
    let cluster = common::shared_cluster();
    let nodes = [cluster.nodes[0].port(), cluster.nodes[1].port()];
    let (a, b) = (bus(&cluster.url()).await, bus(&format!("redis-cluster://127.0.0.1:{}", nodes[1])).await);
    a.tell(notice("x", 1));
    until_event(&b, 1).await;
    b.tell(notice("x", 2));
    until_event(&a, 2).await;
}
