//! `tidegate bench feed`: every case at a small scale, with what it must say at any scale.

use serde_json::Value;
use tidegate_conformance::servers::Redis;

use crate::support::run;

/// The figures of some cases; none may be wrong or fail.
#[track_caller]
fn figures(cases: &str, more: &[&str]) -> Vec<Value> {
    let args = ["bench", "feed", "--json", "--scale", "0.005", "--only", cases];
    let measured = run(&[&args, more].concat()).expect(0, &[]);
    let lines: Vec<Value> =
        measured.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
    let figures = lines.into_iter().skip(1).collect::<Vec<_>>();
    for figure in &figures {
        assert!(figure["bench"] == "feed" && figure["what"].is_string() && figure["unit"].is_string(), "{figure}");
        assert!(figure["rate"].is_number() && figure["errors"].is_null(), "{figure}");
    }
    figures
}

/// The figures whose names have all these words.
#[track_caller]
fn rates(figures: &[Value], words: &[&str]) -> Vec<f64> {
    let named =
        |figure: &&Value| words.iter().all(|word| figure["what"].as_str().is_some_and(|what| what.contains(word)));
    let found: Vec<f64> = figures.iter().filter(named).map(|figure| figure["rate"].as_f64().unwrap_or(-1.0)).collect();
    assert!(!found.is_empty(), "{words:?} name none of {figures:?}");
    found
}

#[test]
fn pages_are_those_of_the_pipelined_reads_and_of_the_joins_in_three_databases() {
    let figures = figures("pages", &[]);
    for ledger in ["SQLite", "PostgreSQL", "MariaDB"] {
        assert_eq!(rates(&figures, &[ledger, "follows loaded"]).len(), 1);
        // It fails if two makers of a page do not agree.
        assert_eq!(rates(&figures, &["(b) a join", ledger]).len(), 3, "{figures:?}");
    }
    let ours: Vec<&Value> = figures
        .iter()
        .filter(|figure| figure["what"].as_str().is_some_and(|what| what.ends_with("page, posts from Redis")))
        .collect();
    assert_eq!(ours.len(), 3, "{figures:?}");
    for figure in ours {
        assert!(figure["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && figure["p99_ms"].is_number(), "{figure}");
    }
    // What a page needs once, posts in the cache, it needs no more.
    assert!(rates(&figures, &["database queries"]).iter().all(|queries| *queries < 0.5), "{figures:?}");
    assert!(rates(&figures, &["8 callers"]).iter().all(|rate| *rate > 0.0));
}

#[test]
fn pages_read_few_sets_publishing_is_one_round_trip_and_unchanged_pages_are_from_memory() {
    let figures = figures("memory,sizes,walk,first,kept,publish", &[]);
    assert_eq!(rates(&figures, &["round trips to Redis after the commit"]), [1.0; 3]);
    for words in [["bytes"], ["first visit"], ["from memory"], ["slowest viewer"]] {
        let found = figures.iter().filter(|figure| figure["unit"] == words[0]).count();
        assert!(found > 0 || rates(&figures, &words).iter().all(|rate| *rate > 0.0), "{words:?}");
    }
    for figure in figures.iter().filter(|figure| figure["unit"] == "sets") {
        assert!(figure["ratio"].as_f64().is_some_and(|ratio| ratio <= 1.0), "{figure}");
    }
    // Of some ten thousand pages; a process that lives has a read of its own now and then.
    let reads = rates(&figures, &["reads of sets, ties or posts"]);
    assert!(reads.len() == 2 && reads.iter().all(|reads| *reads <= 3.0), "{reads:?}");
}

#[test]
fn what_redis_loses_under_load_is_read_once_and_pages_stay_right() {
    let figures = figures("flush", &[]);
    assert_eq!(rates(&figures, &["not right"]), [0.0]);
    assert_eq!(rates(&figures, &["reads of the set of an author"]), [1.0], "{figures:?}");
}

#[test]
fn pages_in_process_need_no_server_and_a_server_that_is_not_its_own_is_cleared_up() {
    let redis = Redis::start();
    redis.tell(&["SET", "tg:shop:f", "somebody else's"]);
    let figures = figures("embedded,kept,flush", &["--redis", &redis.url()]);
    assert_eq!(rates(&figures, &["page, embedded"]).len(), 3, "{figures:?}");
    // Whether the server takes writes is tried with a key of a second.
    let began = std::time::Instant::now();
    while redis.tell(&["KEYS", "*"]).contains(":probe") && began.elapsed() < std::time::Duration::from_secs(5) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(redis.tell(&["KEYS", "*"]), "tg:shop:f");
    run(&["bench", "feed", "--only", "nothing"]).expect(2, &["no such case", "flush: "]);
}
