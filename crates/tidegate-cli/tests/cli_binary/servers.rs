//! Ledgers on database servers: several processes beside each other, the tools beside them, workers of their own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tidegate_conformance::servers::{Cluster, Engine, MariaDb, Postgres, Redis, Sentinel};

use crate::support::{Serve, command, folder, run, write};

/// A process that has printed its line.
struct Node {
    child: Child,
    line: String,
    out: BufReader<std::process::ChildStdout>,
}

impl Node {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        Self { child, line: line.trim_end().to_owned(), out }
    }

    /// SIGTERM; its exit code, how long it took, what else it printed.
    fn stop(mut self) -> (Option<i32>, Duration, String) {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the process is there");
        let status = self.child.wait().expect("it can be waited for");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("the pipe can be read");
        (status.code(), began.elapsed(), rest)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already in most tests.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place(serve: &Serve, id: &str, hold_seconds: i64) -> (u16, Value) {
    let lines = json!([{ "sku": "mug", "quantity": 1 }]);
    let order = json!({ "order_id": id, "buyer_id": "b", "lines": lines, "hold_seconds": hold_seconds });
    serve.call("POST", "/v1/orders", None, Some(&order))
}

fn status(serve: &Serve, id: &str) -> Value {
    serve.call("GET", &format!("/v1/orders/{id}"), None, None).1["status"].clone()
}

#[track_caller]
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two servers with a manual clock on these stores: an order placed at one lives and ends on both.
fn an_order_on_two_nodes(ledger: &str, store: &str) {
    let dir = folder();
    let stores = ["--ledger", ledger, "--store", store];
    let node = || Serve::start(dir.path(), &[&stores[..], &["--manual-clock"]].concat());
    let (a, b) = (node(), node());
    assert_eq!(a.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 5 }))).0, 201);
    assert_eq!(place(&a, "unpaid", 60).0, 201);
    assert_eq!(place(&b, "paid", 60).0, 201);
    assert_eq!(place(&b, "unpaid", 60).0, 200, "the other node knows it");
    let (code, paid) = a.call("POST", "/v1/orders/paid/payments", None, Some(&json!({ "payment_id": "p" })));
    assert_eq!((code, &paid["outcome"]), (200, &json!("applied")));
    let advance = |serve: &Serve, ms: i64| {
        let (code, answer) = serve.call("POST", "/v1/admin/clock", None, Some(&json!({ "advance_ms": ms })));
        assert_eq!(code, 200, "{answer}");
    };
    advance(&b, 59_999);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(status(&a, "unpaid"), "pending", "never early");
    advance(&a, 1);
    wait_until("the clock ends it", || status(&b, "unpaid") == "cancelled");
    assert_eq!(status(&a, "paid"), "paid");
    let sku = b.call("GET", "/v1/skus/mug", None, None).1;
    assert_eq!((&sku["available"], &sku["held"], &sku["sold"]), (&json!(4), &json!(0), &json!(1)), "{sku}");
    let events = a.call("GET", "/v1/orders/unpaid/events", None, None).1;
    assert_eq!(events["items"].as_array().map(Vec::len), Some(2), "{events}");

    // The tools look at the ledger beside the servers.
    let report = run(&[&["reconcile", "--json"][..], &stores].concat()).expect(0, &[]).json();
    assert!(report["findings"] == json!([]) && report["checked"].as_u64() > Some(0), "{report}");
    let clock = run(&["clock", "show", "--json", "--ledger", ledger]).expect(0, &[]).json();
    assert_eq!(clock["manual"], true, "{clock}");
    let orders = run(&["export", "orders", "--format", "ndjson", "--ledger", ledger]).expect(0, &[]).out;
    assert_eq!(orders.lines().count(), 2, "{orders}");
    let skus = write(dir.path(), "skus.csv", "sku,on_hand\npot,3\n");
    run(&[&["import-skus", skus.to_str().expect("UTF-8")][..], &stores].concat()).expect(0, &[]);
    assert_eq!(a.call("GET", "/v1/skus/pot", None, None).1["available"], 3, "a server sees what a tool wrote");
    for serve in [a, b] {
        assert_eq!(serve.call("POST", "/v1/admin/reconcile", None, Some(&json!({}))).1["findings"], json!([]));
        assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    }
    let refused = run(&[&["serve", "--listen", "127.0.0.1:0"][..], &stores].concat());
    refused.expect(2, &["manual clock", "--manual-clock"]);
}

