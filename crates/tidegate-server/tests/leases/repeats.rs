//! A client that lost its connection asks again with the same token, at the same server or another: what the repeat is told holds,
//! however the first call ends. (Found by the third breaker of issue 5, K1 and K2.)

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tidegate_conformance::servers::Redis;

use super::shared::server;
use crate::client::{Api, read_one};

/// Races of one kind.
fn races() -> u64 {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 3_000 } else { 300 }
}

/// At once.
const TOGETHER: u64 = 50;

fn path(name: &str) -> String {
    format!("/v1/locks/{name}")
}

async fn take(api: &Api, name: &str) -> (u16, String) {
    let reply = api.send("POST", &path(name), json!({"ttl_ms": 30_000})).await;
    let token = reply.json()["token"].as_str().unwrap_or_default().to_owned();
    (reply.status, token)
}

async fn release(api: &Api, name: &str, token: &str) -> u16 {
    api.raw("DELETE", &path(name), &[("lock-token", token)], b"").await.status
}

/// Up to `most` microseconds, by chance.
async fn a_moment(n: u64, most: u64) {
    let mut dice = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    dice ^= dice >> 29;
    tokio::time::sleep(Duration::from_micros(dice.wrapping_mul(0xBF58_476D_1CE4_E5B9) % most)).await;
}

/// The first call goes to `one` and is cut off, the repeat to `two`; whether another can take what the repeat was granted.
async fn race(one: &Api, two: &Api, name: String, n: u64, wait_ms: u64, held: bool) -> bool {
    let token = format!("the-callers-own-{n:010}");
    let holder = if held { Some(take(two, &name).await.1) } else { None };
    let body = json!({"ttl_ms": 30_000, "wait_ms": wait_ms});
    let headers = [("lock-token", token.as_str())];
    let first = one.begin("POST", &path(&name), &headers, &body).await;
    if held {
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let hang_up = async {
        a_moment(3 * n, 3_000).await;
        drop(first);
    };
    let let_go = async {
        a_moment(3 * n + 1, 3_000).await;
        if let Some(holder) = &holder {
            assert_eq!(release(two, &name, holder).await, 204, "{name}");
        }
    };
    let again = async {
        a_moment(3 * n + 2, 4_000).await;
        let mut second = two.begin("POST", &path(&name), &headers, &body).await;
        read_one(&mut second).await
    };
    let ((), (), granted) = tokio::join!(hang_up, let_go, again);
    assert!(matches!(granted.status, 200 | 201), "{name}: {granted:?}");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (other, _) = take(one, &name).await;
    if other == 409 {
        assert_eq!(release(two, &name, &token).await, 204, "{name}: it is still the caller's");
    }
    other != 409
}

async fn no_race_has_two_holders(one: &Api, two: &Api) {
    for (kind, wait_ms, held) in [("free", 0, false), ("waiting", 5_000, true), ("patient", 5_000, false)] {
        let mut two_holders = 0;
        for batch in 0..races() / TOGETHER {
            let some = (batch * TOGETHER..(batch + 1) * TOGETHER)
                .map(|n| race(one, two, format!("{kind}-{n}"), n, wait_ms, held));
            two_holders += join_all(some).await.into_iter().filter(|twice| *twice).count();
        }
        assert_eq!(two_holders, 0, "of {} that were {kind}", races());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_repeat_is_told_holds_at_one_server() {
    let api = Api::leasing().await;
    no_race_has_two_holders(&api, &api).await;
    api.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_repeat_is_told_holds_at_another_server() {
    let redis = Redis::start();
    let (one, two) = (server(&redis).await, server(&redis).await);
    no_race_has_two_holders(&one, &two).await;
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_at_another_server_is_handed_the_lock_at_once() {
    let redis = Redis::start();
    let (one, two) = (server(&redis).await, server(&redis).await);
    let (_, holder) = take(&two, "l").await;
    let headers = [("lock-token", "the-callers-own-token")];
    let body = json!({"ttl_ms": 30_000, "wait_ms": 20_000});
    // The first call is not cut off: its server does not know that nobody listens.
    let first = one.begin("POST", "/v1/locks/l", &headers, &body).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut behind = one.begin("POST", "/v1/locks/l", &[], &body).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut second = two.begin("POST", "/v1/locks/l", &headers, &body).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(two.get("/v1/locks/l").await.json()["waiters"], 2, "it has one place");
    let began = Instant::now();
    assert_eq!(release(&two, "l", &holder).await, 204);
    let granted = read_one(&mut second).await;
    assert!(matches!(granted.status, 200 | 201), "{granted:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop(first);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(release(&two, "l", "the-callers-own-token").await, 204, "it is the repeat's");
    assert_eq!(read_one(&mut behind).await.status, 201);
    one.stop().await;
    two.stop().await;
}
