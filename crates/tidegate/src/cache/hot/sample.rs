//! Which reads are counted: one in so many of a thread, drawn anew each time, so that no pattern of reads hides from it. A
//! thread that reads little counts all of them; one that reads millions a second counts some [`A_SECOND`] of those. What
//! is counted stands for all that were passed over, so estimates agree whatever the interval.

use std::cell::Cell;

use super::super::ticks::{chance, coarse_ms};

/// Reads that a thread counts in a second, about.
const A_SECOND: u32 = 2_000;
/// A thread looks at its own rate again after this.
const WINDOW_MS: i64 = 100;
const A_WINDOW: u32 = A_SECOND / (1_000 / WINDOW_MS as u32);
/// At most so many reads are passed over for one that is counted, on the average.
const MOST: u32 = 1 << 13;

thread_local! {
    /// Reads to be passed over before the next is counted.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static PACE: Cell<Pace> = const { Cell::new(Pace { every: 1, since: i64::MIN, counted: 0 }) };
}

#[derive(Clone, Copy)]
struct Pace {
    /// One read in so many is counted.
    every: u32,
    /// Begin of the window, by the kernel's coarse clock.
    since: i64,
    counted: u32,
}

impl Pace {
    /// After one was counted.
    fn next(self, now: i64) -> Self {
        let counted = self.counted + 1;
        let passed = now.saturating_sub(self.since);
        if passed >= WINDOW_MS {
            // So many were there to be counted in a window.
            let reads = f64::from(self.every) * f64::from(counted) * WINDOW_MS as f64 / passed as f64;
            let every = (reads / f64::from(A_WINDOW)).ceil() as u32;
            return Self { every: every.clamp(1, MOST), since: now, counted: 0 };
        }
        if counted >= 2 * A_WINDOW {
            return Self { every: (self.every * 2).min(MOST), since: now, counted: 0 };
        }
        Self { counted, ..self }
    }
}

/// Whether this read is counted; then [`taken`] must be called.
#[inline]
pub(in crate::cache) fn is_due() -> bool {
    let left = LEFT.get();
    LEFT.set(left.wrapping_sub(1));
    left == 0
}

/// How many reads the one that is counted stands for; draws which is counted next.
pub(super) fn taken() -> u64 {
    let pace = PACE.get();
    let next = pace.next(coarse_ms());
    PACE.set(next);
    // Uniform in 0..2N-1, so N - 1 on the average; the one behind them is counted.
    LEFT.set((chance() * f64::from(2 * next.every - 1)) as u32);
    u64::from(pace.every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_stands_for_all_whatever_the_rate() {
        // Read so fast that some are passed over, in a pattern that a fixed interval would miss.
        let (mut counted, mut stood_for) = (0_u64, [0_u64; 8]);
        const READS: u64 = 8_000_000;
        for read in 0..READS {
            if is_due() {
                counted += 1;
                stood_for[(read % 8) as usize] += taken();
            }
        }
        assert!(counted < READS / 8, "{counted}");
        let all: u64 = stood_for.iter().sum();
        assert!(all.abs_diff(READS) < READS / 5, "{all} of {READS}");
        assert!(stood_for.iter().all(|one| one.abs_diff(all / 8) < all / 20), "{stood_for:?}");
    }

    #[test]
    fn a_slow_thread_counts_all() {
        let slow = (0..100).fold(Pace { every: 64, since: 0, counted: 0 }, |pace, n| pace.next(n * 20));
        assert_eq!(slow.every, 1);
    }
}
