//! What the watch and the look at big keys found, on the wire: the same for HTTP, webhooks and `--json` of the tools.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::Value;
use tidegate::big_keys::{self, BigKey, Histogram, Kind, Report, Sum};
use tidegate::watch::{Finding, Memory};
use utoipa::ToSchema;

use super::instant::Instant;
use crate::redis::Scan;

/// What is wrong with a server, from its opening to its closing.
#[derive(Serialize, ToSchema)]
#[schema(as = Finding)]
pub(crate) struct FindingShape<'a> {
    /// The same in every message of it.
    #[schema(example = "full-noeviction-1796050000000-0a1b2c3d")]
    id: &'a str,
    /// Which rule found it.
    #[schema(example = "full-noeviction")]
    rule: &'static str,
    /// `info`, `warning` or `critical`.
    #[schema(example = "critical")]
    severity: &'static str,
    /// The server, `host:port`.
    #[schema(example = "10.0.0.7:6379")]
    address: &'a str,
    /// When the samples said so.
    opened_at: Instant,
    /// When it was over; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_at: Option<Instant>,
    /// What is wrong and what follows from it.
    cause: &'a str,
    /// The numbers it rests on, as they were at the opening. null: unknown or not permitted.
    #[schema(value_type = Object)]
    evidence: &'a BTreeMap<String, Value>,
    /// What to type next.
    next_command: &'a str,
    /// What that may do to a server in use.
    risk: &'a str,
}

impl<'a> FindingShape<'a> {
    /// Borrows `finding`.
    pub(crate) fn new(finding: &'a Finding) -> Self {
        Self {
            id: &finding.id,
            rule: finding.rule.name(),
            severity: finding.severity.name(),
            address: &finding.address,
            opened_at: Instant(finding.opened_at),
            closed_at: finding.closed_at.map(Instant),
            cause: &finding.cause,
            evidence: &finding.evidence,
            next_command: &finding.next_command,
            risk: &finding.risk,
        }
    }
}

/// A finding as `/v1/redis/findings` shows it.
#[must_use]
pub fn finding_json(finding: &Finding) -> Value {
    serde_json::to_value(FindingShape::new(finding)).unwrap_or_default()
}

/// The memory of every watched server.
#[derive(Serialize, ToSchema)]
#[schema(as = RedisMemory)]
pub(crate) struct MemoriesShape<'a> {
    servers: Vec<MemoryShape<'a>>,
}

/// A server's memory, as of its last answer. null: not permitted or unknown.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerMemory)]
struct MemoryShape<'a> {
    /// `host:port`.
    #[schema(example = "10.0.0.7:6379")]
    address: &'a str,
    /// `redis`, `valkey` or `other`.
    #[schema(example = "redis")]
    server: &'static str,
    /// Its own version.
    version: Option<&'a str>,
    /// `master` or `replica`.
    role: Option<&'static str>,
    /// When it was asked.
    sampled_at: Instant,
    /// What it uses.
    used_bytes: Option<u64>,
    /// What of it is resident.
    rss_bytes: Option<u64>,
    /// What bounds it.
    limit_bytes: Option<u64>,
    /// Who bounds it: `maxmemory`, `cgroup` or `host`.
    limit_source: Option<&'static str>,
    /// The share of the limit that is used, as eviction counts it.
    pressure: Option<f64>,
    /// Resident over used.
    fragmentation_ratio: Option<f64>,
    /// Holes between allocations; libc's allocator does not tell.
    allocator_frag_bytes: Option<u64>,
    /// Keys that it evicts a second.
    evicted_per_second: Option<f64>,
    /// `maxmemory-policy`.
    policy: Option<&'a str>,
    /// Keys of all databases.
    keys: Option<u64>,
}

impl<'a> MemoriesShape<'a> {
    /// Borrows `servers`.
    pub(crate) fn new(servers: &'a [Memory]) -> Self {
        Self { servers: servers.iter().map(MemoryShape::new).collect() }
    }
}

impl<'a> MemoryShape<'a> {
    fn new(memory: &'a Memory) -> Self {
        Self {
            address: &memory.address,
            server: memory.server,
            version: memory.version.as_deref(),
            role: memory.role,
            sampled_at: Instant(memory.sampled_at),
            used_bytes: memory.used_bytes,
            rss_bytes: memory.rss_bytes,
            limit_bytes: memory.limit_bytes,
            limit_source: memory.limit_source,
            pressure: memory.pressure,
            fragmentation_ratio: memory.fragmentation_ratio,
            allocator_frag_bytes: memory.allocator_frag_bytes,
            evicted_per_second: memory.evicted_per_second,
            policy: memory.policy.as_deref(),
            keys: memory.keys,
        }
    }
}

