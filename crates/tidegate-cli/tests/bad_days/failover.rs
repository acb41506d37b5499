//! A replica takes the place of a database or a Redis under load, keys move or vanish: nothing acknowledged is lost, deadlines
//! are on time again within the lag bound, and no node is started again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_conformance::servers::{Cluster, Engine, Postgres, Proxy, Redis};

use crate::kill::Told;
use crate::long;
use crate::server::{Api, Start};
use crate::shop::{Shop, at, home, now};

/// Crowd of each node.
const THREADS: u64 = 2;
/// How long nodes may take to serve again once their server is back.
const RECOVERY: Duration = Duration::from_secs(10);
/// Partitions of the index, unless set.
const PARTITIONS: usize = 16;

fn ready(shop: &Shop) {
    for node in &shop.nodes {
        node.api.wait("ready again", RECOVERY, |api| api.readiness().contains("\"ready\""));
    }
}

/// A URL with another port.
fn through(url: &str, from: u16, to: u16) -> String {
    url.replace(&format!(":{from}"), &format!(":{to}"))
}

/// A primary, its synchronous standby, and the address of whichever serves.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    /// What the standby receives passes here.
    stream: Proxy,
    address: Proxy,
    ledger: String,
}

impl Pair {
    fn start() -> Self {
        let primary = Postgres::start();
        let stream = Proxy::start(primary.port());
        let standby = primary.synchronous_standby(stream.port());
        let address = Proxy::start(primary.port());
        let ledger = through(&primary.database(), primary.port(), address.port());
        Self { primary, standby, stream, address, ledger }
    }

    /// The primary dies, and the standby takes its place; nodes meet it while it is still read-only. When it took over.
    fn fail_over(&self) -> i64 {
        // What is on its way to the standby is lost.
        self.stream.cut();
        self.primary.kill();
        self.address.lead_to(self.standby.port());
        std::thread::sleep(Duration::from_secs(1));
        self.standby.promote();
        now()
    }
}

#[test]
fn a_synchronous_standby_of_postgres_promoted_under_load() {
    let (pair, redis) = (Pair::start(), Redis::start());
    let shop = Shop::open(pair.ledger.clone(), redis.url(), 3);
    // The standby is always a little behind what the primary has.
    pair.stream.delay(Duration::from_millis(30));
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(1_500));
    let back = pair.fail_over();
    ready(&shop);
    assert_serves(&shop);
    std::thread::sleep(Duration::from_secs(2));
    let told = home(crowds);
    assert!(told.len() > 50, "only {} acknowledgements", told.len());
    shop.check_since(&told, back);
}

