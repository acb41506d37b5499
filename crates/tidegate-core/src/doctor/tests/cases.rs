use super::super::facts::{Member, Sentinels, Silent};
use super::super::sample::Own;
use super::*;
use crate::watch::Severity;
use crate::watch::Severity::{Critical, Info as Hint, Warning};

/// What is put into a well deployment.
type Fault = fn(&mut Server, &mut Deployment);

fn member(port: u16, slots: u64, fails: bool) -> Member {
    Member { id: format!("id{port}"), address: format!("10.0.0.1:{port}"), master: None, slots, fails }
}

fn cluster(all: &mut Deployment, slots: [u64; 2], fails: bool) {
    all.topology = Topology::Cluster(Some(vec![member(6_379, slots[0], false), member(6_380, slots[1], fails)]));
}

fn sentinels(all: &mut Deployment, quorum: u64, known: u64, answered: u64) {
    all.topology = Topology::Sentinel(Sentinels {
        service: "shop".to_owned(),
        at: "10.0.0.9:26379".to_owned(),
        quorum: Some(quorum),
        known: Some(known),
        asked: 3,
        answered,
    });
}

/// Roles are `s`tate, `c`ache, s`h`ared; in those not named the fault is none.
#[rustfmt::skip]
const FAULTS: &[(Check, &str, Severity, Fault)] = &[
    (Check::Unreachable, "sch", Critical, |_, all| all.silent.push(Silent { address: "10.0.0.2:1".into(), why: "refused".into() })),
    (Check::EvictionPolicy, "s", Critical, |s, _| { s.info("maxmemory_policy", "allkeys-lru"); }),
    (Check::EvictionPolicy, "s", Warning, |s, _| { s.info("maxmemory_policy", "allkeys-lru").info("maxmemory", 0); }),
    (Check::EvictionPolicy, "c", Critical, |s, _| { s.info("maxmemory_policy", "noeviction"); }),
    (Check::EvictionPolicy, "h", Warning, |s, _| { s.info("maxmemory_policy", "allkeys-lfu"); }),
    (Check::EvictionPolicy, "h", Warning, |s, _| { s.info("maxmemory_policy", "noeviction"); }),
    (Check::EvictionPolicy, "c", Hint, |s, _| { s.info("maxmemory_policy", "allkeys-random"); }),
    (Check::OwnKeysEvictable, "sch", Critical, |s, _| {
        s.info("maxmemory_policy", "allkeys-lru").sample().own.insert("Tidegate: locks".into(), Own { keys: 3, expiring: 0 });
    }),
    (Check::OwnKeysEvictable, "sch", Critical, |s, _| {
        s.info("maxmemory_policy", "volatile-lru").sample().own.insert("Tidegate: locks".into(), Own { keys: 3, expiring: 1 });
    }),
    (Check::MaxmemoryUnset, "sch", Warning, |s, _| { s.info("maxmemory", 0).set("maxmemory", "0"); }),
    (Check::MemoryHeadroom, "sch", Critical, |s, _| { s.info("maxmemory", 20_u64 << 30); }),
    (Check::MemoryHeadroom, "sch", Warning, |s, _| { s.info("maxmemory", 12_u64 << 30); }),
    (Check::MemoryHeadroom, "sch", Critical, |s, _| { s.node.machine.cgroup_bytes = Some(1 << 30); }),
    (Check::ClientMemory, "sch", Hint, |s, _| { s.set("maxmemory-clients", "0"); }),
    (Check::PersistenceOff, "s", Critical, |s, _| { s.set("save", ""); }),
    (Check::PersistenceOff, "h", Warning, |s, _| { s.set("save", ""); }),
    (Check::SaveFailing, "sh", Critical, |s, _| { s.info("rdb_last_bgsave_status", "err"); }),
    (Check::SaveFailing, "c", Warning, |s, _| { s.info("aof_last_write_status", "err"); }),
    (Check::SaveFailing, "sh", Critical, |s, _| { s.info("aof_last_bgrewrite_status", "err"); }),
    (Check::SaveOld, "s", Critical, |s, _| { s.info("rdb_changes_since_last_save", 100); }),
    (Check::SaveOld, "h", Warning, |s, _| { s.info("rdb_last_save_time", 999_990_000); }),
    (Check::AppendSync, "sh", Warning, |s, _| { s.info("aof_enabled", 1).set("appendfsync", "no"); }),
    (Check::AppendGrowth, "sch", Warning, |s, _| { s.info("aof_enabled", 1).set("auto-aof-rewrite-percentage", "0"); }),
    (Check::StopWrites, "sh", Warning, |s, _| { s.set("stop-writes-on-bgsave-error", "no"); }),
    (Check::StopWrites, "c", Warning, |s, _| { s.set("stop-writes-on-bgsave-error", "yes"); }),
    (Check::DefragOff, "sch", Hint, |s, _| { s.set("activedefrag", "no"); }),
    (Check::DefragOff, "sch", Warning, |s, _| { s.set("activedefrag", "no").info("used_memory_rss", 400 << 20); }),
    (Check::DefragOff, "sch", Warning, |s, _| {
        s.set("activedefrag", "no").info("used_memory_rss", 400 << 20);
        s.node.can_defrag = Some(false);
    }),
    (Check::DefragThresholds, "sch", Hint, |s, _| { s.set("active-defrag-cycle-max", "75"); }),
    (Check::LazyFree, "sch", Hint, |s, _| { s.set("lazyfree-lazy-user-del", "no"); }),
    (Check::KeysWithoutTtl, "s", Hint, |s, _| { s.info("db0", "keys=2000,expires=10"); }),
    (Check::KeysWithoutTtl, "ch", Warning, |s, _| {
        s.info("db0", "keys=2000,expires=10").info("maxmemory_policy", "volatile-lru");
    }),
    (Check::KeysWithoutTtl, "h", Warning, |s, _| {
        s.sample().prefixes.insert("log:".into(), Group { keys: 200, without_ttl: 200, is_ours: false });
    }),
    (Check::ReplicaBuffer, "sch", Warning, |s, _| { s.set("client-output-buffer-limit", "slave 33554432 8388608 60"); }),
    (Check::ReplicaBuffer, "sch", Warning, |s, _| { s.set("client-output-buffer-limit", "normal 0 0 0 slave 0 0 0"); }),
    (Check::Backlog, "sch", Warning, |s, _| { s.set("repl-backlog-size", "1048576"); }),
    (Check::Backlog, "sch", Warning, |s, _| { s.info("master_repl_offset", 10_000_000_000_u64); }),
    (Check::MinReplicas, "s", Warning, |s, _| { s.set("min-replicas-to-write", "0"); }),
    (Check::MinReplicas, "s", Hint, |s, _| { s.set("min-replicas-to-write", "0").info("connected_slaves", 1); }),
    (Check::NoReplica, "sh", Hint, |s, _| { s.info("connected_slaves", 0); }),
    (Check::NoReplica, "s", Warning, |s, all| { s.info("connected_slaves", 0); sentinels(all, 2, 3, 3); }),
    (Check::NoReplica, "s", Warning, |s, all| { s.info("connected_slaves", 0); cluster(all, [8_192, 8_192], false); }),
    (Check::ReplicaKeys, "sch", Warning, |s, _| { s.node.replicas.push(("10.0.0.2:6379".into(), 100_000)); }),
    (Check::ReplicaWritable, "sch", Warning, |s, _| { s.info("role", "slave").set("replica-read-only", "no"); }),
    (Check::Keepalive, "sch", Warning, |s, _| { s.set("tcp-keepalive", "0"); }),
    (Check::IdleTimeout, "sch", Hint, |s, _| { s.set("timeout", "30"); }),
    (Check::OpenToAll, "sch", Warning, |s, _| { s.set("protected-mode", "no"); }),
    (Check::KeyspaceEvents, "sch", Hint, |s, _| { s.set("notify-keyspace-events", "KEA"); }),
    (Check::SlowLog, "sch", Hint, |s, _| { s.set("slowlog-log-slower-than", "-1"); }),
    (Check::SlowLog, "sch", Hint, |s, _| { s.set("slowlog-max-len", "1"); }),
    (Check::LatencyMonitor, "sch", Hint, |s, _| { s.set("latency-monitor-threshold", "0"); }),
    (Check::HugePages, "sch", Warning, |s, _| { s.node.machine.huge_pages = Some("always".into()); }),
    (Check::Overcommit, "sch", Warning, |s, _| { s.node.machine.overcommit = Some(0); }),
    (Check::ClusterBroken, "sch", Critical, |_, all| cluster(all, [8_192, 8_191], false)),
    (Check::ClusterBroken, "sch", Critical, |_, all| cluster(all, [8_192, 8_192], true)),
    (Check::ClusterBroken, "sch", Critical, |s, all| {
        cluster(all, [8_192, 8_192], false);
        s.node.cluster = Some(Info::parse("cluster_state:fail\r\n"));
    }),
    (Check::ClusterCoverage, "c", Warning, |_, all| cluster(all, [8_192, 8_192], false)),
    (Check::ClusterUneven, "sch", Hint, |_, all| cluster(all, [12_384, 4_000], false)),
    (Check::Sentinels, "sch", Critical, |_, all| sentinels(all, 4, 3, 3)),
    (Check::Sentinels, "sch", Critical, |_, all| sentinels(all, 2, 3, 1)),
    (Check::Sentinels, "sch", Warning, |_, all| sentinels(all, 1, 3, 3)),
    (Check::Sentinels, "sch", Warning, |_, all| sentinels(all, 2, 2, 2)),
    (Check::Sentinels, "sch", Warning, |_, all| sentinels(all, 3, 3, 3)),
];

