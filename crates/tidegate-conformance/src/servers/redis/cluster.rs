//! A Cluster of three masters.

use super::{Engine, Redis, Setup};
use crate::servers::process::wait_until;

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// Three masters, and a replica of each if asked for. Dropped, all end.
#[derive(Debug)]
pub struct Cluster {
    /// Masters first; the replica of node `i` is node `i + 3`.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts the nodes and joins them; a master that is silent for a second is replaced by its replica.
    ///
    /// # Panics
    /// As [`Redis::start`].
    #[must_use]
    pub fn start(engine: Engine, replicas: bool) -> Self {
        let count = if replicas { 2 * MASTERS } else { MASTERS };
        let mut setup = Setup::default().engine(engine).option("cluster-node-timeout", "1000");
        setup.cluster = true;
        let options = [("cluster-require-full-coverage", "no"), ("cluster-replica-validity-factor", "0")];
        setup = options.iter().fold(setup, |setup, (name, value)| setup.option(name, value));
        let nodes: Vec<Redis> = (0..count).map(|_| Redis::start_with(setup.clone())).collect();
        let cluster = Self { nodes };
        cluster.join();
        cluster
    }

    /// `redis-cluster://host:port,...` of all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Which node holds `slot`, by the word of node `asked`.
    #[must_use]
    pub fn owner(&self, slot: u16, asked: usize) -> Option<usize> {
        let map = self.nodes[asked].try_tell(&["CLUSTER", "NODES"]).ok()?;
        let line = map.lines().find(|line| {
            let mut fields = line.split(' ');
            fields.nth(2).is_some_and(|flags| flags.contains("master") && !flags.contains("fail")) && {
                fields.skip(5).any(|range| {
                    let (from, to) = range.split_once('-').unwrap_or((range, range));
                    matches!((from.parse::<u16>(), to.parse::<u16>()), (Ok(a), Ok(b)) if (a..=b).contains(&slot))
                })
            }
        })?;
        let address = line.split(' ').nth(1)?.split('@').next()?;
        self.nodes.iter().position(|node| address.ends_with(&format!(":{}", node.port())))
    }

    /// The slot of `key`.
    ///
    /// # Panics
    /// When no node answers.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let answers = self.nodes.iter().filter_map(|node| node.try_tell(&["CLUSTER", "KEYSLOT", key]).ok());
        answers.filter_map(|slot| slot.parse().ok()).next().expect("a node answers")
    }

    /// Moves `slot` with its keys to node `to`.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn move_slot(&self, slot: u16, to: usize) {
        self.move_slot_of(slot, self.owner(slot, 0).expect("every slot has an owner"), to);
    }

    /// The same when it is known that node `from` holds it, and node 0 may be gone.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn move_slot_of(&self, slot: u16, from: usize, to: usize) {
        self.open_slot(slot, from, to);
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (target_id, slot_text) = (target.tell(&["CLUSTER", "MYID"]), slot.to_string());
        loop {
            let keys = source.tell(&["CLUSTER", "GETKEYSINSLOT", &slot_text, "10"]);
            let Some(key) = keys.lines().next().filter(|key| !key.is_empty()) else { break };
            source.tell(&["MIGRATE", "127.0.0.1", &target.port().to_string(), key, "0", "5000"]);
        }
        for node in [target, source] {
            node.tell(&["CLUSTER", "SETSLOT", &slot_text, "NODE", &target_id]);
        }
    }

    /// Begins to move `slot` from node `from` to node `to`, and no more: it stays open.
    ///
    /// # Panics
    /// When a node refuses.
    pub fn open_slot(&self, slot: u16, from: usize, to: usize) {
        let [source_id, target_id] = [from, to].map(|node| self.nodes[node].tell(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        self.nodes[to].tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        self.nodes[from].tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
    }

    /// Moves one key of an open slot.
    ///
    /// # Panics
    /// When node `from` refuses, or has no such key.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        assert_eq!(self.nodes[from].tell(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]), "OK", "{key}");
    }

    fn join(&self) {
        let first = self.nodes[0].port().to_string();
        for (at, node) in self.nodes.iter().enumerate() {
            node.tell(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            node.tell(&["CLUSTER", "MEET", "127.0.0.1", &first]);
        }
        for (at, node) in self.nodes.iter().take(MASTERS).enumerate() {
            let share = |i: usize| u16::try_from(usize::from(SLOTS) * i / MASTERS).expect("a slot");
            let slots: Vec<String> = (share(at)..share(at + 1)).map(|slot| slot.to_string()).collect();
            let mut command = vec!["CLUSTER", "ADDSLOTS"];
            command.extend(slots.iter().map(String::as_str));
            node.tell(&command);
        }
        let everybody = format!("cluster_known_nodes:{}", self.nodes.len());
        let settled = |node: &Redis| {
            let info = node.tell(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains(&everybody) && info.contains("cluster_slots_ok:16384")
        };
        wait_until("the cluster to settle", || self.nodes.iter().all(settled));
        for (replica, master) in self.nodes.iter().skip(MASTERS).zip(&self.nodes) {
            let id = master.tell(&["CLUSTER", "MYID"]);
            wait_until("a replica to be taken", || replica.try_tell(&["CLUSTER", "REPLICATE", &id]).is_ok());
        }
        for master in self.nodes.iter().take(self.nodes.len() - MASTERS) {
            wait_until("a replica", || master.tell(&["INFO", "replication"]).contains("state=online"));
        }
    }
}
