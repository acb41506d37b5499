//! `/v1/cache`: what is answered, and what an origin is asked.

use std::time::{Duration, Instant};

use tidegate::cache::Ttl;
use tidegate_server::{Limits, Namespace, Origin as At, Role, Token, hash_token, install_metrics};

use super::client::{Api, Reply};
use super::origin::{Act, Origin};

/// A namespace of an origin on the loopback.
pub fn namespace(name: &str, url: &str) -> Namespace {
    Namespace::new(name, At::new(url, true).expect("an origin"))
}

/// The status, `X-Cache` and, of a problem, its code.
fn told(reply: &Reply) -> (u16, &str, String) {
    let code = if reply.status < 400 { String::new() } else { reply.code() };
    (reply.status, reply.header("x-cache"), code)
}

fn failure(status: u16, from: &'static str, code: &str) -> (u16, &'static str, String) {
    (status, from, code.to_owned())
}

const OK: (u16, &str, String) = (200, "miss", String::new());

#[tokio::test]
async fn a_value_is_loaded_once_kept_and_dropped() {
    let origin =
        Origin::start(|asked, call| Act::typed("application/json; charset=utf-8", format!("{} {call}", asked.path)))
            .await;
    let api = Api::caching(vec![namespace("items", &origin.url("/p/{key}?id={key}"))]).await;
    let path = "/v1/cache/items/a%2Fb";
    let first = api.get(path).await;
    assert_eq!((told(&first), first.header("age")), (OK, "0"), "{first:?}");
    assert_eq!(first.body, b"/p/a%2Fb?id=a%2Fb 1");
    assert_eq!(first.header("content-type"), "application/json; charset=utf-8");
    assert_eq!((first.header("x-content-type-options"), first.header("content-length")), ("nosniff", "19"));
    assert!(first.header("content-security-policy").contains("sandbox"));
    let hit = api.get(path).await;
    assert_eq!((hit.status, hit.header("x-cache"), &hit.body), (200, "hit-local", &first.body));
    let strong = api.get(&format!("{path}?read=strong")).await;
    assert_eq!((strong.status, strong.header("x-cache"), &strong.body), (200, "hit", &first.body));
    assert_eq!(strong.header("content-type"), first.header("content-type"), "kept with the bytes");
    let head = api.raw("HEAD", path, &[], b"").await;
    assert_eq!((head.status, head.header("x-cache"), head.header("content-length")), (200, "hit-local", "19"));
    assert!(head.body.is_empty());
    assert_eq!(origin.calls(), 1);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(api.get(path).await.header("age"), "1");
    // A strong read after a delete never gives what was before, however often.
    for call in 2..10 {
        assert_eq!(api.raw("DELETE", path, &[], b"").await.status, 204);
        let read = api.get(&format!("{path}?read=strong")).await;
        assert_eq!((told(&read), &*read.body), (OK, format!("/p/a%2Fb?id=a%2Fb {call}").as_bytes()));
    }
    // Another key is another value; clearing drops both.
    assert_eq!(told(&api.get("/v1/cache/items/b").await), OK);
    assert_eq!(api.raw("DELETE", "/v1/cache/items", &[], b"").await.status, 204);
    assert_eq!((told(&api.get(path).await), told(&api.get("/v1/cache/items/b").await)), (OK, OK));
    assert_eq!(api.raw("DELETE", "/v1/cache/items/never-seen", &[], b"").await.status, 204);
    api.stop().await;
}

