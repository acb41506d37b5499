//! Invalidations within a transaction of the caller's own, and how their acknowledgement is awaited.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_backend::BoxFuture;
use tidegate_backend::outbox::{self, Execute};
use tidegate_core::cache::{Key, RowVersion};

use super::errors::CacheError;
use super::handle::{Cache, encoded};

/// An invalidation that a transaction wrote: [`super::Relay::acknowledged`] waits for it after the commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(super) id: outbox::Ticket,
    pub(super) namespace: Arc<str>,
    pub(super) key: Bytes,
}

impl Ticket {
    /// The id of its row in `tg_outbox`.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id.0
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

/// Why an invalidation is not known to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unacknowledged {
    /// No committed transaction has written it: it was rolled back, or is still open. (Or it was delivered more than a
    /// minute ago: tickets are forgotten then.)
    NotCommitted,
    /// It is committed, as far as is known, but was not delivered in time: the cache's store or the database gives no
    /// answer. It is tried again until it is delivered.
    NotDelivered,
    /// The caches are being closed. Another process' relay delivers it, or the next one of this.
    Stopping,
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCommitted => "the invalidation was not committed: its transaction was rolled back or is open",
            Self::NotDelivered => "the invalidation was not delivered in time; it is tried again",
            Self::Stopping => "the caches are being closed; the invalidation is delivered by the next relay",
        })
    }
}

impl std::error::Error for Unacknowledged {}

impl<K, V> Cache<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Writes "the row of `key` has changed" in the transaction that changes it: it takes place if that commits, even if
    /// this process dies right after, and never if it does not. A relay of the database's outbox delivers it
    /// ([`super::Caches::relay`]); once [`super::Relay::acknowledged`] has returned `Ok`, it is as if [`Cache::invalidate`]
    /// had. Without waiting it takes a second at most, while the store answers.
    ///
    /// `transaction`: a `SqliteTransaction`, `MySqlTransaction` or `PostgresTransaction`, over the caller's own driver. With
    /// SQLite the work is done when this returns, and the future is ready.
    ///
    /// # Errors
    /// [`CacheError::KeyTooLong`]; [`CacheError::Database`]: whatever the database says, and the transaction should be
    /// rolled back.
    pub fn invalidate_in<'a>(
        &self,
        transaction: &'a mut dyn Execute,
        key: &K,
    ) -> BoxFuture<'a, Result<Ticket, CacheError>> {
        self.write_in(transaction, key, None)
    }

    /// The same, and nothing older than `version`, the row's new one, is stored for as long as floors are kept, as with
    /// [`Cache::invalidate_version`].
    ///
    /// # Errors
    /// As [`Cache::invalidate_in`].
    pub fn invalidate_version_in<'a>(
        &self,
        transaction: &'a mut dyn Execute,
        key: &K,
        version: RowVersion,
    ) -> BoxFuture<'a, Result<Ticket, CacheError>> {
        self.write_in(transaction, key, Some(version))
    }

    fn write_in<'a>(
        &self,
        transaction: &'a mut dyn Execute,
        key: &K,
        floor: Option<RowVersion>,
    ) -> BoxFuture<'a, Result<Ticket, CacheError>> {
        let key = match encoded(key) {
            Ok(key) => key,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let namespace = Arc::clone(&self.inner.namespace);
        let written = outbox::invalidate_in(transaction, &namespace, &key, floor);
        Box::pin(async move {
            let id = written.await.map_err(|error| CacheError::Database(Arc::new(error)))?;
            Ok(Ticket { id, namespace, key })
        })
    }
}
