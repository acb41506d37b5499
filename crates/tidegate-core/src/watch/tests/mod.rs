//! Tests of the watch, on texts that real servers gave and on texts made after the documentation.

mod cases;
mod faults;
mod hysteresis;
mod replicas;
mod restored;
mod texts;

use super::sample::{Answer, Reply, Sample, Silence};
use super::{Change, Finding, Info, Judge, Purpose, Rule, Settings};
use crate::Millis;

pub(super) const REDIS_7_0: &str = include_str!("../texts/redis-7.0.txt");
pub(super) const REDIS_7_4: &str = include_str!("../texts/redis-7.4.txt");
pub(super) const VALKEY_8_1: &str = include_str!("../texts/valkey-8.1.txt");
pub(super) const VALKEY_9_1: &str = include_str!("../texts/valkey-9.1.txt");

/// A second.
pub(super) const S: i64 = 1_000;
pub(super) const START: i64 = 1_700_000_000_000;
pub(super) const MIB: u64 = 1 << 20;

/// So many MiB, as a field has them.
pub(super) fn mib(n: u64) -> String {
    (n * MIB).to_string()
}

/// `text` with some fields changed or added.
pub(super) fn with(text: &str, fields: &[(&str, &str)]) -> String {
    let is_other = |line: &&str| fields.iter().all(|(name, _)| line.split(':').next() != Some(name));
    let mut out: Vec<String> = text.lines().filter(is_other).map(str::to_owned).collect();
    out.extend(fields.iter().map(|(name, value)| format!("{name}:{value}")));
    out.join("\r\n")
}

/// A server that watches itself being watched: its fields change between samples.
pub(super) struct Scene {
    pub(super) judge: Judge,
    pub(super) now: i64,
    pub(super) text: String,
    pub(super) answer: Answer,
    pub(super) address: String,
}

impl Scene {
    /// A quiet Redis 7.0 that has run for an hour.
    pub(super) fn new(purpose: Purpose) -> Self {
        Self::on(REDIS_7_0, Settings::new(purpose))
    }

    pub(super) fn on(text: &str, settings: Settings) -> Self {
        let text = with(
            text,
            &[("uptime_in_seconds", "3600"), ("server_time_usec", ""), ("rdb_changes_since_last_save", "0")],
        );
        Self {
            judge: Judge::new(settings),
            now: START,
            text,
            answer: Answer::default(),
            address: "10.0.0.7:6379".into(),
        }
    }

    pub(super) fn set(&mut self, fields: &[(&str, &str)]) -> &mut Self {
        self.text = with(&self.text, fields);
        self
    }

    pub(super) fn set_number(&mut self, name: &str, value: u64) -> &mut Self {
        self.set(&[(name, &value.to_string())])
    }

    pub(super) fn sample(&self) -> Sample {
        let answer = Answer { info: Info::parse(&self.text), round_trip_ms: 0.4, ..self.answer.clone() };
        self.with_reply(Reply::Answer(Box::new(answer)))
    }

    pub(super) fn with_reply(&self, reply: Reply) -> Sample {
        Sample { address: self.address.clone(), at: Millis(self.now), reply, is_late: false, tls: false }
    }

    /// One sample, and a second passes.
    pub(super) fn look(&mut self) -> Vec<Change> {
        let changes = self.judge.judge(&self.sample());
        self.now += S;
        changes
    }

    /// So many.
    pub(super) fn looks(&mut self, count: usize) -> Vec<Change> {
        (0..count).flat_map(|_| self.look()).collect()
    }

    pub(super) fn silent(&mut self, kind: Silence, why: &str) -> Vec<Change> {
        let reply = Reply::Silence { kind, why: why.to_owned(), waited_ms: 1_000.0 };
        let changes = self.judge.judge(&self.with_reply(reply));
        self.now += S;
        changes
    }
}

/// What was opened, by rule.
pub(super) fn opened(changes: &[Change]) -> Vec<Rule> {
    changes.iter().filter(|change| matches!(change, Change::Opened(_))).map(|change| change.finding().rule).collect()
}

pub(super) fn closed(changes: &[Change]) -> Vec<Rule> {
    changes.iter().filter(|change| matches!(change, Change::Closed(_))).map(|change| change.finding().rule).collect()
}

/// The only thing that was opened.
pub(super) fn only(changes: &[Change], rule: Rule) -> Finding {
    assert_eq!(opened(changes), [rule], "{changes:#?}");
    let finding = changes[0].finding().clone();
    for text in [&finding.cause, &finding.next_command, &finding.risk, &finding.id] {
        assert!(!text.is_empty(), "{finding:#?}");
    }
    assert!(!finding.evidence.is_empty(), "{finding:#?}");
    finding
}

/// The guide's table of rules.
fn table() -> String {
    let mut table =
        "| rule | what it finds | unit | threshold | clear | samples | size | age |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for rule in Rule::ALL {
        let usual = rule.defaults();
        let size = match (usual.min_size, rule.unit()) {
            (0, _) => "-".to_owned(),
            (keys, "share of keys") => format!("{keys} keys"),
            (bytes, _) => format!("{} MiB", bytes / MIB),
        };
        let row = format!(
            "| `{}` | {} | {} | {} | {} | {} of {} | {size} | {} s |\n",
            rule.name(),
            rule.about(),
            rule.unit(),
            usual.threshold,
            usual.clear,
            usual.samples,
            usual.of,
            usual.min_uptime_s
        );
        table.push_str(&row);
    }
    table
}

#[test]
fn the_guide_has_every_rule() {
    let guide = include_str!("../../../../../docs/operations/watch.md");
    assert!(guide.contains(&table()), "docs/operations/watch.md must have this table:\n{}", table());
}
