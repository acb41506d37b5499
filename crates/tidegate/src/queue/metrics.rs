//! What queues count.

use metrics::{Counter, counter};
use tidegate_core::queue::QueueName;

/// The counters of one queue.
#[derive(Clone)]
pub(super) struct Counters {
    pub scheduled: Counter,
    pub claimed: Counter,
    pub acked: Counter,
    pub lost: Counter,
    pub dead: Counter,
}

impl Counters {
    pub(super) fn of(queue: &QueueName) -> Self {
        let queue = queue.as_str();
        Self {
            scheduled: counter!("tidegate_queue_scheduled_total", "queue" => queue.to_owned()),
            claimed: counter!("tidegate_queue_claimed_total", "queue" => queue.to_owned()),
            acked: counter!("tidegate_queue_acked_total", "queue" => queue.to_owned()),
            lost: counter!("tidegate_queue_lost_total", "queue" => queue.to_owned()),
            dead: counter!("tidegate_queue_dead_total", "queue" => queue.to_owned()),
        }
    }
}

/// How late a task came to its handler.
pub(super) fn lateness(ms: i64) {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of lateness are few")]
    metrics::histogram!("tidegate_queue_lateness_seconds").record(ms.max(0) as f64 / 1_000.0);
}
