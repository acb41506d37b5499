//! Each rule finds what it is for, and nothing else does.

use super::super::sample::{Client, Config, Host, SlowCommand};
use super::super::settings::RuleSettings;
use super::super::{Severity, bytes};
use super::*;

/// 500 MiB used, and as much more resident, in holes.
fn fragmented(scene: &mut Scene) {
    scene.set(&[
        ("used_memory", &mib(500)),
        ("allocator_allocated", &mib(500)),
        ("allocator_active", &mib(950)),
        ("allocator_resident", &mib(980)),
        ("used_memory_rss", &mib(1_000)),
    ]);
}

#[test]
fn fragmentation_says_what_helps() {
    let told = |can: Option<bool>, on: Option<bool>| {
        let mut scene = Scene::new(Purpose::Shared);
        scene.answer.config = Config { permitted: Some(true), can_defrag: can, active_defrag: on, ..Config::default() };
        fragmented(&mut scene);
        assert!(scene.looks(20).is_empty(), "it must last");
        only(&scene.looks(10), Rule::Fragmentation)
    };
    let finding = told(Some(true), Some(false));
    assert_eq!(finding.next_command, "redis-cli -h 10.0.0.7 -p 6379 CONFIG SET activedefrag yes");
    assert!(
        finding.cause.contains("500.0 MiB more is resident") && finding.cause.contains("holes"),
        "{}",
        finding.cause
    );
    assert_eq!(finding.evidence["ratio"], 2.0);
    assert!(told(Some(true), Some(true)).next_command.contains("CONFIG GET active-defrag"));
    // Nobody is told to turn on what this server cannot do.
    for can in [Some(false), None] {
        assert!(told(can, None).next_command.ends_with("MEMORY PURGE"));
    }
}

#[test]
fn fragmentation_under_libc_is_told_without_guesses() {
    let mut scene = Scene::on(VALKEY_8_1, Settings::default());
    scene.set(&[("used_memory", &mib(300)), ("used_memory_rss", &mib(700)), ("allocator_active", &mib(700))]);
    let finding = only(&scene.looks(30), Rule::Fragmentation);
    assert!(finding.cause.contains("libc") && finding.risk.contains("restart or a failover"), "{finding:#?}");
    assert!(finding.evidence["holes_bytes"].is_null() && !finding.next_command.contains("PURGE"), "{finding:#?}");
    assert_eq!(scene.judge.memory().next().map(|memory| memory.allocator_frag_bytes), Some(None));
}

#[test]
fn pressure_and_full_memory() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(80)), ("used_memory_rss", &mib(90))]);
    assert!(scene.looks(10).is_empty());
    scene.set(&[("used_memory", &mib(92)), ("mem_not_counted_for_evict", &mib(2))]);
    let finding = only(&scene.looks(5), Rule::MemoryPressure);
    assert_eq!((finding.severity, &finding.evidence["pressure"]), (Severity::Warning, &0.9.into()));
    assert!(finding.next_command.contains("CONFIG SET maxmemory 131072000"), "{finding:#?}");
    // A machine without room for more: what fills it is looked for.
    let mut small = Scene::new(Purpose::State);
    small.set(&[
        ("maxmemory", &mib(100)),
        ("used_memory", &mib(92)),
        ("used_memory_rss", &mib(110)),
        ("total_system_memory", &mib(120)),
    ]);
    let looks = small.looks(5);
    let finding = looks.iter().map(Change::finding).find(|finding| finding.rule == Rule::MemoryPressure).unwrap();
    assert_eq!(finding.next_command, "tidegate big-keys --redis redis://10.0.0.7:6379");
    scene.set(&[("used_memory", &mib(101)), ("mem_not_counted_for_evict", "0")]);
    let finding = only(&scene.looks(3), Rule::FullNoeviction);
    assert_eq!(finding.severity, Severity::Critical);
    // A quarter more than what is used: a limit below that would help nobody.
    assert!(finding.next_command.ends_with(&format!("CONFIG SET maxmemory {}", 101 * MIB / 4 * 5)), "{finding:#?}");
    // What is nearly full already is not told twice.
    assert!(scene.looks(100).is_empty());
}

