//! The schema: numbered steps, each applied once in a transaction of its own and remembered with its checksum.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tidegate_backend::{Error, ErrorKind, Result};

use super::fault;

/// What a file of ours is.
#[derive(Debug)]
pub(super) struct Schema {
    /// For messages.
    pub what: &'static str,
    /// Marks the file.
    application_id: i32,
    /// Every step, in order; its version is its place from 1. A step that was released is never edited.
    steps: &'static [&'static str],
}

/// A ledger ("TgLg").
pub(super) const LEDGER: Schema = Schema {
    what: "ledger",
    application_id: 0x5467_4c67,
    steps: &[
        include_str!("../../migrations/0001_orders.sql"),
        include_str!("../../migrations/0002_outbox.sql"),
        include_str!("../../migrations/0003_fences.sql"),
        include_str!("../../migrations/0004_feed.sql"),
    ],
};

/// A file of delayed tasks ("TgQu").
pub(super) const QUEUES: Schema = Schema {
    what: "queue file",
    application_id: 0x5467_5175,
    steps: &[include_str!("../../migrations/queue/0001_tasks.sql")],
};

/// Brings the file up to the newest step of `schema`.
///
/// # Errors
/// [`ErrorKind::NewerSchema`] when it is past that, [`ErrorKind::Configuration`] when the file is another program's,
/// [`ErrorKind::Corrupt`] when a step was applied in another wording.
pub(super) fn run(conn: &mut Connection, schema: &Schema) -> Result<()> {
    claim_file(conn, schema)?;
    let (applied, newest, what) = (applied(conn, schema)?, schema.steps.len() as i64, schema.what);
    if applied > newest {
        let context = format!(
            "the {what} has schema {applied} and this Tidegate knows schemas up to {newest}; start the newer Tidegate that wrote it, or restore a backup from before the upgrade"
        );
        return Err(Error::new(ErrorKind::NewerSchema, context));
    }
    for (version, step) in (1..).zip(schema.steps).skip(usize::try_from(applied).unwrap_or(0)) {
        apply(conn, version, step).map_err(|e| fault::writing_of(what, e))?;
    }
    Ok(())
}

/// What a SQLite file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ours,
    Empty,
    Foreign,
}

/// Looks what the file is.
pub(super) fn kind(conn: &Connection, schema: &Schema) -> rusqlite::Result<Kind> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |r| r.get(0))?;
    if id == schema.application_id {
        return Ok(Kind::Ours);
    }
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    Ok(if id != 0 || tables != 0 { Kind::Foreign } else { Kind::Empty })
}

/// Why a file that is another program's is refused.
pub(super) fn foreign(schema: &Schema) -> Error {
    let text =
        format!("the file is a SQLite database of another program, not a Tidegate {}; name another file", schema.what);
    Error::new(ErrorKind::Configuration, text)
}

/// Checks that the file is ours, or empty and now ours.
fn claim_file(conn: &Connection, schema: &Schema) -> Result<()> {
    match kind(conn, schema).map_err(|e| fault::reading_of(schema.what, e))? {
        Kind::Ours => Ok(()),
        Kind::Foreign => Err(foreign(schema)),
        Kind::Empty => conn
            .pragma_update(None, "application_id", schema.application_id)
            .map_err(|e| fault::writing_of(schema.what, e)),
    }
}

fn applied(conn: &Connection, schema: &Schema) -> Result<i64> {
    let read = || {
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_steps (version INTEGER PRIMARY KEY, checksum INTEGER NOT NULL)",
        )?;
        let mut steps = conn.prepare("SELECT version, checksum FROM schema_steps ORDER BY version")?;
        steps.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
    };
    let steps = read().map_err(|e| fault::writing_of(schema.what, e))?;
    for (version, sum) in &steps {
        let ours = usize::try_from(version - 1).ok().and_then(|i| schema.steps.get(i));
        if ours.is_some_and(|text| checksum(text) != *sum) {
            let context = format!(
                "schema step {version} was applied to the {} in another wording than this Tidegate has; it comes from another build",
                schema.what
            );
            return Err(Error::new(ErrorKind::Corrupt, context));
        }
    }
    Ok(steps.last().map_or(0, |(version, _)| *version))
}

fn apply(conn: &mut Connection, version: i64, step: &str) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been quicker between the look and the lock; the lock file makes that a mere belt.
    let there = tx.query_row("SELECT 1 FROM schema_steps WHERE version = ?1", [version], |_| Ok(())).optional()?;
    if there.is_none() {
        tx.execute_batch(step)?;
        tx.execute("INSERT INTO schema_steps (version, checksum) VALUES (?1, ?2)", (version, checksum(step)))?;
    }
    tx.commit()
}

/// FNV-1a: tells edited steps apart; nobody gains by forging one.
fn checksum(text: &str) -> i64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    hash.cast_signed()
}
