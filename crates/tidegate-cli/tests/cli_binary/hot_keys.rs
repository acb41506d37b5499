//! `tidegate hot-keys` on real servers, on one that counts itself as Redis 8.6 is documented to, and on what a server's processes tell.

use serde_json::Value;
use tidegate_conformance::servers::Redis;

use crate::support::run;

#[test]
fn a_server_that_nobody_reads() {
    let redis = Redis::start();
    let url = redis.url();
    let report = run(&["hot-keys", "--redis", &url, "--json"]).expect(0, &[]).json();
    assert_eq!((&report["source"], &report["seconds"]), (&"sketch".into(), &10.0.into()), "{report}");
    assert_eq!(report["items"], Value::Array(Vec::new()));
    let text = run(&["hot-keys", "--redis", &url]).expect(0, &[]).out;
    assert!(text.contains("no process tells") && text.contains("source sketch"), "{text}");
    run(&["hot-keys", "--redis", "redis://127.0.0.1:9"]).expect(3, &["127.0.0.1:9"]);
    run(&["hot-keys", "--redis", "http://h"]).expect(2, &["redis://"]);
    run(&["hot-keys", "--redis", &url, "--seconds", "31"]).expect(2, &["30"]);
    run(&["hot-keys", "--redis", &url, "--top", "65"]).expect(2, &["64"]);
}