#[test]
fn refused_writes_are_full_memory_under_any_policy() {
    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(99)), ("maxmemory_policy", "volatile-lru")]);
    scene.set(&[("db0", "keys=10,expires=10,avg_ttl=0"), ("errorstat_OOM", "count=5")]);
    assert!(scene.looks(10).is_empty());
    let mut changes = Vec::new();
    for count in 6..9 {
        scene.set(&[("errorstat_OOM", &format!("count={count}"))]);
        changes.extend(scene.look());
    }
    assert!(only(&changes, Rule::FullNoeviction).cause.contains("finds nothing that it may evict"));
}

#[test]
fn evictions_by_purpose() {
    for (purpose, want) in [
        (Purpose::State, Some(Rule::EvictionOfState)),
        (Purpose::Shared, Some(Rule::Evictions)),
        (Purpose::Cache, None),
    ] {
        let mut scene = Scene::new(purpose);
        scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(70)), ("maxmemory_policy", "allkeys-lru")]);
        scene.set(&[
            ("db0", "keys=100000,expires=0,avg_ttl=0"),
            ("keyspace_hits", "1000000"),
            ("keyspace_misses", "0"),
        ]);
        scene.looks(2);
        let mut changes = Vec::new();
        for look in 1..=5 {
            scene.set_number("evicted_keys", look * 50).set_number("keyspace_hits", 1_000_000 + look * 900);
            scene.set_number("keyspace_misses", look * 100);
            changes.extend(scene.look());
        }
        assert_eq!(opened(&changes), want.into_iter().collect::<Vec<_>>(), "{purpose:?}");
    }
    // A cache whose keys are evicted within minutes and that answers half of the reads is too small.
    let mut scene = Scene::new(Purpose::Cache);
    scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(100)), ("maxmemory_policy", "allkeys-lru")]);
    scene.set(&[("db0", "keys=10000,expires=0,avg_ttl=0")]);
    scene.look();
    let mut changes = Vec::new();
    for look in 1..=5 {
        scene.set_number("evicted_keys", look * 500).set_number("keyspace_hits", look * 500);
        scene.set_number("keyspace_misses", look * 500);
        changes.extend(scene.look());
    }
    let finding = only(&changes, Rule::Evictions);
    assert_eq!(
        (&finding.evidence["hit_rate"], &finding.evidence["seconds_until_evicted"]),
        (&0.5.into(), &20.0.into())
    );
}

#[test]
fn expired_keys_that_stay() {
    let mut scene = Scene::new(Purpose::Cache);
    scene.set(&[("db0", "keys=500000,expires=500000,avg_ttl=1"), ("expired_stale_perc", "41.50")]);
    assert!(scene.looks(20).is_empty(), "many may expire at once: it must last");
    let finding = only(&scene.looks(10), Rule::ExpiredLingering);
    assert!(finding.cause.contains("42 %") && finding.next_command.contains("active-expire-effort"), "{finding:#?}");
    // Half a million that expired at once and are gone within a minute.
    let mut scene = Scene::new(Purpose::Cache);
    for look in 0..50_u64 {
        let left = 500_000 - look * 9_000;
        scene.set(&[("db0", &format!("keys={left},expires={left},avg_ttl=1")), ("expired_stale_perc", "41.50")]);
        assert!(scene.set_number("expired_keys", look * 9_000).look().is_empty());
    }
    // Few keys are no matter.
    let mut scene = Scene::new(Purpose::Cache);
    scene.set(&[("db0", "keys=5000,expires=5000,avg_ttl=1"), ("expired_stale_perc", "41.50")]);
    assert!(scene.looks(10).is_empty());
}

#[test]
fn keys_that_never_expire_and_grow() {
    let grow = |purpose| {
        let mut scene = Scene::new(purpose);
        let mut changes = Vec::new();
        for look in 0..15_u64 {
            let keys = 1_000_000 + look * 5_000;
            scene.set(&[("db0", &format!("keys={keys},expires=1000,avg_ttl=1"))]);
            changes.extend(scene.look());
        }
        changes
    };
    let finding = only(&grow(Purpose::Shared), Rule::KeysWithoutTtl);
    assert_eq!(finding.evidence["added_per_second"], 5_000.0);
    assert_eq!(finding.next_command, "tidegate doctor --role shared --redis redis://10.0.0.7:6379");
    assert!(grow(Purpose::State).is_empty(), "state has no end");
    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("db0", "keys=15000000,expires=10,avg_ttl=1")]);
    assert!(scene.looks(100).is_empty(), "what does not grow is how it is meant");
}

