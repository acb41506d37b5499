//! Alerts on the wire: a mail server and a web server of the tests take them, or do not.
#![allow(clippy::unwrap_used, reason = "tests")]

mod hook;
mod mail;

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate::core::Millis;
use tidegate::watch::alerts::{Alert, Undelivered};
use tidegate::watch::{Change, Finding, Rule, Severity};
use tidegate_server::alerts::SinkOptions;

/// No sink takes longer, whatever is done to it.
const BOUND: Duration = Duration::from_secs(17);

fn sink() -> SinkOptions {
    SinkOptions { name: "s".to_owned(), least: Severity::Info, authority: None }
}

/// A finding whose texts try everything.
fn finding() -> Finding {
    Finding {
        id: "big-value-passing-1796050000000-0a1b2c3d".to_owned(),
        rule: Rule::BigValuePassing,
        severity: Severity::Critical,
        address: "10.0.0.7:6379\r\nBcc: all@example.com".to_owned(),
        opened_at: Millis(1_796_050_000_000),
        closed_at: None,
        cause: "a \"client\" named \\ <!channel>\r\n.\r\nMAIL FROM:<x>\r\n\u{0}{{cause}} sends 12 MB é".to_owned(),
        evidence: BTreeMap::from([("bytes".to_owned(), 12.into()), ("client".to_owned(), serde_json::Value::Null)]),
        next_command: "redis-cli CLIENT LIST".to_owned(),
        risk: "none".to_owned(),
    }
}

fn opened() -> Alert {
    Alert::of(&Change::Opened(finding()))
}

fn closed() -> Alert {
    Alert::of(&Change::Closed(Finding { closed_at: Some(Millis(1_796_050_312_000)), ..finding() }))
}

#[track_caller]
fn refused(result: Result<(), Undelivered>) -> String {
    match result {
        Err(Undelivered::Never { why }) => why.into_owned(),
        other => panic!("it is not refused for good: {other:?}"),
    }
}

#[track_caller]
fn put_off(result: Result<(), Undelivered>) -> (String, Option<Duration>) {
    match result {
        Err(Undelivered::Later { why, after }) => (why.into_owned(), after),
        other => panic!("it is not put off: {other:?}"),
    }
}
