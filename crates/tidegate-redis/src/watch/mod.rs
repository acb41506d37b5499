//! Samples of real servers for the watch.
//!
//! - `nodes.rs`: which servers there are: one alone, a master and its replicas under Sentinel, the nodes of a Cluster.
//! - `node.rs`: one server, asked on a connection of its own. `extra.rs`: what is asked beside `INFO`, as far as it is permitted.
//! - `parse.rs`: its answers. `host.rs`: what the machine says, where the server runs on ours.
//! - `late.rs`: whether it was us who were late.
//!
//! A server is asked for `INFO` once a round, and for nothing else that costs it more unless that says that something is wrong.

mod extra;
pub(crate) mod host;
mod late;
mod node;
mod nodes;
pub(crate) mod parse;

pub(crate) use self::extra::{asks_all_or_nothing, can_defrag};
pub(crate) use self::nodes::found;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::iter;
use tidegate_backend::BoxFuture;
use tidegate_backend::clock::host_now;
use tidegate_backend::watch::{Round, SampleSource};
use tidegate_core::watch::{MAX_SERVERS, Reply, Sample, Silence};

use self::node::Node;
use crate::connect::{Host, Mode, RedisOptions};

/// Servers that are asked at once.
const AT_ONCE: usize = 64;
/// How often it is looked which servers there are.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The shortest and the longest time that a server has for its answer.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Samples of one server, or of every server of a Cluster or of a set under Sentinel.
pub struct RedisSamples {
    options: RedisOptions,
    nodes: BTreeMap<String, Node>,
    looked_at: Option<Instant>,
    /// The first sentinel and the service, and why none of the sentinels names a server.
    nobody: Option<(String, String)>,
}

impl RedisSamples {
    /// Samples of what `options` name. A server has `patience` for its answer (0.2 to 5 s; a second is usual).
    #[must_use]
    pub fn new(options: RedisOptions, patience: Duration) -> Self {
        let patience = patience.clamp(PATIENCE.0, PATIENCE.1);
        let options = options.response_timeout(patience).connect_timeout(patience);
        Self { options, nodes: BTreeMap::new(), looked_at: None, nobody: None }
    }

    /// Looks which servers there are, from time to time; those that left.
    async fn look(&mut self) -> Vec<String> {
        let is_due = self.looked_at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN);
        if !is_due {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let found = match (nodes::found(&self.options).await, &self.options.mode) {
            (Ok(hosts), _) => hosts,
            // Nobody tells: those that are known are kept, or those that were named.
            (Err(_), _) if !self.nodes.is_empty() => return Vec::new(),
            (Err(_), Mode::Standalone(host)) => vec![host.clone()],
            (Err(_), Mode::Cluster(hosts)) => hosts.clone(),
            (Err(_), Mode::Sentinel { hosts, service, .. }) => {
                let first = hosts.first().map(Host::address).unwrap_or_default();
                let address = format!("{first}/{service}");
                let why = nodes::why_nobody(&self.options).await;
                self.nobody = Some((address, why));
                return Vec::new();
            }
        };
        let nobody = self.nobody.take().map(|(address, _)| address);
        let mut left = std::mem::take(&mut self.nodes);
        for host in found.into_iter().take(MAX_SERVERS) {
            let address = host.address();
            let node = left.remove(&address).unwrap_or_else(|| Node::new(host, address.clone(), self.options.clone()));
            self.nodes.insert(address, node);
        }
        left.into_keys().chain(nobody).collect()
    }
}

impl SampleSource for RedisSamples {
    fn round(&mut self) -> BoxFuture<'_, Round> {
        Box::pin(async move {
            let gone = self.look().await;
            let asked = iter(self.nodes.values_mut()).map(Node::sample).buffer_unordered(AT_ONCE);
            let mut samples: Vec<_> = asked.collect().await;
            samples.extend(self.nobody.as_ref().map(|(address, why)| Sample {
                address: address.clone(),
                at: host_now(),
                reply: Reply::Silence { kind: Silence::NoMaster, why: why.clone(), waited_ms: 0.0 },
                is_late: false,
                tls: self.options.tls,
            }));
            samples.sort_by(|a, b| a.address.cmp(&b.address));
            Round { samples, gone }
        })
    }
}
