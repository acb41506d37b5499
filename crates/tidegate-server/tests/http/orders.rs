//! The life of an order, over HTTP.

use serde_json::{Value, json};

use super::client::Api;

#[tokio::test]
async fn an_order_from_placed_to_fulfilled() {
    let api = Api::start().await;
    let card = json!({"title": "Mug", "price": {"amount": 1299, "currency": "EUR"}, "on_hand": 5, "attributes": {"b": 1, "a": [1.5, null]}});
    assert_eq!(api.send("PUT", "/v1/skus/mug", card).await.status, 201);
    let body =
        json!({"order_id": "o-1", "buyer_id": "b", "lines": [{"sku": "mug", "quantity": 2}], "metadata": {"cart": 7}});
    let placed = api.send("POST", "/v1/orders", body.clone()).await;
    assert_eq!(
        (placed.status, placed.header("location"), placed.header("etag")),
        (201, "/v1/orders/o-1", "\"1\""),
        "{placed:?}"
    );
    let order = placed.json();
    assert_eq!(order["status"], "pending");
    assert_eq!(
        order["lines"],
        json!([{"sku": "mug", "quantity": 2, "unit_price": {"amount": 1299, "currency": "EUR"}}])
    );
    assert_eq!(order["total"], json!({"amount": 2598, "currency": "EUR"}));
    assert_eq!(order["metadata"], json!({"cart": 7}));
    assert_eq!(order["payments"], json!([]));
    assert_eq!(order["pay_by"], order["release_at"]);
    assert!(order["placed_at"].as_str().is_some_and(|at| at.len() == 24 && at.ends_with('Z')));

    let again = api.send("POST", "/v1/orders", body).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, "true"));
    let other = api.place("o-1", "mug", 3).await;
    assert_eq!((other.status, other.code().as_str()), (422, "idempotency-mismatch"));

    let extended = api.send("POST", "/v1/orders/o-1/extend", json!({"hold_seconds": 3600})).await;
    assert_eq!(extended.status, 200);
    assert!(extended.json()["pay_by"].as_str() > order["pay_by"].as_str());
    assert_eq!(
        api.send("POST", "/v1/orders/o-1/extend", json!({"hold_seconds": 90_000})).await.code(),
        "hold-cap-exceeded"
    );

    let paid = api
        .send(
            "POST",
            "/v1/orders/o-1/payments",
            json!({"payment_id": "p-1", "captured_at": "2026-11-29T16:08:10+01:00"}),
        )
        .await;
    assert_eq!(paid.status, 200, "{paid:?}");
    assert_eq!(paid.json()["outcome"], "applied");
    let payment = &paid.json()["order"]["payments"][0];
    assert_eq!(payment["captured_at"], "2026-11-29T15:08:10.000Z");
    assert_eq!((&payment["amount"], &payment["currency"]), (&json!(2598), &json!("EUR")));
    let fulfilled = api.raw("POST", "/v1/orders/o-1/fulfil", &[], b"").await;
    assert_eq!((fulfilled.status, &fulfilled.json()["status"]), (200, &json!("fulfilled")));
    assert_eq!(api.raw("POST", "/v1/orders/o-1/cancel", &[], b"").await.code(), "illegal-transition");

    let read = api.get("/v1/orders/o-1").await;
    assert_eq!(read.header("etag"), format!("\"{}\"", read.json()["version"]));
    let types: Vec<Value> = api.get("/v1/orders/o-1/events").await.json()["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|e| e["type"].clone())
        .collect();
    assert_eq!(types, ["order.placed", "order.extended", "order.paid", "order.fulfilled"]);
    api.stop().await;
}

#[tokio::test]
async fn refusals_have_their_status_and_what_a_caller_needs() {
    let api = Api::start().await;
    api.sku("one", 1).await;
    assert_eq!(
        api.send("PUT", "/v1/skus/few", json!({"on_hand": 9, "max_per_order": 2, "max_per_buyer": 3})).await.status,
        201
    );
    let short = api.place("a", "one", 2).await;
    assert_eq!((short.status, short.code().as_str()), (409, "insufficient-stock"));
    assert_eq!((&short.json()["sku"], &short.json()["available"]), (&json!("one"), &json!(1)));
    let unknown = api.place("a", "none", 1).await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "unknown-sku"));
    let limited = api.place("a", "few", 3).await;
    assert_eq!((limited.status, limited.code().as_str(), &limited.json()["limit"]), (409, "limit-reached", &json!(2)));
    assert_eq!(api.get("/v1/orders/nope").await.code(), "unknown-order");
    assert_eq!(api.get("/v1/orders/a%20b").await.code(), "unknown-order");
    assert_eq!(api.get("/v1/orders/nope/events").await.code(), "unknown-order");
    assert_eq!(api.raw("POST", "/v1/orders/nope/fulfil", &[], b"").await.code(), "unknown-order");
    assert_eq!(api.send("POST", "/v1/payments/nope/refund", json!({})).await.code(), "unknown-payment");
    assert_eq!(api.send("POST", "/v1/refunds/nope/settle", json!({})).await.code(), "unknown-refund");
    assert_eq!(api.send("POST", "/v1/parked/nope/retry", json!({})).await.code(), "unknown-order");

    let gone = api.send("POST", "/v1/orders/later/cancel", json!({})).await;
    assert_eq!((gone.status, gone.json()), (202, json!({"id": "later", "status": "cancelled"})));
    assert_eq!(api.place("later", "one", 1).await.code(), "already-cancelled");
    api.stop().await;
}

