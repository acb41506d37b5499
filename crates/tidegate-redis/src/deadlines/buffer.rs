//! What waits to be told to Redis: nobody who places, pays or cancels an order waits for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::{Millis, OrderNo};
use tokio::sync::Notify;

/// Most deadlines that may wait. At 8,000 orders a second this bridges 20 s without Redis; more is rebuilt.
pub(super) const MAX_WAITING: usize = 200_000;
/// Pages of a rebuild wait for room beyond this; single deadlines never do.
pub(super) const ROOM_FOR_PAGES: usize = MAX_WAITING / 2;
/// Most deadlines of one flush.
pub(super) const MAX_FLUSH: usize = 8_192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Nearest first. Only the newest change of a deadline counts.
    changes: BTreeMap<(Millis, OrderNo), Change>,
    in_flight: bool,
}

/// A bounded buffer of changes.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    waiting: Mutex<Waiting>,
    /// There is something to flush.
    filled: Notify,
    /// A flush has ended.
    flushed: Notify,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes changes up; returns how many found no room.
    pub(super) fn put(&self, deadlines: &[(OrderNo, Millis)], change: Change) -> usize {
        let mut waiting = self.lock();
        let mut lost = 0;
        for (order, at) in deadlines {
            if waiting.changes.len() >= MAX_WAITING && !waiting.changes.contains_key(&(*at, *order)) {
                lost += 1;
            } else {
                waiting.changes.insert((*at, *order), change);
            }
        }
        drop(waiting);
        self.filled.notify_one();
        lost
    }

    /// Takes up changes that had to wait elsewhere: whatever is here about the same deadline is newer. Returns how many of
    /// those that add found no room.
    pub(super) fn put_back(&self, changes: BTreeMap<(Millis, OrderNo), Change>) -> usize {
        let mut waiting = self.lock();
        let mut lost = 0;
        for (deadline, change) in changes {
            if waiting.changes.len() < MAX_WAITING {
                waiting.changes.entry(deadline).or_insert(change);
            } else if change == Change::Add && !waiting.changes.contains_key(&deadline) {
                lost += 1;
            }
        }
        drop(waiting);
        self.filled.notify_one();
        lost
    }

    /// The next flush, nearest first; waits until there is something.
    pub(super) async fn take(&self) -> Vec<((Millis, OrderNo), Change)> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.changes.is_empty() {
                    waiting.in_flight = true;
                    if waiting.changes.len() <= MAX_FLUSH {
                        return std::mem::take(&mut waiting.changes).into_iter().collect();
                    }
                    return (0..MAX_FLUSH).filter_map(|_| waiting.changes.pop_first()).collect();
                }
            }
            self.filled.notified().await;
        }
    }

    /// What `take` gave has been dealt with.
    pub(super) fn done(&self) {
        self.lock().in_flight = false;
        self.flushed.notify_waiters();
    }

    /// Waits until nothing waits.
    pub(super) async fn empty(&self) {
        self.until(|waiting| waiting.changes.is_empty() && !waiting.in_flight).await;
    }

    /// Waits until there is room for a page.
    pub(super) async fn room(&self) {
        self.until(|waiting| waiting.changes.len() < ROOM_FOR_PAGES).await;
    }

    async fn until(&self, reached: impl Fn(&Waiting) -> bool) {
        loop {
            let flushed = self.flushed.notified();
            let mut flushed = std::pin::pin!(flushed);
            // From here on a flush is not missed.
            flushed.as_mut().enable();
            if reached(&self.lock()) {
                return;
            }
            flushed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_change_counts_and_the_nearest_goes_first() {
        let buffer = Buffer::default();
        buffer.put(&[(OrderNo(1), Millis(20)), (OrderNo(2), Millis(10))], Change::Add);
        buffer.put(&[(OrderNo(1), Millis(20))], Change::Remove);
        let taken = buffer.take().await;
        assert_eq!(taken, [((Millis(10), OrderNo(2)), Change::Add), ((Millis(20), OrderNo(1)), Change::Remove)]);
        let empty = tokio::time::timeout(std::time::Duration::from_millis(10), buffer.empty()).await;
        assert!(empty.is_err(), "a flush is on its way");
        let key = (Millis(9), OrderNo(3));
        buffer.put(&[(key.1, key.0)], Change::Remove);
        buffer.put_back([(key, Change::Add), ((Millis(8), OrderNo(4)), Change::Add)].into());
        let taken = buffer.take().await;
        assert_eq!(taken, [((Millis(8), OrderNo(4)), Change::Add), (key, Change::Remove)], "what came back is older");
        buffer.done();
        buffer.empty().await;
    }

    #[tokio::test]
    async fn what_finds_no_room_is_counted() {
        let buffer = Buffer::default();
        let all: Vec<_> = (0..MAX_WAITING as i64 + 3).map(|n| (OrderNo(n), Millis(n))).collect();
        assert_eq!(buffer.put(&all, Change::Add), 3);
        assert_eq!(buffer.put(&all[..2], Change::Remove), 0, "a change of what waits needs no room");
        let older = all[MAX_WAITING - 1..].iter().map(|(order, at)| ((*at, *order), Change::Add)).collect();
        assert_eq!(buffer.put_back(older), 3, "one is there");
        assert_eq!(buffer.take().await.len(), MAX_FLUSH);
    }
}
