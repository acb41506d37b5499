//! Whether the watch could look at all: a process that gets no turn, or whose every look was late, has not seen what happened meanwhile,
//! and says so.

use std::time::Duration;

use tidegate_backend::watch::Round;
use tokio::time::Instant;

/// So much longer than the interval may pass between two looks: servers that do not answer are waited for, too.
const SLACK: Duration = Duration::from_secs(5);

/// When something was seen last.
#[derive(Debug)]
pub(super) struct Sight {
    every: Duration,
    seen: Instant,
    is_told: bool,
}

impl Sight {
    pub(super) fn new(now: Instant, every: Duration) -> Self {
        Self { every, seen: now, is_told: false }
    }

    /// Takes in a look that ended at `now`, and tells a gap.
    pub(super) fn looked(&mut self, now: Instant, rounds: &[Round]) {
        let mut samples = rounds.iter().flat_map(|round| &round.samples).peekable();
        let is_late = samples.peek().is_some() && samples.all(|sample| sample.is_late);
        let Some(blind) = self.take(now, is_late) else { return };
        super::metrics::blind();
        let blind_s = blind.as_secs();
        tracing::warn!(
            blind_s,
            "the watch was blind: this process did not get its turn, so that nothing which came and went meanwhile is told; \
             give its machine more CPU, or watch from another"
        );
    }

    /// For how long nothing was seen, if that is to be told: when it ends, or, of looks which are late again and again, once on the way.
    fn take(&mut self, now: Instant, is_late: bool) -> Option<Duration> {
        let blind = now.saturating_duration_since(self.seen);
        let is_gap = blind >= self.every + SLACK;
        let is_new = is_gap && !(is_late && self.is_told);
        self.is_told = is_late && (self.is_told || is_gap);
        if !is_late {
            self.seen = now;
        }
        is_new.then_some(blind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_told_and_usual_pauses_are_not() {
        let began = Instant::now();
        let mut sight = Sight::new(began, Duration::from_secs(10));
        let seconds = |told: Option<Duration>| told.map(|told| told.as_secs());
        for (at, is_late, told) in [
            (10, false, None),
            // A server that does not answer.
            (24, false, None),
            (39, false, Some(15)),
            (49, true, None),
            // Late again and again: told once, and when it is over.
            (59, true, Some(20)),
            (69, true, None),
            (79, false, Some(40)),
            (89, true, None),
            (93, false, None),
        ] {
            let now = began + Duration::from_secs(at);
            assert_eq!(seconds(sight.take(now, is_late)), told, "{at}");
        }
    }
}
