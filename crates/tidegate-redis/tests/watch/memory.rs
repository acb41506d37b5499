//! Memory that runs out, is wasted, or is taken from others.

use tidegate_conformance::servers::Engine;

use super::*;

#[tokio::test]
async fn memory_that_fills_up_is_told_before_and_when_writes_fail() {
    let redis = with_options(&[("maxmemory", "30mb"), ("maxmemory-policy", "noeviction")]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    watching.quiet(5).await;
    fill(&redis, "a", 26, 1 << 20);
    let finding = watching.told(Rule::MemoryPressure, || {}).await;
    assert!(finding.cause.contains("of 30.0 MiB (maxmemory) is used"), "{finding:#?}");
    let full = watching
        .told(Rule::FullNoeviction, || {
            let _ = redis.try_tell(&["SET", "b", &"x".repeat(1 << 20)]);
            let _ = redis.try_tell(&["APPEND", "c", &"x".repeat(1 << 20)]);
        })
        .await;
    assert!(
        full.next_command.starts_with("redis-cli -h 127.0.0.1 -p ")
            && full.next_command.contains("CONFIG SET maxmemory")
    );
    redis.tell(&["FLUSHALL"]);
    watching.over(Rule::FullNoeviction).await;
    watching.over(Rule::MemoryPressure).await;
}

// O9
#[tokio::test]
async fn pressure_foretells_the_first_eviction() {
    let redis = with_options(&[("maxmemory", "40mb"), ("maxmemory-policy", "allkeys-lru")]);
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    watching.quiet(3).await;
    let evicted = |watching: &Watching| watching.last.samples[0].answer().unwrap().info.number("evicted_keys").unwrap();
    let mut before = 0.0;
    for batch in 0..1_000 {
        fill(&redis, &format!("k{batch}-"), 40, 4_096);
        watching.look().await;
        if evicted(&watching) > 0 {
            break;
        }
        before = watching.judge.memory().next().unwrap().pressure.unwrap();
    }
    // A batch is 0.4 % of the limit.
    assert!(evicted(&watching) > 0 && (0.985..1.01).contains(&before), "{before}");
    let open: Vec<_> = watching.judge.open().collect();
    assert!(open.iter().any(|finding| finding.rule == Rule::EvictionOfState), "{open:#?}");
    let finding = open.iter().find(|finding| finding.rule == Rule::EvictionOfState).unwrap();
    assert!(finding.next_command.ends_with("CONFIG SET maxmemory-policy noeviction"), "{finding:#?}");
}

#[tokio::test]
async fn evictions_by_purpose() {
    let redis = with_options(&[("maxmemory", "20mb"), ("maxmemory-policy", "allkeys-lru")]);
    let mut shared = Watching::new(&redis.url(), short(Purpose::Shared));
    let mut cache = Watching::new(&redis.url(), short(Purpose::Cache));
    let mut batch = 0;
    let mut write = || {
        batch += 1;
        fill(&redis, &format!("k{batch}-"), 200, 10_000);
        // Reads that find nothing: what is read does not fit.
        redis.tell(&["MGET", "none", "no", "nothing"]);
    };
    (0..15).for_each(|_| write());
    shared.quiet(1).await;
    let finding = shared.told(Rule::Evictions, &mut write).await;
    assert!(finding.cause.contains("state"), "{finding:#?}");
    let finding = cache.told(Rule::Evictions, &mut write).await;
    assert!(finding.cause.contains("what is read does not fit"), "{finding:#?}");
    let full = |finding: &Finding| matches!(finding.rule, Rule::MemoryPressure | Rule::FullNoeviction);
    assert!(!cache.judge.open().any(full), "a cache is meant to be full");
}

#[tokio::test]
async fn a_policy_that_is_changed_and_data_that_are_flushed() {
    let redis = Redis::start();
    let mut watching = Watching::new(&redis.url(), short(Purpose::State));
    fill(&redis, "a", 5_000, 10);
    watching.quiet(3).await;
    redis.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    assert!(watching.told(Rule::PolicyChanged, || {}).await.cause.contains("from noeviction to allkeys-random"));
    redis.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    watching.over(Rule::PolicyChanged).await;
    // Keys that are deleted one by one are no loss; neither are those that expire.
    redis.tell(&["EVAL", "for i = 1, 4000 do redis.call('DEL', 'a' .. i) end", "0"]);
    watching.quiet(3).await;
    redis.tell(&["EVAL", "for i = 1, 5000 do redis.call('SET', 'b' .. i, 1, 'PX', 300) end", "0"]);
    watching.quiet(6).await;
    fill(&redis, "a", 5_000, 10);
    // So long that what went is no reason any more to count flushes at each look, and that a flush that Redis 7.4 counts late, once the
    // memory is free again, cannot be what took it.
    watching.quiet(if Engine::default() == Engine::Redis74 { 80 } else { 12 }).await;
    // A flush that took nothing has not taken what is deleted later.
    redis.tell(&["EVAL", "redis.call('SELECT', 9); redis.call('FLUSHDB')", "0"]);
    watching.quiet(35).await;
    redis.tell(&["EVAL", "for i = 1, 5000 do redis.call('UNLINK', 'a' .. i) end", "0"]);
    watching.quiet(6).await;
    fill(&redis, "a", 5_000, 10);
    watching.quiet(2).await;
    redis.tell(&["FLUSHALL"]);
    let finding = watching.told(Rule::DataLost, || {}).await;
    assert!(finding.cause.contains("5000 keys are gone: FLUSHALL"), "{finding:#?}");
}

#[tokio::test]
async fn keys_without_an_end_that_grow() {
    let redis = Redis::start();
    let settings = with(short(Purpose::Shared), Rule::KeysWithoutTtl, |rule| rule.min_size = 5_000);
    let mut watching = Watching::new(&redis.url(), settings);
    let mut batch = 0;
    let finding = watching
        .told(Rule::KeysWithoutTtl, || {
            batch += 1;
            fill(&redis, &format!("session:{batch}:"), 2_000, 10);
        })
        .await;
    assert!(finding.cause.contains("100 % of"), "{finding:#?}");
}

#[tokio::test]
async fn memory_that_is_wasted_by_churn() {
    let redis = with_options(&[("activedefrag", "no")]);
    let settings = with(short(Purpose::Cache), Rule::Fragmentation, |rule| (rule.samples, rule.of) = (3, 3));
    let mut watching = Watching::new(&redis.url(), settings);
    for part in 0..6 {
        fill(&redis, &format!("k{part}-"), 40_000, 700);
    }
    watching.quiet(2).await;
    // Seven of eight go: what stays keeps its pages.
    for part in 0..6 {
        let script = "for i = 1, 40000 do if i % 8 ~= 0 then redis.call('UNLINK', ARGV[1] .. i) end end";
        redis.tell(&["EVAL", script, "0", &format!("k{part}-")]);
    }
    let settings = with(watching_settings(), Rule::Fragmentation, |rule| rule.min_size = 16 << 20);
    watching = Watching::new(&redis.url(), settings);
    let finding = watching.told(Rule::Fragmentation, || {}).await;
    // Debian's build cannot defragment, libc's allocator neither: nobody is told to turn it on there.
    let can = finding.evidence["can_defragment"] == true;
    assert_eq!(finding.next_command.contains("CONFIG SET activedefrag yes"), can, "{finding:#?}");
    let wasted: u64 = finding.evidence["wasted_bytes"].to_string().parse().unwrap();
    assert!(wasted > 100 << 20, "{finding:#?}");
}

/// A server that can defragment: it is told to, and does.
#[tokio::test]
async fn memory_that_is_wasted_by_churn_and_defragmented() {
    let redis = Redis::start_with(Setup::default().engine(Engine::Redis74));
    let settings = with(watching_settings(), Rule::Fragmentation, |rule| rule.min_size = 16 << 20);
    let mut watching = Watching::new(&redis.url(), settings);
    for part in 0..6 {
        fill(&redis, &format!("k{part}-"), 40_000, 700);
    }
    watching.quiet(2).await;
    for part in 0..6 {
        let script = "for i = 1, 40000 do if i % 8 ~= 0 then redis.call('UNLINK', ARGV[1] .. i) end end";
        redis.tell(&["EVAL", script, "0", &format!("k{part}-")]);
    }
    let finding = watching.told(Rule::Fragmentation, || {}).await;
    let command = finding.next_command.rsplit_once("CONFIG SET ").unwrap().1;
    assert_eq!(command, "activedefrag yes", "{finding:#?}");
    assert_eq!(finding.evidence["can_defragment"], true, "{finding:#?}");
    redis.tell(&["CONFIG", "SET", "activedefrag", "yes"]);
    // As fast as it goes, and down to the last MiB.
    let fast = ["active-defrag-cycle-min", "50", "active-defrag-cycle-max", "75", "active-defrag-ignore-bytes", "1mb"];
    redis.tell(&[&["CONFIG", "SET"], &fast[..]].concat());
    // The allocator gives pages back ten seconds after it has no use for them.
    let began = Instant::now();
    while watching.judge.open().any(|finding| finding.rule == Rule::Fragmentation) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", watching.judge.memory().collect::<Vec<_>>());
        watching.look().await;
        tokio::time::sleep(EVERY).await;
    }
    let stats = redis.tell(&["INFO", "stats"]);
    assert!(!stats.contains("active_defrag_hits:0\r"), "{stats}");
}

fn watching_settings() -> Settings {
    with(short(Purpose::Cache), Rule::Fragmentation, |rule| (rule.samples, rule.of) = (3, 3))
}