/// The standby hears nothing for longer than any statement or lock may take, then the primary dies with what only it knew.
#[test]
fn what_a_standby_never_got_was_never_acknowledged() {
    let (pair, redis) = (Pair::start(), Redis::start());
    let shop = Shop::open(pair.ledger.clone(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_secs(1));
    pair.stream.silence(true);
    std::thread::sleep(Duration::from_secs(7));
    let readiness = shop.api(0).readiness();
    assert!(!readiness.contains("\"ready\""), "no commit has an answer, yet: {readiness}");
    let back = pair.fail_over();
    ready(&shop);
    assert_serves(&shop);
    std::thread::sleep(Duration::from_secs(1));
    let told = home(crowds);
    assert!(told.len() > 50, "only {} acknowledgements", told.len());
    shop.check_since(&told, back);
}

/// The primary dies while commits wait for the standby, and comes back alone: it shows what it had on its own disk. Nobody is
/// told that this holds, for the standby takes over without it.
#[test]
fn what_only_a_primary_that_came_back_alone_knows_is_not_acknowledged() {
    let (pair, redis) = (Pair::start(), Redis::start());
    let shop = Shop::open(pair.ledger.clone(), redis.url(), 3);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    pair.stream.silence(true);
    std::thread::sleep(Duration::from_millis(500));
    pair.primary.kill();
    pair.primary.restart();
    std::thread::sleep(Duration::from_secs(6));
    let back = pair.fail_over();
    ready(&shop);
    let told = home(crowds);
    assert_serves(&shop);
    assert!(told.len() > 20, "only {} acknowledgements", told.len());
    shop.check_since(&told, back);
}

/// Every node takes an order, and it ends on time.
fn assert_serves(shop: &Shop) {
    for (node, server) in shop.nodes.iter().enumerate() {
        let id = format!("after-{node}");
        assert_eq!(server.api.place(&id, "x", 1, 1).map(|reply| reply.status), Some(201), "node {node}");
        server.api.wait("a deadline", Duration::from_secs(6), |api| api.order(&id)["status"] == "cancelled");
        let order = server.api.order(&id);
        let late = at(&order, "cancelled_at").expect("an instant") - at(&order, "release_at").expect("an instant");
        assert!((0..=5_000).contains(&late), "{late} ms late: {order}");
    }
}

fn due(partition: usize) -> String {
    format!("{{tg:shop:d{partition}}}:due")
}

/// The deadlines of a partition as `order@instant`, by Redis's own word: members are two big-endian numbers with the sign
/// bit turned.
const READ_INDEX: &str = "local words = {}
for i, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local a, b, c, d = struct.unpack('>I4I4I4I4', member)
  words[i] = string.format('%.0f@%.0f', (a - 2147483648) * 4294967296 + b, (c - 2147483648) * 4294967296 + d)
end
return words";

fn read_partition(redis: &Redis, partition: usize) -> Result<BTreeSet<String>, String> {
    let words = redis.try_tell(&["EVAL", READ_INDEX, "1", &due(partition)])?;
    Ok(words.lines().map(str::to_owned).collect())
}

fn index(redis: &Redis) -> BTreeSet<String> {
    (0..PARTITIONS).flat_map(|partition| read_partition(redis, partition).expect("an answer")).collect()
}

/// Partitions whose owner changes right now are left out.
fn index_of_cluster(cluster: &Cluster, asked: usize) -> BTreeSet<String> {
    let read = |partition| {
        let owner = cluster.owner(cluster.slot(&due(partition)), asked)?;
        read_partition(&cluster.nodes[owner], partition).ok()
    };
    (0..PARTITIONS).filter_map(read).flatten().collect()
}

/// Pending orders that the index lacks.
fn missing(postgres: &Postgres, index: &BTreeSet<String>) -> usize {
    let pending = postgres.sql("postgres", "SELECT order_no || '@' || release_at FROM orders WHERE status = 0");
    pending.lines().filter(|deadline| !index.contains(*deadline)).count()
}

/// The index holds every pending order; asked before the shop's check, which would repair it. It may hold more: what was cancelled while nobody could say so falls due once, and
/// the ledger says "already".
fn assert_whole(postgres: &Postgres, index: impl Fn() -> BTreeSet<String>) {
    let begun = Instant::now();
    loop {
        let index = index();
        let missing = missing(postgres, &index);
        if missing == 0 {
            return;
        }
        assert!(begun.elapsed() < RECOVERY, "the index of {} lacks {missing} pending orders", index.len());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_cluster_replaces_a_master_then_moves_a_slot_under_load() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::default(), true));
    let shop = Shop::open(postgres.database(), cluster.url(), 2);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    let slot = cluster.slot(&due(0));
    let (master, asked) = (cluster.owner(slot, 5).expect("an owner"), 5);
    let asked = if master + 3 == asked { 4 } else { asked };
    cluster.nodes[master].kill();
    let placed = shop.api(1).place("meanwhile", "x", 1, 1).expect("an answer");
    assert_eq!(placed.status, 201, "orders go on");
    let promoted = |_: &Api| cluster.owner(slot, asked) == Some(master + 3);
    shop.api(0).wait("the replica is promoted", RECOVERY, promoted);
    ready(&shop);
    let to = (master + 1) % 3;
    cluster.move_slot_of(slot, master + 3, to);
    std::thread::sleep(Duration::from_secs(2));
    ready(&shop);
    let told = home(crowds);
    assert!(told.len() > 100, "only {} acknowledgements", told.len());
    assert_whole(&postgres, || index_of_cluster(&cluster, asked));
    shop.check(&told);
    assert_eq!(shop.api(0).order("meanwhile")["status"], "cancelled");
    assert_eq!(cluster.owner(slot, asked), Some(to));
}

#[test]
fn every_script_forgotten_under_load_again_and_again() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let shop = Shop::open(postgres.database(), redis.url(), 2);
    let crowds = shop.crowds(THREADS);
    let (begun, lasts) = (Instant::now(), Duration::from_secs(if long() { 60 } else { 4 }));
    while begun.elapsed() < lasts {
        redis.tell(&["SCRIPT", "FLUSH", "SYNC"]);
        std::thread::sleep(Duration::from_millis(7));
    }
    // It was no fault that anybody could see.
    shop.nodes.iter().for_each(|node| assert!(node.api.readiness().contains("\"ready\""), "{}", node.api.readiness()));
    let told = home(crowds);
    assert!(told.len() > 100, "only {} acknowledgements", told.len());
    assert_whole(&postgres, || index(&redis));
    shop.check(&told);
}