#[test]
fn clients() {
    let large = Client {
        address: "10.0.0.9:5000".into(),
        name: "import".into(),
        command: "set".into(),
        input_bytes: 12 * MIB,
        output_bytes: 90 * MIB,
        total_bytes: 102 * MIB,
    };
    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("maxmemory", &mib(500)), ("used_memory", &mib(200)), ("mem_clients_normal", &mib(100))]);
    scene.answer.clients = vec![large.clone()];
    let finding = only(&scene.looks(5), Rule::ClientBuffers);
    assert!(
        finding.cause.contains("10.0.0.9:5000") && finding.next_command.ends_with("CLIENT KILL ADDR 10.0.0.9:5000")
    );

    let mut scene = Scene::new(Purpose::Shared);
    scene.set_number("client_recent_max_input_buffer", 12 * MIB);
    scene.answer.clients = vec![Client::default(), large];
    let finding = only(&scene.looks(3), Rule::BigValuePassing);
    assert!(
        finding.cause.contains("12.0 MiB")
            && finding.cause.contains("named import")
            && finding.cause.contains("with set")
    );
    assert_eq!(finding.evidence["client"], "10.0.0.9:5000");

    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("connected_clients", "95"), ("maxclients", "100")]);
    assert!(only(&scene.looks(5), Rule::ConnectionsNearLimit).next_command.contains("maxclients 200"));
    scene.set(&[("rejected_connections", "17")]);
    assert_eq!(only(&scene.looks(1), Rule::ConnectionsRejected).evidence["rejected"], 17.0);
}

#[test]
fn forks_and_swap() {
    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("used_memory", &mib(7_000)), ("used_memory_rss", &mib(7_200)), ("total_system_memory", &mib(9_000))]);
    assert!(scene.looks(10).is_empty(), "it never forks");
    scene.set(&[("total_forks", "2"), ("rdb_last_cow_size", &mib(1_500)), ("latest_fork_usec", "140000")]);
    let finding = only(&scene.looks(5), Rule::ForkHeadroom);
    assert!(finding.cause.contains("1.5 GiB more"), "{finding:#?}");

    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("used_memory", &mib(7_000)), ("used_memory_rss", &mib(7_200)), ("latest_fork_usec", "1900000")]);
    assert!(only(&scene.looks(5), Rule::ForkHeadroom).cause.contains("1900 ms"));

    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("used_memory", &mib(1_000)), ("used_memory_rss", &mib(600))]);
    assert!(only(&scene.looks(10), Rule::Swapping).cause.contains("never touched"));
    // On its machine it is seen that nothing was swapped out: memory was asked for and never used.
    let mut scene = Scene::new(Purpose::Shared);
    scene.set(&[("used_memory", &mib(1_000)), ("used_memory_rss", &mib(600))]);
    scene.answer.host = Host { swapped_bytes: Some(0), ..Host::default() };
    assert!(scene.looks(20).is_empty());
}

// O27
#[test]
fn snapshots_that_fail_or_do_not_come() {
    let mut scene = Scene::new(Purpose::Shared);
    scene.looks(2);
    scene.set(&[("rdb_last_bgsave_status", "err")]);
    let finding = only(&scene.looks(1), Rule::SaveFailing);
    assert!(
        finding.severity == Severity::Critical && finding.cause.contains("will be refused (MISCONF)"),
        "{finding:#?}"
    );

    let days_old = |config: Config, saves: &str| {
        let mut scene = Scene::new(Purpose::State);
        scene.answer.config = config;
        let saved = (START / 1_000 - 30 * 86_400).to_string();
        scene.set(&[("rdb_last_save_time", &saved), ("rdb_changes_since_last_save", "7"), ("rdb_saves", saves)]);
        scene.looks(3)
    };
    let planned = Config { permitted: Some(true), save: Some(vec![(3_600, 1), (60, 10_000)]), ..Config::default() };
    let finding = only(&days_old(planned, "0"), Rule::SaveOld);
    assert!(finding.cause.contains("was due after 3600 s") && finding.next_command.ends_with("BGSAVE"), "{finding:#?}");
    // Nobody planned any.
    assert!(days_old(Config { save: Some(Vec::new()), ..Config::default() }, "0").is_empty());
    // The plan may not be seen (O11): who made some wants them.
    assert_eq!(opened(&days_old(Config::default(), "3")), [Rule::SaveOld]);
    assert!(days_old(Config::default(), "0").is_empty());
}

