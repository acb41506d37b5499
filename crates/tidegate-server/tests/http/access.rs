//! Who may call what.

use serde_json::Value;
use tidegate_server::{Limits, Role, Server, ServerConfig, Surface, Token, hash_token};

use super::client::Api;

/// Every call and the least role it needs; `None`: open.
const CALLS: &[(&str, &str, Option<Role>)] = &[
    ("POST", "/v1/orders", Some(Role::Shop)),
    ("POST", "/v1/orders:batch", Some(Role::Shop)),
    ("GET", "/v1/orders", Some(Role::Read)),
    ("GET", "/v1/orders/{id}", Some(Role::Read)),
    ("POST", "/v1/orders/{id}/cancel", Some(Role::Shop)),
    ("POST", "/v1/orders/{id}/extend", Some(Role::Shop)),
    ("POST", "/v1/orders/{id}/fulfil", Some(Role::Shop)),
    ("GET", "/v1/orders/{id}/events", Some(Role::Read)),
    ("POST", "/v1/orders/{id}/payments", Some(Role::Shop)),
    ("GET", "/v1/payments", Some(Role::Read)),
    ("POST", "/v1/payments/{payment_id}/refund", Some(Role::Ops)),
    ("GET", "/v1/refunds", Some(Role::Read)),
    ("POST", "/v1/refunds/{id}/settle", Some(Role::Shop)),
    ("GET", "/v1/parked", Some(Role::Ops)),
    ("POST", "/v1/parked/{order_id}/retry", Some(Role::Ops)),
    ("PUT", "/v1/skus/{sku}", Some(Role::Ops)),
    ("POST", "/v1/skus:batch", Some(Role::Ops)),
    ("GET", "/v1/skus", Some(Role::Read)),
    ("GET", "/v1/skus/{sku}", Some(Role::Read)),
    ("DELETE", "/v1/skus/{sku}", Some(Role::Ops)),
    ("POST", "/v1/skus/{sku}/adjustments", Some(Role::Ops)),
    ("GET", "/v1/skus/{sku}/ledger", Some(Role::Read)),
    ("GET", "/v1/products/{sku}", Some(Role::Read)),
    ("GET", "/v1/cache/{namespace}/{key}", Some(Role::Read)),
    ("DELETE", "/v1/cache/{namespace}/{key}", Some(Role::Shop)),
    ("DELETE", "/v1/cache/{namespace}", Some(Role::Ops)),
    ("PUT", "/v1/queues/{queue}/tasks/{id}", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/tasks:batch", Some(Role::Shop)),
    ("GET", "/v1/queues/{queue}/tasks/{id}", Some(Role::Shop)),
    ("GET", "/v1/queues/{queue}/tasks", Some(Role::Shop)),
    ("DELETE", "/v1/queues/{queue}/tasks/{id}", Some(Role::Shop)),
    ("GET", "/v1/queues", Some(Role::Shop)),
    ("GET", "/v1/queues/{queue}", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/claim", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/ack", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/release", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/extend", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/retry", Some(Role::Shop)),
    ("GET", "/v1/queues/{queue}/dead", Some(Role::Shop)),
    ("POST", "/v1/queues/{queue}/dead/{id}/requeue", Some(Role::Shop)),
    ("DELETE", "/v1/queues/{queue}/dead", Some(Role::Ops)),
    ("POST", "/v1/locks/{name}", Some(Role::Shop)),
    ("PUT", "/v1/locks/{name}", Some(Role::Shop)),
    ("DELETE", "/v1/locks/{name}", Some(Role::Shop)),
    ("GET", "/v1/locks/{name}", Some(Role::Shop)),
    ("GET", "/v1/redis/memory", Some(Role::Ops)),
    ("GET", "/v1/redis/findings", Some(Role::Ops)),
    ("POST", "/v1/redis/big-keys", Some(Role::Ops)),
    ("GET", "/v1/redis/big-keys", Some(Role::Ops)),
    ("GET", "/v1/redis/hot-keys", Some(Role::Ops)),
    ("GET", "/v1/events", Some(Role::Read)),
    ("GET", "/v1/events/stream", Some(Role::Read)),
    ("GET", "/healthz", None),
    ("GET", "/readyz", None),
    ("GET", "/metrics", Some(Role::Read)),
    ("GET", "/v1/users/{id}/feed", Some(Role::Read)),
    ("POST", "/v1/users/{id}/posts", Some(Role::Shop)),
    ("POST", "/v1/posts:batch", Some(Role::Shop)),
    ("GET", "/v1/posts/{id}", Some(Role::Read)),
    ("PUT", "/v1/posts/{id}", Some(Role::Shop)),
    ("DELETE", "/v1/posts/{id}", Some(Role::Shop)),
    ("PUT", "/v1/users/{id}/follows/{other}", Some(Role::Shop)),
    ("DELETE", "/v1/users/{id}/follows/{other}", Some(Role::Shop)),
    ("PUT", "/v1/users/{id}/blocks/{other}", Some(Role::Shop)),
    ("DELETE", "/v1/users/{id}/blocks/{other}", Some(Role::Shop)),
    ("GET", "/v1/users/{id}/follows", Some(Role::Read)),
    ("DELETE", "/v1/users/{id}", Some(Role::Shop)),
    ("POST", "/v1/follows:batch", Some(Role::Shop)),
    ("GET", "/openapi.json", None),
    ("GET", "/", None),
    ("GET", "/docs", None),
    ("GET", "/problems/{code}", None),
    ("POST", "/v1/admin/clock", Some(Role::Ops)),
    ("GET", "/v1/admin/clock", Some(Role::Ops)),
    ("POST", "/v1/admin/clock/accept", Some(Role::Ops)),
    ("POST", "/v1/admin/reconcile", Some(Role::Ops)),
];

fn tokens() -> Vec<Token> {
    [("reader", Role::Read), ("shop", Role::Shop), ("operator", Role::Ops)]
        .into_iter()
        .map(|(name, role)| Token { name: name.to_owned(), sha256: hash_token(name), role })
        .collect()
}

#[tokio::test]
async fn every_call_needs_its_role() {
    let api = Api::with(tokens(), true, Limits::default()).await;
    for (method, template, needed) in CALLS {
        if *template == "/v1/events/stream" {
            continue; // never ends by itself; its sibling has the same rule
        }
        let path = template.replace(['{', '}'], "");
        for (token, role) in [
            (None, None),
            (Some("wrong"), None),
            (Some("reader"), Some(Role::Read)),
            (Some("shop"), Some(Role::Shop)),
            (Some("operator"), Some(Role::Ops)),
        ] {
            let bearer = token.map(|token| format!("Bearer {token}"));
            let headers: Vec<(&str, &str)> = bearer.iter().map(|b| ("authorization", b.as_str())).collect();
            let reply = api.raw(method, &path, &headers, b"").await;
            let want = match (needed, role) {
                (None, _) => None,
                (Some(_), None) => Some((401, "unauthenticated")),
                (Some(needed), Some(role)) if role < *needed => Some((403, "forbidden")),
                _ => None,
            };
            match want {
                Some((status, code)) => {
                    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path} {token:?}");
                    assert_eq!(reply.header("www-authenticate").is_empty(), status != 401);
                }
                None => assert!(!matches!(reply.status, 401 | 403 | 500), "{method} {path} {token:?} {reply:?}"),
            }
        }
    }
    let document: Value = serde_json::from_str(&tidegate_server::openapi_json()).expect("JSON");
    let described: usize = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .map(|item| item.as_object().map_or(0, serde_json::Map::len))
        .sum();
    assert_eq!(described, CALLS.len(), "a route without a row in this table");
    api.stop().await;
}

#[tokio::test]
async fn who_comes_first_is_told_first() {
    let api = Api::with(tokens(), false, Limits::default()).await;
    let big = vec![b'x'; 2 << 20];
    let reader = ("authorization", "Bearer reader");
    let shop = ("authorization", "bearer shop");
    for (method, path, headers, body, want) in [
        ("POST", "/v1/nope", vec![], &b""[..], "not-found"),
        ("PATCH", "/v1/orders", vec![], b"", "method-not-allowed"),
        ("POST", "/v1/orders", vec![("authorization", "Basic cmVhZGVy")], &big, "unauthenticated"),
        ("POST", "/v1/orders", vec![reader], &big, "forbidden"),
        ("POST", "/v1/orders", vec![shop, ("origin", "https://evil.example")], &big, "forbidden-origin"),
        ("POST", "/v1/orders", vec![shop, ("host", "evil.example")], b"{}", "forbidden-origin"),
        ("POST", "/v1/orders", vec![shop], &big, "too-large"),
        ("POST", "/v1/orders", vec![shop], b"{", "unsupported-media-type"),
        ("POST", "/v1/orders", vec![shop, ("content-type", "text/plain")], b"{", "unsupported-media-type"),
        ("POST", "/v1/orders", vec![shop, ("content-type", "application/json; charset=utf-8")], b"{", "malformed"),
        ("POST", "/v1/orders", vec![shop], b"", "malformed"),
        ("POST", "/v1/orders", vec![shop, ("content-type", "application/json")], b"[]", "invalid"),
        ("POST", "/v1/admin/clock", vec![shop], b"", "not-found"),
    ] {
        let reply = api.raw(method, path, &headers, body).await;
        assert_eq!(reply.code(), want, "{method} {path} {headers:?}");
    }
    api.stop().await;
}

#[tokio::test]
async fn the_open_needs_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let parts = tidegate::Embedded::at(folder.path().join("ledger.db")).open().await.expect("a ledger");
    let tidegate = tidegate::Tidegate::start(parts, tidegate::Options::default()).await.expect("an instance");
    let config = |tokens, manual_clock| ServerConfig {
        listen: "0.0.0.0:0".parse().expect("an address"),
        tokens,
        manual_clock,
        limits: Limits::default(),
        surface: Surface::Whole,
        namespaces: Vec::new(),
        redis: None,
    };
    let refused = |config| Server::bind(config, tidegate.clone()).err().expect("a refusal").to_string();
    assert!(refused(config(Vec::new(), false)).contains("tidegate token"));
    assert!(refused(config(tokens(), true)).contains("manual clock"));
    let twice = [tokens(), tokens()].concat();
    assert!(refused(config(twice, false)).contains("the same"));
    assert!(Server::bind(config(tokens(), false), tidegate.clone()).is_ok());
}
