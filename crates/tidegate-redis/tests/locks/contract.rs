//! The contract of stores of locks.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, LockStore};
use tidegate_conformance::lock::Harness;
use tidegate_redis::{Connector, RedisLocks, RedisOptions};

use super::common::places::{Place, on_every_place};

struct Shared {
    locks: Arc<RedisLocks>,
    place: Place,
}

pub async fn open_on(url: &str, name: &str) -> Arc<RedisLocks> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(name).unwrap()).await.unwrap();
    Arc::new(RedisLocks::open(connector))
}

impl Shared {
    async fn open(place: Place) -> Self {
        Self { locks: open_on(&place.url, &place.name).await, place }
    }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn LockStore> {
        self.locks.clone()
    }

    fn another(&self) -> BoxFuture<'_, Arc<dyn LockStore>> {
        Box::pin(async { open_on(&self.place.url, &self.place.name).await as Arc<dyn LockStore> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn lose(&self) -> BoxFuture<'_, bool> {
        self.place.lose()
    }
}

on_every_place!(super::Shared::open, tidegate_conformance::lock_conformance);
