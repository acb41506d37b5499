//! The delay queue over HTTP: every call, every code, callers that hang up, a stop, a restart.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::queue::QueueOptions;
use tidegate_server::{Limits, Role, Token, hash_token};

use crate::client::{Api, Reply, read_one};

/// Makes a test of `$case(Api)` on each kind of store.
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::client::Api::leasing().await).await;
            })+
        }
        mod on_mariadb {
            $(#[tokio::test]
            async fn $case() {
                let server = tidegate_conformance::servers::MariaDb::start();
                super::$case(crate::database::server(&server.database()).await).await;
            })+
        }
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                let server = tidegate_conformance::servers::Postgres::start();
                super::$case(crate::database::server(&server.database()).await).await;
            })+
        }
    };
}

on_every_store!(
    a_task_from_its_schedule_to_its_end,
    conditions_revoke_receipts,
    lists_page_in_their_order,
    pages_of_large_payloads_end_early,
    a_batch_answers_for_each,
    a_claim_waits_and_is_woken,
    who_hangs_up_gets_nothing_and_charges_nothing,
    a_claimer_that_dies_loses_its_tasks_after_its_lease,
);

async fn put(api: &Api, queue: &str, id: &str, body: Value) -> Reply {
    api.send("PUT", &format!("/v1/queues/{queue}/tasks/{id}"), body).await
}

