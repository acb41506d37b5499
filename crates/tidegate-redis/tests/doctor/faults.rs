//! Faults of one server, one by one.

use super::*;

/// What is wrong with `check` for `role` when `name` is set to `bad`, and is not with `good`.
struct Fault {
    check: Check,
    role: Purpose,
    name: &'static str,
    bad: &'static str,
    good: &'static str,
}

const fn fault(check: Check, role: Purpose, name: &'static str, bad: &'static str, good: &'static str) -> Fault {
    Fault { check, role, name, bad, good }
}

use Purpose::{Cache, Shared, State};

const FAULTS: &[Fault] = &[
    fault(Check::EvictionPolicy, State, "maxmemory-policy", "allkeys-lru", "noeviction"),
    fault(Check::EvictionPolicy, Cache, "maxmemory-policy", "noeviction", "volatile-lfu"),
    fault(Check::EvictionPolicy, Shared, "maxmemory-policy", "allkeys-lfu", "volatile-lfu"),
    fault(Check::MaxmemoryUnset, State, "maxmemory", "0", "100mb"),
    fault(Check::ClientMemory, State, "maxmemory-clients", "0", "5%"),
    fault(Check::PersistenceOff, State, "save", "", "900 1"),
    fault(Check::PersistenceOff, State, "appendonly", "no", "yes"),
    fault(Check::AppendSync, State, "appendfsync", "no", "everysec"),
    fault(Check::AppendGrowth, State, "auto-aof-rewrite-percentage", "0", "100"),
    fault(Check::LazyFree, State, "lazyfree-lazy-user-del", "no", "yes"),
    fault(Check::LazyFree, State, "lazyfree-lazy-server-del", "no", "yes"),
    fault(Check::Keepalive, State, "tcp-keepalive", "0", "60"),
    fault(Check::IdleTimeout, State, "timeout", "30", "0"),
    fault(Check::KeyspaceEvents, State, "notify-keyspace-events", "KEA", ""),
    fault(Check::SlowLog, State, "slowlog-log-slower-than", "-1", "10000"),
    fault(Check::SlowLog, State, "slowlog-max-len", "3", "128"),
    fault(Check::LatencyMonitor, State, "latency-monitor-threshold", "0", "100"),
    fault(Check::StopWrites, Cache, "stop-writes-on-bgsave-error", "yes", "no"),
];

/// What a fault needs around it.
fn around(redis: &Redis, fault: &Fault) {
    for (name, value) in [
        ("save", if fault.check == Check::StopWrites { "900 1" } else { "" }),
        ("appendonly", if matches!(fault.check, Check::AppendSync | Check::AppendGrowth) { "yes" } else { "no" }),
        ("lazyfree-lazy-eviction", "yes"),
        ("lazyfree-lazy-expire", "yes"),
        ("lazyfree-lazy-server-del", "yes"),
        ("lazyfree-lazy-user-del", "yes"),
        ("lazyfree-lazy-user-flush", "yes"),
        ("replica-lazy-flush", "yes"),
    ] {
        redis.tell(&["CONFIG", "SET", name, value]);
    }
}

#[tokio::test]
async fn settings_that_do_not_fit() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        for fault in FAULTS {
            around(&redis, fault);
            let mut seen = Vec::new();
            for value in [fault.bad, fault.good] {
                redis.tell(&["CONFIG", "SET", fault.name, value]);
                let report = look(&redis.url(), fault.role).await;
                let found = of(&report, fault.check);
                if let Some(found) = found {
                    assert!(
                        !found.evidence.is_empty() && !found.fix.is_empty() && !found.risk.is_empty(),
                        "{found:#?}"
                    );
                    assert!(found.fix.contains(&redis.port().to_string()), "{found:#?}");
                }
                seen.push(found.is_some());
            }
            assert_eq!(seen, [true, false], "{engine:?}: {} of {}", fault.check.name(), fault.name);
        }
    }
}

#[tokio::test]
async fn limits_against_the_machine() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let info = redis.tell(&["INFO", "memory"]);
        let all = info.lines().find_map(|line| line.trim().strip_prefix("total_system_memory:")).unwrap();
        let all: u64 = all.parse().unwrap();
        for (limit, want) in
            [(all * 2, Some(Severity::Critical)), (all / 100 * 99, Some(Severity::Warning)), (all / 4, None)]
        {
            redis.tell(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
            let report = look(&redis.url(), State).await;
            assert_eq!(of(&report, Check::MemoryHeadroom).map(|found| found.severity), want, "{limit} of {all}");
        }
    }
}

