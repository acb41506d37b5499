//! What the watch sees, in numbers. Servers are at most [`tidegate_core::watch::MAX_SERVERS`].

use tidegate_backend::watch::Round;
use tidegate_core::watch::{Memory, Reply, Rule};

/// One gauge a rule, also while nothing is open.
pub(super) fn open(open: &[Rule]) {
    for rule in Rule::ALL {
        let count = open.iter().filter(|one| *one == rule).count();
        metrics::gauge!("tidegate_watch_findings_open", "rule" => rule.name()).set(count as f64);
    }
}

/// Answers and silences.
pub(super) fn count(rounds: &[Round]) {
    for sample in rounds.iter().flat_map(|round| &round.samples) {
        let outcome = match sample.reply {
            Reply::Answer(_) => "answer",
            Reply::Silence { .. } => "silence",
        };
        metrics::counter!("tidegate_watch_samples_total", "outcome" => outcome).increment(1);
    }
}

/// The watch saw nothing for a while.
pub(super) fn blind() {
    metrics::counter!("tidegate_watch_blind_total").increment(1);
}

/// The memory of each server.
pub(super) fn memory<'a>(all: impl Iterator<Item = &'a Memory>) {
    for memory in all {
        let server = || memory.address.clone();
        if let Some(bytes) = memory.used_bytes {
            metrics::gauge!("tidegate_watch_used_bytes", "server" => server()).set(bytes as f64);
        }
        if let Some(bytes) = memory.rss_bytes {
            metrics::gauge!("tidegate_watch_rss_bytes", "server" => server()).set(bytes as f64);
        }
        if let Some(bytes) = memory.limit_bytes {
            metrics::gauge!("tidegate_watch_limit_bytes", "server" => server()).set(bytes as f64);
        }
        if let Some(share) = memory.pressure {
            metrics::gauge!("tidegate_watch_pressure", "server" => server()).set(share);
        }
        if let Some(rate) = memory.evicted_per_second {
            metrics::gauge!("tidegate_watch_evicted_per_second", "server" => server()).set(rate);
        }
    }
}

/// What came of a message to a sink.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// The sink took it.
    Delivered,
    /// An attempt failed; there will be another.
    Failed,
    /// The sink will never take it.
    Refused,
    /// It was tried for too long.
    Expired,
    /// Too many waited.
    Overflow,
}

impl Outcome {
    pub(super) fn count(self, sink: &str) {
        let outcome = match self {
            Outcome::Delivered => "delivered",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
            Outcome::Expired => "expired",
            Outcome::Overflow => "overflow",
        };
        metrics::counter!("tidegate_watch_alerts_total", "sink" => sink.to_owned(), "outcome" => outcome).increment(1);
    }
}
