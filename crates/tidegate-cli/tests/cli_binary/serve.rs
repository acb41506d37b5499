//! `serve`: start, stop, who may start, who may call.

use std::fs::OpenOptions;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::support::{Serve, command, folder, ledger, run, write};

#[test]
fn it_prints_one_line_and_stops_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = folder();
        let serve = Serve::start(dir.path(), &[]);
        assert!(serve.url.starts_with("http://127.0.0.1:"), "{}", serve.url);
        assert_eq!(serve.call("GET", "/healthz", None, None).0, 200);
        let (code, took, rest) = serve.stop(signal);
        let log = std::fs::read_to_string(dir.path().join("serve.log")).expect("a log");
        assert_eq!((code, rest.as_str()), (Some(0), ""), "{log}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = || OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
    for closed_pipe in [false, true] {
        let dir = folder();
        let stderr = if closed_pipe { Stdio::piped() } else { full().into() };
        let mut serve = Serve::start_with_stderr(dir.path(), &[], stderr);
        // From here on nobody reads the pipe.
        drop(serve.child.stderr.take());
        assert_eq!(serve.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 3 }))).0, 201);
        assert_eq!(serve.stop(Signal::TERM).0, Some(0), "closed_pipe: {closed_pipe}");
    }
    for args in [&["no-such-verb"][..], &["export", "skus", "--to", "localhost"]] {
        let status = command(args).stderr(full()).status().expect("the binary runs");
        assert_eq!(status.code(), Some(2), "{args:?}");
    }
    let status = command(&["openapi"]).stdout(full()).stderr(full()).status().expect("the binary runs");
    assert_eq!(status.code(), Some(1), "a result that cannot be written is a failure");
}

#[test]
fn what_was_answered_is_there_after_a_restart() {
    let dir = folder();
    let serve = Serve::start(dir.path(), &[]);
    assert_eq!(serve.call("PUT", "/v1/skus/mug", None, Some(&json!({ "on_hand": 3 }))).0, 201);
    assert_eq!(serve.stop(Signal::TERM).0, Some(0));
    let serve = Serve::start(dir.path(), &[]);
    let (status, sku) = serve.call("GET", "/v1/skus/mug", None, None);
    assert_eq!((status, &sku["available"]), (200, &json!(3)));
}

#[test]
fn a_second_server_is_refused() {
    let dir = folder();
    let serve = Serve::start(dir.path(), &[]);
    let ledger = ledger(dir.path());
    run(&["serve", "--listen", "127.0.0.1:0", "--ledger", &ledger])
        .expect(2, &[&serve.child.id().to_string(), "ledger.db"]);
    run(&["export", "skus", "--ledger", &ledger]).expect(2, &[&serve.child.id().to_string()]);
    let (other, address) = (folder(), serve.url.trim_start_matches("http://").to_owned());
    let other = crate::support::ledger(other.path());
    run(&["serve", "--listen", &address, "--ledger", &other]).expect(2, &[&address, "--listen"]);
}

#[test]
fn a_manual_clock_stays_on_this_machine() {
    let hash = "0".repeat(64);
    let mut command = command(&["serve", "--listen", "0.0.0.0:0", "--manual-clock"]);
    let refused = command.env("TIDEGATE_TOKENS", format!("a:ops:{hash}")).output().expect("the binary runs");
    crate::support::Run::from(refused).expect(2, &["--manual-clock", "127.0.0.1"]);
}

#[test]
fn a_broken_log_filter_is_refused() {
    let dir = folder();
    let ledger = ledger(dir.path());
    for filter in ["info,=,", "zzz==", "!!!"] {
        let refused =
            [&["serve", "--listen", "127.0.0.1:0", "--ledger", &ledger][..], &["config", "check"]].map(|args| {
                let refused = command(args).env("TIDEGATE_LOG", filter).output().expect("the binary runs");
                crate::support::Run::from(refused).expect(2, &["TIDEGATE_LOG", filter, "info,tidegate=debug"]).err
            });
        assert_eq!(refused[0], refused[1], "both say the same");
    }
}

#[test]
fn tokens_open_what_their_role_may() {
    let dir = folder();
    let token =
        |name: &str, role: &str| run(&["token", "--name", name, "--role", role, "--json"]).expect(0, &[]).json();
    let (read, shop) = (token("r", "read"), token("s", "shop"));
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    let lines = [&read, &shop]
        .map(|t| format!("[[tokens]]\nname = {}\nrole = {}\nsha256 = {}\n", t["name"], t["role"], t["sha256"]));
    let file = write(dir.path(), "t.toml", &lines.concat());
    let serve = Serve::start(dir.path(), &["--config", file.to_str().expect("UTF-8")]);
    let (read, shop) = (text(&read["token"]), text(&shop["token"]));
    assert_eq!(serve.call("GET", "/healthz", None, None).0, 200);
    for (token, method, path, status) in [
        (None, "GET", "/v1/orders", 401),
        (Some("tg_wrong"), "GET", "/v1/orders", 401),
        (Some(read.as_str()), "GET", "/v1/orders", 200),
        (Some(read.as_str()), "POST", "/v1/orders/x/cancel", 403),
        (Some(shop.as_str()), "POST", "/v1/orders/x/cancel", 202),
        (Some(shop.as_str()), "POST", "/v1/admin/reconcile", 403),
    ] {
        assert_eq!(serve.call(method, path, token, None).0, status, "{method} {path} {token:?}");
    }
    run(&["export", "skus", "--to", &serve.url]).expect(2, &["unauthenticated", "wants a token; give one"]);
    run(&["export", "skus", "--to", &serve.url, "--token", "tg_wrong"])
        .expect(2, &["configuration; give another token"]);
    run(&["reconcile", "--to", &serve.url, "--token", &shop]).expect(2, &["forbidden", "role ops; give another token"]);
    run(&["export", "skus", "--to", &serve.url, "--token", &read]).expect(0, &[]);
}
