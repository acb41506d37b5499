//! What is being handled, and its leases: renewed at a third of their life, all of a worker in one call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::QueueStore;
use tidegate_core::Map;
use tidegate_core::queue::{MAX_BATCH, QueueName, Receipt, Settle, Settled, TaskId, Verdict};
use tokio::sync::watch;

/// A task in a handler's hands.
struct One {
    id: TaskId,
    until: Instant,
    lost: watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct Running(Mutex<Map<Receipt, One>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, Map<Receipt, One>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its handler begins; what it is given is true once the lease is lost.
    pub(super) fn begin(&self, id: &TaskId, receipt: Receipt, until: Instant) -> watch::Receiver<bool> {
        let (lost, seen) = watch::channel(false);
        self.lock().insert(receipt, One { id: id.clone(), until, lost });
        seen
    }

    /// Its handler is done; when its lease ends.
    pub(super) fn end(&self, receipt: Receipt) -> Instant {
        self.lock().remove(&receipt).map_or_else(Instant::now, |one| one.until)
    }

    pub(super) fn all(&self) -> Vec<(TaskId, Receipt)> {
        self.lock().iter().map(|(receipt, one)| (one.id.clone(), *receipt)).collect()
    }

    fn renewed(&self, receipt: Receipt, until: Instant) {
        if let Some(one) = self.lock().get_mut(&receipt) {
            one.until = until;
        }
    }

    fn lose(&self, receipt: Receipt) {
        if let Some(one) = self.lock().get(&receipt) {
            one.lost.send_replace(true);
        }
    }

    /// Those whose lease has ended, as far as is known here, have lost it.
    fn lose_ended(&self) {
        let now = Instant::now();
        for one in self.lock().values().filter(|one| one.until <= now) {
            one.lost.send_replace(true);
        }
    }
}

/// Renews until it is dropped.
pub(super) async fn renew(store: Arc<dyn QueueStore>, queue: QueueName, lease_ms: i64, running: Arc<Running>) {
    let lease = Duration::from_millis(lease_ms.unsigned_abs());
    loop {
        tokio::time::sleep(lease / 3).await;
        for some in running.all().chunks(MAX_BATCH) {
            let ask = |(id, receipt): &(TaskId, Receipt)| Settle {
                id: id.clone(),
                receipt: *receipt,
                verdict: Verdict::Extend(lease_ms),
            };
            let asked = Instant::now();
            let settles: Vec<Settle> = some.iter().map(ask).collect();
            match store.settle(&queue, &settles).await {
                Ok(answers) => {
                    for ((_, receipt), answer) in some.iter().zip(answers) {
                        if answer == Settled::Lost {
                            running.lose(*receipt);
                        } else {
                            running.renewed(*receipt, asked + lease);
                        }
                    }
                }
                Err(e) => {
                    tracing::debug!(%queue, error = %e, "leases were not renewed; it is tried again");
                    running.lose_ended();
                }
            }
        }
    }
}
