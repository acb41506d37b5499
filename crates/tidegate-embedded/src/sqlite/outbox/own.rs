//! The outbox of a SQLite file that is no ledger: of a program that uses the cache and keeps its rows itself.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Result as Sql, TransactionBehavior};
use tidegate_backend::outbox::{MAX_OUTBOX_BATCH, Pending, Relayed, ReplayPoint, Replayed, check_ids, deliver};
use tidegate_backend::{BoxFuture, Clock, Deliver, Error, Outbox, OutboxState, Result, SteadyClock};

use super::super::lane::Lane;
use super::super::{fault, open};
use super::{before, mark, pending, prune, replay, states, waiting};

/// Waiting calls.
const QUEUE: usize = 64;

/// Makes the table where it is not; the wording is the ledger's.
const TABLE: &str = include_str!("../../../migrations/0002_outbox.sql");

/// The outbox in a SQLite file of a caller's own, for a relay of a cache: its table `tg_outbox`, and a connection on a
/// thread of its own. One process relays a file.
///
/// Its writes are short, and wait up to 5 s for the file's other writers; theirs should have a busy timeout, too.
/// A ledger has an outbox already: use the ledger's there.
pub struct SqliteOutbox {
    lane: Lane<Connection>,
    clock: Arc<dyn Clock>,
    relaying: tokio::sync::Mutex<()>,
}

impl SqliteOutbox {
    /// Opens the file, which must exist, and makes the table `tg_outbox` in it if there is none. This blocks for some
    /// milliseconds.
    ///
    /// # Errors
    /// `ErrorKind::Unavailable`: it cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let conn = connect(path).map_err(|e| {
            let cause = fault::writing(e);
            Error::new(cause.kind(), format!("the outbox in {} cannot be opened", path.display())).because(cause)
        })?;
        let lane = Lane::start("tidegate-outbox", vec![conn], QUEUE)?;
        Ok(Arc::new(Self { lane, clock: Arc::new(SteadyClock::new(None)), relaying: tokio::sync::Mutex::default() }))
    }

    async fn read<T: Send + 'static>(&self, call: impl FnOnce(&Connection) -> Sql<T> + Send + 'static) -> Result<T> {
        self.lane.run(move |conn| call(conn).map_err(fault::reading)).await
    }

    async fn write<T: Send + 'static>(&self, call: impl FnOnce(&Connection) -> Sql<T> + Send + 'static) -> Result<T> {
        let transact = |conn: &mut Connection| {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = call(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        self.lane.run(move |conn| transact(conn).map_err(fault::writing)).await
    }
}

fn connect(path: &Path) -> Sql<Connection> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, access)?;
    conn.busy_timeout(open::BUSY)?;
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !tx.table_exists(None, "tg_outbox")? {
        tx.execute_batch(TABLE)?;
    }
    tx.commit()?;
    Ok(conn)
}

impl Outbox for SqliteOutbox {
    fn relay<'a>(&'a self, max: usize, to: &'a dyn Deliver) -> BoxFuture<'a, Result<Relayed>> {
        Box::pin(async move {
            let _turn = self.relaying.lock().await;
            let max = max.clamp(1, MAX_OUTBOX_BATCH);
            let (entries, unreadable) = self.read(move |conn| waiting(conn, max)).await?;
            if !unreadable.is_empty() {
                let rows = unreadable.len();
                tracing::warn!(rows, "rows of tg_outbox that no Tidegate has written are passed over");
            }
            let arrived = deliver(to, &entries).await?;
            let relayed = Relayed { taken: entries.len() + unreadable.len(), delivered: arrived.len() };
            self.mark_delivered(&[arrived, unreadable].concat()).await?;
            Ok(relayed)
        })
    }

    fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check_ids(ids)?;
            if ids.is_empty() {
                return Ok(());
            }
            let (ids, clock) = (ids.to_vec(), Arc::clone(&self.clock));
            self.write(move |conn| mark(conn, &ids, clock.now())).await
        })
    }

    fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<Vec<OutboxState>>> {
        Box::pin(async move {
            check_ids(ids)?;
            let ids = ids.to_vec();
            self.read(move |conn| states(conn, &ids)).await
        })
    }

    fn replay(&self, within: Duration, after: Option<ReplayPoint>, max: usize) -> BoxFuture<'_, Result<Replayed>> {
        Box::pin(async move {
            let since = before(self.clock.now(), within);
            self.read(move |conn| replay(conn, since, after, max.clamp(1, MAX_OUTBOX_BATCH))).await
        })
    }

    fn prune(&self, keep: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let old = before(self.clock.now(), keep);
            self.write(move |conn| prune(conn, old)).await
        })
    }

    fn pending(&self) -> BoxFuture<'_, Result<Pending>> {
        Box::pin(async move {
            let now = self.clock.now();
            self.read(move |conn| pending(conn, now)).await
        })
    }
}

impl fmt::Debug for SqliteOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOutbox").finish_non_exhaustive()
    }
}
