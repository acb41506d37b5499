//! What every request shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tidegate::feed::Feed;
use tidegate::lock::Locks;
use tidegate::queue::Queues;
use tidegate::{Catalog, Operations, Orders, Products, Tidegate};
use tokio::sync::{Semaphore, watch};

use crate::access::Tokens;
use crate::config::{Limits, ServerConfig, ServerError, Surface};
use crate::metrics::requests::RequestMetrics;
use crate::origins::Namespaces;
use crate::redis::Redis;
use crate::request::feed_cursor::Cursors;
use crate::serve::registry::Registry;

/// The server's parts, shared by every connection.
pub(crate) struct App {
    pub(crate) tidegate: Tidegate,
    pub(crate) orders: Orders,
    pub(crate) catalog: Catalog,
    pub(crate) operations: Operations,
    pub(crate) products: Products,
    pub(crate) namespaces: Namespaces,
    pub(crate) tokens: Tokens,
    pub(crate) limits: Limits,
    pub(crate) manual_clock: bool,
    pub(crate) surface: Surface,
    /// Whether it listens on a loopback address.
    pub(crate) loopback: bool,
    pub(crate) started: Instant,
    pub(crate) metrics: RequestMetrics,
    pub(crate) registry: Arc<Registry>,
    /// KiB of large bodies that may still be taken in.
    pub(crate) body_budget: Semaphore,
    /// KiB of large cached answers that may still be sent.
    pub(crate) answer_budget: Arc<Semaphore>,
    /// Event streams that may still be opened.
    pub(crate) event_streams: Arc<Semaphore>,
    /// Claims and requests for locks that may still wait.
    pub(crate) long_polls: Arc<Semaphore>,
    /// General queues, if this instance has a store for them.
    pub(crate) queues: Option<Queues>,
    /// Locks, if this instance has a store for them.
    pub(crate) locks: Option<Locks>,
    /// The feed, if this instance has one.
    pub(crate) feed: Option<Feed>,
    /// The watch over Redis and looks at its keys, if there is a watch.
    pub(crate) redis: Option<Redis>,
    /// Signs the cursors of feeds.
    pub(crate) cursors: Cursors,
    stopping: AtomicBool,
    stopped: watch::Sender<bool>,
    gave_up: watch::Sender<bool>,
}

impl App {
    /// The parts of a server with this configuration.
    pub(crate) fn new(config: ServerConfig, tidegate: Tidegate) -> Result<Self, ServerError> {
        let limits = config.limits;
        let namespaces = match config.surface {
            Surface::Whole => config.namespaces.as_slice(),
            Surface::Probes => &[],
        };
        Ok(Self {
            namespaces: Namespaces::start(&tidegate.caches(), namespaces)?,
            orders: tidegate.orders(),
            catalog: tidegate.catalog(),
            operations: tidegate.operations(),
            products: tidegate.products(),
            queues: tidegate.queues(),
            locks: tidegate.locks(),
            feed: tidegate.feed(),
            redis: config.redis.map(Redis::new),
            cursors: Cursors::new(tidegate.ledger_id().0),
            tidegate,
            tokens: Tokens::new(config.tokens),
            manual_clock: config.manual_clock,
            surface: config.surface,
            loopback: config.listen.ip().is_loopback(),
            started: Instant::now(),
            metrics: RequestMetrics::new(),
            registry: Arc::new(Registry::new()),
            body_budget: Semaphore::new(limits.body_budget_bytes / 1024),
            answer_budget: Arc::new(Semaphore::new(limits.answer_budget_bytes / 1024)),
            event_streams: Arc::new(Semaphore::new(event_streams(&limits))),
            long_polls: Arc::new(Semaphore::new(long_polls(&limits))),
            stopping: AtomicBool::new(false),
            stopped: watch::Sender::new(false),
            gave_up: watch::Sender::new(false),
            limits,
        })
    }

    /// From now on requests are refused and event streams end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stopped.send_replace(true);
    }

    /// Whether requests are refused.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Resolves to true once the server stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.subscribe()
    }

    /// Resolves once the server stops.
    pub(crate) async fn stop_begins(&self) {
        // The sender is a part of this.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// From now on requests that still wait for the library are answered with 503 `stopping`.
    pub(crate) fn give_up(&self) {
        self.gave_up.send_replace(true);
    }

    /// Resolves once what is under way is given up.
    pub(crate) async fn given_up(&self) {
        // The sender is a part of this.
        let _ = self.gave_up.subscribe().wait_for(|gave_up| *gave_up).await;
    }

    /// Event streams that are open.
    pub(crate) fn open_streams(&self) -> usize {
        event_streams(&self.limits) - self.event_streams.available_permits()
    }
}

/// Waiting calls take a third of the connections at most: beside them and the streams there is always room.
fn long_polls(limits: &Limits) -> usize {
    limits.max_long_polls.min(limits.max_connections / 3)
}

/// Streams never take more than half of the connections, or they could shut everybody else out.
fn event_streams(limits: &Limits) -> usize {
    limits.max_event_streams.min(limits.max_connections / 2)
}
