//! `tidegate doctor` on a real server.

use serde_json::Value;
use tidegate_conformance::servers::{Redis, Setup};

use crate::support::run;

fn find<'a>(report: &'a Value, rule: &str) -> Option<&'a Value> {
    report["findings"].as_array().expect("findings").iter().find(|finding| finding["rule"] == rule)
}

#[test]
fn what_is_wrong_is_told_and_mended() {
    let redis =
        Redis::start_with(Setup::default().option("maxmemory-policy", "allkeys-lru").option("maxmemory", "200mb"));
    redis.tell(&["CONFIG", "SET", "tcp-keepalive", "0"]);
    let url = redis.url();
    let args = ["doctor", "--redis", &url, "--role", "state"];
    let with = |more: &[&str]| run(&[&args[..], more].concat());
    let report = with(&["--json"]).expect(1, &[]).json();
    let policy = find(&report, "eviction-policy").expect("it is wrong");
    assert_eq!((&policy["severity"], &report["role"]), (&"critical".into(), &"state".into()));
    let fix = policy["fix"].as_str().expect("a text");
    assert!(
        fix.starts_with("redis-cli -h 127.0.0.1 -p") && fix.ends_with("CONFIG SET maxmemory-policy noeviction"),
        "{fix}"
    );
    for field in ["id", "address", "cause", "risk", "opened_at", "next_command"] {
        assert!(policy[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {policy}");
    }
    assert_eq!(policy["settings"][0]["from"], "allkeys-lru");
    assert_eq!((&report["servers"][0]["role"], &report["settings"]), (&"master".into(), &serde_json::json!([])));
    let text = with(&[]).expect(1, &[]).out;
    for words in [
        "critical  eviction-policy at 127.0.0.1",
        "evidence: lazyfree-lazy-eviction false, ",
        "tcp-keepalive",
        "fix: redis-cli",
        "risk: ",
        "1 server as state: ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let dry = with(&["--apply"]).expect(2, &["nothing was set", "--yes"]);
    assert!(dry.out.contains("maxmemory-policy allkeys-lru -> noeviction"), "{dry:?}");
    let dry = with(&["--apply", "--json"]).expect(2, &[]).json();
    assert!(dry["settings"].as_array().expect("a list").iter().all(|setting| setting["outcome"] == "not-set"), "{dry}");
    assert!(redis.tell(&["CONFIG", "GET", "maxmemory-policy"]).contains("allkeys-lru"));
    let mended = with(&["--apply", "--yes"]).expect(0, &[]);
    for words in ["maxmemory-policy allkeys-lru -> noeviction", "tcp-keepalive 0 -> 300", "no configuration file"] {
        assert!(mended.out.contains(words), "{words}: {mended:?}");
    }
    assert!(redis.tell(&["CONFIG", "GET", "maxmemory-policy"]).contains("noeviction"));
    let report = with(&["--json"]).expect(0, &[]).json();
    for rule in ["eviction-policy", "tcp-keepalive", "persistence-off", "lazy-free"] {
        assert!(find(&report, rule).is_none(), "{rule}: {report}");
    }
    assert_eq!(with(&["--apply", "--yes", "--json"]).expect(0, &[]).json()["settings"], serde_json::json!([]));
}

#[test]
fn usage_and_servers_that_are_not_there() {
    let doctor = |more: &[&str]| run(&[&["doctor", "--redis"][..], more].concat());
    doctor(&["redis://u:secret@127.0.0.1:9", "--role", "state"]).expect(3, &["127.0.0.1:9", "check the URL"]);
    for (url, cause) in [("redis://127.0.0.1:9", "Connection refused"), ("redis://none.invalid", "lookup")] {
        let told = doctor(&[url, "--role", "state"]).expect(3, &[cause]).err;
        assert_eq!(told.matches(cause).count(), 1, "{told}");
    }
    doctor(&["http://h", "--role", "state"]).expect(2, &["redis://"]);
    doctor(&["redis://127.0.0.1:9"]).expect(2, &["--role"]);
    doctor(&["redis://127.0.0.1:9", "--role", "queue"]).expect(2, &["shared"]);
    doctor(&["redis://127.0.0.1:9", "--role", "state", "--yes"]).expect(2, &["--apply"]);
    let redis = Redis::start();
    redis.tell(&["CONFIG", "SET", "requirepass", "word"]);
    doctor(&[&redis.url(), "--role", "cache"]).expect(2, &["password"]);
    // One that may see little is told what was not checked.
    let redis = Redis::start();
    redis.tell(&["ACL", "SETUSER", "looker", "on", ">word", "+info"]);
    let url = format!("redis://looker:word@127.0.0.1:{}", redis.port());
    let text = doctor(&[&url, "--role", "cache"]).out;
    assert!(text.contains("since CONFIG GET is not permitted: client-memory, ") && !text.contains("word"), "{text}");
}