#[test]
fn the_append_only_file() {
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[("aof_enabled", "1"), ("aof_last_write_status", "err")]);
    assert!(only(&scene.looks(1), Rule::AofFailing).severity == Severity::Critical);
    let mut scene = Scene::new(Purpose::State);
    scene.set(&[
        ("aof_enabled", "1"),
        ("aof_last_bgrewrite_status", "err"),
        ("aof_current_size", "900"),
        ("aof_base_size", "300"),
    ]);
    let finding = only(&scene.looks(1), Rule::AofFailing);
    assert!(finding.severity == Severity::Warning && finding.evidence["growth"] == 3.0, "{finding:#?}");
}

#[test]
fn slow_commands_are_named() {
    let mut scene = Scene::new(Purpose::Shared);
    scene.answer.slow = Some(Vec::new());
    scene.looks(3);
    // What servers log as slow may be so short that nobody waits.
    scene.answer.slow = Some(vec![SlowCommand { took_us: 60_000, ..SlowCommand::default() }; 12]);
    assert!(scene.looks(20).is_empty());
    let slow = SlowCommand { took_us: 340_000, command: "KEYS *".into(), client: "10.0.0.9:1".into() };
    scene.answer.slow = Some(vec![SlowCommand { took_us: 120_000, ..SlowCommand::default() }, slow.clone()]);
    let finding = only(&scene.looks(1), Rule::SlowCommands);
    assert!(
        finding.cause.contains("2 slow commands; the longest took 340 ms: KEYS * by 10.0.0.9:1"),
        "{}",
        finding.cause
    );
    assert_eq!((&finding.evidence["commands"], &finding.evidence["ms"]), (&2.into(), &460.0.into()));
    // One is enough, however seldom it is looked.
    let mut scene = Scene::new(Purpose::Shared);
    scene.answer.slow = Some(Vec::new());
    scene.looks(2);
    scene.now += 60 * S;
    scene.answer.slow = Some(vec![slow]);
    only(&scene.looks(1), Rule::SlowCommands);
}

#[test]
fn a_command_that_does_little_is_not_what_was_slow() {
    let told = |commands: &[&str]| {
        let mut scene = Scene::new(Purpose::Shared);
        scene.answer.slow = Some(Vec::new());
        scene.looks(2);
        let slow =
            |command: &&str| SlowCommand { took_us: 270_000, command: (*command).into(), ..SlowCommand::default() };
        scene.answer.slow = Some(commands.iter().map(slow).collect());
        only(&scene.looks(1), Rule::SlowCommands)
    };
    for commands in [&["INFO"][..], &["info everything", "TTL a"]] {
        let finding = told(commands);
        assert!(finding.cause.contains("kept from running"), "{}", finding.cause);
        assert!(finding.next_command.contains("--intrinsic-latency"), "{}", finding.next_command);
    }
    for commands in [&["KEYS *"][..], &["INFO", "LRANGE a 0 -1"]] {
        let finding = told(commands);
        assert!(!finding.cause.contains("kept from running"), "{}", finding.cause);
        assert!(finding.next_command.contains("SLOWLOG GET"), "{}", finding.next_command);
    }
}

