//! The rules: each is a pure function from what was seen to one number, and one from that to words.
//!
//! - `memory.rs`: fragmentation, memory-pressure, full-noeviction, fork-headroom, swapping.
//! - `keys.rs`: eviction-of-state, evictions, expired-lingering, keys-without-ttl, policy-changed.
//! - `clients.rs`: client-buffers, big-value-passing, connections-near-limit, connections-rejected.
//! - `disk.rs`: save-failing, save-old, aof-failing.
//! - `replicas.rs`: replica-down, replica-lag, replica-buffer.
//! - `life.rs`: slow-commands, blocked-server, restarted, data-lost.
//!
//! A number is compared with the rule's threshold and clear level by the judge; words are made only when a finding opens.

pub(super) mod clients;
pub(super) mod disk;
pub(super) mod keys;
pub(super) mod life;
pub(super) mod memory;
pub(super) mod replicas;

use super::facts::Facts;
use super::finding::Told;
use super::info::Info;
use super::known::Known;
use super::sample::{Answer, Sample};
use super::settings::{Purpose, Rule, RuleSettings};

/// What a rule looks at.
pub(super) struct View<'a> {
    pub(super) sample: &'a Sample,
    pub(super) answer: &'a Answer,
    pub(super) info: &'a Info,
    pub(super) facts: &'a Facts,
    /// The sample before of the same run of the server.
    pub(super) before: Option<&'a Facts>,
    /// The oldest of the same run that is remembered.
    pub(super) oldest: Option<&'a Facts>,
    pub(super) known: &'a Known,
    pub(super) purpose: Purpose,
    pub(super) settings: RuleSettings,
    /// Of a replica: its master as it was last seen, if that is watched as well.
    pub(super) master: Option<&'a Facts>,
}

/// What a rule says of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Measure {
    /// It cannot be judged: nothing opens and nothing closes by it.
    Unknown,
    /// Neither bad nor well.
    Between,
    /// To be compared with threshold and clear level.
    Level(f64),
}

/// There is nothing to find.
pub(super) const WELL: Measure = Measure::Level(0.0);

impl From<Option<f64>> for Measure {
    fn from(level: Option<f64>) -> Self {
        level.map_or(Measure::Unknown, Measure::Level)
    }
}

/// How bad `rule` finds what `view` shows. A server that did not answer is judged by `blocked-server` alone.
pub(super) fn measure(rule: Rule, view: &View) -> Measure {
    // What a server that still reads its data says of them is not what it will say.
    let by_data =
        !matches!(rule, Rule::Restarted | Rule::BlockedServer | Rule::ConnectionsRejected | Rule::PolicyChanged);
    if by_data && view.info.is_on("loading") == Some(true) {
        return Measure::Unknown;
    }
    match rule {
        Rule::Fragmentation => memory::fragmentation(view),
        Rule::MemoryPressure => memory::pressure_of_memory(view),
        Rule::FullNoeviction => memory::full(view),
        Rule::ForkHeadroom => memory::fork_headroom(view),
        Rule::Swapping => memory::swapping(view),
        Rule::EvictionOfState => keys::eviction_of_state(view),
        Rule::Evictions => keys::evictions(view),
        Rule::ExpiredLingering => keys::expired_lingering(view),
        Rule::KeysWithoutTtl => keys::without_ttl(view),
        Rule::PolicyChanged => keys::policy_changed(view),
        Rule::ClientBuffers => clients::buffers(view),
        Rule::BigValuePassing => clients::big_value(view),
        Rule::ConnectionsNearLimit => clients::near_limit(view),
        Rule::ConnectionsRejected => clients::rejected(view),
        Rule::SaveFailing => disk::save_failing(view),
        Rule::SaveOld => disk::save_old(view),
        Rule::AofFailing => disk::aof_failing(view),
        Rule::ReplicaDown => replicas::down(view),
        Rule::ReplicaLag => replicas::lag(view),
        Rule::ReplicaBuffer => replicas::buffer(view),
        Rule::SlowCommands => life::slow_commands(view),
        Rule::BlockedServer => life::late(view.sample, view.answer),
        Rule::Restarted => life::restarted(view),
        Rule::DataLost => life::data_lost(view),
    }
}

