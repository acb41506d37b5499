//! What is told.

use std::collections::BTreeMap;

use serde_json::Value;

use super::check::Check;
use crate::watch::Severity;

/// What is wrong with a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Which check found it.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// The server, `host:port`; of what concerns all, the one that said so.
    pub address: String,
    /// What is wrong and what follows from it, a sentence or two.
    pub cause: String,
    /// The numbers it rests on. null: unknown or not permitted.
    pub evidence: BTreeMap<String, Value>,
    /// What to type to mend it.
    pub fix: String,
    /// What that may do to a server in use.
    pub risk: String,
    /// The settings that mend it, if settings do and it is safe to set them while the server is in use.
    pub changes: Vec<Change>,
}

impl Finding {
    /// The same for the same fault of the same server.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}@{}", self.check.name(), self.address)
    }
}

/// A setting and what it is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// What it was.
    pub from: String,
    /// What it is to be.
    pub to: String,
}

/// A check that could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Which.
    pub check: Check,
    /// Of which server.
    pub address: String,
    /// What is missing.
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be checked.
    pub unknown: Vec<Unknown>,
}

impl Report {
    /// Whether anything is to be looked at now.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Critical)
    }
}