#[test]
fn silence_is_told_in_its_kind() {
    const PING: &str = "timeout 5 redis-cli -h 10.0.0.7 -p 6379 PING";
    for (kind, why, cause, next) in [
        (Silence::Timeout, "no answer within 1 s", "takes connections and has not answered", PING),
        (
            Silence::Busy,
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL",
            "a script",
            "SCRIPT KILL",
        ),
        (Silence::Busy, "BUSY .. FUNCTION KILL", "a script", "FUNCTION KILL"),
        (Silence::NoConnection, "Connection refused", "cannot be reached", PING),
        (Silence::TooManyClients, "ERR max number of clients reached", "turns everyone else away", "maxclients"),
        (Silence::Refused, "NOAUTH", "does not let the watch in", "ACL WHOAMI"),
    ] {
        let mut scene = Scene::new(Purpose::Shared);
        scene.looks(3);
        let changes: Vec<_> = (0..3).flat_map(|_| scene.silent(kind, why)).collect();
        let finding = only(&changes, Rule::BlockedServer);
        assert!(finding.cause.contains(cause) && finding.next_command.contains(next), "{finding:#?}");
        assert_eq!(closed(&scene.looks(40)), [Rule::BlockedServer]);
    }
    for (address, next) in [
        ("10.0.0.7:26379/shop", "-h 10.0.0.7 -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME shop"),
        ("[::1]:26379/it's a shop", r"-h ::1 -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME 'it'\''s a shop'"),
    ] {
        let mut scene = Scene::new(Purpose::Shared);
        scene.address = address.to_owned();
        let changes: Vec<_> = (0..3).flat_map(|_| scene.silent(Silence::NoMaster, "none answers")).collect();
        let finding = only(&changes, Rule::BlockedServer);
        assert_eq!(finding.next_command, format!("timeout 5 redis-cli {next}"));
        assert!(finding.cause.contains("the sentinels name no server") && finding.cause.ends_with("none answers"));
    }
    // A watch that is itself late says nothing of others.
    let mut scene = Scene::new(Purpose::Shared);
    for _ in 0..10 {
        let reply = Reply::Silence { kind: Silence::Timeout, why: "late".into(), waited_ms: 4_000.0 };
        let sample = Sample { is_late: true, ..scene.with_reply(reply) };
        assert!(scene.judge.judge(&sample).is_empty());
    }
}

#[test]
fn another_run_and_lost_keys() {
    let restarted = |uptime: &str, keys: u64, purpose| {
        let mut scene = Scene::new(purpose);
        scene.set(&[("db0", "keys=50000,expires=0,avg_ttl=0")]);
        scene.looks(5);
        scene.now += 20 * S;
        scene.set(&[
            ("run_id", "another"),
            ("uptime_in_seconds", uptime),
            ("loading", "1"),
            ("db0", "keys=1,expires=0"),
        ]);
        let mut changes = scene.looks(3);
        scene.set(&[("loading", "0"), ("db0", &format!("keys={keys},expires=0,avg_ttl=0"))]);
        changes.extend(scene.looks(60));
        changes
    };
    let finding = only(&restarted("5", 49_000, Purpose::State), Rule::Restarted);
    assert!(finding.cause.contains("started again") && finding.evidence["keys_before"] == 50_001, "{finding:#?}");
    let changes = restarted("5", 100, Purpose::State);
    assert_eq!(opened(&changes), [Rule::Restarted, Rule::DataLost]);
    assert!(changes[1].finding().cause.contains("had not saved"), "{changes:#?}");
    // One that ran already when the other was last seen is another server.
    assert!(only(&restarted("9000", 50_000, Purpose::State), Rule::Restarted).cause.contains("another server"));
    assert!(restarted("9000", 100, Purpose::State)[1].finding().cause.contains("another server"));
    assert_eq!(opened(&restarted("5", 0, Purpose::Cache)), [Rule::Restarted], "a cache may be empty");
}

#[test]
fn keys_that_are_flushed_are_lost_and_keys_that_go_are_not() {
    let mut scene = Scene::new(Purpose::Shared);
    scene.answer.flushes = Some(3);
    scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
    scene.looks(5);
    // All expire at once.
    scene.answer.flushes = Some(3);
    scene.set(&[("db0", ""), ("expired_keys", "50000")]);
    assert!(scene.looks(5).is_empty());
    scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
    scene.looks(5);
    // Somebody deletes them one by one.
    scene.set(&[("db0", "keys=100,expires=0,avg_ttl=0")]);
    assert!(scene.looks(5).is_empty());
    scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
    scene.looks(5);
    scene.answer.flushes = Some(4);
    scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
    let finding = only(&scene.looks(1), Rule::DataLost);
    assert!(finding.cause.contains("FLUSHALL") && finding.evidence["keys_before"] == 50_001, "{finding:#?}");
    // `ACL LOG` has only what was denied.
    assert!(finding.next_command.ends_with(" CLIENT LIST") && finding.risk.contains("cmd=flushall"), "{finding:#?}");
    assert!(finding.risk.contains("`ACL LIST` says who may"), "{finding:#?}");
    // Redis 7.4 counts a flush when the memory is free again.
    let late = [(REDIS_7_4, 3, true), (REDIS_7_4, 30, false), (REDIS_7_0, 3, false), (VALKEY_9_1, 3, false)];
    for (text, after, want) in late {
        let mut scene = Scene::on(text, Settings::new(Purpose::Shared));
        scene.answer.flushes = Some(2);
        scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
        scene.looks(3);
        scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
        assert!(scene.looks(after).is_empty());
        scene.answer.flushes = Some(3);
        assert_eq!(opened(&scene.looks(2)) == [Rule::DataLost], want, "{after}");
    }
    // One that was read before has not taken what goes later.
    let mut scene = Scene::new(Purpose::Shared);
    scene.answer.flushes = Some(2);
    scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
    scene.looks(3);
    scene.answer.flushes = Some(3);
    scene.looks(1);
    scene.answer.flushes = None;
    scene.looks(5);
    scene.answer.flushes = Some(3);
    scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
    assert!(scene.looks(5).is_empty());
    // How many there were before may not have been seen.
    for (flushes, want) in [(Some(1), true), (None, true), (Some(0), false)] {
        let mut scene = Scene::new(Purpose::Shared);
        scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0"), ("db3", "keys=0")]);
        scene.looks(5);
        scene.answer.flushes = flushes;
        scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
        assert_eq!(opened(&scene.looks(2)) == [Rule::DataLost], want, "{flushes:?}");
    }
}

