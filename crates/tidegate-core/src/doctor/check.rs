//! What is checked, by name: the table that the guide shows.

use super::super::watch::{Purpose, Severity};

const NO: Option<Severity> = None;
const INFO: Option<Severity> = Some(Severity::Info);
const WARN: Option<Severity> = Some(Severity::Warning);
const CRIT: Option<Severity> = Some(Severity::Critical);

macro_rules! checks {
    ($($variant:ident = $name:literal, [$state:expr, $cache:expr, $shared:expr], $applied:literal,
       $about:literal, fix $fix:literal, risk $risk:literal;)*) => {
        /// The checks. Names are the contract of messages.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $(#[doc = $about] $variant,)*
        }

        impl Check {
            /// Every check.
            pub const ALL: &[Check] = &[$(Check::$variant),*];

            /// Its name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Check::$variant => $name,)* }
            }

            /// What it finds.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Check::$variant => $about,)* }
            }

            /// What mends it.
            #[must_use]
            pub fn fix(self) -> &'static str {
                match self { $(Check::$variant => $fix,)* }
            }

            /// What that may do to a server in use.
            #[must_use]
            pub fn risk(self) -> &'static str {
                match self { $(Check::$variant => $risk,)* }
            }

            /// Whether it can be mended by settings alone, and those are ever set for it.
            #[must_use]
            pub fn is_applied(self) -> bool {
                match self { $(Check::$variant => $applied,)* }
            }

            /// How bad it can be for a server that is used so; `None`: it is none.
            #[must_use]
            pub fn worst(self, role: Purpose) -> Option<Severity> {
                let [state, cache, shared] = match self { $(Check::$variant => [$state, $cache, $shared],)* };
                match role {
                    Purpose::State => state,
                    Purpose::Cache => cache,
                    Purpose::Shared => shared,
                }
            }
        }
    };
}