/// Whoever reaches it may do everything; a password, an address, protected mode each end that.
#[tokio::test]
async fn a_server_that_is_open_to_all() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let set = |name: &str, value: &str| redis.tell(&["CONFIG", "SET", name, value]);
        let is_open = async |url: &str| of(&look(url, Cache).await, Check::OpenToAll).is_some();
        let url = redis.url();
        assert!(!is_open(&url).await, "it is bound to this machine");
        set("protected-mode", "no");
        set("bind", "0.0.0.0");
        assert!(is_open(&url).await);
        set("protected-mode", "yes");
        assert!(!is_open(&url).await);
        set("protected-mode", "no");
        set("requirepass", "word");
        assert!(!is_open(&url.replace("redis://", "redis://:word@")).await);
    }
}

/// O27: a snapshot that fails, and one that is old.
#[tokio::test]
async fn snapshots_that_fail_and_are_old() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let set = |name: &str, value: &str| redis.tell(&["CONFIG", "SET", name, value]);
        set("save", "1 1000000");
        redis.tell(&["SET", "a", "1"]);
        assert!(of(&look(&redis.url(), State).await, Check::SaveOld).is_none(), "no snapshot is due");
        set("save", "1 1");
        let dir = redis.tell(&["CONFIG", "GET", "dir"]).lines().nth(1).unwrap().to_owned();
        // A folder stands where the file is to be.
        std::fs::create_dir_all(format!("{dir}/dump.rdb/x")).unwrap();
        redis.tell(&["SET", "b", "1"]);
        until("a snapshot that fails", || {
            let _ = redis.try_tell(&["BGSAVE"]);
            redis.tell(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")
        })
        .await;
        let report = look(&redis.url(), State).await;
        assert_eq!(of(&report, Check::SaveFailing).unwrap().severity, Severity::Critical);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let report = look(&redis.url(), State).await;
        let old = of(&report, Check::SaveOld).unwrap();
        assert!(old.evidence["age_seconds"].as_u64().unwrap() >= 2, "{old:#?}");
        std::fs::remove_dir_all(format!("{dir}/dump.rdb")).unwrap();
        until("a snapshot that does not fail", || {
            let _ = redis.try_tell(&["BGSAVE"]);
            redis.tell(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:ok")
        })
        .await;
        let report = look(&redis.url(), State).await;
        assert_eq!((of(&report, Check::SaveFailing), of(&report, Check::SaveOld)), (None, None));
    }
}

/// Whether allocations can be moved is asked, and nothing is changed by that.
#[tokio::test]
async fn defragmentation() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        let settings = |redis: &Redis| {
            let of = |name: &str| redis.tell(&["CONFIG", "GET", name]);
            (of("activedefrag"), of("hz"))
        };
        let before = settings(&redis);
        let node = seen(&redis.url(), State).await.nodes.remove(0);
        assert_eq!(settings(&redis), before);
        let can = redis.try_tell(&["CONFIG", "SET", "activedefrag", "yes"]).is_ok();
        assert_eq!(node.can_defrag, Some(can), "{engine:?}");
        if can {
            redis.tell(&["CONFIG", "SET", "active-defrag-cycle-max", "75"]);
            assert!(of(&look(&redis.url(), State).await, Check::DefragThresholds).is_some());
            redis.tell(&["CONFIG", "SET", "active-defrag-cycle-max", "25"]);
            assert!(of(&look(&redis.url(), State).await, Check::DefragThresholds).is_none());
            redis.tell(&["CONFIG", "SET", "activedefrag", "no"]);
            // 80 MB are enough to be worth it.
            let script = "for i = 1, 80 do redis.call('SET', 'k' .. i, string.rep('x', 1048576)) end";
            redis.tell(&["EVAL", script, "0"]);
            let report = look(&redis.url(), State).await;
            assert_eq!(of(&report, Check::DefragOff).unwrap().severity, Severity::Info);
        }
    }
}

/// What the machine says is seen of a server on it, and judged as it is.
#[tokio::test]
async fn the_machine() {
    let redis = Redis::start();
    // A server takes its own measure ten times a second: before the first time it is not known to be the process it names.
    let rss = || {
        redis
            .tell(&["INFO", "memory"])
            .lines()
            .find_map(|line| line.strip_prefix("used_memory_rss:")?.parse::<u64>().ok())
    };
    until("it has measured itself", || rss().is_some_and(|rss| rss > 0)).await;
    let node = seen(&redis.url(), State).await.nodes.remove(0);
    let report = look(&redis.url(), State).await;
    let chosen = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok();
    if let (Some(chosen), Some(seen)) = (chosen, &node.machine.huge_pages) {
        assert!(chosen.contains(&format!("[{seen}]")), "{chosen}: {seen}");
        let is_bad = seen == "always" && node.machine.huge_pages_refused != Some(true);
        assert_eq!(of(&report, Check::HugePages).is_some(), is_bad);
    }
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
    assert_eq!(node.machine.overcommit, mode.trim().parse().ok());
}

