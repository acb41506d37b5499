//! The index of orders' deadlines. Its members are order numbers; it is rebuilt from the ledger whenever it is lost.

use tidegate_core::queue::Stats;
use tidegate_core::{Millis, OrderNo};

use crate::{BoxFuture, Result};

/// Proof of a claim. A later claim of the same order makes it worthless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Receipt(pub u64);

/// An order handed to a worker for the length of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The order.
    pub order: OrderNo,
    /// When it was due.
    pub due_at: Millis,
    /// How often it has been claimed, this time included.
    pub attempt: u32,
    /// What `ack` and `retry` need.
    pub receipt: Receipt,
}

/// A claimed order that is to be claimable again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The order.
    pub order: OrderNo,
    /// What its claim gave.
    pub receipt: Receipt,
    /// Claimable again at this instant.
    pub at: Millis,
    /// Whether the claim counts as an attempt.
    pub charge: bool,
}

/// What an index knows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// It has every deadline it was given.
    Whole,
    /// It answers, and may lack deadlines: give it all of the ledger's (nearest first), then call
    /// [`DeadlineQueue::rebuilt`] with this number. Where several nodes share an index, one at a time is told so.
    Incomplete(u64),
    /// It does not answer, and why.
    Unavailable(String),
}

/// Orders by the instant their deadline falls due. All calls are idempotent and cheap (O(log n) an order).
#[expect(clippy::len_without_is_empty, reason = "an empty queue is one whose `next_at` is `None`")]
pub trait DeadlineQueue: Send + Sync {
    /// Whether other nodes see the same index.
    fn is_shared(&self) -> bool {
        false
    }

    /// What it knows of itself; cheap, asked every few milliseconds.
    fn state(&self) -> IndexState {
        IndexState::Whole
    }

    /// Why a part of it cannot be used though the rest can, as long as that is so. Its owner acts on the deadlines of that
    /// part ([`DeadlineQueue::fails`]) without it; every other call leaves them out.
    fn failing(&self) -> Option<String> {
        None
    }

    /// Whether this order's deadline lies in a part that cannot be used.
    fn fails(&self, order: OrderNo) -> bool {
        let _ = order;
        false
    }

    /// Every deadline of the ledger has been scheduled since `state` gave this number.
    fn rebuilt(&self, token: u64) -> BoxFuture<'_, Result<()>> {
        let _ = token;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Adds deadlines. A shared index may take them up within milliseconds of this call; what it loses meanwhile makes
    /// it [`IndexState::Incomplete`]. An order that is there already is claimable at the earliest instant it was given.
    fn schedule<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>>;

    /// Removes deadlines (paid or cancelled orders); unknown ones are ignored.
    fn cancel<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>>;

    /// Up to `max` (`1..=512`) orders due at `now`, leased until `now + lease_ms`: mostly the earliest due, an eighth
    /// of them the newest due, so that a pile does not hold up the rest.
    fn claim(&self, now: Millis, max: usize, lease_ms: i64) -> BoxFuture<'_, Result<Vec<Claim>>>;

    /// Done with these; receipts that are no longer current are ignored.
    fn ack<'a>(&'a self, receipts: &'a [(OrderNo, Receipt)]) -> BoxFuture<'a, Result<()>>;

    /// Claimable again; receipts that are no longer current are ignored.
    fn retry<'a>(&'a self, retries: &'a [Retry]) -> BoxFuture<'a, Result<()>>;

    /// The earliest instant at which something is claimable (a lease's end counts), if anything is in the queue.
    fn next_at(&self) -> BoxFuture<'_, Result<Option<Millis>>>;

    /// Resolves when an instant earlier than every one before may have been scheduled. Never misses one that was
    /// scheduled after the last call to `next_at` began.
    fn earlier(&self) -> BoxFuture<'_, ()>;

    /// Orders in the queue, leased ones included.
    fn len(&self) -> BoxFuture<'_, Result<usize>>;

    /// The queue in numbers at `now`; it has no dead of its own. What moves meanwhile may be counted at either place.
    ///
    /// # Errors
    /// Also when only a part of it cannot be used: fewer than there are is never said.
    fn numbers(&self, now: Millis) -> BoxFuture<'_, Result<Stats>>;

    /// Whether each of these deadlines is in the queue (scheduled or leased), in order; true for one that lies in a part
    /// that cannot be used.
    fn contains<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<Vec<bool>>>;

    /// Hands back what this node has claimed and ends the tasks of its own. Calls after this may fail.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
