//! The tools around a server.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Serve, folder, ledger, run, run_with, write};

const COMMANDS: [&str; 26] = [
    "serve",
    "worker",
    "demo",
    "replay",
    "import-skus",
    "import-follows",
    "import-posts",
    "export",
    "reconcile",
    "clock show",
    "queue",
    "queue stats",
    "queue list",
    "queue dead",
    "queue requeue",
    "queue cancel",
    "queue purge",
    "watch",
    "big-keys",
    "hot-keys",
    "doctor",
    "bench",
    "config check",
    "openapi",
    "completions",
    "token",
];

#[test]
fn every_help_shows_an_example() {
    for name in COMMANDS {
        let args: Vec<&str> = name.split(' ').chain(["--help"]).collect();
        let help = run(&args).expect(0, &[]).out;
        assert!(help.contains(&format!("Example:\n  tidegate {name}")), "{name}: {help}");
    }
}

#[test]
fn usage_is_2_and_an_absent_server_is_3() {
    run(&["no-such-verb"]).expect(2, &["no-such-verb"]);
    run(&["export", "nothing"]).expect(2, &["nothing"]);
    run(&["worker"]).expect(2, &["tidegate serve", "MySQL, MariaDB or PostgreSQL"]);
    run(&["worker", "--no-workers"]).expect(2, &["leave the flag out"]);
    run(&["worker", "--ledger", "oracle://u:secret@h/d"]).expect(2, &["no ledger", "u:***@h"]);
    run(&["export", "skus", "--to", "localhost"]).expect(2, &["--to"]);
    run(&["reconcile", "--ledger", "sqlite:/nonexistent/l.db"]).expect(2, &["/nonexistent/l.db"]);
    run(&["import-skus", "/nonexistent.csv"]).expect(2, &["/nonexistent.csv"]);
    for args in [&["worker"][..], &["serve", "--listen", "127.0.0.1:0"], &["reconcile"], &["export", "skus"]] {
        for url in ["mysql://u:secret@127.0.0.1:9/d", "postgres://u:secret@127.0.0.1:9/d"] {
            let failed = run(&[args, &["--ledger", url]].concat()).expect(3, &["u:***@127.0.0.1:9/d", "--ledger"]);
            assert!(!failed.err.contains("secret") && failed.out.is_empty(), "{args:?}: {failed:?}");
        }
    }
    for args in [&["export", "skus"][..], &["reconcile"], &["clock", "show"]] {
        let args = [args, &["--to", "http://127.0.0.1:9"]].concat();
        let failed = run(&args).expect(3, &["http://127.0.0.1:9", "cannot be reached", "--to"]);
        assert_eq!(failed.out, "", "{args:?}");
    }
}

/// Who has set a variable long ago did not give the flag that the refusal speaks of.
#[test]
fn a_flag_against_a_variable_is_told_with_the_variable() {
    let to = [("TIDEGATE_URL", "http://127.0.0.1:9")];
    let dir = folder();
    let posts = write(dir.path(), "posts.ndjson", "{}\n").display().to_string();
    for args in [&["reconcile"][..], &["export", "skus"], &["import-posts", &posts]] {
        let args = [args, &["--ledger", "sqlite:/nonexistent/l.db"]].concat();
        run_with(&args, &to).expect(2, &["--ledger", "TIDEGATE_URL", "unset"]);
    }
    let token = [("TIDEGATE_TOKEN", "word")];
    run_with(&["clock", "show", "--token-file", "/nonexistent"], &token).expect(2, &["TIDEGATE_TOKEN", "unset"]);
}

#[test]
fn the_tools_leave_a_file_that_is_no_ledger_alone() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("empty.db"), "").expect("the folder can be written");
    std::fs::write(path("text.db"), "no database at all, but a text of more than a hundred bytes. ".repeat(40))
        .expect("the folder can be written");
    // A database of another program: a header with its number, and one empty page.
    let mut foreign = vec![0_u8; 4_096];
    foreign[..16].copy_from_slice(b"SQLite format 3\0");
    foreign[16..24].copy_from_slice(&[0x10, 0, 1, 1, 0, 64, 32, 32]);
    (foreign[27], foreign[31], foreign[47], foreign[59]) = (1, 1, 4, 1);
    foreign[68..72].copy_from_slice(b"GPKG");
    foreign[100..108].copy_from_slice(&[0x0d, 0, 0, 0, 0, 0x10, 0, 0]);
    std::fs::write(path("foreign.db"), &foreign).expect("the folder can be written");
    // The same without a number and without tables.
    foreign[68..72].fill(0);
    std::fs::write(path("bare.db"), &foreign).expect("the folder can be written");
    let files = || {
        let files = std::fs::read_dir(dir.path()).expect("the folder can be read").map(|file| {
            let path = file.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a file");
            (path, bytes)
        });
        files.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = files();
    for tool in [&["reconcile"][..], &["export", "orders"], &["clock", "show"]] {
        let on = |name: &str| run(&[tool, &["--ledger", &format!("sqlite:{}", path(name).display())]].concat());
        on("empty.db").expect(2, &["no Tidegate ledger"]);
        on("bare.db").expect(2, &["no Tidegate ledger"]);
        on("foreign.db").expect(2, &["not a Tidegate ledger"]);
        on("text.db").expect(1, &["text.db"]);
    }
    assert!(files() == before, "something was changed: {:?}", files().keys());
}

