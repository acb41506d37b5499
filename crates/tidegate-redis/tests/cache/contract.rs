//! The contract of the cache's stores.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, CacheKey, CacheStore};
use tidegate_conformance::cache::Harness;
use tidegate_conformance::servers::{Cluster, Redis};
use tidegate_redis::RedisCache;

use super::{common, shelf};

/// Who does what foreign clients do.
enum Servers {
    One(Redis),
    /// It ends with the last test that holds it.
    Cluster {
        _kept: Arc<Cluster>,
        connection: redis::cluster_async::ClusterConnection,
    },
}

struct Shared {
    store: Arc<RedisCache>,
    url: String,
    name: String,
    servers: Servers,
}

impl Shared {
    async fn raw(&self, command: redis::Cmd) {
        match &self.servers {
            Servers::One(redis) => {
                let client = redis::Client::open(redis.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                command.exec_async(&mut connection).await.unwrap();
            }
            Servers::Cluster { connection, .. } => command.exec_async(&mut connection.clone()).await.unwrap(),
        }
    }

    fn slot(&self, key: &CacheKey) -> Vec<u8> {
        self.store.redis_keys(key).swap_remove((key.schema % 4) as usize)
    }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.store.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>> {
        Box::pin(async { shelf::hearing(&self.url, &self.name).await as Arc<dyn CacheStore> })
    }

    fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut command = redis::cmd("SET");
            command.arg(self.slot(key)).arg(bytes).arg("PX").arg(life.as_millis() as u64);
            self.raw(command).await;
        })
    }

    fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut command = redis::cmd("DEL");
            command.arg(self.slot(key));
            self.raw(command).await;
        })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

mod standalone {
    use super::*;

    async fn open() -> Shared {
        let redis = Redis::start();
        let (url, name) = (redis.url(), shelf::fresh_name());
        let store = shelf::open(&url, &name).await;
        Shared { store, url, name, servers: Servers::One(redis) }
    }

    tidegate_conformance::cache_store_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> Shared {
        let cluster = common::shared_cluster();
        let (url, name) = (cluster.url(), shelf::fresh_name());
        let store = shelf::open(&url, &name).await;
        let nodes = cluster.nodes.iter().map(Redis::url);
        let client = redis::cluster::ClusterClient::new(nodes).unwrap();
        let connection = client.get_async_connection().await.unwrap();
        Shared { store, url, name, servers: Servers::Cluster { _kept: cluster, connection } }
    }

    tidegate_conformance::cache_store_conformance!(open);
}