/// Somebody sets at run time what Tidegate refuses at its start: keys of the index are evicted while orders are pending.
#[test]
fn deadlines_evicted_under_pressure() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    // Without the filter of SKUs, which would be evicted first.
    let no_filter = |start: Start| start.env("TIDEGATE_CACHE_PRODUCTS_MEMBERSHIP", "0");
    let shop = Shop::open_with(postgres.database(), redis.url(), 2, no_filter);
    let ids = place_many(&shop, 3_000);
    let used = number_in(&redis, "memory", "used_memory:");
    redis.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    redis.tell(&["CONFIG", "SET", "maxmemory", &(used - 40_000).to_string()]);
    let crowds = shop.crowds(THREADS);
    let mut lacked = 0;
    for round in 0..if long() { 600 } else { 50 } {
        // Another program's keys press on ours.
        let _ = redis.try_tell(&["SET", &format!("filler{round}"), &"f".repeat(4_000)]);
        lacked = lacked.max(missing(&postgres, &index(&redis)));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(number_in(&redis, "stats", "evicted_keys:") > 2 && lacked > 200, "at most {lacked} deadlines were evicted");
    let mut told = home(crowds);
    told.extend(ids.into_iter().map(|id| (id, Told::Placed { quantity: 1 })));
    shop.check(&told);
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    // As long as it may evict, no lock is granted, and readiness says so.
    let without_locks = |api: &crate::server::Api| api.readiness().contains("locks-unavailable");
    shop.nodes.iter().for_each(|node| node.api.wait("it says so", Duration::from_secs(10), without_locks));
    redis.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    ready(&shop);
    // What is due within a minute is compared by itself; the check compares the rest, too.
    shop.nodes.iter().for_each(|node| node.api.check());
    assert_whole(&postgres, || index(&redis));
}

fn number_in(redis: &Redis, section: &str, name: &str) -> u64 {
    let info = redis.tell(&["INFO", section]);
    info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).expect("Redis tells it")
}

/// Orders of which most fall due between six and twelve seconds after they were placed.
fn place_many(shop: &Shop, count: usize) -> Vec<String> {
    const CROWD: usize = 16;
    let place = |thread: usize| {
        let api = shop.api(thread % shop.nodes.len()).clone();
        std::thread::spawn(move || {
            let ids = (thread..count).step_by(CROWD).map(|i| {
                let (id, hold) = (format!("many-{i}"), [6, 7, 8, 9, 10, 11, 12, 600][i / CROWD % 8]);
                assert_eq!(api.place(&id, "x", 1, hold).map(|reply| reply.status), Some(201));
                id
            });
            ids.collect::<Vec<_>>()
        })
    };
    let threads: Vec<_> = (0..CROWD).map(place).collect();
    threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
}

#[test]
fn a_replica_of_redis_that_lacks_ten_seconds_is_promoted_under_load() {
    let (postgres, master, replica) = (Postgres::start(), Redis::start(), Redis::start());
    let (address, stream) = (Proxy::start(master.port()), Proxy::start(master.port()));
    replica.tell(&["REPLICAOF", "127.0.0.1", &stream.port().to_string()]);
    let shop = Shop::open(postgres.database(), through(&master.url(), master.port(), address.port()), 2);
    let online = |_: &Api| master.tell(&["INFO", "replication"]).contains("state=online");
    shop.api(0).wait("it replicates", RECOVERY, online);
    let crowds = shop.crowds(THREADS);
    std::thread::sleep(Duration::from_millis(700));
    stream.silence(true);
    std::thread::sleep(Duration::from_secs(10));
    let lacks = missing(&postgres, &index(&replica));
    assert!(lacks > 20, "the replica lacks only {lacks} orders");
    replica.tell(&["REPLICAOF", "NO", "ONE"]);
    address.lead_to(replica.port());
    // The old master lives on: whoever is still connected must not be served by it.
    address.cut();
    std::thread::sleep(Duration::from_secs(1));
    ready(&shop);
    std::thread::sleep(Duration::from_secs(2));
    let told = home(crowds);
    assert!(told.len() > 100, "only {} acknowledgements", told.len());
    assert_whole(&postgres, || index(&replica));
    shop.check(&told);
}
