//! Reads of the event log.

use rusqlite::{Connection, Result, Row};
use tidegate_backend::{EventRecord, Page};
use tidegate_core::{EventKind, OrderId};

use super::fault::bad_value;
use super::{orders, row};
use tidegate_backend::stored::codec::Extra;
use tidegate_backend::stored::cursor::{List, encode};

const EVENT_COLUMNS: &str = "e.cursor, e.seq, e.kind, e.at, e.status, e.pay_by, e.release_at, e.paid_at, e.cancelled_at, \
    e.cancel_reason, e.fulfilled_at, e.version, e.extra, e.order_no";
const ORDER_AT: usize = 14;

/// Events above `after`, oldest first.
pub(super) fn events(conn: &Connection, after: i64, limit: usize) -> Result<Vec<EventRecord>> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, {} FROM events e LEFT JOIN orders o ON o.order_no = e.order_no WHERE e.cursor > ?1 ORDER BY e.cursor LIMIT ?2",
        row::ORDER_COLUMNS
    );
    let mut select = conn.prepare_cached(&sql)?;
    select.query_map((after, limit as i64), event)?.collect()
}

/// An order's events with `seq` above `after`, oldest first.
pub(super) fn order_events(
    conn: &Connection,
    id: &OrderId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<EventRecord>>> {
    let Some(no) = orders::number(conn, id)? else { return Ok(None) };
    let columns = row::ORDER_COLUMNS;
    let mut items = Vec::new();
    if after < 1 {
        let sql = format!(
            "SELECT {EVENT_COLUMNS}, {columns} FROM orders o JOIN events e ON e.cursor = o.first_cursor WHERE o.order_no = ?1"
        );
        items.extend(conn.prepare_cached(&sql)?.query_map([no], event)?.collect::<Result<Vec<_>>>()?);
    }
    // `e.seq > 1` is what the partial index is made for; the planner wants to see it.
    let sql = format!(
        "SELECT {EVENT_COLUMNS}, {columns} FROM events e INDEXED BY events_order JOIN orders o ON o.order_no = e.order_no \
        WHERE e.order_no = ?1 AND e.seq > ?2 AND e.seq > 1 ORDER BY e.seq LIMIT ?3"
    );
    let left = (limit + 1).saturating_sub(items.len()) as i64;
    items.extend(conn.prepare_cached(&sql)?.query_map((no, after.max(1), left), event)?.collect::<Result<Vec<_>>>()?);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| encode(List::OrderEvents, last.event.seq));
    Ok(Some(Page { items, next }))
}

fn event(r: &Row<'_>) -> Result<EventRecord> {
    let kind = EventKind::from_number(r.get(2)?).ok_or_else(|| bad_value(2, "an event of no known kind"))?;
    let seq: i64 = r.get(1)?;
    let extra = match row::opt_str(r, 12)? {
        None => Extra::default(),
        Some(text) => serde_json::from_str(text).map_err(|e| bad_value(12, e.to_string()))?,
    };
    let state = match r.get::<_, Option<i64>>(4)? {
        None => None,
        Some(_) => Some(row::order_state(r, [4, 5, 6, 7, 8, 9, 10, 11])?),
    };
    let now = match r.get::<_, Option<i64>>(ORDER_AT)? {
        None => None,
        Some(_) => Some(row::order(r, ORDER_AT)?.0),
    };
    if now.is_none() && r.get::<_, Option<i64>>(13)?.is_some() {
        return Err(bad_value(13, "an event of an order that has no row"));
    }
    Ok(extra.into_record((r.get(0)?, seq, kind, row::millis(r, 3)?), state, now))
}

/// The cursor of the newest event; 0 when there is none.
pub(super) fn newest_cursor(conn: &Connection) -> Result<i64> {
    Ok(row::one(conn, "SELECT coalesce(max(cursor), 0) FROM events", [])?.unwrap_or(0))
}