/// A look at big keys that was begun.
#[derive(Serialize, ToSchema)]
#[schema(as = BigKeysBegun)]
pub(crate) struct ScanShape {
    /// Its number.
    pub(crate) scan_id: String,
}

/// A look at big keys.
#[derive(Serialize, ToSchema)]
#[schema(as = BigKeys)]
pub(crate) struct BigKeysShape {
    /// `none`, `running`, `done` or `failed`.
    #[schema(example = "done")]
    state: &'static str,
    /// Its number; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    scan_id: Option<String>,
    /// `snapshot`, `scan` or `mixed`; null until it is done.
    route: Option<&'static str>,
    /// When it began.
    started_at: Option<Instant>,
    /// When it ended.
    finished_at: Option<Instant>,
    /// Keys that were looked at.
    scanned: u64,
    /// Keys that there were at the beginning.
    total: u64,
    /// Which part of the keys was looked at, 0 to 1; null until it is done.
    confidence: Option<f64>,
    /// How long the fork for a snapshot held up a server, milliseconds; null: there was none, or it is not known.
    fork_pause_ms: Option<f64>,
    /// Why it failed, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The largest, largest first.
    items: Vec<BigKeyShape>,
    #[serde(flatten)]
    #[schema(inline)]
    sums: SumsShape,
}

/// What all keys come to; absent until the look is done.
#[derive(Default, Serialize, ToSchema)]
struct SumsShape {
    /// What all keys that were looked at take, bytes; null: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    bytes: Option<Option<u64>>,
    /// Keys whose size is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_size: Option<u64>,
    /// Sums by type, largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<TypeShape>>,
    /// Sums by prefix (escaped), the 50 largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<Vec<PrefixShape>>,
    /// Keys of prefixes beyond those that are told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_prefixes: Option<SumShape>,
    /// Sums by slot of a Cluster, the 50 largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<Vec<SlotShape>>,
    /// How many keys have which size, where the server says so (`INFO keysizes`).
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Vec<HistogramShape>>,
    /// Whether the route is experimental.
    #[serde(skip_serializing_if = "Option::is_none")]
    experimental: Option<bool>,
    /// Why this route, and what is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<Vec<String>>,
}

/// Keys that were added up.
#[derive(Serialize, ToSchema)]
#[schema(as = KeySum)]
struct SumShape {
    /// How many.
    keys: u64,
    /// What they take, as far as it is known; null: of not one is it known.
    bytes: Option<u64>,
}

/// Keys of one type.
#[derive(Serialize, ToSchema)]
#[schema(as = TypeSum)]
struct TypeShape {
    /// The type; null: not known.
    r#type: Option<&'static str>,
    /// How many.
    keys: u64,
    /// What they take, as far as it is known; null: of not one is it known.
    bytes: Option<u64>,
}

/// Keys of one prefix.
#[derive(Serialize, ToSchema)]
#[schema(as = PrefixSum)]
struct PrefixShape {
    /// The prefix, escaped.
    prefix: String,
    /// How many.
    keys: u64,
    /// What they take, as far as it is known; null: of not one is it known.
    bytes: Option<u64>,
}

/// Keys of one slot.
#[derive(Serialize, ToSchema)]
#[schema(as = SlotSum)]
struct SlotShape {
    /// The slot.
    slot: u16,
    /// How many.
    keys: u64,
    /// What they take, as far as it is known; null: of not one is it known.
    bytes: Option<u64>,
}

/// Keys of one type and database by their size.
#[derive(Serialize, ToSchema)]
#[schema(as = SizeHistogram)]
struct HistogramShape {
    /// The database.
    database: u32,
    /// The type.
    r#type: &'static str,
    /// `bytes` or `elements`.
    unit: &'static str,
    /// From small to large.
    bins: Vec<BinShape>,
    /// Bins that had gone below zero and count as 0.
    clamped: usize,
}

/// Keys of about one size.
#[derive(Serialize, ToSchema)]
#[schema(as = SizeBin)]
struct BinShape {
    /// The smallest size in it.
    from: u64,
    /// The first size that is not in it.
    below: u64,
    /// How many keys.
    keys: u64,
}

impl HistogramShape {
    fn new(of: &Histogram) -> Self {
        let bin = |(from, keys): &(u64, u64)| BinShape { from: *from, below: Histogram::below(*from), keys: *keys };
        Self {
            database: of.database,
            r#type: of.kind.name(),
            unit: if of.is_bytes { "bytes" } else { "elements" },
            bins: of.bins.iter().map(bin).collect(),
            clamped: of.clamped,
        }
    }
}