async fn claim(api: &Api, queue: &str, body: Value) -> Vec<Value> {
    let reply = api.send("POST", &format!("/v1/queues/{queue}/claim"), body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["tasks"].as_array().expect("tasks").clone()
}

async fn settle(api: &Api, queue: &str, verb: &str, body: Value) -> Vec<String> {
    let reply = api.send("POST", &format!("/v1/queues/{queue}/{verb}"), body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let results = reply.json()["results"].as_array().expect("results").clone();
    results.iter().map(|result| result["result"].as_str().expect("a result").to_owned()).collect()
}

fn held(task: &Value) -> Value {
    json!({"id": task["id"], "receipt": task["receipt"]})
}

async fn task(api: &Api, queue: &str, id: &str) -> Value {
    api.get(&format!("/v1/queues/{queue}/tasks/{id}")).await.json()
}

async fn a_task_from_its_schedule_to_its_end(api: Api) {
    let body = r#"{"delay_ms": 0, "payload": { "n" : 1.50, "s": "\u00e9" }}"#;
    let new =
        api.raw("PUT", "/v1/queues/mail/tasks/a%2Fb", &[("content-type", "application/json")], body.as_bytes()).await;
    assert_eq!(new.status, 201, "{new:?}");
    let shown = new.json();
    assert_eq!(
        (&shown["scheduled"], &shown["task"]["id"], &shown["task"]["queue"]),
        (&json!(true), &json!("a/b"), &json!("mail"))
    );
    assert_eq!((&shown["task"]["state"], &shown["task"]["attempt"]), (&json!("pending"), &json!(0)));
    assert!(
        String::from_utf8_lossy(&new.body).contains(r#""payload":{"n":1.50,"s":"é"}"#),
        "as it was written: {new:?}"
    );
    let left = put(&api, "mail", "a%2Fb", json!({"delay_ms": 60_000})).await;
    assert_eq!((left.status, &left.json()["scheduled"]), (200, &json!(false)));
    assert_eq!(left.json()["task"]["payload"]["s"], "é");

    let claimed = claim(&api, "mail", json!({"max": 5, "lease_ms": 60_000})).await;
    let [one] = claimed.as_slice() else { panic!("{claimed:?}") };
    assert_eq!((&one["id"], &one["attempt"], &one["payload"]["s"]), (&json!("a/b"), &json!(1), &json!("é")));
    assert!(one["receipt"].is_string() && one["lease_until"].is_string() && one["due_at"].is_string());
    let leased = task(&api, "mail", "a%2Fb").await;
    assert_eq!((&leased["state"], &leased["visible_at"]), (&json!("leased"), &one["lease_until"]));
    assert!(leased.get("receipt").is_none());

    assert_eq!(settle(&api, "mail", "extend", json!({"items": [held(one)], "lease_ms": 90_000})).await, ["ok"]);
    assert!(task(&api, "mail", "a%2Fb").await["visible_at"].as_str() > one["lease_until"].as_str());
    assert_eq!(settle(&api, "mail", "release", json!({"items": [held(one)]})).await, ["ok"]);
    assert_eq!(task(&api, "mail", "a%2Fb").await["attempt"], 0, "a release charges no attempt");
    let one = claim(&api, "mail", json!({})).await.remove(0);
    let body = json!({"items": [held(&one)], "delay_ms": 3_600_000, "error": "the mail server is down"});
    assert_eq!(settle(&api, "mail", "retry", body).await, ["ok"]);
    let waits = task(&api, "mail", "a%2Fb").await;
    assert_eq!(
        (&waits["state"], &waits["last_error"], &waits["attempt"]),
        (&json!("pending"), &json!("the mail server is down"), &json!(1))
    );
    assert_eq!(claim(&api, "mail", json!({})).await, Vec::<Value>::new());

    let again = put(&api, "mail", "a%2Fb", json!({"delay_ms": 0, "if": "always"})).await;
    assert_eq!(
        (again.status, &again.json()["task"]["attempt"], &again.json()["task"]["payload"]),
        (200, &json!(0), &Value::Null)
    );
    let one = claim(&api, "mail", json!({})).await.remove(0);
    assert_eq!(
        settle(&api, "mail", "ack", json!({"items": [held(&one), {"id": "x", "receipt": "?"}]})).await,
        ["ok", "lost"]
    );
    assert_eq!(settle(&api, "mail", "ack", json!({"items": [held(&one)]})).await, ["lost"]);
    let gone = api.get("/v1/queues/mail/tasks/a%2Fb").await;
    assert_eq!((gone.status, gone.code().as_str()), (404, "unknown-task"));
    api.stop().await;
}

async fn conditions_revoke_receipts(api: Api) {
    let at = |s: u32| format!("2020-01-01T00:00:{s:02}.000Z");
    assert_eq!(put(&api, "q", "t", json!({"due_at": at(30)})).await.status, 201);
    for (body, scheduled, due) in [
        (json!({"due_at": at(40), "if": "earlier"}), false, 30),
        (json!({"due_at": at(20), "if": "earlier"}), true, 20),
        (json!({"due_at": at(10), "if": "later"}), false, 20),
        (json!({"due_at": at(50), "if": "later"}), true, 50),
        (json!({"due_at": at(10)}), false, 50),
    ] {
        let reply = put(&api, "q", "t", body.clone()).await;
        assert_eq!((reply.status, &reply.json()["scheduled"]), (200, &json!(scheduled)), "{body}");
        assert_eq!(reply.json()["task"]["due_at"], at(due), "{body}");
    }
    let one = claim(&api, "q", json!({})).await.remove(0);
    assert_eq!(put(&api, "q", "t", json!({"due_at": at(1), "if": "earlier"})).await.json()["scheduled"], true);
    assert_eq!(settle(&api, "q", "ack", json!({"items": [held(&one)]})).await, ["lost"]);
    let one = claim(&api, "q", json!({})).await.remove(0);
    let cancelled = api.send("DELETE", "/v1/queues/q/tasks/t", Value::Null).await;
    assert_eq!(cancelled.status, 204, "a leased task, too");
    assert_eq!(settle(&api, "q", "ack", json!({"items": [held(&one)]})).await, ["lost"]);
    let repeated = api.send("DELETE", "/v1/queues/q/tasks/t", Value::Null).await;
    assert_eq!((repeated.status, repeated.code().as_str()), (404, "unknown-task"));
    api.stop().await;
}

#[tokio::test]
async fn the_dead_are_listed_requeued_and_purged() {
    let options = QueueOptions { max_attempts: 1, ..QueueOptions::default() };
    let api = Api::leasing_as(options, Vec::new(), Limits::default()).await;
    for n in 0..4 {
        put(&api, "q", &format!("t{n}"), json!({"delay_ms": 0})).await;
    }
    let tasks = claim(&api, "q", json!({"max": 4})).await;
    let items: Vec<Value> = tasks.iter().map(held).collect();
    assert_eq!(settle(&api, "q", "retry", json!({"items": items, "error": "no"})).await, ["dead"; 4]);
    let numbers = api.get("/v1/queues/q").await.json();
    assert_eq!(
        numbers,
        json!({"queue": "q", "pending": 0, "due": 0, "leased": 0, "dead": 4, "oldest_due_at": null, "lag_ms": 0})
    );
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let page = api.get(&format!("/v1/queues/q/dead?limit=3{cursor}")).await.json();
        for dead in page["items"].as_array().expect("items") {
            assert_eq!((&dead["state"], &dead["last_error"]), (&json!("dead"), &json!("no")), "{dead}");
            assert!(dead["dead_at"].is_string());
            seen.push(dead["id"].as_str().expect("an id").to_owned());
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    seen.sort();
    assert_eq!(seen, ["t0", "t1", "t2", "t3"]);
    assert_eq!(
        put(&api, "q", "t3", json!({"delay_ms": 0})).await.json()["scheduled"],
        false,
        "absent leaves a dead one"
    );
    let alive = api.send("POST", "/v1/queues/q/dead/t0/requeue", json!({"delay_ms": 60_000})).await;
    assert_eq!((alive.status, &alive.json()["state"], &alive.json()["attempt"]), (200, &json!("pending"), &json!(0)));
    let twice = api.raw("POST", "/v1/queues/q/dead/t0/requeue", &[], b"").await;
    assert_eq!((twice.status, twice.code().as_str()), (404, "unknown-task"));
    let none = api.raw("DELETE", "/v1/queues/q/dead?before=2020-01-01T00:00:00Z", &[], b"").await;
    assert_eq!(none.json(), json!({"purged": 0, "more": false}));
    let all = api.raw("DELETE", "/v1/queues/q/dead", &[], b"").await;
    assert_eq!((all.status, all.json()), (200, json!({"purged": 3, "more": false})));
    api.stop().await;
}

async fn lists_page_in_their_order(api: Api) {
    for n in 0..7 {
        put(&api, "q", &format!("t{n}"), json!({"delay_ms": 1_000_000 - n * 1_000})).await;
        put(&api, &format!("other-{n}"), "t", json!({"delay_ms": 0})).await;
    }
    let (mut cursor, mut seen, mut pages) = (String::new(), Vec::new(), 0);
    loop {
        let page = api.get(&format!("/v1/queues/q/tasks?limit=3{cursor}")).await.json();
        seen.extend(
            page["items"].as_array().expect("items").iter().map(|t| t["id"].as_str().expect("an id").to_owned()),
        );
        pages += 1;
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
        assert_eq!(api.get(&format!("/v1/queues/other-1/tasks?cursor={next}")).await.pointers(), ["/cursor"]);
    }
    assert_eq!((seen, pages), (["t6", "t5", "t4", "t3", "t2", "t1", "t0"].map(str::to_owned).to_vec(), 3));
    let state = |state: &str| format!("/v1/queues/other-1/tasks?state={state}");
    let count = |reply: Reply| reply.json()["items"].as_array().expect("items").len();
    assert_eq!(count(api.get(&state("pending")).await), 1);
    assert_eq!(count(api.get(&state("leased")).await), 0);
    claim(&api, "other-1", json!({})).await;
    assert_eq!(count(api.get(&state("leased")).await), 1);
    assert_eq!(count(api.get("/v1/queues/nobody/tasks").await), 0);

    let (mut cursor, mut names) = (String::new(), Vec::new());
    loop {
        let page = api.get(&format!("/v1/queues?limit=3{cursor}")).await.json();
        names.extend(
            page["items"].as_array().expect("items").iter().map(|q| q["queue"].as_str().expect("a name").to_owned()),
        );
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let others = (0..7).map(|n| format!("other-{n}"));
    let wanted: Vec<String> = ["orders".to_owned()].into_iter().chain(others).chain(["q".to_owned()]).collect();
    assert_eq!(names, wanted);
    let numbers = api.get("/v1/queues/other-2").await.json();
    assert_eq!((&numbers["pending"], &numbers["due"]), (&json!(1), &json!(1)));
    assert!(numbers["oldest_due_at"].is_string() && numbers["lag_ms"].as_i64() >= Some(0));
    api.stop().await;
}

async fn pages_of_large_payloads_end_early(api: Api) {
    let large = "x".repeat(60_000);
    for n in 0..40 {
        put(&api, "q", &format!("t{n:02}"), json!({"delay_ms": 60_000 + n, "payload": large})).await;
    }
    let (mut cursor, mut seen) = (String::new(), 0);
    loop {
        let reply = api.get(&format!("/v1/queues/q/tasks?limit=500{cursor}")).await;
        assert!(reply.body.len() < 6 << 20, "{} bytes", reply.body.len());
        let page = reply.json();
        seen += page["items"].as_array().expect("items").len();
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, 40);
    api.stop().await;
}

async fn a_batch_answers_for_each(api: Api) {
    put(&api, "q", "there", json!({"delay_ms": 60_000})).await;
    let large = "x".repeat(70_000);
    let body = json!({"tasks": [
        {"id": "a", "delay_ms": 1}, {"id": "there", "delay_ms": 1}, {"id": "", "delay_ms": 1}, {"id": "b"},
        {"id": "c", "delay_ms": 1, "due_at": "2026-01-01T00:00:00Z"}, {"id": "d", "delay_ms": 1, "payload": large}, {"id": "a", "delay_ms": 5},
    ]});
    let reply = api.send("POST", "/v1/queues/q/tasks:batch", body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let results = reply.json()["results"].as_array().expect("results").clone();
    let statuses: Vec<_> = results.iter().map(|r| r["status"].as_u64().expect("a status")).collect();
    assert_eq!(statuses, [201, 200, 422, 422, 422, 413, 200]);
    assert_eq!((&results[0]["scheduled"], &results[1]["scheduled"]), (&json!(true), &json!(false)));
    assert_eq!(results[2]["problem"]["errors"][0]["pointer"], "/id");
    assert_eq!(results[3]["problem"]["errors"][0]["pointer"], "/due_at");
    assert_eq!(results[4]["problem"]["errors"][0]["pointer"], "/delay_ms");
    assert_eq!(results[5]["problem"]["code"], "too-large");
    for (body, pointer) in [(json!({"tasks": []}), "/tasks"), (json!({}), "/tasks"), (json!({"tasks": {}}), "/tasks")] {
        let reply = api.send("POST", "/v1/queues/q/tasks:batch", body).await;
        assert_eq!((reply.status, reply.pointers()), (422, vec![pointer.to_owned()]));
    }
    api.stop().await;
}

async fn a_claim_waits_and_is_woken(api: Api) {
    let began = Instant::now();
    assert_eq!(claim(&api, "q", json!({"wait_ms": 300})).await, Vec::<Value>::new());
    assert!(began.elapsed() >= Duration::from_millis(300));
    let mut first = api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000})).await;
    let mut second = api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = Instant::now();
    put(&api, "q", "now", json!({"delay_ms": 0})).await;
    let got = read_one(&mut first).await.json();
    assert_eq!(got["tasks"][0]["id"], "now", "who waits longest is first: {got}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    put(&api, "q", "soon", json!({"delay_ms": 400})).await;
    let began = Instant::now();
    let got = read_one(&mut second).await.json();
    assert_eq!(got["tasks"][0]["id"], "soon");
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(250) && waited < Duration::from_secs(3), "{waited:?}");
    api.stop().await;
}

async fn who_hangs_up_gets_nothing_and_charges_nothing(api: Api) {
    // In the wait.
    for _ in 0..20 {
        drop(api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000})).await);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    put(&api, "q", "t", json!({"delay_ms": 0})).await;
    let began = Instant::now();
    let one = loop {
        let mut tasks = claim(&api, "q", json!({"wait_ms": 200})).await;
        if let Some(task) = tasks.pop() {
            break task;
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{}", task(&api, "q", "t").await);
    };
    assert_eq!(one["attempt"], 1, "nobody was charged");
    settle(&api, "q", "ack", json!({"items": [held(&one)]})).await;
    // At every instant around the hand-over.
    for round in 0..60_u64 {
        let id = format!("r{round}");
        let waiter =
            api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 20_000, "lease_ms": 3_600_000})).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
        let scheduled = put(&api, "q", &id, json!({"delay_ms": 0}));
        let gone = async {
            tokio::time::sleep(Duration::from_micros(round * 100)).await;
            drop(waiter);
        };
        tokio::join!(scheduled, gone);
        tokio::time::sleep(Duration::from_millis(30)).await;
        let now = task(&api, "q", &id).await;
        // What went into the socket before the client hung up was delivered, as far as anybody can know.
        if now["state"] == "pending" {
            assert_eq!(now["attempt"], 0, "{now}");
        }
        api.send("DELETE", &format!("/v1/queues/q/tasks/{id}"), Value::Null).await;
    }
    api.stop().await;
}