#[tokio::test]
async fn what_is_asked_is_checked() {
    let origin = Origin::start(|asked, _| Act::text(asked.path.clone())).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/p/{key}"))]).await;
    let long = |bytes: usize| "x".repeat(bytes);
    for (method, path, status, pointer) in [
        ("GET", "/v1/cache/items/.", 422, "/key"),
        ("GET", "/v1/cache/items/%2E%2E", 422, "/key"),
        ("GET", "/v1/cache/items/%2e", 422, "/key"),
        ("DELETE", "/v1/cache/items/..", 422, "/key"),
        ("GET", "/v1/cache/items/a%00b", 422, "/key"),
        ("GET", "/v1/cache/items/a%0Ab", 422, "/key"),
        ("GET", "/v1/cache/items/a%C2%85b", 422, "/key"),
        ("GET", "/v1/cache/items/%7F", 422, "/key"),
        ("GET", "/v1/cache/items/%FF", 422, "/key"),
        ("GET", "/v1/cache/items/%zz", 422, "/key"),
        ("DELETE", "/v1/cache/items/a%00b", 422, "/key"),
        ("GET", &format!("/v1/cache/items/{}", long(513)), 422, "/key"),
        ("GET", &format!("/v1/cache/items/{}", "%C3%A9".repeat(257)), 422, "/key"),
        ("GET", "/v1/cache/items/a?read=weak", 422, "/read"),
        ("GET", "/v1/cache/items/a?fresh=1", 422, "/fresh"),
        ("DELETE", "/v1/cache/items/a?read=strong", 422, "/read"),
        ("DELETE", "/v1/cache/items?all=1", 422, "/all"),
        ("GET", "/v1/cache/%FF/a", 422, "/namespace"),
    ] {
        let refused = api.raw(method, path, &[], b"").await;
        assert_eq!((refused.status, refused.pointers()), (status, vec![pointer.to_owned()]), "{method} {path}");
    }
    for (method, path, status, code) in [
        ("GET", "/v1/cache/nope/a", 404, "unknown-namespace"),
        ("DELETE", "/v1/cache/nope/a", 404, "unknown-namespace"),
        ("DELETE", "/v1/cache/nope", 404, "unknown-namespace"),
        ("GET", "/v1/cache/products/a", 404, "unknown-namespace"),
        ("GET", "/v1/cache/items/", 404, "not-found"),
        ("GET", "/v1/cache/items/a/b", 404, "not-found"),
        ("GET", "/v1/cache", 404, "not-found"),
        ("GET", "/v1/cache/items", 405, "method-not-allowed"),
        ("POST", "/v1/cache/items/a", 405, "method-not-allowed"),
        ("PUT", "/v1/cache/items/a", 405, "method-not-allowed"),
    ] {
        let refused = api.raw(method, path, &[], b"").await;
        assert_eq!((refused.status, refused.code().as_str()), (status, code), "{method} {path}");
    }
    assert_eq!(api.raw("POST", "/v1/cache/items/a", &[], b"").await.header("allow"), "DELETE, GET, HEAD");
    assert_eq!(origin.calls(), 0, "nothing of this is the origin's business");
    // What is fine, byte for byte: decoded once, encoded once.
    for (sent, asked) in [
        ("...", "..."),
        ("%252E%252E", "%252E%252E"),
        ("%2E%2E%2Fadmin", "..%2Fadmin"),
        ("..%5Cadmin", "..%5Cadmin"),
        ("a%3Fb%23c%26d%3D%40", "a%3Fb%23c%26d%3D%40"),
        ("a+b%20c", "a%2Bb%20c"),
        ("%C3%A9", "%C3%A9"),
        ("~a-b_c.d", "~a-b_c.d"),
        ("%7Bkey%7D", "%7Bkey%7D"),
    ] {
        let read = api.get(&format!("/v1/cache/items/{sent}")).await;
        assert_eq!((read.status, String::from_utf8_lossy(&read.body)), (200, format!("/p/{asked}").into()), "{sent}");
        assert_eq!(origin.last().path, format!("/p/{asked}"));
    }
    assert_eq!(api.get(&format!("/v1/cache/items/{}", long(512))).await.status, 200);
    api.stop().await;
}

