//! Overdue orders straight from the ledger, past the deadline index: while the index cannot be used, and for orders it
//! holds but nobody hands out. The ledger decides again from each row, so nodes that meet on one order do no harm; they
//! take the parts of a page in an order of their own, so that they seldom do.

use std::time::{Duration, Instant};

use tidegate_backend::ledger::MAX_BATCH_COMMANDS;
use tidegate_core::command::Park;
use tidegate_core::{Command, Map, Millis, OrderNo, Outcome};

use super::due::{MAX_TRIES, delay_ms, expired};
use super::jitter;
use crate::tidegate::Inner;
use crate::{Error, Result};

/// Orders of one page.
const PAGE: usize = 2_000;
/// Pages of one pass.
const PAGES: usize = 16;
/// Orders whose own failure is remembered; beyond it one is tried with every pass.
const MAX_REMEMBERED: usize = 1_000;

/// Orders that failed by themselves, with how often and when they may be tried again.
#[derive(Default)]
pub(crate) struct Tries(Map<OrderNo, (u32, Instant)>);

impl Tries {
    fn may_try(&self, order: OrderNo) -> bool {
        self.0.get(&order).is_none_or(|(_, at)| *at <= Instant::now())
    }

    /// Notes a failed try; gives how many there were.
    fn failed(&mut self, order: OrderNo) -> u32 {
        let tries = self.0.get(&order).map_or(1, |(tries, _)| tries + 1);
        if self.0.len() < MAX_REMEMBERED || self.0.contains_key(&order) {
            let pause = Duration::from_millis(delay_ms(tries).unsigned_abs());
            self.0.insert(order, (tries, Instant::now() + pause));
        }
        tries
    }

    /// Forgets every failure.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Acts on every overdue order that is `wanted`, a bounded number a pass. Those that fail by themselves are parked after
/// [`MAX_TRIES`], as from the index.
pub(crate) async fn pass(inner: &Inner, tries: &mut Tries, wanted: impl Fn(OrderNo) -> bool + Sync) -> Result<()> {
    let now = inner.ledger.clock().now();
    let mut after: Option<(Millis, OrderNo)> = None;
    for round in 0..PAGES {
        let waiting = inner.health.waiting();
        let page = inner.ledger.deadlines(Some(now.plus(1)), after, PAGE).await?;
        drop(waiting);
        if round == 0 {
            inner.health.overdue(page.first().map_or(0, |(_, at)| now.since(*at)));
        }
        let orders = page.iter().map(|(order, _)| *order).filter(|order| wanted(*order)).collect();
        act(inner, tries, orders, true).await?;
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(order, at)| (*at, *order));
    }
    Ok(())
}

/// Lets the ledger decide about `orders`, in batches, the batches in an order of their own. Whether orders that keep
/// failing are parked is the caller's to say: where the index works, it counts their tries.
pub(crate) async fn act(inner: &Inner, tries: &mut Tries, mut orders: Vec<OrderNo>, park: bool) -> Result<()> {
    orders.retain(|order| tries.may_try(*order));
    let mut batches: Vec<&[OrderNo]> = orders.chunks(MAX_BATCH_COMMANDS).collect();
    jitter::shuffle(&mut batches);
    for batch in batches {
        let commands = batch.iter().map(|order| Command::Expire(*order)).collect();
        let answers = inner.queue.submit(commands).await?;
        for (order, answer) in batch.iter().zip(answers) {
            match answer {
                Ok(Outcome::Expired(order)) => {
                    metrics::counter!("tidegate_sweep_expired_total").increment(1);
                    expired(&order);
                }
                Ok(_) => {}
                Err(Error::Broken(why)) => failed(inner, tries, *order, why, park).await?,
                // Not the order's fault: the next pass.
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

async fn failed(inner: &Inner, tries: &mut Tries, order: OrderNo, why: String, park: bool) -> Result<()> {
    let count = tries.failed(order);
    metrics::counter!("tidegate_deadline_failures_total").increment(1);
    tracing::error!(order_no = order.0, attempt = count, why, "an order's deadline could not be acted on");
    if park && count >= MAX_TRIES {
        inner.submit_one(Command::Park(Park { order, tries: i64::from(count), reason: why })).await?;
        metrics::counter!("tidegate_orders_parked_total").increment(1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_waits_and_memory_is_bounded() {
        let mut tries = Tries::default();
        assert!(tries.may_try(OrderNo(1)));
        assert_eq!((tries.failed(OrderNo(1)), tries.failed(OrderNo(1))), (1, 2));
        assert!(!tries.may_try(OrderNo(1)) && tries.may_try(OrderNo(2)));
        for order in 0..2 * MAX_REMEMBERED as i64 {
            tries.failed(OrderNo(order));
        }
        assert_eq!(tries.0.len(), MAX_REMEMBERED);
        assert_eq!(tries.failed(OrderNo(1)), 4, "a known one is still counted");
        tries.clear();
        assert!(tries.may_try(OrderNo(1)));
    }
}