async fn a_claimer_that_dies_loses_its_tasks_after_its_lease(api: Api) {
    put(&api, "q", "t", json!({"delay_ms": 0})).await;
    let first = claim(&api, "q", json!({"lease_ms": 300})).await.remove(0);
    let began = Instant::now();
    let second = claim(&api, "q", json!({"wait_ms": 5_000})).await.remove(0);
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
    assert_eq!((&second["id"], &second["attempt"]), (&json!("t"), &json!(2)));
    assert_eq!(settle(&api, "q", "ack", json!({"items": [held(&first)]})).await, ["lost"], "the receipt of the dead");
    assert_eq!(settle(&api, "q", "ack", json!({"items": [held(&second)]})).await, ["ok"]);
    api.stop().await;
}

#[tokio::test]
async fn a_stop_ends_waits_as_if_they_had_ended() {
    let mut api = Api::leasing().await;
    let mut waiter = api.begin("POST", "/v1/queues/q/claim", &[], &json!({"wait_ms": 30_000})).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    api.begin_stop();
    let answer = read_one(&mut waiter).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"tasks": []})));
    assert!(began.elapsed() < Duration::from_secs(1));
    api.ended().await;
}

#[tokio::test]
async fn a_restart_keeps_tasks_and_leases() {
    let api = Api::leasing().await;
    put(&api, "q", "far", json!({"due_at": "9999-12-31T23:59:59.999Z", "payload": [1]})).await;
    put(&api, "q", "held", json!({"delay_ms": 0})).await;
    let one = claim(&api, "q", json!({"lease_ms": 3_600_000})).await.remove(0);
    let far = task(&api, "q", "far").await;
    let api = api.leasing_again().await;
    assert_eq!(task(&api, "q", "far").await, far);
    assert_eq!(task(&api, "q", "held").await["state"], "leased");
    assert_eq!(settle(&api, "q", "ack", json!({"items": [held(&one)]})).await, ["ok"], "its receipt is still good");
    api.stop().await;
}