fn roles(of: &str) -> impl Iterator<Item = Purpose> {
    ROLES.into_iter().zip("sch".chars()).filter(move |(_, letter)| of.contains(*letter)).map(|(role, _)| role)
}

#[test]
fn servers_that_are_well_are_left_alone() {
    for role in ROLES {
        let report = judge(&alone(role, vec![Server::well(role).node()]));
        assert_eq!((&report.findings, &report.unknown), (&vec![], &vec![]), "{role:?}");
        let mut all = alone(role, vec![Server::well(role).node()]);
        sentinels(&mut all, 2, 3, 3);
        assert_eq!(judge(&all).findings, []);
        let mut server = Server::well(role);
        server.set("cluster-require-full-coverage", "no");
        let mut other = server.clone();
        other.node.address = "10.0.0.1:6380".to_owned();
        let mut all = alone(role, vec![server.node(), other.node()]);
        cluster(&mut all, [8_192, 8_192], false);
        assert_eq!(judge(&all).findings, []);
    }
}

#[test]
fn each_fault_is_found_and_is_as_bad_as_said() {
    for (at, (check, letters, severity, fault)) in FAULTS.iter().enumerate() {
        for role in roles(letters) {
            let mut server = Server::well(role);
            let mut all = alone(role, Vec::new());
            fault(&mut server, &mut all);
            let mut other = server.clone();
            other.node.address = "10.0.0.1:6380".to_owned();
            all.nodes.push(server.node());
            if matches!(all.topology, Topology::Cluster(_)) {
                all.nodes.push(other.node());
            }
            let found = of(*check, &all).unwrap_or_else(|| panic!("{at}: {} in {role:?} is not found", check.name()));
            assert_eq!(found.severity, *severity, "{at}: {found:#?}");
            assert!(found.severity <= check.worst(role).unwrap(), "{at}: {found:#?}");
            for text in [&found.cause, &found.fix, &found.risk] {
                assert!(text.len() > 3 && !text.contains("  "), "{at}: {found:#?}");
            }
            assert!(!found.evidence.is_empty(), "{at}: {found:#?}");
            assert!(check.is_applied() || found.changes.is_empty(), "{at}: {found:#?}");
        }
    }
}

