//! The write path: a batch is locked, loaded, decided, written and committed on one connection.
//!
//! - here: one attempt, and what is tried again. `settle.rs`: a COMMIT whose answer was lost.
//! - `load.rs`: rows, locked in one order. `store.rs`, `rows.rs`, `tables.rs`: what changed, table by table.
//! - `ceiling.rs` (feature `ceiling`): what the bench compares with.

#[cfg(feature = "ceiling")]
pub(crate) mod ceiling;
mod load;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod looks;
mod rows;
mod settle;
mod store;
mod tables;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests;

use std::time::Duration;

use tidegate_backend::stored::batch::{self, MAX_ROUNDS, Numbers, check_bounds, check_lines};
use tidegate_backend::{Commit, OutboxEntry, Result};
use tidegate_core::engine::{self, Changes};
use tidegate_core::{Command, Millis};

use crate::fault::{self, Class, Fault};
use crate::open::Parts;
use crate::session::{Isolation, Session};
use crate::{outbox, upkeep};
use load::Loaded;
use settle::Settled;
use store::Store;

/// Order numbers a batch may give: its own number times this, and on.
const ORDERS_A_BATCH: i64 = tidegate_backend::ledger::MAX_BATCH_COMMANDS as i64;
/// Tries of a batch that met another one's locks.
const BUSY_TRIES: u32 = 12;
/// Tries of a batch that found a key taken after it had looked.
const UNIQUE_TRIES: u32 = 6;
/// Tries of a batch that waited too long for a lock.
const LOCK_TRIES: u32 = 2;
/// Tries of a batch whose connection was lost before its COMMIT: the first may have been closed while it was idle.
const LOST_TRIES: u32 = 2;
/// Longest pause before a batch is tried again.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Decides and writes one batch; durable when this returns.
pub(crate) async fn commit(parts: &Parts, commands: &[Command]) -> Result<Commit> {
    check_bounds(commands)?;
    let mut tries = Tries::default();
    loop {
        let fault = match attempt(parts, commands).await {
            Ok(commit) => return Ok(commit),
            Err(fault) => fault,
        };
        if !tries.again(fault.class) {
            return Err(fault.into());
        }
        metrics::counter!("tidegate_sql_retries_total", "reason" => fault.class.name()).increment(1);
        tracing::debug!(fault = %fault, "a batch is tried again");
        if fault.class == Class::Lost {
            parts.writes.forget_idle();
        }
        tokio::time::sleep(tries.pause()).await;
    }
}

/// How often a batch, or a step of a queue, failed, and for what.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    busy: u32,
    unique: u32,
    lock: u32,
    lost: u32,
}

impl Tries {
    /// Counts a failure; whether the batch may be tried again.
    pub(crate) fn again(&mut self, class: Class) -> bool {
        let (count, most) = match class {
            Class::Deadlock => (&mut self.busy, BUSY_TRIES),
            Class::Unique => (&mut self.unique, UNIQUE_TRIES),
            Class::LockTimeout => (&mut self.lock, LOCK_TRIES),
            Class::Lost => (&mut self.lost, LOST_TRIES),
            Class::Unavailable | Class::Configuration | Class::Data | Class::Corrupt => return false,
        };
        *count += 1;
        *count < most
    }

    /// Grows with the failures; a random part keeps two batches from meeting again.
    pub(crate) fn pause(&self) -> Duration {
        let failures = (self.busy + self.unique + self.lock + self.lost).min(8);
        let most = LONGEST_PAUSE.min(Duration::from_millis(1 << failures));
        let random = u32::from(uuid::Uuid::new_v4().as_bytes()[0]);
        most * (random + 1) / 256
    }
}

/// A batch that is decided and written, not yet committed.
struct Written {
    commit: Commit,
    /// Whether its answers rest on it: false when it changed nothing and refused everything.
    durable: bool,
}

