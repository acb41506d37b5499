//! Pages, health, metrics, the clock, reconciliation.

use serde_json::{Value, json};
use tidegate_server::install_metrics;

use super::client::Api;

#[tokio::test]
async fn every_problem_has_a_page() {
    let api = Api::start().await;
    let codes: Vec<String> = tidegate_server::problems_markdown()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next().map(str::to_owned))
        .collect();
    assert!(codes.len() > 30);
    for code in codes {
        let page = api.get(&format!("/problems/{code}")).await;
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{code}");
        assert!(String::from_utf8_lossy(&page.body).contains(&code));
        let told = api.raw("GET", &format!("/problems/{code}"), &[("accept", "application/json")], b"").await;
        assert_eq!(told.json()["code"], code.as_str());
    }
    api.stop().await;
}

#[tokio::test]
async fn pages_load_nothing_from_elsewhere() {
    let api = Api::start().await;
    for path in ["/", "/docs", "/problems/stale"] {
        let page = api.get(path).await;
        let html = String::from_utf8(page.body.clone()).expect("UTF-8");
        assert_eq!(page.status, 200, "{path}");
        assert!(!html.contains("http://") && !html.contains("https://"), "{path}");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
    }
    let html = String::from_utf8(api.get("/").await.body).expect("UTF-8");
    for part in ["<b><span class=ready>Ready</span></b>", "<span>Newest event</span>", "<b class=long>", ".tile>span{"]
    {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    let html = String::from_utf8(api.get("/docs").await.body).expect("UTF-8");
    let document: Value = api.get("/openapi.json").await.json();
    for path in document["paths"].as_object().expect("paths").keys() {
        assert!(html.contains(path.as_str()), "{path} is not on the page");
    }
    api.stop().await;
}

#[tokio::test]
async fn health_readiness_and_metrics() {
    install_metrics().expect("a recorder");
    let api = Api::start().await;
    let text = String::from_utf8(api.get("/metrics").await.body).expect("UTF-8");
    let catalogue = tidegate_server::metrics_markdown();
    let counters = catalogue.lines().filter(|line| line.contains("| counter |") && line.contains("| - |"));
    let counters: Vec<&str> = counters.filter_map(|line| line.split('`').nth(1)).collect();
    assert!(counters.len() > 10, "{catalogue}");
    for name in counters {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name} is not there from the start");
    }
    assert!(text.contains("tidegate_drift_total{invariant=\"I9\"} "), "{text}");
    assert_eq!(api.get("/healthz").await.json(), json!({"status": "ok"}));
    assert_eq!(api.get("/readyz").await.json(), json!({"status": "ready", "reasons": []}));
    api.sku("mug", 1).await;
    api.place("o", "mug", 1).await;
    let text = String::from_utf8(api.get("/metrics").await.body).expect("UTF-8");
    for line in [
        "tidegate_http_requests_total{method=\"POST\",route=\"/v1/orders\",status=\"201\"} ",
        "tidegate_http_request_seconds_bucket{method=\"POST\",route=\"/v1/orders\",status=\"201\",le=\"0.001\"} ",
        "# TYPE tidegate_commit_batch histogram",
        "tidegate_http_requests_in_flight ",
        "tidegate_http_connections ",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    api.stop().await;
}

#[tokio::test]
async fn the_clock_and_reconciliation() {
    let api = Api::start().await;
    let before = api.get("/v1/admin/clock").await.json();
    assert_eq!((&before["manual"], &before["stepped"]), (&json!(true), &json!(false)));
    assert_eq!(before["catching_up"], false);
    let moved = api.send("POST", "/v1/admin/clock", json!({"advance_ms": 1000})).await;
    assert_eq!(moved.status, 200);
    assert!(moved.json()["now"].as_str() > before["now"].as_str());
    assert_eq!(api.raw("POST", "/v1/admin/clock/accept", &[], b"").await.status, 200);
    api.sku("mug", 5).await;
    api.place("o", "mug", 1).await;
    let report = api.raw("POST", "/v1/admin/reconcile", &[], b"").await;
    assert_eq!(report.status, 200, "{report:?}");
    assert_eq!((&report.json()["findings"], &report.json()["repaired"]), (&json!([]), &json!(0)));
    assert!(report.json()["checked"].as_i64().is_some_and(|n| n > 0));
    for _ in 0..60 {
        // As far as the calendar goes, and beyond: refused, not broken.
        let reply = api.send("POST", "/v1/admin/clock", json!({"advance_ms": 3_155_760_000_000_i64})).await;
        assert!(reply.status == 200 || reply.status == 422, "{reply:?}");
    }
    assert_eq!(api.get("/v1/orders/o").await.status, 200);
    api.stop().await;
}