#[tokio::test]
async fn bounds_and_roles() {
    let token = |name: &str, role| Token { name: name.to_owned(), sha256: hash_token(name), role };
    let tokens = vec![token("reader", Role::Read), token("shop", Role::Shop), token("ops", Role::Ops)];
    let options = QueueOptions { max_queues: 2, ..QueueOptions::default() };
    let api = Api::leasing_as(options, tokens, Limits { max_long_polls: 1, ..Limits::default() }).await;
    let call = |who: &'static str, method: &'static str, path: &'static str, body: Value| {
        let api = &api;
        async move {
            let authorization = format!("Bearer {who}");
            let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
            let body = if body.is_null() { String::new() } else { body.to_string() };
            api.raw(method, path, &headers, body.as_bytes()).await
        }
    };
    let soon = json!({"delay_ms": 0});
    for (method, path, body) in [
        ("GET", "/v1/queues", Value::Null),
        ("GET", "/v1/queues/q", Value::Null),
        ("GET", "/v1/queues/q/tasks", Value::Null),
        ("GET", "/v1/queues/q/dead", Value::Null),
        ("PUT", "/v1/queues/q/tasks/t", soon.clone()),
        ("POST", "/v1/queues/q/claim", json!({})),
        ("GET", "/v1/locks/l", Value::Null),
        ("POST", "/v1/locks/l", json!({"ttl_ms": 1_000})),
    ] {
        let reply = call("reader", method, path, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "forbidden"), "{method} {path}");
    }
    assert_eq!(call("shop", "PUT", "/v1/queues/q/tasks/t", soon.clone()).await.status, 201);
    assert_eq!(call("shop", "DELETE", "/v1/queues/q/dead", Value::Null).await.code(), "forbidden");
    assert_eq!(call("ops", "DELETE", "/v1/queues/q/dead", Value::Null).await.status, 200);
    for path in ["/v1/queues/orders/tasks/t", "/v1/queues/tidegate.feed/tasks/t"] {
        let reply = call("ops", "PUT", path, json!({"nonsense": 1})).await;
        assert_eq!((reply.status, reply.code().as_str()), (403, "reserved-queue"));
    }
    for (method, path) in [
        ("DELETE", "/v1/queues/orders/tasks/t"),
        ("POST", "/v1/queues/orders/claim"),
        ("DELETE", "/v1/queues/orders/dead"),
    ] {
        assert_eq!(call("ops", method, path, Value::Null).await.code(), "reserved-queue", "{path}");
    }
    assert_eq!(call("shop", "GET", "/v1/queues/orders", Value::Null).await.status, 200, "it can be read");
    assert_eq!(call("reader", "GET", "/v1/queues/orders", Value::Null).await.code(), "forbidden");
    assert_eq!(call("shop", "PUT", "/v1/queues/r/tasks/t", soon.clone()).await.status, 201);
    let third = call("shop", "PUT", "/v1/queues/s/tasks/t", soon.clone()).await;
    assert_eq!((third.status, third.code().as_str()), (409, "too-many-queues"));
    let large =
        call("shop", "PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 0, "payload": "x".repeat(70_000)})).await;
    assert_eq!((large.status, large.code().as_str()), (413, "too-large"));
    let waiting = api
        .begin("POST", "/v1/queues/r2/claim", &[("authorization", "Bearer shop")], &json!({"wait_ms": 20_000}))
        .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let full = call("shop", "POST", "/v1/queues/r2/claim", json!({"wait_ms": 1_000})).await;
    assert_eq!((full.status, full.code().as_str()), (503, "overloaded"));
    assert_eq!(call("shop", "POST", "/v1/queues/r2/claim", json!({})).await.status, 200, "who does not wait is served");
    drop(waiting);
    api.stop().await;
}

