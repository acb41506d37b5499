//! SKUs and their stock, over HTTP.

use serde_json::json;

use super::client::Api;

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_card_is_patched_and_versioned() {
    let api = Api::start().await;
    let created = api.send("PUT", "/v1/skus/a%2Fb", json!({"title": "Mug", "on_hand": 5, "max_per_order": 2})).await;
    assert_eq!((created.status, created.header("etag")), (201, "\"1\""), "{created:?}");
    assert_eq!(created.json()["sku"], "a/b");
    let changed =
        api.send("PUT", "/v1/skus/a%2Fb", json!({"max_per_order": null, "on_sale_from": "2026-01-01T00:00:00Z"})).await;
    assert_eq!(
        (changed.status, &changed.json()["title"], &changed.json()["max_per_order"]),
        (200, &json!("Mug"), &json!(null))
    );
    let tag = changed.header("etag").to_owned();
    for (sent, status) in
        [(tag.as_str(), 200), ("\"1\"", 412), ("*", 200), ("W/\"1\"", 412), ("\"x\"", 412), ("1", 422)]
    {
        let reply = api.raw("PUT", "/v1/skus/a%2Fb", &[JSON, ("if-match", sent)], b"{}").await;
        assert_eq!(reply.status, status, "{sent} {reply:?}");
    }
    for sent in ["*", "\"1\""] {
        let reply = api.raw("PUT", "/v1/skus/new", &[JSON, ("if-match", sent)], b"{}").await;
        assert_eq!((reply.status, reply.code().as_str()), (412, "stale"), "{sent}");
    }
    assert_eq!(api.send("PUT", "/v1/skus/a%2Fb", json!({"on_hand": 6})).await.code(), "stock-exists");
    let product = api.get("/v1/products/a%2Fb").await;
    assert_eq!(
        (product.header("x-cache"), product.header("age"), &product.json()["in_stock"]),
        ("miss", "0", &json!(true))
    );
    assert_eq!(api.get("/v1/products/none").await.code(), "unknown-sku");
    assert_eq!(api.raw("DELETE", "/v1/skus/a%2Fb", &[], b"").await.status, 204);
    assert_eq!(api.place("o", "a/b", 1).await.code(), "archived");
    assert_eq!(api.raw("DELETE", "/v1/skus/none", &[], b"").await.code(), "unknown-sku");
    api.stop().await;
}

#[tokio::test]
async fn counting_by_hand_is_safe_to_repeat() {
    let api = Api::start().await;
    api.sku("mug", 5).await;
    api.place("o", "mug", 4).await;
    let path = "/v1/skus/mug/adjustments";
    let keyless = api.send("POST", path, json!({"delta": 1, "reason": "x"})).await;
    assert_eq!((keyless.status, keyless.code().as_str()), (400, "idempotency-key-required"));
    let adjust = async |key: &str, delta: i64| {
        let body = json!({"delta": delta, "reason": "count"}).to_string();
        api.raw("POST", path, &[JSON, ("idempotency-key", key)], body.as_bytes()).await
    };
    assert_eq!(adjust("k1", -2).await.code(), "below-committed");
    let first = adjust("k2", 3).await;
    assert_eq!(
        (first.status, &first.json()["delta"], &first.json()["sku"]["on_hand"]),
        (201, &json!(3), &json!(8)),
        "{first:?}"
    );
    let second = adjust("k2", 3).await;
    assert_eq!((second.status, second.header("idempotent-replayed")), (200, "true"));
    assert_eq!(adjust("k2", 4).await.code(), "idempotency-mismatch");
    let ledger = api.get("/v1/skus/mug/ledger").await.json();
    let kinds: Vec<_> = ledger["items"].as_array().expect("items").iter().map(|i| i["kind"].clone()).collect();
    assert_eq!(kinds, ["created", "held", "adjusted"]);
    assert_eq!(ledger["items"][1]["order_id"], "o");
    assert_eq!(ledger["items"][2]["after"], json!({"on_hand": 8, "held": 4, "sold": 0, "available": 4}));
    api.stop().await;
}

#[tokio::test]
async fn a_batch_of_skus() {
    let api = Api::start().await;
    let skus = json!({"skus": [{"sku": "a", "on_hand": 1}, {"sku": " b"}, {"on_hand": 1}, {"sku": "c", "price": {"amount": 1, "currency": "QQQ"}}, {"sku": "a", "title": "A"}]});
    let reply = api.send("POST", "/v1/skus:batch", skus).await.json();
    let statuses: Vec<_> =
        reply["results"].as_array().expect("results").iter().map(|r| r["status"].as_i64().expect("a status")).collect();
    assert_eq!(statuses, [201, 422, 422, 422, 200]);
    assert_eq!(reply["results"][3]["problem"]["errors"][0]["pointer"], "/price/currency");
    assert_eq!(api.get("/v1/skus").await.json()["items"].as_array().map(Vec::len), Some(1));
    api.stop().await;
}
