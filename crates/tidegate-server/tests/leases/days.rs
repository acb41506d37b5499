//! Bad days over HTTP: the store of queues and locks is away while orders go on, it is a Cluster, a Valkey, behind a failover;
//! clients are killed. And the orders' own queue, which can be looked at.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_conformance::servers::{Cluster, Engine, Redis, Sentinel, Setup};

use crate::client::Api;
use crate::shared::{server, server_at};

const SECOND: Duration = Duration::from_secs(1);

async fn until(what: &str, mut ready: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !ready().await {
        assert!(began.elapsed() < 20 * SECOND, "{what}: not within 20 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}

async fn put(api: &Api, path: &str, body: Value) -> u16 {
    api.send("PUT", &format!("/v1/queues/{path}"), body).await.status
}

#[tokio::test]
async fn the_orders_have_a_queue_that_can_be_read() {
    let api = Api::leasing().await;
    let empty = api.get("/v1/queues/orders").await.json();
    let numbers = |pending: u64| json!({"queue": "orders", "pending": pending, "due": 0, "leased": 0, "dead": 0, "oldest_due_at": null, "lag_ms": 0});
    assert_eq!(empty, numbers(0));
    api.sku("shirt", 10).await;
    for id in ["o1", "o2", "o3"] {
        assert_eq!(api.place(id, "shirt", 1).await.status, 201);
    }
    assert_eq!(api.get("/v1/queues/orders").await.json(), numbers(3));
    assert_eq!(api.raw("POST", "/v1/orders/o1/cancel", &[], b"").await.status, 200);
    until("its deadline is gone", async || api.get("/v1/queues/orders").await.json() == numbers(2)).await;

    // In the list it has its place among the others, on whichever page that is.
    for queue in ["a", "orderly", "orders-2", "z"] {
        assert_eq!(put(&api, &format!("{queue}/tasks/t"), json!({"delay_ms": 60_000})).await, 201);
    }
    for limit in 1..=6 {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = api.get(&format!("/v1/queues?limit={limit}{cursor}")).await.json();
            let items = page["items"].as_array().expect("items").clone();
            assert!(items.len() <= limit);
            seen.extend(items.iter().map(|item| item["queue"].as_str().expect("a name").to_owned()));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ["a", "orderly", "orders", "orders-2", "z"], "pages of {limit}");
    }

    // Deadlines are no tasks.
    for path in ["tasks", "tasks/o2", "dead", "tasks?state=leased"] {
        let reply = api.get(&format!("/v1/queues/orders/{path}")).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "unknown-queue"), "{path}");
        assert!(reply.json()["detail"].as_str().expect("a detail").contains("/v1/parked"), "{path}");
    }
    assert_eq!(api.get("/v1/queues/tidegate.feed").await.code(), "unknown-queue");
    api.stop().await;

    // It is there whether or not there is a store for other queues.
    let api = Api::start().await;
    assert_eq!(api.get("/v1/queues/orders").await.json(), numbers(0));
    api.stop().await;
}

