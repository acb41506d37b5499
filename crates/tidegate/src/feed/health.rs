//! Whether the store is worth asking: after a failure it is left alone for a moment, then one page tries it for all.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// After a failure the store is left alone for so long, milliseconds.
const REST_MS: i64 = 200;
/// Whoever tries it then does so for all, for so long.
const TRIAL_MS: i64 = 700;

/// Milliseconds of the process' own clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks(Instant);

impl Ticks {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> i64 {
        i64::try_from(self.0.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Health {
    ticks: Ticks,
    /// 0: it is well. Else nobody asks before this.
    rests_until: AtomicI64,
    failures: AtomicU64,
}

impl Health {
    pub(super) fn new(ticks: Ticks) -> Self {
        Self { ticks, rests_until: AtomicI64::new(0), failures: AtomicU64::new(0) }
    }

    /// Whether this caller may ask the store.
    pub(super) fn may_ask(&self) -> bool {
        let until = self.rests_until.load(Ordering::Acquire);
        if until == 0 {
            return true;
        }
        let now = self.ticks.now();
        let trial = now + TRIAL_MS;
        now >= until && self.rests_until.compare_exchange(until, trial, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The store has answered.
    pub(super) fn answered(&self) {
        if self.rests_until.load(Ordering::Acquire) != 0 {
            self.rests_until.store(0, Ordering::Release);
        }
    }

    /// It has not.
    pub(super) fn failed(&self, error: &tidegate_backend::Error) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("tidegate_feed_store_failures_total").increment(1);
        tracing::debug!(%error, "the store of feeds does not answer");
        self.rests_until.store((self.ticks.now() + REST_MS).max(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tries_for_all() {
        let health = Health::new(Ticks::new());
        assert!(health.may_ask() && health.may_ask());
        health.failed(&tidegate_backend::Error::new(tidegate_backend::ErrorKind::Unavailable, "away"));
        assert!(!health.may_ask());
        health.rests_until.store(1, Ordering::Release);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(health.may_ask() && !health.may_ask());
        health.answered();
        assert!(health.may_ask() && health.may_ask());
    }
}