#[tokio::test]
async fn what_is_not_there_is_remembered_for_a_while() {
    let origin = Origin::start(|asked, _| Act::status(if asked.path.ends_with("gone") { 410 } else { 404 })).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.absent_for = Some(Ttl::millis::<800>());
    items.jitter = 0.0;
    let mut forgetful = namespace("forgetful", &origin.url("/{key}"));
    forgetful.absent_for = None;
    let api = Api::caching(vec![items, forgetful]).await;
    for key in ["none", "gone"] {
        let path = format!("/v1/cache/items/{key}");
        for from in ["miss", "negative", "negative"] {
            assert_eq!(told(&api.get(&path).await), failure(404, from, "absent"));
        }
        assert_eq!(told(&api.get(&format!("{path}?read=strong")).await), failure(404, "negative", "absent"));
    }
    assert_eq!(origin.calls(), 2);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(told(&api.get("/v1/cache/items/none").await), failure(404, "miss", "absent"));
    origin.now(|_, _| Act::text("now"));
    assert_eq!(told(&api.get("/v1/cache/items/none").await), failure(404, "negative", "absent"));
    assert_eq!(api.raw("DELETE", "/v1/cache/items/none", &[], b"").await.status, 204);
    assert_eq!(told(&api.get("/v1/cache/items/none").await), OK);
    origin.now(|_, _| Act::status(404));
    for _ in 0..2 {
        assert_eq!(told(&api.get("/v1/cache/forgetful/x").await), failure(404, "miss", "absent"));
    }
    api.stop().await;
}

#[tokio::test]
async fn a_failure_is_shared_until_its_back_off_ends() {
    let origin = Origin::start(|_, _| Act::status(500)).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    let path = "/v1/cache/items/x";
    let first = api.get(path).await;
    assert_eq!(told(&first), failure(502, "miss", "origin-failed"), "{first:?}");
    assert!(first.json()["detail"].as_str().is_some_and(|d| d.contains("status 500")), "{first:?}");
    let (mut repeats, mut calls) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1_500) {
        let before = origin.calls();
        let again = api.get(path).await;
        assert_eq!(
            (again.status, again.header("retry-after"), again.json()["retryable"].clone()),
            (502, "1", true.into())
        );
        match again.header("x-cache") {
            "error" => {
                assert_eq!(origin.calls(), before, "no call");
                repeats += 1;
            }
            from => {
                assert_eq!((from, origin.calls()), ("miss", before + 1));
                calls += 1;
            }
        }
    }
    // 50 ms, doubling to 500 ms.
    assert!((2..=6).contains(&calls) && repeats > 20, "{calls} {repeats}");
    let strong = api.get(&format!("{path}?read=strong")).await;
    assert_eq!((strong.status, strong.code().as_str()), (502, "origin-failed"));
    origin.now(|_, _| Act::text("fine"));
    tokio::time::sleep(Duration::from_millis(550)).await;
    assert_eq!(told(&api.get(path).await), OK);
    api.stop().await;
}

type Way = Box<dyn Fn() -> Act + Send + Sync>;

