//! The outbox of invalidations: what a commit makes old in caches is written in the same transaction, and handed on once
//! that is committed. A rollback leaves nothing to hand on, a commit is never without it.
//!
//! - [`Outbox`], reached by `Ledger::outbox`: whoever committed delivers at once and says so; a relay on every node hands
//!   on what nobody has, such as what a process left that died in between. Delivery is at least once: an invalidation may
//!   be repeated at any time.
//! - [`invalidate_in`]: writes one in a caller's own transaction, through [`Execute`], which the back ends implement for
//!   their drivers.
//! - [`OutboxEntry`]: how an entry lies in its row, for the ledgers.
//!
//! Every instant here is of the store's real clock, also where order time stands still.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::cache::{MAX_KEY_BYTES, RowVersion, products};
use tidegate_core::{Millis, Sku};

use crate::{BoxFuture, Error, ErrorKind, Result};

/// Most entries of one [`Outbox::relay`], [`Outbox::mark_delivered`], [`Outbox::states`] or [`Outbox::replay`]; as many as
/// fit one call of a cache's store.
pub const MAX_OUTBOX_BATCH: usize = crate::cache::MAX_CACHE_BATCH;
/// Longest time a [`Deliver`] has for one batch.
pub const DELIVERY_BOUND: Duration = Duration::from_secs(2);
/// How long delivered entries are kept for a [`Outbox::replay`]: longer than a failover takes to be noticed.
pub const DELIVERED_KEPT: Duration = Duration::from_secs(60);
/// Most entries one [`Outbox::prune`] deletes: some milliseconds of a writer's time.
pub const MAX_PRUNED: usize = 2_000;
/// Up to how many waiting entries [`Outbox::pending`] counts.
pub const MAX_COUNTED: usize = 100_000;
/// Longest namespace, bytes.
pub const MAX_NAMESPACE_BYTES: usize = 64;

/// What an entry is for. Stored by its number, which is given to no other kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutboxKind {
    /// The key of a cache is old.
    Cache = 0,
}

/// Something that a commit made old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEntry {
    /// Its own number: random and positive, so that any transaction can make one.
    pub id: i64,
    /// What it is for.
    pub kind: OutboxKind,
    /// The cache.
    pub namespace: Arc<str>,
    /// The encoded key (`tidegate_core::cache::Key`).
    pub key: Bytes,
    /// Entries of rows older than this must not come back.
    pub floor: Option<RowVersion>,
    /// When it was written, a moment before its commit.
    pub committed_at: Millis,
}

/// A number for a new entry.
fn new_id() -> i64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // The version and variant of a UUID are in other bits.
    let random = (low & (u64::MAX >> 2)) | (high & 1) << 62;
    random.cast_signed().max(1)
}

fn stored_key(namespace: &str, key: &[u8]) -> Vec<u8> {
    [namespace.as_bytes(), &[0], key].concat()
}

impl OutboxEntry {
    /// A new entry: the product page of `sku` is old.
    #[must_use]
    pub fn of_product(sku: &Sku, at: Millis) -> Self {
        Self {
            id: new_id(),
            kind: OutboxKind::Cache,
            namespace: products::NAMESPACE.into(),
            key: Bytes::copy_from_slice(products::key(&sku.id).as_bytes()),
            floor: products::version(sku),
            committed_at: at,
        }
    }

    /// A new entry of the feed (`crate::feed`).
    pub(crate) fn of_feed(namespace: &str, key: Bytes, floor: Option<RowVersion>, at: Millis) -> Self {
        Self { id: new_id(), kind: OutboxKind::Cache, namespace: namespace.into(), key, floor, committed_at: at }
    }

    /// The bytes of its column `entry_key`: the namespace, a zero byte, the encoded key.
    #[must_use]
    pub fn stored_key(&self) -> Vec<u8> {
        stored_key(&self.namespace, &self.key)
    }

    /// Its column `floor`.
    #[must_use]
    pub fn stored_floor(&self) -> Option<i64> {
        self.floor.map(RowVersion::get).and_then(|floor| i64::try_from(floor).ok())
    }

    /// The entry in a row of [`OutboxKind::Cache`]; `None` when no Tidegate has written it. A floor that is none counts
    /// as left out: the invalidation stands.
    #[must_use]
    pub fn from_stored(id: i64, stored_key: &[u8], floor: Option<i64>, committed_at: Millis) -> Option<Self> {
        let end = stored_key.iter().position(|byte| *byte == 0)?;
        let (namespace, key) = (std::str::from_utf8(&stored_key[..end]).ok()?, &stored_key[end + 1..]);
        check(namespace, key).ok()?;
        Some(Self {
            id,
            kind: OutboxKind::Cache,
            namespace: namespace.into(),
            key: Bytes::copy_from_slice(key),
            floor: floor.and_then(|floor| u64::try_from(floor).ok()).and_then(RowVersion::new),
            committed_at,
        })
    }
}

