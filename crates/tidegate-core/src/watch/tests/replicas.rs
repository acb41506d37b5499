//! Replicas: gone, behind, in their first copy; and who is none.

use super::super::Severity;
use super::*;

#[test]
fn replicas() {
    let mut scene = Scene::new(Purpose::State);
    let online = "ip=10.0.0.8,port=6379,state=online,offset=1000,lag=";
    scene.set(&[("connected_slaves", "1"), ("slave0", &format!("{online}1")), ("master_repl_offset", "5001000")]);
    assert!(scene.looks(5).is_empty());
    scene.set(&[("slave0", &format!("{online}14"))]);
    let finding = only(&scene.looks(3), Rule::ReplicaLag);
    assert!(
        finding.next_command.contains("-h 10.0.0.8") && finding.evidence["behind_bytes"] == 5_000_000,
        "{finding:#?}"
    );
    scene.set(&[("mem_clients_slaves", &mib(200))]);
    let finding = only(&scene.looks(3), Rule::ReplicaBuffer);
    assert_eq!((&finding.evidence["share"], &finding.evidence["limit_is_assumed"]), (&0.781.into(), &true.into()));
    scene.set(&[("connected_slaves", "0"), ("slave0", ""), ("mem_clients_slaves", "0")]);
    let finding = only(&scene.looks(4), Rule::ReplicaDown);
    assert!(finding.severity == Severity::Critical && finding.cause.contains("1 of 1"), "{finding:#?}");
    // One that was taken away on purpose is not missed for ever.
    scene.now += 61 * 60 * S;
    assert!(closed(&scene.looks(40)).contains(&Rule::ReplicaDown));

    let mut scene = Scene::new(Purpose::State);
    scene.set(&[
        ("role", "slave"),
        ("master_host", "10.0.0.7"),
        ("master_port", "6379"),
        ("master_link_status", "down"),
    ]);
    assert!(only(&scene.looks(3), Rule::ReplicaDown).cause.contains("10.0.0.7:6379"));
    let mut scene = Scene::new(Purpose::State);
    // With nothing to copy a master pings every ten seconds.
    for silent in ["9", "10", "11", "12"] {
        scene.set(&[("role", "slave"), ("master_link_status", "up"), ("master_last_io_seconds_ago", silent)]);
        assert!(scene.looks(5).is_empty(), "{silent}");
    }
    scene.set(&[("master_last_io_seconds_ago", "25")]);
    let finding = only(&scene.looks(3), Rule::ReplicaLag);
    assert!(finding.evidence["seconds"] == 25.0 && finding.cause.contains("for 25 s"), "{finding:#?}");
    scene.set(&[("master_last_io_seconds_ago", "11")]);
    assert_eq!(closed(&scene.looks(40)), [Rule::ReplicaLag]);
}

