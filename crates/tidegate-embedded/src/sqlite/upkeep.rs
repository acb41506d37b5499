//! Small writes that are no commands: pruning, the manual clock, the write probe.

use rusqlite::{Connection, Result};
use tidegate_core::Millis;

use super::open::{LAST_CLOCK, MANUAL_CLOCK};

/// Most rows of each kind one call of `prune` deletes: some milliseconds of the writer's time.
const PRUNE_ROWS: i64 = 2_000;

/// Deletes old tombstones and request keys. True when more may be left.
pub(super) fn prune(conn: &Connection, tombstones: Millis, keys: Millis) -> Result<bool> {
    // An id with money that waits keeps its row, without the tombstone.
    let sql = "UPDATE order_ids SET tombstone_at = NULL WHERE id IN \
        (SELECT id FROM order_ids WHERE tombstone_at IS NOT NULL AND tombstone_at < ?1 AND loose > 0 LIMIT ?2)";
    let freed = conn.prepare_cached(sql)?.execute((tombstones.0, PRUNE_ROWS))?;
    let sql = "DELETE FROM order_ids WHERE id IN \
        (SELECT id FROM order_ids WHERE tombstone_at IS NOT NULL AND tombstone_at < ?1 AND loose = 0 LIMIT ?2)";
    let deleted = conn.prepare_cached(sql)?.execute((tombstones.0, PRUNE_ROWS))?;
    let sql =
        "DELETE FROM request_keys WHERE (scope, key) IN (SELECT scope, key FROM request_keys WHERE at < ?1 LIMIT ?2)";
    let forgotten = conn.prepare_cached(sql)?.execute((keys.0, PRUNE_ROWS))?;
    Ok([freed, deleted, forgotten].iter().any(|n| *n as i64 == PRUNE_ROWS))
}

/// Stores the manual clock's new value.
pub(super) fn store_manual_clock(conn: &Connection, at: Millis) -> Result<()> {
    conn.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?.execute((MANUAL_CLOCK, at.0))?;
    Ok(())
}

/// Keeps the instant the clock last showed.
pub(super) fn store_last_clock(conn: &Connection, at: Millis) -> Result<()> {
    let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    conn.prepare_cached(sql)?.execute((LAST_CLOCK, at.0))?;
    Ok(())
}

/// Writes and commits one row, as a commit would.
pub(super) fn probe_write(conn: &Connection) -> Result<()> {
    let sql =
        "INSERT INTO meta (key, value) VALUES ('write_probe', 1) ON CONFLICT (key) DO UPDATE SET value = value + 1";
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}
