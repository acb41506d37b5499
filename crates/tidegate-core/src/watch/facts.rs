//! The numbers of a sample that later samples are compared with.

use super::info::Info;
use super::sample::Answer;
use crate::Millis;

/// The numbers of a sample that later samples are compared with. Counters begin at 0 with the server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Facts {
    /// When it was taken.
    pub at: Millis,
    /// Keys of all databases.
    pub keys: Option<u64>,
    /// Of these, keys with a time to live.
    pub expires: Option<u64>,
    /// Keys evicted so far.
    pub evicted: Option<u64>,
    /// Keys expired so far.
    pub expired: Option<u64>,
    /// Reads that found a key, so far.
    pub hits: Option<u64>,
    /// Reads that found none, so far.
    pub misses: Option<u64>,
    /// Connections refused so far, since there were too many.
    pub rejected: Option<u64>,
    /// Commands refused so far, since memory was full.
    pub out_of_memory: Option<u64>,
    /// Copies sent in full to replicas, so far.
    pub full_syncs: Option<u64>,
    /// Deletions of everything by command, so far, where that was asked for.
    pub flushes: Option<u64>,
}

impl Facts {
    /// The numbers of `answer`.
    #[must_use]
    pub fn of(at: Millis, answer: &Answer) -> Self {
        let info = &answer.info;
        // A server without keys has no line of a database; one that says nothing of statistics may hide them.
        let tells = info.text("role").is_some() || info.keyspaces().next().is_some();
        let (keys, expires) = keys_of(info);
        Self {
            at,
            keys: tells.then_some(keys),
            expires: tells.then_some(expires),
            evicted: info.number("evicted_keys"),
            expired: info.number("expired_keys"),
            hits: info.number("keyspace_hits"),
            misses: info.number("keyspace_misses"),
            rejected: info.number("rejected_connections"),
            out_of_memory: info.errors("OOM"),
            full_syncs: info.number("sync_full"),
            flushes: answer.flushes,
        }
    }

    /// Keys without a time to live.
    #[must_use]
    pub fn lasting(&self) -> Option<u64> {
        Some(self.keys?.saturating_sub(self.expires?))
    }

    /// Seconds from `before` to this, never less than a millisecond.
    #[must_use]
    pub fn seconds_since(&self, before: &Facts) -> f64 {
        self.at.since(before.at).max(1) as f64 / 1_000.0
    }
}

/// By how much a counter grew. One that fell was set back by command, and has grown by nothing that is known.
#[must_use]
pub fn grown(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

fn keys_of(info: &Info) -> (u64, u64) {
    info.keyspaces()
        .fold((0, 0), |(keys, expires), db| (keys.saturating_add(db.keys), expires.saturating_add(db.expires)))
}
