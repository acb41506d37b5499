//! The rules by name, and what may be set of each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a server is used for: what is right for one is wrong for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Nothing may be lost: queues, locks, deadlines, sessions.
    State,
    /// Everything can be loaded again.
    Cache,
    /// Both lie there.
    #[default]
    Shared,
}

impl Purpose {
    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Purpose::State => "state",
            Purpose::Cache => "cache",
            Purpose::Shared => "shared",
        }
    }

    /// By its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Purpose::State, Purpose::Cache, Purpose::Shared].into_iter().find(|purpose| purpose.name() == name)
    }
}

macro_rules! rules {
    ($($variant:ident = $name:literal, $unit:literal, [$threshold:expr, $clear:expr], $samples:literal of $of:literal,
       up $up:literal, size $size:expr, $about:literal;)*) => {
        /// The rules. Names are the contract of configuration, messages and metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Rule {
            $(#[doc = $about] #[serde(rename = $name)] $variant,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$variant),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Rule::$variant => $name,)* }
            }

            /// What it finds.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Rule::$variant => $about,)* }
            }

            /// What its threshold counts.
            #[must_use]
            pub fn unit(self) -> &'static str {
                match self { $(Rule::$variant => $unit,)* }
            }

            /// What it is set to when nobody sets anything.
            #[must_use]
            pub fn defaults(self) -> RuleSettings {
                match self { $(Rule::$variant => RuleSettings {
                    off: false,
                    threshold: $threshold,
                    clear: $clear,
                    samples: $samples,
                    of: $of,
                    min_uptime_s: $up,
                    min_size: $size,
                    quiet_ms: QUIET_MS,
                },)* }
            }
        }
    };
}

/// How long a rule must find nothing before what it found is over.
const QUIET_MS: u64 = 30_000;
const MIB: u64 = 1 << 20;

rules! {
    Fragmentation = "fragmentation", "resident / used memory", [1.6, 1.4], 24 of 30, up 60, size 64 * MIB,
        "Much more memory is resident than is used, and it stays so.";
    MemoryPressure = "memory-pressure", "share of the limit", [0.87, 0.80], 3 of 5, up 0, size 0,
        "The memory that counts for eviction nears the limit.";
    FullNoeviction = "full-noeviction", "share of the limit", [0.98, 0.95], 2 of 3, up 0, size 0,
        "Memory is full and nothing is evicted: writes fail.";
    EvictionOfState = "eviction-of-state", "keys a second", [0.001, 0.0], 1 of 1, up 0, size 0,
        "A server that holds state evicts keys.";
    Evictions = "evictions", "keys a second", [1.0, 0.1], 3 of 5, up 60, size 0,
        "Keys are evicted where some may be state; or from a cache so soon that it no longer helps.";
    ExpiredLingering = "expired-lingering", "share of keys", [0.25, 0.10], 24 of 30, up 60, size 10_000,
        "Many keys have expired and still take memory.";
    ClientBuffers = "client-buffers", "share of the limit", [0.10, 0.05], 3 of 5, up 0, size 16 * MIB,
        "What clients have not taken, or not finished sending, takes the memory of data.";
    BigValuePassing = "big-value-passing", "bytes", [MIB as f64, 512.0 * 1_024.0], 2 of 3, up 0, size 0,
        "A very large value passes through.";
    ForkHeadroom = "fork-headroom", "share of memory, or of a second", [0.95, 0.85], 3 of 5, up 60, size 64 * MIB,
        "The next fork may find too little memory, or the last one stopped the server for long.";
    SaveFailing = "save-failing", "failures", [1.0, 0.0], 1 of 1, up 0, size 0,
        "The last snapshot failed.";
    SaveOld = "save-old", "times the plan", [2.0, 1.0], 2 of 3, up 0, size 0,
        "The last snapshot is older than planned.";
    AofFailing = "aof-failing", "failures", [1.0, 0.0], 1 of 1, up 0, size 0,
        "The append-only file cannot be written, or not rewritten.";
    ReplicaDown = "replica-down", "replicas", [1.0, 0.0], 3 of 5, up 0, size 0,
        "A replica has lost its master, or a master a replica.";
    ReplicaLag = "replica-lag", "seconds", [10.0, 3.0], 2 of 3, up 0, size 0,
        "A replica confirms nothing for long.";
    ReplicaBuffer = "replica-buffer", "share of the limit", [0.5, 0.25], 2 of 3, up 0, size 8 * MIB,
        "What a replica has not taken nears the limit at which it is cut off.";
    SlowCommands = "slow-commands", "ms at once, or a second", [250.0, 100.0], 1 of 1, up 0, size 0,
        "Commands of 100 ms and more keep everyone else waiting.";
    BlockedServer = "blocked-server", "ms", [1_000.0, 500.0], 3 of 4, up 0, size 0,
        "The server does not answer, or only late.";
    KeysWithoutTtl = "keys-without-ttl", "share of keys", [0.9, 0.8], 8 of 10, up 60, size 100_000,
        "Keys that never expire are most of all, and grow.";
    ConnectionsNearLimit = "connections-near-limit", "share of the limit", [0.85, 0.75], 3 of 5, up 0, size 0,
        "There is hardly room for another client.";
    ConnectionsRejected = "connections-rejected", "connections", [1.0, 0.0], 1 of 1, up 0, size 0,
        "Clients are turned away.";
    Restarted = "restarted", "restarts", [1.0, 0.0], 1 of 1, up 0, size 0,
        "The server was started again, or another answers at its address.";
    DataLost = "data-lost", "share of keys", [0.5, 0.0], 1 of 1, up 0, size 1_000,
        "Most keys are gone, and neither expiry nor eviction took them.";
    Swapping = "swapping", "share of used memory", [0.15, 0.05], 8 of 10, up 60, size 100 * MIB,
        "Memory of the server lies on disk.";
    PolicyChanged = "policy-changed", "changes", [1.0, 0.0], 1 of 1, up 0, size 0,
        "What is evicted under pressure was changed.";
}

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Rule::ALL.iter().copied().find(|rule| rule.name() == name)
    }
}

