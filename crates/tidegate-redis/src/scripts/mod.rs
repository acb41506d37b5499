//! The scripts, one file each; their headers say what they take and give. They name commands literally, take every key from
//! KEYS, do a bounded amount of work, and may be run again when an answer was lost.

use std::sync::OnceLock;

/// A script and its hash.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceLock::new() }
    }

    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// What EVALSHA calls it by.
    pub(crate) fn hash(&'static self) -> &'static str {
        self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned())
    }
}

macro_rules! scripts {
    ($($name:ident = $file:literal;)+) => {
        $(pub(crate) static $name: Script = Script::new(include_str!($file));)+
        #[cfg(test)]
        const ALL: &[(&str, &str)] = &[$(($file, include_str!($file))),+];
    };
}

scripts! {
    SCHEDULE = "schedule.lua";
    CANCEL = "cancel.lua";
    CLAIM = "claim.lua";
    PEEK = "peek.lua";
    NUMBERS = "numbers.lua";
    ACK = "ack.lua";
    RETRY = "retry.lua";
    CONTAINS = "contains.lua";
    HAND_BACK = "hand_back.lua";
    BEAT = "beat.lua";
    OWNER = "owner.lua";
    SERVER = "server.lua";
    SCAN = "scan.lua";
    LEASE = "lease.lua";
    REBUILD_BEGIN = "rebuild_begin.lua";
    REBUILD_END = "rebuild_end.lua";
    STOCK = "stock.lua";
    STATUS = "status.lua";
    CACHE_LEASE = "cache_lease.lua";
    CACHE_REFRESH = "cache_refresh.lua";
    CACHE_RENEW = "cache_renew.lua";
    CACHE_FILL = "cache_fill.lua";
    CACHE_RELEASE = "cache_release.lua";
    CACHE_FAIL = "cache_fail.lua";
    CACHE_PUT = "cache_put.lua";
    CACHE_INVALIDATE = "cache_invalidate.lua";
    CACHE_FLOOR = "cache_floor.lua";
    CACHE_MEND = "cache_mend.lua";
    CACHE_TAG = "cache_tag.lua";
    CACHE_TELL = "cache_tell.lua";
    CACHE_BEAT = "cache_beat.lua";
    HOT_TELL = "hot_tell.lua";
    MEMBERSHIP_LOOK = "membership_look.lua";
    MEMBERSHIP_ADD = "membership_add.lua";
    MEMBERSHIP_PREPARE = "membership_prepare.lua";
    MEMBERSHIP_MERGE = "membership_merge.lua";
    MEMBERSHIP_REPLACE = "membership_replace.lua";
    MEMBERSHIP_LEAD = "membership_lead.lua";
    LOCK_ACQUIRE = "lock_acquire.lua";
    LOCK_RELEASE = "lock_release.lua";
    LOCK_RENEW = "lock_renew.lua";
    LOCK_LOOK = "lock_look.lua";
    LOCK_SIGN = "lock_sign.lua";
    LOCK_VOTE = "lock_vote.lua";
    LOCK_KEEP = "lock_keep.lua";
    LOCK_BORN = "lock_born.lua";
    LOCK_GIVE_BACK = "lock_give_back.lua";
    QUEUE_BEGIN = "queue_begin.lua";
    QUEUE_SCHEDULE = "queue_schedule.lua";
    QUEUE_CANCEL = "queue_cancel.lua";
    QUEUE_CLAIM = "queue_claim.lua";
    QUEUE_LOOK = "queue_look.lua";
    QUEUE_ACK = "queue_ack.lua";
    QUEUE_SETTLE = "queue_settle.lua";
    QUEUE_GET = "queue_get.lua";
    QUEUE_LIST = "queue_list.lua";
    QUEUE_STATS = "queue_stats.lua";
    QUEUE_REQUEUE = "queue_requeue.lua";
    QUEUE_PURGE = "queue_purge.lua";
    FEED_APPLY = "feed_apply.lua";
    FEED_BEGIN = "feed_begin.lua";
    FEED_MARK = "feed_mark.lua";
    FEED_FILL_SET = "feed_fill_set.lua";
    FEED_FILL_TIES = "feed_fill_ties.lua";
    FEED_STAGE = "feed_stage.lua";
    FEED_FILL_REPOSTS = "feed_fill_reposts.lua";
    FEED_PARTS = "feed_parts.lua";
    FEED_REPOSTS = "feed_reposts.lua";
    FEED_MEND = "feed_mend.lua";
}

#[cfg(test)]
mod tests;
