//! What came back and how long it took.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart, microseconds; longer ones count as this.
const LONGEST_US: u64 = 120_000_000;

/// Latencies (to a thousandth of their value) and how often each status came.
pub struct Record {
    latencies: Histogram<u64>,
    /// Answers by status; 0 stands for none (a broken connection).
    pub statuses: BTreeMap<u16, u64>,
}

/// The three figures every report prints, milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// All are at most this.
    pub max: f64,
}

impl Record {
    /// An empty record.
    #[must_use]
    pub fn new() -> Self {
        let latencies =
            Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are constants hdrhistogram accepts");
        Self { latencies, statuses: BTreeMap::new() }
    }

    /// Notes an answer and how long it took.
    pub fn add(&mut self, status: u16, took: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.time(took);
    }

    /// Notes a duration alone.
    pub fn time(&mut self, took: Duration) {
        self.latencies.saturating_record(u64::try_from(took.as_micros()).unwrap_or(LONGEST_US));
    }

    /// Notes a duration in milliseconds; what is negative counts as 0.
    pub fn time_ms(&mut self, ms: i64) {
        self.time(Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Record) {
        // Both have the bounds of `new`, so every value fits.
        let _ = self.latencies.add(&other.latencies);
        for (status, n) in &other.statuses {
            *self.statuses.entry(*status).or_default() += n;
        }
    }

    /// How often `status` came.
    #[must_use]
    pub fn count(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Durations noted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.latencies.len()
    }

    /// The figures; all 0 when nothing was noted.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        if self.latencies.is_empty() {
            return Percentiles::default();
        }
        let ms = |us: u64| us as f64 / 1_000.0;
        Percentiles {
            p50: ms(self.latencies.value_at_quantile(0.5)),
            p99: ms(self.latencies.value_at_quantile(0.99)),
            max: ms(self.latencies.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_counts() {
        let mut record = Record::new();
        assert_eq!(record.percentiles(), Percentiles::default());
        (1..=100).for_each(|ms| record.add(201, Duration::from_millis(ms)));
        record.add(0, Duration::from_secs(1_000));
        let p = record.percentiles();
        assert!((p.p50 - 51.0).abs() < 0.1 && (p.max - 120_000.0).abs() < 100.0, "{p:?}");
        assert_eq!((record.count(201), record.count(0), record.count(409), record.len()), (100, 1, 0, 101));
    }
}
