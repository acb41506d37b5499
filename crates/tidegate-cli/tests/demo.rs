//! `tidegate demo` with the real binary, small.
#![expect(clippy::unwrap_used, reason = "a test may panic, also in its helpers")]

use std::process::{Command, Output};

use serde_json::Value;

fn demo(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("demo").args(args).env_remove("TIDEGATE_URL").output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "only the JSON object is on stdout: {text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_small_sale_is_sound_and_its_counts_add_up() {
    let output =
        demo(&["--orders", "600", "--buyers", "150", "--stock", "20", "--hold-seconds", "1", "--seed", "7", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = json(&output);
    let n = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
    assert_eq!((n("oversold"), n("duplicates")), (0, 0));
    assert_eq!(n("placed") + n("refused"), 600);
    assert_eq!(n("placed"), n("paid") + n("expired") - n("revived") + n("cancelled"));
    assert!(n("refused") > 0 && n("expired") > 0 && n("cancelled") > 0 && n("revived") > 0, "{report}");
    for times in ["place_ms", "lateness_ms"] {
        let [p50, p99, max] = ["p50", "p99", "max"].map(|p| report[times][p].as_f64().unwrap());
        assert!(0.0 <= p50 && p50 <= p99 && p99 <= max, "{report}");
    }
    assert!(report["orders_per_second"].as_f64().unwrap() > 0.0);
    let invariants = report["invariants"].as_object().unwrap();
    assert!(invariants.values().all(|held| held == true), "{report}");
    for name in ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10"] {
        assert!(invariants.contains_key(name), "{name} in {report}");
    }
}

#[test]
fn nothing_to_sell_is_a_sale_too() {
    let output = demo(&["--orders", "50", "--stock", "0", "--hold-seconds", "1", "--json"]);
    let report = json(&output);
    assert_eq!((report["placed"].as_u64(), report["refused"].as_u64()), (Some(0), Some(50)), "{report}");
    assert!(output.status.success());
}

#[test]
fn a_person_gets_a_table_and_the_address_of_the_dashboard() {
    let output = demo(&["--orders", "40", "--skus", "2", "--hold-seconds", "1"]);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    assert!(out.contains("placed") && out.contains("every invariant that was checked holds"), "{out}");
    assert!(err.contains("dashboard: http://127.0.0.1:"), "{err}");
}

#[test]
fn a_ledger_of_its_own_is_kept_and_a_second_demo_on_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("demo.db").display());
    let args = ["--orders", "20", "--hold-seconds", "1", "--json", "--ledger", &url];
    assert!(demo(&args).status.success());
    assert!(folder.path().join("demo.db").exists());
    let again = demo(&[&args[..], &["--stock", "7"]].concat());
    assert_eq!(again.status.code(), Some(2), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn wrong_flags_are_usage() {
    for args in [
        &["--ledger", "oracle://localhost/x"][..],
        &["--ledger", "sqlite:"],
        &["--store", "redis://localhost"],
        &["--pay-ratio", "1.5"],
        &["--hold-seconds", "0"],
        &["--orders", "0"],
    ] {
        let output = demo(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
