//! `tidegate queue`, and queues and locks of the real binary.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Serve, folder, run, write};

#[test]
fn queues_by_hand() {
    let dir = folder();
    let config =
        write(dir.path(), "tidegate.toml", "[queues]\nmax_attempts = 1\nmax = 2\n[locks]\nmax_ttl = \"10s\"\n");
    let config = config.to_str().expect("a path of this test");
    let serve = Serve::start(dir.path(), &["--config", config, "--manual-clock"]);
    let to = serve.url.clone();
    let call = |method: &str, path: &str, body: Value| serve.call(method, path, None, Some(&body));
    let put = |id: &str, body: Value| call("PUT", &format!("/v1/queues/mail/tasks/{id}"), body);
    assert_eq!(put("far", json!({"delay_ms": 3_600_000, "payload": [1]})).0, 201);
    for id in ["a", "b", "c"] {
        assert_eq!(put(id, json!({"delay_ms": 0})).0, 201);
    }
    let (_, claimed) = call("POST", "/v1/queues/mail/claim", json!({"max": 3}));
    let held = |task: &Value| json!({"id": task["id"], "receipt": task["receipt"]});
    let items: Vec<Value> = claimed["tasks"].as_array().expect("tasks").iter().map(held).collect();
    let (_, settled) = call("POST", "/v1/queues/mail/retry", json!({"items": items, "error": "no\nway"}));
    assert_eq!(settled["results"][0]["result"], "dead", "max_attempts of the file: {settled}");
    assert_eq!(call("POST", "/v1/locks/l", json!({"ttl_ms": 10_001})).0, 422, "max_ttl of the file");

    let queue = |args: &[&str]| run(&[&["queue"], args, &["--to", &to]].concat());
    let numbers = queue(&["stats", "mail", "--json"]).expect(0, &[]).json();
    assert_eq!((&numbers["pending"], &numbers["dead"]), (&json!(1), &json!(3)));
    let table = queue(&["stats"]).expect(0, &[]).out;
    assert!(table.starts_with("queue ") && table.contains("mail"), "{table}");
    assert_eq!(queue(&["list", "mail", "far", "--json"]).expect(0, &[]).json()["payload"], json!([1]));
    assert_eq!(queue(&["list", "mail"]).expect(0, &[]).out.lines().count(), 2);
    let dead = queue(&["dead", "mail"]).expect(0, &[]).out;
    assert!(dead.lines().count() == 4 && dead.contains("no way"), "{dead}");
    let some = queue(&["dead", "mail", "--limit", "2", "--json"]).expect(0, &["--limit 0"]);
    assert_eq!(some.out.lines().count(), 2);

    assert_eq!(
        queue(&["requeue", "mail", "a", "--delay-ms", "60000", "--json"]).expect(0, &[]).json()["state"],
        "pending"
    );
    queue(&["requeue", "mail", "a"]).expect(1, &["unknown-task"]);
    queue(&["cancel", "mail", "a"]).expect(0, &[]);
    queue(&["cancel", "mail", "a"]).expect(1, &["unknown-task"]);
    queue(&["purge", "mail"]).expect(2, &["--yes"]);
    let before = queue(&["purge", "mail", "--before", "2020-01-01T00:00:00Z", "--yes", "--json"]).expect(0, &[]);
    assert_eq!(before.json()["purged"], 0);
    assert_eq!(queue(&["requeue", "mail", "--json"]).expect(0, &[]).json()["requeued"], 2);
    assert_eq!(queue(&["purge", "mail", "--yes"]).expect(0, &[]).out, "purged 0 tasks\n");
    let own = queue(&["stats", "orders", "--json"]).expect(0, &[]).json();
    assert_eq!((&own["queue"], &own["pending"], &own["lag_ms"]), (&json!("orders"), &json!(0), &json!(0)));
    queue(&["list", "orders"]).expect(1, &["/v1/parked"]);
    queue(&["cancel", "orders", "a"]).expect(2, &["reserved-queue"]);
    queue(&["stats", "nobody"]).expect(1, &["unknown-queue"]);
    queue(&["stats", "Bad Name"]).expect(1, &["/queue"]);
    run(&["queue", "stats", "--to", "http://127.0.0.1:9"]).expect(3, &["cannot be reached"]);
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    assert!(dir.path().join("ledger.db.queues").exists());
}