#[test]
fn a_changed_policy_is_told_once() {
    let mut scene = Scene::new(Purpose::State);
    scene.looks(3);
    scene.set(&[("maxmemory_policy", "allkeys-lru")]);
    let finding = only(&scene.looks(200), Rule::PolicyChanged);
    assert!(finding.severity == Severity::Critical && finding.next_command.ends_with("maxmemory-policy noeviction"));
    assert_eq!(closed(&scene.looks(200)), [Rule::PolicyChanged], "it is not news for ever");
    scene.set(&[("maxmemory_policy", "noeviction")]);
    assert_eq!(opened(&scene.looks(5)), [Rule::PolicyChanged]);
}

/// A limit that was set below what is used: what is advised lies above it.
#[test]
fn a_limit_far_below_what_is_used() {
    for (purpose, rule) in [(Purpose::State, Rule::MemoryPressure), (Purpose::Shared, Rule::Evictions)] {
        let mut scene = Scene::new(purpose);
        let policy = if rule == Rule::Evictions { "allkeys-lru" } else { "noeviction" };
        scene.set(&[("maxmemory", &mib(20)), ("used_memory", &mib(32)), ("maxmemory_policy", policy)]);
        let mut changes = Vec::new();
        for look in 0..6 {
            changes.extend(scene.set_number("evicted_keys", look * 50).look());
        }
        let told = changes.iter().map(Change::finding).find(|finding| finding.rule == rule).unwrap();
        assert!(told.next_command.ends_with(&format!("CONFIG SET maxmemory {}", 40 * MIB)), "{told:#?}");
    }
}

/// What happens again while its finding is open is told, too; a server that is started again and again not every time.
#[test]
fn what_happens_again_is_told_again() {
    let starts = |count: u64| {
        let mut scene = Scene::new(Purpose::State);
        scene.set(&[("db0", "keys=50000,expires=0,avg_ttl=0")]);
        scene.looks(5);
        let mut changes = Vec::new();
        for start in 0..count {
            scene.now += 60 * S;
            scene.set(&[("run_id", &format!("run{start}")), ("uptime_in_seconds", "5")]);
            changes.extend(scene.looks(3));
        }
        changes
    };
    let changes = starts(2);
    assert_eq!((opened(&changes), closed(&changes)), (vec![Rule::Restarted; 2], vec![Rule::Restarted]), "{changes:#?}");
    let [first, over, second] = &changes[..] else { panic!("{changes:#?}") };
    assert!(first.finding().id == over.finding().id && over.finding().id != second.finding().id, "{changes:#?}");
    assert!(!first.finding().cause.contains("time within") && second.finding().cause.contains("the 2. time within"));
    // Every one of the first four, then at each doubling of those that followed the first.
    assert_eq!(opened(&starts(100)).len(), 1 + 3 + [4, 8, 16, 32, 64].len());

    let mut scene = Scene::new(Purpose::State);
    scene.looks(3);
    let mut changes = Vec::new();
    for policy in ["allkeys-lru", "volatile-lru", "allkeys-lfu"] {
        scene.set(&[("maxmemory_policy", policy)]);
        changes.extend(scene.looks(30));
    }
    assert_eq!((opened(&changes).len(), closed(&changes).len()), (3, 2), "{changes:#?}");
    let mut scene = Scene::new(Purpose::State);
    let mut changes = Vec::new();
    for flushes in 1..=2 {
        scene.set(&[("db0", "keys=50000,expires=50000,avg_ttl=0")]);
        changes.extend(scene.looks(5));
        scene.answer.flushes = Some(flushes);
        scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
        changes.extend(scene.looks(5));
    }
    assert_eq!(opened(&changes), [Rule::DataLost, Rule::DataLost], "{changes:#?}");
}