/// The table of the guide says neither too much nor too little.
#[test]
fn the_table_is_what_the_rules_do() {
    for check in Check::ALL {
        let mut worst = [None; 3];
        for (of, letters, severity, _) in FAULTS.iter().filter(|(of, ..)| of == check) {
            for role in roles(letters) {
                let at = ROLES.iter().position(|one| *one == role).unwrap();
                worst[at] = worst[at].max(Some(*severity));
            }
            assert_eq!(of, check);
        }
        // What is a warning for one and no more than a hint for another is told for each.
        assert_eq!(worst, ROLES.map(|role| check.worst(role)), "{}", check.name());
        assert_eq!(Check::named(check.name()), Some(*check));
    }
}

/// O11: with INFO alone nothing is made up.
#[test]
fn what_may_not_be_seen_is_unknown() {
    for role in ROLES {
        let mut node = Server::well(role).node();
        node.settings = Settings::default();
        (node.can_defrag, node.keys, node.machine) =
            (None, Keys::Unseen("SCAN is not permitted".to_owned()), Machine::default());
        let report = judge(&alone(role, vec![node.clone()]));
        assert_eq!(report.findings, []);
        let unknown = |check: Check| report.unknown.iter().find(|unknown| unknown.check == check);
        assert!(unknown(Check::LazyFree).unwrap().why.contains("CONFIG GET is not permitted"));
        assert!(unknown(Check::OwnKeysEvictable).unwrap().why.contains("SCAN"));
        assert!(unknown(Check::HugePages).unwrap().why.contains("this machine"));
        node.info = Info::default();
        assert_eq!(judge(&alone(role, vec![node])).findings, [], "nothing is known, so nothing is judged");
        let mut all = alone(role, vec![Server::well(role).node()]);
        all.topology = Topology::Cluster(None);
        assert!(judge(&all).unknown.iter().any(|unknown| unknown.check == Check::ClusterBroken));
        all.topology = Topology::Sentinel(Sentinels::default());
        assert!(judge(&all).unknown.iter().any(|unknown| unknown.check == Check::Sentinels));
    }
    let mut wrong = Server::well(Purpose::State);
    wrong.info("maxmemory_policy", "allkeys-lru");
    let mut node = wrong.node();
    node.settings = Settings::default();
    let found = of(Check::EvictionPolicy, &alone(Purpose::State, vec![node])).unwrap();
    assert!(found.fix.contains("your provider") && found.changes.is_empty(), "{found:#?}");
}