#[test]
fn completions_and_description() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]).expect(0, &[]).out;
        assert!(script.contains("import-skus") && script.contains("reconcile"), "{shell}");
    }
    let api = run(&["openapi"]).expect(0, &[]).json();
    assert!(api["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{}", api["openapi"]);
    assert!(api["paths"]["/v1/orders"]["post"].is_object());
}

#[test]
fn a_token_is_shown_with_the_lines_that_allow_it() {
    let shown = run(&["token", "--name", "a \"b\"", "--role", "ops"]).expect(0, &[]);
    let (token, lines) = shown.out.split_once('\n').expect("two parts");
    assert!(token.starts_with("tg_") && token.len() == 67, "{token}");
    let lines: toml::Table = lines.parse().expect("TOML");
    assert_eq!(lines["tokens"][0]["name"].as_str(), Some("a \"b\""));
    run(&["token", "--name", "a:b"]).expect(2, &["--name"]);
    assert_ne!(run(&["token", "--json"]).json()["token"], run(&["token", "--json"]).json()["token"]);
}

const CATALOGUE: &str = "sku,title,price,currency,on_hand,max_per_buyer,attributes\n\
    mug,\"Mug, blue\",12.99,EUR,5,2,\"{\"\"colour\"\":\"\"blue\"\"}\"\n\
    É/a b,,,,7,,\n\
    pot,Pot,1500,JPY,0,,\n";

#[test]
fn skus_go_in_and_out_and_in_again() {
    let dir = folder();
    let serve = Serve::start(dir.path(), &[]);
    let catalogue = write(dir.path(), "c.csv", CATALOGUE);
    let import =
        |more: &[&str]| run(&[&["import-skus", catalogue.to_str().expect("UTF-8"), "--json"][..], more].concat());
    let report = import(&["--to", &serve.url]).expect(0, &[]).json();
    assert_eq!(report, json!({ "read": 3, "created": 3, "updated": 0, "refused": 0, "refusals": [] }));
    let again = import(&["--to", &serve.url]).expect(0, &[]).json();
    assert_eq!((&again["updated"], &again["refused"]), (&json!(3), &json!(0)));

    for format in ["csv", "ndjson"] {
        let whole = dir.path().join(format!("skus.{format}"));
        let whole = whole.to_str().expect("UTF-8");
        run(&["export", "skus", "--format", format, "--output", whole, "--to", &serve.url]).expect(0, &[]);
        let copy = folder();
        let copy = ledger(copy.path());
        let report = run(&["import-skus", whole, "--ledger", &copy, "--json"]).expect(0, &[]).json();
        assert_eq!(report["created"], 3, "{report}");
        let first = std::fs::read_to_string(whole).expect("the export");
        let second = run(&["export", "skus", "--format", format, "--ledger", &copy]).expect(0, &[]).out;
        let sorted = |text: &str| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&first), sorted(&second));
    }
}

#[test]
fn refused_rows_are_named_and_the_others_go_in() {
    let dir = folder();
    let to = ledger(dir.path());
    let file = write(dir.path(), "c.csv", "sku,on_hand,hold_seconds\na,5,\nb,five,\n\" c\",1,\nd,1,0\ne,2,\n");
    let file = file.to_str().expect("UTF-8");
    let report = run(&["import-skus", file, "--ledger", &to, "--json"])
        .expect(1, &["c.csv:3", "c.csv:4", "c.csv:5", "on_hand"])
        .json();
    assert_eq!((&report["created"], &report["refused"]), (&json!(2), &json!(3)), "{report}");
    let hold = report["refusals"][2]["detail"].as_str().expect("a text");
    assert_eq!((hold.matches("hold_seconds").count(), hold.contains("request")), (1, false), "{hold}");
    let lines: Vec<&Value> =
        report["refusals"].as_array().expect("a list").iter().map(|refusal| &refusal["line"]).collect();
    assert_eq!(lines, [3, 4, 5]);
    let other = write(dir.path(), "d.csv", "sku,on_hand\na,6\n");
    run(&["import-skus", other.to_str().expect("UTF-8"), "--ledger", &to]).expect(1, &["d.csv:2", "stock-exists"]);
}

