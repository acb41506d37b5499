//! `/v1/cache`: what may be asked of whom, and how much may come back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::cache::Ttl;
use tidegate_server::{Limits, Namespace, Origin as At};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cache::namespace;
use super::cache_crowds::ALONE;
use super::client::{Api, parse, read_one};
use super::origin::{Act, Origin};

/// The largest body of an answer.
const MOST: usize = 16 << 20;

#[tokio::test]
async fn a_body_over_16_mib_is_a_failure_in_whichever_way_it_comes() {
    let _alone = ALONE.lock().await;
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}\r\n").into_bytes();
    let origin = Origin::start(move |asked, _| {
        let (kind, bytes) = asked.path[1..].split_once('-').expect("kind and size");
        let body = vec![b'x'; bytes.parse().expect("a number")];
        match kind {
            "announced" => Act::typed("text/plain", body),
            "chunked" => {
                let mut pieces = vec![head("transfer-encoding: chunked\r\n")];
                for piece in body.chunks(1 << 20) {
                    pieces.push([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
                }
                pieces.push(b"0\r\n\r\n".to_vec());
                Act::Pieces(pieces, Duration::ZERO)
            }
            // Until the connection ends.
            "open" => Act::Pieces(vec![head(""), body], Duration::ZERO),
            _ => Act::Pieces(vec![head(&format!("content-length: {}\r\n", u64::MAX)), body], Duration::ZERO),
        }
    })
    .await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    for kind in ["announced", "chunked", "open"] {
        let fits = api.get(&format!("/v1/cache/items/{kind}-{MOST}")).await;
        assert_eq!((fits.status, fits.body.len()), (200, MOST), "{kind}");
        let more = api.get(&format!("/v1/cache/items/{kind}-{}", MOST + 1)).await;
        assert_eq!(
            (more.status, more.code().as_str(), more.header("x-cache")),
            (502, "origin-failed", "miss"),
            "{kind}"
        );
        assert!(more.json()["detail"].as_str().is_some_and(|d| d.contains("16 MiB")), "{more:?}");
    }
    for key in ["announced-50000000", "chunked-50000000", "open-50000000", "lying-5"] {
        assert_eq!(api.get(&format!("/v1/cache/items/{key}")).await.code(), "origin-failed", "{key}");
    }
    api.stop().await;
}

#[tokio::test]
async fn a_body_without_end_is_read_no_further_than_that() {
    let _alone = ALONE.lock().await;
    let origin = Origin::start(|_, _| Act::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 65_536])).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    let begun = Instant::now();
    assert_eq!(api.get("/v1/cache/items/x").await.code(), "origin-failed");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    api.stop().await;
}

/// Bytes that cannot be packed.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[tokio::test]
async fn a_value_of_just_16_mib_is_stored() {
    let body = noise(MOST);
    let sent = body.clone();
    let origin = Origin::start(move |_, _| Act::typed("text/plain", sent.clone())).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.max_value = MOST;
    let api = Api::caching(vec![items]).await;
    for _ in 0..3 {
        let answer = api.get("/v1/cache/items/x").await;
        assert!(answer.status == 200 && answer.body == body, "{}", answer.status);
    }
    assert_eq!(origin.calls(), 1);
    api.stop().await;
}

#[tokio::test]
async fn a_large_value_is_answered_kept_in_process_only_and_loaded_once() {
    let _alone = ALONE.lock().await;
    let body = noise(2 << 20);
    let origin = Origin::start(move |_, _| Act::typed("a/b", body.clone()).after(Duration::from_millis(100))).await;
    let api = Arc::new(Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await);
    let readers: Vec<_> = (0..50)
        .map(|_| {
            let api = Arc::clone(&api);
            tokio::spawn(async move { api.get("/v1/cache/items/x").await.body.len() })
        })
        .collect();
    for reader in readers {
        assert_eq!(reader.await.expect("no panic"), 2 << 20);
    }
    assert_eq!(origin.calls(), 1, "single flight");
    assert_eq!(api.get("/v1/cache/items/x").await.header("x-cache"), "hit-local");
    // The store has none of it, so a strong read loads.
    assert_eq!(api.get("/v1/cache/items/x?read=strong").await.header("x-cache"), "miss");
    assert_eq!(origin.calls(), 2);
    Arc::into_inner(api).expect("the last").stop().await;
}

