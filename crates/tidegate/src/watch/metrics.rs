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

/// The memory of each server.
pub(super) fn memory<'a>(all: impl Iterator<Item = &'a Memory>) {
    for memory in all {
        let server = || memory.address.clone();
        let numbers = [
            ("tidegate_watch_used_bytes", memory.used_bytes.map(|n| n as f64)),
            ("tidegate_watch_rss_bytes", memory.rss_bytes.map(|n| n as f64)),
            ("tidegate_watch_limit_bytes", memory.limit_bytes.map(|n| n as f64)),
            ("tidegate_watch_pressure", memory.pressure),
            ("tidegate_watch_evicted_per_second", memory.evicted_per_second),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                metrics::gauge!(name, "server" => server()).set(number);
            }
        }
    }
}
