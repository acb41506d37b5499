//! Three nodes on one PostgreSQL and one Redis: killed at random, restarted one after the other, frozen.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use tidegate_conformance::servers::{Postgres, Redis};

use crate::clock::off_by;
use crate::long;
use crate::server::{Api, Start, signal};
use crate::shop::{Shop, home};

/// Crowd of each node.
const THREADS: u64 = 2;

fn three() -> (Shop, Postgres, Redis) {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    (Shop::open(postgres.database(), redis.url(), 3), postgres, redis)
}

#[test]
fn one_of_three_killed_at_random_under_load() {
    let rounds = if long() { 50 } else { 6 };
    let (mut shop, _postgres, _redis) = three();
    let mut rng = rand::rngs::StdRng::seed_from_u64(3);
    let mut all = Vec::new();
    for _ in 0..rounds {
        let crowds = shop.crowds(THREADS);
        std::thread::sleep(Duration::from_millis(rng.random_range(200..900)));
        let victim = rng.random_range(0..3);
        shop.nodes[victim].child.kill().expect("it can be killed");
        shop.nodes[victim].child.wait().expect("it ends");
        std::thread::sleep(Duration::from_millis(rng.random_range(200..900)));
        all.extend(home(crowds));
        shop.start_again(victim);
    }
    assert!(all.len() > rounds * 20, "only {} acknowledgements in {rounds} rounds", all.len());
    shop.check(&all);
}

#[test]
fn a_rolling_restart_under_load_loses_nothing() {
    let (mut shop, _postgres, _redis) = three();
    let mut all = Vec::new();
    for node in 0..3 {
        let crowds = shop.crowds(THREADS);
        std::thread::sleep(Duration::from_millis(300));
        let pid = shop.nodes[node].child.id();
        signal(pid, "TERM");
        let begun = Instant::now();
        let status = shop.nodes[node].child.wait().expect("it ends");
        assert!(status.success() && begun.elapsed() < Duration::from_secs(10), "{status} after {:?}", begun.elapsed());
        shop.start_again(node);
        all.extend(home(crowds));
    }
    shop.check(&all);
}

#[test]
fn a_frozen_node_holds_nobody_up_and_does_nothing_twice() {
    let (shop, _postgres, _redis) = three();
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(500));
    let frozen = shop.nodes[2].child.id();
    signal(frozen, "STOP");
    // It may have been between its row locks and its commit: the others sell on within 6 s.
    std::thread::sleep(Duration::from_secs(6));
    for node in [0, 1] {
        let begun = Instant::now();
        let placed = shop.api(node).place(&format!("meanwhile-{node}"), "x", 1, 600);
        assert_eq!(placed.map(|reply| reply.status), Some(201));
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    shop.settle();
    signal(frozen, "CONT");
    std::thread::sleep(Duration::from_secs(1));
    let told = home(crowds);
    shop.check(&told);
}

#[test]
fn one_node_an_hour_ahead_and_one_an_hour_behind() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let mut shop = Shop::open(postgres.database(), redis.url(), 1);
    for offset in ["+3600s", "-3600s"] {
        shop.nodes.push(off_by(Start::on(&shop.ledger, &shop.store), offset).ready());
    }
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_secs(4));
    let told = home(crowds);
    assert!(told.len() > 100, "only {} acknowledgements", told.len());
    shop.check(&told);
    // The right one alone, then the wrong ones alone: each ends orders neither early nor late.
    for node in 0..3 {
        let id = format!("due-{node}");
        let placed = Instant::now();
        assert_eq!(shop.api(node).place(&id, "x", 1, 2).map(|reply| reply.status), Some(201));
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(shop.api(node).order(&id)["status"], "pending", "node {node}: cancelled early");
        shop.api(node).wait("ended", Duration::from_secs(3), |api| api.order(&id)["status"] == "cancelled");
        assert!(placed.elapsed() >= Duration::from_secs(2), "node {node}: {:?}", placed.elapsed());
    }
}

#[test]
fn a_released_unit_is_sold_on_every_node_within_a_tenth_of_a_second() {
    let (shop, _postgres, _redis) = three();
    shop.api(0).sku("last", 1);
    for round in 0..30 {
        let [seller, buyer] = [round % 3, (round + 1) % 3];
        let [held, wanted] = ["held", "wanted"].map(|name| format!("{name}-{round}"));
        assert_eq!(shop.api(seller).place(&held, "last", 1, 600).map(|r| r.status), Some(201));
        assert_eq!(shop.api(buyer).place(&wanted, "last", 1, 600).map(|r| r.status), Some(409), "round {round}");
        assert_eq!(shop.api(seller).cancel(&held).map(|r| r.status), Some(200));
        let released = Instant::now();
        assert_eq!(shop.api(buyer).place(&wanted, "last", 1, 600).map(|r| r.status), Some(201), "a false sold out");
        assert!(released.elapsed() < Duration::from_millis(1_000), "{:?}", released.elapsed());
        assert_eq!(shop.api(buyer).cancel(&wanted).map(|r| r.status), Some(200));
    }
    shop.check(&[]);
}

#[test]
fn deadlines_that_nobody_acts_on_are_seen() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let (ledger, store) = (postgres.database(), redis.url());
    let idle = Start::on(&ledger, &store).env("TIDEGATE_WORKERS", "false").ready();
    idle.api.sku("x", 5);
    assert_eq!(idle.api.place("o", "x", 1, 1).map(|reply| reply.status), Some(201));
    let late = |api: &Api| api.readiness().contains("deadlines-late");
    assert!(!late(&idle.api), "{}", idle.api.readiness());
    // A second until it is due, five that it may be late, two between two looks.
    idle.api.wait("it says that nobody acts", Duration::from_secs(12), late);
    assert_eq!(idle.api.order("o")["status"], "pending");
    let worker = Start::on(&ledger, &store).ready();
    worker.api.wait("somebody acts", Duration::from_secs(5), |api| api.order("o")["status"] == "cancelled");
    idle.api.wait("it sees that, too", Duration::from_secs(5), |api| !late(api));
}
