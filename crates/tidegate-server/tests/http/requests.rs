//! Addresses, methods, queries, and what HTTP itself lets go wrong.

use super::client::Api;

#[tokio::test]
async fn addresses_and_methods() {
    let api = Api::start().await;
    for (method, path, status, code) in [
        ("GET", "/v1/nope", 404, "not-found"),
        ("GET", "/v1/orders/", 404, "not-found"),
        ("GET", "/v1/orders/a/b/c/d/e/f/g/h/i", 404, "not-found"),
        ("GET", "/problems/none-such", 404, "not-found"),
        ("OPTIONS", "/v1/orders", 405, "method-not-allowed"),
        ("DELETE", "/v1/orders", 405, "method-not-allowed"),
        ("BREW", "/v1/orders/x/cancel", 405, "method-not-allowed"),
        ("GET", "/v1/orders/%ff", 400, "malformed"),
        ("GET", "/v1/orders/%zz", 400, "malformed"),
        ("GET", "/v1/orders/%", 400, "malformed"),
        ("GET", "/v1/skus/%0A", 404, "unknown-sku"),
        ("GET", "/v1/skus/%00", 404, "unknown-sku"),
        ("GET", "/v1/orders?limit=%ff", 400, "malformed"),
    ] {
        let reply = api.raw(method, path, &[], b"").await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{method} {path}");
        assert_eq!(reply.header("allow").is_empty(), status != 405, "{method} {path}");
    }
    assert_eq!(api.raw("DELETE", "/v1/orders", &[], b"").await.header("allow"), "GET, HEAD, POST");
    let head = api.raw("HEAD", "/healthz", &[], b"").await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "15", 0));
    api.stop().await;
}

#[tokio::test]
async fn queries() {
    let api = Api::start().await;
    api.sku("a%20b", 1).await;
    for (path, want) in [
        ("/v1/orders?limit=0", vec!["/limit"]),
        ("/v1/orders?limit=501", vec!["/limit"]),
        ("/v1/orders?limit=", vec!["/limit"]),
        ("/v1/orders?limit=+5", vec!["/limit"]),
        ("/v1/orders?limit=1e1", vec!["/limit"]),
        ("/v1/orders?limit=1&limit=2", vec!["/limit"]),
        ("/v1/orders?status=lost&sku=&buyer_id=%0A&limit=x", vec!["/status", "/buyer_id", "/sku", "/limit"]),
        ("/v1/orders?lim%2Fit=1", vec!["/lim~1it"]),
        ("/v1/orders?cursor=", vec!["/cursor"]),
        ("/v1/orders/x?verbose=1", vec!["/verbose"]),
        ("/v1/payments?outcome=applied&order_id=a%20b", vec!["/order_id"]),
        ("/v1/refunds?status=paid", vec!["/status"]),
        ("/v1/events?after=-1", vec!["/after"]),
        ("/v1/events?after=9223372036854775808", vec!["/after"]),
        ("/v1/events?cursor=1", vec!["/cursor"]),
        ("/v1/events/stream?after=x", vec!["/after"]),
        ("/v1/skus/a%20b/ledger?cursor=zz", vec!["/cursor"]),
    ] {
        let reply = api.get(path).await;
        assert_eq!(
            (reply.status, reply.code().as_str(), reply.pointers()),
            (422, "invalid", want.iter().map(ToString::to_string).collect()),
            "{path}"
        );
    }
    for path in [
        "/v1/orders?sku=a+b",
        "/v1/orders?sku=a%20b",
        "/v1/orders?",
        "/v1/orders?&",
        "/v1/events?after=9223372036854775807",
        "/healthz?x=1",
        "/metrics?collect[]=1",
    ] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
    api.stop().await;
}

#[tokio::test]
async fn broken_http_is_a_problem_document_too() {
    let api = Api::start().await;
    let host = format!("host: {}\r\n", api.address);
    let big = format!("GET /healthz HTTP/1.1\r\n{host}x: {}\r\n\r\n", "y".repeat(64 << 10));
    let many = format!("GET /healthz HTTP/1.1\r\n{host}{}\r\n", "x: y\r\n".repeat(200));
    let long = format!("GET /{} HTTP/1.1\r\n{host}\r\n", "x".repeat(66_000));
    for (bytes, status, code) in [
        (big.as_str(), 431, "headers-too-large"),
        (many.as_str(), 431, "headers-too-large"),
        (long.as_str(), 431, "headers-too-large"),
        ("nonsense\r\n\r\n", 400, "malformed"),
        ("GET /healthz HTTP/9.9\r\n\r\n", 400, "malformed"),
        ("GET /a b HTTP/1.1\r\n\r\n", 400, "malformed"),
        ("GET /healthz HTTP/1.1\r\nbad header\r\n\r\n", 400, "malformed"),
        ("GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n", 400, "malformed"),
        ("GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n", 400, "malformed"),
        (
            "GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            403,
            "forbidden-origin",
        ),
        ("OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 404, "not-found"),
    ] {
        let reply = api.bytes(bytes.as_bytes()).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{}", &bytes[..bytes.len().min(60)]);
        assert_eq!(reply.header("content-length"), reply.body.len().to_string());
    }
    assert_eq!(api.bytes(b"GET /healthz HTTP/1.0\r\n\r\n").await.status, 200);
    api.stop().await;
}