#[tokio::test]
async fn each_way_to_fail_has_its_code() {
    let origin = Origin::start(|_, _| Act::Silence).await;
    let elsewhere = Origin::start(|_, _| Act::text("stolen")).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.load_timeout = Duration::from_millis(300);
    items.stale_for = None;
    let nobody = namespace("nobody", "http://127.0.0.1:1/{key}");
    let not_tls = namespace("not-tls", &origin.url("/{key}").replace("http:", "https:"));
    let no_name = namespace("no-name", "http://no-such-host.invalid/{key}");
    let api = Api::caching(vec![items, nobody, not_tls, no_name]).await;
    let there = elsewhere.url("/x");
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}\r\n").into_bytes();
    let chunked = b"5\r\nhello\r\n".to_vec();
    let timeout = (504, "origin-timeout");
    let failed = (502, "origin-failed");
    let mut n = 0;
    let ways: Vec<(&str, (u16, &str), Way)> = vec![
        ("silence", timeout, Box::new(|| Act::Silence)),
        ("too late", timeout, Box::new(|| Act::text("late").after(Duration::from_secs(2)))),
        (
            "a head that drips",
            timeout,
            Box::new(|| {
                Act::Pieces("HTTP/1.1 200 OK\r\n".bytes().map(|b| vec![b]).collect(), Duration::from_millis(100))
            }),
        ),
        (
            "a body that drips",
            timeout,
            Box::new(move || {
                let mut pieces = vec![head("content-length: 500\r\n")];
                pieces.extend(vec![vec![b'x']; 100]);
                Act::Pieces(pieces, Duration::from_millis(50))
            }),
        ),
        ("500", failed, Box::new(|| Act::status(500))),
        ("503", failed, Box::new(|| Act::status(503))),
        ("401", failed, Box::new(|| Act::status(401))),
        ("206", failed, Box::new(|| Act::status(206))),
        ("202", failed, Box::new(|| Act::status(202))),
        ("304", failed, Box::new(|| Act::status(304))),
        ("a foreign host", failed, Box::new(move || Act::to(there.clone()))),
        ("another name of it", failed, Box::new(move || Act::to("http://localhost/x"))),
        ("a scheme", failed, Box::new(|| Act::to("https://127.0.0.1/x"))),
        ("a file", failed, Box::new(|| Act::to("file:///etc/passwd"))),
        ("no place", failed, Box::new(|| Act::status(302))),
        ("a loop", failed, Box::new(|| Act::to("/again"))),
        ("closed at once", failed, Box::new(|| Act::raw(""))),
        ("no HTTP", failed, Box::new(|| Act::raw("SSH-2.0-OpenSSH\r\n\r\n"))),
        ("cut", failed, Box::new(move || Act::raw([head("content-length: 50\r\n"), b"half".to_vec()].concat()))),
        (
            "cut chunks",
            failed,
            Box::new(move || Act::raw([head("transfer-encoding: chunked\r\n"), chunked.clone()].concat())),
        ),
        (
            "bad chunks",
            failed,
            Box::new(move || Act::raw([head("transfer-encoding: chunked\r\n"), b"zz\r\n".to_vec()].concat())),
        ),
        (
            "two lengths",
            failed,
            Box::new(move || Act::raw([head("content-length: 1\r\ncontent-length: 2\r\n"), b"ab".to_vec()].concat())),
        ),
        (
            "packed",
            failed,
            Box::new(move || {
                Act::raw([head("content-encoding: gzip\r\ncontent-length: 2\r\n"), b"ab".to_vec()].concat())
            }),
        ),
        (
            "a head of 100 KB",
            failed,
            Box::new(move || Act::raw(head(&format!("content-length: 0\r\nx-a: {}\r\n", "y".repeat(100_000))))),
        ),
        (
            "a thousand headers",
            failed,
            Box::new(move || Act::raw(head(&(0..1_000).map(|n| format!("x-{n}: y\r\n")).collect::<String>()))),
        ),
        (
            "a head without end",
            failed,
            Box::new(|| Act::Endless(b"HTTP/1.1 200 OK\r\nx-a: ".to_vec(), vec![b'y'; 65_536])),
        ),
    ];
    for (way, (status, code), act) in ways {
        origin.now(move |_, _| act());
        n += 1;
        let begun = Instant::now();
        let reply = api.get(&format!("/v1/cache/items/{n}")).await;
        assert_eq!(told(&reply), failure(status, "miss", code), "{way}");
        assert_eq!(reply.header("retry-after"), "1", "{way}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{way}: {:?}", begun.elapsed());
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(!detail.contains("127.0.0.1") && detail.contains("origin"), "{way}: {detail}");
    }
    assert_eq!(elsewhere.calls(), 0, "no foreign host is asked");
    origin.now(|_, _| Act::text("plain"));
    for name in ["nobody", "not-tls", "no-name"] {
        let reply = api.get(&format!("/v1/cache/{name}/x")).await;
        assert_eq!(told(&reply), failure(502, "miss", "origin-failed"), "{name}");
    }
    api.stop().await;
}

