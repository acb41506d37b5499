//! Messages that are not delivered yet: a bounded line for each sink, and its text.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::Millis;

use super::Alert;

/// Messages that wait for a sink; for one more, the oldest of them goes. As many servers as are watched may fail at once, by some
/// rules each, and a sink that is well is to get all of it.
pub const MAX_WAITING: usize = 4_096;
/// How often a message is tried.
pub const MAX_ATTEMPTS: u32 = 100;
/// How long a message is tried, milliseconds: a day.
pub const MAX_AGE_MS: i64 = 24 * 3_600_000;

/// What waits, by the names of sinks.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Outbox(BTreeMap<String, VecDeque<Waiting>>);

#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    alert: Alert,
    #[serde(default)]
    attempts: u32,
    /// It is in the kept state, so that it may be sent.
    #[serde(skip, default = "yes")]
    is_kept: bool,
    #[serde(skip)]
    is_under_way: bool,
}

/// What was read has been kept.
fn yes() -> bool {
    true
}

impl Outbox {
    /// What [`Outbox::save`] gave; the messages of sinks that are no more, or beyond the bound, are left out and counted.
    pub(super) fn restore(kept: Value, is_sink: impl Fn(&str) -> bool) -> serde_json::Result<(Self, usize)> {
        let Self(mut lines) = serde_json::from_value(kept)?;
        let mut lost = 0;
        lines.retain(|name, line| {
            let beyond = if is_sink(name) { line.len().saturating_sub(MAX_WAITING) } else { line.len() };
            line.drain(..beyond);
            lost += beyond;
            !line.is_empty()
        });
        Ok((Self(lines), lost))
    }