/// What `rule` says of a sample that it found to be at `level`.
pub(super) fn tell(rule: Rule, view: &View, level: f64) -> Told {
    match rule {
        Rule::Fragmentation => memory::tell_fragmentation(view, level),
        Rule::MemoryPressure => memory::tell_pressure(view, level),
        Rule::FullNoeviction => memory::tell_full(view, level),
        Rule::ForkHeadroom => memory::tell_fork_headroom(view, level),
        Rule::Swapping => memory::tell_swapping(view, level),
        Rule::EvictionOfState => keys::tell_eviction_of_state(view, level),
        Rule::Evictions => keys::tell_evictions(view, level),
        Rule::ExpiredLingering => keys::tell_expired_lingering(view, level),
        Rule::KeysWithoutTtl => keys::tell_without_ttl(view, level),
        Rule::PolicyChanged => keys::tell_policy_changed(view),
        Rule::ClientBuffers => clients::tell_buffers(view, level),
        Rule::BigValuePassing => clients::tell_big_value(view, level),
        Rule::ConnectionsNearLimit => clients::tell_near_limit(view, level),
        Rule::ConnectionsRejected => clients::tell_rejected(view, level),
        Rule::SaveFailing => disk::tell_save_failing(view),
        Rule::SaveOld => disk::tell_save_old(view),
        Rule::AofFailing => disk::tell_aof_failing(view),
        Rule::ReplicaDown => replicas::tell_down(view, level),
        Rule::ReplicaLag => replicas::tell_lag(view, level),
        Rule::ReplicaBuffer => replicas::tell_buffer(view, level),
        Rule::SlowCommands => life::tell_slow_commands(view, level),
        Rule::BlockedServer => life::tell_late(view, level),
        Rule::Restarted => life::tell_restarted(view),
        Rule::DataLost => life::tell_data_lost(view, level),
    }
}

/// A command for this server, to be typed as it is.
pub(super) fn cli(sample: &Sample, command: &str) -> String {
    super::finding::cli(&sample.address, sample.tls, command)
}

impl View<'_> {
    pub(super) fn cli(&self, command: &str) -> String {
        cli(self.sample, command)
    }

    /// The same of Tidegate's own tools, which look with more care for a server in use.
    pub(super) fn own_tool(&self, verb: &str) -> String {
        super::finding::own_tool(&self.sample.address, self.sample.tls, verb)
    }

    /// A command that sets something; where `CONFIG` is forbidden, the words for whoever may.
    pub(super) fn set(&self, name: &str, value: &str) -> String {
        if self.answer.config.permitted == Some(false) {
            return format!(
                "set {name} to {value} where your provider keeps the server's parameters (CONFIG is forbidden here)"
            );
        }
        let value = if value.contains(' ') { format!("'{value}'") } else { value.to_owned() };
        self.cli(&format!("CONFIG SET {name} {value}"))
    }

    pub(super) fn policy(&self) -> Option<&str> {
        self.info.text("maxmemory_policy")
    }

    /// What bounds its memory: bytes, and who says so.
    pub(super) fn limit(&self) -> Option<(u64, &'static str)> {
        limit(self.answer)
    }

    /// How much of the limit is used, as eviction counts.
    pub(super) fn pressure(&self) -> Option<f64> {
        pressure(self.answer)
    }

    /// A limit that helps: a quarter more than what is used, if that is beyond the limit already, else than the limit.
    pub(super) fn more_memory(&self) -> u64 {
        let limit = self.limit().map_or(0, |(bytes, _)| bytes);
        let most = limit.max(self.info.number("used_memory").unwrap_or_default());
        most.saturating_add(most / 4)
    }

    /// Whether keys go when memory is full.
    pub(super) fn evicts(&self) -> Option<bool> {
        Some(self.policy()? != "noeviction" && self.info.number("maxmemory")? > 0)
    }
}

/// What bounds a server's memory: bytes, and who says so.
pub(super) fn limit(answer: &Answer) -> Option<(u64, &'static str)> {
    let some = |bytes: Option<u64>| bytes.filter(|bytes| *bytes > 0);
    let host = some(answer.info.number("total_system_memory"));
    // A limit above what there is limits nothing.
    let cgroup = some(answer.host.cgroup_bytes).filter(|bytes| host.is_none_or(|host| *bytes < host));
    some(answer.info.number("maxmemory"))
        .map(|bytes| (bytes, "maxmemory"))
        .or(cgroup.map(|bytes| (bytes, "cgroup")))
        .or(host.map(|bytes| (bytes, "host")))
}

/// How much of the limit is used. Against `maxmemory` as eviction counts; against a machine, whatever is resident.
pub(super) fn pressure(answer: &Answer) -> Option<f64> {
    let (limit, by) = limit(answer)?;
    let used = answer.info.number("used_memory")?;
    let counted = if by == "maxmemory" {
        used.saturating_sub(answer.info.number("mem_not_counted_for_evict").unwrap_or_default())
    } else {
        used.max(answer.info.number("used_memory_rss").unwrap_or_default())
    };
    Some(counted as f64 / limit as f64)
}
