//! Clients that cost too much, and clients that are turned away.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;

fn connected(redis: &Redis) -> TcpStream {
    TcpStream::connect(("127.0.0.1", redis.port())).unwrap()
}

#[tokio::test]
async fn a_big_value_names_its_sender() {
    let redis = Redis::start();
    let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
    watching.quiet(3).await;
    let mut sender = connected(&redis);
    let mut say = |words: &[u8]| {
        sender.write_all(words).unwrap();
        let mut answer = [0; 5];
        sender.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    };
    say(b"CLIENT SETNAME importer\r\n");
    let value = "x".repeat(12 << 20);
    let command = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${}\r\n{value}\r\n", value.len());
    let finding = watching.told(Rule::BigValuePassing, || say(command.as_bytes())).await;
    assert!(finding.cause.contains("MiB passes through") && finding.cause.contains("127.0.0.1:"), "{finding:#?}");
    assert!(finding.cause.contains("named importer") && finding.cause.contains("with set"), "{finding:#?}");
}

#[tokio::test]
async fn a_client_that_does_not_read() {
    let redis = with_options(&[("maxmemory", "100mb")]);
    // Not one large value: newer servers send such a one from where it lies.
    redis.tell(&["EVAL", "for i = 1, 20000 do redis.call('RPUSH', 'l', string.rep('x', 100)) end", "0"]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
    watching.quiet(3).await;
    let mut reader = connected(&redis);
    for _ in 0..16 {
        reader.write_all(b"LRANGE l 0 -1\r\n").unwrap();
    }
    let finding = watching.told(Rule::ClientBuffers, || {}).await;
    let address = reader.local_addr().unwrap().to_string();
    assert!(finding.next_command.ends_with(&format!("CLIENT KILL ADDR {address}")), "{finding:#?}");
    drop(reader);
    watching.over(Rule::ClientBuffers).await;
}

#[tokio::test]
async fn connections_that_run_out() {
    let redis = with_options(&[("maxclients", "20")]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
    watching.quiet(3).await;
    let held: Vec<TcpStream> = (0..17).map(|_| connected(&redis)).collect();
    assert!(watching.told(Rule::ConnectionsNearLimit, || {}).await.cause.contains("of 20 connections"));
    let more: Vec<TcpStream> = (0..8).map(|_| connected(&redis)).collect();
    watching.told(Rule::ConnectionsRejected, || {}).await;
    // Somebody who comes now is turned away, and says so.
    let mut late = Watching::new(&redis.url(), short(Purpose::Cache));
    let finding = late.told(Rule::BlockedServer, || {}).await;
    assert!(finding.cause.contains("turns everyone else away"), "{finding:#?}");
    drop((held, more));
    watching.over(Rule::ConnectionsRejected).await;
    late.over(Rule::BlockedServer).await;
}

#[tokio::test]
async fn slow_commands() {
    let redis = Redis::start();
    redis.tell(&["EVAL", "for i = 1, 200000 do redis.call('SADD', 's', i) end", "0"]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
    // What was slow before is no news.
    watching.quiet(3).await;
    let spin = "local t = redis.call('TIME'); local e = t[1] * 1000000 + t[2] + 300000; repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] >= e";
    let finding = watching.told(Rule::SlowCommands, || drop(redis.tell(&["EVAL", spin, "0"]))).await;
    assert!(finding.cause.contains("EVAL local t = redis.call('TIME')"), "{finding:#?}");
}
