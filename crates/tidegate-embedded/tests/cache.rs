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

    pub async fn open() -> Embedded {
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

/// The contract notices a store that is wrong.
mod mutants {
    use tidegate_conformance::cache::bent::{Bend, Bent};
    use tidegate_conformance::cache::{
        a_foreign_delete_revokes, a_renewed_lease_outlives_its_first_life, random_operations_agree_with_the_cell,
        silence_is_bounded_and_honest, what_is_told_is_heard,
    };

    use super::*;

    struct Mutant {
        inner: Arc<dyn Harness>,
        bend: Bend,
    }

    impl Mutant {
        fn bend(&self, store: Arc<dyn CacheStore>) -> Arc<dyn CacheStore> {
            Arc::new(Bent::new(store, self.inner.clone(), self.bend))
        }
    }

    impl Harness for Mutant {
        fn store(&self) -> Arc<dyn CacheStore> {
            self.bend(self.inner.store())
        }

        fn another(&self) -> BoxFuture<'_, Arc<dyn CacheStore>> {
            Box::pin(async { self.bend(self.inner.another().await) })
        }

        fn write_raw<'a>(&'a self, key: &'a CacheKey, bytes: &'a [u8], life: Duration) -> BoxFuture<'a, ()> {
            self.inner.write_raw(key, bytes, life)
        }

        fn delete_raw<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, ()> {
            self.inner.delete_raw(key)
        }

        fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
            self.inner.pass(time)
        }

        fn exact(&self) -> bool {
            self.inner.exact()
        }
    }

    fn open(bend: Bend) -> BoxFuture<'static, Box<dyn Harness>> {
        Box::pin(async move {
            let inner = Arc::new(time_of_the_test::open().await);
            Box::new(Mutant { inner, bend }) as Box<dyn Harness>
        })
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "seed")]
    async fn a_blind_set_is_seen_by_the_replay() {
        random_operations_agree_with_the_cell(&|| open(Bend::FillsBlindly)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "seed")]
    async fn an_absence_that_overwrites_is_seen_by_the_replay() {
        random_operations_agree_with_the_cell(&|| open(Bend::AbsenceOverwrites)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "left == right")]
    async fn a_blind_set_is_seen_after_a_foreign_delete() {
        a_foreign_delete_revokes(&|| open(Bend::FillsBlindly)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "left == right")]
    async fn renewals_that_are_not_done_are_seen() {
        a_renewed_lease_outlives_its_first_life(&|| open(Bend::RenewsNothing)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "hears nothing")]
    async fn deafness_is_seen() {
        what_is_told_is_heard(&|| open(Bend::Deaf)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "hears nothing")]
    async fn deafness_that_nobody_admits_is_seen() {
        silence_is_bounded_and_honest(&|| open(Bend::DeafUnawares)).await;
    }
}