#[test]
fn orders_and_the_stock_ledger_are_exported_and_reconciled() {
    let dir = folder();
    let serve = Serve::start(dir.path(), &[]);
    serve.call(
        "PUT",
        "/v1/skus/mug",
        None,
        Some(&json!({ "on_hand": 2000, "price": { "amount": 5, "currency": "EUR" } })),
    );
    for batch in 0..3 {
        let orders: Vec<Value> = (0..400)
            .map(|i| json!({ "order_id": format!("o-{batch}-{i}"), "buyer_id": "b", "lines": [{ "sku": "mug", "quantity": 1 }] }))
            .collect();
        assert_eq!(serve.call("POST", "/v1/orders:batch", None, Some(&json!({ "orders": orders }))).0, 200);
    }
    let export = |args: &[&str], source: &[&str]| run(&[&["export"][..], args, source].concat()).expect(0, &[]).out;
    let to = ["--to", &serve.url];
    let orders = export(&["orders", "--format", "ndjson"], &to);
    let ids: std::collections::BTreeSet<String> = orders
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!((orders.lines().count(), ids.len()), (1_200, 1_200), "each order once");
    assert_eq!(export(&["orders"], &to).lines().count(), 1_201);
    let stock = export(&["ledger"], &to);
    assert_eq!(stock.lines().count(), 1_202);
    assert!(stock.starts_with("sku,at,kind,order_id,"), "{}", &stock[..80]);
    let report = run(&["reconcile", "--json", "--to", &serve.url]).expect(0, &[]).json();
    assert_eq!(report["findings"], json!([]), "{report}");
    let clock = run(&["clock", "show", "--json", "--to", &serve.url]).expect(0, &[]).json();
    assert_eq!(clock["stepped"], false, "{clock}");
    run(&["clock", "accept", "--to", &serve.url]).expect(0, &[]);

    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    let source = ["--ledger", &ledger(dir.path())];
    assert_eq!(export(&["orders", "--format", "ndjson"], &source), orders, "the stopped ledger says the same");
    let report = run(&["reconcile", "--json", "--ledger", source[1]]).expect(0, &[]).json();
    assert_eq!(report["findings"], json!([]), "{report}");
}

#[test]
fn the_tools_open_a_stopped_ledger_whichever_its_clock() {
    for more in [&["--manual-clock"][..], &[]] {
        let folder = folder();
        let serve = Serve::start(folder.path(), more);
        assert_eq!(serve.call("PUT", "/v1/skus/x", None, Some(&serde_json::json!({"on_hand": 1}))).0, 201);
        assert_eq!(serve.stop(rustix::process::Signal::TERM).0, Some(0));
        let ledger = crate::support::ledger(folder.path());
        run(&["reconcile", "--ledger", &ledger]).expect(0, &[]);
        let status = run(&["clock", "show", "--json", "--ledger", &ledger]).expect(0, &[]).json();
        assert_eq!(status["manual"], !more.is_empty(), "{status}");
    }
}

/// A community goes in, twice, and is there; each row that cannot be used is named.
#[test]
fn follows_and_posts_go_in() {
    let dir = folder();
    let serve = Serve::start(dir.path(), &[]);
    let import = |verb: &str, file: &str, text: &str| {
        let file = write(dir.path(), file, text);
        run(&[verb, file.to_str().expect("UTF-8"), "--json", "--to", &serve.url])
    };
    let posts = "author,post_id,body,published_at,repost_of,visibility\n\
        ann,p1,\"Tea, hot\",,,\nbob,p2,,,p1,\nann,p3,x,2001-01-01T00:00:00Z,,private\n";
    let report = import("import-posts", "p.csv", posts).expect(0, &[]).json();
    assert_eq!(report, json!({ "read": 3, "created": 3, "updated": 0, "refused": 0, "refusals": [] }));
    let again = import("import-posts", "p.csv", posts).expect(0, &[]).json();
    assert_eq!((&again["created"], &again["updated"]), (&json!(0), &json!(3)));
    let lines = "{\"author\":\"ann\",\"post_id\":\"p4\",\"body\":\"y\",\"edited_at\":null}\n{\"author\":\"ann\",\"post_id\":\"p1\",\"body\":\"z\"}\n{\"post_id\":\"p5\"}\n";
    let report = import("import-posts", "p.ndjson", lines)
        .expect(1, &["p.ndjson:2", "idempotency-mismatch", "p.ndjson:3"])
        .json();
    assert_eq!((&report["created"], &report["refused"]), (&json!(1), &json!(2)));
    assert_eq!(report["refusals"][0]["post_id"], "p1");

    let follows = "user,other,since\nme,ann,2020-01-01T00:00:00Z\nme,bob,\nme,me,\nme,,\n";
    let report =
        import("import-follows", "f.csv", follows).expect(1, &["f.csv:4", "f.csv:5", "\"other\" is empty"]).json();
    assert_eq!((&report["created"], &report["refused"]), (&json!(2), &json!(2)));
    import("import-follows", "g.csv", "user,follows\n").expect(2, &["unknown column"]);
    // What was there already is not said to be new.
    let file = write(dir.path(), "again.csv", "user,other\nme,ann\n");
    let again = run(&["import-follows", file.to_str().expect("UTF-8"), "--to", &serve.url]).expect(0, &[]);
    assert!(again.out.contains("1 row read: 1 follow now there, 0 refused"), "{again:?}");
    let (_, page) = serve.call("GET", "/v1/users/me/feed", None, None);
    let ids: Vec<&str> =
        page["items"].as_array().expect("items").iter().filter_map(|item| item["post"]["post_id"].as_str()).collect();
    assert_eq!(ids, ["p4", "p1"], "{page}");
    assert_eq!(page["items"][1]["reason_count"], 2);
}
