//! What comes to a worker: which tasks, when, how late.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::commands::bench::process::now_us;
use crate::load::record::{Percentiles, Record};

/// Receipts that are remembered, for a test whether they are refused once their holder is dead.
const RECEIPTS: usize = 1_000;

/// What came.
pub struct Seen {
    /// One bit a task.
    bits: Vec<AtomicU64>,
    counts: Mutex<Counts>,
    /// Rung by whoever notes something.
    bell: Notify,
}

struct Counts {
    late: Record,
    handled: u64,
    distinct: u64,
    early: u64,
    first_us: u64,
    last_us: u64,
    receipts: Vec<(u64, u64)>,
}

/// The same in numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Handled {
    /// Calls of the handler, a task each.
    pub handled: u64,
    /// Tasks.
    pub distinct: u64,
    /// Tasks that came before their instant.
    pub early: u64,
    /// When the first and the last came.
    pub first_us: u64,
    /// When the last came.
    pub last_us: u64,
    /// From the instant to the handler, microseconds: median, 99th of 100, the longest.
    pub late_us: [u64; 3],
    /// Tasks and receipts, the first of them.
    pub receipts: Vec<(u64, u64)>,
}

impl Handled {
    /// How late they came.
    pub fn lateness(&self) -> Percentiles {
        let [p50, p99, max] = self.late_us.map(|us| us as f64 / 1_000.0);
        Percentiles { p50, p99, max }
    }
}

impl Seen {
    /// Of tasks `0..most`.
    pub fn new(most: u64) -> Self {
        let counts = Counts {
            late: Record::new(),
            handled: 0,
            distinct: 0,
            early: 0,
            first_us: u64::MAX,
            last_us: 0,
            receipts: Vec::new(),
        };
        let bits = (0..most.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { bits, counts: Mutex::new(counts), bell: Notify::new() }
    }

    /// A task is in its handler's hands now.
    pub fn note(&self, n: u64, due_ms: i64, receipt: u64) {
        let now = now_us();
        let due = due_ms.max(0).unsigned_abs() * 1_000;
        let bit = 1 << (n % 64);
        let word = usize::try_from(n / 64).ok().and_then(|at| self.bits.get(at));
        let new = word.is_some_and(|word| word.fetch_or(bit, Ordering::Relaxed) & bit == 0);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.handled += 1;
        counts.distinct += u64::from(new);
        counts.early += u64::from(now < due);
        counts.first_us = counts.first_us.min(now);
        counts.last_us = counts.last_us.max(now);
        counts.late.time(std::time::Duration::from_micros(now.saturating_sub(due)));
        if counts.receipts.len() < RECEIPTS {
            counts.receipts.push((n, receipt));
        }
        drop(counts);
        self.bell.notify_waiters();
    }

    /// Which of `numbers` did not come.
    pub fn missing(&self, numbers: std::ops::Range<u64>) -> u64 {
        let there = |n: u64| {
            let word = usize::try_from(n / 64).ok().and_then(|at| self.bits.get(at));
            word.is_some_and(|word| word.load(Ordering::Relaxed) >> (n % 64) & 1 == 1)
        };
        numbers.filter(|n| !there(*n)).count() as u64
    }

    /// Returns once `count` tasks have come; nobody looks at a clock here.
    pub async fn wait(&self, count: u64) {
        loop {
            let rung = self.bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            if self.counts.lock().unwrap_or_else(PoisonError::into_inner).distinct >= count {
                return;
            }
            rung.await;
        }
    }

    /// In numbers.
    pub fn handled(&self) -> Handled {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let us = |ms: f64| (ms * 1_000.0) as u64;
        let late = counts.late.percentiles();
        Handled {
            handled: counts.handled,
            distinct: counts.distinct,
            early: counts.early,
            first_us: counts.first_us,
            last_us: counts.last_us,
            late_us: [us(late.p50), us(late.p99), us(late.max)],
            receipts: counts.receipts.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_comes_again_is_counted_once_and_one_that_does_not_is_missing() {
        let seen = Seen::new(70);
        let now = i64::try_from(now_us() / 1_000).unwrap();
        for (n, due) in [(0, now - 50), (69, now - 10), (69, now - 10), (3, now + 60_000), (200, now)] {
            seen.note(n, due, 7 + n);
        }
        let handled = seen.handled();
        assert_eq!((handled.handled, handled.distinct, handled.early), (5, 3, 1));
        assert!(handled.late_us[2] >= 50_000, "{handled:?}");
        assert_eq!(handled.receipts[1], (69, 76));
        assert_eq!((seen.missing(0..70), seen.missing(69..71)), (67, 1));
    }
}
