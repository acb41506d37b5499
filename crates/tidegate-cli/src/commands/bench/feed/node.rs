//! A process' feed, as the library makes it, with its store and its ledger in sight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::BoxFuture;
use tidegate::bare_feed::{
    FeedCapabilities, Found, MemoryFeed, MemoryFeedOptions, Reads, RedisFeed, RedisFeedOptions, Result as Answer,
};
use tidegate::blocks::{Connector, RedisOptions};
use tidegate::cache::{CacheStore, Caches, EmbeddedCache, EmbeddedCacheOptions, RedisCache, RedisCacheOptions};
use tidegate::core::Millis;
use tidegate::core::feed::{Change, Fill, Subject};
use tidegate::feed::{Ask, Feed, FeedOptions, FeedParts, FeedStore, Order, Page, PageCost, PostId, UserId};

use super::truth::{Counted, Truth};
use super::{PAGE, broken};
use crate::commands::bench::redis;
use crate::config::value::without_password;
use crate::failure::{Failure, Result};

/// How a feed is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As it is by default.
    Default,
    /// No first page is kept in process.
    NoPages,
    /// Nor is any post.
    NoPosts,
}

impl How {
    fn options(self) -> FeedOptions {
        let mut options = FeedOptions::default();
        if self != Self::Default {
            options.page_cache_bytes = 0;
        }
        if self == Self::NoPosts {
            options.post_cache_bytes = Some(0);
        }
        options
    }
}

/// A feed.
pub struct Node {
    pub feed: Feed,
    pub ledger: Arc<Counted>,
    pub store: Arc<Seen>,
    caches: Caches,
    connector: Option<Connector>,
}

impl Node {
    /// On Redis.
    ///
    /// # Errors
    /// [`Failure::Unreachable`], [`Failure::Usage`]: as for any Redis.
    pub async fn on_redis(url: &str, name: &str, truth: &Truth, how: How) -> Result<Self> {
        let connector = redis::connect(url, name).await?;
        let store = RedisFeed::open(connector.clone(), RedisFeedOptions::default()).map_err(broken)?;
        let options = RedisOptions::parse(url).and_then(|options| options.name(name));
        let options = options.map_err(|e| Failure::Usage(format!("--redis {}: {e}", without_password(url))))?;
        let cache = RedisCache::open(options, RedisCacheOptions::default()).await.map_err(broken)?;
        Self::start(Arc::new(cache), Arc::new(store), Some(connector), truth, how)
    }

    /// In this process alone.
    ///
    /// # Errors
    /// [`Failure::Work`].
    pub async fn embedded(truth: &Truth, how: How) -> Result<Self> {
        let cache = EmbeddedCache::open(EmbeddedCacheOptions::default()).map_err(broken)?;
        let store = MemoryFeed::new(&MemoryFeedOptions::default()).map_err(broken)?;
        Self::start(Arc::new(cache), Arc::new(store), None, truth, how)
    }

    fn start(
        cache: Arc<dyn CacheStore>,
        store: Arc<dyn FeedStore>,
        connector: Option<Connector>,
        truth: &Truth,
        how: How,
    ) -> Result<Self> {
        let caches = Caches::builder(cache).start().map_err(broken)?;
        let relay = caches.relay(truth.outbox());
        let ledger = Counted::new(truth.ledger());
        let store = Arc::new(Seen { store, calls: AtomicU64::new(0), applied_us: AtomicU64::new(0) });
        let parts = FeedParts { ledger: Arc::clone(&ledger) as _, store: Some(Arc::clone(&store) as _) };
        let feed = Feed::start(&caches, Some(relay), parts, how.options()).map_err(broken)?;
        Ok(Self { feed, ledger, store, caches, connector })
    }

    /// Ends it.
    pub async fn close(self) {
        self.store.close().await;
        self.caches.close().await;
        if let Some(connector) = self.connector {
            connector.close().await;
        }
    }
}

/// The first page.
pub fn ask(viewer: &UserId) -> Ask {
    Ask { viewer: viewer.clone(), order: Order::Newest, since: None, until: None, limit: PAGE, after: None }
}

/// The names of its posts.
pub fn ids(page: &Page) -> Vec<PostId> {
    page.items.iter().map(|item| item.root.id.clone()).collect()
}

/// A page and how long it took.
///
/// # Errors
/// [`Failure::Work`].
pub async fn timed(feed: &Feed, ask: &Ask) -> Result<(Arc<Page>, PageCost, Duration)> {
    let began = Instant::now();
    let (page, cost) = feed.page_and_cost(ask).await.map_err(broken)?;
    Ok((page, cost, began.elapsed()))
}

/// A store whose round trips are counted.
pub struct Seen {
    store: Arc<dyn FeedStore>,
    calls: AtomicU64,
    applied_us: AtomicU64,
}

impl Seen {
    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Microseconds that changes took so far.
    pub fn applied_us(&self) -> u64 {
        self.applied_us.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl FeedStore for Seen {
    fn capabilities(&self) -> FeedCapabilities {
        self.store.capabilities()
    }

    fn apply<'a>(&'a self, changes: &'a [Change], now: Millis) -> BoxFuture<'a, Answer<()>> {
        self.count();
        Box::pin(async move {
            let began = Instant::now();
            let applied = self.store.apply(changes, now).await;
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.applied_us.fetch_add(took, Ordering::Relaxed);
            applied
        })
    }

    fn read(&self, reads: Reads) -> BoxFuture<'_, Answer<Found>> {
        self.count();
        self.store.read(reads)
    }

    fn fill(&self, fills: Vec<Fill>) -> BoxFuture<'_, Answer<Vec<bool>>> {
        self.count();
        self.store.fill(fills)
    }

    fn lease<'a>(&'a self, subjects: &'a [Subject]) -> BoxFuture<'a, Answer<Vec<bool>>> {
        self.count();
        self.store.lease(subjects)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
