//! What nodes of one ledger tell each other: after a commit the SKUs it changed and its newest event, after an advance
//! where the manual clock stands. Whatever is lost on the way is found by reading the ledger: the newest event is asked
//! for twice a second while anyone waits for it, and a gap makes `compare.rs` look at once.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{Commit, Notice};
use tokio::time::MissedTickBehavior;

use crate::tidegate::Inner;

/// How often the newest event is read from a ledger that others write, while somebody waits for events.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// The pause after a link that answered with nothing.
const NOTHING_HEARD: Duration = Duration::from_millis(50);

/// Tells the other nodes what a commit changed, without waiting.
pub(crate) fn tell(inner: &Inner, commit: &Commit) {
    let Some(bus) = &inner.bus else { return };
    if !commit.copies.is_empty() || commit.last_cursor.is_some() {
        let notice = Notice { copies: commit.copies.clone(), newest_event: commit.last_cursor, ..Notice::default() };
        bus.tell(notice);
    }
}

/// Takes in what other nodes tell, until stopped.
pub(crate) async fn hear(inner: Arc<Inner>) {
    let Some(bus) = inner.bus.clone() else { return };
    loop {
        let notices = bus.heard().await;
        if notices.is_empty() {
            tokio::time::sleep(NOTHING_HEARD).await;
        }
        for notice in notices {
            take_in(&inner, notice);
        }
    }
}

fn take_in(inner: &Inner, notice: Notice) {
    inner.gate.replace(&notice.copies, false);
    if let Some(cursor) = notice.newest_event {
        inner.saw_event(cursor);
    }
    let clock = inner.ledger.clock();
    if let Some(at) = notice.clock.filter(|_| clock.status().manual)
        && let Err(e) = clock.advance_to(at)
    {
        // The ledger has the row; its clock reads it by itself.
        tracing::debug!(error = %e, "a manual clock was not moved by a notice");
    }
    if notice.gap {
        inner.health.be_unsure();
    }
}

/// Reads the newest event of a ledger that others write while anyone waits for events, until stopped.
pub(crate) async fn poll(inner: Arc<Inner>) {
    if inner.ledger.capabilities().sole_writer && inner.bus.is_none() {
        return;
    }
    let mut tick = tokio::time::interval(POLL_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if inner.newest_event.receiver_count() > 0 {
            read_newest(&inner).await;
        }
    }
}

/// Reads the newest event. A failure is the ledger's, which its writers report.
pub(crate) async fn read_newest(inner: &Inner) {
    match inner.ledger.newest_cursor().await {
        Ok(cursor) => inner.saw_event(cursor),
        Err(e) => tracing::debug!(error = %e, "the newest event could not be read"),
    }
}
