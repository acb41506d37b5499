//! What is remembered of a server beyond its last samples, also when whoever watches is started again.

use serde::{Deserialize, Serialize};

use super::facts::{Facts, grown};
use super::info::{Info, Kind};
use super::sample::{Answer, Sample};
use super::settings::Rule;
use crate::Millis;

/// An event is worth telling for so long.
const RECENT_MS: i64 = 5 * 60_000;
/// A replica that was gone for so long is not missed any more.
const MISSED_MS: i64 = 60 * 60_000;
/// A first copy that has not come on for so long is a trouble.
const COPY_STALLS_MS: i64 = 60_000;
/// A master that prepares a snapshot says every ten seconds that it is there.
const MASTER_SPEAKS_S: u64 = 15;
/// Clocks and whole seconds of uptime are not more exact than this.
const SLACK_MS: i64 = 2_500;
/// Fewer keys than this part of those before are a loss worth a look.
const LOST: f64 = 0.5;
/// Where it cannot be seen that everything was deleted by command, as good as all keys must be gone.
const ALL: f64 = 0.99;
/// A flush is counted so long after it at the latest.
const SUSPECT_MS: i64 = 15_000;
/// Growth of wasted memory is seen over so long.
const WASTE_MS: i64 = 10 * 60_000;

/// What is remembered of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    run_id: Option<String>,
    version: Option<String>,
    seen_at: Option<Millis>,
    /// When it was looked at last, answered or not.
    pub(super) looked_at: Option<Millis>,
    pub(super) silent_since: Option<Millis>,
    policy: Option<String>,
    keys: Option<u64>,
    flushes: Option<u64>,
    /// It reads its data since a start: keys are compared when it is done.
    is_loading: bool,
    is_replica: bool,
    /// The most replicas lately, and when there were so many.
    replicas: Option<(u64, Millis)>,
    /// Replicas that had all of its data at the last look.
    online: u64,
    /// Of a replica that has no copy of its master's data yet.
    pub(super) first_copy: Option<FirstCopy>,
    /// Wasted memory some minutes ago.
    waste: Option<(u64, Millis)>,
    pub(super) waste_before: Option<u64>,
    pub(super) restart: Option<Restart>,
    pub(super) policy_change: Option<PolicyChange>,
    pub(super) loss: Option<Loss>,
    /// Keys that went at once, and it was not seen how; whether it was a flush is known soon.
    suspect: Option<Loss>,
}

/// Another run of a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Restart {
    pub(super) at: Millis,
    /// It ran already when the one before was last seen: another server, not another start.
    pub(super) is_another: bool,
    pub(super) keys_before: Option<u64>,
    pub(super) version_before: Option<String>,
    pub(super) away_ms: i64,
    /// How many there were, each within minutes of the one before.
    #[serde(default)]
    pub(super) times: u32,
}

/// A replica whose link to its master was never up since it became its replica, or was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FirstCopy {
    /// `host:port`.
    pub(super) master: String,
    /// When it was seen so for the first time.
    pub(super) since: Millis,
    /// When it came on last.
    came_on: Millis,
    /// The most bytes that were read of a copy. One that breaks off and begins anew does not come on.
    most: u64,
}

impl FirstCopy {
    /// Whether it may still come, as far as can be seen.
    pub(super) fn comes_on(&self, now: Millis) -> bool {
        now.since(self.came_on) < COPY_STALLS_MS
    }
}

/// The master of a replica, `host:port`.
pub(super) fn master_of(info: &Info) -> String {
    let part = |name: &str| info.text(name).unwrap_or("unknown");
    format!("{}:{}", part("master_host"), part("master_port"))
}

/// `maxmemory-policy` was changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PolicyChange {
    pub(super) at: Millis,
    pub(super) from: String,
    pub(super) to: String,
}

/// Keys are gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Loss {
    pub(super) at: Millis,
    pub(super) before: u64,
    pub(super) after: u64,
    /// Of those gone, keys that expired or were evicted.
    pub(super) explained: u64,
    pub(super) how: How,
}

/// In which way keys went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum How {
    /// `FLUSHALL` or `FLUSHDB`.
    Flushed,
    /// The server was started again.
    Restarted,
    /// Another server answers.
    Replaced,
    /// It cannot be seen.
    Unseen,
}

/// Whether a flush may be counted only when the memory is free again, as by Redis from 7.4 on.
fn counts_flushes_late(info: &Info) -> bool {
    let server = info.server();
    match server.kind {
        Kind::Redis => server.number.is_none_or(|number| number >= (7, 4)),
        Kind::Valkey => false,
        Kind::Other => true,
    }
}

fn is_recent(at: Millis, now: Millis) -> bool {
    (0..RECENT_MS).contains(&now.since(at))
}

impl Restart {
    pub(super) fn is_recent(&self, now: Millis) -> bool {
        is_recent(self.at, now)
    }
}

impl PolicyChange {
    pub(super) fn is_recent(&self, now: Millis) -> bool {
        is_recent(self.at, now)
    }
}

