//! The database killed, frozen, read-only: nothing acknowledged is lost, nothing is acknowledged meanwhile, it heals by itself.

use std::time::Duration;

use tidegate_conformance::servers::{MariaDb, Postgres, Redis};

use crate::server::Start;
use crate::shop::{Shop, home};

/// Crowd of each node.
const THREADS: u64 = 2;
/// How long nodes may take to serve again once the database is back.
const RECOVERY: Duration = Duration::from_secs(10);

/// Two nodes under load; `fall` takes the database away, `rise` brings it back.
fn outage(ledger: String, redis: &Redis, fall: impl Fn(), rise: impl Fn()) {
    let shop = Shop::open(ledger, redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    fall();
    std::thread::sleep(Duration::from_secs(1));
    shop.api(0).wait("it says so", RECOVERY, |api| api.get("/readyz").is_some_and(|reply| reply.status == 503));
    let refused = shop.api(1).place("meanwhile", "x", 1, 600).expect("an answer");
    assert_eq!(refused.status, 503, "{refused:?}");
    rise();
    for node in &shop.nodes {
        node.api.wait("ready again", RECOVERY, |api| api.readiness().contains("\"ready\""));
    }
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    assert!(told.len() > 20, "only {} acknowledgements", told.len());
    shop.settle();
    crate::kill::verify(shop.api(0), &told);
    shop.nodes.iter().for_each(|node| node.api.check());
}

#[test]
fn postgres_killed_under_load_and_back() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    outage(postgres.database(), &redis, || postgres.kill(), || postgres.restart());
}

#[test]
fn mariadb_killed_under_load_and_back() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    outage(mariadb.database(), &redis, || mariadb.kill(), || mariadb.restart());
}

/// A shop in which nobody orders: only `/readyz` asks. Of two nodes the second does no background work.
fn idle_outage(ledger: String, fall: impl Fn(), rise: impl Fn()) {
    let redis = Redis::start();
    let mut shop = Shop::open(ledger, redis.url(), 1);
    shop.nodes.push(Start::on(&shop.ledger, &shop.store).env("TIDEGATE_WORKERS", "false").ready());
    std::thread::sleep(Duration::from_millis(700));
    fall();
    for node in &shop.nodes {
        node.api.wait("it says so", RECOVERY * 2, |api| api.get("/readyz").is_some_and(|reply| reply.status == 503));
    }
    rise();
    for node in &shop.nodes {
        node.api.wait("ready again", RECOVERY, |api| api.readiness().contains("\"ready\""));
    }
}

#[test]
fn an_idle_shop_hears_that_postgres_died() {
    let postgres = Postgres::start();
    idle_outage(postgres.database(), || postgres.kill(), || postgres.restart());
}

#[test]
fn an_idle_shop_hears_that_mariadb_is_frozen() {
    let mariadb = MariaDb::start();
    idle_outage(mariadb.database(), || mariadb.freeze(), || mariadb.thaw());
}

#[test]
fn postgres_read_only_under_load_and_back() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    outage(postgres.database(), &redis, || postgres.set_read_only(true), || postgres.set_read_only(false));
}

#[test]
fn mariadb_read_only_under_load_and_back() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    outage(mariadb.database(), &redis, || mariadb.set_read_only(true), || mariadb.set_read_only(false));
}

#[test]
fn postgres_frozen_under_load_and_back() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    outage(postgres.database(), &redis, || postgres.freeze(), || postgres.thaw());
}

/// Somebody else holds every SKU's row for three seconds: nodes wait, then go on; nobody is answered falsely.
fn locked_for_three_seconds(ledger: String, redis: &Redis, lock: impl Fn() + Send) {
    let shop = Shop::open(ledger, redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(500));
    lock();
    shop.api(0).wait("it sells on", RECOVERY, |api| {
        api.place("after-the-lock", "x", 1, 600).is_some_and(|reply| matches!(reply.status, 200 | 201))
    });
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    assert!(told.len() > 20, "only {} acknowledgements", told.len());
    shop.settle();
    crate::kill::verify(shop.api(0), &told);
    shop.nodes.iter().for_each(|node| node.api.check());
}

fn name_of(url: &str) -> &str {
    url.rsplit('/').next().expect("a URL names its database")
}

#[test]
fn every_row_of_postgres_locked_for_three_seconds() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let url = postgres.database();
    let lock = || {
        postgres.sql(
            name_of(&url),
            "BEGIN; SELECT count(*) FROM (SELECT 1 FROM skus FOR UPDATE) s; SELECT pg_sleep(3); COMMIT",
        );
    };
    locked_for_three_seconds(url.clone(), &redis, lock);
}

#[test]
fn every_row_of_mariadb_locked_for_three_seconds() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    let url = mariadb.database();
    let lock = || {
        mariadb.sql(name_of(&url), "BEGIN; SELECT * FROM skus FOR UPDATE; SELECT SLEEP(3); COMMIT");
    };
    locked_for_three_seconds(url.clone(), &redis, lock);
}

#[test]
fn every_connection_cut_under_load_again_and_again() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(300));
        postgres.kill_connections();
    }
    std::thread::sleep(Duration::from_millis(500));
    let told = home(crowds);
    assert!(told.len() > 20, "only {} acknowledgements", told.len());
    shop.check(&told);
}
