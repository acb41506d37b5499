//! The contract of the cache's stores, on the one in memory.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::{BoxFuture, CacheKey, CacheStore, Clock, ManualClock};
use tidegate_conformance::cache::Harness;
use tidegate_core::Millis;
use tidegate_embedded::{EmbeddedCache, EmbeddedCacheOptions};

/// A store and, if time is the test's, its clock.
struct Embedded {
    store: Arc<EmbeddedCache>,
    clock: Option<Arc<ManualClock>>,
}

impl Harness for Embedded {
    fn store(&self) -> Arc<dyn CacheStore> {
        self.store.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>> {
        Box::pin(async { Arc::new(self.store.handle()) as Arc<dyn CacheStore> })
    }

    fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()> {
        self.store.overwrite(key, Bytes::copy_from_slice(bytes), life);
        Box::pin(std::future::ready(()))
    }

    fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()> {
        self.store.delete(key);
        Box::pin(std::future::ready(()))
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.clock {
                Some(clock) => clock.advance_to(clock.now().plus(time.as_millis() as i64)).unwrap(),
                None => tokio::time::sleep(time).await,
            }
        })
    }

    fn exact(&self) -> bool {
        self.clock.is_some()
    }
}

mod time_of_the_test {
    use super::*;

    async fn open() -> Embedded {
        let clock = Arc::new(ManualClock::new(Millis(1_764_448_000_000)));
        let store = EmbeddedCache::with_clock(EmbeddedCacheOptions::default(), clock.clone()).unwrap();
        Embedded { store: Arc::new(store), clock: Some(clock) }
    }

    tidegate_conformance::cache_store_conformance!(open);
}

mod time_of_the_host {
    use super::*;

    async fn open() -> Embedded {
        Embedded { store: Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default()).unwrap()), clock: None }
    }

    tidegate_conformance::cache_store_conformance!(open);
}
