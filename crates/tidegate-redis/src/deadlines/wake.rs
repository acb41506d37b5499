//! An earlier deadline wakes who sleeps: in this process, and in others through pub/sub. A wake-up is only an optimisation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::Millis;
use tokio::sync::watch;

use super::{Inner, wire};
use crate::connect::{Heard, Listener};

#[derive(Debug)]
struct Known {
    /// The earliest instant anybody was told of; later than all while a look is on its way.
    head: Millis,
    /// `moved` when the last look began.
    seen: u64,
}

/// Counts the changes that may have moved the head forward.
#[derive(Debug)]
pub(super) struct Wake {
    known: Mutex<Known>,
    moved: watch::Sender<u64>,
}

impl Default for Wake {
    fn default() -> Self {
        Self { known: Mutex::new(Known { head: Millis(i64::MAX), seen: 0 }), moved: watch::Sender::new(0) }
    }
}

impl Wake {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look at the heads begins: whatever moves from here on wakes.
    pub(super) fn look(&self) {
        let mut known = self.lock();
        *known = Known { head: Millis(i64::MAX), seen: *self.moved.borrow() };
    }

    /// The look found this.
    pub(super) fn found(&self, head: Option<Millis>) {
        let mut known = self.lock();
        known.head = known.head.min(head.unwrap_or(Millis(i64::MAX)));
    }

    /// Something is claimable at `at` that was not before.
    pub(super) fn at(&self, at: Millis) {
        let mut known = self.lock();
        if at < known.head {
            known.head = at;
            self.moved.send_modify(|moved| *moved += 1);
        }
    }

    /// Something may be claimable earlier.
    pub(super) fn earlier(&self) {
        let _known = self.lock();
        self.moved.send_modify(|moved| *moved += 1);
    }

    /// Until the next wake-up since the last look began.
    pub(super) async fn sleep(&self) {
        let seen = self.lock().seen;
        let mut moved = self.moved.subscribe();
        // The sender lives as long as `self`, which this future borrows.
        let _ = moved.wait_for(|moved| *moved > seen).await;
    }
}

/// Hears what other nodes schedule.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut listener = Listener::start(inner.connector.options().clone(), inner.keys.earlier_channel());
    loop {
        match listener.next().await {
            Heard::Gap => inner.wake.earlier(),
            Heard::Message(bytes) => {
                let Some((node, score)) = bytes.split_first_chunk::<8>() else { continue };
                let score = std::str::from_utf8(score).ok().and_then(|score| score.parse().ok());
                if let Some(score) = score
                    && *node != inner.node
                {
                    inner.wake.at(wire::instant(score));
                }
            }
        }
    }
}
