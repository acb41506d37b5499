//! The layered configuration.

use crate::support::{Run, command, folder, run, write};

fn check(file: &str, env: &[(&str, &str)], flags: &[&str]) -> Run {
    let dir = folder();
    let file = write(dir.path(), "t.toml", file);
    let mut command = command(&["config", "check", "--json", "--config"]);
    command.arg(file).args(flags).envs(env.iter().copied());
    command.output().expect("the binary runs").into()
}

#[test]
fn the_later_layer_wins_and_each_value_names_its_origin() {
    let file = "hold_seconds = 60\ngrace_seconds = 1\nlisten = \"127.0.0.1:1\"\n[limits]\nheader_timeout = \"2s\"\n";
    let env = [("TIDEGATE_GRACE_SECONDS", "2"), ("TIDEGATE_LISTEN", "127.0.0.1:2")];
    let shown = check(file, &env, &["--listen", "127.0.0.1:3"]).expect(0, &[]).json();
    for (key, value, from) in [
        ("hold_seconds", "60", "t.toml:1"),
        ("grace_seconds", "2", "TIDEGATE_GRACE_SECONDS"),
        ("listen", "127.0.0.1:3", "--listen"),
        ("limits.header_timeout", "2s", "t.toml:5"),
        ("late_payment", "revive", "default"),
    ] {
        assert_eq!(shown[key]["value"], value, "{key}");
        assert!(shown[key]["from"].as_str().is_some_and(|origin| origin.ends_with(from)), "{key}: {}", shown[key]);
    }
}

#[test]
fn faults_name_the_place_and_what_to_do_and_exit_2() {
    check("\nhold_second = 5", &[], &[]).expect(2, &["t.toml:2", "hold_second", "did you mean \"hold_seconds\"?"]);
    check("", &[("TIDEGATE_LISTN", "x")], &[]).expect(2, &["TIDEGATE_LISTN", "did you mean \"TIDEGATE_LISTEN\"?"]);
    check("", &[], &["--hold-seconds", "-1"]).expect(2, &["--hold-seconds"]);
    check("", &[], &["--hold-seconds", "soon"]).expect(2, &["--hold-seconds", "whole number"]);
    check("", &[], &["--store", "redis://:secret@h"]).expect(2, &["--store", "one process owns", ":***@h"]);
    check("", &[], &["--store", "memcached://h"]).expect(2, &["--store", "no store", "redis://host"]);
    check("", &[], &["--ledger", "oracle://u:secret@h/d"])
        .expect(2, &["--ledger", "no ledger", "sqlite:PATH", "postgres://", "u:***@h"]);
    check("[redis]\nname = \"a b\"", &[], &[]).expect(2, &["t.toml:2", "redis.name", "A-Z a-z 0-9"]);
    check("lease = \"10ms\"", &[], &[]).expect(2, &["t.toml:1", "lease", "\"1s\" to \"1m\""]);
    check("[sql]\nwriters = 65", &[], &[]).expect(2, &["t.toml:2", "sql.writers", "1 to 64"]);
    let pages = |line: &str| check(&format!("[cache.products]\n{line}"), &[], &[]);
    pages("stale_for = \"0s\"").expect(2, &["t.toml:2", "cache.products.stale_for", "\"off\" or a length of time"]);
    pages("fresh_for = \"off\"").expect(2, &["t.toml:2", "cache.products.fresh_for", "length of time"]);
    pages("jitter = 0.95").expect(2, &["t.toml:2", "cache.products.jitter", "0 to 0.9"]);
    pages("jitter = \"0.1\"").expect(2, &["cache.products.jitter", "without quotes"]);
    pages("jitter = nan").expect(2, &["cache.products.jitter"]);
    pages("early_refresh = 2\nlocal_for = \"off\"").expect(0, &[]);
    check("load_rate = 1", &[], &[]).expect(2, &["did you mean \"cache.load_rate\""]);
    check("", &[("TIDEGATE_CACHE_PRODUCTS_JITTER", "0.95")], &[]).expect(2, &["TIDEGATE_CACHE_PRODUCTS_JITTER"]);
    check("", &[], &["--listen", "0.0.0.0:8080"]).expect(2, &["--listen", "[[tokens]]", "tidegate token"]);
    run(&["config", "check", "--config", "/nonexistent/t.toml"]).expect(2, &["/nonexistent/t.toml"]);
    // Every fault at once.
    check("a = 1\nb = 2", &[], &[]).expect(2, &["t.toml:1", "t.toml:2"]);
}

#[test]
fn no_secret_is_shown() {
    let dir = folder();
    let url = write(dir.path(), "url", "mysql://u:hunter2@h/d\n");
    let hash = "ab".repeat(32);
    let file = format!("[[tokens]]\nname = \"web\"\nrole = \"shop\"\nsha256 = \"{hash}\"\n");
    let shown = check(&file, &[], &[]).expect(0, &[]);
    assert!(!shown.out.contains(&hash) && shown.out.contains("tokens.web"), "{shown:?}");
    let from_file = [("TIDEGATE_LEDGER_FILE", url.to_str().expect("UTF-8")), ("TIDEGATE_STORE", "redis://:hunter2@h")];
    let shown = check("", &from_file, &[]).expect(0, &[]);
    assert!(!shown.out.contains("hunter2") && shown.out.contains("mysql://u:***@h/d"), "{shown:?}");
    let refused = check("", &[("TIDEGATE_LEDGER", "oracle://u:hunter2@h/d")], &[]).expect(2, &["TIDEGATE_LEDGER"]);
    assert!(!refused.err.contains("hunter2"), "{refused:?}");
}

#[test]
fn the_example_can_be_used() {
    let shown = check(include_str!("../../../../tidegate.example.toml"), &[], &[]).expect(0, &[]).json();
    assert_eq!(shown["ledger"]["value"], "sqlite:tidegate-data/ledger.db");
}
