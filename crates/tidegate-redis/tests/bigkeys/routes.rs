//! Both routes on real servers, against what the servers say of every key.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate_conformance::servers::{Cluster, Engine, Redis, Setup};
use tidegate_redis::RedisOptions;
use tidegate_redis::bigkeys::{BigKeysOptions, Kind, Pace, Report, Route, big_keys};

use crate::planted::{self, Dice, Many, Told};

/// Sizes that differ by less than this part are of one rank: an estimate cannot tell them apart.
const ALIKE: f64 = 0.15;

fn options(route: Route) -> BigKeysOptions {
    BigKeysOptions { route, pace: Pace::Fast, ..BigKeysOptions::default() }
}

async fn look(url: &str, options: &BigKeysOptions) -> Report {
    big_keys(&RedisOptions::parse(url).unwrap(), options).await.unwrap()
}

/// Every one of the largest is listed; those listed instead of one are as large within what estimates differ by.
fn all_of_the_top(report: &Report, told: &HashMap<Vec<u8>, Told>, top: usize) {
    let mut sizes: Vec<u64> = told.values().map(|told| told.bytes).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let least = sizes[top.min(sizes.len()) - 1] as f64;
    let listed: HashMap<&[u8], _> =
        report.items.iter().filter(|key| key.database == 0).map(|key| (&key.name[..], key)).collect();
    for (name, told) in told.iter().filter(|(_, told)| told.bytes as f64 > least * (1.0 + ALIKE)) {
        let key = listed.get(&name[..]).unwrap_or_else(|| panic!("{} is missing: {told:?}", name.escape_ascii()));
        let bytes = key.bytes.unwrap();
        assert!(
            bytes.abs_diff(told.bytes) as f64 <= told.bytes as f64 * ALIKE,
            "{bytes}: {told:?} {}",
            name.escape_ascii()
        );
        assert_eq!((key.kind.name(), key.elements), (&told.kind[..], Some(told.elements)), "{}", name.escape_ascii());
    }
    for key in listed.values() {
        assert!(told[&key.name].bytes as f64 >= least * (1.0 - ALIKE), "{key:?}");
    }
}