/// A clock that is set back makes no news of what was told.
#[test]
fn a_clock_that_is_set_back_tells_nothing() {
    for purpose in [Purpose::State, Purpose::Shared] {
        let mut scene = Scene::new(purpose);
        scene.set(&[("db0", "keys=50000,expires=0,avg_ttl=0")]);
        scene.looks(5);
        scene.set(&[("maxmemory_policy", "allkeys-lru"), ("run_id", "another"), ("uptime_in_seconds", "1")]);
        scene.set(&[("db0", "keys=2,expires=0,avg_ttl=0")]);
        let told = opened(&scene.looks(400));
        assert_eq!(told, [Rule::Restarted, Rule::DataLost, Rule::PolicyChanged]);
        scene.now -= 1_000 * S;
        let changes = scene.looks(1_000);
        assert!(changes.is_empty(), "{changes:#?}");
    }
    // What was changed is changed back: no news before the clock was set back, and none after it.
    let mut scene = Scene::new(Purpose::State);
    scene.looks(3);
    scene.set(&[("maxmemory_policy", "allkeys-lru")]);
    assert_eq!(opened(&scene.looks(3)), [Rule::PolicyChanged]);
    scene.now -= 3_600 * S;
    scene.set(&[("maxmemory_policy", "noeviction")]);
    let changes = scene.looks(60);
    assert_eq!((opened(&changes), closed(&changes)), (vec![], vec![Rule::PolicyChanged]), "{changes:#?}");
    // Another start after it is no other server.
    let mut scene = Scene::new(Purpose::State);
    scene.looks(3);
    scene.now -= 3_600 * S;
    scene.silent(Silence::NoConnection, "refused");
    scene.set(&[("run_id", "another"), ("uptime_in_seconds", "0")]);
    let changes = scene.looks(1);
    let restarted = changes.iter().find(|change| change.finding().rule == Rule::Restarted);
    assert!(restarted.is_some_and(|change| change.finding().cause.contains("started again")), "{changes:#?}");
}

#[test]
fn settings_are_obeyed() {
    let mut settings = Settings::new(Purpose::State);
    let off = RuleSettings { off: true, ..Rule::MemoryPressure.defaults() };
    settings.set(Rule::MemoryPressure, off).unwrap();
    let eager = RuleSettings { threshold: 0.5, clear: 0.4, samples: 1, of: 1, ..Rule::FullNoeviction.defaults() };
    settings.set(Rule::FullNoeviction, eager).unwrap();
    let mut scene = Scene::on(REDIS_7_0, settings.clone());
    scene.set(&[("maxmemory", &mib(100)), ("used_memory", &mib(90))]);
    assert!(only(&scene.looks(1), Rule::FullNoeviction).cause.ends_with("writes will be refused once it is full"));
    for (settings, want) in [
        (RuleSettings { samples: 3, of: 2, ..eager }, "1..=of"),
        (RuleSettings { of: 65, ..eager }, "1..=64"),
        (RuleSettings { samples: 0, ..eager }, "1..=of"),
        (RuleSettings { clear: 0.6, ..eager }, "clear (0.6)"),
        (RuleSettings { threshold: f64::NAN, ..eager }, "numbers"),
    ] {
        let fault = Settings::default().set(Rule::Evictions, settings).unwrap_err();
        assert!(fault.contains(want), "{fault}");
    }
    assert_eq!(settings.at_once().of(Rule::Fragmentation).of, 1);
    for rule in Rule::ALL {
        assert_eq!(rule.defaults().fault(), None, "{rule:?}");
        assert_eq!(Rule::named(rule.name()), Some(*rule));
    }
    assert_eq!(Rule::ALL.len(), 24);
    assert_eq!([bytes(1_023), bytes(12 * MIB), bytes(1 << 63)], ["1023 B", "12.0 MiB", "8388608.0 TiB"]);
}