#[tokio::test]
async fn orders_go_on_while_only_the_store_of_queues_is_away() {
    let _ = tidegate_server::install_metrics();
    let redis = Redis::start();
    let api = server(&redis).await;
    api.sku("shirt", 10).await;
    let ready = async || api.get("/readyz").await;
    assert_eq!(ready().await.json(), json!({"status": "ready", "reasons": []}));
    let gauge = async |reason: &str| {
        let page = String::from_utf8_lossy(&api.get("/metrics").await.body).into_owned();
        let name = format!("tidegate_degraded{{reason=\"{reason}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned))
    };
    until("the gauges are there", async || gauge("queues-unavailable").await.as_deref() == Some("0")).await;

    let mut waits = api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 2_500})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    redis.freeze();
    for n in 0..3 {
        let began = Instant::now();
        assert_eq!(api.place(&format!("o{n}"), "shirt", 1).await.status, 201);
        assert!(began.elapsed() < SECOND, "an order waits for nothing of it");
        assert_eq!(api.get("/v1/queues/q").await.code(), "store-unavailable");
    }
    until("it says so", async || ready().await.json()["status"] == "degraded").await;
    let told = ready().await;
    assert_eq!(told.status, 200, "orders are taken: {told:?}");
    let reasons = told.json()["reasons"].as_array().expect("reasons").clone();
    let begins = |word: &str| reasons.iter().any(|reason| reason.as_str().expect("text").starts_with(word));
    assert!(reasons.len() == 2 && begins("queues-unavailable: ") && begins("locks-unavailable: "), "{reasons:?}");
    for reason in ["queues-unavailable", "locks-unavailable"] {
        until("the gauge says so", async || gauge(reason).await.as_deref() == Some("1")).await;
    }
    assert_eq!(gauge("store-unavailable").await.as_deref(), Some("0"), "the orders' own index is well");
    let paid = json!({"payment_id": "p0", "captured_at": "2026-11-29T16:08:10+01:00"});
    let paid = api.send("POST", "/v1/orders/o0/payments", paid).await;
    assert!(paid.status < 300, "{paid:?}");
    assert_eq!(api.get("/v1/queues/orders").await.json()["pending"], 2);

    // Nobody waits any more who could find out that it is well again.
    assert_eq!(crate::client::read_one(&mut waits).await.code(), "store-unavailable");
    redis.thaw();
    let back = until("all is well", async || ready().await.json()["status"] == "ready").await;
    assert!(back < 3 * SECOND, "{back:?}");
    assert_eq!(put(&api, "q/tasks/t", json!({"delay_ms": 0})).await, 201);
    api.stop().await;
}

