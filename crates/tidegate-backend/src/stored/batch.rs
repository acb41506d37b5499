//! A batch around the rules: its bounds, where new ids come from, what its caller is told.

use tidegate_core::engine::{Changes, Rows, Source};
use tidegate_core::gate::Copy;
use tidegate_core::{Command, Map, Millis, Order, OrderId, OrderNo, RefundId, SkuId, Status};

use crate::ledger::{MAX_BATCH_COMMANDS, MAX_BATCH_LINES};
use crate::{Deadline, Error, ErrorKind, OutboxEntry, Result};

/// Most rounds of loading: an order names its SKUs, a SKU its counters, a key its order. More is a fault of the rules.
pub const MAX_ROUNDS: usize = 16;

/// Numbers orders from one after the last on; refunds get time-ordered random ids.
#[derive(Debug)]
pub struct Numbers {
    /// The number last given.
    pub last: i64,
}

impl Source for Numbers {
    fn order_no(&mut self) -> OrderNo {
        self.last += 1;
        OrderNo(self.last)
    }

    fn refund_id(&mut self) -> RefundId {
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid::Uuid::now_v7().hyphenated().encode_lower(&mut text);
        RefundId::parse(text).expect("a UUID is of the alphabet of order ids")
    }
}

/// Checks the number of commands and of the lines they place.
///
/// # Errors
/// [`ErrorKind::Command`]: smaller batches may work.
pub fn check_bounds(commands: &[Command]) -> Result<()> {
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
///
/// # Errors
/// [`ErrorKind::Command`]: smaller batches may work.
pub fn check_lines(rows: &Rows, commands: &[Command]) -> Result<()> {
    let orders = rows.ids.values().filter_map(|slot| slot.order.as_ref());
    let lines: usize = orders.map(|order| order.lines.len()).sum();
    if commands.len() > 1 && lines > MAX_BATCH_LINES {
        let context = format!("the orders of a batch have at most {MAX_BATCH_LINES} lines; split it");
        return Err(Error::new(ErrorKind::Command, context));
    }
    Ok(())
}

fn order<'a>(rows: &'a Rows, id: &OrderId) -> Option<&'a Order> {
    rows.ids.get(id)?.order.as_ref()
}

/// Every SKU that changed, as it is now.
#[must_use]
pub fn copies(rows: &Rows, changes: &Changes) -> Vec<(SkuId, Copy)> {
    let row = |id| rows.skus.get(id).and_then(Option::as_ref);
    changes.skus.iter().filter_map(|id| row(id).map(|sku| (id.clone(), Copy::from(sku)))).collect()
}

/// What the batch makes old in caches: one entry for each SKU whose card changed, with its newest version. `at` is the
/// store's real clock.
#[must_use]
pub fn outbox(rows: &Rows, changes: &Changes, at: Millis) -> Vec<OutboxEntry> {
    let row = |id| rows.skus.get(id).and_then(Option::as_ref);
    changes.cards.iter().filter_map(row).map(|sku| OutboxEntry::of_product(sku, at)).collect()
}

/// The deadlines that changed. One that moved is gone from its old instant before it is at the new one. `pending` has
/// the deadline of each order that was pending when it was loaded.
#[must_use]
pub fn deadlines(rows: &Rows, changes: &Changes, pending: &Map<OrderNo, Millis>) -> Vec<Deadline> {
    let mut deadlines = Vec::with_capacity(changes.new_orders.len() + changes.updated_orders.len());
    for id in changes.new_orders.iter().chain(&changes.updated_orders) {
        let Some(order) = order(rows, id) else { continue };
        let before: Option<Millis> = pending.get(&order.no).copied();
        let after = (order.state.status == Status::Pending).then_some(order.state.release_at);
        if before != after {
            deadlines.extend(before.map(|at| Deadline::Gone(order.no, at)));
            deadlines.extend(after.map(|at| Deadline::At(order.no, at)));
        }
    }
    // Off the parked list: to be acted on again. On it: no longer.
    for no in &changes.parked {
        let id = rows.numbers.get(no).and_then(Option::as_ref);
        let Some(order) = id.and_then(|id| order(rows, id)) else { continue };
        let listed = rows.parked.get(no).is_some_and(Option::is_some);
        match (order.state.status, listed) {
            (Status::Pending, false) => deadlines.push(Deadline::At(*no, order.state.release_at)),
            (Status::Pending, true) => deadlines.push(Deadline::Gone(*no, order.state.release_at)),
            _ => {}
        }
    }
    deadlines
}
