//! The outbox: one process has the file, so relays take turns, and no lock is held while entries are delivered.

mod own;

use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::{Connection, OptionalExtension, Result as Sql, ToSql, params_from_iter};
use std::time::Duration;
use tidegate_backend::outbox::{
    MAX_COUNTED, MAX_OUTBOX_BATCH, MAX_PRUNED, Parameter, Pending, Relayed, ReplayPoint, Replayed, SqlDialect,
    check_ids, deliver,
};
use tidegate_backend::{BoxFuture, Deliver, Execute, Outbox, OutboxEntry, OutboxState, Result};
use tidegate_core::Millis;

use super::{SqliteLedger, fault, read_on, row};

pub use own::SqliteOutbox;

const COLUMNS: &str = "id, entry_key, floor, committed_at";

/// Writes the entries of a batch.
pub(super) fn insert(conn: &Connection, entries: &[OutboxEntry]) -> Sql<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = conn.prepare_cached(sql)?;
    for entry in entries {
        let (kind, floor) = (entry.kind as i64, entry.stored_floor());
        insert.execute((entry.id, kind, entry.stored_key(), floor, entry.committed_at.0))?;
    }
    Ok(())
}

/// An entry, or the id of a row that nobody can read.
fn entry(r: &rusqlite::Row<'_>) -> Sql<std::result::Result<OutboxEntry, i64>> {
    let id = r.get(0)?;
    let key = r.get_ref(1)?.as_bytes().unwrap_or_default();
    Ok(OutboxEntry::from_stored(id, key, r.get(2)?, row::millis(r, 3)?).ok_or(id))
}

/// The oldest entries that wait, and the ids of rows among them that nobody can read.
fn waiting(conn: &Connection, max: usize) -> Sql<(Vec<OutboxEntry>, Vec<i64>)> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tg_outbox WHERE kind = 0 AND delivered_at IS NULL ORDER BY committed_at, id LIMIT ?1"
    );
    let mut select = conn.prepare_cached(&sql)?;
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    for found in select.query_map([max as i64], entry)? {
        match found? {
            Ok(entry) => entries.push(entry),
            Err(id) => unreadable.push(id),
        }
    }
    Ok((entries, unreadable))
}

fn mark(conn: &Connection, ids: &[i64], at: Millis) -> Sql<()> {
    let sql = "UPDATE tg_outbox SET delivered_at = ?2 WHERE id = ?1 AND delivered_at IS NULL";
    let mut update = conn.prepare_cached(sql)?;
    ids.iter().try_for_each(|id| update.execute((id, at.0)).map(drop))
}

fn states(conn: &Connection, ids: &[i64]) -> Sql<Vec<OutboxState>> {
    let mut select = conn.prepare_cached("SELECT delivered_at IS NULL FROM tg_outbox WHERE id = ?1")?;
    let state = |waits: Option<bool>| match waits {
        None => OutboxState::Absent,
        Some(true) => OutboxState::Waiting,
        Some(false) => OutboxState::Delivered,
    };
    ids.iter().map(|id| select.query_row([id], |r| r.get(0)).optional().map(state)).collect()
}

fn replay(conn: &Connection, since: Millis, after: Option<ReplayPoint>, max: usize) -> Sql<Replayed> {
    // Without a point, after no row of that instant: ids are positive.
    let from = after.filter(|point| point.delivered_at >= since);
    let from = from.unwrap_or(ReplayPoint { delivered_at: since, id: 0 });
    let sql = format!(
        "SELECT {COLUMNS}, delivered_at FROM tg_outbox WHERE (delivered_at, id) > (?1, ?2) AND delivered_at IS NOT NULL \
        ORDER BY delivered_at, id LIMIT ?3"
    );
    let mut select = conn.prepare_cached(&sql)?;
    let rows = select.query_map((from.delivered_at.0, from.id, max as i64), |r| {
        Ok((entry(r)?, ReplayPoint { id: r.get(0)?, delivered_at: row::millis(r, 4)? }))
    })?;
    let (mut entries, mut last, mut seen) = (Vec::new(), None, 0);
    for found in rows {
        let (read, point) = found?;
        entries.extend(read.ok());
        (last, seen) = (Some(point), seen + 1);
    }
    Ok(Replayed { entries, next: last.filter(|_| seen == max) })
}

fn prune(conn: &Connection, before: Millis) -> Sql<bool> {
    let sql = "DELETE FROM tg_outbox WHERE id IN \
        (SELECT id FROM tg_outbox WHERE delivered_at IS NOT NULL AND delivered_at < ?1 ORDER BY delivered_at LIMIT ?2)";
    Ok(conn.prepare_cached(sql)?.execute((before.0, MAX_PRUNED as i64))? == MAX_PRUNED)
}