/// What may be set of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuleSettings {
    /// It is not judged.
    pub off: bool,
    /// From here on a sample is bad. Its unit is the rule's own ([`Rule::unit`]).
    pub threshold: f64,
    /// Up to here a sample is well; between the two it is neither.
    pub clear: f64,
    /// So many bad samples..
    pub samples: u32,
    /// ..of the last so many open a finding; at most [`RuleSettings::MOST`].
    pub of: u32,
    /// Nothing is opened before the server has run for so long, seconds.
    pub min_uptime_s: u64,
    /// Below this size nothing is opened: bytes, or keys where the rule counts keys.
    pub min_size: u64,
    /// A finding is closed when every sample of so long a time was well, milliseconds.
    pub quiet_ms: u64,
}

impl RuleSettings {
    /// The most samples that are looked at.
    pub const MOST: u32 = 64;

    /// What is wrong with them, if anything is.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let is_number = |n: f64| n.is_finite() && n >= 0.0;
        if !is_number(self.threshold) || !is_number(self.clear) {
            return Some("threshold and clear must be numbers from 0 on".to_owned());
        }
        if self.clear > self.threshold {
            return Some(format!("clear ({}) must not be above threshold ({})", self.clear, self.threshold));
        }
        if self.of < 1 || self.of > Self::MOST || self.samples < 1 || self.samples > self.of {
            let most = Self::MOST;
            return Some(format!("samples ({}) of ({}) must be 1..=of, and of 1..={most}", self.samples, self.of));
        }
        None
    }
}

/// What is judged, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// What the servers are used for.
    pub purpose: Purpose,
    rules: BTreeMap<Rule, RuleSettings>,
}

impl Settings {
    /// The defaults, for servers of this purpose.
    #[must_use]
    pub fn new(purpose: Purpose) -> Self {
        Self { purpose, rules: BTreeMap::new() }
    }

    /// The settings of `rule`.
    #[must_use]
    pub fn of(&self, rule: Rule) -> RuleSettings {
        self.rules.get(&rule).copied().unwrap_or_else(|| rule.defaults())
    }

    /// Sets `rule`.
    ///
    /// # Errors
    /// What is wrong with the settings ([`RuleSettings::fault`]).
    pub fn set(&mut self, rule: Rule, settings: RuleSettings) -> Result<(), String> {
        if let Some(fault) = settings.fault() {
            return Err(fault);
        }
        self.rules.insert(rule, settings);
        Ok(())
    }

    /// The same thresholds for a look of two samples: one bad sample is enough.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        for rule in Rule::ALL {
            let settings = RuleSettings { samples: 1, of: 1, ..self.of(*rule) };
            self.rules.insert(*rule, settings);
        }
        self
    }
}
