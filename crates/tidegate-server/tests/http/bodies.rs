//! Every field of every body, wrong in every way: always a problem document that points at it, never a fault of ours.

use serde_json::{Value, json};

use super::client::Api;

const JSON: (&str, &str) = ("content-type", "application/json");

/// What stands in for a field's value. Most are wrong for most fields; none may harm.
fn wrong() -> Vec<&'static str> {
    vec![
        "null",
        "true",
        "0",
        "-1",
        "0.5",
        "1e400",
        "-1e400",
        "1e21",
        "9223372036854775807",
        "9223372036854775808",
        "1e0",
        "\"\"",
        "\" \"",
        "\"x\"",
        "\"5\"",
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"a\\nb\"",
        "[]",
        "[[]]",
        "[null]",
        "{}",
        "{\"a\":1e400}",
        "{\"a\":1,\"a\":2}",
        "{\"\":{}}",
        "\"2026-13-01T00:00:00Z\"",
        "\"-000001-01-01T00:00:00Z\"",
        "\"9999-12-31T23:59:59.999Z\"",
    ]
}

/// Every place in `value`, as a pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            found.push(format!("{at}/{name}"));
            places(value, &format!("{at}/{name}"), found);
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, value)| {
            found.push(format!("{at}/{i}"));
            places(value, &format!("{at}/{i}"), found);
        }),
        _ => {}
    }
}

/// `value` as JSON text with `text` at `pointer`.
fn with(value: &Value, pointer: &str, text: &str) -> String {
    let mut changed = value.clone();
    *changed.pointer_mut(pointer).expect("a place") = json!("@@@");
    changed.to_string().replace("\"@@@\"", text)
}

#[tokio::test]
async fn every_field_of_every_body() {
    let api = Api::start().await;
    api.sku("mug-blue", 1_000_000).await;
    let document: Value = serde_json::from_str(&tidegate_server::openapi_json()).expect("JSON");
    let mut tried = 0;
    for (template, item) in document["paths"].as_object().expect("paths") {
        for (verb, operation) in item.as_object().expect("operations") {
            let content = &operation["requestBody"]["content"]["application/json"];
            if content.is_null() || verb == "get" {
                continue;
            }
            let path = template.replace("{sku}", "mug-blue").replace(['{', '}'], "");
            let example = &content["example"];
            let mut found = vec![String::new()];
            places(example, "", &mut found);
            for pointer in found {
                for text in wrong() {
                    tried += 1;
                    let body = with(example, &pointer, text);
                    let reply = api
                        .raw(
                            &verb.to_uppercase(),
                            &path,
                            &[JSON, ("idempotency-key", &format!("k{tried}"))],
                            body.as_bytes(),
                        )
                        .await;
                    // Queues and locks have no store here; `leases` has a fuzz of its own.
                    let judged = reply.status < 500 || reply.code() == "store-unavailable";
                    assert!(judged, "{verb} {path} {body} {reply:?}");
                    if reply.status >= 400 {
                        reply.code();
                    }
                }
            }
        }
    }
    assert!(tried > 1_000, "only {tried}");
    let health = api.get("/v1/skus/mug-blue").await.json();
    assert_eq!(
        health["on_hand"].as_i64(),
        Some(health["available"].as_i64().unwrap_or(0) + health["held"].as_i64().unwrap_or(0))
    );
    api.stop().await;
}

