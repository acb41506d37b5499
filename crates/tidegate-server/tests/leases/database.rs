//! Queues in the database of a ledger, without any other server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::Stores;
use tidegate::queue::QueueOptions;
use tidegate_conformance::servers::{MariaDb, Postgres};

use crate::client::{Api, read_one};

/// A server whose ledger and queues lie in the database at `url`.
pub async fn server(url: &str) -> Api {
    let stores = Stores::new(url).expect("a ledger").queues(QueueOptions::default());
    Api::leasing_from(stores.open().await.expect("the stores")).await
}

async fn claim(api: &Api, body: Value) -> Vec<Value> {
    let reply = api.send("POST", "/v1/queues/q/claim", body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["tasks"].as_array().expect("tasks").clone()
}

/// Servers that share nothing but the database are one: what one schedules, who waits at the other gets, soon; what a dead
/// holder had comes again, and its receipt is worthless.
async fn two_servers_are_one(url: &str) {
    let (one, two) = (server(url).await, server(url).await);
    let begun = one.send("PUT", "/v1/queues/q/tasks/first", json!({"delay_ms": 0})).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    let mut waiter = two.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000, "lease_ms": 400})).await;
    let got = read_one(&mut waiter).await.json();
    assert_eq!(got["tasks"][0]["id"], "first");
    // While nothing is found it is asked for less and less, twice a second at least.
    let mut waiter = two.begin("POST", "/v1/queues/r/claim", &[], &json!({"wait_ms": 20_000})).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let began = Instant::now();
    one.send("PUT", "/v1/queues/r/tasks/t", json!({"delay_ms": 0, "payload": [1.0, "é"]})).await;
    let told = read_one(&mut waiter).await.json();
    assert_eq!((&told["tasks"][0]["id"], &told["tasks"][0]["payload"]), (&json!("t"), &json!([1.0, "é"])));
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());

    let again = claim(&one, json!({"wait_ms": 5_000})).await.remove(0);
    assert_eq!((&again["id"], &again["attempt"]), (&json!("first"), &json!(2)));
    let late = json!({"items": [{"id": "first", "receipt": got["tasks"][0]["receipt"]}]});
    assert_eq!(two.send("POST", "/v1/queues/q/ack", late).await.json()["results"][0]["result"], "lost");
    let done = json!({"items": [{"id": "first", "receipt": again["receipt"]}]});
    assert_eq!(two.send("POST", "/v1/queues/q/ack", done).await.json()["results"][0]["result"], "ok");

    // Locks need a store of their own.
    let lock = one.send("POST", "/v1/locks/l", json!({"ttl_ms": 1_000})).await;
    assert_eq!((lock.status, lock.code().as_str()), (503, "store-unavailable"));
    assert!(lock.json()["detail"].as_str().expect("a detail").contains("--store"), "{lock:?}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn two_servers_of_one_mariadb_are_one() {
    let server = MariaDb::start();
    two_servers_are_one(&server.database()).await;
}

#[tokio::test]
async fn two_servers_of_one_postgres_are_one() {
    let server = Postgres::start();
    two_servers_are_one(&server.database()).await;
}

/// A database that dies is told, and never nothing; when it is back everything goes on by itself.
#[tokio::test]
async fn a_database_that_dies_is_told() {
    let postgres = Postgres::start();
    let api = server(&postgres.database()).await;
    for id in ["a", "b"] {
        assert_eq!(api.send("PUT", &format!("/v1/queues/q/tasks/{id}"), json!({"delay_ms": 0})).await.status, 201);
    }
    let held = claim(&api, json!({"lease_ms": 60_000})).await.remove(0);
    postgres.kill();
    let away = api.send("POST", "/v1/queues/q/claim", json!({})).await;
    assert_eq!((away.status, away.code().as_str()), (503, "store-unavailable"), "{away:?}");
    postgres.restart();
    let began = Instant::now();
    let rest = loop {
        let reply = api.send("POST", "/v1/queues/q/claim", json!({"max": 9, "wait_ms": 1_000})).await;
        if reply.status == 200 {
            break reply.json()["tasks"].as_array().expect("tasks").clone();
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{reply:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(rest.len(), 1);
    let ack = json!({"items": [{"id": held["id"], "receipt": held["receipt"]}]});
    assert_eq!(api.send("POST", "/v1/queues/q/ack", ack).await.json()["results"][0]["result"], "ok");
    api.stop().await;
}
