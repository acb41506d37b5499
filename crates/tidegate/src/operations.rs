//! What the people who run it need: events, readiness, the clock, reconciliation.

use std::sync::Arc;

use tidegate_backend::ledger::{MAX_PAGE, PageRequest};
use tidegate_backend::{ClockStatus, EventRecord, Notice};
use tidegate_core::Millis;
use tidegate_core::audit::{Finding, Report};
use tidegate_core::queue::Stats;
use tokio::sync::watch;

use crate::tidegate::Inner;
use crate::{Error, Result, workers};

/// Most parked orders that [`Operations::deadlines`] counts, give or take a page.
const MAX_PARKED: u64 = 10_000;

/// Whether orders can be placed and paid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// Everything works.
    Ready,
    /// Orders can be placed and paid; something needs a look.
    Degraded(Vec<String>),
    /// Orders can not be placed.
    NotReady(Vec<String>),
}

/// What a reconciliation did.
#[derive(Debug, Clone, Default)]
pub struct ReconcileReport {
    /// Rows and copies that were compared.
    pub checked: u64,
    /// Differences that were repaired (gate copies, missing deadlines, parked orders tried again).
    pub repaired: u64,
    /// The invariants that were checked, with whether each held.
    pub invariants: std::collections::BTreeMap<&'static str, bool>,
    /// What was found: repaired differences and broken invariants.
    pub findings: Vec<Finding>,
    /// Why the deadline index was not compared, or not all of it.
    pub not_compared: Option<NotCompared>,
}

/// Why the deadline index could not be compared with the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCompared {
    /// Whether nothing of it answers: the same may work once its server does.
    pub unreachable: bool,
    /// What is wrong with it.
    pub detail: String,
}

/// Operations: a cheap handle.
#[derive(Clone)]
pub struct Operations(pub(crate) Arc<Inner>);

impl Operations {
    /// Events with a cursor above `after`, oldest first, at most `limit` (`1..=500`). An empty page means caught up.
    ///
    /// # Errors
    /// [`crate::Error::LedgerUnavailable`].
    pub async fn events(&self, after: i64, limit: usize) -> Result<Vec<EventRecord>> {
        Ok(self.0.ledger.events(after, limit).await?)
    }

    /// Changes whenever a commit has made events; the value is the newest cursor this process knows.
    #[must_use]
    pub fn newest_event(&self) -> watch::Receiver<i64> {
        self.0.newest_event.subscribe()
    }

    /// Whether orders can be placed and paid now.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    /// The orders' own deadline queue in numbers, and the instant they are of (on the ledger's clock). Its dead are the
    /// orders on the parked list, counted up to 10,000.
    ///
    /// # Errors
    /// [`Error::Index`] while the deadline index, or a part of it, cannot be asked: deadlines are then acted on from the
    /// ledger. [`Error::LedgerUnavailable`].
    pub async fn deadlines(&self) -> Result<(Stats, Millis)> {
        let now = self.0.ledger.clock().status().now;
        let mut stats = self.0.deadlines.numbers(now).await.map_err(Error::index)?;
        let mut cursor = None;
        while stats.dead < MAX_PARKED {
            let page = self.0.ledger.parked(PageRequest { cursor, limit: MAX_PAGE }).await?;
            stats.dead += page.items.len() as u64;
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok((stats, now))
    }

    /// The ledger's clock against the host's.
    #[must_use]
    pub fn clock(&self) -> ClockStatus {
        self.0.ledger.clock().status()
    }

    /// Follows the host's clock after a step.
    #[must_use]
    pub fn accept_clock(&self) -> ClockStatus {
        self.0.ledger.clock().accept()
    }

    /// Moves a manual clock forward by `ms` (>= 0) and wakes whatever falls due, on other nodes within a moment.
    ///
    /// # Errors
    /// [`crate::Error::Configuration`] when the clock is not a manual one.
    pub async fn advance_clock(&self, ms: i64) -> Result<Millis> {
        let now = self.0.ledger.advance(ms).await?;
        if let Some(bus) = &self.0.bus {
            bus.tell(Notice { clock: Some(now), ..Notice::default() });
        }
        Ok(now)
    }

    /// Compares the gate and the deadline index with the ledger, repairs them, tries parked orders again, and checks
    /// every invariant. Reads the whole ledger.
    ///
    /// # Errors
    /// [`crate::Error::LedgerUnavailable`].
    pub async fn reconcile(&self) -> Result<ReconcileReport> {
        workers::reconcile::run(&self.0).await
    }

    /// Checks every invariant over the whole ledger.
    ///
    /// # Errors
    /// [`crate::Error::LedgerUnavailable`].
    pub async fn audit(&self) -> Result<Report> {
        Ok(self.0.ledger.audit(workers::audited_lag_ms(&self.0)).await?)
    }
}