#[test]
fn an_order_on_two_nodes_of_mariadb_and_redis() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    an_order_on_two_nodes(&mariadb.database(), &redis.url());
}

#[test]
fn an_order_on_two_nodes_of_postgres_and_redis() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    an_order_on_two_nodes(&postgres.database(), &redis.url());
}

#[test]
fn an_order_on_two_nodes_of_postgres_and_a_cluster() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::Redis, false));
    an_order_on_two_nodes(&postgres.database(), &cluster.url());
}

#[test]
fn an_order_on_two_nodes_of_mariadb_without_a_store() {
    let mariadb = MariaDb::start();
    an_order_on_two_nodes(&mariadb.database(), "embedded");
}

#[test]
fn a_worker_ends_the_orders_of_servers_without_workers() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let (ledger, store) = (postgres.database(), redis.url());
    let dir = folder();
    let serve = Serve::start(dir.path(), &["--ledger", &ledger, "--store", &store, "--no-workers"]);
    assert_eq!(serve.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 5 }))).0, 201);
    assert_eq!(place(&serve, "early", 1).0, 201);
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(status(&serve, "early"), "pending", "nobody is there to end it");
    let worker = Node::start(&["worker", "--ledger", &ledger, "--store", &store, "--listen", "127.0.0.1:0"]);
    let url = worker.line.split_once(" worker ready, listening on ").map(|(_, url)| url.to_owned());
    let url = url.unwrap_or_else(|| panic!("{:?}", worker.line));
    wait_until("the worker ends it", || status(&serve, "early") == "cancelled");
    assert_eq!(place(&serve, "later", 1).0, 201);
    wait_until("the worker ends the next", || status(&serve, "later") == "cancelled");
    let get = |path: &str| {
        let reply = ureq::get(format!("{url}{path}")).config().http_status_as_error(false).build().call();
        reply.map(|reply| reply.status().as_u16()).expect("an answer")
    };
    assert_eq!(["/healthz", "/readyz", "/metrics"].map(&get), [200, 200, 200]);
    assert_eq!(["/v1/orders", "/", "/openapi.json"].map(&get), [404, 404, 404], "it is no server");
    let (code, took, rest) = worker.stop();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(took < Duration::from_secs(10), "{took:?}");

    let silent = Node::start(&["worker", "--ledger", &ledger, "--store", &store]);
    assert!(silent.line.ends_with(" worker ready"), "{:?}", silent.line);
    assert_eq!(silent.stop().0, Some(0));
}

#[test]
fn a_start_without_redis_warns_and_says_when_it_is_back() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    redis.kill();
    let dir = folder();
    let serve = Serve::start(dir.path(), &["--ledger", &mariadb.database(), "--store", &redis.url()]);
    let log = || std::fs::read_to_string(dir.path().join("serve.log")).expect("a log");
    let warned = log().lines().any(|line| line.contains("WARN") && line.contains("Redis cannot be used yet"));
    assert!(warned, "{}", log());
    redis.restart();
    wait_until("it says so", || log().contains("Redis can be used again"));
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_node_that_divides_the_index_in_another_way_is_refused() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    let (ledger, store) = (mariadb.database(), redis.url());
    let dir = folder();
    let other = write(dir.path(), "t.toml", "[redis]\npartitions = 5\n");
    let stores = ["--ledger", &ledger, "--store", &store];
    let other = [&stores[..], &["--config", other.to_str().expect("UTF-8")]].concat();
    let serve = Serve::start(dir.path(), &stores);
    let words = ["into 16 partitions", "`[redis] partitions`", "stop every node"];
    run(&[&["serve", "--listen", "127.0.0.1:0"], &other[..]].concat()).expect(2, &words);
    run(&[&["worker"], &other[..]].concat()).expect(2, &words);
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    let serve = Serve::start(dir.path(), &other);
    wait_until("ready, with its index filled", || serve.call("GET", "/readyz", None, None).1["status"] == "ready");
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
}

