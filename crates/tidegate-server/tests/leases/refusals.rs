//! Stores that answer, but do not do it: they are full, something of theirs was destroyed by hand. The caller is told why, the
//! operator by `/readyz`, and both hear of the end of it.

use serde_json::json;
use tidegate_conformance::servers::{MariaDb, Postgres, Redis, Setup};

use crate::client::{Api, Reply};
use crate::shared::server;

async fn put(api: &Api, queue: &str) -> Reply {
    api.send("PUT", &format!("/v1/queues/{queue}/tasks/t"), json!({"delay_ms": 60_000})).await
}

async fn lock(api: &Api, name: &str) -> Reply {
    api.send("POST", &format!("/v1/locks/{name}"), json!({"ttl_ms": 200})).await
}

/// What a refusal tells its caller.
fn told(reply: &Reply) -> String {
    assert_eq!((reply.status, reply.code().as_str()), (503, "store-unavailable"), "{reply:?}");
    reply.json()["detail"].as_str().expect("a detail").to_owned()
}

/// Readiness, with the reason that begins with `word` if there is one.
async fn reason(api: &Api, word: &str) -> Option<String> {
    let ready = api.get("/readyz").await;
    assert_eq!(ready.status, 200, "orders are taken");
    let json = ready.json();
    let reasons = json["reasons"].as_array().expect("reasons");
    assert_eq!(json["status"] == "ready", reasons.is_empty(), "{json}");
    reasons.iter().map(|reason| reason.as_str().expect("text").to_owned()).find(|reason| reason.starts_with(word))
}

#[tokio::test]
async fn a_key_of_another_type_is_told_until_it_is_gone() {
    let redis = Redis::start();
    let api = server(&redis).await;
    assert_eq!(put(&api, "well").await.status, 201);
    redis.tell(&["SET", "{tg:http:q:broken}:t", "x"]);
    assert!(told(&put(&api, "broken").await).contains("WRONGTYPE"));
    let degraded = reason(&api, "queues-unavailable").await.expect("it is degraded");
    assert!(degraded.contains("schedule of \"broken\"") && degraded.contains("delete that key"), "{degraded}");
    // Others go on, and do not make it well.
    assert!(put(&api, "well").await.status < 300);
    assert!(reason(&api, "queues-unavailable").await.is_some());
    redis.tell(&["DEL", "{tg:http:q:broken}:t"]);
    assert_eq!(put(&api, "broken").await.status, 201);
    assert_eq!(reason(&api, "").await, None);

    // The same of a lock: its key's part is that of its name.
    assert_eq!(lock(&api, "row").await.status, 201);
    let key = redis.tell(&["KEYS", "*:h:row"]);
    redis.tell(&["DEL", key.trim()]);
    redis.tell(&["SET", key.trim(), "x"]);
    assert!(told(&lock(&api, "row").await).contains("WRONGTYPE"));
    let degraded = reason(&api, "locks-unavailable").await.expect("it is degraded");
    assert!(degraded.contains("of \"row\" fails"), "{degraded}");
    redis.tell(&["DEL", key.trim()]);
    assert_eq!(lock(&api, "row").await.status, 201);
    assert_eq!(reason(&api, "locks-unavailable: acquire").await, None);
    api.stop().await;
}

#[tokio::test]
async fn a_full_redis_says_that_it_is_full() {
    let redis = Redis::start_with(Setup::default().option("maxmemory-policy", "noeviction"));
    let api = server(&redis).await;
    assert_eq!((put(&api, "q").await.status, lock(&api, "a").await.status), (201, 201));
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    for detail in [told(&put(&api, "r").await), told(&lock(&api, "b").await)] {
        assert!(detail.contains("Redis is full") && detail.contains("`maxmemory`"), "{detail}");
    }
    for word in ["queues-unavailable", "locks-unavailable"] {
        let degraded = reason(&api, word).await.expect("it is degraded");
        assert!(degraded.contains(" fails: ") && degraded.contains("`maxmemory`"), "{degraded}");
    }
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    // Another queue, another lock: it is not full for anybody.
    assert_eq!((put(&api, "s").await.status, lock(&api, "c").await.status), (201, 201));
    assert_eq!(reason(&api, "").await, None);
    api.stop().await;
}

async fn a_missing_table(api: Api, sql: impl Fn(&str)) {
    assert_eq!(put(&api, "q").await.status, 201);
    sql("ALTER TABLE tg_tasks RENAME TO gone");
    let claim = async || api.send("POST", "/v1/queues/q/claim", json!({})).await;
    for reply in [put(&api, "q").await, api.get("/v1/queues/q/tasks").await] {
        assert!(told(&reply).contains("table"), "{reply:?}");
    }
    let degraded = reason(&api, "queues-unavailable").await.expect("it is degraded");
    assert!(degraded.contains("is missing in the database"), "{degraded}");
    sql("ALTER TABLE gone RENAME TO tg_tasks");
    assert!(put(&api, "q").await.status < 300);
    assert_eq!((api.get("/v1/queues/q/tasks").await.status, claim().await.status), (200, 200));
    assert_eq!(reason(&api, "").await, None);
    api.stop().await;
}

#[tokio::test]
async fn a_table_that_is_missing_in_mariadb_is_told_until_it_is_back() {
    let mariadb = MariaDb::start();
    let url = mariadb.database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    a_missing_table(crate::database::server(&url).await, |sql| drop(mariadb.sql(&name, sql))).await;
}

#[tokio::test]
async fn a_table_that_is_missing_in_postgresql_is_told_until_it_is_back() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let name = url.rsplit('/').next().expect("a name").to_owned();
    a_missing_table(crate::database::server(&url).await, |sql| drop(postgres.sql(&name, sql))).await;
}
