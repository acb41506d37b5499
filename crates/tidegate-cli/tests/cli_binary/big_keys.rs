//! `tidegate big-keys` on a real server.

use serde_json::Value;
use tidegate_conformance::servers::{Redis, Setup};

use crate::support::run;

#[test]
fn the_largest_keys_by_both_routes() {
    let redis = Redis::start_with(Setup::default().option("repl-diskless-sync-delay", "0"));
    redis.tell(&["SET", "a\u{1}b", &"x".repeat(100_000), "EX", "1000"]);
    for n in 0..200 {
        redis.tell(&["SADD", "{tg:shop:q:mail}:w", &format!("task with a name of some length {n}")]);
    }
    redis.tell(&["SET", "user:1", "small"]);
    let url = redis.url();
    for (route, took) in [("auto", "snapshot"), ("scan", "scan")] {
        let args = ["big-keys", "--redis", &url, "--top", "2", "--route", route];
        let report = run(&[&args[..], &["--json"]].concat()).expect(0, &[]).json();
        assert_eq!((&report["state"], &report["route"]), (&"done".into(), &took.into()), "{report}");
        assert_eq!((&report["scanned"], &report["total"], &report["confidence"]), (&3.into(), &3.into(), &1.0.into()));
        let [first, second] = &report["items"].as_array().expect("items")[..] else { panic!("{report}") };
        assert_eq!((&first["key"], &first["key_base64"]), (&"a\\x01b".into(), &"YQFi".into()));
        assert_eq!(
            (&first["type"], &first["encoding"], &first["elements"]),
            (&"string".into(), &"raw".into(), &100_000.into())
        );
        assert!(first["bytes"].as_u64().is_some_and(|bytes| (100_000..120_000).contains(&bytes)), "{first}");
        assert!(first["ttl_ms"].as_i64().is_some_and(|ttl| (900_000..=1_000_000).contains(&ttl)), "{first}");
        assert!(first["delete_blocks_ms"].is_number() && second["ttl_ms"].is_null(), "{report}");
        assert_eq!(second["purpose"], "Tidegate: a delay queue");
        assert_eq!(report["types"].as_array().map(Vec::len), Some(2));
        let prefixes: Vec<&Value> =
            report["prefixes"].as_array().expect("prefixes").iter().map(|sum| &sum["prefix"]).collect();
        assert_eq!(prefixes, ["", "{tg:", "user:"]);
        let text = run(&args).expect(0, &[]).out;
        for words in ["a\\x01b", "Tidegate: a delay queue", "looked at 3 of 3 keys", "do not delete"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.contains(&format!("route {took}")), "{text}");
    }
    run(&["big-keys", "--redis", "redis://127.0.0.1:9"]).expect(3, &["127.0.0.1:9"]);
    run(&["big-keys", "--redis", "http://h"]).expect(2, &["redis://"]);
    run(&["big-keys", "--redis", &url, "--deadline", "5"]).expect(2, &["90s"]);
    redis.tell(&["CONFIG", "SET", "requirepass", "word"]);
    run(&["big-keys", "--redis", &url]).expect(2, &["password"]);
}
