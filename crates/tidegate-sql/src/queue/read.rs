//! Reads of queues.

use tidegate_backend::queue::Listing;
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{MAX_LEASE_MS, QueueName, Stats, Task, TaskId, TaskState};

use super::head::{self, QueueClock};
use super::steps::{Stored, WHOLE, by_ids};
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::Session;
use crate::value::Value;

fn views(rows: &[Row], now: Millis) -> Result<Vec<Task>> {
    rows.iter().map(|row| Ok(Stored::read(row, true)?.view(now))).collect()
}

/// Tasks as they stand, in order.
pub(super) async fn get(
    session: &mut Session,
    clock: &QueueClock,
    queue: &QueueName,
    ids: &[TaskId],
) -> Result<Vec<Option<Task>>> {
    let Some(head) = head::find(session, clock, queue).await? else { return Ok(vec![None; ids.len()]) };
    let mut keys: Vec<&[u8]> = ids.iter().map(|id| id.as_str().as_bytes()).collect();
    keys.sort_unstable();
    keys.dedup();
    let sql = by_ids(session.dialect(), WHOLE, session.dialect().pick("", "OFFSET 0"));
    let rows = session.rows(&sql, &[head.no.into(), Value::Blobs(&keys)]).await?;
    let there: tidegate_core::Map<TaskId, Task> =
        views(&rows, head.now())?.into_iter().map(|task| (task.id.clone(), task)).collect();
    Ok(ids.iter().map(|id| there.get(id).cloned()).collect())
}

/// As `Queue::list` and `Queue::list_dead`.
pub(super) async fn list(
    session: &mut Session,
    clock: &QueueClock,
    queue: &QueueName,
    listing: &Listing,
    after: Option<&Place>,
    limit: usize,
) -> Result<Vec<Task>> {
    let Some(head) = head::find(session, clock, queue).await? else { return Ok(Vec::new()) };
    let now = head.now();
    // No id is empty, and none begins with this byte. A live list begins where the queue's tasks begin.
    let (at, id) = match (listing, after) {
        (_, Some((at, id))) => (*at, id.as_str().as_bytes()),
        (Listing::Dead, None) => (Millis(i64::MAX), &b"\xff"[..]),
        (Listing::Live(Some(TaskState::Leased)), None) => (now, &b"\xff"[..]),
        (Listing::Live(_), None) => (head.low, &b""[..]),
    };
    let state = match listing {
        Listing::Live(None) => "t.dead = 0",
        Listing::Live(Some(TaskState::Leased)) => "t.dead = 0 AND t.leased = 1 AND t.at > ? AND t.at <= ?",
        Listing::Live(Some(_)) => "t.dead = 0 AND (t.leased = 0 OR t.at <= ?)",
        Listing::Dead => "t.dead = 1",
    };
    let (bounds, order) = match listing {
        Listing::Live(_) => ("t.at >= ? AND (t.at > ? OR t.id > ?)", "t.at, t.id"),
        Listing::Dead => ("t.at <= ? AND (t.at < ? OR t.id < ?)", "t.at DESC, t.id DESC"),
    };
    let index = session.dialect().pick("FORCE INDEX (tg_tasks_order)", "");
    let sql = format!(
        "SELECT {WHOLE} FROM tg_tasks t {index} WHERE t.queue_no = ? AND {state} AND {bounds} ORDER BY {order} LIMIT ?"
    );
    let mut values: Vec<Value<'_>> = vec![head.no.into()];
    match listing {
        Listing::Live(Some(TaskState::Leased)) => values.extend([Value::from(now), now.plus(MAX_LEASE_MS).into()]),
        Listing::Live(Some(_)) => values.push(now.into()),
        Listing::Live(None) | Listing::Dead => {}
    }
    values.extend([Value::from(at), at.into(), id.into(), i64::try_from(limit).unwrap_or(i64::MAX).into()]);
    views(&session.rows(&sql, &values).await?, now)
}

/// Names of queues after `after`.
pub(super) async fn queues(session: &mut Session, after: Option<&QueueName>, limit: usize) -> Result<Vec<QueueName>> {
    let sql = "SELECT name FROM tg_queues WHERE name > ? ORDER BY name LIMIT ?";
    let after = after.map_or("", QueueName::as_str).as_bytes();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    session.rows(sql, &[after.into(), limit.into()]).await?.iter().map(|row| head::name(row, 0)).collect()
}

/// A queue in numbers: counted, entry by entry of the index.
pub(super) async fn stats(session: &mut Session, clock: &QueueClock, queue: &QueueName) -> Result<Option<Stats>> {
    let Some(head) = head::find(session, clock, queue).await? else { return Ok(None) };
    let (no, low, now) = (head.no, head.low, head.now());
    let index = session.dialect().pick("FORCE INDEX (tg_tasks_order)", "");
    let of = format!("FROM tg_tasks t {index} WHERE t.queue_no = ?");
    let sql = format!(
        "SELECT (SELECT COUNT(*) {of} AND t.dead = 0 AND t.at >= ?), \
        (SELECT COUNT(*) {of} AND t.dead = 0 AND t.at >= ? AND t.at <= ?), \
        (SELECT COUNT(*) {of} AND t.dead = 0 AND t.at > ? AND t.at <= ? AND t.leased = 1), \
        (SELECT COUNT(*) {of} AND t.dead = 1), \
        (SELECT t.at {of} AND t.dead = 0 AND t.at >= ? AND t.at <= ? ORDER BY t.at LIMIT 1)"
    );
    let values: [Value<'_>; 12] = [
        no.into(),
        low.into(),
        no.into(),
        low.into(),
        now.into(),
        no.into(),
        now.into(),
        now.plus(MAX_LEASE_MS).into(),
        no.into(),
        no.into(),
        low.into(),
        now.into(),
    ];
    let mut counted = None;
    let keep = |row| {
        counted = Some(row);
        Ok(())
    };
    // Millions take seconds.
    session.each(&sql, &values, keep).await?;
    let row = counted.ok_or_else(|| Fault::corrupt("the server does not count"))?;
    let count = |column| Ok::<u64, Fault>(row.int(column)?.max(0).unsigned_abs());
    let (live, leased) = (count(0)?, count(2)?);
    Ok(Some(Stats {
        pending: live.saturating_sub(leased),
        due: count(1)?,
        leased,
        dead: count(3)?,
        oldest_due_at: row::opt_millis(&row, 4)?,
    }))
}
