//! Deadlines of one process, in memory.
//!
//! The bulk is one ordered set of `(instant, order)`, about 30 bytes an order. Only what is leased or was tried
//! before has an entry in a map, so a million far deadlines cost no second index. An order scheduled at two instants
//! is in the set twice and is handed out at the earlier; the second time the ledger answers that nothing is left to do.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_backend::{BoxFuture, Claim, DeadlineQueue, IndexState, Receipt, Result, Retry};
use tidegate_core::queue::Stats;
use tidegate_core::{Map, Millis, OrderNo};
use tokio::sync::watch;

/// One claimed order in this many is taken from the newest due.
const NEWEST_SHARE: usize = 8;

/// A deadline queue in memory.
#[derive(Debug)]
pub struct EmbeddedDeadlines {
    inner: Mutex<Inner>,
    /// Counts the schedules that moved the head forward.
    moved: watch::Sender<u64>,
    /// Whether it was given the ledger's deadlines since it was made.
    rebuilt: AtomicBool,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: BTreeSet<(Millis, OrderNo)>,
    /// Waiting orders whose visible instant is not their deadline, or that were claimed before.
    tried: Map<OrderNo, Tried>,
    leased: Map<OrderNo, Lease>,
    lease_ends: BTreeSet<(Millis, OrderNo)>,
    last_receipt: u64,
    /// `moved` at the last `next_at`.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
struct Tried {
    visible: Millis,
    due_at: Millis,
    attempt: u32,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    due_at: Millis,
    attempt: u32,
    receipt: Receipt,
    until: Millis,
    /// Scheduled again, at another instant, while it was leased.
    again: Option<Millis>,
}

impl Inner {
    fn head(&self) -> Option<Millis> {
        let waiting = self.waiting.first().map(|(at, _)| *at);
        let ends = self.lease_ends.first().map(|(at, _)| *at);
        waiting.into_iter().chain(ends).min()
    }

    fn schedule(&mut self, order: OrderNo, at: Millis) {
        // The same deadline again (the sweep names it): a lease or the delay of a retry stands.
        let leased = self.leased.get(&order).is_some_and(|l| l.due_at == at);
        let delayed = self.tried.get(&order).is_some_and(|t| t.due_at == at);
        if !leased && !delayed {
            self.waiting.insert((at, order));
        }
    }

    fn cancel(&mut self, order: OrderNo, at: Millis) {
        self.waiting.remove(&(at, order));
        if let Some(tried) = self.tried.get(&order).copied()
            && (tried.due_at == at || tried.visible == at)
        {
            self.waiting.remove(&(tried.visible, order));
            self.tried.remove(&order);
        }
        match self.leased.get_mut(&order) {
            Some(lease) if lease.due_at == at => {
                self.end_lease(order);
            }
            Some(lease) if lease.again == Some(at) => lease.again = None,
            _ => {}
        }
    }

    /// Ends a lease; what was scheduled meanwhile waits again.
    fn end_lease(&mut self, order: OrderNo) -> Option<Lease> {
        let lease = self.leased.remove(&order)?;
        self.lease_ends.remove(&(lease.until, order));
        if let Some(at) = lease.again {
            self.waiting.insert((at, order));
        }
        Some(lease)
    }

    fn is_current(&self, order: OrderNo, receipt: Receipt) -> bool {
        self.leased.get(&order).is_some_and(|l| l.receipt == receipt)
    }

    fn lease(&mut self, order: OrderNo, due_at: Millis, attempt: u32, until: Millis, again: Option<Millis>) -> Claim {
        self.last_receipt += 1;
        let receipt = Receipt(self.last_receipt);
        self.lease_ends.insert((until, order));
        self.leased.insert(order, Lease { due_at, attempt, receipt, until, again });
        Claim { order, due_at, attempt, receipt }
    }

    /// Leases one waiting entry; `None` when its order is leased already (the entry then waits inside the lease).
    fn take_waiting(&mut self, at: Millis, order: OrderNo, until: Millis) -> Option<Claim> {
        self.waiting.remove(&(at, order));
        if let Some(lease) = self.leased.get_mut(&order) {
            lease.again = Some(lease.again.map_or(at, |a| a.min(at)));
            return None;
        }
        let (due_at, attempt) = match self.tried.get(&order) {
            Some(t) if t.visible == at => (t.due_at, t.attempt),
            _ => (at, 0),
        };
        if self.tried.get(&order).is_some_and(|t| t.visible == at) {
            self.tried.remove(&order);
        }
        Some(self.lease(order, due_at, attempt.saturating_add(1), until, None))
    }

    fn take_run_out(&mut self, order: OrderNo, until: Millis) -> Claim {
        let old = self.leased.remove(&order).expect("every lease end has its lease");
        self.lease_ends.remove(&(old.until, order));
        self.lease(order, old.due_at, old.attempt.saturating_add(1), until, old.again)
    }