/// A replica that is copied to for the first time has lost no master: it is told only when that does not come on.
#[test]
fn a_first_copy_is_no_lost_master() {
    let down = |fields: &[(&str, &str)]| {
        let mut scene = Scene::new(Purpose::State);
        scene.looks(3);
        // As Redis 7.0 says it while it connects, and while the master waits for more replicas to come.
        scene.set(&[("role", "slave"), ("master_host", "10.0.0.8"), ("master_port", "6379")]);
        scene.set(&[("master_link_status", "down"), ("master_last_io_seconds_ago", "-1")]);
        scene.set(&[("master_sync_in_progress", "0"), ("master_link_down_since_seconds", "-1")]);
        scene.set(fields);
        scene
    };
    let mut scene = down(&[]);
    assert!(scene.looks(50).is_empty());
    let finding = only(&scene.looks(20), Rule::ReplicaDown);
    assert_eq!((finding.severity, &finding.evidence["first_copy"]), (Severity::Warning, &true.into()), "{finding:#?}");
    assert!(finding.cause.contains("first copy") && finding.cause.contains("none has begun"), "{finding:#?}");
    assert!(!finding.cause.contains("lost its master"), "{finding:#?}");
    scene.set(&[("master_link_status", "up"), ("master_link_down_since_seconds", "")]);
    assert_eq!(closed(&scene.looks(40)), [Rule::ReplicaDown]);
    // The master writes its snapshot for long, then sends it for long, and it is read for long.
    let mut scene = down(&[("master_sync_in_progress", "1"), ("master_sync_last_io_seconds_ago", "9")]);
    scene.set(&[("master_sync_read_bytes", "0")]);
    assert!(scene.looks(200).is_empty());
    for look in 1..200 {
        assert!(scene.set_number("master_sync_read_bytes", look * MIB).look().is_empty(), "{look}");
    }
    scene.set(&[("loading", "1"), ("master_sync_in_progress", "0")]);
    assert!(scene.looks(200).is_empty());
    // One that breaks off again and again does not come on.
    let mut scene = down(&[("master_sync_in_progress", "1"), ("master_sync_last_io_seconds_ago", "0")]);
    let changes: Vec<Change> =
        (0..100).flat_map(|look| scene.set_number("master_sync_read_bytes", 1 + look % 10 * MIB).look()).collect();
    assert!(only(&changes, Rule::ReplicaDown).cause.contains("does not come on"), "{changes:#?}");
    // A link that was up is lost at once, and a watch that is started again has not forgotten since when it waits.
    let mut scene = down(&[("master_link_down_since_seconds", "2")]);
    assert!(only(&scene.looks(3), Rule::ReplicaDown).cause.contains("has lost its master 10.0.0.8:6379"));
    let mut scene = down(&[]);
    scene.looks(40);
    scene.judge = Judge::restore(Settings::new(Purpose::State), &scene.judge.save()).unwrap();
    assert!(only(&scene.looks(30), Rule::ReplicaDown).cause.contains("for 6"));
}

/// Whoever reads a snapshot as a replica would is none: nobody is missed when it leaves.
#[test]
fn readers_of_a_snapshot_are_no_replicas() {
    let reader = |state: &str| format!("ip=10.0.0.9,port=0,state={state},offset=0,lag=90");
    for states in [&["wait_bgsave", "send_bulk"][..], &["send_bulk", "online"]] {
        let mut scene = Scene::new(Purpose::State);
        scene.looks(3);
        for state in states {
            scene.set(&[("connected_slaves", "1"), ("slave0", &reader(state))]);
            assert!(scene.looks(20).is_empty(), "{state}");
        }
        scene.set(&[("connected_slaves", "0"), ("slave0", "")]);
        assert!(scene.looks(20).is_empty(), "{states:?}");
    }
    // One that is there does not stand for one that is missing.
    let mut scene = Scene::new(Purpose::State);
    let online = "ip=10.0.0.8,port=6379,state=online,offset=1000,lag=0";
    scene.set(&[("connected_slaves", "2"), ("slave0", online), ("slave1", &reader("send_bulk"))]);
    assert!(scene.looks(5).is_empty());
    scene.set(&[("connected_slaves", "1"), ("slave0", &reader("send_bulk")), ("slave1", "")]);
    let finding = only(&scene.looks(4), Rule::ReplicaDown);
    assert!(finding.cause.contains("1 of 1 replicas are gone, 0 left"), "{finding:#?}");
    // A replica that never had its first copy, or came for a single look, is not relied on.
    for (state, looks) in [("wait_bgsave", 30), ("online", 1)] {
        let mut scene = Scene::new(Purpose::State);
        let seen = format!("ip=10.0.0.8,port=6379,state={state},offset=0,lag=0");
        scene.set(&[("connected_slaves", "1"), ("slave0", &seen)]);
        scene.looks(looks);
        scene.set(&[("connected_slaves", "0"), ("slave0", "")]);
        assert!(scene.looks(20).is_empty(), "{state}");
    }
}
