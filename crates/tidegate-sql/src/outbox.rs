//! The outbox: nodes share it row by row. A relay keeps the rows it delivers locked, and others pass over them.
//!
//! The lock is that of an open transaction: a relay that dies gives its rows back with its connection, one that freezes
//! when the server ends what is idle (`connect.rs`).

mod own;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests;

pub use own::SqlOutbox;

use std::time::Duration;

use tidegate_backend::outbox::{
    MAX_COUNTED, MAX_OUTBOX_BATCH, MAX_PRUNED, Pending, Relayed, ReplayPoint, Replayed, check_ids, deliver,
};
use tidegate_backend::{BoxFuture, Deliver, Outbox, OutboxEntry, OutboxState};
use tidegate_core::{Map, Millis};

use crate::SqlLedger;
use crate::bulk::Bulk;
use crate::bulk::Kind::{Bytes, Int};
use crate::bulk::Table;
use crate::clock::instant_of;
use crate::dialect::Dialect;
use crate::fault::{Fault, Result};
use crate::fetched::Row;
use crate::row;
use crate::session::{Isolation, Session};
use crate::upkeep::{end, instant};
use crate::value::Value;

static ENTRIES: Table = Table {
    name: "tg_outbox",
    columns: &[("id", Int), ("kind", Int), ("entry_key", Bytes), ("floor", Int), ("committed_at", Int)],
    key: &[],
    update: &[],
};

/// Rows that MySQL deletes in one round trip, each in a statement of its own.
const MYSQL_DELETES: usize = 200;
const COLUMNS: &str = "id, entry_key, floor, committed_at";

/// Writes the entries of a batch.
pub(crate) async fn insert(session: &mut Session, entries: &[OutboxEntry]) -> Result<()> {
    let mut all = Bulk::new(&ENTRIES);
    for entry in entries {
        all.int(entry.id)
            .int(entry.kind as i64)
            .bytes(entry.stored_key().as_slice())
            .int(entry.stored_floor())
            .int(entry.committed_at.0);
    }
    session.write(&all).await
}

/// An entry, or the id of a row that nobody can read.
fn entry(r: &Row) -> Result<std::result::Result<OutboxEntry, i64>> {
    let id = r.int(0)?;
    Ok(OutboxEntry::from_stored(id, r.bytes(1)?, r.opt_int(2)?, row::millis(r, 3)?).ok_or(id))
}

/// The table, read by its index of what waits. MySQL is told the index, here and below: it may walk a short table, and
/// meet, or lock, rows that relays have in their hands.
fn waiting_table(session: &Session) -> &'static str {
    session.dialect().pick("tg_outbox FORCE INDEX (tg_outbox_waiting)", "tg_outbox")
}

/// The table, read by its index of what was delivered.
fn delivered_table(session: &Session) -> &'static str {
    session.dialect().pick("tg_outbox FORCE INDEX (tg_outbox_delivered)", "tg_outbox")
}

/// The table, read by ids.
fn by_id(session: &Session) -> &'static str {
    session.dialect().pick("tg_outbox FORCE INDEX (PRIMARY)", "tg_outbox")
}

async fn relay(session: &mut Session, max: usize, to: &dyn Deliver) -> Result<Relayed> {
    session.begin(Isolation::Write).await?;
    let relayed = relay_locked(session, max, to).await;
    end(session, relayed).await
}

async fn relay_locked(session: &mut Session, max: usize, to: &dyn Deliver) -> Result<Relayed> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {} WHERE kind = 0 AND delivered_at IS NULL ORDER BY committed_at, id LIMIT ? \
        FOR UPDATE SKIP LOCKED",
        waiting_table(session)
    );
    let rows = session.rows(&sql, &[Value::from(max as i64)]).await?;
    let (mut entries, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
    for r in &rows {
        match entry(r)? {
            Ok(entry) => entries.push(entry),
            Err(id) => unreadable.push(id),
        }
    }
    if !unreadable.is_empty() {
        tracing::warn!(rows = unreadable.len(), "rows of tg_outbox that no Tidegate has written are passed over");
    }
    let arrived = deliver(to, &entries).await?;
    let relayed = Relayed { taken: rows.len(), delivered: arrived.len() };
    mark(session, &[arrived, unreadable].concat()).await?;
    Ok(relayed)
}