/// O19.
#[test]
fn flags_say_what_they_cover() {
    let mut server = Server::well(Purpose::State);
    server.set("lazyfree-lazy-user-del", "no").set("lazyfree-lazy-server-del", "no");
    server.settings.remove("lazyfree-lazy-user-flush");
    let found = of(Check::LazyFree, &alone(Purpose::State, vec![server.node()])).unwrap();
    assert!(
        found.cause.contains("not DEL (lazyfree-lazy-server-del)") && found.cause.contains("UNLINK as well"),
        "{found:#?}"
    );
    assert!(found.evidence["flags"]["lazyfree-lazy-user-flush"]["on"].is_null(), "{found:#?}");
    assert_eq!(found.changes.len(), 2);
}

/// Keys of our own that never expire are no leak; a volatile policy does not take them.
#[test]
fn our_own_keys_may_stay() {
    let mut server = Server::well(Purpose::Shared);
    server.info("db0", "keys=2000,expires=0");
    server.sample().prefixes = [("{tg:".to_owned(), Group { keys: 2_000, without_ttl: 2_000, is_ours: true })].into();
    server.sample().own.insert("Tidegate: a delay queue".to_owned(), Own { keys: 2_000, expiring: 0 });
    assert_eq!(judge(&alone(Purpose::Shared, vec![server.node()])).findings, []);
    // A cache that refuses writes is not made one that evicts them.
    let mut cache = Server::well(Purpose::Cache);
    cache.info("maxmemory_policy", "noeviction").set("maxmemory-policy", "noeviction");
    let changes =
        |server: &Server| of(Check::EvictionPolicy, &alone(Purpose::Cache, vec![server.node()])).unwrap().changes;
    assert_eq!(changes(&cache).len(), 1);
    cache.sample().own.insert("Tidegate: locks".to_owned(), Own { keys: 1, expiring: 1 });
    assert_eq!(changes(&cache), []);
}

#[test]
fn prefixes_are_told_with_their_intervals() {
    let mut server = Server::well(Purpose::Cache);
    server.info("db0", "keys=1000000,expires=100000").info("maxmemory_policy", "volatile-lfu");
    let sample = server.sample();
    (sample.total, sample.how) = (1_000_000, "random");
    sample.prefixes = [
        ("session:".to_owned(), Group { keys: 1_800, without_ttl: 1_790, is_ours: false }),
        ("page:".to_owned(), Group { keys: 200, without_ttl: 0, is_ours: false }),
    ]
    .into();
    let found = of(Check::KeysWithoutTtl, &alone(Purpose::Cache, vec![server.node()])).unwrap();
    assert!(
        found.cause.contains("90 % of 1000000 keys") && found.cause.contains("begin with session:, 99 % to 100 %"),
        "{found:#?}"
    );
    assert_eq!((&found.evidence["confidence"], &found.evidence["how"]), (&0.99.into(), &"random".into()));
    let first = &found.evidence["prefixes"][0];
    assert_eq!((&first["prefix"], &first["about_keys"]), (&"session:".into(), &900_000.into()));
    assert!(first["without_ttl_between"][0].as_f64().unwrap() > 0.98, "{first}");
}

/// O22, between servers that are looked at together.
#[test]
fn a_replica_with_more_keys_than_its_master() {
    let mut master = Server::well(Purpose::State);
    let mut replica = master.clone();
    master.info("db0", "keys=113000,expires=113000");
    replica.node.address = "10.0.0.2:6379".to_owned();
    replica
        .info("role", "slave")
        .info("master_host", "10.0.0.1")
        .info("master_port", 6_379)
        .info("db0", "keys=10800000,expires=10800000");
    let found = of(Check::ReplicaKeys, &alone(Purpose::State, vec![replica.node(), master.node()])).unwrap();
    assert_eq!((found.address.as_str(), &found.evidence["replica"]), ("10.0.0.1:6379", &"10.0.0.2:6379".into()));
    master.info("db0", "keys=10700000,expires=10700000");
    assert_eq!(of(Check::ReplicaKeys, &alone(Purpose::State, vec![replica.node(), master.node()])), None);
}
