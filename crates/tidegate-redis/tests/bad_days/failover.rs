//! Another server becomes the master: Sentinel, Cluster, slots that move.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_conformance::servers::{Cluster, Engine, Proxy, Redis, Sentinel};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::{Connector, RedisDeadlines, RedisOptions};

use crate::common::shop::Shop;
use crate::common::{open_whole, until};

const SECOND: Duration = Duration::from_secs(1);

async fn sentinel() -> (Sentinel, Arc<RedisDeadlines>) {
    let servers = tokio::task::spawn_blocking(|| Sentinel::start(Engine::default())).await.unwrap();
    let q = open_whole(&servers.url()).await;
    (servers, q)
}

async fn cluster() -> (Cluster, Arc<RedisDeadlines>) {
    let servers = tokio::task::spawn_blocking(|| Cluster::start(Engine::default(), true)).await.unwrap();
    let q = open_whole(&servers.url()).await;
    (servers, q)
}

/// Places orders that fall due around `then`, and checks that each is acted on.
async fn through(q: &Arc<RedisDeadlines>, limit: Duration, then: impl AsyncFnOnce()) -> Duration {
    let mut shop = Shop::default();
    shop.run(q);
    for order in 0..400 {
        shop.place(q, order, 200 + order * 10).await;
    }
    tokio::time::sleep(SECOND).await;
    then().await;
    let began = Instant::now();
    for order in 400..500 {
        shop.place(q, order, 50).await;
    }
    until("it serves and is whole", limit, || q.state() == IndexState::Whole && q.failing().is_none()).await;
    let took = began.elapsed();
    shop.all_done(limit).await;
    shop.place(q, 1_000, 20).await;
    shop.all_done(2 * SECOND).await;
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replace_a_master_that_was_killed() {
    let (servers, q) = sentinel().await;
    through(&q, 10 * SECOND, async || {
        servers.servers[0].kill();
        until("it is down", 3 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    })
    .await;
    assert_eq!(servers.master_port(), Some(servers.servers[1].port()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_replace_a_master_that_was_frozen() {
    let (servers, q) = sentinel().await;
    through(&q, 10 * SECOND, async || {
        servers.servers[0].freeze();
        until("it is down", 3 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    })
    .await;
    // The old master comes back, as a replica: it is not listened to.
    servers.servers[0].thaw();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(q.state(), IndexState::Whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_change_the_master_without_a_fault() {
    let (servers, q) = sentinel().await;
    through(&q, 10 * SECOND, async || {
        servers.fail_over();
        until("the master changes", 5 * SECOND, || servers.master_port() == Some(servers.servers[1].port())).await;
    })
    .await;
    assert_eq!(servers.master_port(), Some(servers.servers[1].port()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_outlive_their_sentinels() {
    let (mut servers, q) = sentinel().await;
    let url = servers.url();
    let stranger = url.replace("/shop", "/nobody");
    assert_ne!(stranger, url);
    let trouble = async |url: &str| {
        let started = Connector::start(RedisOptions::parse(url).unwrap()).await;
        started.expect("it is looked for until it is there").trouble().expect("it is not there")
    };
    let told = trouble(&stranger).await;
    assert!(told.contains("does not know the service"), "{told}");
    servers.kill_sentinels();
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..100 {
        shop.place(&q, order, 100 + order * 30).await;
    }
    let latest = shop.all_done(10 * SECOND).await;
    assert!(latest < 1_000 && q.state() == IndexState::Whole, "{latest} ms late, {:?}", q.state());
    let told = trouble(&url).await;
    assert!(told.contains("Redis cannot be reached"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lacks_writes_is_promoted() {
    let (master, replica) = (Redis::start(), Redis::start());
    let address = Proxy::start(master.port());
    let q = open_whole(&format!("redis://127.0.0.1:{}", address.port())).await;
    let mut shop = Shop::default();
    for order in 0..100 {
        shop.place(&q, order, 3_000 + order * 10).await;
    }
    q.len().await.unwrap();
    replica.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    until("it replicates", 5 * SECOND, || master.tell(&["INFO", "replication"]).contains("state=online")).await;
    until("it has all", 5 * SECOND, || replica.tell(&["ZCARD", "{tg:shop:d0}:due"]) == "7").await;
    // What it misses: new deadlines, and that some were done.
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    for order in 100..200 {
        shop.place(&q, order, 3_000 + order * 10).await;
    }
    q.cancel(&[]).await.unwrap();
    let early = q.claim(host_now().plus(3_300), 512, 60_000).await.unwrap();
    assert!(!early.is_empty());
    address.lead_to(replica.port());
    master.kill();
    address.cut();
    shop.run(&q);
    until("it was filled again", 5 * SECOND, || shop.rebuilds() > 0).await;
    let latest = shop.all_done(10 * SECOND).await;
    assert!(latest < 1_000, "{latest} ms late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_replaces_a_master_that_was_killed() {
    let (servers, q) = cluster().await;
    let took = through(&q, 10 * SECOND, async || {
        servers.nodes[0].kill();
        until("it is noticed", 4 * SECOND, || q.failing().is_some()).await;
    })
    .await;
    println!("whole again after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_left_once_its_replica_was_promoted() {
    let (servers, q) = cluster().await;
    let mut shop = Shop::default();
    for order in 0..100 {
        shop.place(&q, order, 60_000 + order).await;
    }
    assert_eq!(q.len().await.unwrap(), 100);
    shop.run(&q);
    let slot = servers.slot("{tg:shop:d0}:due");
    let master = servers.owner(slot, 5).unwrap();
    let asked = (master + 1) % 3;
    servers.nodes[master].freeze();
    until("it is noticed", 4 * SECOND, || q.failing().is_some()).await;
    assert!(!matches!(q.state(), IndexState::Unavailable(_)), "the other masters serve: {:?}", q.state());
    until("the replica is promoted", 10 * SECOND, || servers.owner(slot, asked).is_some_and(|n| n != master)).await;
    let began = Instant::now();
    until("it is left", 5 * SECOND, || q.failing().is_none()).await;
    println!("left after {:?}", began.elapsed());
    // The replica may lack the newest writes, or all: the next look at it finds another server, and it is filled again.
    holds(&q, 100).await;
    servers.nodes[master].thaw();
    tokio::time::sleep(2 * SECOND).await;
    holds(&q, 100).await;
}

/// Waits until the index has this many deadlines.
async fn holds(q: &RedisDeadlines, count: usize) {
    let began = Instant::now();
    loop {
        let len = q.len().await;
        if matches!(len, Ok(len) if len == count) {
            return;
        }
        assert!(began.elapsed() < 5 * SECOND, "{len:?} deadlines, not {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load() {
    let (servers, q) = cluster().await;
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..300 {
        shop.place(&q, order, 100 + order * 5).await;
    }
    for partition in 0..4 {
        let slot = servers.slot(&format!("{{tg:shop:d{partition}}}:due"));
        let to = (servers.owner(slot, 0).unwrap() + 1) % 3;
        servers.move_slot(slot, to);
        shop.place(&q, 1_000 + partition, 10).await;
    }
    let latest = shop.all_done(12 * SECOND).await;
    assert!(latest < 8_000, "{latest} ms late");
    until("it is whole", 5 * SECOND, || q.state() == IndexState::Whole).await;
    q.schedule(&[(OrderNo(5_000), Millis(i64::MAX / 2))]).await.unwrap();
    assert_eq!(q.contains(&[(OrderNo(5_000), Millis(i64::MAX / 2))]).await.unwrap(), [true]);
}
