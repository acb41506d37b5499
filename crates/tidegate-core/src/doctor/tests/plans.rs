use super::super::finding::Change;
use super::super::{holds, is_safe, steps};
use super::*;

fn change(name: &str, from: &str, to: &str) -> Change {
    Change { name: name.to_owned(), from: from.to_owned(), to: to.to_owned() }
}

/// What is set mends what was found, and nothing else turns up.
#[test]
fn what_is_set_mends() {
    let faults: [(&'static str, &str); 12] = [
        ("maxmemory-clients", "0"),
        ("activedefrag", "no"),
        ("lazyfree-lazy-expire", "no"),
        ("client-output-buffer-limit", "normal 0 0 0 slave 1048576 1048576 60 pubsub 0 0 0"),
        ("repl-backlog-size", "1048576"),
        ("min-replicas-to-write", "0"),
        ("tcp-keepalive", "0"),
        ("timeout", "10"),
        ("slowlog-log-slower-than", "-1"),
        ("slowlog-max-len", "0"),
        ("latency-monitor-threshold", "0"),
        ("stop-writes-on-bgsave-error", "no"),
    ];
    let mut server = Server::well(Purpose::State);
    for (name, value) in faults {
        server.set(name, value);
    }
    server.info("maxmemory_policy", "allkeys-lru").set("maxmemory-policy", "allkeys-lru");
    server.info("maxmemory", 0).set("maxmemory", "0");
    let report = judge(&alone(Purpose::State, vec![server.node()]));
    let steps = steps(&report);
    assert_eq!(steps[0].change.name, "maxmemory-policy", "{steps:#?}");
    assert_eq!(steps.len(), faults.len() + 2, "{steps:#?}");
    let mut mended = server.node();
    for step in &steps {
        assert_eq!(step.change.from, mended.settings.values[&step.change.name], "{step:?}");
        assert_eq!(is_safe(&step.change, &mended.info, &step.change.from), Ok(()), "{step:?}");
        mended.settings.values.insert(step.change.name.clone(), step.change.to.clone());
    }
    let limit = steps.iter().find(|step| step.change.name == "maxmemory").unwrap().change.to.clone();
    server.info("maxmemory_policy", "noeviction").info("maxmemory", limit);
    mended.info = server.node().info;
    assert_eq!(judge(&alone(Purpose::State, vec![mended])).findings, []);
}

#[test]
fn nothing_is_set_that_is_not_safe_any_more() {
    let info = Info::parse("used_memory:1000\r\nrole:master\r\nconnected_slaves:1\r\nrdb_last_bgsave_status:err\r\n");
    for (change, now, why) in [
        (change("maxmemory", "0", "1050"), "0", "1000 bytes are used"),
        (change("maxmemory", "0", "much"), "0", "no number"),
        (change("maxmemory", "0", "5000"), "7", "it has become 7"),
        (change("stop-writes-on-bgsave-error", "no", "yes"), "no", "failed"),
        (change("min-replicas-to-write", "0", "1"), "0", "fewer than two"),
    ] {
        let e = is_safe(&change, &info, now).unwrap_err();
        assert!(e.contains(why), "{change:?}: {e}");
    }
    assert_eq!(is_safe(&change("maxmemory", "0", "5000"), &info, "0"), Ok(()));
    assert_eq!(is_safe(&change("timeout", "5", "0"), &info, "5"), Ok(()));
}

/// A limit below what is used is never advised, and roles are not turned round.
#[test]
fn limits_leave_what_is_used() {
    for role in ROLES {
        let mut server = Server::well(role);
        server.info("maxmemory", 0).set("maxmemory", "0").info("used_memory", 12_u64 << 30);
        let found = of(Check::MaxmemoryUnset, &alone(role, vec![server.node()])).unwrap();
        assert!(found.changes.is_empty() && found.fix.contains("INFO memory"), "{found:#?}");
        server.info("maxmemory", 15_u64 << 30).set("maxmemory", "16106127360");
        let found = of(Check::MemoryHeadroom, &alone(role, vec![server.node()])).unwrap();
        assert!(found.changes.is_empty() && found.fix.contains("big-keys"), "{found:#?}");
        server.info("used_memory", 1_u64 << 30);
        let node = server.node();
        let found = of(Check::MemoryHeadroom, &alone(role, vec![node.clone()])).unwrap();
        let limit: u64 = found.changes[0].to.parse().unwrap();
        assert_eq!(limit, (15 << 30) / 10 * 6 / (1 << 20) * (1 << 20));
        // Two on one machine share it.
        let mut other = node.clone();
        other.address = "10.0.0.1:6380".to_owned();
        let found = of(Check::MemoryHeadroom, &alone(role, vec![node, other])).unwrap();
        assert!(found.changes[0].to.parse::<u64>().unwrap() <= limit / 2);
    }
    let mut shared = Server::well(Purpose::Shared);
    shared.info("maxmemory_policy", "allkeys-lru");
    assert_eq!(of(Check::EvictionPolicy, &alone(Purpose::Shared, vec![shared.node()])).unwrap().changes, []);
    let mut full = Server::well(Purpose::State);
    full.info("maxmemory_policy", "allkeys-lru")
        .info("used_memory", 4_200_000_000_u64)
        .info("used_memory_rss", 4_300_000_000_u64);
    let found = of(Check::EvictionPolicy, &alone(Purpose::State, vec![full.node()])).unwrap();
    assert!(found.changes.is_empty() && found.risk.contains("nearly full"), "{found:#?}");
}

#[test]
fn values_are_compared_by_what_they_mean() {
    let now = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
    assert!(holds("client-output-buffer-limit", "slave 268435456 67108864 60", now));
    assert!(!holds("client-output-buffer-limit", "slave 1 67108864 60", now));
    assert!(!holds("client-output-buffer-limit", "normal 0 0 0", "normal 0 0 0"));
    assert!(holds("timeout", "0", "0") && !holds("timeout", "0", "1"));
    assert_eq!(super::super::replica_buffer("normal 0 0 0"), None);
}