    fn claim(&mut self, now: Millis, max: usize, until: Millis) -> Vec<Claim> {
        let due = (Millis(i64::MIN), OrderNo(i64::MIN))..=(now, OrderNo(i64::MAX));
        let mut claims = Vec::new();
        let newest = max / NEWEST_SHARE;
        while claims.len() < max - newest {
            let waiting = self.waiting.first().copied().filter(|e| due.contains(e));
            let run_out = self.lease_ends.first().copied().filter(|e| due.contains(e));
            match (waiting, run_out) {
                (Some(w), r) if r.is_none_or(|r| w <= r) => claims.extend(self.take_waiting(w.0, w.1, until)),
                (_, Some((_, order))) => claims.push(self.take_run_out(order, until)),
                _ => return claims,
            }
        }
        while claims.len() < max {
            let Some((at, order)) = self.waiting.range(due.clone()).next_back().copied() else { break };
            claims.extend(self.take_waiting(at, order, until));
        }
        claims
    }

    fn numbers(&self, now: Millis) -> Stats {
        let due = ..=(now, OrderNo(i64::MAX));
        let (waiting, lapsed) = (self.waiting.range(due).count(), self.lease_ends.range(due).count());
        Stats {
            pending: (self.waiting.len() + lapsed) as u64,
            due: (waiting + lapsed) as u64,
            leased: (self.leased.len() - lapsed) as u64,
            dead: 0,
            oldest_due_at: self.head().filter(|at| *at <= now),
        }
    }

    fn contains(&self, order: OrderNo, due_at: Millis) -> bool {
        let tried = self.tried.get(&order).is_some_and(|t| t.due_at == due_at);
        let leased = self.leased.get(&order).is_some_and(|l| l.due_at == due_at || l.again == Some(due_at));
        tried || leased || self.waiting.contains(&(due_at, order))
    }

    fn retry(&mut self, order: OrderNo, receipt: Receipt, at: Millis, charge: bool) {
        if !self.is_current(order, receipt) {
            return;
        }
        let Some(lease) = self.end_lease(order) else { return };
        let attempt = lease.attempt - u32::from(!charge);
        // Scheduled again for an earlier instant meanwhile: that entry will do.
        if lease.again.is_some_and(|a| a <= at) {
            return;
        }
        self.waiting.insert((at, order));
        if attempt > 0 || at != lease.due_at {
            self.tried.insert(order, Tried { visible: at, due_at: lease.due_at, attempt });
        }
    }
}

impl EmbeddedDeadlines {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: Mutex::default(), moved: watch::Sender::new(0), rebuilt: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` and wakes the workers when the head is earlier afterwards.
    fn change(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.lock();
        let before = inner.head();
        change(&mut inner);
        let earlier = inner.head().is_some_and(|after| before.is_none_or(|b| after < b));
        if earlier {
            // Under the lock, so that `next_at` sees both the new head and the new count, or neither.
            self.moved.send_modify(|n| *n += 1);
        }
    }
}

impl Default for EmbeddedDeadlines {
    fn default() -> Self {
        Self::new()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Ok(value)))
}

impl DeadlineQueue for EmbeddedDeadlines {
    fn state(&self) -> IndexState {
        if self.rebuilt.load(Ordering::Acquire) { IndexState::Whole } else { IndexState::Incomplete(0) }
    }

    fn rebuilt(&self, _token: u64) -> BoxFuture<'_, Result<()>> {
        self.rebuilt.store(true, Ordering::Release);
        ready(())
    }

    fn schedule<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        self.change(|inner| deadlines.iter().for_each(|(order, at)| inner.schedule(*order, *at)));
        ready(())
    }

    fn cancel<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        self.change(|inner| deadlines.iter().for_each(|(order, at)| inner.cancel(*order, *at)));
        ready(())
    }

    fn claim(&self, now: Millis, max: usize, lease_ms: i64) -> BoxFuture<'_, Result<Vec<Claim>>> {
        ready(self.lock().claim(now, max.clamp(1, 512), now.plus(lease_ms.max(1))))
    }

    fn ack<'a>(&'a self, receipts: &'a [(OrderNo, Receipt)]) -> BoxFuture<'a, Result<()>> {
        self.change(|inner| {
            for (order, receipt) in receipts {
                if inner.is_current(*order, *receipt) {
                    inner.end_lease(*order);
                }
            }
        });
        ready(())
    }

    fn retry<'a>(&'a self, retries: &'a [Retry]) -> BoxFuture<'a, Result<()>> {
        self.change(|inner| retries.iter().for_each(|r| inner.retry(r.order, r.receipt, r.at, r.charge)));
        ready(())
    }

    fn next_at(&self) -> BoxFuture<'_, Result<Option<Millis>>> {
        let mut inner = self.lock();
        inner.seen = *self.moved.borrow();
        ready(inner.head())
    }

    fn earlier(&self) -> BoxFuture<'_, ()> {
        let seen = self.lock().seen;
        let mut moved = self.moved.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self`, which this future borrows.
            let _ = moved.wait_for(|n| *n > seen).await;
        })
    }

    fn len(&self) -> BoxFuture<'_, Result<usize>> {
        let inner = self.lock();
        ready(inner.waiting.len() + inner.leased.len())
    }

    fn numbers(&self, now: Millis) -> BoxFuture<'_, Result<Stats>> {
        ready(self.lock().numbers(now))
    }

    fn contains<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<Vec<bool>>> {
        let inner = self.lock();
        ready(deadlines.iter().map(|(order, at)| inner.contains(*order, *at)).collect())
    }
}

#[cfg(test)]
mod tests;