#[tokio::test]
async fn what_an_origin_may_answer() {
    let origin = Origin::start(|asked, _| match asked.path.as_str() {
        "/empty" => Act::status(204),
        "/203" => Act::Answer { status: 203, headers: vec![], body: b"other".to_vec(), after: Duration::ZERO },
        "/no-type" => Act::Answer { status: 200, headers: vec![], body: b"x".to_vec(), after: Duration::ZERO },
        "/two-types" => {
            Act::raw("HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-type: c/d\r\ncontent-length: 1\r\n\r\nx")
        }
        "/long-type" => Act::typed(&format!("a/{}", "b".repeat(300)), "x"),
        "/odd-type" => Act::typed("a b", "x"),
        "/chunked" => Act::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"),
        "/to-the-end" => Act::raw("HTTP/1.0 200 OK\r\n\r\nall of it"),
        "/more-than-it-says" => Act::raw("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef"),
        "/identity" => Act::raw("HTTP/1.1 200 OK\r\ncontent-encoding: identity\r\ncontent-length: 1\r\n\r\nx"),
        "/moved" => Act::to("/five/4"),
        "/five/0" => Act::text("there"),
        path if path.starts_with("/five/") => {
            let left: u32 = path[6..].parse().expect("a number");
            Act::to(format!("../five/{}", left - 1))
        }
        "/moved-too-often" => Act::to("/five/5"),
        _ => Act::text("?"),
    })
    .await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    let unknown = "application/octet-stream";
    for (key, body, media_type) in [
        ("empty", "", unknown),
        ("203", "other", unknown),
        ("no-type", "x", unknown),
        ("two-types", "x", unknown),
        ("long-type", "x", unknown),
        ("odd-type", "x", unknown),
        ("chunked", "abc", unknown),
        ("to-the-end", "all of it", unknown),
        ("more-than-it-says", "abc", unknown),
        ("identity", "x", unknown),
        ("moved", "there", "text/plain"),
    ] {
        for from in ["miss", "hit-local"] {
            let reply = api.get(&format!("/v1/cache/items/{key}")).await;
            assert_eq!(
                (reply.status, reply.header("x-cache"), reply.header("content-type")),
                (200, from, media_type),
                "{key}"
            );
            assert_eq!(
                (String::from_utf8_lossy(&reply.body), reply.header("content-length")),
                (body.into(), &*body.len().to_string()),
                "{key}"
            );
        }
    }
    assert_eq!(api.get("/v1/cache/items/moved-too-often").await.code(), "origin-failed");
    api.stop().await;
}

#[tokio::test]
async fn an_older_value_is_served_instead_of_a_failure() {
    let origin = Origin::start(|_, call| Act::text(format!("v{call}"))).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.fresh_for = Ttl::millis::<300>();
    items.stale_for = Some(Ttl::seconds::<60>());
    items.load_timeout = Duration::from_secs(2);
    items.early_refresh = 0.0;
    let api = Api::caching(vec![items]).await;
    let path = "/v1/cache/items/x";
    assert_eq!(told(&api.get(path).await), OK);
    for act in [|| Act::status(500), || Act::Silence, || Act::raw(""), || Act::status(302)] {
        origin.now(move |_, _| act());
        tokio::time::sleep(Duration::from_millis(400)).await;
        for query in ["", "?read=strong"] {
            let begun = Instant::now();
            let reply = api.get(&format!("{path}{query}")).await;
            assert_eq!((told(&reply), &*reply.body), ((200, "stale", String::new()), &b"v1"[..]), "{query}");
            assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits: {:?}", begun.elapsed());
        }
    }
    // Gone with the delete: then the failure is told.
    assert_eq!(api.raw("DELETE", path, &[], b"").await.status, 204);
    assert_eq!(api.get(path).await.code(), "origin-failed");
    origin.now(|_, _| Act::text("new"));
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(api.get(path).await.body, b"new");
    api.stop().await;
}

