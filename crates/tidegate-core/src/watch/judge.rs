//! From samples to messages: one at the opening of a finding, one at its closing.
//!
//! A finding opens when N of the last M samples are bad, and closes when every sample of a while was well; what lies between
//! the threshold and the clear level does neither. One that comes back soon after it was closed must be well for longer each
//! time. All of this outlives the process ([`Judge::save`]), so that whoever watches may be started again at any time.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::facts::Facts;
use super::finding::{Change, Finding, Severity, Told};
use super::known::Known;
use super::memory::Memory;
use super::rules::{self, Measure, View};
use super::sample::{Answer, Reply, Sample, Silence};
use super::settings::{Rule, RuleSettings, Settings};
use crate::Millis;

/// Samples that are remembered of each server.
const HISTORY: usize = 64;
/// Most servers that are watched at once.
pub const MAX_SERVERS: usize = 1_024;
/// Longest saved state that is read, bytes: the alerts that wait are in it.
const MAX_STATE: usize = 512 << 20;
/// Between two looks at a server there may be so many intervals, or one interval and so long: servers that do not answer are waited
/// for, too. What lies farther apart has a gap between, of which nobody knows whether all was well.
const GAP_INTERVALS: i64 = 3;
const GAP_MS: i64 = 5_000;
/// A finding that opens again so soon after its closing flaps.
const FLAPPING_MS: i64 = 15 * 60_000;
/// The longest that a flapping one must be well.
const LONGEST_QUIET_MS: u64 = 10 * 60_000;
/// What happens again while it is open is told anew so often, then at each doubling: a server that is started every few seconds is
/// one trouble, not a thousand.
const AGAIN: u32 = 4;
/// The form of saved states.
const VERSION: u32 = 1;

/// Judges the samples of any number of servers.
#[derive(Debug)]
pub struct Judge {
    settings: Settings,
    gap_ms: i64,
    servers: BTreeMap<String, Server>,
}

/// What is remembered of one server.
#[derive(Debug, Default)]
struct Server {
    known: Known,
    history: VecDeque<Facts>,
    windows: BTreeMap<Rule, Window>,
    open: BTreeMap<Rule, Finding>,
    memory: Option<Memory>,
    /// The set of servers that share a replication stream; `None` where it is told by nobody.
    set: Option<String>,
    is_master: bool,
}

/// What a rule said of the last samples.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Window {
    /// The newest is the lowest bit; 1 is bad.
    bad: u64,
    well_since: Option<Millis>,
    closed_at: Option<Millis>,
    /// How often it opened again soon after its closing.
    flaps: u32,
    /// How often what it tells happened again while it was open.
    again: u32,
}

/// What a sample changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Stay,
    Open,
    Close,
}

impl Window {
    fn take(&mut self, measure: Measure, is_open: bool, at: Millis, settings: &RuleSettings) -> Step {
        let (bad, well) = match measure {
            Measure::Unknown => return Step::Stay,
            Measure::Between => (false, false),
            Measure::Level(level) => {
                (level >= settings.threshold, level <= settings.clear && level < settings.threshold)
            }
        };
        self.bad = self.bad << 1 | u64::from(bad);
        if is_open { self.may_close(well, at, settings) } else { self.may_open(at, settings) }
    }

    fn may_open(&mut self, at: Millis, settings: &RuleSettings) -> Step {
        let looked_at = u64::MAX >> (RuleSettings::MOST - settings.of.clamp(1, RuleSettings::MOST));
        if (self.bad & looked_at).count_ones() < settings.samples.max(1) {
            return Step::Stay;
        }
        let flaps = self.closed_at.is_some_and(|closed| (0..FLAPPING_MS).contains(&at.since(closed)));
        self.flaps = if flaps { self.flaps.saturating_add(1) } else { 0 };
        self.well_since = None;
        self.again = 0;
        Step::Open
    }

    /// What is open happened again; whether that is told.
    fn happens_again(&mut self) -> bool {
        self.well_since = None;
        self.again = self.again.saturating_add(1);
        self.again < AGAIN || self.again.is_power_of_two()
    }

