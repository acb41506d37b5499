//! The rules: what is known of a server goes in, a finding comes out, or what is missing to judge.
//!
//! - `memory.rs`: eviction-policy, own-keys-evictable, maxmemory-unset, memory-headroom, client-memory.
//! - `disk.rs`: persistence-off, save-failing, save-old, append-sync, append-growth, stop-writes.
//! - `freeing.rs`: defrag-off, defrag-thresholds, lazy-free.
//! - `keys.rs`: keys-without-ttl. `replicas.rs`: replica-buffer, backlog, min-replicas, no-replica, replica-keys, replica-writable.
//! - `clients.rs`: tcp-keepalive, idle-timeout, open-to-all, keyspace-events, slow-log, latency-monitor.
//! - `machine.rs`: huge-pages, overcommit.
//! - `sets.rs`: unreachable, cluster-broken, cluster-coverage, cluster-uneven, sentinels.

mod clients;
mod disk;
mod freeing;
mod keys;
mod machine;
mod memory;
mod replicas;
mod sets;

use super::check::Check;
use super::facts::{Deployment, Node, Topology};
use super::finding::{Change, Finding, Report, Unknown};
use crate::watch::finding::{Told, cli, own_tool};
use crate::watch::{Purpose, Severity};

const MIB: u64 = 1 << 20;

/// The settings that rules look at, as `CONFIG GET` names them. None of them is a secret.
pub const SETTINGS: &[&str] = &[
    "maxmemory",
    "maxmemory-policy",
    "maxmemory-clients",
    "save",
    "appendonly",
    "appendfsync",
    "auto-aof-rewrite-percentage",
    "stop-writes-on-bgsave-error",
    "activedefrag",
    "active-defrag-ignore-bytes",
    "active-defrag-threshold-lower",
    "active-defrag-cycle-min",
    "active-defrag-cycle-max",
    "lazyfree-lazy-eviction",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-server-del",
    "lazyfree-lazy-user-del",
    "lazyfree-lazy-user-flush",
    "replica-lazy-flush",
    "client-output-buffer-limit",
    "repl-backlog-size",
    "min-replicas-to-write",
    "replica-read-only",
    "tcp-keepalive",
    "timeout",
    "bind",
    "protected-mode",
    "notify-keyspace-events",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "latency-monitor-threshold",
    "cluster-require-full-coverage",
];

/// What is missing to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Missing {
    /// The server has no such thing; there is nothing to judge.
    NotThere,
    /// It may not be seen, or is not said: what, and why.
    Unseen(String),
}

/// What a rule comes to.
type Judged = Result<Option<Found>, Missing>;

/// What a rule finds.
struct Found {
    told: Told,
    changes: Vec<Change>,
}

impl From<Told> for Found {
    fn from(told: Told) -> Self {
        Self { told, changes: Vec::new() }
    }
}

/// Nothing is wrong.
const WELL: Judged = Ok(None);

fn found(told: Told) -> Judged {
    Ok(Some(told.into()))
}

/// What a rule looks at.
struct View<'a> {
    all: &'a Deployment,
    node: &'a Node,
}

/// A rule of one server.
type OfAServer = fn(&View) -> Judged;
/// A rule of all together: what it comes to, with the addresses that it is about.
type OfAll = fn(&Deployment) -> Vec<(String, Judged)>;

/// The checks of one server, and how each is judged.
const OF_A_SERVER: &[(Check, OfAServer)] = &[
    (Check::EvictionPolicy, memory::policy),
    (Check::OwnKeysEvictable, memory::own_keys),
    (Check::MaxmemoryUnset, memory::unset),
    (Check::MemoryHeadroom, memory::headroom),
    (Check::ClientMemory, memory::clients),
    (Check::PersistenceOff, disk::off),
    (Check::SaveFailing, disk::failing),
    (Check::SaveOld, disk::old),
    (Check::AppendSync, disk::append_sync),
    (Check::AppendGrowth, disk::append_growth),
    (Check::StopWrites, disk::stop_writes),
    (Check::DefragOff, freeing::defrag_off),
    (Check::DefragThresholds, freeing::thresholds),
    (Check::LazyFree, freeing::lazy),
    (Check::KeysWithoutTtl, keys::without_ttl),
    (Check::ReplicaBuffer, replicas::buffer),
    (Check::Backlog, replicas::backlog),
    (Check::MinReplicas, replicas::min_replicas),
    (Check::NoReplica, replicas::none),
    (Check::ReplicaKeys, replicas::keys),
    (Check::ReplicaWritable, replicas::writable),
    (Check::Keepalive, clients::keepalive),
    (Check::IdleTimeout, clients::idle),
    (Check::OpenToAll, clients::open),
    (Check::KeyspaceEvents, clients::events),
    (Check::SlowLog, clients::slow_log),
    (Check::LatencyMonitor, clients::latency),
    (Check::HugePages, machine::huge_pages),
    (Check::Overcommit, machine::overcommit),
    (Check::ClusterCoverage, sets::coverage),
];

/// The checks of all servers together.
const OF_ALL: &[(Check, OfAll)] = &[
    (Check::Unreachable, sets::unreachable),
    (Check::ClusterBroken, sets::broken),
    (Check::ClusterUneven, sets::uneven),
    (Check::Sentinels, sets::sentinels),
];