/// The tools make no ledger of a database that is none. `sql` asks the database of a URL.
fn the_tools_leave_what_is_no_ledger_alone(empty: &str, foreign: &str, sql: impl Fn(&str, &str) -> String) {
    sql(foreign, "CREATE TABLE meta (a INTEGER); INSERT INTO meta VALUES (1)");
    let dir = folder();
    let schema = "CASE WHEN table_schema IN ('pg_catalog', 'information_schema') THEN 0 ELSE 1 END";
    let own = |url: &str| {
        let name = url.rsplit_once('/').map_or(url, |(_, name)| name);
        let place = format!("(table_schema = '{name}' OR (table_catalog = '{name}' AND {schema} = 1))");
        sql(url, &format!("SELECT count(*) FROM information_schema.tables WHERE {place}")).trim().to_owned()
    };
    for (url, tables) in [(empty, "0"), (foreign, "1")] {
        assert_eq!(own(url), tables, "before");
        for tool in [&["reconcile"][..], &["export", "orders"], &["export", "skus"], &["clock", "show"]] {
            let ran = run(&[tool, &["--ledger", url]].concat()).expect(2, &["no Tidegate ledger"]);
            assert_eq!(ran.out, "", "{tool:?}");
        }
        assert_eq!(own(url), tables, "after");
    }
    assert_eq!(sql(foreign, "SELECT a FROM meta").trim(), "1");
    // What makes a ledger on purpose still does.
    let skus = write(dir.path(), "skus.csv", "sku,on_hand\npot,3\n");
    run(&["import-skus", skus.to_str().expect("UTF-8"), "--ledger", empty]).expect(0, &[]);
    run(&["reconcile", "--ledger", empty]).expect(0, &[]);
}

#[test]
fn the_tools_leave_what_is_no_ledger_on_mariadb_alone() {
    let mariadb = MariaDb::start();
    let name = |url: &str| url.rsplit_once('/').map_or(String::new(), |(_, name)| name.to_owned());
    let sql = |url: &str, sql: &str| mariadb.sql(&name(url), sql);
    the_tools_leave_what_is_no_ledger_alone(&mariadb.database(), &mariadb.database(), sql);
}

#[test]
fn the_tools_leave_what_is_no_ledger_on_postgres_alone() {
    let postgres = Postgres::start();
    let name = |url: &str| url.rsplit_once('/').map_or(String::new(), |(_, name)| name.to_owned());
    let sql = |url: &str, sql: &str| postgres.sql(&name(url), sql);
    the_tools_leave_what_is_no_ledger_alone(&postgres.database(), &postgres.database(), sql);
}

