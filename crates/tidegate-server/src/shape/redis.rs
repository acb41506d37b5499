//! What the watch and the look at big keys found, on the wire: the same for HTTP, webhooks and `--json` of the tools.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tidegate::watch::Finding;
use utoipa::ToSchema;

use super::instant::Instant;

/// What is wrong with a server, from its opening to its closing.
#[derive(Serialize, ToSchema)]
#[schema(as = Finding)]
pub(crate) struct FindingShape<'a> {
    /// The same in every message of it.
    #[schema(example = "full-noeviction-1796050000000-0a1b2c3d")]
    id: &'a str,
    /// Which rule found it.
    #[schema(example = "full-noeviction")]
    rule: &'static str,
    /// `info`, `warning` or `critical`.
    #[schema(example = "critical")]
    severity: &'static str,
    /// The server, `host:port`.
    #[schema(example = "10.0.0.7:6379")]
    address: &'a str,
    /// When the samples said so.
    opened_at: Instant,
    /// When it was over; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<Instant>,
    /// What is wrong and what follows from it.
    cause: &'a str,
    /// The numbers it rests on, as they were at the opening. null: unknown or not permitted.
    #[schema(value_type = Object)]
    evidence: &'a BTreeMap<String, Value>,
    /// What to type next.
    next_command: &'a str,
    /// What that may do to a server in use.
    risk: &'a str,
}

impl<'a> FindingShape<'a> {
    /// Borrows `finding`.
    pub(crate) fn new(finding: &'a Finding) -> Self {
        Self {
            id: &finding.id,
            rule: finding.rule.name(),
            severity: finding.severity.name(),
            address: &finding.address,
            opened_at: Instant(finding.opened_at),
            closed_at: finding.closed_at.map(Instant),
            cause: &finding.cause,
            evidence: &finding.evidence,
            next_command: &finding.next_command,
            risk: &finding.risk,
        }
    }
}

/// A finding as `/v1/redis/findings` shows it.
#[must_use]
pub fn finding_json(finding: &Finding) -> Value {
    serde_json::to_value(FindingShape::new(finding)).unwrap_or_default()
}
