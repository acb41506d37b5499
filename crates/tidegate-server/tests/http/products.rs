//! Product pages, through the cache.

use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_server::install_metrics;

use super::client::Api;

#[tokio::test]
async fn a_page_says_where_it_comes_from_and_shows_every_change_at_once() {
    let api = Api::start().await;
    let price =
        |amount: i64| json!({"price": {"amount": amount, "currency": "EUR"}, "attributes": {"b": 1.50, "a": [2]}});
    api.sku("mug", 1).await;
    api.send("PUT", "/v1/skus/mug", price(100)).await;
    let first = api.get("/v1/products/mug").await;
    assert_eq!((first.status, first.header("x-cache"), first.header("age")), (200, "miss", "0"), "{first:?}");
    assert_eq!(first.json()["price"]["amount"], 100);
    let second = api.get("/v1/products/mug").await;
    assert_eq!((second.header("x-cache"), second.body.as_slice()), ("hit-local", first.body.as_slice()));
    assert_eq!(api.get("/v1/products/mug?read=strong").await.header("x-cache"), "hit");
    for amount in 101..121 {
        let changed = api.send("PUT", "/v1/skus/mug", price(amount)).await;
        assert_eq!((changed.status, changed.header("x-cache-invalidation")), (200, ""), "{changed:?}");
        let page = api.get("/v1/products/mug").await;
        assert_eq!((&page.json()["price"]["amount"], page.header("x-cache")), (&json!(amount), "miss"));
    }
    // Stock is joined at the read, and makes nothing old.
    assert_eq!(api.place("o", "mug", 1).await.status, 201);
    let sold_out = api.get("/v1/products/mug").await;
    assert_eq!((&sold_out.json()["in_stock"], sold_out.header("x-cache")), (&json!(false), "hit-local"));
    assert_eq!(api.raw("DELETE", "/v1/skus/mug", &[], b"").await.status, 204);
    assert_eq!(api.get("/v1/products/mug").await.header("x-cache"), "miss", "archiving changes the card");
    api.stop().await;
}

#[tokio::test]
async fn what_does_not_exist_is_remembered_until_it_does() {
    let api = Api::start().await;
    for asked in 0..3 {
        let none = api.get("/v1/products/new").await;
        assert_eq!((none.status, none.code().as_str()), (404, "unknown-sku"), "{none:?}");
        // The first is loaded, if the membership filter is not there yet.
        let from = none.header("x-cache");
        assert!(from == "negative" || asked == 0 && from == "miss", "{none:?}");
    }
    api.sku("new", 3).await;
    let page = api.get("/v1/products/new").await;
    assert_eq!((page.status, &page.json()["in_stock"]), (200, &json!(true)));
    let batch = json!({"skus": [{"sku": "one", "on_hand": 1}, {"sku": "new", "title": "N"}]});
    assert_eq!(api.get("/v1/products/one").await.status, 404);
    assert_eq!(api.send("POST", "/v1/skus:batch", batch).await.status, 200);
    assert_eq!(api.get("/v1/products/one").await.status, 200);
    assert_eq!(api.get("/v1/products/new").await.json()["title"], "N");
    api.stop().await;
}

/// A crowd that asks for 50,000 SKUs that do not exist (10,000 in the suite), on connections that it keeps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_skus_does_not_reach_the_ledger() {
    let flood: usize = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 50_000 } else { 10_000 };
    let api = Api::start().await;
    for n in 0..500 {
        api.sku(&format!("known-{n}"), 1).await;
    }
    let begun = Instant::now();
    while !api.tidegate.products().membership().await.unwrap().is_some_and(|filter| filter.complete) {
        assert!(begun.elapsed() < Duration::from_secs(10), "no filter is complete");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let crowd = (0..8).map(|who| tokio::spawn(ask_for_unknown(api.address, who, flood / 8)));
    let mut loaded = 0;
    for one in crowd.collect::<Vec<_>>() {
        loaded += one.await.unwrap();
    }
    assert!(loaded < flood / 1_000, "{loaded} of {flood} reached the ledger");
    for n in 0..500 {
        assert_eq!(api.get(&format!("/v1/products/known-{n}")).await.status, 200);
    }
    api.stop().await;
}

/// How many of so many unknown SKUs were looked up.
async fn ask_for_unknown(address: std::net::SocketAddr, who: usize, count: usize) -> usize {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
    let (from, mut to) = tokio::net::TcpStream::connect(address).await.expect("it listens").into_split();
    let mut from = tokio::io::BufReader::new(from);
    let mut loaded = 0;
    for n in 0..count {
        let request = format!("GET /v1/products/unknown-{who}-{n} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        to.write_all(request.as_bytes()).await.expect("it is sent");
        let (mut length, mut first) = (0, true);
        loop {
            let mut line = String::new();
            from.read_line(&mut line).await.expect("a line");
            let line = line.trim_end().to_ascii_lowercase();
            assert!(!first || line.contains(" 404 "), "{line}");
            first = false;
            if line.is_empty() {
                break;
            }
            loaded += usize::from(line == "x-cache: miss");
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).await.expect("the body");
    }
    loaded
}

#[tokio::test]
async fn the_way_to_read_is_checked() {
    let api = Api::start().await;
    api.sku("mug", 1).await;
    assert_eq!(api.get("/v1/products/mug?read=bounded").await.status, 200);
    for (query, pointer) in [("read=weak", "/read"), ("read=strong&read=strong", "/read"), ("fresh=1", "/fresh")] {
        let refused = api.get(&format!("/v1/products/mug?{query}")).await;
        assert_eq!((refused.status, refused.pointers()), (422, vec![pointer.to_owned()]), "{refused:?}");
    }
    assert_eq!(api.get("/v1/products/%00").await.code(), "unknown-sku");
    api.stop().await;
}

#[tokio::test]
async fn reads_are_many_and_the_metrics_tell_them_apart() {
    // Before the server: what a cache counts goes to the recorder it found.
    install_metrics().expect("a recorder");
    let api = Api::start().await;
    api.sku("busy", 1).await;
    for _ in 0..50 {
        assert_eq!(api.get("/v1/products/busy").await.status, 200);
    }
    // Counters reach the recorder within a moment.
    let wanted = "tidegate_cache_hits_total{namespace=\"products\",level=\"local\"}";
    let begun = Instant::now();
    loop {
        let text = String::from_utf8(api.get("/metrics").await.body).expect("text");
        let hits = text.lines().find_map(|line| line.strip_prefix(wanted)).and_then(|n| n.trim().parse::<u64>().ok());
        if hits.is_some_and(|hits| hits >= 49) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{hits:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    api.stop().await;
}