#[tokio::test]
async fn without_a_store_it_is_said_what_to_start() {
    let api = Api::start().await;
    for (method, path, body) in [
        ("GET", "/v1/queues/q", Value::Null),
        ("PUT", "/v1/queues/q/tasks/t", json!({"delay_ms": 0})),
        ("POST", "/v1/queues/q/claim", json!({})),
        ("POST", "/v1/locks/l", json!({"ttl_ms": 1_000})),
    ] {
        let reply = api.send(method, path, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "store-unavailable"), "{path}");
        assert!(reply.json()["detail"].as_str().expect("a detail").contains("--store"));
        assert!(!reply.header("retry-after").is_empty());
    }
    api.stop().await;
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let _ = tidegate_server::install_metrics();
    let api = Api::leasing().await;
    put(&api, "counted", "t", json!({"delay_ms": 0})).await;
    let one = claim(&api, "counted", json!({})).await.remove(0);
    settle(&api, "counted", "ack", json!({"items": [held(&one)]})).await;
    settle(&api, "counted", "ack", json!({"items": [held(&one)]})).await;
    claim(&api, "never-was", json!({})).await;
    let page = api.get("/metrics").await;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    for name in ["scheduled", "claimed", "acked", "lost"] {
        let line = format!("tidegate_queue_{name}_total{{queue=\"counted\"}} 1");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert!(!text.contains("never-was"), "a queue that nobody has gets no metrics");
    api.stop().await;
}
