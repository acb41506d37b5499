//! Bringing messages to a sink: one at a time, again and again, with growing pauses while it takes none.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::watch::Change;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::outbox::{MAX_WAITING, Outbox};
use super::{Alert, AlertSink, Undelivered};
use crate::watch::locked;
use crate::watch::metrics::Outcome;
use crate::workers::jitter;

/// How long a sink has for one message.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// At a stop, how long the message that is under way may take.
const LAST: Duration = Duration::from_secs(2);
/// The pause after a first failure, and the longest; a sink may ask for up to [`LONGEST_ASKED`].
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
const LONGEST_ASKED: Duration = Duration::from_secs(3_600);

/// The messages of a watch and where they go.
pub(crate) struct Post {
    outbox: Mutex<Outbox>,
    sinks: Vec<Arc<dyn AlertSink>>,
    /// Something is to be kept.
    pub(crate) changed: Notify,
    /// Something may be sent.
    released: watch::Sender<()>,
}

impl Post {
    /// Nothing waits.
    pub(crate) fn new(sinks: Vec<Arc<dyn AlertSink>>) -> Self {
        Self::with(sinks, Outbox::default())
    }

    /// Goes on from what was kept.
    pub(crate) fn restore(sinks: Vec<Arc<dyn AlertSink>>, kept: Value) -> serde_json::Result<Self> {
        let (outbox, lost) = Outbox::restore(kept, |name| sinks.iter().any(|sink| sink.name() == name))?;
        if lost > 0 {
            tracing::warn!(lost, "alerts that waited for sinks which are not configured any more are dropped");
        }
        Ok(Self::with(sinks, outbox))
    }

    fn with(sinks: Vec<Arc<dyn AlertSink>>, outbox: Outbox) -> Self {
        let post = Self { outbox: Mutex::new(outbox), sinks, changed: Notify::new(), released: watch::Sender::new(()) };
        post.sinks.iter().for_each(|sink| post.show(sink.name()));
        post
    }

    pub(crate) fn sinks(&self) -> &[Arc<dyn AlertSink>] {
        &self.sinks
    }

    /// Lets the message of `change` wait for every sink that wants to hear of it.
    pub(crate) fn tell(&self, change: &Change) {
        let alert = Alert::of(change);
        for sink in self.sinks.iter().filter(|sink| alert.severity() >= sink.least()) {
            let gone = locked(&self.outbox).push(sink.name(), alert.clone());
            if let Some(gone) = gone {
                Outcome::Overflow.count(sink.name());
                let why = if locked(&self.outbox).has_failed(sink.name()) {
                    "see why the sink takes none"
                } else {
                    "more was found than the sink could take so fast; a higher `severity` of it lets fewer through"
                };
                tracing::error!(
                    sink = sink.name(),
                    alert = gone.id,
                    "an alert is dropped undelivered: {MAX_WAITING} wait already; {why}"
                );
            }
            self.show(sink.name());
        }
    }

    /// What was told is kept, or cannot be: it is sent.
    pub(crate) fn release(&self) {
        locked(&self.outbox).release();
        self.released.send_replace(());
    }

    pub(crate) fn save(&self) -> Value {
        locked(&self.outbox).save()
    }

    fn show(&self, sink: &str) {
        let waiting = locked(&self.outbox).waiting(sink);
        metrics::gauge!("tidegate_watch_alerts_waiting", "sink" => sink.to_owned()).set(waiting as f64);
    }

    fn next(&self, sink: &str) -> Option<Alert> {
        let (old, next) = {
            let mut outbox = locked(&self.outbox);
            (outbox.expire(sink, tidegate_backend::clock::host_now()), outbox.next(sink))
        };
        for old in &old {
            self.give_up(sink, old, "it is a day old");
        }
        next
    }

    fn give_up(&self, sink: &str, alert: &Alert, why: &str) {
        Outcome::Expired.count(sink);
        tracing::error!(sink, alert = alert.id, "an alert is dropped undelivered: {why}; see why the sink takes none");
        self.changed.notify_one();
    }

    /// What came of a message; for how long the sink is left alone, of so many failures in a row.
    fn settle(&self, sink: &str, alert: &Alert, result: Result<(), Undelivered>, failures: &mut u32) -> Duration {
        let pause = match result {
            Ok(()) => {
                locked(&self.outbox).done(sink, &alert.id);
                Outcome::Delivered.count(sink);
                *failures = 0;
                Duration::ZERO
            }
            Err(Undelivered::Never { why }) => {
                locked(&self.outbox).done(sink, &alert.id);
                Outcome::Refused.count(sink);
                tracing::error!(sink, alert = alert.id, "an alert is dropped undelivered, the sink refuses it: {why}");
                Duration::ZERO
            }
            Err(Undelivered::Later { why, after }) => {
                *failures = failures.saturating_add(1);
                Outcome::Failed.count(sink);
                let pause = pause(*failures, after);
                let again_s = pause.as_secs();
                tracing::warn!(sink, alert = alert.id, failures = *failures, again_s, "an alert was not taken: {why}");
                if locked(&self.outbox).failed(sink, &alert.id) {
                    self.give_up(sink, alert, "it was tried too often");
                }
                pause
            }
        };
        self.changed.notify_one();
        self.show(sink);
        pause
    }
}

/// Doubled at each failure, a fifth more or less by chance, and not before the sink wants.
fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    let doubled = PAUSE.0.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSE.1);
    let usual = jitter::between(doubled * 4 / 5, doubled * 6 / 5);
    usual.max(asked.unwrap_or_default().min(LONGEST_ASKED))
}

/// One message, within [`SEND_TIMEOUT`].
pub(super) async fn send(sink: &dyn AlertSink, alert: &Alert) -> Result<(), Undelivered> {
    let in_time = timeout(SEND_TIMEOUT, sink.send(alert)).await;
    in_time.unwrap_or_else(|_| Err(Undelivered::later(format!("it did not answer within {SEND_TIMEOUT:?}"))))
}

/// Brings `sink` its messages until `stop`.
pub(crate) async fn deliver(post: Arc<Post>, sink: Arc<dyn AlertSink>, mut stop: watch::Receiver<bool>) {
    let mut released = post.released.subscribe();
    let mut failures = 0;
    loop {
        if *stop.borrow() {
            return;
        }
        released.mark_unchanged();
        let Some(alert) = post.next(sink.name()) else {
            tokio::select! {
                told = released.changed() => match told {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                _ = stop.changed() => return,
            }
        };
        let result = {
            let sending = send(&*sink, &alert);
            tokio::pin!(sending);
            tokio::select! {
                result = &mut sending => result,
                _ = stop.changed() => match timeout(LAST, sending).await {
                    Ok(result) => result,
                    // Whether it arrived is not known: it is sent again after a restart.
                    Err(_) => return,
                },
            }
        };
        let pause = post.settle(sink.name(), &alert, result, &mut failures);
        if !pause.is_zero() {
            tokio::select! {
                () = sleep(pause) => {}
                _ = stop.changed() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        for (failures, asked, from, to) in [
            (1, None, 800, 1_200),
            (2, None, 1_600, 2_400),
            (9, None, 204_800, 307_200),
            (u32::MAX, None, 720_000, 1_080_000),
            (1, Some(30), 30_000, 30_000),
            (1, Some(86_400), 3_600_000, 3_600_000),
        ] {
            let pause = pause(failures, asked.map(Duration::from_secs)).as_millis();
            assert!((from..=to).contains(&pause), "{failures} {asked:?}: {pause}");
        }
    }
}