/// Judges what is known of servers: the worst first, then in the order of servers and checks.
#[must_use]
pub fn judge(all: &Deployment) -> Report {
    let mut report = Report::default();
    let mut add = |check: Check, address: &str, judged: Judged| match judged {
        Ok(Some(Found { told, changes })) => report.findings.push(Finding {
            check,
            severity: told.severity,
            address: address.to_owned(),
            cause: told.cause,
            evidence: told.evidence,
            fix: told.next_command,
            risk: told.risk,
            changes,
        }),
        Ok(None) | Err(Missing::NotThere) => {}
        Err(Missing::Unseen(why)) => report.unknown.push(Unknown { check, address: address.to_owned(), why }),
    };
    for (check, rule) in OF_ALL {
        rule(all).into_iter().for_each(|(address, judged)| add(*check, &address, judged));
    }
    for node in &all.nodes {
        let view = View { all, node };
        for (check, rule) in OF_A_SERVER {
            // What is no matter for this role is not asked for either.
            if check.worst(all.role).is_some() {
                add(*check, &node.address, rule(&view));
            }
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

impl View<'_> {
    fn role(&self) -> Purpose {
        self.all.role
    }

    /// A setting.
    fn setting(&self, name: &str) -> Result<&str, Missing> {
        let settings = &self.node.settings;
        if !settings.permitted {
            return Err(Missing::Unseen("CONFIG GET is not permitted".to_owned()));
        }
        settings.values.get(name).map(String::as_str).ok_or(Missing::NotThere)
    }

    /// A setting that is a whole number; below zero it is none.
    fn number(&self, name: &str) -> Result<u64, Missing> {
        let value = self.setting(name)?;
        value.parse().map_err(|_| Missing::Unseen(format!("{name} is {value}, which is no number")))
    }

    fn is_on(&self, name: &str) -> Result<bool, Missing> {
        Ok(self.setting(name)? == "yes")
    }

    /// A number of `INFO`.
    fn info(&self, name: &str) -> Result<u64, Missing> {
        self.node.info.number(name).ok_or_else(|| Missing::Unseen(format!("INFO does not say {name}")))
    }

    /// A word of `INFO`.
    fn word(&self, name: &str) -> Result<&str, Missing> {
        self.node.info.text(name).ok_or_else(|| Missing::Unseen(format!("INFO does not say {name}")))
    }

    fn cli(&self, command: &str) -> String {
        cli(&self.node.address, self.node.tls, command)
    }

    fn own_tool(&self, verb: &str) -> String {
        own_tool(&self.node.address, self.node.tls, verb)
    }

    /// A command that sets something; where `CONFIG` is forbidden, the words for whoever may.
    fn set(&self, name: &str, value: &str) -> String {
        if !self.node.settings.permitted {
            return format!("set {name} to {value} where your provider keeps the server's parameters");
        }
        let quoted =
            if value.is_empty() || value.contains([' ', '*']) { format!("'{value}'") } else { value.to_owned() };
        self.cli(&format!("CONFIG SET {name} {quoted}"))
    }

    /// A finding that settings mend: names and values. It is not safe to set them: `is_safe` is false.
    fn mended(&self, told: Told, risk: &str, is_safe: bool, settings: &[(&str, &str)]) -> Judged {
        let fix: Vec<String> = settings.iter().map(|(name, value)| self.set(name, value)).collect();
        let change = |(name, to): &(&str, &str)| {
            let from = self.node.settings.values.get(*name)?.clone();
            Some(Change { name: (*name).to_owned(), from, to: (*to).to_owned() })
        };
        let changes = if is_safe && self.node.settings.permitted {
            settings.iter().filter_map(change).collect()
        } else {
            Vec::new()
        };
        Ok(Some(Found { told: told.next(fix.join(" && "), risk), changes }))
    }

    /// The machine's memory, or that of the server's control group, bytes.
    fn machine(&self) -> Option<u64> {
        let host = self.node.info.number("total_system_memory").filter(|bytes| *bytes > 0);
        [host, self.node.machine.cgroup_bytes].into_iter().flatten().min()
    }

    /// Servers of ours on the same machine, this one included.
    fn neighbours(&self) -> u64 {
        let host = |node: &Node| node.address.rsplit_once(':').map(|(host, _)| host.to_owned());
        let ours = host(self.node);
        let count = self.all.nodes.iter().filter(|node| host(node) == ours).count();
        u64::try_from(count.max(1)).unwrap_or(1)
    }

    /// Its replicas that are known.
    fn replicas(&self) -> u64 {
        self.node.info.number("connected_slaves").unwrap_or_default()
    }

    /// It has replicas, or is one that may become a master.
    fn is_replicated(&self) -> bool {
        self.replicas() > 0 || self.node.is_replica()
    }

    /// Save points, or an append-only file; `None`: it is not known.
    fn persists(&self) -> Option<bool> {
        let append = self.node.info.is_on("aof_enabled");
        let saves = self.setting("save").ok().map(|save| !save.trim().is_empty());
        match (append, saves) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        }
    }

    /// It forks: for the disk or for replicas. What is not known counts as yes.
    fn forks(&self) -> bool {
        self.persists() != Some(false) || self.is_replicated()
    }

    fn evicts(&self) -> Option<bool> {
        let policy = self.node.info.text("maxmemory_policy")?;
        Some(policy != "noeviction" && self.node.info.number("maxmemory")? > 0)
    }

    fn is_cluster(&self) -> bool {
        matches!(self.all.topology, Topology::Cluster(_)) || self.node.info.number("cluster_enabled") == Some(1)
    }
}

fn told(severity: Severity, cause: impl Into<String>) -> Told {
    Told::new(severity, cause)
}
