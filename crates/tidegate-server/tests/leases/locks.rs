//! Locks over HTTP: every call, every code, the line, callers that hang up or lose a reply, a stop.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_server::Limits;

use crate::client::{Api, Reply, read_one};

const OWN: &str = "my-own-token-0123456789";

async fn take(api: &Api, name: &str, body: Value) -> Reply {
    api.send("POST", &format!("/v1/locks/{name}"), body).await
}

async fn with_token(api: &Api, method: &str, name: &str, token: &str, body: &str) -> Reply {
    let headers = [("content-type", "application/json"), ("lock-token", token)];
    api.raw(method, &format!("/v1/locks/{name}"), &headers, body.as_bytes()).await
}

fn text(reply: &Reply, field: &str) -> String {
    reply.json()[field].as_str().unwrap_or_else(|| panic!("{field} of {reply:?}")).to_owned()
}

#[tokio::test]
async fn a_lock_from_its_grant_to_its_end() {
    let api = Api::leasing().await;
    let free = api.get("/v1/locks/a%2Fb").await;
    assert_eq!((free.status, free.json()), (200, json!({"name": "a/b", "held": false, "waiters": 0})));
    let granted = take(&api, "a%2Fb", json!({"ttl_ms": 30_000})).await;
    assert_eq!((granted.status, &granted.json()["name"]), (201, &json!("a/b")), "{granted:?}");
    let (token, fence) = (text(&granted, "token"), granted.json()["fence"].as_u64().expect("a fence"));
    let valid = granted.json()["valid_ms"].as_u64().expect("a time");
    assert!((29_000..=30_000).contains(&valid), "{valid}");
    let seen = api.get("/v1/locks/a%2Fb").await;
    assert_eq!((&seen.json()["held"], &seen.json()["fence"]), (&json!(true), &json!(fence)));
    assert!(seen.json()["valid_ms"].as_i64() > Some(28_000) && !String::from_utf8_lossy(&seen.body).contains(&token));

    let held = take(&api, "a%2Fb", json!({"ttl_ms": 30_000})).await;
    assert_eq!((held.status, held.code().as_str()), (409, "lock-held"));
    let left = held.json()["retry_after_ms"].as_i64().expect("a time");
    assert!((28_000..=30_000).contains(&left), "{left}");
    let renewed = with_token(&api, "PUT", "a%2Fb", &token, r#"{"ttl_ms": 60000}"#).await;
    assert_eq!((renewed.status, &renewed.json()["fence"]), (200, &json!(fence)), "{renewed:?}");
    assert!(renewed.json()["valid_ms"].as_u64() > Some(58_000));
    assert_eq!(with_token(&api, "DELETE", "a%2Fb", &token, "").await.status, 204);
    for (method, body) in [("DELETE", ""), ("PUT", r#"{"ttl_ms": 60000}"#)] {
        let lost = with_token(&api, method, "a%2Fb", &token, body).await;
        assert_eq!((lost.status, lost.code().as_str()), (409, "lock-lost"), "{method}");
    }
    let next = take(&api, "a%2Fb", json!({"ttl_ms": 1_000})).await;
    assert!(next.json()["fence"].as_u64() > Some(fence));
    api.stop().await;
}

#[tokio::test]
async fn a_token_is_required_and_never_guessed() {
    let api = Api::leasing().await;
    take(&api, "l", json!({"ttl_ms": 30_000})).await;
    for (method, body) in [("DELETE", ""), ("PUT", r#"{"ttl_ms": 60000}"#)] {
        let none = api.raw(method, "/v1/locks/l", &[("content-type", "application/json")], body.as_bytes()).await;
        assert_eq!((none.status, none.code().as_str()), (400, "lock-token-required"), "{method}");
        let short = with_token(&api, method, "l", "short", body).await;
        assert_eq!((short.status, short.code().as_str()), (400, "lock-token-required"), "{method}");
        let other = with_token(&api, method, "l", OWN, body).await;
        assert_eq!((other.status, other.code().as_str()), (409, "lock-lost"), "{method}");
    }
    assert_eq!(with_token(&api, "POST", "m", "short", r#"{"ttl_ms": 1000}"#).await.code(), "lock-token-required");
    api.stop().await;
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_again() {
    let api = Api::leasing().await;
    let first = with_token(&api, "POST", "l", OWN, r#"{"ttl_ms": 30000}"#).await;
    assert_eq!((first.status, text(&first, "token").as_str()), (201, OWN));
    let again = with_token(&api, "POST", "l", OWN, r#"{"ttl_ms": 30000, "wait_ms": 500}"#).await;
    assert_eq!((again.status, &again.json()["fence"]), (200, &first.json()["fence"]), "{again:?}");
    let fence = first.json()["fence"].as_u64().expect("a fence");
    let body = json!({"ttl_ms": 30_000, "floor": fence + 1_000_000_000}).to_string();
    let higher = with_token(&api, "POST", "l", OWN, &body).await;
    assert!(higher.status == 201 && higher.json()["fence"].as_u64() > Some(fence + 1_000_000_000), "{higher:?}");
    // The first call is cut off while it waits; the second, with the same token, must get and keep the lock.
    for round in 0..20_u64 {
        let name = format!("cut-{round}");
        let holder = text(&take(&api, &name, json!({"ttl_ms": 30_000})).await, "token");
        let body = json!({"ttl_ms": 30_000, "wait_ms": 20_000});
        let path = format!("/v1/locks/{name}");
        let first = api.begin("POST", &path, &[("lock-token", OWN)], &body).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut second = api.begin("POST", &path, &[("lock-token", OWN)], &body).await;
        let released = with_token(&api, "DELETE", &name, &holder, "");
        let gone = async {
            tokio::time::sleep(Duration::from_micros(round * 200)).await;
            drop(first);
        };
        let (released, ()) = tokio::join!(released, gone);
        assert_eq!(released.status, 204);
        let got = read_one(&mut second).await;
        assert!(matches!(got.status, 200 | 201), "{got:?}");
        tokio::time::sleep(Duration::from_millis(60)).await;
        let now = api.get(&path).await.json();
        assert_eq!((&now["held"], &now["fence"]), (&json!(true), &got.json()["fence"]), "round {round}");
    }
    api.stop().await;
}

#[tokio::test]
async fn the_line_is_served_in_order() {
    let api = Api::leasing().await;
    let mut token = text(&take(&api, "l", json!({"ttl_ms": 60_000})).await, "token");
    let mut waiters = Vec::new();
    for n in 0..200_usize {
        waiters.push(api.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 30_000, "wait_ms": 30_000})).await);
        // Each stands in the line before the next comes.
        while api.get("/v1/locks/l").await.json()["waiters"].as_u64() != Some(n as u64 + 1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut fence = 0;
    for (n, mut waiter) in waiters.into_iter().enumerate() {
        assert_eq!(with_token(&api, "DELETE", "l", &token, "").await.status, 204, "waiter {n}");
        let granted = tokio::time::timeout(Duration::from_secs(5), read_one(&mut waiter)).await.expect("its turn");
        assert_eq!(granted.status, 201, "waiter {n}: {granted:?}");
        let next = granted.json()["fence"].as_u64().expect("a fence");
        assert!(next > fence);
        (fence, token) = (next, text(&granted, "token"));
    }
    assert_eq!(with_token(&api, "DELETE", "l", &token, "").await.status, 204);
    api.stop().await;
}

#[tokio::test]
async fn what_was_waited_for_counts_into_what_can_be_relied_on() {
    let api = Api::leasing().await;
    take(&api, "l", json!({"ttl_ms": 1_200})).await;
    let sent = Instant::now();
    let granted = take(&api, "l", json!({"ttl_ms": 1_000, "wait_ms": 5_000})).await;
    let waited = sent.elapsed();
    let valid = Duration::from_millis(granted.json()["valid_ms"].as_u64().expect("a time"));
    assert!(valid > waited, "it was over when it was granted: {valid:?} after {waited:?}");
    let left = api.get("/v1/locks/l").await.json()["valid_ms"].as_u64().expect("a time");
    assert!(valid.saturating_sub(sent.elapsed()) <= Duration::from_millis(left), "no longer than the store says");
    api.stop().await;
}

#[tokio::test]
async fn who_hangs_up_leaves_the_line() {
    let api = Api::leasing().await;
    let token = text(&take(&api, "l", json!({"ttl_ms": 60_000})).await, "token");
    let body = json!({"ttl_ms": 30_000, "wait_ms": 30_000});
    let waiter = api.begin("POST", "/v1/locks/l", &[], &body).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut last = api.begin("POST", "/v1/locks/l", &[], &body).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(api.get("/v1/locks/l").await.json()["waiters"], 2);
    drop(waiter);
    let began = Instant::now();
    while api.get("/v1/locks/l").await.json()["waiters"] != 1 {
        assert!(began.elapsed() < Duration::from_millis(100), "still in the line after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    with_token(&api, "DELETE", "l", &token, "").await;
    let granted = read_one(&mut last).await;
    assert_eq!(granted.status, 201);
    with_token(&api, "DELETE", "l", &text(&granted, "token"), "").await;
    // A grant on its way to a client that is gone is given back.
    for round in 0..40_u64 {
        let name = format!("g{round}");
        let token = text(&take(&api, &name, json!({"ttl_ms": 60_000})).await, "token");
        let path = format!("/v1/locks/{name}");
        let waiter = api.begin("POST", &path, &[], &body).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(waiter);
        with_token(&api, "DELETE", &name, &token, "").await;
        let began = Instant::now();
        while api.get(&path).await.json()["held"] == true {
            assert!(began.elapsed() < Duration::from_millis(500), "round {round}: it is nobody's and not given back");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    api.stop().await;
}

#[tokio::test]
async fn a_stop_tells_who_waits_and_bounds_hold() {
    let limits = Limits { max_long_polls: 1, max_lock_ttl: Duration::from_secs(10), ..Limits::default() };
    let mut api = Api::leasing_as(Default::default(), Vec::new(), limits).await;
    assert_eq!(take(&api, "l", json!({"ttl_ms": 10_001})).await.pointers(), ["/ttl_ms"]);
    assert_eq!(take(&api, "l", json!({"ttl_ms": 10_000})).await.status, 201);
    let mut waiter = api.begin("POST", "/v1/locks/l", &[], &json!({"ttl_ms": 1_000, "wait_ms": 30_000})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let full = take(&api, "l", json!({"ttl_ms": 1_000, "wait_ms": 1_000})).await;
    assert_eq!((full.status, full.code().as_str()), (503, "overloaded"));
    let began = Instant::now();
    api.begin_stop();
    let told = read_one(&mut waiter).await;
    assert_eq!((told.status, told.code().as_str()), (503, "stopping"));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    api.ended().await;
}