    fn may_close(&mut self, well: bool, at: Millis, settings: &RuleSettings) -> Step {
        if !well {
            self.well_since = None;
            return Step::Stay;
        }
        // A clock that was set back begins anew.
        let since = self.well_since.filter(|since| *since <= at).unwrap_or(at);
        self.well_since = Some(since);
        let longest = LONGEST_QUIET_MS.max(settings.quiet_ms);
        let quiet = settings.quiet_ms.saturating_mul(1 << self.flaps.min(16)).min(longest);
        if at.since(since).unsigned_abs() < quiet {
            return Step::Stay;
        }
        self.well_since = None;
        self.closed_at = Some(at);
        self.bad = 0;
        Step::Close
    }
}

/// Why a saved state cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadState(pub String);

impl std::fmt::Display for BadState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the saved state of the watch cannot be read ({}); delete it to begin anew: open findings are then told again",
            self.0
        )
    }
}

impl std::error::Error for BadState {}

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    servers: BTreeMap<String, SavedServer>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct SavedServer {
    known: Known,
    /// By the names of rules: a newer Tidegate may know more of them.
    windows: BTreeMap<String, Window>,
    open: Vec<Value>,
}

impl Judge {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, servers: BTreeMap::new(), gap_ms: 0 }.looking_every(1_000)
    }

    /// Looks come so many milliseconds one after the other, a second unless this is said.
    #[must_use]
    pub fn looking_every(self, ms: i64) -> Self {
        let gap_ms = ms.saturating_mul(GAP_INTERVALS).max(ms.saturating_add(GAP_MS));
        Self { gap_ms, ..self }
    }

    /// Goes on from what [`Judge::save`] gave, also under other settings. Rules that are not known are left out; what is open of those
    /// that are off now, [`Judge::close_off`] closes.
    ///
    /// # Errors
    /// [`BadState`]: it is no such text.
    pub fn restore(settings: Settings, text: &str) -> Result<Self, BadState> {
        if text.len() > MAX_STATE {
            return Err(BadState(format!("it has {} bytes", text.len())));
        }
        let saved: Saved = serde_json::from_str(text).map_err(|e| BadState(e.to_string()))?;
        if saved.version != VERSION {
            return Err(BadState(format!("it has the form {}, this Tidegate knows {VERSION}", saved.version)));
        }
        let mut judge = Self::new(settings);
        for (address, saved) in saved.servers.into_iter().take(MAX_SERVERS) {
            let windows = saved.windows.into_iter().filter_map(|(name, window)| Some((Rule::named(&name)?, window)));
            let mut open = BTreeMap::new();
            for finding in saved.open.into_iter().filter(is_of_known_rule) {
                let finding: Finding =
                    serde_json::from_value(finding).map_err(|e| BadState(format!("what is open at {address}: {e}")))?;
                open.insert(finding.rule, finding);
            }
            let server = Server { known: saved.known, windows: windows.collect(), open, ..Server::default() };
            judge.servers.insert(address, server);
        }
        Ok(judge)
    }

    /// Closes what is open of rules that are off: nobody looks any more whether it is over.
    pub fn close_off(&mut self, at: Millis) -> Vec<Change> {
        let settings = &self.settings;
        let off =
            self.servers.values_mut().flat_map(|server| server.open.extract_if(.., |rule, _| settings.of(*rule).off));
        off.map(|(_, finding)| Change::Closed(Finding { closed_at: Some(at), ..finding })).collect()
    }

    /// Everything that must outlive the process, as text.
    #[must_use]
    pub fn save(&self) -> String {
        let server = |server: &Server| SavedServer {
            known: server.known.clone(),
            windows: server.windows.iter().map(|(rule, window)| (rule.name().to_owned(), window.clone())).collect(),
            open: server.open.values().filter_map(|finding| serde_json::to_value(finding).ok()).collect(),
        };
        let servers = self.servers.iter().map(|(address, one)| (address.clone(), server(one))).collect();
        serde_json::to_string(&Saved { version: VERSION, servers }).unwrap_or_default()
    }

    /// Takes in a sample; the messages it makes, in the order of the rules. Of more than [`MAX_SERVERS`] servers, those that
    /// come later are not judged.
    pub fn judge(&mut self, sample: &Sample) -> Vec<Change> {
        if !self.servers.contains_key(&sample.address) && self.servers.len() >= MAX_SERVERS {
            return Vec::new();
        }
        match &sample.reply {
            Reply::Answer(answer) => self.judge_answer(sample, answer),
            Reply::Silence { kind, why, waited_ms } => self.judge_silence(sample, *kind, why, *waited_ms),
        }
    }

    fn judge_silence(&mut self, sample: &Sample, kind: Silence, why: &str, waited_ms: f64) -> Vec<Change> {
        let settings = self.settings.of(Rule::BlockedServer);
        let server = self.servers.entry(sample.address.clone()).or_default();
        server.mind_gap(sample.at, self.gap_ms);
        server.known.follow_clock(sample.at);
        server.known.learn_silence(sample.at);
        // Nobody knows how the rest is: what was well for a while must be seen to be well again.
        for (rule, window) in &mut server.windows {
            if *rule != Rule::BlockedServer {
                window.well_since = None;
            }
        }
        if settings.off {
            return Vec::new();
        }
        let measure = rules::life::silence(sample, kind, waited_ms, &server.known, &settings);
        let silent_ms = rules::life::silent_ms(sample, waited_ms, &server.known);
        let told = || rules::life::tell_silence(sample, kind, why, silent_ms);
        server.step(Rule::BlockedServer, measure, sample, &settings, told).into_iter().collect()
    }

    fn judge_answer(&mut self, sample: &Sample, answer: &Answer) -> Vec<Change> {
        let facts = Facts::of(sample.at, answer);
        let set = answer.info.text("master_replid").filter(|id| id.bytes().any(|b| b != b'0')).map(str::to_owned);
        let is_replica = answer.info.is_replica() == Some(true);
        let master = if is_replica { self.master_of(set.as_deref()) } else { None };
        let server = self.servers.entry(sample.address.clone()).or_default();
        (server.set, server.is_master) = (set, !is_replica);
        let last = server.history.back().copied();
        server.mind_gap(sample.at, self.gap_ms);
        server.known.follow_clock(sample.at);
        let earlier = server.known.clone();
        if server.known.learn(sample, answer, &facts, last.as_ref()) {
            server.history.clear();
            server.windows.values_mut().for_each(|window| window.bad = 0);
        }
        let (before, oldest) = (server.history.back().copied(), server.history.front().copied());
        server.memory = Some(Memory::of(sample, answer, &facts, before.as_ref()));
        let uptime = answer.info.number("uptime_in_seconds");
        let known = server.known.clone();
        let mut changes = Vec::new();
        for rule in Rule::ALL.iter().copied() {
            let settings = self.settings.of(rule);
            if settings.off {
                continue;
            }
            let view = View {
                sample,
                answer,
                info: &answer.info,
                facts: &facts,
                before: before.as_ref(),
                oldest: oldest.as_ref(),
                known: &known,
                purpose: self.settings.purpose,
                settings,
                master: master.as_ref(),
            };
            let is_young = uptime.is_some_and(|uptime| uptime < settings.min_uptime_s);
            let measure = if is_young { Measure::Unknown } else { rules::measure(rule, &view) };
            let level = match measure {
                Measure::Level(level) => level,
                Measure::Unknown | Measure::Between => 0.0,
            };
            let told = || rules::tell(rule, &view, level);
            if known.happened(rule) != earlier.happened(rule)
                && matches!(measure, Measure::Level(_))
                && level >= settings.threshold
            {
                changes.extend(server.end_for_another(rule, sample, told));
            }
            changes.extend(server.step(rule, measure, sample, &settings, told));
        }
        server.history.push_back(facts);
        if server.history.len() > HISTORY {
            server.history.pop_front();
        }
        changes
    }

    /// The last numbers of the master that a replica of the set `set` follows.
    fn master_of(&self, set: Option<&str>) -> Option<Facts> {
        let set = set?;
        let masters = self.servers.values().filter(|server| server.is_master && server.set.as_deref() == Some(set));
        masters.filter_map(|server| server.history.back().copied()).max_by_key(|facts| facts.at)
    }

    /// Stops to watch `address`, which left its Cluster or set: what is open of it is over.
    pub fn forget(&mut self, address: &str, at: Millis) -> Vec<Change> {
        let server = self.servers.remove(address).unwrap_or_default();
        server.open.into_values().map(|finding| Change::Closed(Finding { closed_at: Some(at), ..finding })).collect()
    }

    /// The servers it knows.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// What is open now, by server and rule.
    pub fn open(&self) -> impl Iterator<Item = &Finding> {
        self.servers.values().flat_map(|server| server.open.values())
    }

    /// Whether anything critical is open.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.open().any(|finding| finding.severity == Severity::Critical)
    }

    /// The memory of each server that has answered.
    pub fn memory(&self) -> impl Iterator<Item = &Memory> {
        self.servers.values().filter_map(|server| server.memory.as_ref())
    }

    /// The run of a server that was last seen.
    #[must_use]
    pub fn run_id(&self, address: &str) -> Option<&str> {
        self.servers.get(address)?.known.run_id()
    }
}

