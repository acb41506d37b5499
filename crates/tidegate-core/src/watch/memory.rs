//! A server's memory in numbers.

use serde::Serialize;

use super::facts::Facts;
use super::rules;
use super::sample::{Answer, Sample};
use crate::Millis;

/// A server's memory in numbers, as of its last answer. `None`: not permitted or unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    /// `host:port`.
    pub address: String,
    /// `redis`, `valkey`, `other`.
    pub server: &'static str,
    /// Its own version.
    pub version: Option<String>,
    /// `master` or `replica`.
    pub role: Option<&'static str>,
    /// When it was asked.
    pub sampled_at: Millis,
    /// `used_memory`.
    pub used_bytes: Option<u64>,
    /// What is resident.
    pub rss_bytes: Option<u64>,
    /// What bounds it.
    pub limit_bytes: Option<u64>,
    /// Who bounds it: `maxmemory`, `cgroup`, `host`.
    pub limit_source: Option<&'static str>,
    /// The share of the limit that is used.
    pub pressure: Option<f64>,
    /// Resident over used.
    pub fragmentation_ratio: Option<f64>,
    /// Holes between allocations; libc's allocator does not tell.
    pub allocator_frag_bytes: Option<u64>,
    /// Since the sample before.
    pub evicted_per_second: Option<f64>,
    /// `maxmemory-policy`.
    pub policy: Option<String>,
    /// Keys of all databases.
    pub keys: Option<u64>,
}

impl Memory {
    /// The numbers of `answer`; `before` is the sample before of the same run.
    pub(super) fn of(sample: &Sample, answer: &Answer, facts: &Facts, before: Option<&Facts>) -> Self {
        let info = &answer.info;
        let (limit_bytes, limit_source) = rules::limit(answer).unzip();
        let (used, rss) = (info.number("used_memory"), info.number("used_memory_rss"));
        let server = info.server();
        let is_libc = info.text("mem_allocator").is_some_and(|name| name.starts_with("libc"));
        let holes = info.number("allocator_active").zip(info.number("allocator_allocated"));
        Self {
            address: sample.address.clone(),
            server: server.kind.name(),
            version: Some(server.version).filter(|version| !version.is_empty()),
            role: info.is_replica().map(|is_replica| if is_replica { "replica" } else { "master" }),
            sampled_at: sample.at,
            used_bytes: used,
            rss_bytes: rss,
            limit_bytes,
            limit_source,
            pressure: rules::pressure(answer),
            fragmentation_ratio: used
                .zip(rss)
                .filter(|(used, _)| *used > 0)
                .map(|(used, rss)| rss as f64 / used as f64),
            allocator_frag_bytes: holes
                .filter(|_| !is_libc)
                .map(|(active, allocated)| active.saturating_sub(allocated)),
            evicted_per_second: rules::keys::evicted_per_second(facts, before),
            policy: info.text("maxmemory_policy").map(str::to_owned),
            keys: facts.keys,
        }
    }
}
