//! What cannot be kept on disk.

use std::fs;
use std::path::PathBuf;

use super::*;

fn folder(redis: &Redis) -> PathBuf {
    redis.tell(&["CONFIG", "GET", "dir"]).lines().last().unwrap().into()
}

// O27
#[tokio::test]
async fn a_snapshot_that_fails() {
    let redis = Redis::start();
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    redis.tell(&["SET", "a", "1"]);
    watching.quiet(3).await;
    // A folder in the place of the file.
    let file = folder(&redis).join("dump.rdb");
    fs::create_dir_all(file.join("x")).unwrap();
    redis.tell(&["BGSAVE"]);
    let finding = watching.told(Rule::SaveFailing, || {}).await;
    assert!(finding.cause.contains("MISCONF"), "{finding:#?}");
    fs::remove_dir_all(&file).unwrap();
    redis.tell(&["BGSAVE"]);
    watching.over(Rule::SaveFailing).await;
}

// O27
#[tokio::test]
async fn a_snapshot_that_does_not_come() {
    let redis = Redis::start();
    fill(&redis, "a", 100, 10);
    redis.tell(&["CONFIG", "SET", "rdb-key-save-delay", "500000"]);
    redis.tell(&["CONFIG", "SET", "save", "1 1"]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    let finding = watching.told(Rule::SaveOld, || drop(redis.tell(&["INCR", "n"]))).await;
    assert!(finding.cause.contains("was due after 1 s"), "{finding:#?}");
    assert!(finding.severity == tidegate_core::watch::Severity::Critical);
}

#[tokio::test]
async fn an_append_only_file_that_cannot_be_rewritten() {
    let redis = Redis::start_with(Setup::default().persistent());
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    fill(&redis, "a", 100, 10);
    watching.quiet(3).await;
    let next = folder(&redis).join("appendonlydir").join("appendonly.aof.2.base.rdb");
    fs::create_dir_all(next.join("x")).unwrap();
    redis.tell(&["BGREWRITEAOF"]);
    let finding = watching.told(Rule::AofFailing, || {}).await;
    assert!(finding.cause.contains("could not be rewritten"), "{finding:#?}");
}

#[tokio::test]
async fn forks_that_cost_too_much() {
    let redis = Redis::start();
    let settings = with(short(Purpose::State), Rule::ForkHeadroom, |rule| {
        // No test has a server of which a fork takes a second.
        (rule.min_size, rule.threshold, rule.clear) = (0, 0.000_05, 0.000_01);
    });
    let mut watching = Watching::new(&redis.url(), settings);
    watching.quiet(3).await;
    redis.tell(&["BGSAVE"]);
    let finding = watching.told(Rule::ForkHeadroom, || {}).await;
    assert!(!finding.evidence["last_fork_ms"].is_null(), "{finding:#?}");
}
