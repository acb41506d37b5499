//! What the workers know about the instance's health, and what it makes of readiness.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use std::time::{Duration, Instant};
use tidegate_backend::IndexState;
use tokio::sync::Notify;

use super::LAG_BOUND_MS;
use super::seldom::{Outage, Seldom};
use crate::Readiness;
use crate::tidegate::Inner;

/// Every reason for a degraded state: the label `reason` of the gauge `tidegate_degraded`, and the word that begins a
/// reason of [`Readiness::Degraded`].
const REASONS: [&str; 8] = [
    "store-unavailable",
    "bus-unavailable",
    "index-rebuilding",
    "clock-step",
    "clock-catching-up",
    "deadlines-late",
    "queues-unavailable",
    "locks-unavailable",
];

/// How long the ledger may leave a commit, or the sweep's question, without an answer before readiness says so: a frozen
/// database answers nothing, not even no.
const SILENCE: Duration = Duration::from_secs(5);

/// How long after a rebuild the index is not compared: other nodes' writes from before it may still be on their way.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// What the workers know about the instance's health.
#[derive(Default)]
pub(crate) struct Health {
    ledger_failure: Mutex<Option<String>>,
    outage: Mutex<Outage>,
    /// Reads that failed, told now and then.
    failed_reads: Seldom,
    /// A read has failed since somebody looked whether the ledger can still write.
    read_failed: AtomicBool,
    /// Commits the index missed, told now and then.
    pub(crate) index_misses: Seldom,
    /// Claims that failed, told now and then.
    pub(crate) failed_claims: Seldom,
    /// Claims whose end the index was not told, told now and then.
    pub(crate) unended_claims: Seldom,
    /// Sweeps, comparisons and fillings that failed, told now and then.
    failed_sweeps: Seldom,
    pub(crate) failed_comparisons: Seldom,
    pub(crate) failed_fillings: Seldom,
    /// Why the latest claim failed, while claims fail.
    claim_failure: Mutex<Option<String>>,
    /// When each commit, or question of the sweep, that has no answer yet went to the ledger; a few more than batches may be
    /// there at once.
    waiting: Mutex<Vec<Instant>>,
    lateness_ms: AtomicI64,
    rebuilding: AtomicBool,
    /// When the index was last seen without all deadlines.
    incomplete: Mutex<Option<Instant>>,
    /// A commit or a notice was missed since the last comparison: gate and index may be behind the ledger.
    unsure: AtomicBool,
    /// Wakes whoever compares, when `unsure` is set.
    pub(crate) doubt: Notify,
}

fn set(held: &Mutex<Option<String>>, value: Option<String>) {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_some() || value.is_some() {
        *held = value;
    }
}

fn get(held: &Mutex<Option<String>>) -> Option<String> {
    held.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Health {
    /// Why the ledger cannot write, while it cannot.
    pub(crate) fn ledger_failure(&self) -> Option<String> {
        get(&self.ledger_failure)
    }

    /// Notes how the latest write went.
    pub(crate) fn wrote(&self, failure: Option<String>) {
        if failure.is_some() {
            self.be_unsure();
        }
        self.outage.lock().unwrap_or_else(PoisonError::into_inner).wrote(failure.as_deref());
        set(&self.ledger_failure, failure);
    }

    /// Notes a read of the ledger that failed: it may be away, though no commit has said so.
    pub(crate) fn read_failed(&self, error: &tidegate_backend::Error) {
        self.read_failed.store(true, Ordering::Relaxed);
        if let Some(times) = self.failed_reads.due() {
            tracing::warn!(%error, times, "reads of the ledger failed");
        }
    }

    /// Notes a sweep that failed, by the ledger or by the index.
    pub(crate) fn sweep_failed(&self, error: &crate::Error, degraded: bool) {
        self.read_failed.store(true, Ordering::Relaxed);
        if let Some(times) = self.failed_sweeps.due() {
            tracing::warn!(%error, times, degraded, "a sweep did not end; it is tried again");
        }
    }

    /// Whether a read has failed since the last call.
    pub(crate) fn take_failed_read(&self) -> bool {
        self.read_failed.swap(false, Ordering::Relaxed)
    }

    /// Notes that something is asked of the ledger; it has answered when the value is dropped.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        let begun = Instant::now();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(begun);
        Waiting { health: self, begun }
    }

    /// How long the oldest of it has waited, if that is too long.
    fn silence(&self) -> Option<Duration> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(Instant::elapsed).max().filter(|waited| *waited > SILENCE)
    }

    /// Notes how the latest claim went.
    pub(crate) fn claimed(&self, failure: Option<String>) {
        set(&self.claim_failure, failure);
    }

    /// Notes whether the index is being rebuilt by this instance.
    pub(crate) fn rebuilding(&self, now: bool) {
        self.rebuilding.store(now, Ordering::Relaxed);
    }

    /// Notes that the index says it lacks deadlines.
    pub(crate) fn index_is_incomplete(&self) {
        *self.incomplete.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the index is being filled, or was a moment ago.
    pub(crate) fn index_is_settling(&self) -> bool {
        let seen = *self.incomplete.lock().unwrap_or_else(PoisonError::into_inner);
        self.rebuilding.load(Ordering::Relaxed) || seen.is_some_and(|seen| seen.elapsed() < SETTLES_WITHIN)
    }

    /// Gate and index may have missed a commit.
    pub(crate) fn be_unsure(&self) {
        self.unsure.store(true, Ordering::Relaxed);
        self.doubt.notify_one();
    }

    /// Whether gate and index may have missed a commit; asking clears it.
    pub(crate) fn take_unsure(&self) -> bool {
        self.unsure.swap(false, Ordering::Relaxed)
    }

    /// Whether the oldest overdue deadline seen by the sweep is later than the lag bound.
    fn lagging(&self) -> bool {
        self.lateness_ms.load(Ordering::Relaxed) > LAG_BOUND_MS
    }

    /// Notes how overdue the oldest pending order is (0 when none is).
    pub(crate) fn overdue(&self, ms: i64) {
        self.lateness_ms.store(ms, Ordering::Relaxed);
        metrics::gauge!("tidegate_deadline_oldest_overdue_seconds").set(ms as f64 / 1_000.0);
    }
}

