//! The feed over real sockets: every call, every code, pages and their cursors.

#[allow(dead_code, reason = "these tests use a part of it")]
#[path = "../http/client.rs"]
mod client;
mod pages;
mod posts;
mod users;

use client::{Api, Reply};
use serde_json::{Value, json};

/// Publishes, and expects it to be new.
async fn publish(api: &Api, author: &str, body: Value) -> Value {
    let reply = api.send("POST", &format!("/v1/users/{author}/posts"), body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    reply.json()
}

async fn follow(api: &Api, user: &str, other: &str) {
    let reply = api.raw("PUT", &format!("/v1/users/{user}/follows/{other}"), &[], b"").await;
    assert_eq!((reply.status, reply.body.len()), (204, 0), "{reply:?}");
}

async fn feed(api: &Api, user: &str, query: &str) -> Value {
    let reply = api.get(&format!("/v1/users/{user}/feed{query}")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()
}

/// The ids of a page's posts.
fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().expect("items").iter();
    items.map(|item| item["post"]["post_id"].as_str().expect("an id")).collect()
}

fn refusal(reply: &Reply) -> (u16, String, Vec<String>) {
    (reply.status, reply.code(), reply.pointers())
}

fn invalid(pointers: &[&str]) -> (u16, String, Vec<String>) {
    (422, "invalid".to_owned(), pointers.iter().map(|pointer| (*pointer).to_owned()).collect())
}

/// Lets the ledger's time pass.
async fn pass(api: &Api, ms: i64) {
    let reply = api.send("POST", "/v1/admin/clock", json!({"advance_ms": ms})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
}
