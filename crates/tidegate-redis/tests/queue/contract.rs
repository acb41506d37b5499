//! The contract of stores of delayed tasks.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_backend::{BoxFuture, QueueOptions, QueueStore};
use tidegate_conformance::queue::{ATTEMPTS, Harness};
use tidegate_conformance::servers::{Engine, Redis, Setup};
use tidegate_redis::{Connector, RedisOptions, RedisQueues};

use super::common;

static NAMES: AtomicU32 = AtomicU32::new(0);

pub struct Shared {
    queues: Arc<RedisQueues>,
    url: String,
    name: String,
    _server: Box<dyn Any + Send + Sync>,
}

pub async fn open_on(url: &str, name: &str) -> Arc<RedisQueues> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(name).unwrap()).await.unwrap();
    let options = QueueOptions { max_attempts: ATTEMPTS, ..QueueOptions::default() };
    Arc::new(RedisQueues::open(connector, options).await.unwrap())
}

async fn shared(url: String, server: impl Any + Send + Sync) -> Shared {
    let name = format!("queue-{}", NAMES.fetch_add(1, Ordering::Relaxed));
    Shared { queues: open_on(&url, &name).await, url, name, _server: Box::new(server) }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn QueueStore> {
        self.queues.clone()
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn QueueStore>>> {
        Box::pin(async { Some(open_on(&self.url, &self.name).await as Arc<dyn QueueStore>) })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

mod standalone {
    use super::*;

    async fn open() -> Shared {
        let redis = Redis::start();
        shared(redis.url(), redis).await
    }

    tidegate_conformance::queue_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> Shared {
        let cluster = common::shared_cluster();
        shared(cluster.url(), cluster).await
    }

    tidegate_conformance::queue_conformance!(open);
}

mod valkey {
    use super::*;

    async fn open() -> Shared {
        let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
        shared(valkey.url(), valkey).await
    }

    tidegate_conformance::queue_conformance!(open);
}
