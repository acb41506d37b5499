//! Each check finds what it is for, in each role as bad as its table says, and nothing in servers that are set up well.

mod cases;
mod plans;

use std::collections::BTreeMap;

use super::facts::{Deployment, Keys, Machine, Node, Settings, Topology};
use super::sample::{Group, KeySample};
use super::{Check, Finding, judge};
use crate::watch::{Info, Purpose};

const ROLES: [Purpose; 3] = [Purpose::State, Purpose::Cache, Purpose::Shared];

/// What a test changes of a well server.
#[derive(Clone)]
struct Server {
    info: BTreeMap<&'static str, String>,
    settings: BTreeMap<&'static str, String>,
    node: Node,
}

impl Server {
    /// One that is well for `role`.
    fn well(role: Purpose) -> Self {
        let policy = match role {
            Purpose::State => "noeviction",
            Purpose::Cache => "allkeys-lfu",
            Purpose::Shared => "volatile-lfu",
        };
        let info = [
            ("redis_version", "7.0.15"),
            ("uptime_in_seconds", "1000"),
            ("server_time_usec", "1000000000000000"),
            ("used_memory", "209715200"),
            ("used_memory_rss", "230686720"),
            ("total_system_memory", "16106127360"),
            ("maxmemory", "4294967296"),
            ("maxmemory_policy", policy),
            ("mem_allocator", "jemalloc-5.2.1"),
            ("mem_clients_normal", "100000"),
            ("role", "master"),
            ("connected_slaves", "2"),
            ("master_repl_offset", "1000000"),
            ("rdb_changes_since_last_save", "10"),
            ("rdb_last_save_time", "999999000"),
            ("rdb_last_bgsave_status", "ok"),
            ("aof_last_write_status", "ok"),
            ("aof_last_bgrewrite_status", "ok"),
            ("aof_enabled", "0"),
            ("db0", "keys=2000,expires=1900,avg_ttl=0"),
            ("pubsub_channels", "0"),
            ("pubsub_patterns", "0"),
        ];
        let stops = if role == Purpose::Cache { "no" } else { "yes" };
        let settings = [
            ("maxmemory-clients", "5%"),
            ("maxmemory-policy", policy),
            ("maxmemory", "4294967296"),
            ("save", "3600 1 300 100"),
            ("appendonly", "no"),
            ("appendfsync", "everysec"),
            ("auto-aof-rewrite-percentage", "100"),
            ("stop-writes-on-bgsave-error", stops),
            ("activedefrag", "yes"),
            ("active-defrag-ignore-bytes", "104857600"),
            ("active-defrag-threshold-lower", "10"),
            ("active-defrag-cycle-min", "1"),
            ("active-defrag-cycle-max", "25"),
            ("lazyfree-lazy-eviction", "yes"),
            ("lazyfree-lazy-expire", "yes"),
            ("lazyfree-lazy-server-del", "yes"),
            ("lazyfree-lazy-user-del", "yes"),
            ("lazyfree-lazy-user-flush", "yes"),
            ("replica-lazy-flush", "yes"),
            ("client-output-buffer-limit", "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"),
            ("repl-backlog-size", "67108864"),
            ("min-replicas-to-write", "1"),
            ("replica-read-only", "yes"),
            ("tcp-keepalive", "300"),
            ("timeout", "0"),
            ("bind", "* -::*"),
            ("protected-mode", "yes"),
            ("notify-keyspace-events", ""),
            ("slowlog-log-slower-than", "10000"),
            ("slowlog-max-len", "128"),
            ("latency-monitor-threshold", "100"),
            ("cluster-require-full-coverage", "yes"),
        ];
        let group = Group { keys: 2_000, without_ttl: 100, is_ours: false };
        let sample = KeySample {
            total: 2_000,
            how: "all",
            keys: 2_000,
            prefixes: [("user:".to_owned(), group)].into(),
            ..KeySample::default()
        };
        let node = Node {
            address: "10.0.0.1:6379".to_owned(),
            can_defrag: Some(true),
            is_open: true,
            keys: Keys::Seen(sample),
            machine: Machine {
                cgroup_bytes: None,
                huge_pages: Some("madvise".to_owned()),
                huge_pages_refused: Some(false),
                overcommit: Some(1),
            },
            ..Node::default()
        };
        let text =
            |pairs: &[(&'static str, &str)]| pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { info: text(&info), settings: text(&settings), node }
    }

    fn info(&mut self, name: &'static str, value: impl ToString) -> &mut Self {
        self.info.insert(name, value.to_string());
        self
    }

    fn set(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.settings.insert(name, value.to_owned());
        self
    }

    fn sample(&mut self) -> &mut KeySample {
        let Keys::Seen(sample) = &mut self.node.keys else { panic!("there is a sample") };
        sample
    }

    fn node(&self) -> Node {
        let text: String = self.info.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
        let values = self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Node { info: Info::parse(&text), settings: Settings { permitted: true, values }, ..self.node.clone() }
    }
}

fn alone(role: Purpose, nodes: Vec<Node>) -> Deployment {
    Deployment { role, topology: Topology::Single, nodes, silent: Vec::new() }
}

fn of(check: Check, all: &Deployment) -> Option<Finding> {
    judge(all).findings.into_iter().find(|finding| finding.check == check)
}

/// The guide's table.
fn table() -> String {
    let mut table =
        "| check | state | cache | shared | what it finds | what mends it | what that may do | set |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    for check in Check::ALL {
        let severity = |role| check.worst(role).map_or("–", crate::watch::Severity::name);
        let [state, cache, shared] = ROLES.map(severity);
        let set = if check.is_applied() { "yes" } else { "" };
        let row = format!(
            "| `{}` | {state} | {cache} | {shared} | {} | {} | {} | {set} |\n",
            check.name(),
            check.about(),
            check.fix(),
            check.risk()
        );
        table.push_str(&row);
    }
    table
}

#[test]
fn the_guide_has_every_check() {
    let guide = include_str!("../../../../../docs/operations/doctor.md");
    assert!(guide.contains(&table()), "docs/operations/doctor.md must have this table:\n{}", table());
}
