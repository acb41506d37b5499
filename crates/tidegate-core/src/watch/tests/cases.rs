//! Cases of the field, by their numbers in the case list.

use super::super::sample::Host;
use super::*;

// O1
#[test]
fn an_empty_server_is_never_told_of() {
    for text in [REDIS_7_0, REDIS_7_4, VALKEY_8_1, VALKEY_9_1] {
        for purpose in [Purpose::State, Purpose::Cache, Purpose::Shared] {
            let mut scene = Scene::on(text, Settings::new(purpose));
            scene.set(&[("uptime_in_seconds", "1"), ("used_memory", "900000"), ("used_memory_rss", "7000000")]);
            scene.set(&[("mem_fragmentation_ratio", "7.80")]);
            // A day, a sample in ten seconds.
            for hour in 0..24_u64 {
                let mut sample = scene.set_number("uptime_in_seconds", 1 + hour * 3_600).sample();
                for _ in 0..360 {
                    sample.at = Millis(scene.now);
                    assert!(scene.judge.judge(&sample).is_empty(), "{purpose:?} {hour}");
                    scene.now += 10 * S;
                }
            }
        }
    }
}

// O2
#[test]
fn counters_below_zero_are_judged_by_nobody() {
    let underflow = "18446744073708551100";
    for field in [
        "used_memory",
        "used_memory_rss",
        "mem_not_counted_for_evict",
        "mem_clients_normal",
        "evicted_keys",
        "maxmemory",
    ] {
        let mut scene = Scene::new(Purpose::State);
        scene.looks(2);
        scene.set(&[
            ("used_memory_dataset", underflow),
            ("used_memory_dataset_perc", "45035996273704960.00%"),
            ("mem_fragmentation_ratio", "24.00"),
            (field, underflow),
        ]);
        assert!(scene.looks(100).is_empty(), "{field}");
    }
}

// O4
#[test]
fn overhead_outside_of_allocations_is_not_to_be_defragmented() {
    let mut settings = Settings::default();
    let eager = super::super::RuleSettings { threshold: 1.2, clear: 1.1, ..Rule::Fragmentation.defaults() };
    settings.set(Rule::Fragmentation, eager).unwrap();
    let mut scene = Scene::on(REDIS_7_0, settings);
    // allocator_frag_ratio 1.003, mem_fragmentation_ratio 1.21.
    scene.set(&[
        ("used_memory", &mib(1_000)),
        ("allocator_allocated", &mib(1_000)),
        ("allocator_active", &mib(1_003)),
        ("allocator_resident", &mib(1_180)),
        ("used_memory_rss", &mib(1_210)),
        ("allocator_frag_ratio", "1.003"),
    ]);
    scene.answer.config.can_defrag = Some(true);
    let finding = only(&scene.looks(30), Rule::Fragmentation);
    assert!(finding.next_command.ends_with("MEMORY PURGE") && !finding.next_command.contains("defrag"), "{finding:#?}");
    assert!(finding.cause.contains("would not help"), "{finding:#?}");
}

// O6
#[test]
fn one_heap_is_judged_alike_by_every_version() {
    let heap = [
        ("used_memory", mib(400)),
        ("allocator_allocated", mib(400)),
        ("allocator_active", mib(790)),
        ("allocator_resident", mib(800)),
        ("used_memory_rss", mib(810)),
    ];
    // What 7.2 calls fragmentation, and what 7.4 and Valkey 8 do: the part of small allocations.
    let told = |text: &str, frag: &str| {
        let mut scene = Scene::on(text, Settings::default());
        let heap: Vec<_> = heap.iter().map(|(name, value)| (*name, &value[..])).collect();
        scene.set(&heap).set(&[("allocator_frag_bytes", frag), ("mem_allocator", "jemalloc-5.3.0")]);
        let finding = only(&scene.looks(30), Rule::Fragmentation);
        (finding.cause, finding.severity, finding.next_command)
    };
    let old = with(REDIS_7_0, &[("redis_version", "7.2.5")]);
    let want = told(&old, &mib(390));
    assert!(want.0.contains("holes"), "{want:?}");
    assert_eq!(told(REDIS_7_4, &mib(50)), want);
    assert_eq!(told(VALKEY_8_1, &mib(50)), want);
}