#[tokio::test]
async fn large_answers_that_nobody_takes_are_bounded() {
    let _alone = ALONE.lock().await;
    let origin = Origin::start(|_, _| Act::typed("a/b", vec![b'x'; 12 << 20])).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.local_for = None;
    let limits = Limits { answer_budget_bytes: 32 << 20, ..Limits::default() };
    let api = Api::whole(Vec::new(), true, limits, vec![items]).await;
    // Two values of 12 MiB are being sent to clients that do not read them.
    let mut slow = Vec::new();
    for key in ["a", "b"] {
        let mut client = api.connect().await;
        let request = format!("GET /v1/cache/items/{key} HTTP/1.1\r\nhost: {}\r\n\r\n", api.address);
        client.write_all(request.as_bytes()).await.expect("sent");
        let mut byte = [0];
        client.read_exact(&mut byte).await.expect("it begins");
        slow.push(client);
    }
    let refused = api.get("/v1/cache/items/c").await;
    assert_eq!((refused.status, refused.code().as_str(), refused.header("retry-after")), (503, "overloaded", "1"));
    drop(slow);
    let begun = Instant::now();
    while api.get("/v1/cache/items/c").await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    api.stop().await;
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_unless_allowed() {
    let origin = Origin::start(|_, _| Act::text("x")).await;
    let port = origin.address.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0x7f.1",
        "2130706433",
        "127.1",
        "LOCALHOST",
    ];
    let of = |private: bool| {
        hosts.iter().enumerate().map(move |(n, host)| {
            let at = At::new(&format!("http://{host}:{port}/{{key}}"), private).expect("an origin");
            Namespace::new(format!("n{n}-{private}"), at)
        })
    };
    // Only what a public address could answer reaches the network; these must not be asked either.
    let clouds =
        ["169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "192.168.0.1", "100.64.0.1", "[::]", "255.255.255.255"];
    let elsewhere = clouds.iter().enumerate().map(|(n, host)| {
        let mut there =
            Namespace::new(format!("c{n}"), At::new(&format!("http://{host}/{{key}}"), false).expect("an origin"));
        there.load_timeout = Duration::from_secs(5);
        there
    });
    let api = Api::caching(of(false).chain(of(true)).chain(elsewhere).collect()).await;
    for (n, host) in hosts.iter().enumerate() {
        let refused = api.get(&format!("/v1/cache/n{n}-false/x")).await;
        assert_eq!((refused.status, refused.code().as_str()), (502, "origin-failed"), "{}", host);
        assert!(
            refused.json()["detail"].as_str().is_some_and(|d| d.contains("allow_private")),
            "{}: {refused:?}",
            host
        );
    }
    for (n, host) in clouds.iter().enumerate() {
        let begun = Instant::now();
        assert_eq!(api.get(&format!("/v1/cache/c{n}/x")).await.code(), "origin-failed", "{}", host);
        assert!(begun.elapsed() < Duration::from_secs(1), "{} was asked", host);
    }
    assert_eq!(origin.calls(), 0);
    for n in [0, 1, 5, 8] {
        assert_eq!(api.get(&format!("/v1/cache/n{n}-true/x")).await.status, 200, "{}", hosts[n]);
    }
    api.stop().await;
}

#[tokio::test]
async fn names_that_cannot_be_are_refused_at_the_start() {
    let origin = Origin::start(|_, _| Act::text("x")).await;
    let api = Api::start().await;
    let bind = |namespaces: Vec<Namespace>| {
        let config = tidegate_server::ServerConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            tokens: Vec::new(),
            manual_clock: true,
            limits: Limits::default(),
            surface: Default::default(),
            namespaces,
            redis: None,
        };
        tidegate_server::Server::bind(config, api.tidegate.clone()).err().map(|e| e.to_string())
    };
    let named = |name: &str| namespace(name, &origin.url("/{key}"));
    let mut odd = named("odd");
    odd.max_value = 0;
    let mut all: Vec<Namespace> = (0..65).map(|n| named(&format!("n{n}"))).collect();
    for (namespaces, want) in [
        (vec![named("products")], "products"),
        (vec![named("A")], "must be 1 to 64"),
        (vec![named("a"), named("a")], "a"),
        (vec![odd], "max_value"),
        (all.clone(), "more than 64"),
    ] {
        let refused = bind(namespaces).unwrap_or_else(|| panic!("taken, wanted {want}"));
        assert!(refused.starts_with("[cache.namespace]: ") && refused.contains(want), "{refused}");
    }
    all.truncate(64);
    assert_eq!(bind(all), None, "and nothing is left of those that were refused");
    api.stop().await;
    // Each of many has copies in process, too.
    let all: Vec<Namespace> = (0..64).map(|n| named(&format!("n{n}"))).collect();
    let api = Api::caching(all).await;
    for n in [0, 31, 63] {
        let from = [api.get(&format!("/v1/cache/n{n}/x")).await, api.get(&format!("/v1/cache/n{n}/x")).await];
        assert_eq!(from.map(|reply| reply.header("x-cache").to_owned()), ["miss", "hit-local"], "{n}");
    }
    api.stop().await;
}

