//! Messages of the watch to people: one at the opening of a finding and one at its closing, to each of any number of sinks.
//!
//! - [`Alert`]: a message. [`AlertSink`]: where messages go; what speaks SMTP or HTTP lies outside of this crate.
//! - `outbox.rs`: what is not delivered yet, bounded, and kept with the state of the watch.
//! - `deliver.rs`: one task a sink, so that one that hangs delays no other: retries with growing pauses, up to a bound.
//!
//! A message is given to a sink only after it was kept, and is forgotten only after the sink took it: a restart loses none,
//! and only a crash between the two sends one again, under the same id.

mod deliver;
mod outbox;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_backend::BoxFuture;
use tidegate_core::Millis;
use tidegate_core::watch::{Change, Finding, Severity};

pub use deliver::SEND_TIMEOUT;
pub(super) use deliver::{Post, deliver};
pub use outbox::{MAX_AGE_MS, MAX_ATTEMPTS, MAX_WAITING};

/// Most sinks of a watch.
pub const MAX_SINKS: usize = 32;

/// What a message tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertKind {
    /// Something is wrong.
    Opened,
    /// It is over.
    Closed,
    /// Nothing: it was asked for to see whether messages arrive.
    Test,
}

impl AlertKind {
    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AlertKind::Opened => "opened",
            AlertKind::Closed => "closed",
            AlertKind::Test => "test",
        }
    }
}

/// A message to people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The same whenever this message is sent, also after a restart: `A-Z a-z 0-9 -` alone.
    pub id: String,
    /// What it tells.
    pub kind: AlertKind,
    /// When there was reason for it.
    pub at: Millis,
    /// What it is about; `None` in a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

impl Alert {
    /// The message of a change.
    #[must_use]
    pub fn of(change: &Change) -> Self {
        let finding = change.finding().clone();
        let (kind, at) = match change {
            Change::Opened(_) => (AlertKind::Opened, finding.opened_at),
            Change::Closed(_) => (AlertKind::Closed, finding.closed_at.unwrap_or(finding.opened_at)),
        };
        Self { id: format!("{}-{}", finding.id, kind.name()), kind, at, finding: Some(finding) }
    }

    /// A message that says that messages arrive.
    #[must_use]
    pub fn test(now: Millis) -> Self {
        Self { id: format!("test-{}", now.0), kind: AlertKind::Test, at: now, finding: None }
    }

    /// How bad it is; a test is worth knowing.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.finding.as_ref().map_or(Severity::Info, |finding| finding.severity)
    }

    /// The name of the rule, or `test`.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        self.finding.as_ref().map_or("test", |finding| finding.rule.name())
    }

    /// What messages of the same finding share.
    #[must_use]
    pub fn subject_id(&self) -> &str {
        self.finding.as_ref().map_or(&self.id, |finding| &finding.id)
    }
}

/// Why a sink did not take a message. The texts hold no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undelivered {
    /// It may take it later.
    Later {
        /// What went wrong, and what to do if it stays so.
        why: Cow<'static, str>,
        /// Not before then, if the sink said so.
        after: Option<Duration>,
    },
    /// It will never take it: sending it again would be in vain.
    Never {
        /// Why not, and what to do.
        why: Cow<'static, str>,
    },
}

impl Undelivered {
    /// To be sent again.
    pub fn later(why: impl Into<Cow<'static, str>>) -> Self {
        Undelivered::Later { why: why.into(), after: None }
    }

    /// Not to be sent again.
    pub fn never(why: impl Into<Cow<'static, str>>) -> Self {
        Undelivered::Never { why: why.into() }
    }
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undelivered::Later { why, .. } | Undelivered::Never { why } => f.write_str(why),
        }
    }
}

/// Where messages go.
pub trait AlertSink: Send + Sync + 'static {
    /// Whose messages wait under this name, also after a restart; told in logs and metrics. Each sink has its own.
    fn name(&self) -> &str;

    /// The least severity that it wants to hear of.
    fn least(&self) -> Severity;

    /// Gives it a message. Ends within [`SEND_TIMEOUT`], or is ended and tried again.
    fn send<'a>(&'a self, alert: &'a Alert) -> BoxFuture<'a, Result<(), Undelivered>>;
}

/// Sends one test message to each of `sinks`, to all of them at once; what became of it, by the sink's name, in their order.
pub async fn test(sinks: &[Arc<dyn AlertSink>]) -> Vec<(String, Result<(), Undelivered>)> {
    let alert = Arc::new(Alert::test(tidegate_backend::clock::host_now()));
    let sending: Vec<_> = sinks
        .iter()
        .map(|sink| {
            let (sink, alert) = (Arc::clone(sink), Arc::clone(&alert));
            tokio::spawn(async move { deliver::send(&*sink, &alert).await })
        })
        .collect();
    let mut answers = Vec::with_capacity(sinks.len());
    for (sink, sending) in sinks.iter().zip(sending) {
        let answer = sending.await.unwrap_or_else(|e| Err(Undelivered::never(format!("sending it broke off: {e}"))));
        answers.push((sink.name().to_owned(), answer));
    }
    answers
}
