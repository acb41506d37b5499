//! Reads of the event log.

use tidegate_backend::stored::codec::Extra;
use tidegate_backend::stored::cursor::{List, encode};
use tidegate_backend::{EventRecord, Page};
use tidegate_core::{EventKind, OrderId};

use super::bytes;
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::Session;
use crate::value::Value;

const EVENT_COLUMNS: &str = "e.event_no, e.seq, e.kind, e.at, e.status, e.pay_by, e.release_at, e.paid_at, \
    e.cancelled_at, e.cancel_reason, e.fulfilled_at, e.version, e.extra, e.order_no";
const ORDER_AT: usize = 14;

/// Events above `after`, oldest first.
pub(crate) async fn events(session: &mut Session, after: i64, limit: usize) -> Result<Vec<EventRecord>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, {} FROM events e LEFT JOIN orders o ON o.order_no = e.order_no WHERE e.event_no > ? \
        ORDER BY e.event_no LIMIT ?",
        row::ORDER_COLUMNS
    );
    let rows = session.rows(&sql, &[after.into(), Value::from(limit as i64)]).await?;
    rows.iter().map(event).collect()
}

/// An order's events with `seq` above `after`, oldest first.
pub(crate) async fn order_events(
    session: &mut Session,
    id: &OrderId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<EventRecord>>> {
    // An id keeps its number once it has one, so that the two statements need no common instant.
    let found = session.one("SELECT order_no FROM order_ids WHERE id = ?", &[bytes(id.as_str())]).await?;
    let Some(no) = found.map(|r| r.opt_int(0)).transpose()?.flatten() else { return Ok(None) };
    let join = session.dialect().pick("STRAIGHT_JOIN", "JOIN");
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, {} FROM events e {join} orders o ON o.order_no = e.order_no \
        WHERE e.order_no = ? AND e.seq > ? ORDER BY e.seq LIMIT ?",
        row::ORDER_COLUMNS
    );
    let rows = session.rows(&sql, &[no.into(), after.into(), Value::from(limit as i64 + 1)]).await?;
    let mut items: Vec<EventRecord> = rows.iter().take(limit).map(event).collect::<Result<_>>()?;
    items.shrink_to_fit();
    let next = items.last().filter(|_| rows.len() > limit).map(|last| encode(List::OrderEvents, last.event.seq));
    Ok(Some(Page { items, next }))
}

/// The kind of an event.
pub(super) fn kind(r: &Row, column: usize) -> Result<EventKind> {
    EventKind::from_number(r.int(column)?).ok_or_else(|| Fault::corrupt("an event of the database is of no known kind"))
}

fn event(r: &Row) -> Result<EventRecord> {
    let (kind, seq) = (kind(r, 2)?, r.int(1)?);
    let extra = match r.opt_text(12)? {
        None => Extra::default(),
        Some(text) => {
            serde_json::from_str(text).map_err(|e| Fault::corrupt(format!("an event of the database: {e}")))?
        }
    };
    let state = match r.opt_int(4)? {
        None => None,
        Some(_) => Some(row::order_state(r, [4, 5, 6, 7, 8, 9, 10, 11])?),
    };
    let now = match r.opt_int(ORDER_AT)? {
        None => None,
        Some(_) => Some(row::order(r, ORDER_AT)?.0),
    };
    if now.is_none() && r.opt_int(13)?.is_some() {
        return Err(Fault::corrupt("an event of the database is of an order that has no row"));
    }
    Ok(extra.into_record((r.int(0)?, seq, kind, row::millis(r, 3)?), state, now))
}

/// The cursor of the newest event; 0 when there is none.
pub(crate) async fn newest_cursor(session: &mut Session) -> Result<i64> {
    let newest = session.one("SELECT max(event_no) FROM events", &[]).await?;
    Ok(newest.map(|r| r.opt_int(0)).transpose()?.flatten().unwrap_or(0))
}