/// One try, from the beginning.
async fn attempt(parts: &Parts, commands: &[Command]) -> fault::Result<Commit> {
    let batch_id = *uuid::Uuid::new_v4().as_bytes();
    let mut lease = parts.writes.get().await?;
    let session: &mut Session = &mut lease;
    session.begin(Isolation::Write).await?;
    let written = match write(parts, session, &batch_id, commands).await {
        Ok(written) => written,
        Err(fault) => {
            // A connection that cannot even roll back is closed, which does it.
            let _ = session.rollback().await;
            return Err(fault);
        }
    };
    if !written.durable {
        session.rollback().await?;
        return Ok(written.commit);
    }
    let Err(fault) = session.commit().await else { return Ok(written.commit) };
    drop(lease);
    match settle::settle(parts, &batch_id, &fault).await? {
        Settled::Committed => Ok(written.commit),
        Settled::RolledBack => Err(Fault::new(Class::Lost, "the connection was lost while committing")),
    }
}

async fn write(
    parts: &Parts,
    session: &mut Session,
    batch_id: &[u8; 16],
    commands: &[Command],
) -> fault::Result<Written> {
    let batch_no = begin_batch(session, batch_id).await?;
    let mut loaded = Loaded::new(commands);
    load_all(session, &mut loaded, commands).await?;
    check_lines(&loaded.rows, commands)?;
    let now = parts.clock.read(session).await?;
    let mut numbers = Numbers { last: batch_no * ORDERS_A_BATCH - 1 };
    let decided = engine::decide(&mut loaded.rows, commands, now, &parts.settings, &mut numbers);
    let changes = &decided.changes;
    if changes.is_empty() {
        // An answer about what another batch wrote must not be given before that is on disk. Where commits become visible
        // a moment earlier (InnoDB), committing this one waits for both.
        let durable = decided.verdicts.iter().any(std::result::Result::is_ok);
        let commit = Commit {
            now,
            verdicts: decided.verdicts,
            copies: Vec::new(),
            deadlines: Vec::new(),
            last_cursor: None,
            outbox: Vec::new(),
        };
        return Ok(Written { commit, durable });
    }
    let entries = outbox_of(parts, session, &loaded, changes, now).await?;
    outbox::insert(session, &entries).await?;
    let last_cursor = Store { session, loaded: &mut loaded, changes, now }.write().await?;
    let commit = Commit {
        now,
        copies: batch::copies(&loaded.rows, changes),
        deadlines: batch::deadlines(&loaded.rows, changes, &loaded.pending),
        last_cursor,
        outbox: entries,
        verdicts: decided.verdicts,
    };
    Ok(Written { commit, durable: true })
}

/// What the batch makes old in caches, as of the server's clock.
async fn outbox_of(
    parts: &Parts,
    session: &mut Session,
    loaded: &Loaded,
    changes: &Changes,
    now: Millis,
) -> fault::Result<Vec<OutboxEntry>> {
    if changes.cards.is_empty() {
        return Ok(Vec::new());
    }
    let at = if parts.clock.is_manual() { upkeep::instant(session).await? } else { now };
    Ok(batch::outbox(&loaded.rows, changes, at))
}

/// Inserts the batch's own row; gives its number.
pub(crate) async fn begin_batch(session: &mut Session, batch_id: &[u8; 16]) -> fault::Result<i64> {
    let instant = crate::clock::instant_of(session);
    let values = [batch_id.as_slice().into()];
    match session.dialect() {
        crate::dialect::Dialect::MySql => {
            let sql = format!("INSERT INTO batches (batch_id, at) VALUES (?, {instant})");
            let number = session.execute(&sql, &values).await?;
            i64::try_from(number).map_err(|_| Fault::corrupt("the batch numbers have run out"))
        }
        crate::dialect::Dialect::Postgres => {
            let sql = format!("INSERT INTO batches (batch_id, at) VALUES (?, {instant}) RETURNING batch_no");
            let row = session.one(&sql, &values).await?;
            row.ok_or_else(|| Fault::corrupt("a batch got no number"))?.int(0)
        }
    }
}

async fn load_all(session: &mut Session, loaded: &mut Loaded, commands: &[Command]) -> fault::Result<()> {
    let mut more = load::peek(session, commands).await?;
    for _ in 0..MAX_ROUNDS {
        let keys = engine::missing(commands, &loaded.rows);
        if keys.is_empty() {
            return Ok(());
        }
        loaded.load(session, keys, std::mem::take(&mut more)).await?;
    }
    Err(Fault::new(Class::Data, format!("the batch still lacks rows after {MAX_ROUNDS} rounds of loading")))
}
