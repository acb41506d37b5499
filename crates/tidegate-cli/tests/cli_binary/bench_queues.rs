//! `tidegate bench deadlines` and `tidegate bench locks`: every case at a small scale, with what it must say at any scale.

use serde_json::Value;
use tidegate_conformance::servers::Redis;

use crate::support::run;

/// The figures of some cases; none may have come early, be lost on the way or fail.
#[track_caller]
fn figures(bench: &str, cases: &str, more: &[&str]) -> Vec<Value> {
    let args = ["bench", bench, "--json", "--scale", "0.004", "--only", cases];
    let measured = run(&[&args, more].concat()).expect(0, &[]);
    let lines: Vec<Value> =
        measured.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
    let figures = lines.into_iter().skip(1).collect::<Vec<_>>();
    for figure in &figures {
        assert!(figure["bench"] == bench && figure["what"].is_string() && figure["unit"].is_string(), "{figure}");
        assert!(figure["rate"].is_number() && figure["errors"].is_null(), "{figure}");
    }
    assert!(!figures.is_empty(), "{measured:?}");
    figures
}

/// The one figure whose name has all these words.
#[track_caller]
fn rate(figures: &[Value], words: &[&str]) -> f64 {
    let named =
        |figure: &&Value| words.iter().all(|word| figure["what"].as_str().is_some_and(|what| what.contains(word)));
    let found: Vec<&Value> = figures.iter().filter(named).collect();
    let [figure] = found[..] else { panic!("{words:?} name {found:?} of {figures:?}") };
    figure["rate"].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn deadlines_are_scheduled_worked_off_and_cancelled_beside_the_bare_commands() {
    let figures = figures("deadlines", "schedule,drain,cancel", &[]);
    assert_eq!(figures.len(), 6, "{figures:?}");
    for figure in &figures[..2] {
        assert!(
            figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && figure["baseline"].is_string(),
            "{figure}"
        );
    }
    for words in ["schedule", "claim and acknowledge", "cancel at random", "the same while"] {
        assert!(rate(&figures, &[words]) > 0.0, "{words}: {figures:?}");
    }
}

#[test]
fn deadlines_come_to_another_process_and_a_pile_does_not_hold_up_a_trickle() {
    let figures = figures("deadlines", "lateness,pile", &[]);
    assert_eq!(rate(&figures, &["lateness at 10000"]), 10_000.0, "all of a second came: {figures:?}");
    assert!(rate(&figures, &["due in one second"]) < 30.0, "{figures:?}");
    assert_eq!(rate(&figures, &["trickle"]), 400.0, "{figures:?}");
    let late = figures.iter().filter(|figure| figure["p50_ms"].is_number()).count();
    assert_eq!(late, 3, "{figures:?}");
}

#[test]
fn tasks_of_a_killed_worker_come_again_none_is_lost_and_its_receipts_are_refused() {
    let figures = figures("deadlines", "killed", &[]);
    assert!(rate(&figures, &["all came again after"]) > 1_000.0, "not before their leases ended: {figures:?}");
    assert_eq!(rate(&figures, &["lost"]), 0.0, "{figures:?}");
    assert_eq!(rate(&figures, &["receipts of the dead refused"]), 1_000.0, "{figures:?}");
}

#[test]
fn far_tasks_cost_a_few_round_trips_whatever_the_number_of_queues() {
    let figures = figures("deadlines", "idle", &[]);
    assert_eq!(figures.len(), 8, "{figures:?}");
    let one = rate(&figures, &["in 1 queues", "round trips"]);
    assert!((0.5..=8.0).contains(&one), "{figures:?}");
    let many = rate(&figures, &["in 100 queues", "round trips"]);
    // They are looked at in one command.
    assert!(many <= one + 3.0, "{figures:?}");
    let bytes = figures.iter().filter(|figure| figure["unit"] == "bytes").map(|figure| figure["rate"].as_f64());
    assert!(bytes.into_iter().all(|bytes| bytes.is_some_and(|bytes| bytes < 400.0)), "{figures:?}");
}

#[test]
fn a_file_is_opened_again_with_every_task_that_was_acknowledged() {
    let figures = figures("deadlines", "embedded", &[]);
    assert!(rate(&figures, &["64 callers"]) > 0.0 && rate(&figures, &["opened again"]) < 10.0, "{figures:?}");
}

/// What every side says, and the part of acknowledged tasks that its store lost.
#[track_caller]
fn side(case: &str) -> (Vec<Value>, f64) {
    let figures = figures("deadlines", case, &[]);
    assert_eq!(figures.len(), 5, "{figures:?}");
    assert!(rate(&figures, &["schedule"]) > 0.0, "{figures:?}");
    let lost = figures.last().expect("five figures");
    let acknowledged =
        lost["what"].as_str().and_then(|what| what.split(", of ").nth(1)?.split(' ').next()?.parse().ok());
    let acknowledged: f64 = acknowledged.unwrap_or_else(|| panic!("{lost}"));
    assert!(acknowledged > 0.0, "{lost}");
    let part = rate(&figures, &["lost by kill -9"]) / acknowledged;
    (figures, part)
}

/// One of our stores that keeps what it acknowledges.
#[track_caller]
fn keeps_all(case: &str) {
    let (figures, lost) = side(case);
    assert_eq!(lost, 0.0, "{figures:?}");
    assert!(rate(&figures, &["1000 of 1000 due tasks handed out"]) > 0.0, "{figures:?}");
    assert_eq!(rate(&figures, &["lateness of those that came"]), 1_000.0, "{figures:?}");
}

#[test]
fn side_by_side_the_file_loses_nothing_when_its_process_is_killed() {
    keeps_all("side-embedded");
}

#[test]
fn side_by_side_redis_with_its_log_loses_nothing_when_it_is_killed() {
    keeps_all("side-redis");
}

#[test]
fn side_by_side_redis_without_a_log_loses_all_when_it_is_killed() {
    let (figures, lost) = side("side-memory");
    assert_eq!(lost, 1.0, "{figures:?}");
}

#[test]
fn side_by_side_mariadb_loses_nothing_when_it_is_killed() {
    keeps_all("side-mariadb");
}

#[test]
fn side_by_side_postgresql_loses_nothing_when_it_is_killed() {
    keeps_all("side-postgres");
}

#[cfg(feature = "rabbitmq")]
#[test]
fn side_by_side_a_broker_with_durable_queues_loses_nothing_when_it_is_killed() {
    keeps_all("side-rabbitmq");
}

#[cfg(not(feature = "rabbitmq"))]
#[test]
fn a_build_without_the_brokers_client_says_so_and_goes_on() {
    run(&["bench", "deadlines", "--only", "side-rabbitmq"]).expect(0, &["left out", "--features rabbitmq"]);
}

#[test]
fn side_by_side_the_naive_loop_does_ten_a_second() {
    let (figures, lost) = side("side-naive");
    assert_eq!(lost, 0.0, "{figures:?}");
    let handed_out = rate(&figures, &["due tasks handed out"]);
    assert!((1.0..=25.0).contains(&handed_out), "{figures:?}");
    assert!(rate(&figures, &["lateness of those that came"]) < 1_000.0, "it cannot keep up: {figures:?}");
}

#[test]
fn locks_are_measured_beside_the_bare_pair_in_a_crowd_and_in_a_line() {
    let figures = figures("locks", "pair,crowd,line", &[]);
    assert_eq!(figures.len(), 7, "{figures:?}");
    assert!(figures[2]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{figures:?}");
    assert!(rate(&figures, &["8 processes x 32 callers"]) > 0.0, "{figures:?}");
    assert_eq!(rate(&figures, &["hand-over"]), 40.0, "every waiter got it: {figures:?}");
}

#[test]
fn on_a_server_that_is_not_its_own_nothing_is_left_behind() {
    let redis = Redis::start();
    redis.tell(&["SET", "tg:shop:q", "somebody else's"]);
    figures("deadlines", "schedule,drain", &["--redis", &redis.url()]);
    figures("locks", "pair", &["--redis", &redis.url()]);
    // Whether the server takes writes is tried with a key of a second.
    let began = std::time::Instant::now();
    while redis.tell(&["KEYS", "*"]).contains(":probe") && began.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(redis.tell(&["KEYS", "*"]), "tg:shop:q");
    for bench in ["deadlines", "locks"] {
        run(&["bench", bench, "--only", "nothing"]).expect(2, &["no such case"]);
        run(&["bench", bench, "--redis", "nonsense://u:secret@h"]).expect(2, &["--redis"]);
    }
}
