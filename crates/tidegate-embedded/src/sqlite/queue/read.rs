//! Reads of queues, each on a connection that never waits for a write.

use rusqlite::{Connection, OptionalExtension, Result, Row};
use tidegate_backend::queue::Listing;
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{QueueName, Stats, Task, TaskId, TaskState};

use super::super::fault::bad_value;
use super::super::row;
use super::steps::{COLUMNS, Stored};

fn number(conn: &Connection, queue: &QueueName) -> Result<Option<i64>> {
    row::one(conn, "SELECT queue_no FROM queues WHERE name = ?1", [queue.as_str()])
}

/// Tasks as they stand, in order.
pub(super) fn get(conn: &Connection, now: Millis, queue: &QueueName, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
    let Some(no) = number(conn, queue)? else { return Ok(vec![None; ids.len()]) };
    let mut select = conn.prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE queue_no = ?1 AND id = ?2"))?;
    let mut get = |id: &TaskId| {
        let task = select.query_row((no, id.as_str().as_bytes()), Stored::read).optional()?;
        task.map(|task| Ok(task.whole(conn, no)?.view(now))).transpose()
    };
    ids.iter().map(&mut get).collect()
}

/// As `Queue::list` and `Queue::list_dead`.
pub(super) fn list(
    conn: &Connection,
    now: Millis,
    queue: &QueueName,
    listing: &Listing,
    after: Option<&Place>,
    limit: usize,
) -> Result<Vec<Task>> {
    let Some(no) = number(conn, queue)? else { return Ok(Vec::new()) };
    let rest = match listing {
        Listing::Live(None) => "dead = 0 AND (at, id) > (?2, ?3) ORDER BY at, id",
        Listing::Live(Some(TaskState::Leased)) => {
            "dead = 0 AND leased = 1 AND at > ?5 AND (at, id) > (?2, ?3) ORDER BY at, id"
        }
        Listing::Live(Some(_)) => "dead = 0 AND (leased = 0 OR at <= ?5) AND (at, id) > (?2, ?3) ORDER BY at, id",
        Listing::Dead => "dead = 1 AND (at, id) < (?2, ?3) ORDER BY at DESC, id DESC",
    };
    // No id is empty, and none begins with this byte.
    let (at, id) = match (listing, after) {
        (_, Some((at, id))) => (at.0, id.as_str().as_bytes()),
        (Listing::Dead, None) => (i64::MAX, &b"\xff"[..]),
        (Listing::Live(_), None) => (i64::MIN, &b""[..]),
    };
    let sql = format!("SELECT {COLUMNS} FROM tasks WHERE queue_no = ?1 AND ?5 = ?5 AND {rest} LIMIT ?4");
    let mut select = conn.prepare_cached(&sql)?;
    let tasks = select.query_map((no, at, id, limit as i64, now.0), Stored::read)?;
    tasks.map(|task| Ok(task?.whole(conn, no)?.view(now))).collect()
}

/// Names of queues after `after`.
pub(super) fn queues(conn: &Connection, after: Option<&QueueName>, limit: usize) -> Result<Vec<QueueName>> {
    let mut select = conn.prepare_cached("SELECT name FROM queues WHERE name > ?1 ORDER BY name LIMIT ?2")?;
    let name = |r: &Row<'_>| {
        let text: String = r.get(0)?;
        QueueName::parse(&text).map_err(|e| bad_value(0, format!("queue {text:?} {e}")))
    };
    select.query_map((after.map_or("", QueueName::as_str), limit as i64), name)?.collect()
}

/// A queue in numbers.
pub(super) fn stats(conn: &Connection, now: Millis, queue: &QueueName) -> Result<Option<Stats>> {
    let mut select = conn.prepare_cached("SELECT queue_no, live, dead FROM queues WHERE name = ?1")?;
    let read = |r: &Row<'_>| Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?, r.get::<_, i64>(2)?));
    let Some((no, live, dead)) = select.query_row([queue.as_str()], read).optional()? else { return Ok(None) };
    let count = |sql: &str| -> Result<i64> { conn.prepare_cached(sql)?.query_row((no, now.0), |r| r.get(0)) };
    let leased = count("SELECT count(*) FROM tasks WHERE queue_no = ?1 AND leased = 1 AND at > ?2")?;
    let due = count("SELECT count(*) FROM tasks WHERE queue_no = ?1 AND dead = 0 AND at <= ?2")?;
    let sql = "SELECT at FROM tasks WHERE queue_no = ?1 AND dead = 0 AND at <= ?2 ORDER BY at LIMIT 1";
    let oldest: Option<i64> = row::one(conn, sql, (no, now.0))?;
    let natural = |n: i64| n.max(0).unsigned_abs();
    Ok(Some(Stats {
        pending: natural(live - leased),
        due: natural(due),
        leased: natural(leased),
        dead: natural(dead),
        oldest_due_at: oldest.map(Millis),
    }))
}