fn pending(conn: &Connection, now: Millis) -> Sql<Pending> {
    let waiting = "FROM tg_outbox WHERE kind = 0 AND delivered_at IS NULL";
    let count = format!("SELECT count(*) FROM (SELECT 1 {waiting} LIMIT ?1)");
    let count: i64 = conn.prepare_cached(&count)?.query_row([MAX_COUNTED as i64], |r| r.get(0))?;
    let oldest: Option<i64> =
        row::one(conn, &format!("SELECT committed_at {waiting} ORDER BY committed_at LIMIT 1"), [])?;
    let age = |at| Duration::from_millis(u64::try_from(now.since(Millis(at))).unwrap_or(0));
    Ok(Pending { count: usize::try_from(count).unwrap_or(0), oldest: oldest.map(age) })
}

fn before(now: Millis, ago: Duration) -> Millis {
    now.plus(-i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))
}

impl Outbox for SqliteLedger {
    fn relay<'a>(&'a self, max: usize, to: &'a dyn Deliver) -> BoxFuture<'a, Result<Relayed>> {
        Box::pin(async move {
            let _turn = self.relaying.lock().await;
            let parts = self.parts()?;
            let max = max.clamp(1, MAX_OUTBOX_BATCH);
            let (entries, unreadable) = read_on(&parts.readers, move |conn| waiting(conn, max)).await?;
            if !unreadable.is_empty() {
                tracing::warn!(
                    rows = unreadable.len(),
                    "rows of tg_outbox that no Tidegate has written are passed over"
                );
            }
            let arrived = deliver(to, &entries).await?;
            let relayed = Relayed { taken: entries.len() + unreadable.len(), delivered: arrived.len() };
            let ids = [arrived, unreadable].concat();
            if !ids.is_empty() {
                let clock = parts.real_clock.clone();
                parts.writer.run(move |w| w.transact(|conn| mark(conn, &ids, clock.now()))).await?;
            }
            Ok(relayed)
        })
    }

    fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check_ids(ids)?;
            if ids.is_empty() {
                return Ok(());
            }
            let parts = self.parts()?;
            let (ids, clock) = (ids.to_vec(), parts.real_clock.clone());
            parts.writer.run(move |w| w.transact(|conn| mark(conn, &ids, clock.now()))).await
        })
    }

    fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<Vec<OutboxState>>> {
        Box::pin(async move {
            check_ids(ids)?;
            let ids = ids.to_vec();
            read_on(&self.parts()?.readers, move |conn| states(conn, &ids)).await
        })
    }

    fn replay(&self, within: Duration, after: Option<ReplayPoint>, max: usize) -> BoxFuture<'_, Result<Replayed>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let since = before(parts.real_clock.now(), within);
            read_on(&parts.readers, move |conn| replay(conn, since, after, max.clamp(1, MAX_OUTBOX_BATCH))).await
        })
    }

    fn prune(&self, keep: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let old = before(parts.real_clock.now(), keep);
            parts.writer.run(move |w| w.transact(|conn| prune(conn, old))).await
        })
    }

    fn pending(&self) -> BoxFuture<'_, Result<Pending>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let now = parts.real_clock.now();
            read_on(&parts.readers, move |conn| pending(conn, now)).await
        })
    }
}

/// A caller's own transaction on a connection to the ledger's file, or to one with a [`SqliteOutbox`], for
/// `tidegate_backend::outbox::invalidate_in` and `tidegate_backend::fence::fence_in`. While it is open, the ledger's commits wait for it (5 s at most): keep it
/// short.
#[derive(Debug)]
pub struct SqliteTransaction<'a>(&'a Connection);

impl<'a> SqliteTransaction<'a> {
    /// `transaction` is a `rusqlite::Transaction` or `Savepoint`, or a connection in the middle of one.
    #[must_use]
    pub fn new(transaction: &'a Connection) -> Self {
        Self(transaction)
    }
}

struct Bound(Parameter);

impl ToSql for Bound {
    fn to_sql(&self) -> Sql<ToSqlOutput<'_>> {
        Ok(match &self.0 {
            Parameter::Int(number) => ToSqlOutput::Owned(number.map_or(Value::Null, Value::Integer)),
            Parameter::Bytes(bytes) => bytes.as_slice().into(),
        })
    }
}

/// Each statement is done when the call returns; its future is ready.
impl Execute for SqliteTransaction<'_> {
    fn dialect(&self) -> SqlDialect {
        SqlDialect::Sqlite
    }

    fn execute<'b>(&'b mut self, statement: &'b str, parameters: Vec<Parameter>) -> BoxFuture<'b, Result<()>> {
        let run = || {
            let mut statement = self.0.prepare_cached(statement)?;
            statement.execute(params_from_iter(parameters.into_iter().map(Bound))).map(drop)
        };
        Box::pin(std::future::ready(run().map_err(fault::writing)))
    }

    fn ask<'b>(
        &'b mut self,
        write: (&'b str, Vec<Parameter>),
        read: (&'b str, Vec<Parameter>),
    ) -> BoxFuture<'b, Result<Option<i64>>> {
        let run = || {
            self.0.prepare_cached(write.0)?.execute(params_from_iter(write.1.into_iter().map(Bound)))?;
            let mut read_it = self.0.prepare_cached(read.0)?;
            read_it.query_row(params_from_iter(read.1.into_iter().map(Bound)), |r| r.get(0)).optional()
        };
        Box::pin(std::future::ready(run().map_err(fault::writing)))
    }
}