#[tokio::test]
async fn loads_that_wait_too_long_are_overload() {
    let origin = Origin::start(|_, _| Act::text("x").after(Duration::from_millis(700))).await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.load_budget = 1;
    items.load_timeout = Duration::from_millis(1_000);
    let mut rated = namespace("rated", &origin.url("/{key}"));
    rated.load_rate = std::num::NonZeroU32::new(1);
    rated.load_timeout = Duration::from_millis(200);
    rated.absent_for = Some(Ttl::seconds::<5>());
    let api = Arc::new(Api::caching(vec![items, rated]).await);
    for name in ["items", "rated"] {
        let readers: Vec<_> = (0..12)
            .map(|n| {
                let api = Arc::clone(&api);
                tokio::spawn(async move { api.get(&format!("/v1/cache/{name}/{n}")).await })
            })
            .collect();
        let mut refused = 0;
        for reader in readers {
            let reply = reader.await.expect("no panic");
            if reply.status == 503 {
                assert_eq!((reply.code().as_str(), reply.header("x-cache")), ("overloaded", "error"), "{reply:?}");
                assert!(reply.header("retry-after").parse::<u32>().is_ok_and(|s| (1..=5).contains(&s)), "{reply:?}");
                refused += 1;
            }
        }
        assert!(refused >= 9, "{name}: {refused}");
    }
    assert!(origin.calls() <= 6, "{}", origin.calls());
    Arc::into_inner(api).expect("the last").stop().await;
}

#[tokio::test]
async fn a_value_that_looks_like_an_answer_is_a_value() {
    let tail = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    for before in [0, 64 << 10, 256 << 10, 512 << 10, 1 << 20] {
        let body = [vec![b'x'; before], tail.as_bytes().to_vec()].concat();
        let sent = body.clone();
        let origin = Origin::start(move |_, _| Act::typed("a/b", sent.clone())).await;
        let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
        for _ in 0..2 {
            let reply = api.get("/v1/cache/items/x").await;
            assert!(reply.status == 200 && reply.body == body, "{before}: {} bytes", reply.body.len());
        }
        api.stop().await;
    }
}

#[tokio::test]
async fn nonsense_after_an_answer_is_still_told_as_a_problem() {
    let origin = Origin::start(|asked, _| Act::text("x".repeat(asked.path[1..].parse().expect("a number")))).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    for bytes in [1, 300_000, 3_000_000] {
        let mut connection = api.connect().await;
        for _ in 0..3 {
            let request = format!("GET /v1/cache/items/{bytes} HTTP/1.1\r\nhost: {}\r\n\r\n", api.address);
            connection.write_all(request.as_bytes()).await.expect("sent");
            assert_eq!(read_one(&mut connection).await.body.len(), bytes);
        }
        connection.write_all(b"nonsense\r\n\r\n").await.expect("sent");
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(parse(&answer).code(), "malformed", "after {bytes} bytes");
    }
    api.stop().await;
}

#[tokio::test]
async fn no_nonsense_of_an_origin_is_a_fault_of_ours() {
    let rounds: u64 = if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { 5_000 } else { 400 };
    // Sound answers with some of their bytes changed, cut or doubled, by a number that tells which.
    let origin = Origin::start(|asked, _| {
        let sound: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 11\r\n\r\nhello world",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
            b"HTTP/1.1 302 Found\r\nlocation: /7\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone",
        ];
        let mut state = asked.path[1..].parse::<u64>().unwrap_or(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as usize % below
        };
        let mut bytes = sound[next(4)].to_vec();
        for _ in 0..next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.extend_from_within(at..),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                break;
            }
        }
        Act::raw(bytes)
    })
    .await;
    let mut items = namespace("items", &origin.url("/{key}"));
    items.load_timeout = Duration::from_millis(500);
    let api = Api::caching(vec![items]).await;
    let mut seen = std::collections::BTreeMap::new();
    for round in 0..rounds {
        let reply = api.get(&format!("/v1/cache/items/{round}")).await;
        if reply.status >= 400 {
            reply.code();
        }
        *seen.entry(reply.status).or_insert(0_u64) += 1;
    }
    assert!(seen.keys().all(|status| [200, 404, 502, 504].contains(status)), "{seen:?}");
    assert!([200, 404, 502].iter().all(|status| seen.contains_key(status)), "{seen:?}");
    api.stop().await;
}

#[tokio::test]
async fn a_caller_that_hangs_up_takes_nothing_with_it() {
    let origin = Origin::start(|_, _| Act::text("x").after(Duration::from_millis(300))).await;
    let api = Api::caching(vec![namespace("items", &origin.url("/{key}"))]).await;
    let mut caller = api.connect().await;
    let request = format!("GET /v1/cache/items/x HTTP/1.1\r\nhost: {}\r\n\r\n", api.address);
    caller.write_all(request.as_bytes()).await.expect("sent");
    while origin.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(caller);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(api.get("/v1/cache/items/x").await.header("x-cache"), "hit-local");
    assert_eq!(origin.calls(), 1);
    api.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_an_origin_that_hangs() {
    let origin = Origin::start(|_, _| Act::Silence).await;
    let limits = Limits { stop_patience: Duration::from_millis(500), ..Limits::default() };
    let mut api = Api::whole(Vec::new(), true, limits, vec![namespace("items", &origin.url("/{key}"))]).await;
    let mut caller = api.connect().await;
    let request = format!("GET /v1/cache/items/x HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", api.address);
    caller.write_all(request.as_bytes()).await.expect("sent");
    while origin.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    api.begin_stop();
    let mut answer = Vec::new();
    caller.read_to_end(&mut answer).await.expect("an answer");
    assert_eq!(parse(&answer).code(), "stopping");
    api.ended().await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}
