//! Servers in the middle of something else: what is said then, and what they must not suffer.

use std::time::Duration;

use tidegate_conformance::servers::{Cluster, Engine, Redis, Setup};
use tidegate_redis::RedisOptions;
use tidegate_redis::bigkeys::{BigKeysOptions, Pace, Report, Route, big_keys};

use crate::planted;

fn by(route: Route) -> BigKeysOptions {
    BigKeysOptions { route, ..BigKeysOptions::default() }
}

async fn look(url: &str, route: Route) -> Report {
    big_keys(&RedisOptions::parse(url).unwrap(), &by(route)).await.unwrap()
}

fn says(report: &Report, what: &str) -> bool {
    report.notes.iter().any(|note| note.contains(what))
}

fn fill(server: &Redis, prefix: &str, keys: u32, bytes: u32) {
    let script = "for n = 1, ARGV[2] do redis.call('SET', ARGV[1] .. n, string.rep('x', ARGV[3])) end";
    server.tell(&["EVAL", script, "0", prefix, &keys.to_string(), &bytes.to_string()]);
}

/// A snapshot that would first lie on the server's disk, and stop its writes if there is no room, is made for who asks for it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_by_the_disk_is_made_for_who_asks_for_it() {
    let setup = Setup::default().option("repl-diskless-sync", "no").option("repl-diskless-sync-delay", "0");
    let server = Redis::start_with(setup);
    fill(&server, "a:", 100, 10);
    let saves =
        || server.tell(&["INFO", "stats"]).lines().find(|line| line.starts_with("total_forks:")).unwrap().to_owned();
    let before = saves();
    let report = look(&server.url(), Route::Auto).await;
    assert_eq!((report.route, report.scanned), ("scan", 100));
    assert!(says(&report, "repl-diskless-sync no"), "{:?}", report.notes);
    assert_eq!(saves(), before, "it was not made to fork");
    assert_eq!(look(&server.url(), Route::Snapshot).await.route, "snapshot");
    assert_ne!(saves(), before);
}

/// One key that a user may not read says nothing of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_for_a_key_is_unknown_for_it_alone() {
    let server = planted::server(Engine::default());
    fill(&server, "mine:", 1_000, 10);
    fill(&server, "theirs:", 20, 10);
    server.tell(&["SET", "mine:large", &"x".repeat(1 << 20)]);
    let rights = ["+info", "+scan", "+type", "+memory|usage"];
    server.tell(&[&["ACL", "SETUSER", "one", "on", ">word", "~mine:*"][..], &rights].concat());
    let url = format!("redis://one:word@127.0.0.1:{}", server.port());
    let report = look(&url, Route::Scan).await;
    assert_eq!((report.scanned, report.unknown, &report.items[0].name[..]), (1_021, 20, &b"mine:large"[..]));
    assert!(says(&report, "20 keys were refused") && !says(&report, "not permitted"), "{:?}", report.notes);
    let mine = report.prefixes.iter().find(|(name, _)| name == b"mine:").unwrap().1;
    assert!(mine.unknown == 0 && mine.bytes > 1 << 20, "{mine:?}");
}

/// Keys on their way to another master are refused there: the others are weighed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_on_its_way_hides_no_key() {
    let cluster = Cluster::start(Engine::default(), false);
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port());
    let owner = |key: &str| {
        let is_there = |node: &&Redis| node.try_tell(&["SET", key, "x"]).is_ok_and(|answer| answer.trim() == "OK");
        cluster.nodes.iter().find(is_there).unwrap()
    };
    let from = owner("moves{1}");
    let to = cluster.nodes.iter().find(|node| node.port() != from.port()).unwrap();
    let id = |node: &Redis| node.tell(&["CLUSTER", "MYID"]).trim().to_owned();
    let slot = cluster.slot("moves{1}").to_string();
    to.tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
    from.tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    from.tell(&["MIGRATE", "127.0.0.1", &to.port().to_string(), "moves{1}", "0", "5000"]);
    let large: Vec<String> = (0..30).map(|n| format!("large:{n}")).collect();
    for key in &large {
        owner(key).tell(&["SET", key, &"x".repeat(100_000)]);
    }
    let report = look(&url, Route::Scan).await;
    assert_eq!(report.unknown, 1, "{:?}", report.notes);
    let listed =
        |key: &String| report.items.iter().any(|item| item.name == key.as_bytes() && item.bytes > Some(100_000));
    assert!(large.iter().all(listed), "{report:#?}");
    assert!(says(&report, "on their way to another server"), "{:?}", report.notes);
}

