//! A way to have something done later: our queue, and what it is compared with. Each runs in a process that obeys
//! (`child.rs`); what it is told at its start is a [`Kind`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::naive::Naive;
use super::seen::Seen;
use super::stored::Stored;
use crate::failure::{Failure, Result};

/// Which way, and where its store is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Kind {
    /// Our queue in a SQLite file.
    Embedded {
        /// The file.
        file: PathBuf,
    },
    /// Our queue on Redis.
    Redis {
        /// The server.
        url: String,
        /// Under which its keys lie.
        name: String,
    },
    /// Our queue on a database server.
    Sql {
        /// An empty database.
        url: String,
    },
    /// The loop that many teams write, on Redis.
    Naive {
        /// The server.
        url: String,
        /// Before its keys.
        name: String,
    },
    /// A broker: a queue for each class of delays, with a time to live and a dead-letter exchange.
    Rabbit {
        /// `amqp://..`.
        url: String,
    },
}

impl Kind {
    /// Whether a task comes at the instant that was asked for; else after a delay from when it was scheduled.
    pub fn takes_instants(&self) -> bool {
        !matches!(self, Kind::Rabbit { .. })
    }

    /// Whether several processes can use it at once.
    pub fn is_shared(&self) -> bool {
        !matches!(self, Kind::Embedded { .. })
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`Failure`]: its store is not there.
    pub async fn open(self) -> Result<Arc<dyn Way>> {
        Ok(match self {
            Kind::Embedded { file } => Arc::new(Stored::embedded(&file).await?),
            Kind::Redis { url, name } => Arc::new(Stored::redis(&url, &name).await?),
            Kind::Sql { url } => Arc::new(Stored::sql(&url).await?),
            Kind::Naive { url, name } => Arc::new(Naive::open(&url, &name).await?),
            #[cfg(feature = "rabbitmq")]
            Kind::Rabbit { url } => Arc::new(super::rabbit::Rabbit::open(&url).await?),
            #[cfg(not(feature = "rabbitmq"))]
            Kind::Rabbit { .. } => return Err(Failure::Usage(super::side::NO_RABBIT.to_owned())),
        })
    }
}

/// A task: a number, and when it is due.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    /// Unique in its queue.
    pub n: u64,
    /// Milliseconds since 1970.
    pub due_ms: i64,
}

/// How a worker works.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct How {
    /// Tasks in the process at once.
    pub concurrency: usize,
    /// Tasks of one call of the handler.
    pub batch: usize,
    /// For how long they are its own.
    pub lease_ms: u64,
    /// What a handler does: it sleeps.
    pub work_ms: u64,
}

impl How {
    /// As fast as it can: handlers that do nothing.
    pub fn fast() -> Self {
        Self { concurrency: 4_096, batch: 256, lease_ms: 30_000, work_ms: 0 }
    }

    /// A handler for each task, that does nothing.
    pub fn each() -> Self {
        Self { batch: 1, ..Self::fast() }
    }

    /// Does the work.
    pub async fn work(&self) {
        if self.work_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.work_ms)).await;
        }
    }
}

/// Ends a worker, and sees its last answers through.
pub type Stop = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A way to have something done later.
pub trait Way: Send + Sync {
    /// Schedules tasks; returns when they are as safe as this way makes them.
    fn schedule<'a>(&'a self, queue: &'a str, tasks: &'a [Task]) -> BoxFuture<'a, Result>;

    /// Takes a task back; whether it was there.
    fn cancel<'a>(&'a self, _queue: &'a str, _n: u64) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async { Err(Failure::Work("this way has no cancel".to_owned())) })
    }

    /// Acknowledges tasks by receipts that may be worthless by now; how many were refused.
    fn acknowledge<'a>(&'a self, _queue: &'a str, _receipts: &'a [(u64, u64)]) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { Err(Failure::Work("this way has no receipts".to_owned())) })
    }

    /// Tasks that are still there, in whatever state; 0 where nobody can tell.
    fn left<'a>(&'a self, _queue: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async { Ok(0) })
    }

    /// Starts a worker that notes in `seen` what comes.
    fn work<'a>(&'a self, queue: &'a str, how: How, seen: Arc<Seen>) -> BoxFuture<'a, Result<Stop>>;
}

/// What every task carries: 64 bytes with its quotes.
pub const PAYLOAD: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcd";
