//! Small writes that are no commands: pruning, the manual clock, the write probe.

use tidegate_backend::{Error, ErrorKind, LedgerId};
use tidegate_core::Millis;

use crate::clock::{MANUAL_CLOCK, instant_of};
use crate::fault::{Class, Fault, Result};
use crate::session::{Isolation, Session};
use crate::value::Value;
use crate::write;

/// The name of the ledger's own number in `meta`.
const LEDGER_ID: &str = "ledger_id";
/// Most rows of each kind one call of `prune` deletes.
const PRUNE_ROWS: i64 = 2_000;
/// How long a batch's own row is kept: an uncertain COMMIT is settled within seconds.
const BATCH_KEPT_MS: i64 = 3_600_000;

/// Deletes old tombstones, request keys and batch rows. True when more may be left.
///
/// Rows that a batch has locked are left for the next call.
pub(crate) async fn prune(session: &mut Session, tombstones: Millis, keys: Millis) -> Result<bool> {
    session.begin(Isolation::Write).await?;
    let pruned = prune_all(session, tombstones, keys).await;
    end(session, pruned).await
}

/// Ends a transaction: with a commit, or after a fault without.
pub(crate) async fn end<T>(session: &mut Session, result: Result<T>) -> Result<T> {
    match result {
        Ok(value) => session.commit().await.map(|()| value),
        Err(fault) => {
            // A connection that cannot even roll back is closed, which does it.
            let _ = session.rollback().await;
            Err(fault)
        }
    }
}

async fn prune_all(session: &mut Session, tombstones: Millis, keys: Millis) -> Result<bool> {
    let ended = prune_tombstones(session, tombstones).await?;
    let forgotten = prune_keys(session, keys).await?;
    let batches = prune_batches(session).await?;
    Ok([ended, forgotten, batches].iter().any(|n| *n as i64 == PRUNE_ROWS))
}

async fn prune_tombstones(session: &mut Session, before: Millis) -> Result<usize> {
    let sql = format!(
        "SELECT id FROM order_ids WHERE tombstone_at IS NOT NULL AND tombstone_at < ?
        ORDER BY tombstone_at LIMIT {PRUNE_ROWS} FOR UPDATE SKIP LOCKED"
    );
    let found = session.rows(&sql, &[before.into()]).await?;
    let ids = found.iter().map(|r| r.bytes(0)).collect::<Result<Vec<_>>>()?;
    if !ids.is_empty() {
        // An id with money that waits keeps its row, without the tombstone.
        let sql = "UPDATE order_ids SET tombstone_at = NULL WHERE id IN ? AND loose > 0";
        session.execute(sql, &[Value::Blobs(&ids)]).await?;
        let sql = "DELETE FROM order_ids WHERE id IN ? AND loose = 0 AND order_no IS NULL";
        session.execute(sql, &[Value::Blobs(&ids)]).await?;
    }
    Ok(ids.len())
}

async fn prune_keys(session: &mut Session, before: Millis) -> Result<usize> {
    let sql = format!(
        "SELECT scope, request_key FROM request_keys WHERE at < ? ORDER BY at LIMIT {PRUNE_ROWS} FOR UPDATE SKIP LOCKED"
    );
    let found = session.rows(&sql, &[before.into()]).await?;
    let mut rows = found.iter().map(|r| Ok((r.int(0)?, r.bytes(1)?))).collect::<Result<Vec<_>>>()?;
    rows.sort_unstable();
    for of_scope in rows.chunk_by(|a, b| a.0 == b.0) {
        let keys: Vec<&[u8]> = of_scope.iter().map(|(_, key)| *key).collect();
        let sql = "DELETE FROM request_keys WHERE scope = ? AND request_key IN ?";
        session.execute(sql, &[of_scope[0].0.into(), Value::Blobs(&keys)]).await?;
    }
    Ok(rows.len())
}

async fn prune_batches(session: &mut Session) -> Result<usize> {
    // Oldest first by number, so that this looks at no more rows than it may delete.
    let sql = format!(
        "SELECT batch_no, at < {} - {BATCH_KEPT_MS} FROM batches ORDER BY batch_no LIMIT {PRUNE_ROWS}",
        instant_of(session)
    );
    let mut old = Vec::new();
    for r in session.rows(&sql, &[]).await? {
        if r.int(1)? != 0 {
            old.push(r.int(0)?);
        }
    }
    if !old.is_empty() {
        session.execute("DELETE FROM batches WHERE batch_no IN ?", &[Value::Ints(&old)]).await?;
    }
    Ok(old.len())
}

