//! The one writer: a batch is loaded, decided, written and committed on its connection.

use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};
use tidegate_backend::ledger::{MAX_BATCH_COMMANDS, MAX_BATCH_LINES};
use tidegate_backend::{Clock, Commit, Deadline, Error, ErrorKind, Result};
use tidegate_core::engine::{self, Changes, Source};
use tidegate_core::gate::Copy;
use tidegate_core::{Command, Millis, OrderNo, RefundId, Settings, Status};

use super::buyers::{self, Buyers};
use super::checkpoint::Dirty;
use super::load::Loaded;
use super::write::Batch;
use super::{events, fault, row};

/// Most rounds of loading: an order names its SKUs, a SKU its counters, a key its order. More is a fault of the rules.
const MAX_ROUNDS: usize = 16;

/// The writer's connection and what it knows by heart.
pub(super) struct Writer {
    pub conn: Connection,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
    pub dirty: Arc<Dirty>,
    pub buyers: Arc<Buyers>,
    /// The numbers last given; forgotten after a failed batch and read again.
    pub last: Option<Last>,
}

/// The numbers of the newest order and event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    order: i64,
    cursor: i64,
}

struct Numbers(i64);

impl Source for Numbers {
    fn order_no(&mut self) -> OrderNo {
        self.0 += 1;
        OrderNo(self.0)
    }

    fn refund_id(&mut self) -> RefundId {
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid::Uuid::now_v7().hyphenated().encode_lower(&mut text);
        RefundId::parse(text).expect("a UUID is of the alphabet of order ids")
    }
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
        check_lines(&loaded, commands)?;
        let now = self.clock.now();
        let mut numbers = Numbers(last.order);
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
            });
        }
        Batch { conn: &tx, loaded: &mut loaded, changes, now, cursor: last.cursor + 1 }
            .write()
            .map_err(fault::writing)?;
        let merged = self.buyers.merge(&tx, changes.new_orders.len()).map_err(fault::writing)?;
        tx.commit().map_err(fault::writing)?;
        self.buyers.committed(merged, new_entries(&loaded, changes));
        self.dirty.mark();
        let cursor = last.cursor + changes.events.len() as i64;
        self.last = Some(Last { order: numbers.0, cursor });
        Ok(Commit {
            now,
            copies: copies(&loaded, changes),
            deadlines: deadlines(&loaded, changes),
            last_cursor: (!changes.events.is_empty()).then_some(cursor),
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

fn check_bounds(commands: &[Command]) -> Result<()> {
    let lines = |c: &Command| if let Command::Place(p) = c { p.lines.len() } else { 0 };
    let lines: usize = commands.iter().map(lines).sum();
    if commands.len() > MAX_BATCH_COMMANDS || lines > MAX_BATCH_LINES {
        let context =
            format!("a batch has at most {MAX_BATCH_COMMANDS} commands and {MAX_BATCH_LINES} lines; split it");
        return Err(Error::new(ErrorKind::Command, context));
    }
    Ok(())
}

/// The lines of the orders a batch has loaded count as well as those it places: all of them may have to be written.
fn check_lines(loaded: &Loaded, commands: &[Command]) -> Result<()> {
    let orders = loaded.rows.ids.values().filter_map(|slot| slot.order.as_ref());
    let lines: usize = orders.map(|order| order.lines.len()).sum();
    if commands.len() > 1 && lines > MAX_BATCH_LINES {
        let context = format!("the orders of a batch have at most {MAX_BATCH_LINES} lines; split it");
        return Err(Error::new(ErrorKind::Command, context));
    }
    Ok(())
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

fn copies(loaded: &Loaded, changes: &Changes) -> Vec<(tidegate_core::SkuId, Copy)> {
    let row = |id| loaded.rows.skus.get(id).and_then(Option::as_ref);
    changes.skus.iter().filter_map(|id| row(id).map(|sku| (id.clone(), Copy::from(sku)))).collect()
}

/// The deadlines that changed. One that moved is gone from its old instant before it is at the new one.
fn deadlines(loaded: &Loaded, changes: &Changes) -> Vec<Deadline> {
    let mut deadlines = Vec::with_capacity(changes.new_orders.len() + changes.updated_orders.len());
    for id in changes.new_orders.iter().chain(&changes.updated_orders) {
        let Some(order) = loaded.rows.ids.get(id).and_then(|slot| slot.order.as_ref()) else { continue };
        let before: Option<Millis> = loaded.pending.get(&order.no).copied();
        let after = (order.state.status == Status::Pending).then_some(order.state.release_at);
        if before != after {
            deadlines.extend(before.map(|at| Deadline::Gone(order.no, at)));
            deadlines.extend(after.map(|at| Deadline::At(order.no, at)));
        }
    }
    // Off the parked list: to be acted on again. On it: no longer.
    for no in &changes.parked {
        let id = loaded.rows.numbers.get(no).and_then(Option::as_ref);
        let Some(order) = id.and_then(|id| loaded.rows.ids.get(id)).and_then(|slot| slot.order.as_ref()) else {
            continue;
        };
        let listed = loaded.rows.parked.get(no).is_some_and(Option::is_some);
        match (order.state.status, listed) {
            (Status::Pending, false) => deadlines.push(Deadline::At(*no, order.state.release_at)),
            (Status::Pending, true) => deadlines.push(Deadline::Gone(*no, order.state.release_at)),
            _ => {}
        }
    }
    deadlines
}