/// What a newer Tidegate found by a rule of its own means nothing here; whatever else cannot be read is damage.
fn is_of_known_rule(finding: &Value) -> bool {
    finding.get("rule").and_then(Value::as_str).is_none_or(|name| Rule::named(name).is_some())
}

impl Server {
    /// Nobody looked for a while: what was well before it must be seen to be well for as long again.
    fn mind_gap(&mut self, at: Millis, longest_ms: i64) {
        if self.known.looked_at.is_some_and(|last| at.since(last) > longest_ms) {
            self.windows.values_mut().for_each(|window| window.well_since = None);
        }
    }

    /// Something of the same kind happened while it is open: the finding of the one before is over, that of this one opens.
    fn end_for_another(&mut self, rule: Rule, sample: &Sample, told: impl FnOnce() -> Told) -> Vec<Change> {
        let window = self.windows.entry(rule).or_default();
        let Some(before) = self.open.get_mut(&rule).filter(|_| window.happens_again()) else { return Vec::new() };
        let now = opened(rule, sample, told());
        let before = std::mem::replace(before, now.clone());
        vec![Change::Closed(Finding { closed_at: Some(sample.at), ..before }), Change::Opened(now)]
    }

    fn step(
        &mut self,
        rule: Rule,
        measure: Measure,
        sample: &Sample,
        settings: &RuleSettings,
        told: impl FnOnce() -> Told,
    ) -> Option<Change> {
        let window = self.windows.entry(rule).or_default();
        match window.take(measure, self.open.contains_key(&rule), sample.at, settings) {
            Step::Stay => None,
            Step::Open => {
                let finding = opened(rule, sample, told());
                self.open.insert(rule, finding.clone());
                Some(Change::Opened(finding))
            }
            Step::Close => {
                let finding = self.open.remove(&rule)?;
                Some(Change::Closed(Finding { closed_at: Some(sample.at), ..finding }))
            }
        }
    }
}

fn opened(rule: Rule, sample: &Sample, told: Told) -> Finding {
    let server = xxhash_rust::xxh3::xxh3_64(sample.address.as_bytes()) >> 32;
    Finding {
        id: format!("{}-{}-{server:08x}", rule.name(), sample.at.0),
        rule,
        severity: told.severity,
        address: sample.address.clone(),
        opened_at: sample.at,
        closed_at: None,
        cause: told.cause,
        evidence: told.evidence,
        next_command: told.next_command,
        risk: told.risk,
    }
}