fn check(namespace: &str, key: &[u8]) -> Result<()> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    let refuse = |text: String| Err(Error::new(ErrorKind::Command, text));
    if !(1..=MAX_NAMESPACE_BYTES).contains(&namespace.len()) || !namespace.bytes().all(good) {
        return refuse(format!(
            "the namespace {namespace:?} cannot be used; give 1 to {MAX_NAMESPACE_BYTES} of a-z 0-9 . _ -"
        ));
    }
    if key.len() > MAX_KEY_BYTES {
        return refuse(format!("the key has {} bytes and a cache takes {MAX_KEY_BYTES}; use its hash", key.len()));
    }
    Ok(())
}

/// Where entries are delivered to.
pub trait Deliver: Send + Sync {
    /// Hands on up to [`MAX_OUTBOX_BATCH`] entries and gives the ids of those that arrived; the others come again. It has
    /// [`DELIVERY_BOUND`] for that, and is dropped then.
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>>;
}

/// What a relay has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Relayed {
    /// Entries it took; as many as were asked for: more may wait.
    pub taken: usize,
    /// Entries it marked delivered.
    pub delivered: usize,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboxState {
    /// There is none (yet): its transaction is open or was rolled back, or it was delivered and pruned.
    Absent,
    /// Committed, and not known to be delivered.
    Waiting,
    /// Delivered.
    Delivered,
}

/// What waits to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pending {
    /// How many entries, counted up to [`MAX_COUNTED`].
    pub count: usize,
    /// How long the oldest has been waiting.
    pub oldest: Option<Duration>,
}

/// Where a replay has got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPoint {
    /// When the last entry of the page was delivered.
    pub delivered_at: Millis,
    /// Its id.
    pub id: i64,
}

/// A page of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replayed {
    /// The entries, in the order of their delivery.
    pub entries: Vec<OutboxEntry>,
    /// Where to go on; `None` at the end.
    pub next: Option<ReplayPoint>,
}

/// The entries that commits have left. Every method may be called at any time from any task.
pub trait Outbox: Send + Sync {
    /// Hands up to `max` waiting entries, `1..=`[`MAX_OUTBOX_BATCH`], oldest first, to `to` and marks delivered what it says
    /// arrived. Relays share the work: what one has in its hands, no other takes, on this or another node. Entries in the
    /// hands of a relay that dies are free again within seconds.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: nothing was marked (so also after [`DELIVERY_BOUND`]); what arrived comes again.
    fn relay<'a>(&'a self, max: usize, to: &'a dyn Deliver) -> BoxFuture<'a, Result<Relayed>>;

    /// Marks up to [`MAX_OUTBOX_BATCH`] entries delivered, for whoever has delivered its own at once. One that a relay has
    /// in its hands is left to that relay.
    fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<()>>;

    /// What became of up to [`MAX_OUTBOX_BATCH`] entries, in order.
    fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<Vec<OutboxState>>>;

    /// A page of up to `max` entries, `1..=`[`MAX_OUTBOX_BATCH`], that were delivered less than `within` ago, in the order of
    /// their delivery, after the point where the page before has ended: to be delivered once more when the receiver may have lost some.
    fn replay(&self, within: Duration, after: Option<ReplayPoint>, max: usize) -> BoxFuture<'_, Result<Replayed>>;

    /// Deletes up to [`MAX_PRUNED`] entries that were delivered longer than `keep` ago; what waits stays, however old.
    /// Returns whether more may be left.
    fn prune(&self, keep: Duration) -> BoxFuture<'_, Result<bool>>;

    /// What waits.
    fn pending(&self) -> BoxFuture<'_, Result<Pending>>;
}

/// Checks the number of ids of one call.
///
/// # Errors
/// [`ErrorKind::Command`]: more than [`MAX_OUTBOX_BATCH`].
pub fn check_ids(ids: &[i64]) -> Result<()> {
    if ids.len() > MAX_OUTBOX_BATCH {
        let text = format!("at most {MAX_OUTBOX_BATCH} entries of the outbox fit one call; split them");
        return Err(Error::new(ErrorKind::Command, text));
    }
    Ok(())
}

/// What was delivered of `entries`, each id once; an answer that names another's is not believed.
///
/// # Errors
/// [`ErrorKind::Unavailable`] after [`DELIVERY_BOUND`].
pub async fn deliver(to: &dyn Deliver, entries: &[OutboxEntry]) -> Result<Vec<i64>> {
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let Ok(mut arrived) = tokio::time::timeout(DELIVERY_BOUND, to.deliver(entries)).await else {
        let seconds = DELIVERY_BOUND.as_secs();
        let text =
            format!("{} invalidations were not delivered within {seconds} s; they are tried again", entries.len());
        return Err(Error::new(ErrorKind::Unavailable, text));
    };
    let handed: HashSet<i64> = entries.iter().map(|entry| entry.id).collect();
    arrived.retain(|id| handed.contains(id));
    arrived.sort_unstable();
    arrived.dedup();
    Ok(arrived)
}