/// The server's instant, also where the ledger's clock stands still.
pub(crate) async fn instant(session: &mut Session) -> Result<Millis> {
    let row = session.one(&format!("SELECT {}", instant_of(session)), &[]).await?;
    row.ok_or_else(|| Fault::corrupt("the server does not tell its time"))?.int(0).map(Millis)
}

/// Moves the manual clock of the ledger by `ms`; gives the instant it shows now.
pub(crate) async fn advance(session: &mut Session, ms: i64) -> Result<Millis> {
    session.begin(Isolation::Write).await?;
    let moved = move_clock(session, ms).await;
    end(session, moved).await
}

async fn move_clock(session: &mut Session, ms: i64) -> Result<Millis> {
    let row = session.one("SELECT value FROM meta WHERE name = ? FOR UPDATE", &[MANUAL_CLOCK.into()]).await?;
    let row = row.ok_or_else(|| Fault::corrupt("the row of the manual clock is gone"))?;
    let at = Millis(row.int(0)?).plus(ms);
    if at > Millis::MAX {
        let text = "the clock cannot go beyond the year 9999; advance it by less";
        return Err(Fault::new(Class::Configuration, text));
    }
    session.execute("UPDATE meta SET value = ? WHERE name = ?", &[at.into(), MANUAL_CLOCK.into()]).await?;
    Ok(at)
}

/// Settles which kind of clock the ledger has; gives the instant of a manual one.
pub(crate) async fn manual_clock(
    session: &mut Session,
    wanted: Option<bool>,
) -> std::result::Result<Option<Millis>, Error> {
    let stored = stored_clock(session).await?;
    match (wanted, stored) {
        (Some(true), None) => {}
        (Some(false), Some(_)) => {
            let text = "the ledger has a manual clock; start with --manual-clock, or name another database";
            return Err(Error::new(ErrorKind::Configuration, text));
        }
        _ => return Ok(stored),
    }
    let used = "SELECT 1 FROM counters WHERE newest > 0 UNION ALL SELECT 1 FROM (SELECT sku_no FROM skus LIMIT 1) s";
    let used =
        session.one(&format!("{used} UNION ALL SELECT 1 FROM (SELECT id FROM order_ids LIMIT 1) i"), &[]).await?;
    if used.is_some() {
        let text = "the ledger was made without a manual clock and has orders or stock; start without --manual-clock, or name another database";
        return Err(Error::new(ErrorKind::Configuration, text));
    }
    let instant = instant_of(session);
    let sql = format!("INSERT INTO meta (name, value) VALUES (?, {instant})");
    match session.execute(&sql, &[MANUAL_CLOCK.into()]).await {
        Ok(_) => {}
        // Another node was quicker.
        Err(fault) if fault.class == Class::Unique => {}
        Err(fault) => return Err(fault.into()),
    }
    Ok(stored_clock(session).await?)
}

async fn stored_clock(session: &mut Session) -> Result<Option<Millis>> {
    Ok(meta(session, MANUAL_CLOCK).await?.map(Millis))
}

async fn meta(session: &mut Session, name: &str) -> Result<Option<i64>> {
    let row = session.one("SELECT value FROM meta WHERE name = ?", &[name.into()]).await?;
    row.map(|r| r.int(0)).transpose()
}

/// The ledger's number, made when it has none.
pub(crate) async fn ledger_id(session: &mut Session) -> Result<LedgerId> {
    if let Some(id) = meta(session, LEDGER_ID).await? {
        return Ok(LedgerId(id.cast_unsigned()));
    }
    let (id, _) = uuid::Uuid::new_v4().as_u64_pair();
    let sql = "INSERT INTO meta (name, value) VALUES (?, ?)";
    match session.execute(sql, &[LEDGER_ID.into(), id.cast_signed().into()]).await {
        Ok(_) => {}
        // Another node was quicker: its number is the ledger's.
        Err(fault) if fault.class == Class::Unique => {}
        Err(fault) => return Err(fault),
    }
    let id = meta(session, LEDGER_ID).await?.ok_or_else(|| Fault::corrupt("the row of the ledger's number is gone"))?;
    Ok(LedgerId(id.cast_unsigned()))
}

/// Writes and commits one row, as a commit would.
pub(crate) async fn probe_write(session: &mut Session) -> Result<()> {
    session.begin(Isolation::Write).await?;
    let written = write::begin_batch(session, uuid::Uuid::new_v4().as_bytes()).await;
    end(session, written).await.map(|_| ())
}
