//! The workers between callers and stores. Each has an owner ([`Tasks`]), a start and a stop.

pub(crate) mod due;
pub(crate) mod group_commit;
pub(crate) mod housekeeping;
pub(crate) mod probes;
pub(crate) mod rebuild;
pub(crate) mod reconcile;
pub(crate) mod sweep;

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::tidegate::Inner;

/// How late the clock may act on an order before readiness says so and the auditor objects, milliseconds.
pub(crate) const LAG_BOUND_MS: i64 = 5_000;

/// The lag bound the auditor judges by: none on a manual clock, whose jumps no worker can follow in no time.
pub(crate) fn audited_lag_ms(inner: &Inner) -> i64 {
    if inner.ledger.clock().status().manual { i64::MAX / 2 } else { LAG_BOUND_MS }
}

/// What the workers know about the instance's health.
#[derive(Default)]
pub(crate) struct Health {
    ledger_failure: Mutex<Option<String>>,
    lateness_ms: AtomicI64,
    /// A commit failed since the last repair: it may have gone through, unseen by gate and index.
    unsure: AtomicBool,
}

impl Health {
    /// Why the ledger cannot write, while it cannot.
    pub(crate) fn ledger_failure(&self) -> Option<String> {
        self.ledger_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes how the latest write went.
    pub(crate) fn wrote(&self, failure: Option<String>) {
        let mut held = self.ledger_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            self.be_unsure();
        }
        if held.is_some() || failure.is_some() {
            *held = failure;
        }
    }

    /// Gate and index may have missed a commit.
    pub(crate) fn be_unsure(&self) {
        self.unsure.store(true, Ordering::Relaxed);
    }

    /// Whether gate and index may have missed a commit; asking clears it.
    pub(crate) fn take_unsure(&self) -> bool {
        self.unsure.swap(false, Ordering::Relaxed)
    }

    /// Whether the oldest overdue deadline seen by the sweep is later than the lag bound.
    pub(crate) fn lagging(&self) -> bool {
        self.lateness_ms.load(Ordering::Relaxed) > LAG_BOUND_MS
    }

    /// Notes how overdue the oldest pending order is (0 when none is).
    pub(crate) fn overdue(&self, ms: i64) {
        self.lateness_ms.store(ms, Ordering::Relaxed);
        metrics::gauge!("tidegate_deadline_oldest_overdue_seconds").set(ms as f64 / 1_000.0);
    }
}

/// The background tasks of an instance, and how they end.
#[derive(Default)]
pub(crate) struct Tasks {
    stop: watch::Sender<bool>,
    /// Group commit and probes: they end after everything that may still submit.
    servants: tokio::sync::Mutex<JoinSet<()>>,
    /// Deadlines, sweep, housekeeping: they end first.
    workers: tokio::sync::Mutex<JoinSet<()>>,
}

impl Tasks {
    /// Starts every worker the options ask for.
    pub(crate) fn start(&self, inner: &Arc<Inner>) {
        let mut servants = self.servants.try_lock().expect("nobody else holds it before the start has returned");
        servants.spawn(group_commit::run(Arc::clone(inner)));
        servants.spawn(probes::run(Arc::clone(inner)));
        if inner.options.workers {
            let mut workers = self.workers.try_lock().expect("nobody else holds it before the start has returned");
            workers.spawn(self.until_stopped(due::run(Arc::clone(inner))));
            workers.spawn(self.until_stopped(sweep::run(Arc::clone(inner))));
            workers.spawn(self.until_stopped(housekeeping::run(Arc::clone(inner))));
        }
        drop(servants);
    }

    /// `work`, dropped when the instance stops. A batch it has submitted is still decided and answered.
    fn until_stopped<F: Future<Output = ()> + Send>(&self, work: F) -> impl Future<Output = ()> + Send + use<F> {
        let mut stop = self.stop.subscribe();
        async move {
            tokio::select! {
                () = work => {}
                _ = stop.wait_for(|stopped| *stopped) => {}
            }
        }
    }

    /// Ends the workers, then the servants once their queues are empty.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        let mut workers = self.workers.lock().await;
        while workers.join_next().await.is_some() {}
        let mut servants = self.servants.lock().await;
        while servants.join_next().await.is_some() {}
    }
}