// O7
#[test]
fn without_maxmemory_the_machine_is_the_limit() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("used_memory", &mib(3_000)), ("used_memory_rss", &mib(3_000)), ("total_system_memory", &mib(16_000))]);
    assert!(scene.looks(10).is_empty());
    let memory = scene.judge.memory().next().unwrap();
    assert_eq!((memory.limit_source, memory.pressure.map(|p| (p * 1_000.0) as u64)), (Some("host"), Some(187)));
    scene.answer.host = Host { cgroup_bytes: Some(3_200 * MIB), swapped_bytes: None };
    let finding = only(&scene.looks(5), Rule::MemoryPressure);
    assert!(
        finding.evidence["limit_source"] == "cgroup" && finding.cause.contains("the system will kill"),
        "{finding:#?}"
    );
    // A limit above the machine is none, and nobody who says nothing is full.
    scene.answer.host = Host { cgroup_bytes: Some(1 << 62), swapped_bytes: None };
    scene.set(&[("total_system_memory", "0")]);
    scene.looks(2);
    assert_eq!(scene.judge.memory().next().unwrap().limit_source, Some("cgroup"));
}

// O7
#[test]
fn a_cache_is_meant_to_be_full() {
    let full = |purpose, policy: &str, db0: &str| {
        let mut scene = Scene::new(purpose);
        scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(100)), ("used_memory_rss", &mib(110))]);
        scene.set(&[("maxmemory_policy", policy), ("db0", db0)]);
        opened(&scene.looks(60))
    };
    let (some_expire, none_expire) = ("keys=1000,expires=900,avg_ttl=1", "keys=1000,expires=0,avg_ttl=0");
    for (policy, db0) in [("allkeys-lru", none_expire), ("volatile-lfu", some_expire)] {
        assert!(full(Purpose::Cache, policy, db0).is_empty(), "{policy}");
        assert!(full(Purpose::Shared, policy, db0).is_empty(), "{policy}");
    }
    assert_eq!(full(Purpose::Shared, "volatile-lru", none_expire), [Rule::MemoryPressure], "nothing can be evicted");
    for (purpose, expires, words) in [
        (Purpose::Shared, 0, "and no key has one), so that writes will be refused"),
        (Purpose::State, 0, "and no key has one), so that writes will be refused"),
        (Purpose::Shared, 40, "only 4.0 % of the keys can be evicted"),
        (Purpose::State, 900, "keys of a server that holds state will be evicted"),
    ] {
        let mut scene = Scene::new(purpose);
        scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(90)), ("maxmemory_policy", "volatile-lru")]);
        // The scene has a key of its own in another database.
        scene.set(&[("db0", &format!("keys=999,expires={expires},avg_ttl=0")), ("db3", "keys=1,expires=0")]);
        let finding = only(&scene.looks(5), Rule::MemoryPressure);
        assert!(finding.cause.contains(words), "{purpose:?} {expires}: {}", finding.cause);
        assert!(!finding.cause.contains("holds state") || expires == 900, "{}", finding.cause);
    }
    assert_eq!(full(Purpose::State, "volatile-lru", some_expire), [Rule::MemoryPressure]);
    assert_eq!(full(Purpose::Cache, "noeviction", some_expire), [Rule::FullNoeviction, Rule::MemoryPressure]);
}

// O22
#[test]
fn a_replica_with_expired_keys_is_not_the_truth() {
    let mut scene = Scene::new(Purpose::Shared);
    let mut replica = Scene::new(Purpose::Shared);
    replica.address = "10.0.0.8:6379".to_owned();
    scene.set(&[("db0", "keys=113000,expires=113000,avg_ttl=1")]);
    replica.set(&[
        ("role", "slave"),
        ("master_host", "10.0.0.7"),
        ("master_port", "6379"),
        ("master_link_status", "up"),
        ("master_last_io_seconds_ago", "0"),
        ("db0", "keys=10800000,expires=10800000,avg_ttl=1"),
    ]);
    let mut changes = Vec::new();
    for _ in 0..30 {
        changes.extend(scene.look());
        changes.extend(scene.judge.judge(&replica.sample()));
        replica.now += S;
    }
    let finding = only(&changes, Rule::ExpiredLingering);
    assert_eq!((&finding.address[..], &finding.evidence["keys_of_master"]), ("10.0.0.8:6379", &113_001.into()));
    assert!(finding.cause.contains("scan the master") && finding.next_command.contains("-h 10.0.0.7"), "{finding:#?}");
    // Alone, nobody knows what it should have.
    let mut alone = Scene::new(Purpose::Shared);
    alone.text = replica.text.clone();
    assert!(alone.looks(20).is_empty());
}

