//! The contract of stores of locks.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_backend::{BoxFuture, LockStore};
use tidegate_conformance::lock::Harness;
use tidegate_conformance::servers::{Engine, Redis, Setup};
use tidegate_redis::{Connector, RedisLocks, RedisOptions};

use super::common;

static NAMES: AtomicU32 = AtomicU32::new(0);

struct Shared {
    locks: Arc<RedisLocks>,
    url: String,
    name: String,
    /// A server that may lose its data.
    own: Option<Redis>,
    _server: Box<dyn Any + Send + Sync>,
}

pub async fn open_on(url: &str, name: &str) -> Arc<RedisLocks> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(name).unwrap()).await.unwrap();
    Arc::new(RedisLocks::open(connector))
}

async fn shared(url: String, own: Option<Redis>, server: impl Any + Send + Sync) -> Shared {
    let name = format!("locks-{}", NAMES.fetch_add(1, Ordering::Relaxed));
    Shared { locks: open_on(&url, &name).await, url, name, own, _server: Box::new(server) }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn LockStore> {
        self.locks.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn LockStore>> {
        Box::pin(async { open_on(&self.url, &self.name).await as Arc<dyn LockStore> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn lose(&self) -> BoxFuture<'_, bool> {
        let lost = self.own.as_ref().map(|redis| redis.tell(&["FLUSHALL"]));
        Box::pin(std::future::ready(lost.is_some()))
    }
}

mod standalone {
    use super::*;

    async fn open() -> Shared {
        let redis = Redis::start();
        shared(redis.url(), Some(redis), ()).await
    }

    tidegate_conformance::lock_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> Shared {
        let cluster = common::shared_cluster();
        shared(cluster.url(), None, cluster).await
    }

    tidegate_conformance::lock_conformance!(open);
}

mod valkey {
    use super::*;

    async fn open() -> Shared {
        let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
        shared(valkey.url(), Some(valkey), ()).await
    }

    tidegate_conformance::lock_conformance!(open);
}
