//! A part of Redis cannot be used: orders of that part are acted on from the ledger, all others as ever, and the log says it once.

use std::time::{Duration, Instant};

use tidegate_conformance::servers::{Cluster, Engine, Postgres, Redis};

use crate::server::Server;
use crate::shop::{Shop, at};

const BUYERS: usize = 8;
/// How long orders are held, and a moment.
const HOLD: Duration = Duration::from_millis(1_200);
/// Between two orders of a buyer.
const PACE: Duration = Duration::from_millis(40);
const RECOVERY: Duration = Duration::from_secs(10);
/// How late 99 of 100 orders may be acted on, milliseconds, whatever fails.
const LATE_P99_MS: i64 = 2_000;
/// How late half of them may be, on a busy machine: those of other partitions are on time.
const LATE_P50_MS: i64 = 500;
/// Log lines of a node in all.
const MAX_LINES: usize = 50;

/// Places orders that are due after a second for as long as `lasts`, at all nodes.
fn place_for(shop: &Shop, prefix: &str, lasts: Duration) -> Vec<String> {
    let begun = Instant::now();
    let buyer = move |thread: usize| {
        let mut ids = Vec::new();
        while begun.elapsed() < lasts {
            let id = format!("{prefix}-{thread}-{}", ids.len());
            let placed = shop.api(thread % shop.nodes.len()).place(&id, "x", 1, 1);
            assert_eq!(placed.map(|reply| reply.status), Some(201), "{id}");
            ids.push(id);
            std::thread::sleep(PACE);
        }
        ids
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..BUYERS).map(|thread| scope.spawn(move || buyer(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// How late each order was acted on, milliseconds, earliest first.
fn lateness(shop: &Shop, ids: &[String]) -> Vec<i64> {
    let late = ids.iter().map(|id| {
        let order = shop.api(0).order(id);
        assert_eq!(order["cancel_reason"], "payment_timeout", "{order}");
        at(&order, "cancelled_at").expect("an instant") - at(&order, "release_at").expect("an instant")
    });
    let mut late: Vec<i64> = late.collect();
    late.sort_unstable();
    late
}

/// Orders of a time in which a part failed: on time, and told of in few words.
fn assert_on_time(shop: &Shop, ids: &[String]) {
    // The last of them must be due, too.
    std::thread::sleep(HOLD);
    shop.settle();
    let late = lateness(shop, ids);
    let at_share = |percent: usize| late[(late.len() - 1) * percent / 100];
    let (p50, p99) = (at_share(50), at_share(99));
    assert!(late.len() > 100 && late[0] >= 0, "{} orders, the earliest {} ms late", late.len(), late[0]);
    assert!(p50 <= LATE_P50_MS && p99 <= LATE_P99_MS, "p50 {p50} ms, p99 {p99} ms, most {:?} ms", late.last());
}

fn lines_of(node: &Server) -> usize {
    let log = node.log();
    let lines = log.lines().count();
    assert!(lines < MAX_LINES, "{lines} lines:\n{log}");
    lines
}

/// It has said once that a part fails and once that it does not any more.
fn assert_told_once(shop: &Shop) {
    for node in &shop.nodes {
        lines_of(node);
        let log = node.log();
        let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
        assert_eq!(count("deadlines of some partitions are acted on from the ledger"), 1, "{log}");
        assert_eq!(count("every partition of the deadline index can be used again"), 1, "{log}");
        assert!(!log.contains("ledger is damaged") && !log.contains("ledger is unavailable"), "{log}");
    }
}

fn say(shop: &Shop, words: &str) {
    for node in &shop.nodes {
        node.api.wait(words, RECOVERY, |api| api.readiness().contains(words));
    }
}

#[test]
fn a_slot_of_a_cluster_stays_open_for_ten_seconds_under_load() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::default(), false));
    let shop = Shop::open(postgres.database(), cluster.url(), 2);
    place_for(&shop, "before", Duration::from_secs(2));
    let slot = cluster.slot("{tg:shop:d0}:due");
    let from = cluster.owner(slot, 0).expect("an owner");
    let to = (from + 1) % 3;
    cluster.open_slot(slot, from, to);
    cluster.move_key("{tg:shop:d0}:mark", from, to);
    let ids = place_for(&shop, "during", Duration::from_secs(10));
    say(&shop, "1 of 16 partitions of the deadline index cannot be used, such as that of the key {tg:shop:d0}:due");
    cluster.move_slot_of(slot, from, to);
    say(&shop, "\"ready\"");
    assert_on_time(&shop, &ids);
    assert_told_once(&shop);
    let ids = place_for(&shop, "after", Duration::from_secs(3));
    assert_on_time(&shop, &ids);
    shop.nodes.iter().for_each(|node| node.api.check());
}

#[test]
fn a_key_of_the_index_that_holds_something_else_under_load() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    place_for(&shop, "before", Duration::from_secs(2));
    redis.tell(&["SET", "{tg:shop:d0}:due", "x"]);
    let ids = place_for(&shop, "during", Duration::from_secs(5));
    say(&shop, "store-unavailable: 1 of 16 partitions");
    let told = shop.api(0).readiness();
    assert!(told.contains("WRONGTYPE") && !told.contains("damaged"), "{told}");
    redis.tell(&["DEL", "{tg:shop:d0}:due"]);
    say(&shop, "\"ready\"");
    assert_on_time(&shop, &ids);
    assert_told_once(&shop);
    shop.nodes.iter().for_each(|node| node.api.check());
}

/// One master of a Cluster is away, with nobody to replace it: its partitions only.
#[test]
fn a_master_of_a_cluster_is_away_for_five_seconds_under_load() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::default(), false));
    let shop = Shop::open(postgres.database(), cluster.url(), 2);
    place_for(&shop, "before", Duration::from_secs(2));
    let away = cluster.owner(cluster.slot("{tg:shop:d0}:due"), 0).expect("an owner");
    cluster.nodes[away].kill();
    let ids = place_for(&shop, "during", Duration::from_secs(5));
    say(&shop, "partitions of the deadline index cannot be used");
    cluster.nodes[away].restart();
    say(&shop, "\"ready\"");
    assert_on_time(&shop, &ids);
    for node in &shop.nodes {
        assert!(lines_of(node) > 1);
    }
    shop.nodes.iter().for_each(|node| node.api.check());
}
