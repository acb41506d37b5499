//! The status of an order that is cached in a hash.

use std::time::Duration;

use tidegate_backend::{Error, ErrorKind, Result};

use crate::connect::{Call, Connector};
use crate::reply;
use crate::scripts;

/// What Tidegate's own orders may do.
const TRANSITIONS: [(&str, &str); 5] = [
    ("pending", "paid"),
    ("pending", "cancelled"),
    ("cancelled", "paid"),
    ("paid", "cancelled"),
    ("paid", "fulfilled"),
];
/// How long a hash lives after a change unless set.
const DAY: Duration = Duration::from_secs(86_400);
/// Most fields that a change sets.
const MAX_FIELDS: usize = 64;

/// Atomic status changes of orders that are cached in hashes: `HSET order:7 status pending ..`.
///
/// The change is made only if it is allowed from the present status; the hash's time to live is renewed with it, so an order
/// in motion does not fall out of the cache. A repeated change succeeds and changes nothing. Keys are used as they are given.
#[derive(Clone)]
pub struct OrderStatus {
    connector: Connector,
    field: String,
    transitions: Vec<(String, String)>,
    ttl: Duration,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusChange<'a> {
    /// The hash's key.
    pub key: &'a str,
    /// The new status.
    pub to: &'a str,
    /// The status it must have now; `None`: any from which the change is allowed.
    pub from: Option<&'a str>,
    /// Fields that are set together with the status, at most 64.
    pub fields: &'a [(&'a str, &'a str)],
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusOutcome {
    /// Done; it was this before.
    Changed {
        /// The status before.
        from: String,
    },
    /// It has this status already; only the time to live was renewed.
    Already,
    /// Nothing was changed: it does not have the status that was expected.
    Unexpected {
        /// The status it has.
        now: String,
    },
    /// Nothing was changed: the transition is not allowed.
    Illegal {
        /// The status it has.
        now: String,
    },
    /// There is no such hash, or it has no status: load the order into the cache and try again.
    Unknown,
}

impl OrderStatus {
    /// Changes in the field `status`, by the transitions of Tidegate's own orders, with a time to live of a day.
    #[must_use]
    pub fn new(connector: Connector) -> Self {
        let transitions = TRANSITIONS.map(|(from, to)| (from.to_owned(), to.to_owned())).to_vec();
        Self { connector, field: "status".to_owned(), transitions, ttl: DAY }
    }

    /// The field that holds the status.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        name.clone_into(&mut self.field);
        self
    }

    /// The allowed transitions, each `(from, to)`.
    #[must_use]
    pub fn transitions(mut self, allowed: &[(&str, &str)]) -> Self {
        self.transitions = allowed.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        self
    }

    /// How long a hash lives after a change (at least a millisecond).
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl.max(Duration::from_millis(1));
        self
    }

    /// Makes one change.
    ///
    /// # Errors
    /// [`ErrorKind::Command`] when it is malformed; otherwise why Redis does not answer: then it may have been made, and
    /// repeating it is safe.
    pub async fn change(&self, change: &StatusChange<'_>) -> Result<StatusOutcome> {
        let StatusChange { key, to, from, fields } = change;
        if fields.len() > MAX_FIELDS || fields.iter().any(|(name, _)| *name == self.field) {
            let why = format!("a change sets at most {MAX_FIELDS} fields, and not the status itself");
            return Err(Error::new(ErrorKind::Command, why));
        }
        if key.is_empty() || to.is_empty() {
            return Err(Error::new(ErrorKind::Command, "a change needs a key and a status"));
        }
        let ttl = self.ttl.as_millis().to_string();
        let count = fields.len().to_string();
        let mut arguments = vec![self.field.as_str(), to, from.unwrap_or_default(), &ttl, &count];
        arguments.extend(fields.iter().flat_map(|(name, value)| [*name, *value]));
        arguments.extend(self.transitions.iter().filter(|(_, into)| into == to).map(|(from, _)| from.as_str()));
        let arguments = arguments.into_iter().map(|text| text.as_bytes().to_vec()).collect();
        let call = Call::script(&scripts::STATUS, vec![key.as_bytes().to_vec()], arguments);
        let answer = self.connector.one(call).await?;
        let [outcome, before] = reply::parts::<2>(&answer)?;
        let before = String::from_utf8_lossy(reply::bytes(before)?).into_owned();
        match reply::bytes(outcome)? {
            b"changed" => Ok(StatusOutcome::Changed { from: before }),
            b"already" => Ok(StatusOutcome::Already),
            b"unexpected" => Ok(StatusOutcome::Unexpected { now: before }),
            b"illegal" => Ok(StatusOutcome::Illegal { now: before }),
            b"unknown" => Ok(StatusOutcome::Unknown),
            _ => Err(reply::strange(&answer)),
        }
    }
}
