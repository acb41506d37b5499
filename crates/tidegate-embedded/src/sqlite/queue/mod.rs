//! Delayed tasks in a SQLite file: one file, one process, one writer thread, group commit.
//!
//! - `group.rs`: steps share transactions. `steps.rs`: the steps, as statements. `read.rs`: reads.
//!
//! Nothing is kept in memory but the page caches: a million far tasks cost what their pages cost on the disk, and opening
//! the file again reads none of them.

mod group;
mod read;
mod steps;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tidegate_backend::queue::{Listing, MAX_PURGE, next_place};
use tidegate_backend::{
    BoxFuture, Clock, Error, ErrorKind, Handout, QueueCapabilities, QueueOptions, QueueStore, Result, Want,
};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId};
use tokio::sync::watch;

use super::checkpoint::{Checkpointer, Dirty, checkpoint};
use super::fault;
use super::lane::Lane;
use super::lock::Lock;
use super::migrate::QUEUES;
use super::open::{Options, Role, Synchronous, connect, open_file};
use group::{Group, Writer};
use steps::Step;

/// Waiting calls of the writer: group commit in front sends one.
const WRITER_QUEUE: usize = 8;
/// Waiting reads.
const READER_QUEUE: usize = 256;
/// Reading threads.
const READERS: usize = 2;

/// How to open a file of delayed tasks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteQueueOptions {
    /// The file; it and its folder are created when missing.
    pub path: PathBuf,
    /// Bounds.
    pub queues: QueueOptions,
    /// When an answer counts as durable.
    pub synchronous: Synchronous,
    /// Page cache of the writer, KiB (default 16,384).
    pub writer_cache_kib: u32,
    /// Largest size of the file in pages; for tests of a full disk.
    #[doc(hidden)]
    pub max_pages: Option<u32>,
}

impl SqliteQueueOptions {
    /// The file at `path` with the defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            queues: QueueOptions::default(),
            synchronous: Synchronous::Full,
            writer_cache_kib: 16 << 10,
            max_pages: None,
        }
    }

    fn file(&self) -> Options {
        let mut file = Options::new(&self.path);
        file.synchronous = self.synchronous;
        file.writer_cache_kib = self.writer_cache_kib;
        file.max_pages = self.max_pages;
        file
    }
}

/// Dropped from top to bottom: the lock goes last.
struct Parts {
    checkpointer: Mutex<Option<Checkpointer>>,
    readers: Lane<Connection>,
    writer: Arc<Lane<Writer>>,
    lock: Mutex<Option<Lock>>,
}

/// Delayed tasks in a SQLite file.
pub struct SqliteQueues {
    /// Taken out by `close`.
    parts: Mutex<Option<Arc<Parts>>>,
    group: Arc<Group>,
    clock: Arc<dyn Clock>,
    moved: watch::Sender<u64>,
    options: QueueOptions,
}

impl fmt::Debug for SqliteQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteQueues").field("open", &self.parts().is_ok()).finish_non_exhaustive()
    }
}

impl SqliteQueues {
    /// Opens the file. What is due is decided by `clock`. The work is done on a blocking thread.
    ///
    /// # Errors
    /// [`ErrorKind::Owned`] names the process that has it open; [`ErrorKind::NewerSchema`] a file of a newer Tidegate;
    /// [`ErrorKind::Configuration`] a file of another kind; [`ErrorKind::Unavailable`] what the file system refuses;
    /// [`ErrorKind::Corrupt`] a file that is no database.
    pub async fn open(options: SqliteQueueOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        let opening = tokio::task::spawn_blocking(move || Self::open_blocking(&options, clock));
        opening
            .await
            .unwrap_or_else(|e| Err(Error::new(ErrorKind::Unavailable, "opening the queues was stopped").because(e)))
    }

    fn open_blocking(options: &SqliteQueueOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        options.queues.check()?;
        let file = options.file();
        let (conn, lock) = open_file(&file, &QUEUES)?;
        keep_plans(&conn)?;
        let reader = |_| {
            let conn = connect(&file, &QUEUES, Role::Reader)?;
            keep_plans(&conn).map(|()| conn)
        };
        let readers = (0..READERS).map(reader).collect::<Result<_>>()?;
        let copier = connect(&file, &QUEUES, Role::Checkpoint)?;
        let (dirty, moved) = (Arc::new(Dirty::default()), watch::Sender::new(0));
        let writer =
            Writer { conn, clock: clock.clone(), options: options.queues, dirty: dirty.clone(), moved: moved.clone() };
        let writer = Arc::new(Lane::start("tidegate-queue", vec![writer], WRITER_QUEUE)?);
        let parts = Parts {
            checkpointer: Mutex::new(Some(Checkpointer::start(copier, dirty, writer.clone())?)),
            readers: Lane::start("tidegate-qread", readers, READER_QUEUE)?,
            writer,
            lock: Mutex::new(Some(lock)),
        };
        Ok(Arc::new(Self {
            parts: Mutex::new(Some(Arc::new(parts))),
            group: Group::new(),
            clock,
            moved,
            options: options.queues,
        }))
    }

    fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(fault::closed)
    }

    fn write<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Step<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let parts = self.parts()?;
            self.group.run(&parts.writer, step).await
        })
    }

    fn read<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Connection, Millis) -> rusqlite::Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let clock = self.clock.clone();
            let read = move |conn: &mut Connection| {
                let tx = conn.transaction()?;
                let value = call(&tx, clock.now())?;
                tx.commit()?;
                Ok(value)
            };
            let read = move |conn: &mut Connection| read(conn).map_err(|e| fault::reading_of(QUEUES.what, e));
            parts.readers.run(read).await
        })
    }
}

/// A statement keeps the plan it was prepared with. SQLite else prepares one anew whenever another value is bound to it that
/// might let it use an index of some rows only (`tasks_leased`); no statement here depends on a value for that.
fn keep_plans(conn: &Connection) -> Result<()> {
    let kept = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true);
    kept.map(drop).map_err(|e| fault::reading_of(QUEUES.what, e))
}

impl Parts {
    /// Ends every thread, empties the write-ahead log and gives the file back; this blocks.
    fn close(&self) {
        drop(self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.readers.close();
        let copied = self
            .writer
            .run_blocking(|w| checkpoint(&w.conn, "TRUNCATE").map_err(|e| fault::writing_of(QUEUES.what, e)));
        if let Err(e) = copied {
            tracing::warn!(error = %e, "the queues' write-ahead log could not be emptied; the next start reads it");
        }
        self.writer.close();
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl QueueStore for SqliteQueues {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities { name: "sqlite", shared: false, durable: true, wakes: true }
    }

    fn now(&self) -> Millis {
        self.clock.now()
    }

    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>> {
        let (queue, tasks) = (queue.clone(), tasks.to_vec());
        Box::pin(async move {
            self.write(move |step| step.schedule(&queue, &tasks)).await?.map_err(|_| self.options.too_many())
        })
    }

    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>> {
        let (queue, ids) = (queue.clone(), ids.to_vec());
        self.write(move |step| step.cancel(&queue, &ids))
    }

    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>> {
        let wants = wants.to_vec();
        self.write(move |step| {
            let claim = |want: &Want| {
                let (tasks, next_at) = step.claim(&want.queue, want.max, want.lease_ms)?;
                Ok(Handout { tasks, next_at, failed: None })
            };
            wants.iter().map(claim).collect()
        })
    }

    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>> {
        let (queue, tasks) = (queue.clone(), tasks.to_vec());
        self.write(move |step| step.settle(&queue, &tasks))
    }

    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>> {
        let (queue, ids) = (queue.clone(), ids.to_vec());
        self.read(move |conn, now| read::get(conn, now, &queue, &ids))
    }

    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>> {
        let queue = queue.clone();
        self.read(move |conn, now| {
            let page = read::list(conn, now, &queue, &listing, after.as_ref(), limit)?;
            let next = next_place(&listing, &page, limit);
            Ok((page, next))
        })
    }

    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>> {
        let after = after.cloned();
        self.read(move |conn, _| read::queues(conn, after.as_ref(), limit))
    }

    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>> {
        let queues = queues.to_vec();
        self.read(move |conn, now| queues.iter().map(|queue| read::stats(conn, now, queue)).collect())
    }

    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>> {
        let (queue, id) = (queue.clone(), id.clone());
        self.write(move |step| step.requeue(&queue, &id, delay_ms))
    }

    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>> {
        let queue = queue.clone();
        self.write(move |step| step.purge(&queue, before, MAX_PURGE))
    }

    fn earlier(&self) -> BoxFuture<'static, ()> {
        crate::queue::moved(&self.moved)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(parts) = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
            if let Err(e) = tokio::task::spawn_blocking(move || parts.close()).await {
                tracing::warn!(error = %e, "closing the queues was stopped");
            }
        })
    }
}
