//! Deadline index and link between nodes on one connection to Redis or Valkey; the caches' store on one of its own.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, Bus, DeadlineQueue, LedgerId, Notice, Result};
pub(crate) use tidegate_redis::Connector;
use tidegate_redis::{DeadlineOptions, RedisBus, RedisDeadlines, RedisOptions};

/// Where, under which name, how long an answer may take, and whom to trust.
pub(crate) struct Shared<'a> {
    pub(crate) url: &'a str,
    pub(crate) name: &'a str,
    pub(crate) response_timeout: Duration,
    pub(crate) authority: Option<&'a [u8]>,
}

fn options(shared: &Shared<'_>) -> Result<RedisOptions> {
    let mut options = RedisOptions::parse(shared.url)?.name(shared.name)?.response_timeout(shared.response_timeout);
    if let Some(pem) = shared.authority {
        options = options.authority(pem);
    }
    Ok(options)
}

/// The connection to a Redis that may be used. One that does not answer is no error: it is looked for until it does.
pub(crate) async fn connect(shared: &Shared<'_>) -> Result<Connector> {
    Connector::start(options(shared)?).await
}

/// Where cached entries lie, in the same Redis.
#[cfg(feature = "cache")]
pub(crate) async fn cache(shared: &Shared<'_>) -> Result<Arc<dyn tidegate_backend::CacheStore>> {
    let store =
        tidegate_redis::RedisCache::open(options(shared)?, tidegate_redis::RedisCacheOptions::default()).await?;
    Ok(Arc::new(store))
}

/// Opens index and link of `ledger`. What is refused closes the connection.
pub(crate) async fn open(
    connector: Connector,
    partitions: usize,
    ledger: LedgerId,
) -> Result<(Arc<dyn DeadlineQueue>, Arc<dyn Bus>)> {
    let index = DeadlineOptions { partitions, ledger: Some(ledger) };
    let deadlines = match RedisDeadlines::open(connector.clone(), index).await {
        Ok(deadlines) => deadlines,
        Err(e) => {
            connector.close().await;
            return Err(e);
        }
    };
    let bus = Link { bus: RedisBus::open(connector.clone()), connector };
    Ok((Arc::new(deadlines), Arc::new(bus)))
}

/// The link; the last to close, so it closes the connection.
struct Link {
    bus: RedisBus,
    connector: Connector,
}

impl Bus for Link {
    fn tell(&self, notice: Notice) {
        self.bus.tell(notice);
    }

    fn heard(&self) -> BoxFuture<'_, Vec<Notice>> {
        self.bus.heard()
    }

    fn trouble(&self) -> Option<String> {
        self.bus.trouble()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.bus.close().await;
            self.connector.close().await;
        })
    }
}
