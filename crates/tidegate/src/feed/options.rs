//! How a feed runs, why it did not do what was asked, and what a page cost.

use std::fmt;
use std::time::Duration;

use tidegate_core::feed::{CursorExpired, Scope};

use crate::Error;
use crate::cache::{CacheError, Ttl};

/// How a feed runs.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FeedOptions {
    /// What a feed shows: seven days, with one's own posts, and everybody who is followed, unless set. Processes may differ in
    /// it.
    pub scope: Scope,
    /// Bytes of the follow sets that are kept in process; 64 MiB unless set. A followee costs 4 bytes.
    pub follow_cache_bytes: usize,
    /// Bytes of the first pages that are kept in process; 64 MiB unless set.
    pub page_cache_bytes: usize,
    /// Bytes of the posts that are kept in process; `None` (the default): a quarter of what caches have, or what is left.
    pub post_cache_bytes: Option<usize>,
    /// Users that are known by a number in process, 24 bytes each and their name; 1,000,000 unless set. With one more all are
    /// forgotten, and learned anew.
    pub max_names: usize,
    /// A post stays in the cache for so long, unless it changes; 30 min unless set.
    pub post_for: Ttl,
    /// That there is no such post is believed for so long, unless it is published; 30 s unless set.
    pub absent_for: Ttl,
    /// A first page may be given from memory if the news are no older; 100 ms unless set.
    pub news_within: Duration,
    /// Reads of the ledger at once, by pages whose sets or whole store is missing; 8 unless set.
    pub ledger_reads: usize,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            scope: Scope::default(),
            follow_cache_bytes: 64 << 20,
            page_cache_bytes: 64 << 20,
            post_cache_bytes: None,
            max_names: 1_000_000,
            post_for: Ttl::seconds::<1_800>(),
            absent_for: Ttl::seconds::<30>(),
            news_within: Duration::from_millis(100),
            ledger_reads: 8,
        }
    }
}

/// Why a call did not do what was asked.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FeedError {
    /// What was asked for cannot be; says what can.
    Invalid(String),
    /// The cursor's place has left the window: begin anew without a cursor.
    CursorExpired,
    /// The ledger fails, too many wait for it, or the instance stops.
    Failed(Error),
}

impl fmt::Display for FeedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => f.write_str(why),
            Self::CursorExpired => {
                f.write_str("the cursor is older than what a feed shows; begin anew without a cursor")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FeedError {}

impl From<CursorExpired> for FeedError {
    fn from(_: CursorExpired) -> Self {
        Self::CursorExpired
    }
}

impl From<Error> for FeedError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<tidegate_backend::Error> for FeedError {
    fn from(error: tidegate_backend::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CacheError> for FeedError {
    fn from(error: CacheError) -> Self {
        Self::Failed(match error {
            CacheError::Overloaded { .. } => Error::Overloaded,
            CacheError::Stopping => Error::Stopping,
            CacheError::Configuration(why) => Error::Configuration(why),
            other => Error::LedgerUnavailable(format!("posts could not be read: {other}")),
        })
    }
}

/// The result of every call of a feed.
pub type Result<T> = std::result::Result<T, FeedError>;

/// What a page has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PageCost {
    /// It was given from memory.
    pub kept: bool,
    /// It was made of the ledger's rows alone: there is no store, or it does not answer.
    pub direct: bool,
    /// Rounds of reads of the store.
    pub rounds: u64,
    /// Parts of authors' sets that were read.
    pub sets: u64,
    /// Authors whose heads had to be read.
    pub heads: u64,
    /// Roots that were looked at.
    pub roots: u64,
    /// Reads of the ledger, those of posts not counted.
    pub ledger_reads: u64,
    /// Times that it was begun anew.
    pub restarts: u64,
}

/// What a feed has done so far, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FeedStats {
    /// Pages that were made.
    pub made: u64,
    /// Pages that were given from memory.
    pub kept: u64,
    /// Pages that were made of the ledger's rows alone.
    pub direct: u64,
    /// Parts of authors' sets that were read.
    pub sets: u64,
    /// Authors that were read from the ledger, to fill the store or because it does not answer.
    pub authors_from_ledger: u64,
    /// Questions for the news that carried nothing else.
    pub news_alone: u64,
    /// Changes that the store was told right after their commit.
    pub told: u64,
    /// Changes that were left to the relay.
    pub left: u64,
}
