//! The sweep: every second, by index in the ledger, whatever is overdue and not in the deadline queue is put there. While
//! the queue cannot be used it acts on overdue orders itself, at least twice a second; while a part of it cannot, on those of
//! that part.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Millis, OrderNo};

use super::overdue::{self, Tries};
use super::{health, jitter};
use crate::Error;
use crate::tidegate::Inner;

/// How overdue a deadline must be before the sweep looks at it, milliseconds: the queue has had its chance.
const OVERDUE_MS: i64 = 500;
/// How overdue an order of a shared queue must be before the sweep acts on it itself, milliseconds. It must have been
/// so in two sweeps: a pile that is being worked off is not stuck.
const STUCK_MS: i64 = 2_500;
/// Orders of one page.
const PAGE: usize = 2_000;
/// Pages of one sweep; the next goes on after the last.
const PAGES: usize = 64;
/// Stuck orders acted on by one sweep.
const MAX_STUCK: usize = 512;
/// The time between two sweeps.
const EVERY: Duration = Duration::from_secs(1);
/// The longest time between two sweeps while the queue cannot be used.
const EVERY_DEGRADED: Duration = Duration::from_millis(500);

/// Where the sweep stands.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Where the last sweep stopped, if a pile made it stop.
    after: Option<(Millis, OrderNo)>,
    /// Orders that were stuck in the last sweep.
    stuck: BTreeSet<OrderNo>,
    tries: Tries,
}

/// Sweeps until stopped.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut sweep = Sweep::default();
    loop {
        let whole = health::index_trouble(&inner).is_some();
        let degraded = whole || inner.deadlines.failing().is_some();
        if inner.health.ledger_failure().is_none()
            && let Err(e) = sweep.round(&inner, whole, degraded).await
        {
            inner.health.sweep_failed(&e, degraded);
        }
        let pause = if degraded { EVERY_DEGRADED } else { EVERY };
        // Nodes that share a store drift apart.
        let least = if inner.is_one_of_several() { pause / 2 } else { pause };
        tokio::time::sleep(jitter::between(least, pause)).await;
    }
}

impl Sweep {
    /// One round: whatever is overdue while none of the index can be used; else what lies in parts that cannot, then a sweep.
    async fn round(&mut self, inner: &Inner, whole: bool, degraded: bool) -> crate::Result<()> {
        if whole {
            return overdue::pass(inner, &mut self.tries, |_| true).await;
        }
        if degraded {
            overdue::pass(inner, &mut self.tries, |order| inner.deadlines.fails(order)).await?;
        }
        self.once(inner).await
    }

    /// One sweep: gives every overdue order to the deadline queue again (a no-op for those it has).
    async fn once(&mut self, inner: &Inner) -> crate::Result<()> {
        let now = inner.ledger.clock().now();
        let before = now.plus(-OVERDUE_MS);
        let mut after = self.after.take();
        let begins = after.is_none();
        for round in 0..PAGES {
            let waiting = inner.health.waiting();
            let page = inner.ledger.deadlines(Some(before), after, PAGE).await?;
            drop(waiting);
            if begins && round == 0 {
                inner.health.overdue(page.first().map_or(0, |(_, at)| now.since(*at)));
                self.free_stuck(inner, now, &page).await?;
            }
            let there = inner.deadlines.contains(&page).await.map_err(Error::index)?;
            let missed: Vec<_> =
                page.iter().zip(there).filter(|(_, there)| !there).map(|(deadline, _)| *deadline).collect();
            if !missed.is_empty() {
                metrics::counter!("tidegate_sweep_found_total").increment(missed.len() as u64);
                inner.deadlines.schedule(&missed).await.map_err(Error::index)?;
            }
            after = page.last().map(|(order, at)| (*at, *order));
            if page.len() < PAGE {
                return Ok(());
            }
        }
        self.after = after;
        Ok(())
    }

    /// Acts on orders a shared queue holds and nobody hands out (its worker is frozen, a lease is left over). A manual
    /// clock is left alone: its jumps make everything overdue at once.
    async fn free_stuck(&mut self, inner: &Inner, now: Millis, page: &[(OrderNo, Millis)]) -> crate::Result<()> {
        if !inner.deadlines.is_shared() || inner.ledger.clock().status().manual {
            return Ok(());
        }
        let late = page.iter().take_while(|(_, at)| now.since(*at) > STUCK_MS).take(MAX_STUCK);
        let late: BTreeSet<OrderNo> = late.map(|(order, _)| *order).collect();
        let still: Vec<OrderNo> = late.intersection(&self.stuck).copied().collect();
        self.stuck = late;
        if self.stuck.is_empty() {
            self.tries.clear();
        }
        if still.is_empty() {
            return Ok(());
        }
        metrics::counter!("tidegate_sweep_stuck_total").increment(still.len() as u64);
        overdue::act(inner, &mut self.tries, still, false).await
    }
}
