//! Queues and locks that two servers share on one Redis: who dies, who hangs, what is said meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::lock::RedisLocks;
use tidegate::queue::{Connector, QueueOptions, RedisOptions, RedisQueues};
use tidegate_conformance::servers::{Proxy, Redis};

use crate::client::{Api, read_one};

pub async fn server(redis: &Redis) -> Api {
    server_at(&redis.url()).await
}

pub async fn server_at(url: &str) -> Api {
    let options = RedisOptions::parse(url).expect("a URL").name("http").expect("a name");
    let connector = Connector::start(options).await.expect("a usable server");
    let queues = RedisQueues::open(connector.clone(), QueueOptions::default()).await.expect("queues");
    Api::leasing_on(Arc::new(queues), Arc::new(RedisLocks::open(connector))).await
}

async fn claim(api: &Api, body: Value) -> Vec<Value> {
    let reply = api.send("POST", "/v1/queues/q/claim", body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["tasks"].as_array().expect("tasks").clone()
}

#[tokio::test]
async fn two_servers_are_one() {
    let redis = Redis::start();
    let (one, two) = (server(&redis).await, server(&redis).await);
    let mut waiter = two.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000, "lease_ms": 400})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    let new = one.send("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 0, "payload": [1.0, "é"]})).await;
    assert_eq!(new.status, 201, "{new:?}");
    let got = read_one(&mut waiter).await.json();
    assert!(began.elapsed() < Duration::from_secs(1), "woken across servers: {:?}", began.elapsed());
    assert_eq!((&got["tasks"][0]["id"], &got["tasks"][0]["payload"]), (&json!("t"), &json!([1.0, "é"])));
    // Whoever got it is gone; after its lease the other has it, and the first's receipt is worthless.
    let again = claim(&one, json!({"wait_ms": 5_000})).await.remove(0);
    assert_eq!(again["attempt"], 2);
    let late = json!({"items": [{"id": "t", "receipt": got["tasks"][0]["receipt"]}]});
    assert_eq!(two.send("POST", "/v1/queues/q/ack", late).await.json()["results"][0]["result"], "lost");
    let done = json!({"items": [{"id": "t", "receipt": again["receipt"]}]});
    assert_eq!(two.send("POST", "/v1/queues/q/ack", done).await.json()["results"][0]["result"], "ok");

    let held = one.send("POST", "/v1/locks/l", json!({"ttl_ms": 30_000})).await;
    let mut waiter = two.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 30_000, "wait_ms": 20_000})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let gone = two.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 30_000, "wait_ms": 20_000})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(one.get("/v1/locks/l").await.json()["waiters"], 2);
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(one.get("/v1/locks/l").await.json()["waiters"], 1, "who hung up has left");
    let token = held.json()["token"].as_str().expect("a token").to_owned();
    let released = two.raw("DELETE", "/v1/locks/l", &[("lock-token", &token)], b"").await;
    assert_eq!(released.status, 204, "from any server");
    let granted = read_one(&mut waiter).await;
    assert!(granted.status == 201 && granted.json()["fence"].as_u64() > held.json()["fence"].as_u64(), "{granted:?}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_store_that_hangs_is_never_nothing() {
    let redis = Redis::start();
    let api = server(&redis).await;
    api.send("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 3_600_000})).await;
    let token = api.send("POST", "/v1/locks/l", json!({"ttl_ms": 60_000})).await.json()["token"].clone();
    let token = token.as_str().expect("a token");
    let mut waits = api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 1_500})).await;
    let mut waits_for_lock = api.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 1_000, "wait_ms": 1_500})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    redis.freeze();
    for (method, path, body) in [
        ("GET", "/v1/queues", ""),
        ("GET", "/v1/queues/q", ""),
        ("GET", "/v1/queues/q/tasks", ""),
        ("GET", "/v1/queues/q/tasks/t", ""),
        ("PUT", "/v1/queues/q/tasks/t", r#"{"delay_ms": 0}"#),
        ("POST", "/v1/queues/q/claim", "{}"),
        ("POST", "/v1/queues/q/ack", r#"{"items": [{"id": "t", "receipt": "1"}]}"#),
        ("DELETE", "/v1/queues/q/tasks/t", ""),
        ("DELETE", "/v1/queues/q/dead", ""),
        ("GET", "/v1/locks/l", ""),
        ("POST", "/v1/locks/l", r#"{"ttl_ms": 1000}"#),
        ("PUT", "/v1/locks/l", r#"{"ttl_ms": 1000}"#),
        ("DELETE", "/v1/locks/l", ""),
    ] {
        let headers = [("content-type", "application/json"), ("lock-token", token)];
        let reply = api.raw(method, path, &headers, body.as_bytes()).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "store-unavailable"), "{method} {path}");
        assert!(reply.json()["retryable"] == true && !reply.header("retry-after").is_empty());
    }
    for waiter in [&mut waits, &mut waits_for_lock] {
        let told = tokio::time::timeout(Duration::from_secs(10), read_one(waiter)).await.expect("an answer");
        assert_eq!((told.status, told.code().as_str()), (503, "store-unavailable"));
    }
    redis.thaw();
    let began = Instant::now();
    while api.get("/v1/queues/q").await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(10), "not back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    api.stop().await;
}

#[tokio::test]
async fn a_stop_hands_back_what_nobody_took() {
    let redis = Redis::start();
    let (mut one, two) = (server(&redis).await, server(&redis).await);
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(
            one.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 30_000, "lease_ms": 3_600_000})).await,
        );
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let body = json!({"tasks": (0..20).map(|n| json!({"id": format!("t{n}"), "delay_ms": 0})).collect::<Vec<_>>()});
    let scheduled = two.send("POST", "/v1/queues/q/tasks:batch", body);
    let gone = async {
        drop(waiters);
        one.begin_stop();
    };
    let (scheduled, ()) = tokio::join!(scheduled, gone);
    assert_eq!(scheduled.status, 200);
    one.ended().await;
    let numbers = two.get("/v1/queues/q").await.json();
    let tasks = two.get("/v1/queues/q/tasks?state=pending").await.json();
    let uncharged = tasks["items"].as_array().expect("items").iter().filter(|task| task["attempt"] == 0).count();
    assert_eq!(uncharged, 20, "{numbers}");
    two.stop().await;
}

#[tokio::test]
async fn what_a_client_that_hung_up_was_given_goes_back() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.port());
    let (slow, other) = (server_at(&format!("redis://127.0.0.1:{}", proxy.port())).await, server(&redis).await);
    other.send("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 0})).await;
    proxy.delay(Duration::from_millis(150));
    let claimer = slow.begin("POST", "/v1/queues/q/claim", &[], &json!({"lease_ms": 3_600_000})).await;
    let locker = slow.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 3_600_000})).await;
    let state = async || other.get("/v1/queues/q/tasks/t").await.json();
    let began = Instant::now();
    while state().await["state"] != "leased" || other.get("/v1/locks/l").await.json()["held"] != true {
        assert!(began.elapsed() < Duration::from_secs(5), "not granted");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The store has done it, the answer is on its way.
    drop((claimer, locker));
    let began = Instant::now();
    while state().await["state"] != "pending" || other.get("/v1/locks/l").await.json()["held"] != false {
        assert!(began.elapsed() < Duration::from_secs(5), "not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(state().await["attempt"], 0, "and not charged");
    proxy.delay(Duration::ZERO);
    slow.stop().await;
    other.stop().await;
}