/// A commit or a question on its way.
pub(crate) struct Waiting<'a> {
    health: &'a Health,
    begun: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.health.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = waiting.iter().position(|begun| *begun == self.begun) {
            waiting.swap_remove(at);
        }
    }
}

/// Why the deadline index as a whole cannot be used, while it cannot: the sweep then acts straight from the ledger.
pub(crate) fn index_trouble(inner: &Inner) -> Option<String> {
    match inner.deadlines.state() {
        IndexState::Unavailable(why) => Some(why),
        IndexState::Whole | IndexState::Incomplete(_) => get(&inner.health.claim_failure),
    }
}

/// Whether orders can be placed and paid now.
pub(crate) fn readiness(inner: &Inner) -> Readiness {
    if inner.queue.is_stopping() {
        return Readiness::NotReady(vec!["stopping".to_owned()]);
    }
    if let Some(why) = inner.health.ledger_failure() {
        return Readiness::NotReady(vec![format!("ledger-unavailable: {why}")]);
    }
    if let Some(waited) = inner.health.silence() {
        let why = format!("ledger-unavailable: it has not answered for {} s", waited.as_secs());
        return Readiness::NotReady(vec![why]);
    }
    let reasons = degraded(inner);
    if reasons.is_empty() {
        return Readiness::Ready;
    }
    Readiness::Degraded(reasons.into_iter().map(|(reason, detail)| format!("{reason}: {detail}")).collect())
}

/// What needs a look though orders go on: a word of [`REASONS`] and what to do about it.
fn degraded(inner: &Inner) -> Vec<(&'static str, String)> {
    let mut reasons = Vec::new();
    if let Some(why) = index_trouble(inner) {
        reasons.push(("store-unavailable", format!("{why}; orders go on, deadlines are acted on from the ledger")));
    } else if let Some(why) = inner.deadlines.failing() {
        reasons.push(("store-unavailable", format!("{why}; their deadlines are acted on from the ledger")));
    }
    if let Some(why) = inner.bus.as_ref().and_then(|bus| bus.trouble()) {
        reasons.push(("bus-unavailable", format!("{why}; this node hears of the others' changes from the ledger")));
    }
    if inner.health.rebuilding.load(Ordering::Relaxed) {
        reasons.push(("index-rebuilding", "the deadline index is filled again from the ledger".to_owned()));
    }
    let clock = inner.ledger.clock().status();
    if clock.stepped {
        let what = "the host's clock was moved; check it, then run `tidegate clock accept`";
        reasons.push(("clock-step", what.to_owned()));
    }
    if clock.catching_up {
        let ahead = clock.now.since(clock.host) / 1_000;
        let what = format!(
            "the ledger's clock is {ahead} s ahead of the host's and runs at half speed until the host's has caught up; \
             holds last longer meanwhile"
        );
        reasons.push(("clock-catching-up", what));
    }
    if inner.health.lagging() {
        let what =
            "orders are not cancelled within five seconds after they are due; check that workers run and keep up";
        reasons.push(("deadlines-late", what.to_owned()));
    }
    let products = inner.products_trouble().into_iter();
    reasons.extend(products.map(|(word, why)| (word, format!("{why}; orders go on without"))));
    reasons
}

/// Shows the reasons in force as gauges.
pub(crate) fn show(inner: &Inner) {
    let reasons = degraded(inner);
    for reason in REASONS {
        let in_force = reasons.iter().any(|(word, _)| *word == reason);
        metrics::gauge!("tidegate_degraded", "reason" => reason).set(f64::from(u8::from(in_force)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_word_counts_and_a_failure_leaves_doubt() {
        let health = Health::default();
        assert_eq!((health.ledger_failure(), health.take_unsure()), (None, false));
        health.wrote(Some("disk".to_owned()));
        assert_eq!(health.ledger_failure().as_deref(), Some("disk"));
        health.wrote(None);
        assert_eq!(health.ledger_failure(), None);
        assert!(health.take_unsure() && !health.take_unsure());
        let (first, second) = (health.waiting(), health.waiting());
        let on_their_way = || health.waiting.lock().expect("no panic").len();
        assert_eq!(on_their_way(), 2);
        assert_eq!(health.silence(), None);
        drop(first);
        drop(second);
        assert_eq!(on_their_way(), 0);
        health.overdue(LAG_BOUND_MS + 1);
        assert!(health.lagging());
        health.overdue(LAG_BOUND_MS);
        assert!(!health.lagging());
        assert!(!health.index_is_settling());
        health.index_is_incomplete();
        assert!(health.index_is_settling());
    }
}
