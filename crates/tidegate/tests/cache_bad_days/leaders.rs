//! Processes that die or freeze while they load for all others.

use std::time::{Duration, Instant};

use tidegate_conformance::servers::Redis;

use super::process::{Order, Process, Setup, Table, until};

const KEY: u64 = 3;
const LEASE: Duration = Duration::from_millis(1_000);

fn setup(redis: &Redis, table: &Table) -> Setup {
    Setup { lease_ms: LEASE.as_millis() as u64, ..Setup::new(&redis.url(), table) }
}

/// A process that loads for ever, and one that loads at once.
fn pair(redis: &Redis, table: &Table) -> (Process, Process) {
    let mut leader = Process::start(&Setup { load_ms: 5_000, ..setup(redis, table) });
    let other = Process::start(&setup(redis, table));
    leader.ask(&Order::Begin { key: KEY });
    (leader, other)
}

#[test]
fn a_leader_that_is_killed_holds_others_up_for_its_lease_at_most() {
    let (redis, table) = (Redis::start(), Table::new(10));
    table.set(KEY, 5);
    for _ in 0..2 {
        let (leader, mut other) = pair(&redis, &table);
        leader.kill();
        let killed = Instant::now();
        let answer = other.get(KEY);
        assert_eq!((answer.value, answer.loads.len()), (Some(5), 1), "{answer:?}");
        assert!(killed.elapsed() < LEASE + Duration::from_millis(1_000), "{:?}", killed.elapsed());
        assert_eq!(other.get(KEY).loads.len(), 0);
        redis.tell(&["FLUSHALL"]);
    }
    // Nothing without an end is left of the dead.
    for name in redis.tell(&["KEYS", "tg:days:c:*"]).lines().filter(|name| !name.is_empty()) {
        let left: i64 = redis.tell(&["PTTL", name]).parse().unwrap();
        assert!(left > 0 || left == -2, "{name} has {left} ms left");
    }
}

#[test]
fn a_leader_that_is_frozen_loses_its_lease_and_its_late_fill_is_refused() {
    let (redis, table) = (Redis::start(), Table::new(10));
    table.set(KEY, 5);
    let (mut leader, mut other) = pair(&redis, &table);
    leader.freeze(true);
    let frozen = Instant::now();
    let answer = other.get(KEY);
    assert_eq!((answer.value, answer.loads.len()), (Some(5), 1), "{answer:?}");
    assert!(frozen.elapsed() < LEASE + Duration::from_millis(1_000), "{:?}", frozen.elapsed());
    // The row changes while the leader, frozen, holds the old one.
    table.set(KEY, 6);
    assert_eq!(other.ask(&Order::Invalidate { key: KEY }).error, None);
    assert_eq!(other.get(KEY).value, Some(6));
    leader.freeze(false);
    let late = leader.ask(&Order::End);
    // It asked long before the change: old or new, both are right for it. But nothing old was stored.
    assert!(late.value == Some(5) || late.value == Some(6), "{late:?}");
    assert_eq!(late.rejected, 1, "{late:?}");
    assert_eq!(other.ask(&Order::Get { key: KEY, strong: true }).value, Some(6));
    until("its copies to be right, too", || leader.get(KEY).value == Some(6));
}