// O26
#[test]
fn what_swings_around_the_limit_for_an_hour_is_told_once() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("maxmemory", &mib(1_000))]);
    let mut changes = Vec::new();
    for look in 0..3_600 {
        // From far below to far above, in 20 seconds.
        let used = if look % 20 < 10 { 960 } else { 700 };
        scene.set(&[("used_memory", &mib(used)), ("used_memory_rss", &mib(used))]);
        changes.extend(scene.look());
        if look % 100 == 7 {
            // Whoever watches is started again.
            scene.judge = Judge::restore(Settings::new(Purpose::State), &scene.judge.save()).unwrap();
        }
    }
    scene.set(&[("used_memory", &mib(500)), ("used_memory_rss", &mib(500))]);
    changes.extend(scene.looks(1_200));
    assert_eq!((opened(&changes), closed(&changes)), (vec![Rule::MemoryPressure], vec![Rule::MemoryPressure]));
    let (first, last) = (changes[0].finding(), changes[1].finding());
    assert_eq!((&first.id, first.opened_at), (&last.id, last.opened_at));
    assert!(first.closed_at.is_none() && last.closed_at > Some(last.opened_at));
}

// O26
#[test]
fn what_comes_back_again_and_again_is_told_ever_more_rarely() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("maxmemory", &mib(1_000))]);
    let mut changes = Vec::new();
    for look in 0..3_600 {
        // Well for so long that a finding is closed each time.
        let used = if look % 60 < 20 { 960 } else { 700 };
        scene.set(&[("used_memory", &mib(used)), ("used_memory_rss", &mib(used))]);
        changes.extend(scene.look());
    }
    assert!(opened(&changes).len() <= 2, "{changes:#?}");
}

// O26
#[test]
fn a_watch_that_is_started_again_repeats_nothing() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("db0", "keys=50000,expires=0,avg_ttl=0")]);
    scene.looks(3);
    scene.set(&[
        ("run_id", "other"),
        ("uptime_in_seconds", "2"),
        ("db0", "keys=0,expires=0"),
        ("maxmemory_policy", "allkeys-lru"),
    ]);
    scene.set(&[("rdb_last_bgsave_status", "err")]);
    let changes = scene.looks(2);
    let want = [Rule::SaveFailing, Rule::Restarted, Rule::DataLost, Rule::PolicyChanged];
    assert_eq!(opened(&changes), want);
    for _ in 0..5 {
        scene.judge = Judge::restore(Settings::new(Purpose::State), &scene.judge.save()).unwrap();
        assert!(scene.looks(3).is_empty());
        assert_eq!(scene.judge.open().count(), 4);
        assert!(scene.judge.is_critical());
    }
    // What happened while nobody watched is told.
    let saved = scene.judge.save();
    scene.now += 3_600 * S;
    scene.judge = Judge::restore(Settings::new(Purpose::State), &saved).unwrap();
    scene.set(&[("run_id", "third"), ("uptime_in_seconds", "600")]);
    scene.looks(40);
    scene.set(&[("run_id", "fourth"), ("uptime_in_seconds", "1")]);
    assert!(closed(&scene.looks(400)).contains(&Rule::Restarted));
    for text in ["", "{}", "{\"version\":9,\"servers\":{}}", "[]"] {
        let fault = Judge::restore(Settings::default(), text).unwrap_err().to_string();
        assert!(fault.contains("delete it"), "{fault}");
    }
}

#[test]
fn a_server_that_leaves_is_forgotten() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("rdb_last_bgsave_status", "err")]);
    scene.looks(2);
    let changes = scene.judge.forget("10.0.0.7:6379", Millis(scene.now));
    assert_eq!(closed(&changes), [Rule::SaveFailing]);
    assert_eq!((scene.judge.open().count(), scene.judge.addresses().count()), (0, 0));
}
