//! Slow, idle and crowding clients.

use std::time::{Duration, Instant};

use tidegate_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::client::{Api, parse, read_one};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_head_that_does_not_arrive_is_408() {
    let api = Api::limited(Limits { header_read_timeout: SECOND, ..Limits::default() }).await;
    let begun = Instant::now();
    let reply = api.bytes(b"GET /healthz HTTP/1.1\r\nhost: local").await;
    assert_eq!((reply.status, reply.code().as_str()), (408, "timeout"));
    assert!(begun.elapsed() > SECOND && begun.elapsed() < 4 * SECOND, "{:?}", begun.elapsed());
    // The same for the second request of a connection.
    let mut connection = api.connect().await;
    connection.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    assert_eq!(read_one(&mut connection).await.status, 200);
    connection.write_all(b"GET /hea").await.expect("sent");
    assert_eq!(read_one(&mut connection).await.code(), "timeout");
    api.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_408() {
    let limits = Limits { body_idle_timeout: SECOND, request_timeout: 3 * SECOND, ..Limits::default() };
    let api = Api::limited(limits).await;
    let head = b"POST /v1/orders HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    assert_eq!(api.bytes(head).await.code(), "timeout");
    // One byte now and then is no way around it.
    let mut connection = api.connect().await;
    connection.write_all(head).await.expect("sent");
    let (mut reading, mut writing) = connection.split();
    let drip = async {
        loop {
            sleep(SECOND / 4).await;
            if writing.write_all(b" ").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = vec![0; 4096];
    let begun = Instant::now();
    let n = tokio::select! { n = reading.read(&mut answer) => n.expect("an answer"), () = drip => 0 };
    assert_eq!(parse(&answer[..n]).status, 408);
    assert!(begun.elapsed() < 6 * SECOND);
    api.stop().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let api = Api::limited(Limits { keep_alive_timeout: SECOND, ..Limits::default() }).await;
    let mut silent = api.connect().await;
    let mut used = api.connect().await;
    used.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    assert_eq!(read_one(&mut used).await.status, 200);
    for connection in [&mut silent, &mut used] {
        let closed =
            timeout(4 * SECOND, connection.read(&mut [0; 16])).await.expect("in time").expect("an orderly close");
        assert_eq!(closed, 0);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_crowd_of_idle_connections_keeps_nobody_out() {
    let api = Api::limited(Limits { max_connections: 50, ..Limits::default() }).await;
    let mut crowd = Vec::new();
    for i in 0..200 {
        let mut connection = api.connect().await;
        if i % 2 == 0 {
            connection.write_all(b"GET /heal").await.expect("sent");
        }
        crowd.push(connection);
    }
    for _ in 0..20 {
        let health = timeout(5 * SECOND, api.get("/healthz")).await.expect("in time");
        assert_eq!(health.status, 200);
    }
    api.stop().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let api = Api::start().await;
    let mut connection = api.connect().await;
    let three = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /v1/nope HTTP/1.1\r\nhost: localhost\r\n\r\nGET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(three).await.expect("sent");
    let mut answers = String::new();
    connection.read_to_string(&mut answers).await.expect("answers");
    let statuses: Vec<&str> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "200"]);
    api.stop().await;
}

#[tokio::test]
async fn an_early_refusal_reaches_a_client_that_is_still_sending() {
    let api = Api::start().await;
    let body = vec![b' '; 20 << 20];
    let reply = api.raw("POST", "/v1/orders", &[("content-type", "application/json")], &body).await;
    assert_eq!(reply.code(), "too-large");
    let expecting = format!(
        "POST /v1/orders HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        2 << 20
    );
    let begun = Instant::now();
    assert_eq!(api.bytes(expecting.as_bytes()).await.code(), "too-large");
    assert!(begun.elapsed() < SECOND);
    api.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_let_go() {
    let api = Api::limited(Limits { write_stall_timeout: SECOND, ..Limits::default() }).await;
    let whole = api.get("/openapi.json").await.body.len();
    let mut deaf = api.connect().await;
    let requests = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(400);
    deaf.write_all(requests.as_bytes()).await.expect("sent");
    sleep(4 * SECOND).await;
    let mut answers = Vec::new();
    // Closed or reset: either way it ends, and without all the answers.
    let _ = timeout(5 * SECOND, deaf.read_to_end(&mut answers)).await.expect("an end");
    assert!(answers.len() < 300 * whole, "{} of {}", answers.len(), 400 * whole);
    api.stop().await;
}

#[tokio::test]
async fn a_head_request_for_a_stream_ends() {
    let api = Api::start().await;
    let mut connection = api.connect().await;
    let two = b"HEAD /v1/events/stream HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    connection.write_all(two).await.expect("sent");
    let mut answers = String::new();
    timeout(5 * SECOND, connection.read_to_string(&mut answers)).await.expect("in time").expect("answers");
    assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    api.stop().await;
}

#[tokio::test]
async fn large_bodies_share_a_budget() {
    let api = Api::limited(Limits { body_budget_bytes: 8 << 20, ..Limits::default() }).await;
    let head = format!(
        "POST /v1/orders:batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        8 << 20
    );
    // Who only announces a large body takes nothing away.
    let mut announcer = api.connect().await;
    announcer.write_all(head.as_bytes()).await.expect("sent");
    let mut hoarder = api.connect().await;
    hoarder.write_all(head.as_bytes()).await.expect("sent");
    hoarder.write_all(&vec![b' '; 6 << 20]).await.expect("sent");
    sleep(SECOND / 2).await;
    let body = format!("{{\"orders\":[]{}}}", " ".repeat(4 << 20));
    let reply = api.raw("POST", "/v1/orders:batch", &[("content-type", "application/json")], body.as_bytes()).await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "overloaded"));
    drop(hoarder);
    sleep(SECOND / 2).await;
    let reply = api.raw("POST", "/v1/orders:batch", &[("content-type", "application/json")], body.as_bytes()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    api.stop().await;
}