#[test]
fn an_idle_node_asks_redis_eleven_times_a_second_at_most() {
    const SECONDS: u64 = 6;
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let dir = folder();
    let serve = Serve::start(dir.path(), &["--ledger", &postgres.database(), "--store", &redis.url()]);
    assert_eq!(serve.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 5 }))).0, 201);
    assert_eq!(place(&serve, "later", 3_600).0, 201);
    std::thread::sleep(Duration::from_secs(2));
    redis.tell(&["CONFIG", "RESETSTAT"]);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let stats = redis.tell(&["INFO", "commandstats"]);
    // Four for the index and the link between nodes, six for the cache: to hear, to beat, to read the clock, to know which server
    // it is; one every two seconds for the feed. What scripts call inside is no round trip; these no script calls.
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let own = ["evalsha", "eval", "ping", "publish", "subscribe", "set", "config|get", "xread"];
    let trips: u64 = own.map(calls).iter().sum();
    assert!(calls("evalsha") > SECONDS, "it beats and looks: {stats}");
    assert!(trips <= 11 * SECONDS, "{trips} round trips in {SECONDS} s: {stats}");
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_redis_that_evicts_is_refused_and_one_with_tls_and_an_authority_of_its_own_taken() {
    use tidegate_conformance::servers::Setup;
    let postgres = Postgres::start();
    let ledger = postgres.database();
    let serve = |store: &str| run(&["serve", "--listen", "127.0.0.1:0", "--ledger", &ledger, "--store", store]);
    let evicting = Redis::start_with(Setup::default().option("maxmemory-policy", "allkeys-lru"));
    serve(&evicting.url()).expect(2, &["maxmemory-policy", "noeviction"]);
    let tls = Redis::start_with(Setup::default().tls());
    let dir = folder();
    let authority = dir.path().join("ca.pem");
    std::fs::write(&authority, tls.authority()).expect("the folder can be written");
    let trusting = write(dir.path(), "t.toml", &format!("[redis]\nca_file = \"{}\"\n", authority.display()));
    let stores = ["--ledger", &ledger, "--store", &tls.url(), "--config", trusting.to_str().expect("UTF-8")];
    let serve_tls = Serve::start(dir.path(), &stores);
    wait_until("ready, with its index filled", || serve_tls.call("GET", "/readyz", None, None).1["status"] == "ready");
    assert_eq!(serve_tls.stop(Signal::TERM).0, Some(0));
    let locked = Redis::start_with(Setup::default().user("shop", "s3cret"));
    let refused = serve(&format!("redis://shop:wr0ng@127.0.0.1:{}", locked.port())).expect(2, &[]);
    assert!(!refused.err.contains("wr0ng"), "{refused:?}");
}

/// Nodes with nothing to do end at once: no request is under way, and nothing waits for a store.
fn an_idle_node_stops_at_once(ledger: &str, store: &str) {
    let dir = folder();
    let stores = ["--ledger", ledger, "--store", store];
    for wait in [0, 120, 1_300] {
        let serve = Serve::start(dir.path(), &stores);
        let worker = Node::start(&[&["worker"][..], &stores].concat());
        std::thread::sleep(Duration::from_millis(wait));
        let ((code, took, _), (worker_code, worker_took, _)) = (serve.stop(Signal::TERM), worker.stop());
        assert_eq!((code, worker_code), (Some(0), Some(0)));
        assert!(took.max(worker_took) < Duration::from_secs(1), "{took:?}, {worker_took:?}");
    }
}

#[test]
fn an_idle_node_of_mariadb_and_redis_stops_at_once() {
    let (mariadb, redis) = (MariaDb::start(), Redis::start());
    an_idle_node_stops_at_once(&mariadb.database(), &redis.url());
}

#[test]
fn an_idle_node_of_postgres_and_a_cluster_stops_at_once() {
    let (postgres, cluster) = (Postgres::start(), Cluster::start(Engine::Redis, false));
    an_idle_node_stops_at_once(&postgres.database(), &cluster.url());
}

#[test]
fn an_idle_node_of_postgres_and_sentinels_stops_at_once() {
    let (postgres, sentinel) = (Postgres::start(), Sentinel::start(Engine::Redis));
    an_idle_node_stops_at_once(&postgres.database(), &sentinel.url());
}

#[test]
fn a_comparison_that_could_not_be_made_is_no_success() {
    let (postgres, redis) = (Postgres::start(), Redis::start());
    let (ledger, store) = (postgres.database(), redis.url());
    let dir = folder();
    let serve = Serve::start(dir.path(), &["--ledger", &ledger, "--store", &store]);
    assert_eq!(serve.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 5 }))).0, 201);
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    let reconcile = ["reconcile", "--ledger", &ledger, "--store", &store];
    let whole = run(&reconcile).expect(0, &[]).out;
    assert!(whole.contains("I9, which is the comparison just made"), "{whole}");
    redis.tell(&["SET", "{tg:shop:d3}:due", "x"]);
    let in_part = run(&reconcile).expect(1, &["not all of it", "{tg:shop:d3}:due", "WRONGTYPE"]).out;
    assert!(!in_part.contains("just made") && in_part.contains("could not be compared"), "{in_part}");
    redis.kill();
    let none = run(&reconcile).expect(3, &["the deadline index was not compared", "Redis cannot be reached"]).out;
    assert!(!none.contains("just made") && none.contains("could not be compared"), "{none}");
}
