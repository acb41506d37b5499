//! Nonsense over HTTP: no 500, no panic, memory bounded.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};

use crate::long;
use crate::server::{Server, Start};

/// Sends bytes, reads what comes until the server closes or goes quiet: the status line.
fn talk(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    // The server may refuse before everything is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut buffer = [0; 4_096];
    while let Ok(n) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..n]);
        if n == 0 || answer.len() > 1 << 20 || answer.windows(4).any(|w| w == b"\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

fn assert_sane(status: &str, sent: &[u8]) {
    assert!(!status.contains(" 500"), "{status} for {:?}", String::from_utf8_lossy(sent));
}

#[test]
fn random_bytes_and_spoiled_requests() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Start::in_folder(folder.path()).ready();
    server.api.sku("x", 1_000);
    let body = r#"{"order_id":"o-1","buyer_id":"b","lines":[{"sku":"x","quantity":1}],"hold_seconds":60,"metadata":{"a":[1,2.5,null]}}"#;
    let requests = [
        format!("POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        "GET /v1/orders?limit=5&cursor=abc&status=pending HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned(),
        "PUT /v1/skus/x HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nif-match: \"1\"\r\nconnection: close\r\ncontent-length: 13\r\n\r\n{\"title\":\"t\"}".to_owned(),
        "GET /v1/events/stream HTTP/1.1\r\nhost: localhost\r\nlast-event-id: 0\r\n\r\n".to_owned(),
    ];
    // Most of what is sent is waited for in vain: four send at once.
    let rounds = if long() { 1_000 } else { 100 };
    let send = |rng: &mut rand::rngs::StdRng| {
        for round in 0..rounds {
            let mut bytes = match round % 5 {
                0 => (0..rng.random_range(1..400)).map(|_| rng.random::<u8>()).collect::<Vec<u8>>(),
                kind => requests[kind - 1].clone().into_bytes(),
            };
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..3) {
                    0 => bytes[at] = rng.random(),
                    1 => bytes.insert(at, rng.random()),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            if round % 5 != 4 {
                assert_sane(&talk(&server, &bytes), &bytes);
            } else if round % 50 == 4 {
                talk(&server, &bytes);
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let send = &send;
            scope.spawn(move || send(&mut rand::rngs::StdRng::seed_from_u64(seed)));
        }
    });
    assert_eq!(server.api.get("/healthz").map(|r| r.status), Some(200));
    server.api.check();
}

#[test]
fn huge_bodies_are_refused_and_memory_stays_bounded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Start::in_folder(folder.path()).ready();
    server.api.sku("x", 10);
    let before = server.resident_kib();
    for path in ["/v1/orders", "/v1/orders:batch", "/v1/skus:batch"] {
        for chunked in [false, true] {
            let framing = if chunked { "transfer-encoding: chunked" } else { "content-length: 100000000" };
            let mut request = format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
            )
            .into_bytes();
            let piece = vec![b' '; 1 << 16];
            for _ in 0..200 {
                if chunked {
                    request.extend_from_slice(b"10000\r\n");
                }
                request.extend_from_slice(&piece);
                if chunked {
                    request.extend_from_slice(b"\r\n");
                }
            }
            let status = talk(&server, &request);
            assert!(status.is_empty() || status.contains(" 413"), "{path}: {status}");
        }
    }
    let nested = format!(
        "{{\"order_id\":\"n\",\"buyer_id\":\"b\",\"lines\":[],\"metadata\":{}1{}}}",
        "[".repeat(200_000),
        "]".repeat(200_000)
    );
    let request = format!(
        "POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{nested}",
        nested.len()
    );
    let status = talk(&server, request.as_bytes());
    assert!(status.contains(" 400") || status.contains(" 422"), "{status}");
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 100 * 1024, "memory grew by {grown} KiB");
    server.api.check();
}

#[test]
fn idle_and_slow_connections_do_not_shut_others_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Start::in_folder(folder.path()).wrapped(&["prlimit", "--nofile=256:256"]).ready();
    server.api.sku("x", 10);
    let mut crowd: Vec<TcpStream> = Vec::new();
    for i in 0..500 {
        let Ok(mut stream) = TcpStream::connect_timeout(&server.address, Duration::from_secs(2)) else { break };
        if i % 2 == 0 {
            let _ = stream.write_all(b"GET /v1/orders HTTP/1.1\r\nhost: loc");
        }
        crowd.push(stream);
    }
    assert!(crowd.len() >= 256, "more connections than descriptors were opened: {}", crowd.len());
    let begun = Instant::now();
    let fresh = crate::server::Api::new(server.address);
    fresh.wait("a newcomer is answered", Duration::from_secs(30), |api| {
        api.get("/healthz").is_some_and(|r| r.status == 200)
    });
    fresh.wait("an order can be placed", Duration::from_secs(30), |api| {
        api.place("o", "x", 1, 600).is_some_and(|r| r.status == 201 || r.status == 200)
    });
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(crowd);
    assert!(server.resident_kib() < 200 * 1024, "{} KiB", server.resident_kib());
    server.api.check();
}
