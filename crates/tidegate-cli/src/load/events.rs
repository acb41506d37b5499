//! The event log over HTTP, page by page: memory stays bounded however long it is.

use serde::{Deserialize, Deserializer};

use super::pool::Pool;
use super::shapes::Order;
use crate::failure::{Failure, Result};

/// Events a page.
const PAGE: usize = 500;

/// An event.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// Its place in the log.
    pub cursor: i64,
    /// Its place in the order's history.
    pub seq: i64,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    #[serde(deserialize_with = "instant")]
    pub at: i64,
    /// More of it.
    pub data: Data,
}

/// What an event carries.
#[derive(Debug, Clone, Deserialize)]
pub struct Data {
    /// The order as the event left it.
    pub order: Option<Order>,
}

#[derive(Deserialize)]
struct EventPage {
    items: Vec<Event>,
}

/// Gives every event above `after` to `see`, oldest first, and returns the newest cursor.
///
/// # Errors
/// [`Failure::Unreachable`]; [`Failure::Work`] when the answer is not of the documented shape.
pub async fn read(pool: &Pool, after: i64, mut see: impl FnMut(Event)) -> Result<i64> {
    let mut cursor = after;
    loop {
        let answer = pool.get(&format!("/v1/events?after={cursor}&limit={PAGE}")).await?;
        if answer.status != 200 {
            return Err(Failure::Work(format!(
                "GET /v1/events answered {}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            )));
        }
        let page: EventPage = answer.json().map_err(|e| Failure::Work(e.to_string()))?;
        if page.items.is_empty() {
            return Ok(cursor);
        }
        for event in page.items {
            cursor = event.cursor;
            see(event);
        }
    }
}

/// Reads an RFC 3339 instant as milliseconds since 1970.
///
/// # Errors
/// When it is none.
pub fn instant<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<i64, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    text.parse::<jiff::Timestamp>().map(|t| t.as_millisecond()).map_err(serde::de::Error::custom)
}

/// As [`instant`], for a field that may be null.
///
/// # Errors
/// When it is neither.
pub fn maybe_instant<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<i64>, D::Error> {
    match Option::<std::borrow::Cow<'de, str>>::deserialize(from)? {
        None => Ok(None),
        Some(text) => {
            text.parse::<jiff::Timestamp>().map(|t| Some(t.as_millisecond())).map_err(serde::de::Error::custom)
        }
    }
}