#[tokio::test]
async fn an_origin_is_asked_as_the_configuration_says() {
    let origin = Origin::start(|_, _| Act::text("x")).await;
    let at = At::new(&origin.url("/p/{key}?token=t"), true).and_then(|at| at.header("Authorization", "Bearer sesame"));
    let at = at.and_then(|at| at.header("X-Shop", "7")).expect("an origin");
    let api = Api::caching(vec![Namespace::new("items", at)]).await;
    let sent = [
        ("cookie", "a=b"),
        ("authorization", "Bearer client"),
        ("accept-encoding", "gzip"),
        ("range", "bytes=0-1"),
        ("x-forwarded-for", "1.2.3.4"),
    ];
    let reply = api.raw("GET", "/v1/cache/items/k", &sent, b"").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let mut lines: Vec<String> = origin.last().head.split("\r\n").map(str::to_owned).collect();
    lines[1..].sort();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        lines,
        [
            "GET /p/k?token=t HTTP/1.1".to_owned(),
            "accept-encoding: identity".to_owned(),
            "accept: */*".to_owned(),
            "authorization: Bearer sesame".to_owned(),
            format!("host: {}", origin.address),
            format!("user-agent: tidegate/{version}"),
            "x-shop: 7".to_owned(),
        ],
        "and nothing of the caller's"
    );
    // One connection serves one call after the other.
    for n in 0..20 {
        assert_eq!(api.get(&format!("/v1/cache/items/{n}")).await.status, 200);
    }
    assert_eq!(origin.connections(), 1);
    // Also after answers whose bodies nobody wants.
    origin.now(|asked, _| {
        let mut act = if asked.path.starts_with("/p/to") { Act::to("/p/none?token=t") } else { Act::status(404) };
        if let Act::Answer { body, .. } = &mut act {
            body.extend(b"a page that says why");
        }
        act
    });
    for n in 0..10 {
        assert_eq!(api.get(&format!("/v1/cache/items/none{n}")).await.code(), "absent");
        assert_eq!(api.get(&format!("/v1/cache/items/to{n}")).await.code(), "absent");
    }
    assert_eq!(origin.connections(), 1);
    api.stop().await;
}

#[tokio::test]
async fn roles_decide_who_may_drop_what() {
    let token = |name: &str, role| Token { name: name.into(), sha256: hash_token(name), role };
    let tokens = vec![token("reader", Role::Read), token("shop", Role::Shop), token("boss", Role::Ops)];
    let origin = Origin::start(|_, _| Act::text("x")).await;
    let namespaces = vec![namespace("items", &origin.url("/{key}"))];
    let api = Api::whole(tokens, true, Limits::default(), namespaces).await;
    for (who, statuses) in
        [("", [401, 401, 401]), ("reader", [200, 403, 403]), ("shop", [200, 204, 403]), ("boss", [200, 204, 204])]
    {
        let bearer = format!("Bearer {who}");
        let headers: &[(&str, &str)] = if who.is_empty() { &[] } else { &[("authorization", &bearer)] };
        for ((method, path), status) in
            [("GET", "/v1/cache/items/a"), ("DELETE", "/v1/cache/items/a"), ("DELETE", "/v1/cache/items")]
                .into_iter()
                .zip(statuses)
        {
            assert_eq!(api.raw(method, path, headers, b"").await.status, status, "{who} {method} {path}");
        }
    }
    api.stop().await;
}

#[tokio::test]
async fn calls_are_counted() {
    install_metrics().expect("a recorder");
    let origin = Origin::start(|asked, _| match asked.path.as_str() {
        "/bad" => Act::status(500),
        "/none" => Act::status(404),
        _ => Act::text("four"),
    })
    .await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    for key in ["a", "b", "none", "bad"] {
        api.get(&format!("/v1/cache/items/{key}")).await;
    }
    let text = String::from_utf8(api.get("/metrics").await.body).expect("text");
    for line in [
        "tidegate_origin_calls_total{namespace=\"items\",outcome=\"ok\"} 2",
        "tidegate_origin_calls_total{namespace=\"items\",outcome=\"absent\"} 1",
        "tidegate_origin_calls_total{namespace=\"items\",outcome=\"status\"} 1",
        "tidegate_origin_bytes_total{namespace=\"items\"} 8",
        "route=\"/v1/cache/{namespace}/{key}\",status=\"502\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    api.stop().await;
}

#[tokio::test]
async fn a_connection_that_was_closed_for_being_idle_is_no_failure() {
    // It answers once a connection, and does not say so.
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    let origin = Origin::start(move |_, _| Act::raw(answer)).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    for n in 0..50 {
        let reply = api.get(&format!("/v1/cache/items/{n}")).await;
        assert_eq!(told(&reply), OK, "{n}");
    }
    // One that never answers is asked once a load.
    origin.now(|_, _| Act::raw(""));
    let before = origin.calls();
    for n in 50..60 {
        assert_eq!(api.get(&format!("/v1/cache/items/{n}")).await.code(), "origin-failed");
    }
    assert_eq!(origin.calls() - before, 10);
    api.stop().await;
}
