//! Fences where the data is: which grant of a lock was the newest to touch what the lock protects.
//!
//! A row of `tg_fences` for each name of a lock says the largest fence that was sealed, and whose it was. A holder *seals*
//! its fence before it reads what it decides on: from then on every older holder is refused, however long it was paused and
//! whatever became of the store of the locks.
//!
//! - [`fence_in`]: checks and records in a caller's own transaction, through [`Execute`]. The row stays locked until that
//!   transaction ends, so holders of one lock write one after another.
//! - [`Fences`], reached by `Ledger::fences`: the same in a transaction of its own.

use tidegate_core::lock::{Fence, LockName, LockToken};

use crate::outbox::{Execute, Parameter, SqlDialect};
use crate::{BoxFuture, Error, ErrorKind, Result};

/// A grant, as the data know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// Which lock.
    pub name: LockName,
    /// The grant's fence.
    pub fence: Fence,
    /// Whose it is: `LockToken::owner`. Two grants of the same fence, as stores that lost their data and their clock could give
    /// them, are told apart by it.
    pub owner: i64,
}

/// What the data say of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sealed {
    /// It is the newest, and recorded.
    Newest,
    /// A newer one was here; the next grant must be above this fence.
    Stale {
        /// The largest fence that was sealed.
        floor: Fence,
    },
}

/// Where fences are recorded: a ledger.
pub trait Fences: Send + Sync {
    /// Checks and records a fence: durable when this answers. Repeating it is harmless.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: it may have been recorded.
    fn seal<'a>(&'a self, seal: &'a Seal) -> BoxFuture<'a, Result<Sealed>>;
}

impl Seal {
    /// The grant of `name` with `fence` to whoever has `token`.
    #[must_use]
    pub fn new(name: LockName, fence: Fence, token: &LockToken) -> Self {
        Self { name, fence, owner: token.owner() }
    }

    /// The fence in its column.
    ///
    /// # Errors
    /// [`ErrorKind::Command`]: no store gives such a fence.
    pub fn stored_fence(&self) -> Result<i64> {
        let refuse = || Error::new(ErrorKind::Command, "the fence is no fence of a lock: fences are above 0");
        i64::try_from(self.fence.0).ok().filter(|fence| *fence > 0).ok_or_else(refuse)
    }

    /// What the row says after the write: `None` when it is this grant's.
    pub fn judged(newer: Option<i64>) -> Sealed {
        match newer.and_then(|floor| u64::try_from(floor).ok()) {
            None => Sealed::Newest,
            Some(floor) => Sealed::Stale { floor: Fence(floor) },
        }
    }
}

impl SqlDialect {
    /// Records a fence unless a newer one is there, and locks the row either way: name, fence, owner.
    #[must_use]
    pub const fn record_fence(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "INSERT INTO tg_fences (name, fence, owner, sealed_at) \
                VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000 AS INTEGER)) \
                ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner, sealed_at = excluded.sealed_at \
                WHERE excluded.fence > tg_fences.fence"
            }
            // Assignments are done from left to right: `fence` comes last, since the others look at it.
            Self::MySql => {
                "INSERT INTO tg_fences (name, fence, owner, sealed_at) \
                VALUES (?, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000) \
                ON DUPLICATE KEY UPDATE owner = IF(VALUES(fence) > fence, VALUES(owner), owner), \
                sealed_at = IF(VALUES(fence) > fence, VALUES(sealed_at), sealed_at), fence = GREATEST(fence, VALUES(fence))"
            }
            Self::Postgres => {
                "INSERT INTO tg_fences (name, fence, owner, sealed_at) \
                VALUES ($1, $2, $3, CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)) \
                ON CONFLICT (name) DO UPDATE SET fence = excluded.fence, owner = excluded.owner, sealed_at = excluded.sealed_at \
                WHERE excluded.fence > tg_fences.fence"
            }
        }
    }

    /// The fence that is there, if it is another grant's: name, fence, owner. It reads the row as it is now, whatever the
    /// transaction saw before.
    #[must_use]
    pub const fn newer_fence(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT fence FROM tg_fences WHERE name = ?1 AND NOT (fence = ?2 AND owner = ?3)",
            Self::MySql => "SELECT fence FROM tg_fences WHERE name = ? AND NOT (fence = ? AND owner = ?) FOR UPDATE",
            Self::Postgres => {
                "SELECT fence FROM tg_fences WHERE name = $1 AND NOT (fence = $2 AND owner = $3) FOR UPDATE"
            }
        }
    }

    /// Makes the table `tg_fences` where it is not, for a database that is no ledger. A ledger has it.
    #[must_use]
    pub const fn fence_table(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "CREATE TABLE IF NOT EXISTS tg_fences (name BLOB PRIMARY KEY, fence INTEGER NOT NULL, owner INTEGER NOT NULL, \
                sealed_at INTEGER NOT NULL) WITHOUT ROWID"
            }
            Self::MySql => {
                "CREATE TABLE IF NOT EXISTS tg_fences (name VARBINARY(128) PRIMARY KEY, fence BIGINT NOT NULL, \
                owner BIGINT NOT NULL, sealed_at BIGINT NOT NULL) ENGINE=InnoDB"
            }
            Self::Postgres => {
                "CREATE TABLE IF NOT EXISTS tg_fences (name BYTEA PRIMARY KEY, fence BIGINT NOT NULL, owner BIGINT NOT NULL, \
                sealed_at BIGINT NOT NULL)"
            }
        }
    }
}

/// Checks and records a grant in `transaction`, and keeps the row locked until that ends. With [`Sealed::Stale`] the
/// transaction must be rolled back. It must come before everything the transaction reads: what was read earlier may be older
/// than what the last holder wrote.
///
/// # Errors
/// Whatever the database says (also that another holder's transaction got in between: then it may be tried again): the
/// transaction should be rolled back.
pub fn fence_in<'a>(transaction: &'a mut dyn Execute, seal: &Seal) -> BoxFuture<'a, Result<Sealed>> {
    let fence = match seal.stored_fence() {
        Ok(fence) => fence,
        Err(e) => return Box::pin(std::future::ready(Err(e))),
    };
    let dialect = transaction.dialect();
    let parameters = || {
        let name = Parameter::Bytes(seal.name.as_str().as_bytes().to_vec());
        vec![name, Parameter::Int(Some(fence)), Parameter::Int(Some(seal.owner))]
    };
    // Begun here, not at the first poll: a driver without tasks of its own is done before this returns.
    let asked = transaction.ask((dialect.record_fence(), parameters()), (dialect.newer_fence(), parameters()));
    Box::pin(async move { asked.await.map(Seal::judged) })
}
