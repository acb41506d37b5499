//! The contract of delay queues on both dialects.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, QueueOptions, QueueStore};
use tidegate_conformance::queue::{ATTEMPTS, Harness};
use tidegate_sql::{SqlQueueOptions, SqlQueues};

/// Two processes on one database, whose server ends with this.
struct InDatabase<S> {
    queues: Arc<SqlQueues>,
    url: String,
    _server: Arc<S>,
}

async fn queues(url: &str) -> Arc<SqlQueues> {
    let mut options = SqlQueueOptions::new(url);
    options.queues = QueueOptions { max_attempts: ATTEMPTS, ..QueueOptions::default() };
    SqlQueues::open(options).await.expect("the queues open")
}

impl<S: Send + Sync> InDatabase<S> {
    async fn open(url: String, server: Arc<S>) -> Self {
        Self { queues: queues(&url).await, url, _server: server }
    }
}

impl<S: Send + Sync> Harness for InDatabase<S> {
    fn store(&self) -> Arc<dyn QueueStore> {
        self.queues.clone()
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn QueueStore>>> {
        Box::pin(async move { Some(queues(&self.url).await as Arc<dyn QueueStore>) })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use tidegate_conformance::servers::MariaDb;

    use super::*;

    async fn open() -> InDatabase<MariaDb> {
        // It loses no power here.
        let server = Arc::new(MariaDb::start_with(&[("innodb-flush-log-at-trx-commit", "0")]));
        InDatabase::open(server.database(), server).await
    }

    tidegate_conformance::queue_conformance!(open);
}

#[cfg(feature = "postgres")]
mod postgres {
    use tidegate_conformance::servers::Postgres;

    use super::*;

    async fn open() -> InDatabase<Postgres> {
        let server = Arc::new(Postgres::start_with(&[("fsync", "off")]));
        InDatabase::open(server.database(), server).await
    }

    tidegate_conformance::queue_conformance!(open);
}
