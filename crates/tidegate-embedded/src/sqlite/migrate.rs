//! The schema: numbered steps, each applied once in a transaction of its own and remembered with its checksum.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tidegate_backend::{Error, ErrorKind, Result};

use super::fault;

/// Marks a SQLite file as a Tidegate ledger ("TgLg").
const APPLICATION_ID: i32 = 0x5467_4c67;

/// Every step, in order; its version is its place from 1. A step that was released is never edited.
const STEPS: [&str; 2] =
    [include_str!("../../migrations/0001_orders.sql"), include_str!("../../migrations/0002_outbox.sql")];

/// The newest schema this build knows.
pub(super) const NEWEST: i64 = STEPS.len() as i64;

/// Brings the file up to [`NEWEST`].
///
/// # Errors
/// [`ErrorKind::NewerSchema`] when it is past that, [`ErrorKind::Configuration`] when the file is another program's,
/// [`ErrorKind::Corrupt`] when a step was applied in another wording.
pub(super) fn run(conn: &mut Connection) -> Result<()> {
    claim_file(conn)?;
    let applied = applied(conn)?;
    if applied > NEWEST {
        let context = format!(
            "the ledger has schema {applied} and this Tidegate knows schemas up to {NEWEST}; start the newer Tidegate that wrote it, or restore a backup from before the upgrade"
        );
        return Err(Error::new(ErrorKind::NewerSchema, context));
    }
    for (version, step) in (1..).zip(STEPS).skip(usize::try_from(applied).unwrap_or(0)) {
        apply(conn, version, step).map_err(fault::writing)?;
    }
    Ok(())
}

/// What a SQLite file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Ledger,
    Empty,
    Foreign,
}

/// Looks what the file is.
pub(super) fn kind(conn: &Connection) -> rusqlite::Result<Kind> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |r| r.get(0))?;
    if id == APPLICATION_ID {
        return Ok(Kind::Ledger);
    }
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    Ok(if id != 0 || tables != 0 { Kind::Foreign } else { Kind::Empty })
}

/// Why a file that is another program's is refused.
pub(super) fn foreign() -> Error {
    let text = "the file is a SQLite database of another program, not a Tidegate ledger; name another file";
    Error::new(ErrorKind::Configuration, text)
}

/// Checks that the file is ours, or empty and now ours.
fn claim_file(conn: &Connection) -> Result<()> {
    match kind(conn).map_err(fault::reading)? {
        Kind::Ledger => Ok(()),
        Kind::Foreign => Err(foreign()),
        Kind::Empty => conn.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault::writing),
    }
}

fn applied(conn: &Connection) -> Result<i64> {
    let read = || {
        conn.execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_steps (version INTEGER PRIMARY KEY, checksum INTEGER NOT NULL)",
        )?;
        let mut steps = conn.prepare("SELECT version, checksum FROM schema_steps ORDER BY version")?;
        steps.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
    };
    let steps = read().map_err(fault::writing)?;
    for (version, sum) in &steps {
        let ours = usize::try_from(version - 1).ok().and_then(|i| STEPS.get(i));
        if ours.is_some_and(|text| checksum(text) != *sum) {
            let context = format!(
                "schema step {version} was applied to the ledger in another wording than this Tidegate has; it comes from another build"
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