checks! {
    Unreachable = "unreachable", [CRIT, CRIT, CRIT], false,
        "A server of the set does not answer.",
        fix "look at that machine and its network", risk "reads only";
    EvictionPolicy = "eviction-policy", [CRIT, CRIT, WARN], true,
        "What goes when memory is full does not fit what the server is for.",
        fix "state: `noeviction`; a cache: `allkeys-lfu`; both in one: `volatile-lfu`",
        risk "under `noeviction` writes fail when memory is full; after a change to `lfu` the counters begin at 0, so that for some minutes \
              keys go nearly at random";
    OwnKeysEvictable = "own-keys-evictable", [CRIT, CRIT, CRIT], false,
        "Tidegate's queues, locks, deadlines or stock counters lie where they may be evicted.",
        fix "`noeviction`, or a server of their own", risk "as `eviction-policy`";
    MaxmemoryUnset = "maxmemory-unset", [WARN, WARN, WARN], true,
        "Nothing bounds the server's memory but the machine: the system ends it when that is full.",
        fix "`maxmemory` at 60 % of the machine, 75 % where nothing forks",
        risk "from then on writes fail, or keys go, at that size";
    MemoryHeadroom = "memory-headroom", [CRIT, CRIT, CRIT], true,
        "`maxmemory` leaves too little of the machine, or of its control group, for a fork.",
        fix "a lower `maxmemory`, or more memory", risk "the server is full sooner; never set below what is used";
    ClientMemory = "client-memory", [INFO, INFO, INFO], true,
        "Nothing bounds what clients' buffers take in all (7.0 and newer).",
        fix "`maxmemory-clients 5%`", risk "the clients with the largest buffers are cut off beyond it";
    PersistenceOff = "persistence-off", [CRIT, NO, WARN], true,
        "Nothing is kept on disk: a restart loses everything, and an empty master that comes back empties its replicas.",
        fix "`appendonly yes`", risk "a fork now, and disk writes with every change from then on";
    SaveFailing = "save-failing", [CRIT, WARN, CRIT], false,
        "The last snapshot, or the append-only file, could not be written.",
        fix "room on the disk, a folder that can be written, memory for the fork; then `BGSAVE`", risk "it forks";
    SaveOld = "save-old", [CRIT, NO, WARN], false,
        "The last snapshot is more than twice as old as its save points plan.",
        fix "`BGSAVE`", risk "it forks: a pause of 10 to 20 ms for each GiB, and memory for what is changed meanwhile";
    AppendSync = "append-sync", [WARN, NO, WARN], true,
        "The append-only file is synced when the system likes to: the last half minute can be lost.",
        fix "`appendfsync everysec`", risk "one sync a second; a slow disk then delays writes";
    AppendGrowth = "append-growth", [WARN, WARN, WARN], true,
        "The append-only file is never rewritten by itself and grows until the disk is full.",
        fix "`auto-aof-rewrite-percentage 100`", risk "a fork whenever the file has doubled";
    StopWrites = "stop-writes", [WARN, WARN, WARN], true,
        "After a failed snapshot state is written that no disk has; or a cache refuses writes for one.",
        fix "`stop-writes-on-bgsave-error yes` for state, `no` for a cache",
        risk "state: writes stop when a snapshot fails; a cache: failed snapshots are seen only by who looks";
    DefragOff = "defrag-off", [WARN, WARN, WARN], true,
        "The server could move allocations together, and does not; or it cannot, and much is wasted.",
        fix "`activedefrag yes`; where it cannot, a restart or a failover", risk "up to a quarter of the server's core while it runs";
    DefragThresholds = "defrag-thresholds", [INFO, INFO, INFO], true,
        "Defragmentation begins too late, too early, or may take too much or too little time.",
        fix "from 100 MB and 10 % on, 5 to 25 % of the core", risk "it may begin at once";
    LazyFree = "lazy-free", [INFO, INFO, INFO], true,
        "Large values are freed while everybody waits.",
        fix "`lazyfree-lazy-* yes`, `replica-lazy-flush yes`", risk "memory comes back a moment later than the keys go";
    KeysWithoutTtl = "keys-without-ttl", [INFO, WARN, WARN], false,
        "Most keys, or most of a prefix, never expire.",
        fix "a time to live where they are written", risk "keys go when it is over";
    ReplicaBuffer = "replica-buffer", [WARN, WARN, WARN], true,
        "A replica is cut off, and copies everything anew, when it is behind by little; or nothing bounds what it may be behind.",
        fix "`client-output-buffer-limit` for replicas: a tenth of what is used, 256 MiB at least",
        risk "a slow replica may take so much memory beside `maxmemory`";
    Backlog = "backlog", [WARN, WARN, WARN], true,
        "A replica that is away for less than a minute must copy everything anew.",
        fix "`repl-backlog-size` for a minute of writes, 64 MiB at least", risk "that memory, beside the data";
    MinReplicas = "min-replicas", [WARN, NO, NO], true,
        "A master that lost its replicas goes on to accept writes, which a failover loses.",
        fix "`min-replicas-to-write 1`", risk "writes are refused while no replica is in step; set only where there are two or more";
    NoReplica = "no-replica", [WARN, NO, INFO], false,
        "A master has no replica: when its machine is gone, so are its keys.",
        fix "`REPLICAOF`, `CLUSTER REPLICATE` on a further server", risk "a fork of the master and a copy over the network";
    ReplicaKeys = "replica-keys", [WARN, WARN, WARN], false,
        "A replica holds many more keys than its master: expired ones that it was not told to delete.",
        fix "count and scan on the master", risk "reads only";
    ReplicaWritable = "replica-writable", [WARN, WARN, WARN], true,
        "A replica takes writes, which no other server will ever see.",
        fix "`replica-read-only yes`", risk "who writes there gets errors";
    Keepalive = "tcp-keepalive", [WARN, WARN, WARN], true,
        "Connections of clients that are gone stay open for ever.",
        fix "`tcp-keepalive 300`", risk "none; for new connections";
    IdleTimeout = "idle-timeout", [INFO, INFO, INFO], true,
        "Clients that are idle for some minutes are cut off; pools then see broken connections.",
        fix "`timeout 0`", risk "idle clients count against `maxclients`";
    OpenToAll = "open-to-all", [WARN, WARN, WARN], false,
        "Whoever reaches the server may do everything: no password, no protected mode, every address.",
        fix "a password, or `bind` to one address", risk "clients without the password are refused";
    KeyspaceEvents = "keyspace-events", [INFO, INFO, INFO], false,
        "Each change is published and nobody listens. Tidegate needs none of it.",
        fix "`notify-keyspace-events ''`", risk "whoever subscribes later hears nothing";
    SlowLog = "slow-log", [INFO, INFO, INFO], true,
        "Slow commands are not written down, or only very slow ones.",
        fix "`slowlog-log-slower-than 10000`, `slowlog-max-len 128`", risk "some KiB of memory";
    LatencyMonitor = "latency-monitor", [INFO, INFO, INFO], true,
        "What keeps the server from its work is not written down.",
        fix "`latency-monitor-threshold 100`", risk "none to speak of";
    HugePages = "huge-pages", [WARN, WARN, WARN], false,
        "The server gets huge pages: after a fork each write copies 2 MiB.",
        fix "`echo madvise` to /sys/kernel/mm/transparent_hugepage/enabled, then restart the server", risk "for every program of the machine";
    Overcommit = "overcommit", [WARN, WARN, WARN], false,
        "The system may refuse a fork although there is memory.",
        fix "`sysctl vm.overcommit_memory=1`", risk "for every program of the machine";
    ClusterBroken = "cluster-broken", [CRIT, CRIT, CRIT], false,
        "Slots of the Cluster are served by nobody, or by a server that fails.",
        fix "bring the server back, or `CLUSTER FAILOVER TAKEOVER` on its replica", risk "a takeover loses what was not copied yet";
    ClusterCoverage = "cluster-coverage", [NO, WARN, NO], true,
        "A cache refuses everything when one shard is lost.",
        fix "`cluster-require-full-coverage no`", risk "keys of lost shards fail, the others are served";
    ClusterUneven = "cluster-uneven", [INFO, INFO, INFO], false,
        "One master of the Cluster has many more slots or keys than another.",
        fix "`redis-cli --cluster rebalance`", risk "moves keys; commands of keys on their way are redirected";
    Sentinels = "sentinels", [CRIT, CRIT, CRIT], false,
        "The sentinels cannot, or may not, agree on a failover.",
        fix "three sentinels or more on machines of their own, a quorum of their majority", risk "none";
}

impl Check {
    /// The check of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Check::ALL.iter().copied().find(|check| check.name() == name)
    }
}
