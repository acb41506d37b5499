//! Answers on their way to the store: whatever is there goes in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_backend::QueueStore;
use tidegate_core::queue::{MAX_BATCH, QueueName, Settle, Settled, Verdict};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::claims::Line;
use super::metrics::Counters;

/// Between two attempts while the store is away; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// An answer, and the room its task takes until it is given.
pub(super) struct Given {
    pub settle: Settle,
    /// After this the task is another's anyway.
    pub until: Instant,
    pub _room: Option<OwnedSemaphorePermit>,
}

/// Sends answers until the channel is closed and empty. What cannot be sent before its lease ends is given up: the task
/// comes again.
pub(super) async fn run(
    store: Arc<dyn QueueStore>,
    line: Arc<Line>,
    counters: Counters,
    mut answers: mpsc::UnboundedReceiver<Given>,
    bell: Arc<tokio::sync::Notify>,
) {
    let mut batch: Vec<Given> = Vec::with_capacity(MAX_BATCH);
    let (queue, mut pause) = (&line.queue, FIRST);
    let ring = || {
        if line.starved.swap(false, Ordering::SeqCst) {
            bell.notify_one();
        }
    };
    loop {
        if batch.is_empty() && answers.recv_many(&mut batch, MAX_BATCH).await == 0 {
            return;
        }
        let settles: Vec<Settle> = batch.iter().map(|given| given.settle.clone()).collect();
        match store.settle(queue, &settles).await {
            Ok(settled) => {
                for (given, settled) in batch.drain(..).zip(settled) {
                    count(&counters, queue, &given, settled);
                }
                pause = FIRST;
                ring();
            }
            Err(e) => {
                let now = Instant::now();
                let before = batch.len();
                batch.retain(|given| given.until > now);
                if batch.len() < before {
                    let given_up = before - batch.len();
                    tracing::warn!(%queue, given_up, error = %e, "answers were not taken in time; their tasks come again");
                    counters.lost.increment(given_up as u64);
                    ring();
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

fn count(counters: &Counters, queue: &QueueName, given: &Given, settled: Settled) {
    match (settled, &given.settle.verdict) {
        (Settled::Done, Verdict::Ack) => counters.acked.increment(1),
        (Settled::Done, _) => {}
        (Settled::Dead, _) => {
            tracing::warn!(%queue, id = %given.settle.id, "a task used up its attempts and is dead");
            counters.dead.increment(1);
        }
        (Settled::Lost, _) => counters.lost.increment(1),
    }
}
