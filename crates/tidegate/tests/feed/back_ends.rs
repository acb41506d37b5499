//! Random operations against the community, on back ends that are no doubles: the rows in SQLite, the copies in memory or on
//! Redis.

use std::any::Any;
use std::sync::Arc;

use rand::Rng as _;
use tidegate::cache::{Caches, EmbeddedCache, EmbeddedCacheOptions};
use tidegate::feed::*;
use tidegate_backend::Ledger as _;
use tidegate_embedded::{MemoryFeed, MemoryFeedOptions, SqliteLedger, Synchronous};

use crate::common::*;
use crate::random::{Run, steps};

struct Opened {
    feeds: Vec<Feed>,
    ledger: Arc<SqliteLedger>,
    _kept: Vec<Box<dyn Any>>,
}

async fn open(stores: Vec<Arc<dyn FeedStore>>) -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let mut options = tidegate_embedded::Options::new(folder.path().join("ledger.db"));
    options.manual_clock = true;
    options.synchronous = Synchronous::Normal;
    let ledger = SqliteLedger::open(options).await.unwrap();
    let cache = EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap();
    let mut kept: Vec<Box<dyn Any>> = vec![Box::new(folder)];
    let mut feeds = Vec::new();
    for store in stores {
        let caches = Caches::builder(Arc::new(cache.handle())).start().unwrap();
        let relay = caches.relay(Arc::new(OutboxOf(Arc::clone(&ledger))));
        let parts = FeedParts { ledger: Arc::clone(&ledger) as _, store: Some(store) };
        feeds.push(Feed::start(&caches, Some(relay), parts, exact()).unwrap());
        kept.push(Box::new(caches));
    }
    Opened { feeds, ledger, _kept: kept }
}

/// The outbox of a ledger.
struct OutboxOf(Arc<SqliteLedger>);

mod outbox {
    use std::time::Duration;

    use tidegate_backend::outbox::{Deliver, OutboxState, Pending, Relayed, ReplayPoint, Replayed};
    use tidegate_backend::{BoxFuture, Ledger as _, Outbox, Result};

    use super::OutboxOf;

    impl Outbox for OutboxOf {
        fn relay<'a>(&'a self, max: usize, to: &'a dyn Deliver) -> BoxFuture<'a, Result<Relayed>> {
            self.0.outbox().relay(max, to)
        }
        fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<()>> {
            self.0.outbox().mark_delivered(ids)
        }
        fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<Vec<OutboxState>>> {
            self.0.outbox().states(ids)
        }
        fn replay(&self, within: Duration, after: Option<ReplayPoint>, max: usize) -> BoxFuture<'_, Result<Replayed>> {
            self.0.outbox().replay(within, after, max)
        }
        fn prune(&self, keep: Duration) -> BoxFuture<'_, Result<bool>> {
            self.0.outbox().prune(keep)
        }
        fn pending(&self) -> BoxFuture<'_, Result<Pending>> {
            self.0.outbox().pending()
        }
    }
}

async fn run(seed: u64, stores: Vec<Arc<dyn FeedStore>>, steps: usize, mut lose: impl FnMut(usize)) {
    let opened = open(stores).await;
    let mut run = Run::new(seed, opened.feeds.clone(), tidegate_backend::FeedLedger::clock(&*opened.ledger));
    for step in 0..steps {
        run.change().await;
        lose(step);
        let node = run.chance.random_range(0..opened.feeds.len());
        run.pages(node).await;
    }
    for feed in &opened.feeds {
        let stats = feed.stats();
        assert!(stats.direct == 0 && stats.kept > 0 && stats.left == 0, "{stats:?}");
    }
    opened.ledger.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_on_sqlite_and_memory_are_the_communitys() {
    let store = MemoryFeed::new(&MemoryFeedOptions::default()).unwrap();
    let stores: Vec<Arc<dyn FeedStore>> = vec![Arc::new(store.another()), Arc::new(store.another())];
    run(6, stores, steps(600, 200_000), |step| {
        if step % 100 == 99 {
            store.forget();
        }
    })
    .await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_on_sqlite_and_redis_are_the_communitys() {
    use tidegate_conformance::servers::Redis;
    use tidegate_redis::{Connector, RedisFeed, RedisFeedOptions, RedisOptions};
    let redis = Redis::start();
    let mut stores: Vec<Arc<dyn FeedStore>> = Vec::new();
    for _ in 0..2 {
        let connector = Connector::start(RedisOptions::parse(&redis.url()).unwrap()).await.unwrap();
        stores.push(Arc::new(RedisFeed::open(connector, RedisFeedOptions::default()).unwrap()));
    }
    run(7, stores, steps(600, 100_000), |step| {
        if step % 150 == 149 {
            redis.tell(&["FLUSHALL"]);
        }
    })
    .await;
}
