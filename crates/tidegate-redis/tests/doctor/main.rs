//! The doctor on real servers: each fault is put into one, must be found, and be gone when it is mended.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests; they show what they measured")]

mod applied;
mod faults;
mod keys;
mod sets;

use std::time::{Duration, Instant};

use tidegate_conformance::servers::{Engine, Redis, Setup};
use tidegate_core::doctor::{Check, Deployment, Finding, Report, judge};
use tidegate_core::watch::{Purpose, Severity};
use tidegate_redis::RedisOptions;
use tidegate_redis::doctor::examine;

const ENGINES: [Engine; 4] = Engine::ALL;
/// What is done in other processes is done by then.
const IN_TIME: Duration = Duration::from_secs(20);

async fn seen(url: &str, role: Purpose) -> Deployment {
    examine(&RedisOptions::parse(url).unwrap(), role).await.unwrap()
}

async fn look(url: &str, role: Purpose) -> Report {
    judge(&seen(url, role).await)
}

fn of(report: &Report, check: Check) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.check == check)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < IN_TIME, "{what} does not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn follow(master: &Redis, replica: &Redis) {
    let online = || master.tell(&["INFO", "replication"]).matches("state=online").count();
    // Asked first: it may be online at once.
    let before = online();
    replica.tell(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    until("the replica", || {
        online() > before && replica.tell(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
}

/// Writes `count` keys that begin with `name`; with a time to live if `ttl`, seconds, is not 0.
fn fill(redis: &Redis, name: &str, count: u64, ttl: u64) {
    let script = "for i = 1, tonumber(ARGV[2]) do if ARGV[3] == '0' then redis.call('SET', ARGV[1] .. i, 'x') \
                  else redis.call('SET', ARGV[1] .. i, 'x', 'EX', ARGV[3]) end end";
    redis.tell(&["EVAL", script, "0", name, &count.to_string(), &ttl.to_string()]);
}
