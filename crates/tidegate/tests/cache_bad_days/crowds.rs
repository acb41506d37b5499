//! Thousands of callers in eight processes ask for one key at once.

use tidegate_conformance::servers::Redis;
use tidegate_core::cache::backoff_ms;
use tidegate_core::cache::defence::LONGEST_SHARED_MS;

use super::process::{Order, Process, Setup, Table, all, loads, now_us, soon_us};
use super::scaled;

const PROCESSES: usize = 8;
const KEY: u64 = 1;
const VERSION: u64 = 7;
/// What a busy machine may add to an answer; the bench says what a quiet one does.
const SLACK_US: u64 = 1_000_000;

fn processes(redis: &Redis, change: impl Fn(&mut Setup)) -> (Table, Vec<Process>) {
    let table = Table::new(10);
    table.set(KEY, VERSION);
    let mut setup = Setup { fresh_ms: 600, load_ms: 150, ..Setup::new(&redis.url(), &table) };
    change(&mut setup);
    let processes = (0..PROCESSES).map(|_| Process::start(&setup)).collect();
    (table, processes)
}

#[test]
fn a_key_that_expires_under_eight_processes_is_loaded_once() {
    let redis = Redis::start();
    let callers = scaled(200, 1_000) as usize;
    let (_table, mut processes) = processes(&redis, |_| {});
    for round in 0..scaled(5, 200) {
        let at_us = if round == 0 { soon_us() } else { now_us() + 600_000 };
        let reports = all(&mut processes, &Order::Crowd { callers, key: KEY, at_us });
        assert_eq!(loads(&reports).len(), 1, "round {round}: {reports:?}");
        for report in &reports {
            assert_eq!((report.values, report.value), (callers as u64, Some(VERSION)), "{report:?}");
            assert!(report.longest_us < 150_000 + SLACK_US, "{report:?}");
        }
    }
}

#[test]
fn with_a_stale_life_no_caller_of_eight_processes_waits_for_the_load() {
    let redis = Redis::start();
    let callers = scaled(200, 1_000) as usize;
    // A load takes so long that whoever waited for it would be seen.
    let (_table, mut processes) = processes(&redis, |setup| {
        (setup.stale_ms, setup.load_ms) = (60_000, 2_000);
    });
    for round in 0..scaled(3, 50) {
        let at_us = if round == 0 { soon_us() } else { now_us() + 2_500_000 };
        let reports = all(&mut processes, &Order::Crowd { callers, key: KEY, at_us });
        // The refresh of a round ends after its report.
        assert!(loads(&reports).len() <= 1, "round {round}: {reports:?}");
        for report in reports.iter().filter(|_| round > 0) {
            assert_eq!(report.values, callers as u64, "{report:?}");
            assert!(report.longest_us < 1_500_000, "{report:?}");
        }
    }
}

#[test]
fn a_failing_loader_is_asked_once_a_back_off_by_eight_processes() {
    let redis = Redis::start();
    let callers = scaled(200, 1_250) as usize;
    let (_table, mut processes) = processes(&redis, |setup| (setup.load_ms, setup.fails) = (100, true));
    let mut begun: Vec<(u64, u64)> = Vec::new();
    for _ in 0..scaled(6, 20) {
        let reports = all(&mut processes, &Order::Crowd { callers, key: KEY, at_us: soon_us() });
        begun.extend(loads(&reports));
        for report in &reports {
            assert_eq!((report.values, report.errors), (0, callers as u64), "{report:?}");
            assert!(report.error.as_deref().is_some_and(|e| e.contains("the database is down")), "{report:?}");
            assert!(report.longest_us < 100_000 + SLACK_US, "{report:?}");
        }
    }
    // However the rounds fell: no load begins before the back-off of the one before it is over.
    for (failures, pair) in begun.windows(2).enumerate() {
        let pause = pair[1].0.saturating_sub(pair[0].1);
        let backoff = backoff_ms(failures as u32).min(LONGEST_SHARED_MS) as u64 * 1_000;
        assert!(pause + 5_000 >= backoff, "{pause} us after failure {failures}: {begun:?}");
    }
    assert!(begun.len() >= 3, "{begun:?}");
}
