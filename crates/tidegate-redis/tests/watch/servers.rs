//! Servers that do not answer, that start again, that are many.

use tidegate_conformance::servers::{Cluster, Engine, Sentinel};

use super::*;

#[tokio::test]
async fn a_frozen_server_a_long_script_and_a_dead_one() {
    let redis = with_options(&[("busy-reply-threshold", "300")]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::Cache));
    watching.quiet(3).await;
    redis.freeze();
    let finding = watching.told(Rule::BlockedServer, || {}).await;
    assert!(finding.cause.contains("takes connections and has not answered"), "{finding:#?}");
    redis.thaw();
    watching.over(Rule::BlockedServer).await;

    let port = redis.port();
    let script = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut caller = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        caller.write_all(b"EVAL \"while true do end\" 0\r\n").unwrap();
        let mut answer = [0; 64];
        let _ = caller.read(&mut answer);
    });
    let finding = watching.told(Rule::BlockedServer, || {}).await;
    let by_timeout = finding.cause.contains("has not answered");
    assert!(by_timeout || finding.next_command.ends_with("SCRIPT KILL"), "{finding:#?}");
    while watching.last.samples[0].answer().is_some() || !format!("{:?}", watching.last).contains("Busy") {
        watching.look().await;
    }
    redis.tell(&["SCRIPT", "KILL"]);
    script.join().unwrap();
    watching.over(Rule::BlockedServer).await;

    redis.kill();
    let finding = watching.told(Rule::BlockedServer, || {}).await;
    assert!(finding.cause.contains("cannot be reached"), "{finding:#?}");
}

#[tokio::test]
async fn a_server_that_starts_again_without_its_data() {
    let redis = Redis::start();
    fill(&redis, "a", 3_000, 10);
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    watching.quiet(3).await;
    redis.restart();
    let finding = watching.told(Rule::Restarted, || {}).await;
    assert!(finding.cause.contains("started again") && finding.evidence["keys_before"] == 3_000, "{finding:#?}");
    let lost = watching.judge.open().find(|finding| finding.rule == Rule::DataLost).unwrap();
    assert!(lost.cause.contains("had not saved"), "{lost:#?}");
}

#[tokio::test]
async fn every_node_of_a_cluster_is_watched() {
    let cluster = Cluster::start(Engine::default(), true);
    // One address is enough to find all.
    let url = format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port());
    let mut watching = Watching::new(&url, short(Purpose::Cache));
    watching.look().await;
    let mut seen: Vec<String> = watching.judge.addresses().map(str::to_owned).collect();
    let mut want: Vec<String> = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    seen.sort();
    want.sort();
    assert_eq!(seen, want);
    let roles: Vec<_> = watching.judge.memory().filter_map(|memory| memory.role).collect();
    assert_eq!(roles.iter().filter(|role| **role == "master").count(), 3, "{roles:?}");
    cluster.nodes[4].kill();
    let finding = watching.told(Rule::BlockedServer, || {}).await;
    assert_eq!(finding.address, format!("127.0.0.1:{}", cluster.nodes[4].port()));
}

#[tokio::test]
async fn a_set_under_sentinel_is_watched_with_its_replicas() {
    let set = Sentinel::start(Engine::default());
    let mut watching = Watching::new(&set.url(), short(Purpose::State));
    watching.look().await;
    let roles: Vec<_> = watching.judge.memory().filter_map(|memory| memory.role).collect();
    assert!(roles.len() >= 2 && roles.iter().filter(|role| **role == "master").count() == 1, "{roles:?}");
}

/// Sentinels that are away, or that name nobody, are no reason for silence.
#[tokio::test]
async fn a_set_that_no_sentinel_names_is_told() {
    let set = Sentinel::start(Engine::default());
    let nobodys = set.url().replace("/shop/", "/nobodys/");
    for (url, cause, next) in [
        ("redis-sentinel://127.0.0.1:1/shop", "of \"shop\": the only one, 127.0.0.1:1, does not", "-p 1 SENTINEL"),
        ("redis-sentinel://127.0.0.1:1,[::1]:2/shop", "none of the 2 answers", "-h 127.0.0.1 -p 1 SENTINEL"),
        (&nobodys, "answers and knows no such service", "GET-MASTER-ADDR-BY-NAME nobodys"),
    ] {
        let mut watching = Watching::new(url, short(Purpose::State));
        let finding = watching.told(Rule::BlockedServer, || {}).await;
        assert!(finding.address.starts_with("127.0.0.1:"), "{finding:#?}");
        assert!(finding.cause.contains(cause) && finding.next_command.contains(next), "{finding:#?}");
    }
}