/// A large key.
#[derive(Serialize, ToSchema)]
#[schema(as = BigKey)]
struct BigKeyShape {
    /// Its name; what is no text is escaped.
    key: String,
    /// Its name as it is, up to its first MiB.
    key_base64: String,
    /// How long its name is, if it is longer than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_length: Option<u64>,
    /// Its database.
    database: u64,
    /// The type of its value; null: not known.
    r#type: Option<&'static str>,
    /// What it takes in memory; null: not known.
    bytes: Option<u64>,
    /// Elements, or bytes of a string; null: not known.
    elements: Option<u64>,
    /// How the server stores it; null: not known.
    encoding: Option<String>,
    /// When it expires, milliseconds from when it was seen; null: it does not, or that is not known.
    ttl_ms: Option<i64>,
    /// About how long deleting it keeps the server from everything else; null: not known.
    delete_blocks_ms: Option<f64>,
    /// What it is for, if it is one of Tidegate's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    purpose: Option<&'static str>,
}

/// A type as it is shown; null where nobody may say.
fn type_of(kind: Kind) -> Option<&'static str> {
    (kind != Kind::Unknown).then(|| kind.name())
}

impl BigKeyShape {
    fn new(key: &BigKey) -> Self {
        Self {
            key: big_keys::escaped(&key.name),
            key_base64: BASE64_STANDARD.encode(&key.name),
            key_length: Some(key.name_length).filter(|length| *length > key.name.len() as u64),
            database: key.database,
            r#type: type_of(key.kind),
            bytes: key.bytes,
            elements: key.elements,
            encoding: key.encoding.clone(),
            ttl_ms: key.ttl_ms,
            delete_blocks_ms: key.delete_blocks_ms().map(|ms| (ms * 1_000.0).round() / 1_000.0),
            purpose: key.purpose,
        }
    }
}

impl SumsShape {
    fn new(report: &Report) -> Self {
        let by_size = report.route == "keysizes";
        let sum = |of: &Sum| (of.keys, of.known_bytes());
        let types = report.kinds.iter().map(|(kind, of)| {
            let (keys, bytes) = sum(of);
            TypeShape { r#type: type_of(*kind), keys, bytes }
        });
        let prefixes = report.prefixes.iter().map(|(prefix, of)| {
            let (keys, bytes) = sum(of);
            PrefixShape { prefix: big_keys::escaped(prefix), keys, bytes }
        });
        let slots = report.slots.iter().map(|(slot, of)| {
            let (keys, bytes) = sum(of);
            SlotShape { slot: *slot, keys, bytes }
        });
        let (keys, bytes) = sum(&report.other_prefixes);
        Self {
            // Sizes alone say nothing of what keys take in all.
            bytes: (!by_size).then_some(report.known_bytes()),
            unknown_size: Some(report.unknown),
            types: Some(types.collect()),
            prefixes: Some(prefixes.collect()),
            other_prefixes: Some(SumShape { keys, bytes }),
            slots: Some(slots.collect()),
            sizes: Some(report.sizes.iter().map(HistogramShape::new).collect()),
            experimental: Some(by_size),
            notes: Some(report.notes.clone()),
        }
    }
}

impl BigKeysShape {
    /// Of a look, however far it is.
    pub(crate) fn new(scan: &Scan) -> Self {
        let (scanned, total, _) = scan.progress.seen();
        let (state, finished_at, error) = match (&scan.begun, &scan.ended) {
            (Some((id, started_at)), Some((_, Ok(report)))) => {
                let started_at = Some(Instant(*started_at));
                return Self { scan_id: Some(id.to_string()), started_at, ..Self::done(report) };
            }
            (Some(_), Some((at, Err(why)))) => ("failed", Some(Instant(*at)), Some(why.clone())),
            (Some(_), None) => ("running", None, None),
            (None, _) => ("none", None, None),
        };
        Self {
            state,
            scan_id: scan.begun.map(|(id, _)| id.to_string()),
            route: None,
            started_at: scan.begun.map(|(_, at)| Instant(at)),
            finished_at,
            scanned,
            total,
            confidence: None,
            fork_pause_ms: None,
            error,
            items: Vec::new(),
            sums: SumsShape::default(),
        }
    }

    fn done(report: &Report) -> Self {
        Self {
            state: "done",
            scan_id: None,
            route: Some(report.route),
            started_at: Some(Instant(report.started_at)),
            finished_at: Some(Instant(report.finished_at)),
            scanned: report.scanned,
            total: report.total,
            confidence: Some((report.confidence * 10_000.0).round() / 10_000.0),
            fork_pause_ms: report.fork_pause_ms,
            error: None,
            items: report.items.iter().map(BigKeyShape::new).collect(),
            sums: SumsShape::new(report),
        }
    }
}

/// A look at big keys as `/v1/redis/big-keys` shows it.
#[must_use]
pub fn big_keys_json(report: &Report) -> Value {
    serde_json::to_value(BigKeysShape::done(report)).unwrap_or_default()
}
