//! `tidegate reconcile`: compares gate and deadline index with the ledger, repairs them, checks what rows alone show.

use serde_json::{Value, json};

use super::source::SourceArgs;
use crate::failure::{Failure, Result};
use crate::{output, runtime};

/// Flags of `reconcile`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it. Exit code 1 when an invariant of the ledger is broken or the deadline index could not be compared, 3 when its server
/// cannot be reached.
pub fn run(args: Args) -> Result {
    runtime::run(async {
        let source = args.source.open(false).await?;
        let report: Value = source.client.post("/v1/admin/reconcile", &json!({})).await?;
        source.close().await?;
        if args.json {
            output::json(&report)?;
        } else {
            output::raw(readable(&report))?;
        }
        ending(&report)
    })
}

/// How the command ends.
fn ending(report: &Value) -> Result {
    let Some(missed) = not_compared(report) else {
        return if is_broken(report) { Err(Failure::Found) } else { Ok(()) };
    };
    let why = missed.get("detail").and_then(Value::as_str).unwrap_or("?");
    if !is_broken(report) && missed.get("unreachable") == Some(&Value::Bool(true)) {
        return Err(Failure::Unreachable(format!(
            "the deadline index was not compared: {why}; run it again once it answers"
        )));
    }
    Err(Failure::Work(format!("the deadline index was not compared, or not all of it: {why}")))
}

fn not_compared(report: &Value) -> Option<&Value> {
    report.get("not_compared").filter(|missed| !missed.is_null())
}

/// Whether the ledger contradicts itself. A drifted copy (I9) has been repaired and breaks nothing.
fn is_broken(report: &Value) -> bool {
    let invariants = report.get("invariants").and_then(Value::as_object);
    match invariants {
        Some(invariants) => invariants.values().any(|held| held == &Value::Bool(false)),
        None => findings(report)
            .any(|finding| finding.get("invariant").and_then(Value::as_str).is_some_and(|name| name != "I9")),
    }
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report.get("findings").and_then(Value::as_array).into_iter().flatten()
}

fn readable(report: &Value) -> String {
    let count = |name: &str| report.get(name).and_then(Value::as_u64).unwrap_or(0);
    let mut text = format!("checked {} rows and copies, repaired {}\n", count("checked"), count("repaired"));
    if let Some(invariants) = report.get("invariants").and_then(Value::as_object) {
        let (held, broken): (Vec<_>, Vec<_>) = invariants.iter().partition(|(_, held)| **held == Value::Bool(true));
        let names = |list: Vec<(&String, &Value)>| output::invariants(list.into_iter().map(|(name, _)| name.as_str()));
        if !held.is_empty() {
            text.push_str(&format!("invariants that hold: {}\n", names(held)));
        }
        if !broken.is_empty() {
            text.push_str(&format!("INVARIANTS THAT ARE BROKEN: {}\n", names(broken)));
        }
    }
    let i9 = match not_compared(report) {
        None => "I9, which is the comparison just made",
        Some(_) => "I9, because the deadline index could not be compared",
    };
    text.push_str(&format!(
        "not in this list: {i9}; I7 and I10, which need to know what callers were told (`demo` checks both, `replay` I7)\n"
    ));
    for finding in findings(report) {
        let part = |name: &str| finding.get(name).and_then(Value::as_str).unwrap_or("?");
        text.push_str(&format!("  {} {}\n", part("invariant"), part("detail")));
    }
    if is_broken(report) {
        text.push_str("The ledger's rows contradict each other: keep a copy of it, stop selling the SKUs named above, and look at their orders.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_invariant_is_found_and_a_repaired_copy_is_not() {
        for (report, broken) in [
            (json!({"checked": 1, "repaired": 0, "findings": []}), false),
            (json!({"findings": [{"invariant": "I9", "detail": "x"}]}), false),
            (json!({"findings": [{"invariant": "I2", "detail": "x"}]}), true),
            (json!({"invariants": {"I1": true}, "findings": [{"invariant": "I9", "detail": "x"}]}), false),
            (json!({"invariants": {"I1": true, "I2": false}, "findings": []}), true),
        ] {
            assert_eq!(is_broken(&report), broken, "{report}");
            assert_eq!(readable(&report).contains("contradict"), broken, "{report}");
            assert!(readable(&report).contains("I7 and I10, which need"), "{report}");
            assert!(readable(&report).contains("I9, which is the comparison just made"), "{report}");
        }
    }

    #[test]
    fn what_was_not_compared_is_said_and_is_no_success() {
        for (unreachable, broken, code) in [(true, false, 3), (false, false, 1), (true, true, 1)] {
            let report =
                json!({"invariants": {"I1": !broken}, "not_compared": {"unreachable": unreachable, "detail": "why"}});
            let ended = ending(&report).expect_err("it did not compare");
            assert_eq!(matches!(ended, Failure::Unreachable(_)), code == 3, "{report}");
            assert!(ended.to_string().contains("why"), "{ended}");
            assert!(!readable(&report).contains("just made"), "{report}");
        }
        assert!(ending(&json!({"invariants": {"I1": true}})).is_ok());
    }
}
