//! The workers between callers and stores. Each has an owner ([`Tasks`]), a start and a stop.

pub(crate) mod bus;
pub(crate) mod compare;
pub(crate) mod due;
pub(crate) mod group_commit;
pub(crate) mod health;
pub(crate) mod housekeeping;
pub(crate) mod index;
pub(crate) mod jitter;
pub(crate) mod lag;
pub(crate) mod overdue;
pub(crate) mod probes;
pub(crate) mod pulse;
pub(crate) mod rebuild;
pub(crate) mod reconcile;
pub(crate) mod seldom;
pub(crate) mod sweep;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::tidegate::Inner;

/// How late the clock may act on an order before readiness says so and the auditor objects, milliseconds.
pub(crate) const LAG_BOUND_MS: i64 = 5_000;

/// The lag bound the auditor judges by: none on a manual clock, whose jumps no worker can follow in no time.
pub(crate) fn audited_lag_ms(inner: &Inner) -> i64 {
    if inner.ledger.clock().status().manual { i64::MAX / 2 } else { LAG_BOUND_MS }
}

/// The background tasks of an instance, and how they end.
#[derive(Default)]
pub(crate) struct Tasks {
    stop: watch::Sender<bool>,
    /// Group commit and probes: they end after everything that may still submit.
    servants: tokio::sync::Mutex<JoinSet<()>>,
    /// Everything else: it ends first.
    workers: tokio::sync::Mutex<JoinSet<()>>,
}

impl Tasks {
    /// Starts every worker the options ask for.
    pub(crate) fn start(&self, inner: &Arc<Inner>) {
        let mut servants = self.servants.try_lock().expect("nobody else holds it before the start has returned");
        servants.spawn(group_commit::run(Arc::clone(inner)));
        servants.spawn(probes::run(Arc::clone(inner)));
        let mut workers = self.workers.try_lock().expect("nobody else holds it before the start has returned");
        workers.spawn(self.until_stopped(index::run(Arc::clone(inner))));
        workers.spawn(self.until_stopped(bus::hear(Arc::clone(inner))));
        workers.spawn(self.until_stopped(bus::poll(Arc::clone(inner))));
        workers.spawn(self.until_stopped(compare::run(Arc::clone(inner))));
        workers.spawn(self.until_stopped(pulse::run(Arc::clone(inner))));
        if inner.options.workers {
            workers.spawn(self.until_stopped(due::run(Arc::clone(inner))));
            workers.spawn(self.until_stopped(sweep::run(Arc::clone(inner))));
            workers.spawn(self.until_stopped(housekeeping::run(Arc::clone(inner))));
        } else {
            workers.spawn(self.until_stopped(lag::run(Arc::clone(inner))));
        }
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

    /// Drops whatever has not ended: callers that wait are told that the instance stops.
    pub(crate) async fn abort(&self) {
        self.workers.lock().await.shutdown().await;
        self.servants.lock().await.shutdown().await;
    }
}
