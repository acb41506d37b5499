//! Copies that fall behind or are lost.

use tidegate_redis::bigkeys::{BigKeysOptions, Pace, Route, big_keys};

use super::*;

async fn pair(master: &Redis, replica: &Redis) {
    replica.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let began = Instant::now();
    let is_up = || {
        let (ours, theirs) = (master.tell(&["INFO", "replication"]), replica.tell(&["INFO", "replication"]));
        ours.contains("state=online") && theirs.contains("master_link_status:up")
    };
    while !is_up() {
        assert!(began.elapsed() < IN_TIME, "the replica does not follow");
        tokio::time::sleep(EVERY).await;
    }
}

#[tokio::test]
async fn a_replica_that_is_frozen_and_then_gone() {
    let (master, replica) = (Redis::start(), Redis::start());
    pair(&master, &replica).await;
    let settings = with(short(Purpose::State), Rule::ReplicaLag, |rule| (rule.threshold, rule.clear) = (3.0, 1.0));
    let settings = with(settings, Rule::ReplicaBuffer, |rule| (rule.threshold, rule.clear) = (0.2, 0.1));
    let mut watching = Watching::new(&master.url(), settings);
    watching.quiet(4).await;
    replica.freeze();
    let mut batch = 0;
    let finding = watching
        .told(Rule::ReplicaLag, || {
            batch += 1;
            let value = "x".repeat(1 << 20);
            (0..2).for_each(|_| drop(master.tell(&["SET", "k", &value])));
        })
        .await;
    assert!(finding.next_command.contains(&format!("-p {}", replica.port())), "{finding:#?}");
    let value = "x".repeat(4 << 20);
    watching.told(Rule::ReplicaBuffer, || drop(master.tell(&["SET", "k", &value]))).await;
    replica.kill();
    assert!(watching.told(Rule::ReplicaDown, || {}).await.cause.contains("1 of 1 replicas are gone"));
}

/// `tidegate big-keys` reads a snapshot as a replica would: nobody is missed when it leaves.
#[tokio::test]
async fn a_reader_of_a_snapshot_is_no_replica() {
    let redis = with_options(&[("repl-diskless-sync-delay", "1")]);
    fill(&redis, "a", 1_000, 10);
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    watching.quiet(2).await;
    let url = redis.url();
    let reading = tokio::spawn(async move {
        let options = BigKeysOptions { route: Route::Snapshot, pace: Pace::Fast, ..BigKeysOptions::default() };
        big_keys(&RedisOptions::parse(&url).unwrap(), &options).await.unwrap()
    });
    let mut looks_at_it = 0;
    while !reading.is_finished() {
        watching.quiet(1).await;
        let info = &watching.last.samples[0].answer().unwrap().info;
        looks_at_it += usize::from(info.number("connected_slaves") == Some(1));
    }
    assert_eq!(reading.await.unwrap().route, "snapshot");
    assert!(looks_at_it >= 2, "{looks_at_it}");
    watching.quiet(10).await;
}

/// A replica that waits for its first copy has lost no master.
#[tokio::test]
async fn a_first_copy_is_no_lost_master() {
    let master = with_options(&[("repl-diskless-sync", "yes"), ("repl-diskless-sync-delay", "2")]);
    let replica = Redis::start();
    let mut watching = Watching::new(&replica.url(), short(Purpose::State));
    watching.quiet(2).await;
    replica.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let (began, mut looks_at_it) = (Instant::now(), 0);
    loop {
        watching.quiet(1).await;
        let info = &watching.last.samples[0].answer().unwrap().info;
        if info.text("master_link_status") == Some("up") {
            break;
        }
        looks_at_it += 1;
        assert!(began.elapsed() < IN_TIME, "the replica does not follow");
    }
    assert!(looks_at_it >= 3, "{looks_at_it}");
    watching.quiet(3).await;
    // The same link, once it was up.
    master.kill();
    assert!(watching.told(Rule::ReplicaDown, || {}).await.cause.contains("has lost its master"));
}

#[tokio::test]
async fn a_replica_without_its_master() {
    let (master, replica) = (Redis::start(), Redis::start());
    pair(&master, &replica).await;
    let mut watching = Watching::new(&replica.url(), short(Purpose::Shared));
    watching.quiet(4).await;
    master.kill();
    let finding = watching.told(Rule::ReplicaDown, || {}).await;
    assert!(finding.cause.contains(&format!("127.0.0.1:{}", master.port())), "{finding:#?}");
    master.restart();
    watching.over(Rule::ReplicaDown).await;
}

// O22
#[tokio::test]
async fn a_replica_that_holds_more_than_its_master() {
    let (master, replica) = (Redis::start(), Redis::start());
    pair(&master, &replica).await;
    replica.tell(&["CONFIG", "SET", "replica-read-only", "no"]);
    fill(&master, "a", 2_000, 10);
    let settings = with(short(Purpose::Shared), Rule::ExpiredLingering, |rule| rule.min_size = 1_000);
    let mut watching = Watching::new(&master.url(), settings);
    let mut on_replica = RedisSamples::new(RedisOptions::parse(&replica.url()).unwrap(), Duration::from_millis(800));
    while replica.tell(&["DBSIZE"]) != "2000" {
        watching.quiet(1).await;
    }
    fill(&replica, "b", 6_000, 10);
    let mut changes = Vec::new();
    for _ in 0..6 {
        watching.look().await;
        let round = on_replica.round().await;
        changes.extend(round.samples.iter().flat_map(|sample| watching.judge.judge(sample)));
        tokio::time::sleep(EVERY).await;
    }
    let told = changes.iter().map(Change::finding).find(|finding| finding.rule == Rule::ExpiredLingering).unwrap();
    assert!(
        told.cause.contains("8000 keys, its master 2000") && told.next_command.contains("active-expire-effort"),
        "{told:#?}"
    );
}