impl Loss {
    pub(super) fn is_recent(&self, now: Millis) -> bool {
        is_recent(self.at, now)
    }

    /// The share of keys that went and that nothing explains.
    pub(super) fn share(&self) -> f64 {
        let gone = self.before.saturating_sub(self.after).saturating_sub(self.explained);
        gone as f64 / self.before.max(1) as f64
    }
}

impl Known {
    /// Replicas that a master had lately.
    pub(super) fn replicas_expected(&self) -> u64 {
        self.replicas.map_or(0, |(count, _)| count)
    }

    /// The run of the server that was last seen.
    pub(super) fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    /// A clock that was set back takes what is remembered with it: nothing lies ahead, and nothing becomes news again when the clock
    /// comes by.
    pub(super) fn follow_clock(&mut self, at: Millis) {
        let last = self.looked_at.replace(at).or(self.seen_at);
        let Some(back) = last.map(|last| last.since(at)).filter(|back| *back > 0) else { return };
        let remembered = [
            self.seen_at.as_mut(),
            self.silent_since.as_mut(),
            self.replicas.as_mut().map(|(_, at)| at),
            self.waste.as_mut().map(|(_, at)| at),
            self.first_copy.as_mut().map(|copy| &mut copy.since),
            self.restart.as_mut().map(|restart| &mut restart.at),
            self.policy_change.as_mut().map(|change| &mut change.at),
            self.loss.as_mut().map(|loss| &mut loss.at),
            self.suspect.as_mut().map(|suspect| &mut suspect.at),
        ];
        for at in remembered.into_iter().flatten() {
            *at = at.plus(-back);
        }
        if let Some(copy) = &mut self.first_copy {
            copy.came_on = copy.came_on.plus(-back);
        }
    }

    /// When what `rule` tells happened last, if it tells of something that happens at once.
    pub(super) fn happened(&self, rule: Rule) -> Option<Millis> {
        match rule {
            Rule::Restarted => self.restart.as_ref().map(|restart| restart.at),
            Rule::PolicyChanged => self.policy_change.as_ref().map(|change| change.at),
            Rule::DataLost => self.loss.as_ref().map(|loss| loss.at),
            _ => None,
        }
    }

    /// Takes in that it did not answer.
    pub(super) fn learn_silence(&mut self, at: Millis) {
        self.silent_since.get_or_insert(at);
    }

    /// Takes in an answer; whether another run of the server answers than before. `before`: the last sample of the same run.
    pub(super) fn learn(&mut self, sample: &Sample, answer: &Answer, facts: &Facts, before: Option<&Facts>) -> bool {
        let info = &answer.info;
        let restart = self.other_run(sample.at, info);
        let is_other = restart.is_some();
        if is_other {
            self.restart = restart;
            self.flushes = None;
            self.waste_before = None;
            self.waste = None;
            self.first_copy = None;
        }
        self.compare_keys(answer, facts, before.filter(|_| !is_other), is_other);
        self.compare_policy(sample.at, info);
        self.count_replicas(sample.at, info);
        self.follow_first_copy(sample.at, info);
        self.weigh_waste(sample.at, info);
        self.version = Some(info.server().version);
        if let Some(run_id) = info.text("run_id") {
            self.run_id = Some(run_id.to_owned());
        }
        self.seen_at = Some(sample.at);
        self.silent_since = None;
        is_other
    }

    fn other_run(&self, at: Millis, info: &Info) -> Option<Restart> {
        let (known, run_id) = (self.run_id.as_deref()?, info.text("run_id")?);
        if known == run_id {
            return None;
        }
        let seen_at = self.seen_at.unwrap_or(at);
        let uptime_ms = i64::try_from(info.number("uptime_in_seconds").unwrap_or_default()).unwrap_or(i64::MAX);
        let started_at = at.plus(uptime_ms.saturating_mul(-1_000));
        Some(Restart {
            at,
            is_another: started_at.plus(SLACK_MS) < seen_at,
            keys_before: self.keys,
            version_before: self.version.clone(),
            away_ms: at.since(seen_at).max(0),
            times: self
                .restart
                .as_ref()
                .filter(|last| last.is_recent(at))
                .map_or(0, |last| last.times)
                .saturating_add(1),
        })
    }

