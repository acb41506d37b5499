//! What is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::Rule;
use crate::Millis;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// To be looked at today.
    Warning,
    /// To be looked at now.
    Critical,
}

impl Severity {
    /// Its name in answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// What is wrong with a server, from its opening to its closing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The same in every message of it.
    pub id: String,
    /// Which rule found it.
    pub rule: Rule,
    /// How bad it was when it was opened.
    pub severity: Severity,
    /// The server, `host:port`.
    pub address: String,
    /// When the samples said so.
    pub opened_at: Millis,
    /// When it was over; `None` while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<Millis>,
    /// What is wrong and what follows from it, a sentence or two.
    pub cause: String,
    /// The numbers it rests on, as they were at the opening. null: unknown or not permitted.
    pub evidence: BTreeMap<String, Value>,
    /// What to type next.
    pub next_command: String,
    /// What that may do to a server in use.
    pub risk: String,
}

impl Finding {
    /// The numbers it rests on, for people.
    #[must_use]
    pub fn evidence_words(&self) -> String {
        evidence_words(&self.evidence)
    }
}

/// Evidence on one line: `keys 5, policy noeviction, rss_bytes unknown`.
#[must_use]
pub fn evidence_words(evidence: &BTreeMap<String, Value>) -> String {
    let value = |value: &Value| match value {
        Value::Null => "unknown".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    evidence.iter().map(|(name, of)| format!("{name} {}", value(of))).collect::<Vec<_>>().join(", ")
}

/// A message: each finding makes one at its opening and one at its closing.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Something is wrong.
    Opened(Finding),
    /// It is over.
    Closed(Finding),
}

impl Change {
    /// The finding as it is after the change.
    #[must_use]
    pub fn finding(&self) -> &Finding {
        match self {
            Change::Opened(finding) | Change::Closed(finding) => finding,
        }
    }
}

/// What a rule says of a sample that it finds bad.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// How bad it is.
    pub severity: Severity,
    /// As [`Finding::cause`].
    pub cause: String,
    /// As [`Finding::evidence`].
    pub evidence: BTreeMap<String, Value>,
    /// As [`Finding::next_command`].
    pub next_command: String,
    /// As [`Finding::risk`].
    pub risk: String,
}

impl Told {
    /// What is wrong, without evidence yet.
    pub(crate) fn new(severity: Severity, cause: impl Into<String>) -> Self {
        Self {
            severity,
            cause: cause.into(),
            evidence: BTreeMap::new(),
            next_command: String::new(),
            risk: String::new(),
        }
    }

    /// A number or a text it rests on; what is unknown is shown as null.
    pub(crate) fn with<T: Into<Value>>(mut self, name: &str, value: Option<T>) -> Self {
        self.evidence.insert(name.to_owned(), value.map_or(Value::Null, Into::into));
        self
    }

    /// What to do, and what that may do.
    pub(crate) fn next(mut self, command: impl Into<String>, risk: impl Into<String>) -> Self {
        self.next_command = command.into();
        self.risk = risk.into();
        self
    }
}

/// A command for the server at `address`, to be typed as it is.
pub(crate) fn cli(address: &str, tls: bool, command: &str) -> String {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "6379"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let tls = if tls { " --tls" } else { "" };
    format!("redis-cli -h {host} -p {port}{tls} {command}")
}

/// The same of Tidegate's own tools: they take a URL.
pub(crate) fn own_tool(address: &str, tls: bool, verb: &str) -> String {
    let scheme = if tls { "rediss" } else { "redis" };
    format!("tidegate {verb} --redis {scheme}://{address}")
}

/// Bytes for people: `12.3 MiB`.
#[must_use]
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut size = n as f64;
    let mut unit = 0;
    while size >= 1_024.0 && unit + 1 < UNITS.len() {
        size /= 1_024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{size:.1} {}", UNITS[unit]) }
}

/// A share for people: `87 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// At most three digits behind the point, for evidence.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
