//! A counter that threads do not fight for: each of the first [`OWNED`] threads that count has a stripe to itself and
//! adds without a locked instruction; all others share one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads with a stripe of their own, one bit each in [`FREE`].
const OWNED: usize = u32::BITS as usize;
const SHARED: usize = OWNED;
const UNCLAIMED: usize = usize::MAX;

static FREE: Mutex<u32> = Mutex::new(u32::MAX);

thread_local! {
    /// This thread's stripe.
    static MINE: Cell<usize> = const { Cell::new(UNCLAIMED) };
    static CLAIM: Claim = Claim::new();
}

/// A stripe that is one thread's. Its lock hands what was counted on to the next owner.
struct Claim(usize);

impl Claim {
    fn new() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let stripe = free.trailing_zeros() as usize;
        if stripe < OWNED {
            *free &= !(1 << stripe);
        }
        Self(stripe.min(SHARED))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What the thread still counts while it ends goes to the shared one.
        MINE.set(SHARED);
        if self.0 < OWNED {
            *FREE.lock().unwrap_or_else(PoisonError::into_inner) |= 1 << self.0;
        }
    }
}

#[cold]
fn claim() -> usize {
    let stripe = CLAIM.try_with(|claim| claim.0).unwrap_or(SHARED);
    MINE.set(stripe);
    stripe
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// Counts up.
pub(super) struct Striped(Box<[Stripe]>);

impl Default for Striped {
    fn default() -> Self {
        Self((0..=SHARED).map(|_| Stripe::default()).collect())
    }
}

impl Striped {
    #[inline]
    pub(super) fn one(&self) {
        self.add(1);
    }

    #[inline]
    pub(super) fn add(&self, more: u64) {
        let mut mine = MINE.get();
        if mine == UNCLAIMED {
            mine = claim();
        }
        let Some(Stripe(count)) = self.0.get(mine) else { return };
        if mine < OWNED {
            // Nobody else writes it.
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        } else {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_counts_however_many_there_are_and_when_they_end() {
        let count = Striped::default();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..2 * OWNED {
                    scope.spawn(|| (0..1_000).for_each(|_| count.one()));
                }
            });
        }
        assert_eq!(count.sum(), 3 * 2 * OWNED as u64 * 1_000);
    }
}
