//! What is known of servers. What is not known is left out, and nothing is judged by it.

use std::collections::BTreeMap;

use super::sample::KeySample;
use crate::watch::{Info, Purpose};

/// The servers that are looked at together.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// What they are used for.
    pub role: Purpose,
    /// How they belong together.
    pub topology: Topology,
    /// Those that answered.
    pub nodes: Vec<Node>,
    /// Those that did not.
    pub silent: Vec<Silent>,
}

/// How servers belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// It is one.
    Single,
    /// A master and its replicas under Sentinel.
    Sentinel(Sentinels),
    /// A Cluster; `None`: which servers it has may not be seen.
    Cluster(Option<Vec<Member>>),
}

/// What sentinels say of themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sentinels {
    /// The name of the master.
    pub service: String,
    /// The one that said it, `host:port`.
    pub at: String,
    /// How many must agree that the master is gone.
    pub quorum: Option<u64>,
    /// How many there are, as that one knows.
    pub known: Option<u64>,
    /// Those of the URL.
    pub asked: u64,
    /// Of these, those that answered.
    pub answered: u64,
}

/// A server of a Cluster, as `CLUSTER NODES` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name in the Cluster.
    pub id: String,
    /// `host:port`.
    pub address: String,
    /// Of a replica: the name of its master.
    pub master: Option<String>,
    /// Slots that it serves.
    pub slots: u64,
    /// Others find that it fails.
    pub fails: bool,
}

/// A server that does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    /// `host:port`.
    pub address: String,
    /// The error in its own words.
    pub why: String,
}

/// One server.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// `host:port`.
    pub address: String,
    /// It is spoken to over TLS.
    pub tls: bool,
    /// `INFO`.
    pub info: Info,
    /// What it is configured to.
    pub settings: Settings,
    /// Whether it can move allocations together; `None`: it was not said.
    pub can_defrag: Option<bool>,
    /// The machine, where it is ours.
    pub machine: Machine,
    /// We were let in without a password.
    pub is_open: bool,
    /// A sample of its keys, or why there is none.
    pub keys: Keys,
    /// Keys of its replicas, where those are no nodes of their own: address and number.
    pub replicas: Vec<(String, u64)>,
    /// `CLUSTER INFO`, where it is in a Cluster and that is permitted.
    pub cluster: Option<Info>,
}

/// Settings by their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `CONFIG GET` is permitted.
    pub permitted: bool,
    /// Those that the server has.
    pub values: BTreeMap<String, String>,
}

/// The machine that a server runs on, seen from the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The memory limit of the server's control group, bytes.
    pub cgroup_bytes: Option<u64>,
    /// Which processes get huge pages: `always`, `madvise`, `never`.
    pub huge_pages: Option<String>,
    /// The server itself does not take them.
    pub huge_pages_refused: Option<bool>,
    /// `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
}

/// A sample of keys, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Keys {
    /// They were looked at.
    Seen(KeySample),
    /// They were not: why.
    Unseen(String),
    /// It is a copy, and its master's are looked at.
    Elsewhere,
}

impl Default for Keys {
    fn default() -> Self {
        Keys::Unseen("its keys were not looked at".to_owned())
    }
}

impl Node {
    /// Keys of all its databases.
    #[must_use]
    pub fn key_count(&self) -> u64 {
        self.info.keyspaces().map(|db| db.keys).fold(0, u64::saturating_add)
    }

    /// Whether it is a replica, as far as it says so.
    #[must_use]
    pub fn is_replica(&self) -> bool {
        self.info.is_replica() == Some(true)
    }
}
