//! Log lines of what may fail a thousand times a second: one when it begins, a count now and then, one when it ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(5);

/// Lets a line through at most once every five seconds, and counts the others.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Whether a line may be written now: how often it would have been since the last one, this time included.
    pub(crate) fn due(&self) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        if state.0.is_some_and(|told| told.elapsed() < EVERY) {
            return None;
        }
        state.0 = Some(Instant::now());
        Some(std::mem::take(&mut state.1))
    }
}

/// A ledger that cannot write, as the log tells it.
#[derive(Default)]
pub(crate) struct Outage {
    /// Since when it cannot, while it cannot.
    since: Option<Instant>,
    /// Batches that failed since then.
    failed: u64,
    /// Whether the log has a line of this outage.
    announced: bool,
    lines: Seldom,
}

impl Outage {
    /// Notes how a write went. An outage has a line when it begins, one at most every five seconds while it lasts, and one
    /// when it ends; outages that follow each other faster than that share their lines. Gives whether it wrote one.
    pub(crate) fn wrote(&mut self, failure: Option<&str>) -> bool {
        match (failure, self.since) {
            (None, None) => return false,
            (None, Some(since)) => {
                let (announced, failed) = (self.announced, self.failed);
                (self.since, self.failed, self.announced) = (None, 0, false);
                if announced {
                    tracing::info!(seconds = since.elapsed().as_secs_f64(), failed, "the ledger takes commits again");
                }
                return announced;
            }
            (Some(_), None) => self.since = Some(Instant::now()),
            (Some(_), Some(_)) => {}
        }
        self.failed += 1;
        if self.lines.due().is_none() {
            return false;
        }
        let error = failure.unwrap_or_default();
        if self.announced {
            tracing::warn!(failed = self.failed, error, "the ledger still takes no commits");
        } else {
            tracing::error!(error, "the ledger takes no commits; requests that need one are refused until it does");
        }
        self.announced = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_has_a_line_at_each_end() {
        let mut outage = Outage::default();
        assert!(!outage.wrote(None), "nothing to say");
        let lines = (0..1_000).filter(|_| outage.wrote(Some("gone"))).count();
        assert_eq!(lines, 1, "of a thousand failures in a moment");
        assert!(outage.wrote(None), "it ends");
        assert!(!outage.wrote(None));
        let flaps = (0..1_000).filter(|i| outage.wrote((i % 2 == 0).then_some("gone"))).count();
        assert_eq!(flaps, 0, "outages that follow at once share the lines");
    }

    #[test]
    fn a_line_counts_those_that_were_left_out() {
        let seldom = Seldom::default();
        assert_eq!((seldom.due(), seldom.due(), seldom.due()), (Some(1), None, None));
        seldom.0.lock().expect("no panic").0 = None;
        assert_eq!(seldom.due(), Some(3));
    }
}
