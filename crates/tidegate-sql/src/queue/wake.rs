//! Who sleeps in this process until a task is due is woken by an earlier one that this process schedules.
//!
//! A look at a queue says until when its caller may sleep. While a look is under way every change of the queue wakes; after
//! it only a change that comes before what it told. Other processes are not heard of: a worker looks by itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_backend::BoxFuture;
use tidegate_core::queue::QueueName;
use tidegate_core::{Map, Millis};
use tokio::sync::watch;

/// Most queues that are remembered. Beyond it all are forgotten, and from then on a change of any other queue wakes.
const MAX_REMEMBERED: usize = 10_000;

#[derive(Debug, Default, Clone, Copy)]
struct Told {
    /// Looks under way.
    looks: u32,
    /// The latest instant that a look told; later ones wake nobody.
    until: Option<Millis>,
}

#[derive(Debug, Default)]
struct Known {
    queues: Map<QueueName, Told>,
    /// Some were forgotten.
    forgot: bool,
}

/// Sleepers of this process.
#[derive(Debug)]
pub(super) struct Wake {
    known: Mutex<Known>,
    moved: watch::Sender<u64>,
}

/// A look under way; told or dropped, it ends.
pub(super) struct Look<'a> {
    wake: &'a Wake,
    queue: &'a QueueName,
    /// What nothing is told of is slept through for as long as its caller likes.
    until: Millis,
}

impl Wake {
    pub(super) fn new() -> Self {
        Self { known: Mutex::default(), moved: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look at `queue` begins: before anything is read.
    pub(super) fn look<'a>(&'a self, queue: &'a QueueName) -> Look<'a> {
        let mut known = self.lock();
        if known.queues.len() >= MAX_REMEMBERED && !known.queues.contains_key(queue) {
            *known = Known { queues: Map::default(), forgot: true };
        }
        let told = known.queues.entry(queue.clone()).or_default();
        if told.looks == 0 {
            told.until = None;
        }
        told.looks += 1;
        Look { wake: self, queue, until: Millis::MAX }
    }

    /// A task of `queue` can be handed out from `at` on: after it was committed.
    pub(super) fn put(&self, queue: &QueueName, at: Millis) {
        let known = self.lock();
        let wakes = match known.queues.get(queue) {
            Some(told) => told.looks > 0 || told.until.is_some_and(|until| at < until),
            None => known.forgot,
        };
        drop(known);
        if wakes {
            self.moved.send_modify(|moved| *moved += 1);
        }
    }

    /// Resolves at the next wake-up after this call.
    pub(super) fn earlier(&self) -> BoxFuture<'static, ()> {
        let mut moved = self.moved.subscribe();
        Box::pin(async move {
            if moved.changed().await.is_err() {
                // The store is gone: nothing is scheduled any more.
                std::future::pending::<()>().await;
            }
        })
    }
}

impl Look<'_> {
    /// Ends the look: its caller may sleep until `next_at`.
    pub(super) fn told(mut self, next_at: Option<Millis>) {
        self.until = next_at.unwrap_or(Millis::MAX);
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        if let Some(told) = self.wake.lock().queues.get_mut(self.queue) {
            told.looks = told.looks.saturating_sub(1);
            told.until = told.until.max(Some(self.until));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn wakes(wake: &Wake, put: impl FnOnce()) -> bool {
        let earlier = wake.earlier();
        put();
        tokio::time::timeout(Duration::from_millis(5), earlier).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_before_what_was_told_wakes_and_nothing_else() {
        let (wake, queue) = (Wake::new(), QueueName::parse("q").expect("a name"));
        let other = QueueName::parse("other").expect("a name");
        assert!(!wakes(&wake, || wake.put(&queue, Millis(5))).await, "nobody ever looked");
        let look = wake.look(&queue);
        assert!(wakes(&wake, || wake.put(&queue, Millis(500))).await, "a look is under way");
        assert!(!wakes(&wake, || wake.put(&other, Millis(5))).await);
        look.told(Some(Millis(100)));
        assert!(!wakes(&wake, || wake.put(&queue, Millis(100))).await, "it is told of");
        assert!(wakes(&wake, || wake.put(&queue, Millis(99))).await);
        wake.look(&queue).told(None);
        assert!(wakes(&wake, || wake.put(&queue, Millis(1_000_000))).await, "there was nothing to sleep for");
        let (first, second) = (wake.look(&queue), wake.look(&queue));
        first.told(Some(Millis(10)));
        second.told(Some(Millis(20)));
        assert!(wakes(&wake, || wake.put(&queue, Millis(15))).await, "one of them sleeps until 20");
        drop(wake.look(&queue));
        assert!(wakes(&wake, || wake.put(&queue, Millis(15))).await, "a look that failed told nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let wake = Wake::new();
        let name = |n: usize| QueueName::parse(&format!("q{n}")).expect("a name");
        for n in 0..=MAX_REMEMBERED {
            wake.look(&name(n)).told(Some(Millis(1)));
        }
        assert!(wake.lock().queues.len() <= MAX_REMEMBERED);
        assert!(wakes(&wake, || wake.put(&name(0), Millis(5))).await, "forgotten ones wake");
    }
}