/// Which statement a connection understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    /// SQLite.
    Sqlite,
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
}

impl SqlDialect {
    /// Inserts an entry of [`OutboxKind::Cache`]: id, `entry_key`, floor.
    const fn insert(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) \
                VALUES (?1, 0, ?2, ?3, CAST(unixepoch('subsec') * 1000 AS INTEGER))"
            }
            Self::MySql => {
                "INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) \
                VALUES (?, 0, ?, ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"
            }
            Self::Postgres => {
                "INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) \
                VALUES ($1, 0, $2, $3, CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT))"
            }
        }
    }
}

/// A value of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// A 64-bit number, or NULL.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// A caller's own open transaction in the ledger's database. The back ends implement it for their drivers.
pub trait Execute {
    /// Which statements it understands.
    fn dialect(&self) -> SqlDialect;

    /// Runs one statement with its parameters, in order.
    ///
    /// # Errors
    /// Whatever the database says; the transaction is then its caller's to end.
    fn execute<'a>(&'a mut self, statement: &'a str, parameters: Vec<Parameter>) -> BoxFuture<'a, Result<()>>;

    /// Runs `write`, then `read`, each with its parameters, and gives the number in the first column of the first row that
    /// `read` finds; `None` when it finds none.
    ///
    /// # Errors
    /// As [`Execute::execute`].
    fn ask<'a>(
        &'a mut self,
        write: (&'a str, Vec<Parameter>),
        read: (&'a str, Vec<Parameter>),
    ) -> BoxFuture<'a, Result<Option<i64>>>;
}

/// The number of an entry that a caller's transaction wrote. Once that is committed, whoever delivers the invalidation
/// tells [`Outbox::mark_delivered`]; [`Outbox::states`] tells whether it is committed, and whether it was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub i64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Writes an invalidation of `key` (encoded) of the cache `namespace` in `transaction`: it takes place if that commits,
/// and never if it does not.
///
/// # Errors
/// [`ErrorKind::Command`]: a namespace or key that no cache has. Else whatever the database says: the transaction should be
/// rolled back.
pub fn invalidate_in<'a>(
    transaction: &'a mut dyn Execute,
    namespace: &str,
    key: &[u8],
    floor: Option<RowVersion>,
) -> BoxFuture<'a, Result<Ticket>> {
    if let Err(error) = check(namespace, key) {
        return Box::pin(std::future::ready(Err(error)));
    }
    let id = new_id();
    let floor = floor.map(RowVersion::get).and_then(|floor| i64::try_from(floor).ok());
    let parameters =
        vec![Parameter::Int(Some(id)), Parameter::Bytes(stored_key(namespace, key)), Parameter::Int(floor)];
    let statement = transaction.dialect().insert();
    // Begun here, not at the first poll: a driver without tasks of its own is done before this returns.
    let executed = transaction.execute(statement, parameters);
    Box::pin(async move { executed.await.map(|()| Ticket(id)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positive_and_distinct() {
        let ids: HashSet<i64> = (0..10_000).map(|_| new_id()).collect();
        assert!(ids.len() == 10_000 && ids.iter().all(|id| *id > 0));
        let (ones, zeros) = ids.iter().fold((0, i64::MAX), |(ones, zeros), id| (ones | id, zeros & id));
        assert_eq!((ones, zeros), (i64::MAX, 0), "every bit but the sign is random");
    }

    #[test]
    fn an_entry_comes_back_from_its_row() {
        for (namespace, key, floor) in
            [("products", &b"\x01a"[..], Some(7)), ("a.b_c-9", b"", None), ("x", b"\x02\x00\x00", Some(0))]
        {
            let entry = OutboxEntry::from_stored(5, &stored_key(namespace, key), floor, Millis(9)).expect("it is one");
            assert_eq!((&*entry.namespace, &*entry.key, entry.stored_floor()), (namespace, key, floor));
            assert_eq!(entry.stored_key(), stored_key(namespace, key));
        }
        for bad in [&b""[..], b"products", b"\x00key", b"Products\x00key", b"\xff\x00key"] {
            assert_eq!(OutboxEntry::from_stored(5, bad, None, Millis(9)), None, "{bad:?}");
        }
        let long = stored_key("x", &[1; MAX_KEY_BYTES + 1]);
        assert_eq!(OutboxEntry::from_stored(5, &long, None, Millis(9)), None);
        let huge = OutboxEntry::from_stored(5, b"x\x00k", Some(i64::MAX), Millis(9)).expect("it is one");
        assert_eq!(huge.floor, None);
    }
}