    fn compare_keys(&mut self, answer: &Answer, facts: &Facts, before: Option<&Facts>, is_other: bool) {
        let info = &answer.info;
        let was_loading = std::mem::replace(&mut self.is_loading, info.is_on("loading") == Some(true));
        if self.is_loading || info.is_on("async_loading") == Some(true) {
            return;
        }
        // The counter begins anew with CONFIG RESETSTAT.
        let flushed = facts.flushes.zip(self.flushes).is_some_and(|(now, before)| now != before && now > 0);
        let counts_late = counts_flushes_late(info);
        // Where it is not known how many there were before, one that was may have been now.
        let not_flushed = facts.flushes.is_some_and(|count| count == 0 || self.flushes.is_some());
        if facts.flushes.is_some() {
            self.flushes = facts.flushes;
        }
        let is_replica = info.is_replica() == Some(true);
        // A replica has what its master has: that is where keys are lost.
        let changed_part = std::mem::replace(&mut self.is_replica, is_replica) != is_replica;
        let (Some(now), Some(then)) = (facts.keys, self.keys) else {
            self.keys = facts.keys.or(self.keys);
            return;
        };
        self.keys = Some(now);
        if let Some(suspect) = self.suspect.take_if(|suspect| flushed || facts.at.since(suspect.at) > SUSPECT_MS)
            && flushed
        {
            self.loss = Some(Loss { at: facts.at, ..suspect });
        }
        if is_replica || changed_part && !is_other {
            return;
        }
        let since = |of: fn(&Facts) -> Option<u64>| {
            before.map_or_else(|| of(facts), |before| grown(of(facts), of(before))).unwrap_or_default()
        };
        let while_loading = if is_other || was_loading { info.number("rdb_last_load_keys_expired") } else { None };
        // Counters of a run that whoever watches did not see from its beginning say nothing of what went meanwhile.
        let known_run = before.is_some() || is_other || was_loading;
        let explained =
            if known_run { since(|f| f.expired) + since(|f| f.evicted) + while_loading.unwrap_or_default() } else { 0 };
        let restarted = is_other || was_loading;
        let is_another = self.restart.as_ref().is_some_and(|restart| restart.is_another);
        let is_suspect = !flushed && !restarted && not_flushed;
        let how = match (flushed || is_suspect, restarted) {
            (true, _) => How::Flushed,
            (_, true) if is_another => How::Replaced,
            (_, true) => How::Restarted,
            (false, false) => How::Unseen,
        };
        let loss = Loss { at: facts.at, before: then, after: now, explained, how };
        let enough = if how == How::Unseen { ALL } else { LOST };
        if then == 0 || !(known_run || flushed) || loss.share() < enough {
            return;
        }
        if is_suspect {
            // Ordinary deletions; or a flush that is counted only when the memory is free again.
            self.suspect = Some(loss).filter(|_| counts_late);
        } else {
            self.loss = Some(loss);
        }
    }

    fn compare_policy(&mut self, at: Millis, info: &Info) {
        let Some(policy) = info.text("maxmemory_policy") else { return };
        match &self.policy {
            Some(known) if known != policy => {
                let is_back =
                    self.policy_change.as_ref().is_some_and(|change| change.from == policy && change.is_recent(at));
                let change = PolicyChange { at, from: known.clone(), to: policy.to_owned() };
                self.policy_change = (!is_back).then_some(change);
            }
            _ => {}
        }
        self.policy = Some(policy.to_owned());
    }

    fn count_replicas(&mut self, at: Millis, info: &Info) {
        if info.is_replica() != Some(false) {
            (self.replicas, self.online) = (None, 0);
            return;
        }
        if info.number("connected_slaves").is_none() {
            return;
        }
        // Nobody is missed who was not there for two looks: what comes and leaves is no replica to rely on.
        let online = info.standing_replicas().filter(|replica| replica.state == "online").count() as u64;
        let now = std::mem::replace(&mut self.online, online).min(online);
        match self.replicas {
            Some((most, last)) if now < most && at.since(last) < MISSED_MS => {}
            _ => self.replicas = Some((now, at)),
        }
    }

    fn follow_first_copy(&mut self, at: Millis, info: &Info) {
        // Since when the link is down is -1 while it was never up.
        let never_up = info.is_replica() == Some(true)
            && info.text("master_link_status").is_some_and(|status| status != "up")
            && info.text("master_link_down_since_seconds") == Some("-1");
        if !never_up {
            self.first_copy = None;
            return;
        }
        let master = master_of(info);
        let known = self.first_copy.take().filter(|copy| copy.master == master);
        let mut copy = known.unwrap_or(FirstCopy { master, since: at, came_on: at, most: 0 });
        let read = info.number("master_sync_read_bytes").unwrap_or_default();
        let last_heard = info.number("master_sync_last_io_seconds_ago");
        let is_preparing = info.is_on("master_sync_in_progress") == Some(true)
            && copy.most == 0
            && last_heard.is_some_and(|seconds| seconds <= MASTER_SPEAKS_S);
        let is_loading = ["loading", "async_loading"].iter().any(|name| info.is_on(name) == Some(true));
        if read > copy.most || is_preparing || is_loading {
            copy.came_on = at;
            copy.most = copy.most.max(read);
        }
        self.first_copy = Some(copy);
    }

    fn weigh_waste(&mut self, at: Millis, info: &Info) {
        let (Some(used), Some(rss)) = (info.number("used_memory"), info.number("used_memory_rss")) else { return };
        match self.waste {
            Some((_, since)) if at.since(since) < WASTE_MS => {}
            _ => {
                self.waste_before = self.waste.map(|(waste, _)| waste);
                self.waste = Some((rss.saturating_sub(used), at));
            }
        }
    }
}