/// Marks rows that this transaction has locked.
async fn mark(session: &mut Session, ids: &[i64]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let table = by_id(session);
    let sql = format!("UPDATE {table} SET delivered_at = {} WHERE id IN ?", instant_of(session));
    session.execute(&sql, &[Value::Ints(ids)]).await.map(drop)
}

async fn mark_delivered(session: &mut Session, ids: &[i64]) -> Result<()> {
    session.begin(Isolation::Write).await?;
    let marked = mark_free(session, ids).await;
    end(session, marked).await
}

async fn mark_free(session: &mut Session, ids: &[i64]) -> Result<()> {
    let table = by_id(session);
    let sql = format!("SELECT id FROM {table} WHERE id IN ? AND delivered_at IS NULL FOR UPDATE SKIP LOCKED");
    let free = session.rows(&sql, &[Value::Ints(ids)]).await?;
    let free = free.iter().map(|r| r.int(0)).collect::<Result<Vec<_>>>()?;
    mark(session, &free).await
}

async fn states(session: &mut Session, ids: &[i64]) -> Result<Vec<OutboxState>> {
    let sql = "SELECT id, delivered_at FROM tg_outbox WHERE id IN ?";
    let mut found: Map<i64, OutboxState> = Map::default();
    for r in session.rows(sql, &[Value::Ints(ids)]).await? {
        let delivered = r.opt_int(1)?.is_some();
        found.insert(r.int(0)?, if delivered { OutboxState::Delivered } else { OutboxState::Waiting });
    }
    Ok(ids.iter().map(|id| found.get(id).copied().unwrap_or(OutboxState::Absent)).collect())
}

async fn replay(session: &mut Session, within: Duration, after: Option<ReplayPoint>, max: usize) -> Result<Replayed> {
    let since = before(instant(session).await?, within);
    // Without a point, after no row of that instant: ids are positive.
    let from = after.filter(|point| point.delivered_at >= since);
    let from = from.unwrap_or(ReplayPoint { delivered_at: since, id: 0 });
    let sql = format!(
        "SELECT {COLUMNS}, delivered_at FROM {} WHERE delivered_at >= ? AND (delivered_at > ? OR id > ?) \
        ORDER BY delivered_at, id LIMIT ?",
        delivered_table(session)
    );
    let at = Value::from(from.delivered_at);
    let rows = session.rows(&sql, &[at, at, from.id.into(), Value::from(max as i64)]).await?;
    let mut entries = Vec::with_capacity(rows.len());
    for r in &rows {
        entries.extend(entry(r)?.ok());
    }
    let last = rows.last().filter(|_| rows.len() == max);
    let point = |r: &Row| Ok::<_, Fault>(ReplayPoint { id: r.int(0)?, delivered_at: row::millis(r, 4)? });
    Ok(Replayed { entries, next: last.map(point).transpose()? })
}

async fn prune(session: &mut Session, keep: Duration) -> Result<bool> {
    session.begin(Isolation::Write).await?;
    let pruned = prune_free(session, keep).await;
    end(session, pruned).await
}

async fn prune_free(session: &mut Session, keep: Duration) -> Result<bool> {
    let old = before(instant(session).await?, keep);
    let sql = format!(
        "SELECT id FROM {} WHERE delivered_at < ? ORDER BY delivered_at LIMIT {MAX_PRUNED} FOR UPDATE SKIP LOCKED",
        delivered_table(session)
    );
    let found = session.rows(&sql, &[old.into()]).await?;
    let ids = found.iter().map(|r| r.int(0)).collect::<Result<Vec<_>>>()?;
    delete(session, &ids).await?;
    Ok(ids.len() == MAX_PRUNED)
}

