//! Queues that this process has to do with: whether they are in the list of queues, which number they have, and until when
//! they had nothing to hand out at the last look. A queue whose number changes was lost in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::queue::QueueName;
use tidegate_core::{Map, Millis};

/// Queues that are remembered; more than that are asked for again.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
struct One {
    /// In the list, as far as this process knows.
    named: bool,
    number: Vec<u8>,
    /// The head at the last look; `None`: nobody has looked, or the queue was empty.
    head: Option<Millis>,
    /// Somebody has looked.
    seen: bool,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    queues: Mutex<Map<QueueName, One>>,
    losses: AtomicU64,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Map<QueueName, One>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() > MOST {
            queues.clear();
        }
        queues
    }

    pub(super) fn is_named(&self, queue: &QueueName) -> bool {
        self.lock().get(queue).is_some_and(|one| one.named)
    }

    pub(super) fn name(&self, queue: &QueueName) {
        self.lock().entry(queue.clone()).or_default().named = true;
    }

    pub(super) fn forget_name(&self, queue: &QueueName) {
        if let Some(one) = self.lock().get_mut(queue) {
            one.named = false;
        }
    }

    /// Another server may answer from now on: it may lack the list.
    pub(super) fn forget_names(&self) {
        for one in self.lock().values_mut() {
            one.named = false;
        }
    }

    /// The queue has this number (empty: it has none).
    pub(super) fn has_number(&self, queue: &QueueName, number: &[u8]) {
        let mut queues = self.lock();
        let Some(one) = queues.get_mut(queue) else {
            if !number.is_empty() {
                queues.insert(queue.clone(), One { number: number.to_vec(), ..One::default() });
            }
            return;
        };
        if one.number == number {
            return;
        }
        if !one.number.is_empty() {
            self.losses.fetch_add(1, Ordering::Relaxed);
            one.named = false;
            tracing::warn!(%queue, "a queue's tasks were lost: its server lost its data");
        }
        one.number = number.to_vec();
    }

    /// The queue was looked at: its number, and its head.
    pub(super) fn looked(&self, queue: &QueueName, number: &[u8], head: Option<Millis>) {
        self.has_number(queue, number);
        let mut queues = self.lock();
        let one = match queues.get_mut(queue) {
            Some(one) => one,
            None => queues.entry(queue.clone()).or_default(),
        };
        (one.head, one.seen) = (head, true);
    }

    /// Whether it had nothing to hand out before or at `now`, when it was looked at last.
    pub(super) fn is_quiet(&self, queue: &QueueName, now: Millis) -> bool {
        self.lock().get(queue).is_some_and(|one| one.seen && one.head.is_none_or(|head| head > now))
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}
