//! The one writer: a batch is loaded, decided, written and committed on its connection.

use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};
use tidegate_backend::stored::batch::{self, MAX_ROUNDS, Numbers, check_bounds, check_lines};
use tidegate_backend::{Clock, Commit, Error, ErrorKind, Result};
use tidegate_core::engine::{self, Changes};
use tidegate_core::{Command, Settings};

use super::buyers::{self, Buyers};
use super::checkpoint::{Dirty, Writes};
use super::load::Loaded;
use super::write::Batch;
use super::{events, fault, outbox, row};

/// The writer's connection and what it knows by heart.
pub(super) struct Writer {
    pub conn: Connection,
    pub clock: Arc<dyn Clock>,
    pub real_clock: Arc<dyn Clock>,
    pub settings: Settings,
    /// Most users that one follows.
    pub max_followees: usize,
    pub dirty: Arc<Dirty>,
    pub buyers: Arc<Buyers>,
    /// The numbers last given; forgotten after a failed batch and read again.
    pub last: Option<Last>,
}

impl Writes for Writer {
    fn connection(&self) -> &Connection {
        &self.conn
    }
}

/// The numbers of the newest order and event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    order: i64,
    cursor: i64,
}

impl Writer {
    /// Decides and writes one batch; durable when this returns.
    pub(super) fn commit(&mut self, commands: &[Command]) -> Result<Commit> {
        check_bounds(commands)?;
        // Taken out: whatever fails or panics below leaves the numbers to be read again.
        let last = self.last.take();
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault::writing)?;
        let last = match last {
            Some(last) => last,
            None => read_last(&tx).map_err(fault::writing)?,
        };
        let mut loaded = Loaded::default();
        load_all(&tx, &mut loaded, commands)?;
        check_lines(&loaded.rows, commands)?;
        let now = self.clock.now();
        let mut numbers = Numbers { last: last.order };
        let decided = engine::decide(&mut loaded.rows, commands, now, &self.settings, &mut numbers);
        let changes = &decided.changes;
        if changes.is_empty() {
            tx.commit().map_err(fault::writing)?;
            self.last = Some(last);
            return Ok(Commit {
                now,
                verdicts: decided.verdicts,
                copies: Vec::new(),
                deadlines: Vec::new(),
                last_cursor: None,
                outbox: Vec::new(),
            });
        }
        Batch { conn: &tx, loaded: &mut loaded, changes, now, cursor: last.cursor + 1 }
            .write()
            .map_err(fault::writing)?;
        let entries = batch::outbox(&loaded.rows, changes, self.real_clock.now());
        outbox::insert(&tx, &entries).map_err(fault::writing)?;
        let merged = self.buyers.merge(&tx, changes.new_orders.len()).map_err(fault::writing)?;
        tx.commit().map_err(fault::writing)?;
        self.buyers.committed(merged, new_entries(&loaded, changes));
        self.dirty.mark();
        let cursor = last.cursor + changes.events.len() as i64;
        self.last = Some(Last { order: numbers.last, cursor });
        Ok(Commit {
            now,
            copies: batch::copies(&loaded.rows, changes),
            deadlines: batch::deadlines(&loaded.rows, changes, &loaded.pending),
            last_cursor: (!changes.events.is_empty()).then_some(cursor),
            outbox: entries,
            verdicts: decided.verdicts,
        })
    }

    /// Runs `change` in a transaction of its own.
    pub(super) fn transact<T>(&mut self, change: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let run = |conn: &mut Connection| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = change(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        let value = run(&mut self.conn).map_err(fault::writing)?;
        self.dirty.mark();
        Ok(value)
    }
}

fn load_all(conn: &Connection, loaded: &mut Loaded, commands: &[Command]) -> Result<()> {
    for _ in 0..MAX_ROUNDS {
        let keys = engine::missing(commands, &loaded.rows);
        if keys.is_empty() {
            return Ok(());
        }
        loaded.load(conn, keys).map_err(fault::writing)?;
    }
    Err(Error::new(ErrorKind::Command, format!("the batch still lacks rows after {MAX_ROUNDS} rounds of loading")))
}

fn read_last(conn: &Connection) -> rusqlite::Result<Last> {
    let order = row::one(conn, "SELECT coalesce(max(order_no), 0) FROM orders", [])?.unwrap_or(0);
    Ok(Last { order, cursor: events::newest_cursor(conn)? })
}

fn new_entries<'a>(loaded: &'a Loaded, changes: &'a Changes) -> impl Iterator<Item = (i64, i64)> + 'a {
    let order = |id| loaded.rows.ids.get(id).and_then(|slot| slot.order.as_ref());
    changes.new_orders.iter().filter_map(order).map(|order| (buyers::hash(&order.buyer_id), order.no.0))
}
