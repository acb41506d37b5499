//! `tidegate big-keys` on a real server.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use tidegate_conformance::servers::{Engine, Redis, Setup};

use crate::support::{folder, run, run_with};

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
    run(&["big-keys", "--redis", &url, "--route", "keysizes"]).expect(2, &["no INFO keysizes", "auto"]);
    // Who may not ask how large keys are is told so; nothing is said to be empty.
    redis.tell(&["ACL", "SETUSER", "scanner", "on", ">word", "~*", "+info", "+scan"]);
    let scanner = url.replace("redis://", "redis://scanner:word@");
    let report = run(&["big-keys", "--redis", &scanner, "--json"]).expect(0, &[]).json();
    assert_eq!((&report["scanned"], &report["unknown_size"], &report["bytes"]), (&3.into(), &3.into(), &Value::Null));
    for of in ["items", "types", "prefixes"] {
        assert_eq!(report[of][0]["bytes"], Value::Null, "{of}: {report}");
    }
    assert_eq!((&report["types"][0]["type"], &report["items"][0]["type"]), (&Value::Null, &Value::Null));
    assert_eq!(report["items"][0]["delete_blocks_ms"], Value::Null);
    let text = run(&["big-keys", "--redis", &scanner]).expect(0, &[]).out;
    for words in ["MEMORY USAGE is not permitted", "looked at 3 of 3 keys (100.0 %), unknown, route scan"] {
        assert!(text.contains(words) && !text.contains(" 0 B"), "{words}: {text}");
    }
    // A sum that lacks some sizes is said to be at least that.
    redis.tell(&["ACL", "SETUSER", "part", "on", ">word", "~user:*", "+info", "+scan", "+type", "+memory|usage"]);
    let text = run(&["big-keys", "--redis", &url.replace("redis://", "redis://part:word@")]).expect(0, &[]).out;
    assert!(
        text.contains("looked at 3 of 3 keys (100.0 %), at least ") && text.contains("2 keys were refused"),
        "{text}"
    );
    run(&["big-keys", "--redis", &url, "--deadline", "5"]).expect(2, &["90s"]);
    redis.tell(&["CONFIG", "SET", "requirepass", "word"]);
    run(&["big-keys", "--redis", &url]).expect(2, &["password"]);
}

/// (The wheels' servers are built without TLS.)
#[test]
fn a_snapshot_through_tls_if_the_systems_authorities_vouch_for_the_server() {
    let setup = Setup::default().engine(Engine::Redis).tls().option("repl-diskless-sync-delay", "0");
    let (redis, folder) = (Redis::start_with(setup), folder());
    redis.tell(&["SET", "large", &"x".repeat(100_000)]);
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, redis.authority()).expect("the folder can be written");
    let url = redis.url();
    let args = ["big-keys", "--redis", &url, "--route", "snapshot", "--json"];
    let report = run_with(&args, &[("SSL_CERT_FILE", ca.to_str().expect("UTF-8"))]).expect(0, &[]).json();
    assert_eq!((&report["route"], &report["scanned"]), (&json!("snapshot"), &json!(1)), "{report}");
    assert_eq!(report["items"][0]["key"], "large");
    run(&args).expect(3, &["does not answer"]);
}

/// A server that answers every question as Redis 8 would answer `INFO`.
fn redis_8() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    url
}

fn answer(stream: TcpStream) {
    let mut to = stream.try_clone().expect("a second end");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')?.parse::<usize>().ok()) {
        let words: Vec<String> = (0..count).filter_map(|_| lines.by_ref().nth(1)).collect();
        let text = match words.last().map(String::as_str) {
            Some("keysizes") => {
                "# Keysizes\r\ndb0_distrib_strings_sizes:1=199,2M=1\r\ndb0_distrib_hashes_items:8K=2\r\n"
            }
            Some("keyspace") => "# Keyspace\r\ndb0:keys=202,expires=0,avg_ttl=0\r\n",
            _ => "redis_version:8.2.1\r\nrole:master\r\ndb0:keys=202,expires=0,avg_ttl=0\r\n",
        };
        if write!(to, "${}\r\n{text}\r\n", text.len()).is_err() {
            return;
        }
    }
}

#[test]
fn histograms_of_sizes() {
    let url = redis_8();
    let report = run(&["big-keys", "--redis", &url, "--route", "keysizes", "--json"]).expect(0, &[]).json();
    assert_eq!(
        (&report["route"], &report["experimental"], &report["bytes"]),
        (&json!("keysizes"), &json!(true), &Value::Null)
    );
    assert_eq!((&report["scanned"], &report["total"], &report["items"]), (&json!(202), &json!(202), &json!([])));
    let strings = json!({
        "database": 0, "type": "string", "unit": "bytes", "clamped": 0,
        "bins": [{ "from": 1, "below": 2, "keys": 199 }, { "from": 2_097_152, "below": 4_194_304, "keys": 1 }],
    });
    assert!(report["sizes"].as_array().expect("a list").contains(&strings), "{report}");
    let text = run(&["big-keys", "--redis", &url, "--route", "keysizes"]).expect(0, &[]).out;
    for words in ["2.0 MiB", "8192 elements", "experimental", "3 keys are big", "looked at 202 of 202 keys"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
