//! The contract of stores of delayed tasks.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, QueueOptions, QueueStore};
use tidegate_conformance::queue::{ATTEMPTS, Harness};
use tidegate_redis::{Connector, RedisOptions, RedisQueues};

use super::common::places::{Place, on_every_place};

struct Shared {
    queues: Arc<RedisQueues>,
    place: Place,
}

pub async fn open_on(url: &str, name: &str) -> Arc<RedisQueues> {
    let connector = Connector::start(RedisOptions::parse(url).unwrap().name(name).unwrap()).await.unwrap();
    let options = QueueOptions { max_attempts: ATTEMPTS, ..QueueOptions::default() };
    Arc::new(RedisQueues::open(connector, options).await.unwrap())
}

impl Shared {
    async fn open(place: Place) -> Self {
        Self { queues: open_on(&place.url, &place.name).await, place }
    }
}

impl Harness for Shared {
    fn store(&self) -> Arc<dyn QueueStore> {
        self.queues.clone()
    }

    fn another(&self) -> BoxFuture<'_, Option<Arc<dyn QueueStore>>> {
        Box::pin(async { Some(open_on(&self.place.url, &self.place.name).await as Arc<dyn QueueStore>) })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

on_every_place!(super::Shared::open, tidegate_conformance::queue_conformance);