#[tokio::test]
async fn a_key_stands_for_an_order() {
    let api = Api::start().await;
    api.sku("mug", 5).await;
    let body = json!({"buyer_id": "b", "lines": [{"sku": "mug", "quantity": 1}]}).to_string();
    let json_type = ("content-type", "application/json");
    let missing = api.raw("POST", "/v1/orders", &[json_type], body.as_bytes()).await;
    assert_eq!((missing.status, missing.code().as_str()), (400, "idempotency-key-required"));
    for bad in ["a b", "\u{e9}", &"x".repeat(129)] {
        let refused = api.raw("POST", "/v1/orders", &[json_type, ("idempotency-key", bad)], body.as_bytes()).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "idempotency-key-required"), "{bad}");
    }
    let first = api.raw("POST", "/v1/orders", &[json_type, ("idempotency-key", "k-1")], body.as_bytes()).await;
    let second = api.raw("POST", "/v1/orders", &[json_type, ("idempotency-key", "k-1")], body.as_bytes()).await;
    assert_eq!((first.status, second.status), (201, 200), "{first:?}");
    assert_eq!(first.json()["id"], second.json()["id"]);
    api.stop().await;
}

#[tokio::test]
async fn a_batch_answers_each_in_order() {
    let api = Api::start().await;
    api.sku("mug", 2).await;
    let order = |id: &str, quantity: Value| json!({"order_id": id, "buyer_id": "b", "lines": [{"sku": "mug", "quantity": quantity}]});
    let keyless = json!({"buyer_id": "b", "lines": [{"sku": "mug", "quantity": 1}]});
    let orders = [
        order("a", json!(1)),
        order("b", json!("1")),
        keyless,
        json!(7),
        order("c", json!(1)),
        order("d", json!(1)),
        order("a", json!(1)),
    ];
    let reply = api.send("POST", "/v1/orders:batch", json!({ "orders": orders })).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let results = reply.json()["results"].clone();
    let told: Vec<(i64, &str)> = results
        .as_array()
        .expect("results")
        .iter()
        .map(|r| {
            (
                r["status"].as_i64().expect("a status"),
                r["problem"]["code"].as_str().or(r["order"]["id"].as_str()).expect("an answer"),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (201, "a"),
            (422, "invalid"),
            (400, "idempotency-key-required"),
            (422, "invalid"),
            (201, "c"),
            (409, "insufficient-stock"),
            (200, "a")
        ]
    );
    assert_eq!(results[1]["problem"]["errors"][0]["pointer"], "/lines/0/quantity");
    for bad in [json!({}), json!({"orders": 5}), json!({"orders": vec![json!({}); 501]})] {
        let refused = api.send("POST", "/v1/orders:batch", bad).await;
        assert_eq!((refused.status, refused.pointers()), (422, vec!["/orders".to_owned()]));
    }
    api.stop().await;
}

#[tokio::test]
async fn lists_filter_and_page() {
    let api = Api::start().await;
    api.sku("mug", 50).await;
    for i in 0..7 {
        assert_eq!(api.place(&format!("o-{i}"), "mug", 1).await.status, 201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/v1/orders?buyer_id=b&sku=mug&status=pending&limit=3{cursor}")).await.json();
        seen.extend(
            page["items"].as_array().expect("items").iter().map(|o| o["id"].as_str().expect("an id").to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["o-6", "o-5", "o-4", "o-3", "o-2", "o-1", "o-0"]);
    assert_eq!(api.get("/v1/orders?cursor=forged").await.pointers(), ["/cursor"]);
    api.stop().await;
}

#[tokio::test]
async fn money_finds_its_way_back() {
    let api = Api::start().await;
    api.sku("mug", 5).await;
    let early = api
        .send("POST", "/v1/orders/o-1/payments", json!({"payment_id": "early", "amount": 100, "currency": "EUR"}))
        .await;
    assert_eq!(
        (early.status, &early.json()["outcome"], &early.json()["order"]),
        (202, &json!("unmatched"), &Value::Null)
    );
    assert_eq!(api.get("/v1/payments?outcome=unmatched").await.json()["items"][0]["payment_id"], "early");
    let refund = api.send("POST", "/v1/payments/early/refund", json!({})).await;
    assert_eq!(refund.status, 200, "{refund:?}");
    let refund = refund.json();
    assert_eq!(
        (&refund["status"], &refund["order_id"], &refund["payment_id"]),
        (&json!("due"), &json!("o-1"), &json!("early"))
    );
    let id = refund["refund_id"].as_str().expect("an id");
    assert_eq!(api.get("/v1/refunds?status=due&order_id=o-1").await.json()["items"][0]["refund_id"], id);
    let path = format!("/v1/refunds/{id}/settle");
    assert_eq!(api.raw("POST", &path, &[], b"").await.json()["status"], "settled");
    assert_eq!(api.raw("POST", &path, &[], b"").await.code(), "already-settled");
    api.stop().await;
}
