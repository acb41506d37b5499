//! The contract of stores of a feed's copies.

use std::sync::Arc;

use tidegate_backend::{BoxFuture, FeedStore};
use tidegate_conformance::feed::stores::{Harness, NEWS_KEPT};
use tidegate_redis::{RedisFeed, RedisFeedOptions};

use super::common::places::{Place, on_every_place};
use super::shelf;

struct Shared {
    feed: Arc<RedisFeed>,
    place: Place,
}

fn open_on(place: &Place) -> impl Future<Output = Arc<RedisFeed>> + Send {
    shelf::open_with(&place.url, &place.name, RedisFeedOptions { news_kept: NEWS_KEPT })
}

impl Shared {
    async fn open(place: Place) -> Self {
        Self { feed: open_on(&place).await, place }
    }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn FeedStore> {
        self.feed.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn FeedStore>> {
        Box::pin(async { open_on(&self.place).await as Arc<dyn FeedStore> })
    }

    fn lose(&self) -> BoxFuture<'_, bool> {
        self.place.lose()
    }
}

on_every_place!(super::Shared::open, tidegate_conformance::feed_store_conformance);