/// O11: INFO alone, INFO and SCAN, and nothing at all.
#[tokio::test]
async fn users_that_may_not_see_everything() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        fill(&redis, "user:", 50, 0);
        redis.tell(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        let may = |what: &[&str]| {
            redis.tell(
                &[&["ACL", "SETUSER", "looker", "reset", "on", ">word", "~*", "+ping", "+select"], what].concat(),
            );
        };
        let url = format!("redis://looker:word@127.0.0.1:{}", redis.port());
        may(&["+info"]);
        let report = look(&url, State).await;
        let policy = of(&report, Check::EvictionPolicy).unwrap();
        assert!(policy.changes.is_empty() && policy.fix.contains("your provider"), "{policy:#?}");
        assert!(
            report.findings.iter().all(|finding| matches!(
                finding.check,
                Check::EvictionPolicy | Check::MaxmemoryUnset | Check::NoReplica | Check::HugePages | Check::Overcommit
            )),
            "{:#?}",
            report.findings
        );
        let unknown = |report: &Report, check: Check| {
            report.unknown.iter().find(|unknown| unknown.check == check).map(|unknown| unknown.why.clone())
        };
        assert!(unknown(&report, Check::LazyFree).unwrap().contains("CONFIG GET is not permitted"));
        assert!(unknown(&report, Check::OwnKeysEvictable).unwrap().contains("SCAN are not permitted"));
        may(&["+info", "+scan"]);
        let node = seen(&url, State).await.nodes.remove(0);
        let tidegate_core::doctor::Keys::Seen(sample) = &node.keys else { panic!("{:?}", node.keys) };
        assert!(sample.keys == 50 && sample.ttl_forbidden, "{sample:?}");
        assert_eq!(unknown(&look(&url, State).await, Check::OwnKeysEvictable), None);
        may(&["-info"]);
        let e = examine(&RedisOptions::parse(&url).unwrap(), State).await.unwrap_err();
        assert_eq!(e.kind(), tidegate_backend::ErrorKind::Configuration);
        assert!(e.to_string().contains("INFO"), "{e}");
    }
}

/// A server that is gone, or goes while it is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_go() {
    let redis = Redis::start();
    fill(&redis, "user:", 20_000, 0);
    let url = redis.url();
    let looking = async {
        loop {
            if let Err(e) = examine(&RedisOptions::parse(&url).unwrap(), State).await {
                return e;
            }
        }
    };
    let killing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| redis.kill());
    };
    let (e, ()) = tokio::time::timeout(IN_TIME, async { tokio::join!(looking, killing) }).await.unwrap();
    assert_eq!(e.kind(), tidegate_backend::ErrorKind::Unavailable);
    assert!(e.to_string().contains(&redis.port().to_string()) && e.to_string().contains("check the URL"), "{e}");
    // One that is frozen is not waited for without end.
    let frozen = Redis::start();
    frozen.freeze();
    let began = Instant::now();
    let e = examine(&RedisOptions::parse(&frozen.url()).unwrap(), State).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(e.kind(), tidegate_backend::ErrorKind::Unavailable);
    frozen.thaw();
}

/// Looking changes nothing, and each kind of server is looked at in little time.
#[tokio::test]
async fn a_million_keys_take_little_time() {
    for engine in ENGINES {
        let redis = Redis::start_with(Setup::default().engine(engine));
        for part in 0..10 {
            fill(&redis, &format!("session:{part}:"), 60_000, 3_600);
            fill(&redis, &format!("page:{part}:"), 40_000, 0);
        }
        let stats = |redis: &Redis| redis.tell(&["INFO", "commandstats"]);
        let mut times = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            let report = look(&redis.url(), Cache).await;
            times.push(began.elapsed());
            assert!(of(&report, Check::MaxmemoryUnset).is_some());
        }
        times.sort();
        println!("{engine:?}: a million keys, median {:?}, {times:?}", times[2]);
        assert!(times[0] < Duration::from_millis(500), "{times:?}");
        let stats = stats(&redis);
        assert!(!stats.contains("cmdstat_keys:") && !stats.contains("cmdstat_monitor:"), "{stats}");
    }
}
