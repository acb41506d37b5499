//! Bodies, paths and headers of queues and locks: each fault at its place, and nothing a client sends is a 500.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::client::Api;

#[tokio::test]
async fn each_fault_has_its_place() {
    let api = Api::leasing().await;
    let long = "x".repeat(65);
    let items = json!([{"id": "t", "receipt": "1"}]);
    for (method, path, body, want) in [
        ("PUT", "/v1/queues/q/tasks/t", json!({}), vec!["/due_at"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 1, "due_at": "2026-01-01T00:00:00Z"}), vec!["/delay_ms"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": -1}), vec!["/delay_ms"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 3_155_760_000_001_i64}), vec!["/delay_ms"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 1.5}), vec!["/delay_ms"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"due_at": "soon"}), vec!["/due_at"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"due_at": "0000-01-01T00:00:00Z"}), vec!["/due_at"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 1, "if": "maybe"}), vec!["/if"]),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 1, "iff": "always"}), vec!["/iff"]),
        ("PUT", "/v1/queues/Q/tasks/%20", json!({"delay_ms": 1, "x": 1}), vec!["/queue", "/id", "/x"]),
        ("PUT", &format!("/v1/queues/{long}/tasks/t"), json!({"delay_ms": 1}), vec!["/queue"]),
        (
            "POST",
            "/v1/queues/q/claim",
            json!({"max": 0, "lease_ms": 99, "wait_ms": 30_001}),
            vec!["/max", "/lease_ms", "/wait_ms"],
        ),
        (
            "POST",
            "/v1/queues/q/claim",
            json!({"max": 513, "lease_ms": 3_600_001, "wait_ms": -1}),
            vec!["/max", "/lease_ms", "/wait_ms"],
        ),
        ("POST", "/v1/queues/q/ack", json!({}), vec!["/items"]),
        ("POST", "/v1/queues/q/ack", json!({"items": []}), vec!["/items"]),
        ("POST", "/v1/queues/q/ack", json!({"items": [{"id": "t"}]}), vec!["/items/0/receipt"]),
        (
            "POST",
            "/v1/queues/q/ack",
            json!({"items": [{"id": "", "receipt": 1}]}),
            vec!["/items/0/id", "/items/0/receipt"],
        ),
        ("POST", "/v1/queues/q/extend", json!({"items": items}), vec!["/lease_ms"]),
        (
            "POST",
            "/v1/queues/q/retry",
            json!({"items": items, "delay_ms": -1, "error": "x".repeat(1_025)}),
            vec!["/delay_ms", "/error"],
        ),
        ("POST", "/v1/queues/q/retry", json!({"items": items, "error": "a\0b"}), vec!["/error"]),
        ("POST", "/v1/queues/q/dead/t/requeue", json!({"delay_ms": -1}), vec!["/delay_ms"]),
        ("GET", "/v1/queues/q/tasks?state=bogus&limit=0", Value::Null, vec!["/limit", "/state"]),
        ("GET", "/v1/queues/q/tasks?cursor=forged", Value::Null, vec!["/cursor"]),
        ("GET", "/v1/queues?cursor=forged", Value::Null, vec!["/cursor"]),
        ("DELETE", "/v1/queues/q/dead?before=soon", Value::Null, vec!["/before"]),
        ("POST", "/v1/locks/l", json!({}), vec!["/ttl_ms"]),
        (
            "POST",
            "/v1/locks/l",
            json!({"ttl_ms": 99, "wait_ms": 30_001, "floor": -1}),
            vec!["/ttl_ms", "/wait_ms", "/floor"],
        ),
        ("POST", "/v1/locks/l", json!({"ttl_ms": 86_400_001}), vec!["/ttl_ms"]),
        ("POST", "/v1/locks/l", json!({"ttl_ms": 1_000, "floor": (1_u64 << 52) + 1}), vec!["/floor"]),
        ("POST", "/v1/locks/%20", json!({"ttl_ms": 1_000}), vec!["/name"]),
        ("GET", "/v1/locks/%01", Value::Null, vec!["/name"]),
    ] {
        let reply = if body.is_null() {
            api.raw(method, path, &[], b"").await
        } else {
            api.send(method, path, body.clone()).await
        };
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid"), "{method} {path} {body}: {reply:?}");
        let (mut told, mut want) = (reply.pointers(), want);
        told.sort();
        want.sort_unstable();
        assert_eq!(told, want, "{method} {path} {body}");
    }
    let headers = [("content-type", "application/json"), ("lock-token", "0123456789abcdef")];
    let late = api.raw("PUT", "/v1/locks/l", &headers, br#"{"ttl_ms": 0}"#).await;
    assert_eq!((late.status, late.pointers()), (422, vec!["/ttl_ms".to_owned()]));
    for (text, status) in
        [(&b"{"[..], 400), (b"", 400), (b"[]", 422), (b"\xff", 400), (b"{\"delay_ms\":1,\"delay_ms\":2}", 422)]
    {
        let reply = api.raw("PUT", "/v1/queues/q/tasks/t", &[("content-type", "application/json")], text).await;
        assert_eq!(reply.status, status, "{:?}", String::from_utf8_lossy(text));
    }
    let plain = api.raw("PUT", "/v1/queues/q/tasks/t", &[], br#"{"delay_ms":1}"#).await;
    assert_eq!((plain.status, plain.code().as_str()), (415, "unsupported-media-type"));
    let patched = api.raw("PATCH", "/v1/queues/q/claim", &[], b"").await;
    assert_eq!((patched.status, patched.header("allow")), (405, "POST"));
    api.stop().await;
}

#[tokio::test]
async fn instants_at_the_edges_are_kept() {
    let api = Api::leasing().await;
    for (id, due) in [
        ("first", "0001-01-01T00:00:00.000Z"),
        ("last", "9999-12-31T23:59:59.999Z"),
        ("deep", "2045-01-01T00:00:00.123Z"),
    ] {
        let reply = api.send("PUT", &format!("/v1/queues/q/tasks/{id}"), json!({"due_at": due})).await;
        assert_eq!((reply.status, &reply.json()["task"]["due_at"]), (201, &json!(due)));
    }
    let century = api.send("PUT", "/v1/queues/q/tasks/century", json!({"delay_ms": 3_155_760_000_000_i64})).await;
    assert_eq!((century.status, &century.json()["task"]["state"]), (201, &json!("pending")));
    let claimed = api.send("POST", "/v1/queues/q/claim", json!({"max": 512})).await.json();
    let ids: Vec<_> = claimed["tasks"].as_array().expect("tasks").iter().map(|t| t["id"].clone()).collect();
    assert_eq!(ids, ["first"], "the far ones wait");
    api.stop().await;
}

/// Values that fields are tried with.
fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2_i64..600).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({"a": [1]})),
        Just(json!([{"id": "t", "receipt": "1"}])),
        Just(json!([{"id": "t", "delay_ms": 1}, 3, null])),
        Just(json!("2026-11-29T15:08:10.000Z")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_a_client_sends_is_a_fault_of_the_server(
        bodies in prop::collection::vec(
            prop::collection::hash_map(
                prop::sample::select(vec![
                    "due_at", "delay_ms", "payload", "if", "tasks", "id", "max", "lease_ms", "items", "receipt", "error",
                    "ttl_ms", "floor", "x",
                ]),
                junk(),
                0..5,
            ),
            24,
        ),
        tails in prop::collection::vec("[a-z%/?=&.]{0,8}", 24),
    ) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let api = Api::leasing().await;
            let calls = [
                ("PUT", "/v1/queues/q/tasks/t"), ("POST", "/v1/queues/q/tasks:batch"), ("POST", "/v1/queues/q/claim"),
                ("POST", "/v1/queues/q/ack"), ("POST", "/v1/queues/q/release"), ("POST", "/v1/queues/q/extend"),
                ("POST", "/v1/queues/q/retry"), ("POST", "/v1/queues/q/dead/t/requeue"), ("POST", "/v1/locks/l"),
                ("PUT", "/v1/locks/l"), ("DELETE", "/v1/locks/l"), ("GET", "/v1/queues/q/tasks"),
            ];
            for (n, (body, tail)) in bodies.iter().zip(&tails).enumerate() {
                let (method, path) = calls[n % calls.len()];
                let body = serde_json::to_vec(body).expect("JSON");
                for path in [path.to_owned(), format!("{path}{tail}")] {
                    let headers = [("content-type", "application/json"), ("lock-token", "0123456789abcdef")];
                    let reply = api.raw(method, &path, &headers, if method == "GET" { b"" } else { &body }).await;
                    assert!(reply.status < 500, "{method} {path} {}: {reply:?}", String::from_utf8_lossy(&body));
                    if reply.status >= 400 {
                        reply.code();
                    }
                }
            }
            api.stop().await;
        });
    }
}