async fn both_routes(engine: Engine) {
    let server = planted::server(engine);
    let mut connection = planted::connect(&server);
    planted::plant(&mut connection, 1_000_000);
    planted::plant_fields_that_expire(&mut connection);
    // O12.
    let large_name = [&b"\0\r\n\xff"[..], &vec![b'n'; (1 << 20) - 4]].concat();
    for (name, length) in [(&b"a\0b\r\n\xff\x1b"[..], 2_000_000), (&large_name, 1_500_000)] {
        redis::cmd("SETRANGE").arg(name).arg(length).arg("x").exec(&mut connection).unwrap();
    }
    let told = planted::told(&mut connection);
    for (route, name) in [(Route::Auto, "snapshot"), (Route::Snapshot, "snapshot"), (Route::Scan, "scan")] {
        let report = look(&server.url(), &options(route)).await;
        assert_eq!(report.route, name, "{:?}", report.notes);
        let keys = told.len() as u64 + 1;
        assert_eq!((report.scanned, report.total, report.confidence), (keys, keys, 1.0), "{name}");
        assert_eq!((report.items.len(), report.unknown), (100, 0));
        assert_eq!(report.fork_pause_ms.is_some(), name == "snapshot");
        let sum: u64 = told.values().map(|told| told.bytes).sum();
        assert!(report.bytes.abs_diff(sum) as f64 <= sum as f64 * ALIKE, "{name}: {} for {sum}", report.bytes);
        all_of_the_top(&report, &told, 100);
        let binary = report.items.iter().find(|key| key.name == b"a\0b\r\n\xff\x1b").unwrap();
        assert_eq!(tidegate_redis::bigkeys::escaped(&binary.name), "a\\x00b\\r\\n\\xff\\x1b");
        assert!(report.items.iter().any(|key| key.name == large_name), "{name}");
        let kinds: u64 = report.kinds.iter().map(|(_, sum)| sum.keys).sum();
        let prefixes: u64 = report.prefixes.iter().map(|(_, sum)| sum.keys).sum();
        assert_eq!((kinds, prefixes), (keys, keys));
    }
    // Nothing of us stays.
    let info: String = redis::cmd("INFO").arg("replication").query(&mut connection).unwrap();
    assert!(info.contains("connected_slaves:0"), "{info}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_routes_find_the_same_on_redis() {
    both_routes(Engine::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_routes_find_the_same_on_redis_7_4() {
    both_routes(Engine::Redis74).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_routes_find_the_same_on_valkey() {
    both_routes(Engine::Valkey).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_routes_find_the_same_on_valkey_9() {
    both_routes(Engine::Valkey9).await;
}

/// A snapshot through TLS, from a user with a password. (The wheels' servers are built without TLS.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_comes_through_tls() {
    let setup = Setup::default().engine(Engine::Redis).tls().user("ann", "word");
    let server = Redis::start_with(setup.option("repl-diskless-sync-delay", "0"));
    let fill = "for n = 1, 5000 do redis.call('SET', 'small:' .. n, string.rep(n, 20)) end \
                for n = 1, 20 do redis.call('SET', 'large:' .. n, string.rep('x', 20000 * n)) end";
    server.tell(&["EVAL", fill, "0"]);
    let named = RedisOptions::parse(&server.url()).unwrap();
    let options_of = |route| BigKeysOptions { top: 20, ..options(route) };
    let trusting = named.clone().authority(server.authority());
    let auto = big_keys(&trusting, &options_of(Route::Auto)).await.unwrap();
    assert!(auto.notes.iter().any(|note| note.contains("it gave a snapshot")), "{:?}", auto.notes);
    let snapshot = big_keys(&trusting, &options_of(Route::Snapshot)).await.unwrap();
    let scan = big_keys(&trusting, &options_of(Route::Scan)).await.unwrap();
    assert_eq!([auto.route, snapshot.route, scan.route], ["snapshot", "snapshot", "scan"]);
    for report in [&auto, &snapshot, &scan] {
        assert_eq!((report.scanned, report.total, report.unknown), (5_020, 5_020, 0));
        assert!(
            report.items.len() == 20 && report.items.iter().all(|key| key.name.starts_with(b"large:")),
            "{report:?}"
        );
        assert!(
            report.bytes.abs_diff(scan.bytes) as f64 <= scan.bytes as f64 * 0.05,
            "{} {}",
            report.bytes,
            scan.bytes
        );
    }
    let info = server.tell(&["INFO", "replication"]);
    assert!(info.contains("connected_slaves:0"), "{info}");
    // Whoever does not trust the server asks it nothing, by no route.
    for route in [Route::Auto, Route::Snapshot] {
        let e = big_keys(&named, &options_of(route)).await.unwrap_err();
        assert!(e.to_string().contains("does not answer"), "{e}");
    }
}

/// A server whose snapshot is refused is looked at by SCAN, and that is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_have_a_snapshot_scans() {
    let server = planted::server(Engine::default());
    server.tell(&["SET", "large", &"x".repeat(10_000)]);
    server.tell(&["ACL", "SETUSER", "scanner", "on", ">word", "~*", "+@all", "-psync", "-sync", "-replconf"]);
    let url = format!("redis://scanner:word@127.0.0.1:{}", server.port());
    let report = look(&url, &options(Route::Auto)).await;
    assert_eq!((report.route, report.scanned), ("scan", 1));
    assert!(
        report.notes.iter().any(|note| note.contains("no snapshot, so SCAN") && note.contains("NOPERM")),
        "{:?}",
        report.notes
    );
    let e = big_keys(&RedisOptions::parse(&url).unwrap(), &options(Route::Snapshot)).await.unwrap_err();
    assert!(e.to_string().contains("--route scan"), "{e}");
    // O11: what is not permitted is not known, and the rest is there.
    server.tell(&["ACL", "SETUSER", "scanner", "-@all", "+info", "+scan"]);
    let report = look(&url, &options(Route::Auto)).await;
    assert_eq!((report.scanned, report.total, report.unknown), (1, 1, 1));
    let (key, (kind, sum)) = (&report.items[0], report.kinds[0]);
    assert_eq!((key.bytes, key.delete_blocks_ms(), kind, sum.known_bytes()), (None, None, Kind::Unknown, None));
    assert_eq!((report.known_bytes(), report.prefixes[0].1.known_bytes()), (None, None));
    for what in ["MEMORY USAGE is not permitted", "TYPE is not permitted"] {
        assert!(report.notes.iter().any(|note| note.contains(what)), "{:?}", report.notes);
    }
    // Where it may not go is left out, and that is said.
    server.tell(&["EVAL", "redis.call('SELECT', 4) return redis.call('MSET', 'a', '1', 'b', '2')", "0"]);
    let report = look(&url, &options(Route::Auto)).await;
    assert_eq!((report.scanned, report.total), (1, 3));
    let told = "SELECT is not permitted: database 4 with its 2 keys was not looked at";
    assert!(report.notes.iter().any(|note| note.contains(told)), "{:?}", report.notes);
    // Without SCAN there is nothing: that is no silence, and it is said what is missing.
    server.tell(&["ACL", "SETUSER", "scanner", "-scan"]);
    let e = big_keys(&RedisOptions::parse(&url).unwrap(), &options(Route::Scan)).await.unwrap_err();
    assert!(e.to_string().contains("does not permit") && e.to_string().contains("scan"), "{e}");
    assert_eq!(e.kind(), tidegate_backend::ErrorKind::Configuration);
    let e = tidegate_redis::bigkeys::allow(&[RedisOptions::parse(&url).unwrap()], Route::KeySizes).await.unwrap_err();
    assert!(e.to_string().contains("no INFO keysizes"), "{e}");
}

/// A key whose time is over is counted until somebody meets it, and no step of SCAN names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_step_without_keys_is_no_failure() {
    let setup = Setup::default().engine(Engine::Redis).option("enable-debug-command", "yes");
    let server = Redis::start_with(setup);
    server.tell(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    server.tell(&["SET", "gone", "x", "PX", "1"]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let report = look(&server.url(), &options(Route::Scan)).await;
    assert_eq!((report.route, report.scanned, report.total, report.items.len()), ("scan", 0, 1, 0));
}

/// The replica gives the snapshot, and its master does not fork for us.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_asked_first() {
    let master = planted::server(Engine::default());
    master.tell(&["SET", "large", &"x".repeat(10_000)]);
    let setup = Setup::default().engine(Engine::default()).option("repl-diskless-sync-delay", "0");
    let port = master.port().to_string();
    let replica = Redis::start_with(setup.option("replicaof", &format!("127.0.0.1 {port}")));
    let began = Instant::now();
    let is_up = |server: &Redis, what: &str| server.tell(&["INFO", "replication"]).contains(what);
    while !is_up(&master, "state=online") || !is_up(&replica, "master_link_status:up") {
        assert!(began.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let forks =
        || master.tell(&["INFO", "stats"]).lines().find(|line| line.starts_with("total_forks:")).map(str::to_owned);
    let before = forks();
    let report = look(&master.url(), &options(Route::Auto)).await;
    assert_eq!((report.route, report.scanned, &report.items[0].name[..]), ("snapshot", 1, &b"large"[..]));
    assert!(report.notes.iter().any(|note| note.contains("its replica")), "{:?}", report.notes);
    assert_eq!(forks(), before);
    drop(replica);
}

/// Every master of a Cluster, with sums by slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_master_of_a_cluster() {
    let cluster = Cluster::start(Engine::default(), false);
    let client = redis::cluster::ClusterClient::new(
        cluster
            .url()
            .replace("redis-cluster://", "")
            .split(',')
            .map(|host| format!("redis://{host}"))
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let mut connection = client.get_connection().unwrap();
    for n in 0..300 {
        redis::cmd("SET").arg(format!("key:{n}")).arg("x".repeat(n)).exec(&mut connection).unwrap();
    }
    redis::cmd("SET").arg("{key:7}:large").arg("x".repeat(100_000)).exec(&mut connection).unwrap();
    let slot = cluster.slot("key:7");
    for (route, name) in [(Route::Auto, "snapshot"), (Route::Scan, "scan")] {
        let report = look(&cluster.url(), &options(route)).await;
        assert_eq!((report.route, report.scanned, report.total), (name, 301, 301), "{:?}", report.notes);
        assert_eq!(&report.items[0].name[..], b"{key:7}:large");
        assert_eq!((report.slots[0].0, report.slots[0].1.keys), (slot, 2));
    }
}

/// Many small keys and some large ones: all are seen, the others are served meanwhile, and SCAN keeps to its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_ones_among_many() {
    let long = std::env::var_os("TIDEGATE_TEST_LONG").is_some();
    let keys: u64 = if long { 500_000 } else { 60_000 };
    let server = planted::server(Engine::default());
    let mut connection = planted::connect(&server);
    let mut dice = Dice::new(9);
    let mut many = Many::new(&mut connection);
    for n in 0..keys {
        let mut command = redis::cmd("HSET");
        command.arg(format!("user:{n}")).arg("name").arg(dice.text(12)).arg("visits").arg(n);
        many.send(&command);
    }
    for n in 0..50_u64 {
        for part in 0..=n {
            let mut command = redis::cmd("RPUSH");
            command.arg(format!("log:{n}")).arg(dice.text(5_000 + part));
            many.send(&command);
        }
    }
    many.flush();
    let fast = look(&server.url(), &BigKeysOptions { top: 20, ..options(Route::Auto) }).await;
    assert_eq!((fast.route, fast.scanned), ("snapshot", keys + 50));
    let names = |report: &Report| report.items.iter().map(|key| key.name.clone()).collect::<Vec<_>>();
    let want: Vec<_> = (30..50).rev().map(|n| format!("log:{n}").into_bytes()).collect();
    assert_eq!(names(&fast), want);
    let slow =
        look(&server.url(), &BigKeysOptions { top: 20, deadline: Duration::from_secs(60), ..options(Route::Scan) })
            .await;
    assert!(slow.scanned >= keys + 50 && slow.confidence == 1.0, "{slow:?}");
    assert_eq!(names(&slow), want);
    let off = fast.bytes.abs_diff(slow.bytes) as f64 / slow.bytes as f64;
    assert!(off < 0.05, "{} {}", fast.bytes, slow.bytes);
    let began = Instant::now();
    let cut = BigKeysOptions { deadline: Duration::from_millis(50), pace: Pace::Gentle, ..options(Route::Scan) };
    let cut = look(&server.url(), &cut).await;
    assert!(cut.confidence < 1.0 && cut.scanned < keys && began.elapsed() < Duration::from_secs(5), "{cut:?}");
    assert!(cut.notes.iter().any(|note| note.contains("--deadline")), "{:?}", cut.notes);
    println!(
        "{keys} keys: {} ms and {} ms",
        fast.finished_at.since(fast.started_at),
        slow.finished_at.since(slow.started_at)
    );
}