/// Part of something larger: it is said that there is more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_said_to_be_one() {
    let replica = planted::server(Engine::default());
    fill(&replica, "a:", 10, 10);
    replica.tell(&["REPLICAOF", "127.0.0.1", "1"]);
    for route in [Route::Auto, Route::Scan] {
        let report = look(&replica.url(), route).await;
        assert!(says(&report, "not in step with its master"), "{:?}", report.notes);
    }
    let cluster = Cluster::start(Engine::default(), false);
    let report = look(&cluster.nodes[0].url(), Route::Scan).await;
    assert!(says(&report, &format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port())), "{:?}", report.notes);
    let all = look(&format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port()), Route::Scan).await;
    assert!(!says(&all, "were not looked at"), "{:?}", all.notes);
}

/// A connection that breaks and a script that runs long cost a look some time, and nothing else; a new run of the server ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_goes_on_after_a_disturbance() {
    let server = Redis::start_with(Setup::default().option("busy-reply-threshold", "200"));
    for part in 0..4 {
        fill(&server, &format!("a{part}:"), 50_000, 10);
    }
    let options = by(Route::Scan);
    let (progress, url) = (options.progress.clone(), server.url());
    let looking = tokio::spawn(async move { big_keys(&RedisOptions::parse(&url).unwrap(), &options).await });
    let begun = || progress.seen().0 > 1_000;
    while !begun() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
    let spin = "local t = redis.call('TIME') local e = t[1] * 1000 + t[2] / 1000 + 1200 \
                repeat t = redis.call('TIME') until t[1] * 1000 + t[2] / 1000 >= e";
    server.tell(&["EVAL", spin, "0"]);
    assert!(!looking.is_finished(), "it was in the middle");
    let report = looking.await.unwrap().unwrap();
    assert_eq!((report.scanned, report.unknown, report.confidence), (200_000, 0, 1.0), "{:?}", report.notes);

    let options = by(Route::Scan);
    let (progress, url) = (options.progress.clone(), server.url());
    let looking = tokio::spawn(async move { big_keys(&RedisOptions::parse(&url).unwrap(), &options).await });
    while progress.seen().0 < 1_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.restart();
    let e = looking.await.unwrap().unwrap_err().to_string();
    assert!(e.contains("look again"), "{e}");
}

/// What was flushed is not listed, and its absence is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_flushed_meanwhile_is_told() {
    let server = planted::server(Engine::default());
    for part in 0..4 {
        fill(&server, &format!("a{part}:"), 50_000, 10);
    }
    let options = by(Route::Scan);
    let (progress, url) = (options.progress.clone(), server.url());
    let looking = tokio::spawn(async move { big_keys(&RedisOptions::parse(&url).unwrap(), &options).await });
    while progress.seen().0 < 1_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.tell(&["FLUSHALL"]);
    let report = looking.await.unwrap().unwrap();
    assert!(report.items.is_empty(), "{:#?}", report.items);
    assert!(says(&report, "flushed meanwhile"), "{:?}", report.notes);
}

/// A field of many MiB among twenty thousand small ones: SCAN does not see it, and sees that there is something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_scan_cannot_weigh_is_told() {
    let server = planted::server(Engine::default());
    fill(&server, "a:", 1_000, 10);
    let fields = "for n = 1, 20000 do redis.call('HSET', 'cart', n, string.rep('y', 40)) end";
    server.tell(&["EVAL", fields, "0"]);
    let report = look(&server.url(), Route::Scan).await;
    assert!(says(&report, "far larger than those") && !says(&report, "larger than it seems"), "{:?}", report.notes);
    server.tell(&["EVAL", "redis.call('HSET', 'cart', 'x', string.rep('y', 30000000))", "0"]);
    let report = look(&server.url(), Route::Scan).await;
    let cart = report.items.iter().find(|key| key.name == b"cart").unwrap();
    // One time in two hundred it is among the elements that are looked at, and then counts for all.
    assert!(says(&report, "larger than it seems") || cart.bytes > Some(100 << 20), "{:?}", report.notes);
    let options = BigKeysOptions { pace: Pace::Fast, ..by(Route::Snapshot) };
    let report = big_keys(&RedisOptions::parse(&server.url()).unwrap(), &options).await.unwrap();
    assert!(report.items[0].name == b"cart" && report.items[0].bytes > Some(30_000_000), "{:#?}", report.items[0]);
}