    /// All of it.
    pub(super) fn save(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether `sink` did not take something that waits for it, when it was tried.
    pub(super) fn has_failed(&self, sink: &str) -> bool {
        self.0.get(sink).is_some_and(|line| line.iter().any(|waiting| waiting.attempts > 0))
    }

    /// Lets `alert` wait for `sink`; the one that had to go for it, if any had to.
    pub(super) fn push(&mut self, sink: &str, alert: Alert) -> Option<Alert> {
        let line = self.0.entry(sink.to_owned()).or_default();
        let full = line.len() >= MAX_WAITING;
        let oldest = if full { line.iter().position(|waiting| !waiting.is_under_way) } else { None };
        let gone = oldest.and_then(|oldest| line.remove(oldest)).map(|waiting| waiting.alert);
        line.push_back(Waiting { alert, attempts: 0, is_kept: false, is_under_way: false });
        gone
    }

    /// From now on what waits may be sent.
    pub(super) fn release(&mut self) {
        self.0.values_mut().flatten().for_each(|waiting| waiting.is_kept = true);
    }

    /// What is to be sent to `sink` next: the least tried, of these the oldest, but never a finding's second message before its first.
    pub(super) fn next(&mut self, sink: &str) -> Option<Alert> {
        let line = self.0.get_mut(sink)?;
        let mut subjects = HashSet::new();
        let firsts = line.iter().enumerate().filter(|(_, waiting)| subjects.insert(waiting.alert.subject_id()));
        let sendable = firsts.filter(|(_, waiting)| waiting.is_kept);
        let (next, _) = sendable.min_by_key(|(_, waiting)| waiting.attempts)?;
        line[next].is_under_way = true;
        Some(line[next].alert.clone())
    }

    /// A message was taken, or is given up.
    pub(super) fn done(&mut self, sink: &str, id: &str) {
        if let Some(line) = self.0.get_mut(sink) {
            line.retain(|waiting| waiting.alert.id != id);
        }
    }

    /// A message was not taken; whether that was its last attempt, so that it is gone.
    pub(super) fn failed(&mut self, sink: &str, id: &str) -> bool {
        let Some(line) = self.0.get_mut(sink) else { return false };
        let Some(at) = line.iter().position(|waiting| waiting.alert.id == id) else { return false };
        line[at].attempts += 1;
        line[at].is_under_way = false;
        let is_last = line[at].attempts >= MAX_ATTEMPTS;
        if is_last {
            line.remove(at);
        }
        is_last
    }

    /// Takes out what is too old to be sent to `sink`.
    pub(super) fn expire(&mut self, sink: &str, now: Millis) -> Vec<Alert> {
        let Some(line) = self.0.get_mut(sink) else { return Vec::new() };
        let old = line.iter().filter(|waiting| now.since(waiting.alert.at) >= MAX_AGE_MS);
        let old: Vec<Alert> = old.map(|waiting| waiting.alert.clone()).collect();
        line.retain(|waiting| now.since(waiting.alert.at) < MAX_AGE_MS);
        old
    }

    /// How many wait for `sink`.
    pub(super) fn waiting(&self, sink: &str) -> usize {
        self.0.get(sink).map_or(0, VecDeque::len)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::watch::{Change, Finding, Rule, Severity};

    use super::*;

    fn finding(n: i64) -> Finding {
        Finding {
            id: format!("save-failing-{n}"),
            rule: Rule::SaveFailing,
            severity: Severity::Critical,
            address: "10.0.0.7:6379".to_owned(),
            opened_at: Millis(n),
            closed_at: None,
            cause: String::new(),
            evidence: BTreeMap::new(),
            next_command: String::new(),
            risk: String::new(),
        }
    }

    fn opened(n: i64) -> Alert {
        Alert::of(&Change::Opened(finding(n)))
    }

    fn closed(n: i64) -> Alert {
        Alert::of(&Change::Closed(Finding { closed_at: Some(Millis(n + 5)), ..finding(n) }))
    }

    fn with(alerts: impl IntoIterator<Item = Alert>) -> Outbox {
        let mut outbox = Outbox::default();
        for alert in alerts {
            assert_eq!(outbox.push("a", alert), None);
        }
        outbox.release();
        outbox
    }

    #[test]
    fn what_is_not_kept_is_not_sent() {
        let mut outbox = Outbox::default();
        outbox.push("a", opened(1));
        assert_eq!(outbox.next("a"), None);
        outbox.release();
        assert_eq!((outbox.next("a"), outbox.next("b")), (Some(opened(1)), None));
        outbox.done("a", &opened(1).id);
        assert_eq!((outbox.next("a"), outbox.waiting("a")), (None, 0));
    }

    #[test]
    fn a_finding_is_over_only_after_it_was_opened() {
        let mut outbox = with([opened(1), closed(1), opened(2)]);
        assert_eq!(outbox.next("a"), Some(opened(1)));
        assert!(!outbox.failed("a", &opened(1).id));
        // One that is not taken keeps no other back, but its own end.
        assert_eq!(outbox.next("a"), Some(opened(2)));
        outbox.done("a", &opened(2).id);
        assert_eq!(outbox.next("a"), Some(opened(1)));
        outbox.done("a", &opened(1).id);
        assert_eq!(outbox.next("a"), Some(closed(1)));
    }

    #[test]
    fn attempts_age_and_number_are_bounded() {
        let mut outbox = with([opened(1)]);
        for attempt in 1..=MAX_ATTEMPTS {
            assert_eq!(outbox.next("a"), Some(opened(1)));
            assert_eq!(outbox.failed("a", &opened(1).id), attempt == MAX_ATTEMPTS);
        }
        assert_eq!(outbox.waiting("a"), 0);

        let mut outbox = with([opened(0), opened(10)]);
        assert_eq!(outbox.expire("a", Millis(MAX_AGE_MS)), [opened(0)]);
        assert_eq!(outbox.next("a"), Some(opened(10)));

        let many = i64::try_from(MAX_WAITING).expect("few");
        let mut outbox = with((0..many).map(opened));
        assert_eq!(outbox.next("a"), Some(opened(0)));
        // The one under way stays.
        assert_eq!(outbox.push("a", opened(many)), Some(opened(1)));
        assert_eq!(outbox.waiting("a"), MAX_WAITING);
        assert!(!outbox.has_failed("a") && !outbox.has_failed("b"));
        outbox.failed("a", &opened(0).id);
        assert!(outbox.has_failed("a"));
    }

    #[test]
    fn it_outlives_the_process() {
        let mut outbox = with([opened(1), closed(1)]);
        outbox.next("a");
        outbox.failed("a", &opened(1).id);
        outbox.push("b", opened(2));
        let (mut again, lost) = Outbox::restore(outbox.save(), |name| name == "a").expect("its own text");
        assert_eq!((again.waiting("a"), again.waiting("b"), lost), (2, 0, 1));
        assert_eq!(again.next("a"), Some(opened(1)));
        assert!(Outbox::restore(Value::Bool(true), |_| true).is_err());
    }
}