#[tokio::test]
async fn faults_are_pointed_at_all_at_once() {
    let api = Api::start().await;
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
    let deeper = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (method, path, body, want) in [
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a b\",\"buyer_id\":7,\"lines\":[{\"sku\":\"\",\"quantity\":\"5\"},3],\"surprise\":1,\"hold_seconds\":0}",
            vec![
                "/surprise",
                "/buyer_id",
                "/lines/0/quantity",
                "/lines/1",
                "/order_id",
                "/lines/0/sku",
                "/hold_seconds",
            ],
        ),
        ("POST", "/v1/orders", "{\"order_id\":\"a\"}", vec!["/buyer_id", "/lines"]),
        ("POST", "/v1/orders", "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[]}", vec!["/lines"]),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\"}]}",
            vec!["/lines/0/quantity"],
        ),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"order_id\":\"b\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\",\"quantity\":1,\"quantity\":2}]}",
            vec!["/order_id", "/lines/0/quantity"],
        ),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\",\"quantity\":1}],\"a/b~c\":1}",
            vec!["/a~1b~0c"],
        ),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\",\"quantity\":1}],\"metadata\":{\"x\":[1e400],\"y\":1,\"y\":2}}",
            vec!["/metadata/x/0", "/metadata/y"],
        ),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\",\"quantity\":1}],\"metadata\":{\"a\":12345678901234567891234,\"b\":[18446744073709551615,18446744073709551616]}}",
            vec!["/metadata/a", "/metadata/b/1"],
        ),
        ("PUT", "/v1/skus/x", "{\"attributes\":{\"a\":-9223372036854775809}}", vec!["/attributes/a"]),
        (
            "POST",
            "/v1/orders",
            "{\"order_id\":\"a\",\"buyer_id\":\"b\",\"lines\":[{\"sku\":\"x\",\"quantity\":1}],\"metadata\":[]}",
            vec!["/metadata"],
        ),
        ("POST", "/v1/orders", "[]", vec![""]),
        ("POST", "/v1/orders", "\"x\"", vec![""]),
        (
            "POST",
            "/v1/orders/x%20y/payments",
            "{\"payment_id\":\"\",\"amount\":0,\"currency\":\"eur\",\"captured_at\":\"yesterday\"}",
            vec!["/captured_at", "/id"],
        ),
        (
            "POST",
            "/v1/orders/x/payments",
            "{\"payment_id\":\"\",\"amount\":0,\"currency\":\"eur\",\"captured_at\":\"yesterday\"}",
            vec!["/captured_at", "/payment_id", "/amount", "/currency"],
        ),
        ("POST", "/v1/orders/x/extend", "{}", vec!["/hold_seconds"]),
        ("POST", "/v1/orders/x/fulfil", "{\"now\":true}", vec!["/now"]),
        (
            "PUT",
            "/v1/skus/%20x",
            "{\"on_hand\":null,\"price\":{\"amount\":-1,\"currency\":\"EUR\"},\"title\":7}",
            vec!["/title", "/sku"],
        ),
        (
            "PUT",
            "/v1/skus/x",
            "{\"price\":{\"amount\":\"1\",\"cents\":1}}",
            vec!["/price/cents", "/price/currency", "/price/amount"],
        ),
        (
            "PUT",
            "/v1/skus/x",
            "{\"price\":5,\"max_per_order\":0,\"on_hand\":-1}",
            vec!["/price", "/max_per_order", "/on_hand"],
        ),
        ("PUT", "/v1/skus/x", "{\"attributes\":[1]}", vec!["/attributes"]),
        ("POST", "/v1/admin/clock", "{\"advance_ms\":-1}", vec!["/advance_ms"]),
        ("PUT", "/v1/skus/x", deep.as_str(), vec!["/a"]),
        ("PUT", "/v1/skus/x", deeper.as_str(), vec![""]),
    ] {
        let reply = api.raw(method, path, &[JSON], body.as_bytes()).await;
        let short = &body[..body.len().min(200)];
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid"), "{method} {path} {short}");
        let pointers = reply.pointers();
        if body.len() < 1_000 && !body.contains("[[[") {
            assert_eq!(pointers, want, "{method} {path} {short}");
        }
    }
    api.stop().await;
}

#[tokio::test]
async fn what_is_no_json_is_malformed() {
    let api = Api::start().await;
    for body in [
        &b"{"[..],
        b"\xff\xfe",
        b"{}x",
        b"{} {}",
        b"nul",
        b"{'a':1}",
        b"{\"a\":01}",
        b"\xef\xbb\xbf{}",
        b"{\"\\ud800\":1}",
        b" ",
        b"{\"a\":NaN}",
    ] {
        let reply = api.raw("POST", "/v1/orders", &[JSON], body).await;
        assert_eq!((reply.status, reply.code().as_str()), (400, "malformed"), "{body:?}");
    }
    api.stop().await;
}

#[tokio::test]
async fn sizes() {
    let api = Api::start().await;
    api.sku("x", 9).await;
    let padded = |bytes: usize| {
        let order = json!({"order_id": "a", "buyer_id": "b", "lines": [{"sku": "x", "quantity": 1}]}).to_string();
        format!("{order}{}", " ".repeat(bytes - order.len()))
    };
    assert_eq!(api.raw("POST", "/v1/orders", &[JSON], padded(1 << 20).as_bytes()).await.status, 201);
    assert_eq!(api.raw("POST", "/v1/orders", &[JSON], padded((1 << 20) + 1).as_bytes()).await.code(), "too-large");
    let batch = format!("{{\"orders\":[]{}}}", " ".repeat((8 << 20) - 13));
    assert_eq!(api.raw("POST", "/v1/orders:batch", &[JSON], batch.as_bytes()).await.status, 200);
    let batch = format!("{batch} ");
    assert_eq!(api.raw("POST", "/v1/orders:batch", &[JSON], batch.as_bytes()).await.code(), "too-large");
    let crowd = format!("{{\"orders\":[{}0]}}", "0,".repeat(2_000_000));
    assert_eq!(api.raw("POST", "/v1/orders:batch", &[JSON], crowd.as_bytes()).await.code(), "invalid");
    let chunk = "x".repeat(1 << 16);
    let chunked = format!("{:x}\r\n{chunk}\r\n", chunk.len()).repeat(17);
    let head = format!(
        "POST /v1/orders HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        api.address
    );
    assert_eq!(api.bytes(format!("{head}{chunked}0\r\n\r\n").as_bytes()).await.code(), "too-large");
    assert_eq!(api.bytes(format!("{head}2\r\n{{}}\r\n0\r\n\r\n").as_bytes()).await.code(), "idempotency-key-required");
    api.stop().await;
}