async fn delete(session: &mut Session, ids: &[i64]) -> Result<()> {
    match session.dialect() {
        Dialect::Postgres if ids.is_empty() => Ok(()),
        Dialect::Postgres => {
            session.execute("DELETE FROM tg_outbox WHERE id IN ?", &[Value::Ints(ids)]).await.map(drop)
        }
        // A DELETE takes no index hint: for many ids of a short table it walks the table and waits for what relays have.
        Dialect::MySql => {
            for some in ids.chunks(MYSQL_DELETES) {
                let each = some.iter().map(|id| format!("DELETE FROM tg_outbox WHERE id = {id}"));
                session.script(&each.collect::<Vec<_>>().join(";")).await?;
            }
            Ok(())
        }
    }
}

async fn pending(session: &mut Session) -> Result<Pending> {
    let waiting = format!("FROM {} WHERE kind = 0 AND delivered_at IS NULL", waiting_table(session));
    let sql = format!(
        "SELECT (SELECT count(*) FROM (SELECT id {waiting} LIMIT {MAX_COUNTED}) w), \
        (SELECT committed_at {waiting} ORDER BY committed_at LIMIT 1), {}",
        instant_of(session)
    );
    let row = session.one(&sql, &[]).await?.ok_or_else(|| Fault::corrupt("a count of rows has no answer"))?;
    let now = row.int(2)?;
    let age = |at| Duration::from_millis(u64::try_from(now - at).unwrap_or(0));
    Ok(Pending { count: usize::try_from(row.int(0)?).unwrap_or(0), oldest: row.opt_int(1)?.map(age) })
}

fn before(now: Millis, ago: Duration) -> Millis {
    now.plus(-i64::try_from(ago.as_millis()).unwrap_or(i64::MAX))
}

/// Whoever has connections for it (`parts`): a ledger, or an outbox of a caller's own.
macro_rules! outbox {
    ($outbox:ty) => {
        impl Outbox for $outbox {
            fn relay<'a>(
                &'a self,
                max: usize,
                to: &'a dyn Deliver,
            ) -> BoxFuture<'a, tidegate_backend::Result<Relayed>> {
                Box::pin(async move {
                    let mut lease = self.parts()?.relays.get().await?;
                    Ok(relay(&mut lease, max.clamp(1, MAX_OUTBOX_BATCH), to).await?)
                })
            }

            fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, tidegate_backend::Result<()>> {
                Box::pin(async move {
                    check_ids(ids)?;
                    if ids.is_empty() {
                        return Ok(());
                    }
                    let mut lease = self.parts()?.writes.get().await?;
                    Ok(mark_delivered(&mut lease, ids).await?)
                })
            }

            fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, tidegate_backend::Result<Vec<OutboxState>>> {
                Box::pin(async move {
                    check_ids(ids)?;
                    let mut lease = self.parts()?.reads.get().await?;
                    Ok(states(&mut lease, ids).await?)
                })
            }

            fn replay(
                &self,
                within: Duration,
                after: Option<ReplayPoint>,
                max: usize,
            ) -> BoxFuture<'_, tidegate_backend::Result<Replayed>> {
                Box::pin(async move {
                    let mut lease = self.parts()?.reads.get().await?;
                    Ok(replay(&mut lease, within, after, max.clamp(1, MAX_OUTBOX_BATCH)).await?)
                })
            }

            fn prune(&self, keep: Duration) -> BoxFuture<'_, tidegate_backend::Result<bool>> {
                Box::pin(async move {
                    let mut lease = self.parts()?.writes.get().await?;
                    Ok(prune(&mut lease, keep).await?)
                })
            }

            fn pending(&self) -> BoxFuture<'_, tidegate_backend::Result<Pending>> {
                Box::pin(async move {
                    let mut lease = self.parts()?.reads.get().await?;
                    Ok(pending(&mut lease).await?)
                })
            }
        }
    };
}

outbox!(SqlLedger);
outbox!(SqlOutbox);
