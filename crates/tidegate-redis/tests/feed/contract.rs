//! The contract of stores of a feed's copies.

use std::any::Any;
use std::sync::Arc;

use tidegate_backend::{BoxFuture, FeedStore};
use tidegate_conformance::feed::stores::{Harness, NEWS_KEPT};
use tidegate_conformance::servers::{Engine, Redis, Setup};
use tidegate_redis::{RedisFeed, RedisFeedOptions};

use super::{common, shelf};

struct Shared {
    feed: Arc<RedisFeed>,
    url: String,
    name: String,
    /// A server that may lose its data.
    own: Option<Redis>,
    _server: Box<dyn Any + Send + Sync>,
}

fn options() -> RedisFeedOptions {
    RedisFeedOptions { news_kept: NEWS_KEPT }
}

async fn shared(url: String, own: Option<Redis>, server: impl Any + Send + Sync) -> Shared {
    let name = shelf::fresh_name();
    Shared { feed: shelf::open_with(&url, &name, options()).await, url, name, own, _server: Box::new(server) }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn FeedStore> {
        self.feed.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn FeedStore>> {
        Box::pin(async { shelf::open_with(&self.url, &self.name, options()).await as Arc<dyn FeedStore> })
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

    tidegate_conformance::feed_store_conformance!(open);
}

mod cluster {
    use super::*;

    async fn open() -> Shared {
        let cluster = common::shared_cluster();
        shared(cluster.url(), None, cluster).await
    }

    tidegate_conformance::feed_store_conformance!(open);
}

mod valkey {
    use super::*;

    async fn open() -> Shared {
        let valkey = Redis::start_with(Setup::default().engine(Engine::Valkey));
        shared(valkey.url(), Some(valkey), ()).await
    }

    tidegate_conformance::feed_store_conformance!(open);
}