/// A task and a lock from their beginning to their end, on whichever server has their slots.
async fn queues_and_locks(api: &Api, names: std::ops::Range<u32>) {
    for n in names {
        let (queue, lock) = (format!("/v1/queues/q{n}"), format!("/v1/locks/l{n}"));
        let body = json!({"tasks": [{"id": "a", "delay_ms": 0, "payload": n}, {"id": "b", "delay_ms": 3_600_000}]});
        let put = api.send("POST", &format!("{queue}/tasks:batch"), body).await;
        assert_eq!((put.status, &put.json()["results"][1]["status"]), (200, &json!(201)), "{put:?}");
        let claimed = api.send("POST", &format!("{queue}/claim"), json!({"max": 9, "wait_ms": 1_000})).await.json();
        let task = &claimed["tasks"][0];
        assert_eq!((&task["id"], &task["payload"], &task["attempt"]), (&json!("a"), &json!(n), &json!(1)));
        let items = json!({"items": [{"id": "a", "receipt": task["receipt"]}]});
        for (verb, result) in [("release", "ok"), ("ack", "lost")] {
            let settled = api.send("POST", &format!("{queue}/{verb}"), items.clone()).await.json();
            assert_eq!(settled["results"][0]["result"], result, "{verb}");
        }
        let numbers = api.get(&queue).await.json();
        assert_eq!((&numbers["pending"], &numbers["due"], &numbers["leased"]), (&json!(2), &json!(1), &json!(0)));
        assert_eq!(api.get(&format!("{queue}/tasks")).await.json()["items"].as_array().expect("items").len(), 2);
        assert_eq!(api.raw("DELETE", &format!("{queue}/tasks/b"), &[], b"").await.status, 204);

        let held = api.send("POST", &lock, json!({"ttl_ms": 30_000})).await;
        assert_eq!(held.status, 201, "{held:?}");
        let token = held.json()["token"].as_str().expect("a token").to_owned();
        assert_eq!(api.send("POST", &lock, json!({"ttl_ms": 30_000})).await.code(), "lock-held");
        let renewal = [("content-type", "application/json"), ("lock-token", token.as_str())];
        assert_eq!(api.raw("PUT", &lock, &renewal, br#"{"ttl_ms": 30000}"#).await.status, 200);
        assert_eq!(api.raw("DELETE", &lock, &[("lock-token", &token)], b"").await.status, 204);
        assert_eq!(api.get(&lock).await.json()["held"], false);
    }
}

#[tokio::test]
async fn on_a_cluster() {
    let cluster = Cluster::start(Engine::default(), false);
    let (one, two) = (server_at(&cluster.url()).await, server_at(&cluster.url()).await);
    queues_and_locks(&one, 0..6).await;
    queues_and_locks(&two, 6..9).await;
    let names = two.get("/v1/queues").await.json();
    assert_eq!(names["items"].as_array().expect("items").len(), 10, "nine, and that of the orders: {names}");
    // Whoever waits at one server is woken by the other.
    let mut waiter = two.begin("POST", "/v1/queues/q0/claim", &[], &json!({"wait_ms": 20_000, "max": 5})).await;
    let first = crate::client::read_one(&mut waiter).await.json();
    assert_eq!(first["tasks"][0]["id"], "a");
    let mut waiter = two.begin("POST", "/v1/queues/q0/claim", &[], &json!({"wait_ms": 20_000})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    assert_eq!(put(&one, "q0/tasks/new", json!({"delay_ms": 0})).await, 201);
    assert_eq!(crate::client::read_one(&mut waiter).await.json()["tasks"][0]["id"], "new");
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn on_valkey() {
    let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
    let api = server(&valkey).await;
    queues_and_locks(&api, 0..2).await;
    api.stop().await;
}

#[tokio::test]
async fn after_a_failover() {
    let sentinel = Sentinel::start(Engine::default());
    let api = server_at(&sentinel.url()).await;
    queues_and_locks(&api, 0..1).await;
    assert_eq!(put(&api, "kept/tasks/t", json!({"delay_ms": 0, "payload": "x"})).await, 201);
    let held =
        api.send("POST", "/v1/queues/kept/claim", json!({"lease_ms": 3_600_000})).await.json()["tasks"][0].clone();
    let lock = api.send("POST", "/v1/locks/kept", json!({"ttl_ms": 60_000})).await.json();
    sentinel.servers[0].tell(&["WAIT", "1", "5000"]);
    let old = sentinel.master_port();
    sentinel.servers[0].kill();
    until("another is the master", async || sentinel.master_port() != old).await;
    let back = until("it is used", async || api.get("/readyz").await.json()["status"] == "ready").await;
    assert!(back < 5 * SECOND, "{back:?}");
    until("it takes writes", async || put(&api, "q/tasks/t", json!({"delay_ms": 0})).await < 300).await;
    // What was acknowledged and copied is there: the lease under its receipt, the lock under its fence.
    let there = api.get("/v1/queues/kept/tasks/t").await.json();
    assert_eq!((&there["state"], &there["payload"]), (&json!("leased"), &json!("x")));
    let items = json!({"items": [{"id": "t", "receipt": held["receipt"]}]});
    assert_eq!(api.send("POST", "/v1/queues/kept/ack", items).await.json()["results"][0]["result"], "ok");
    let token = lock["token"].as_str().expect("a token");
    assert_eq!(api.get("/v1/locks/kept").await.json()["fence"], lock["fence"]);
    assert_eq!(api.raw("DELETE", "/v1/locks/kept", &[("lock-token", token)], b"").await.status, 204);
    queues_and_locks(&api, 10..12).await;
    api.stop().await;
}

/// What [`client`] is to do: address and body of its claim.
const CLAIMER: &str = "TIDEGATE_HTTP_CLAIMER";

/// A process that claims, says what it got, and then does nothing.
#[test]
#[ignore = "a process of other tests"]
fn client() {
    let Ok(order) = std::env::var(CLAIMER) else { return };
    let (address, body) = order.split_once(' ').expect("address and body");
    let mut connection = std::net::TcpStream::connect(address).expect("a connection");
    let head = "POST /v1/queues/q/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    write!(connection, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("sent");
    let mut bytes = [0; 16 << 10];
    let read = connection.read(&mut bytes).expect("an answer");
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes[..read]).and_then(|()| out.flush()).expect("told");
    std::thread::sleep(600 * SECOND);
}

struct Client(std::process::Child);

impl Client {
    fn start(api: &Api, body: &Value) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["days::client", "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(CLAIMER, format!("{} {body}", api.address)).env_remove("NEXTEST");
        command.env_remove("NEXTEST_EXECUTION_MODE");
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a process"))
    }

    /// What it was answered.
    fn answer(&mut self) -> Value {
        let out = self.0.stdout.as_mut().expect("its output");
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        loop {
            let read = out.read(&mut piece).expect("its output");
            assert!(read > 0, "it ended: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..read]));
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if let Some(json) = body.and_then(|body| serde_json::from_str(body).ok()) {
                return json;
            }
        }
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn a_killed_client(api: Api) {
    // Killed with tasks in its hands: they come again within one lease, its receipts are worthless.
    for id in ["a", "b"] {
        assert_eq!(put(&api, &format!("q/tasks/{id}"), json!({"delay_ms": 0})).await, 201);
    }
    let mut client = Client::start(&api, &json!({"max": 2, "lease_ms": 1_000}));
    let held = tokio::task::block_in_place(|| client.answer());
    client.kill();
    let killed = Instant::now();
    let mut again = Vec::new();
    while again.len() < 2 {
        let body = json!({"max": 2, "lease_ms": 60_000, "wait_ms": 5_000});
        let some = api.send("POST", "/v1/queues/q/claim", body).await.json();
        again.extend(some["tasks"].as_array().expect("tasks").clone());
    }
    assert!(killed.elapsed() < SECOND * 2, "{:?}", killed.elapsed());
    assert!(again.iter().all(|task| task["attempt"] == 2), "{again:?}");
    let items = |tasks: &[Value]| json!({"items": tasks.iter().map(|t| json!({"id": t["id"], "receipt": t["receipt"]})).collect::<Vec<_>>()});
    let of_the_dead = items(held["tasks"].as_array().expect("tasks"));
    for (verb, items, result) in [("ack", of_the_dead, "lost"), ("ack", items(&again), "ok")] {
        let results = api.send("POST", &format!("/v1/queues/q/{verb}"), items).await.json()["results"].clone();
        assert!(results.as_array().expect("results").iter().all(|one| one["result"] == result), "{results}");
    }

    // Killed while it waits: it gets nothing, and nothing is held or charged for it.
    let mut client = Client::start(&api, &json!({"lease_ms": 3_600_000, "wait_ms": 30_000}));
    tokio::time::sleep(SECOND).await;
    client.kill();
    assert_eq!(put(&api, "q/tasks/c", json!({"delay_ms": 0})).await, 201);
    let body = json!({"lease_ms": 60_000, "wait_ms": 5_000});
    let next = api.send("POST", "/v1/queues/q/claim", body).await.json();
    assert_eq!((&next["tasks"][0]["id"], &next["tasks"][0]["attempt"]), (&json!("c"), &json!(1)));
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_holds_nothing_for_longer_than_its_lease() {
    a_killed_client(Api::leasing().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_holds_nothing_for_longer_than_its_lease_on_redis() {
    let redis = Redis::start();
    a_killed_client(server(&redis).await).await;
}

/// C56: an instant is one of UTC, or it is refused.
#[tokio::test]
async fn local_times_are_refused() {
    let api = Api::leasing().await;
    for wrong in [
        "2026-10-25T01:30:00",
        "2026-10-25 01:30:00",
        "2026-10-25T01:30:00 Europe/London",
        "2026-10-25",
        "in half an hour",
        "1792888800",
    ] {
        let reply = api.send("PUT", "/v1/queues/q/tasks/t", json!({"due_at": wrong})).await;
        assert_eq!((reply.status, reply.pointers()), (422, vec!["/due_at".to_owned()]), "{wrong}: {reply:?}");
    }
    assert_eq!(put(&api, "q/tasks/t", json!({"due_at": "2126-10-25T01:30:00Z"})).await, 201);
    api.stop().await;
}
