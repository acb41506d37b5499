//! Redis emptied, killed and frozen under load: orders go on, deadlines are acted on in time, everything is well afterwards.

use std::time::Duration;

use tidegate_conformance::servers::{Engine, MariaDb, Postgres, Redis, Sentinel};

use crate::server::Start;
use crate::shop::{Shop, home};

/// Crowd of each node.
const THREADS: u64 = 2;
/// How long a node may take to be whole again.
const RECOVERY: Duration = Duration::from_secs(10);

fn degraded(shop: &Shop) -> bool {
    shop.nodes.iter().all(|node| node.api.readiness().contains("store-unavailable"))
}

fn ready(shop: &Shop) {
    for node in &shop.nodes {
        node.api.wait("ready again", RECOVERY, |api| api.readiness().contains("\"ready\""));
    }
}

#[test]
fn everything_in_redis_deleted_under_load() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    let shop = Shop::open(mariadb.database(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    for _ in 0..4 {
        std::thread::sleep(Duration::from_millis(700));
        redis.tell(&["FLUSHALL"]);
    }
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    assert!(told.len() > 50, "only {} acknowledgements", told.len());
    shop.check(&told);
    ready(&shop);
}

#[test]
fn redis_killed_under_load_and_back_with_nothing() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    redis.kill();
    shop.api(0).wait("they say so", Duration::from_secs(3), |_| degraded(&shop));
    let placed = shop.api(1).place("meanwhile", "x", 1, 1).expect("an answer");
    assert_eq!(placed.status, 201, "orders go on");
    let ended = |api: &crate::server::Api| api.order("meanwhile")["status"] == "cancelled";
    shop.api(0).wait("a deadline without Redis", Duration::from_secs(6), ended);
    std::thread::sleep(Duration::from_millis(500));
    redis.restart();
    ready(&shop);
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    shop.check(&told);
}

#[test]
fn redis_frozen_for_five_seconds_under_load() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    redis.freeze();
    std::thread::sleep(Duration::from_secs(5));
    assert!(degraded(&shop), "{}", shop.api(0).readiness());
    redis.thaw();
    ready(&shop);
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    shop.check(&told);
    // It is noticed within a second, and the ledger's sweep comes twice a second: nothing waits for the thaw.
    let latest = shop.latest(&told);
    assert!(latest < 3_000, "{latest} ms");
}

#[test]
fn a_start_without_redis_is_degraded_and_heals() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    redis.kill();
    let shop = Shop::open(postgres.database(), redis.url(), 1);
    assert!(degraded(&shop), "{}", shop.api(0).readiness());
    assert_eq!(shop.api(0).place("o", "x", 1, 1).map(|r| r.status), Some(201));
    let ended = |api: &crate::server::Api| api.order("o")["status"] == "cancelled";
    shop.api(0).wait("a deadline without Redis", Duration::from_secs(6), ended);
    redis.restart();
    ready(&shop);
    shop.check(&[]);
}

#[test]
fn a_name_that_is_another_ledgers_is_said_and_orders_go_on() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 1);
    ready(&shop);
    let (code, told) = Start::on(&postgres.database(), &redis.url()).refused();
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("belongs to another ledger") && told.contains("`[redis] name`"), "{told}");
    shop.api(0).wait("its own nodes are not troubled", RECOVERY, |api| api.readiness().contains("\"ready\""));
    // As when Redis had lost everything and the other ledger's node was there first.
    redis.tell(&["SET", "{tg:shop}:owner", "00000000000000ff 16"]);
    shop.api(0).wait("it says why", Duration::from_secs(3), |api| {
        let told = api.readiness();
        told.contains("store-unavailable") && told.contains("belongs to another ledger")
    });
    assert_eq!(shop.api(0).place("o", "x", 1, 1).map(|r| r.status), Some(201));
    let ended = |api: &crate::server::Api| api.order("o")["status"] == "cancelled";
    shop.api(0).wait("a deadline from the ledger", Duration::from_secs(6), ended);
    redis.tell(&["FLUSHALL"]);
    ready(&shop);
    shop.check(&[]);
}

#[test]
fn a_sentinel_failover_under_load() {
    let (mariadb, sentinel) = (MariaDb::start(), Sentinel::start(Engine::Redis));
    let shop = Shop::open(mariadb.database(), sentinel.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    sentinel.fail_over();
    std::thread::sleep(Duration::from_secs(3));
    ready(&shop);
    let told = home(crowds);
    shop.check(&told);
}
