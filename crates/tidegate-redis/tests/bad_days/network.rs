//! Between node and server: replies that are cut, connections that are cut, packets that vanish.

use std::time::{Duration, Instant};

use tidegate_backend::clock::host_now;
use tidegate_backend::{DeadlineQueue, ErrorKind, IndexState};
use tidegate_conformance::servers::{Engine, Proxy, Redis, Setup};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::{Connector, RedisOptions};

use crate::common::shop::Shop;
use crate::common::{deadlines, open_whole, open_with, until};

const SECOND: Duration = Duration::from_secs(1);

fn behind(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_reply_is_cut_is_delivered_again_after_its_lease() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let q = open_whole(&behind(&proxy)).await;
    q.schedule(&[(OrderNo(1), Millis(10))]).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 1);
    proxy.cut_replies(1_000);
    let lost = q.claim(Millis(10), 512, 1_000).await;
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Unavailable);
    proxy.cut_replies(0);
    until("it is back", 2 * SECOND, || q.state() == IndexState::Whole).await;
    let again = q.claim(Millis(1_010), 512, 1_000).await.unwrap();
    assert_eq!((again.len(), again[0].due_at), (1, Millis(10)));
    // The same for an acknowledgement: whether it has happened or not, it can be repeated.
    proxy.cut_replies(1_000);
    assert!(q.ack(&[(OrderNo(1), again[0].receipt)]).await.is_err());
    proxy.cut_replies(0);
    until("it is back", 2 * SECOND, || q.state() == IndexState::Whole).await;
    q.ack(&[(OrderNo(1), again[0].receipt)]).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_replies_and_cut_connections_lose_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let q = open_whole(&behind(&proxy)).await;
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..1_000 {
        shop.place(&q, order, 100 + order % 500).await;
        if order % 100 == 50 {
            proxy.cut_replies(2);
        }
        if order % 100 == 99 {
            proxy.cut();
            tokio::time::sleep(SECOND / 20).await;
        }
    }
    // A claim whose reply was lost comes back after its lease (5 s).
    let latest = shop.all_done(9 * SECOND).await;
    assert!(latest < 6_500, "{latest} ms late");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_pub_sub_that_are_killed_hold_nothing_up() {
    let redis = Redis::start();
    let q = open_whole(&redis.url()).await;
    let other = open_whole(&redis.url()).await;
    let mut shop = Shop::default();
    shop.run(&q);
    for order in 0..100 {
        shop.place(&other, order, 300 + order).await;
    }
    redis.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert!(shop.all_done(3 * SECOND).await < 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_deadline_of_another_node_wakes_at_once() {
    let redis = Redis::start();
    let (q, other) = (open_whole(&redis.url()).await, open_whole(&redis.url()).await);
    q.schedule(&[(OrderNo(1), Millis(1_000_000))]).await.unwrap();
    tokio::time::sleep(SECOND / 2).await;
    for n in 1..20 {
        q.next_at().await.unwrap();
        let began = Instant::now();
        let sleeping = q.earlier();
        other.schedule(&[(OrderNo(1 + n), Millis(1_000_000 - n))]).await.unwrap();
        tokio::time::timeout(SECOND, sleeping).await.expect("it wakes");
        assert!(began.elapsed() < SECOND / 5, "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_that_vanish_are_noticed() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let q = open_whole(&behind(&proxy)).await;
    let mut shop = Shop::default();
    shop.run(&q);
    proxy.silence(true);
    shop.place(&q, 1, 100).await;
    until("it is down", 3 * SECOND, || matches!(q.state(), IndexState::Unavailable(_))).await;
    tokio::time::sleep(SECOND).await;
    proxy.silence(false);
    shop.all_done(4 * SECOND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_answers_are_waited_for_and_slower_ones_are_not() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let q = open_whole(&behind(&proxy)).await;
    proxy.delay(Duration::from_millis(100));
    q.schedule(&deadlines(0..10)).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 10);
    proxy.delay(2 * SECOND);
    let began = Instant::now();
    assert!(q.claim(Millis(5), 512, 1_000).await.is_err());
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    proxy.delay(Duration::ZERO);
    // C22: what the server did for a caller that was gone comes back after the lease.
    for now in (2_000..).step_by(2_000) {
        assert!(began.elapsed() < 10 * SECOND);
        match q.claim(Millis(now), 512, 1_000).await {
            Ok(claims) => {
                assert_eq!(claims.len(), 10);
                break;
            }
            Err(_) => tokio::time::sleep(SECOND / 10).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_must_not_be_used_are_refused() {
    let evicting = Redis::start_with(Setup::default().option("maxmemory-policy", "allkeys-lru"));
    let e = Connector::start(RedisOptions::parse(&evicting.url()).unwrap()).await.err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Configuration);
    assert!(e.to_string().contains("noeviction"), "{e}");
    let volatile = Redis::start_with(Setup::default().option("maxmemory-policy", "volatile-lru"));
    assert!(Connector::start(RedisOptions::parse(&volatile.url()).unwrap()).await.is_ok());

    let locked = Redis::start_with(Setup::default().user("ann", "topsecret"));
    assert!(Connector::start(RedisOptions::parse(&locked.url()).unwrap()).await.unwrap().trouble().is_none());
    for wrong in ["ann:wrongsecret@", "bob:wrongsecret@", ""] {
        let url = format!("redis://{wrong}127.0.0.1:{}", locked.port());
        let e = Connector::start(RedisOptions::parse(&url).unwrap()).await.err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Configuration, "{wrong}: {e}");
        assert!(!e.to_string().contains("wrongsecret"), "{e}");
    }
}

/// (The wheel's Valkey is built without TLS.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_user_and_database() {
    let redis = Redis::start_with(Setup::default().engine(Engine::Redis).tls().user("ann", "p@ss:w%rd"));
    let url = redis.url().replace("p@ss:w%rd", "p%40ss%3Aw%25rd") + "/3";
    let options = RedisOptions::parse(&url).unwrap();
    let stranger = Connector::start(options.clone()).await;
    assert!(stranger.is_err() || stranger.unwrap().trouble().is_some(), "an unknown authority");
    let q = open_with(options.authority(redis.authority())).await;
    q.schedule(&deadlines(0..10)).await.unwrap();
    assert_eq!(q.len().await.unwrap(), 10);
    assert!(redis.tell(&["INFO", "keyspace"]).contains("db3:keys="), "{}", redis.tell(&["INFO", "keyspace"]));
    let mut shop = Shop::default();
    let q = std::sync::Arc::new(q);
    shop.run(&q);
    shop.place(&q, 100, 50).await;
    shop.all_done(2 * SECOND).await;
    assert!(host_now().0 > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shops_share_a_server() {
    let redis = Redis::start();
    let named = |name: &str| RedisOptions::parse(&redis.url()).unwrap().name(name).unwrap();
    let (a, b) = (open_with(named("a")).await, open_with(named("b")).await);
    a.schedule(&deadlines(0..10)).await.unwrap();
    b.schedule(&deadlines(0..3)).await.unwrap();
    assert_eq!((a.len().await.unwrap(), b.len().await.unwrap()), (10, 3));
    assert!(b.claim(Millis(100), 512, 1_000).await.unwrap().len() == 3);
}

#[tokio::test]
async fn an_address_that_will_never_work_ends_the_start() {
    let redis = Redis::start();
    let port = redis.port();
    for (url, next) in [
        (format!("redis://127.0.0.1:{port}/99"), "check the database's number"),
        (format!("redis-cluster://127.0.0.1:{port}"), "the server is no Cluster"),
        (format!("redis-sentinel://127.0.0.1:{port}/shop"), "the server is no sentinel"),
    ] {
        let e = Connector::start(RedisOptions::parse(&url).unwrap()).await.err().unwrap();
        assert_eq!(e.kind(), ErrorKind::Configuration, "{url}: {e}");
        assert!(e.to_string().contains(next), "{url}: {e}");
    }
    redis.kill();
    let away = Connector::start(RedisOptions::parse(&redis.url()).unwrap()).await.unwrap();
    assert!(away.trouble().unwrap().starts_with("Redis cannot be reached: "), "{:?}", away.trouble());
    away.close().await;
}
