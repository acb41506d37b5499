//! What the tests share.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod places;
pub mod shop;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tidegate_backend::{DeadlineQueue, IndexState};
use tidegate_conformance::servers::{Cluster, Engine};
use tidegate_core::{Millis, OrderNo};
use tidegate_redis::{Connector, DeadlineOptions, RedisDeadlines, RedisOptions};

/// An index on the server that `url` names.
pub async fn open(url: &str) -> RedisDeadlines {
    open_with(RedisOptions::parse(url).unwrap()).await
}

pub async fn open_with(options: RedisOptions) -> RedisDeadlines {
    let connector = Connector::start(options).await.unwrap();
    RedisDeadlines::open(connector, DeadlineOptions::default()).await.unwrap()
}

static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
static NAMES: AtomicU32 = AtomicU32::new(0);

/// A Cluster that all who hold it at once in this process share.
pub fn shared_cluster() -> Arc<Cluster> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start(Engine::default(), false));
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// A name that no other test of this process has.
pub fn fresh_name(of: &str) -> String {
    format!("{of}-{}", NAMES.fetch_add(1, Ordering::Relaxed))
}

/// A fresh index on a server that others use.
pub async fn open_named(url: &str) -> RedisDeadlines {
    open_with(RedisOptions::parse(url).unwrap().name(&fresh_name("shop")).unwrap()).await
}

/// An index that is whole.
pub async fn open_whole(url: &str) -> Arc<RedisDeadlines> {
    let queue = Arc::new(open(url).await);
    if let IndexState::Incomplete(token) = queue.state() {
        queue.rebuilt(token).await.unwrap();
    }
    assert_eq!(queue.state(), IndexState::Whole);
    queue
}

/// Waits until `ready`; returns how long it took.
pub async fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

pub fn deadlines(range: std::ops::Range<i64>) -> Vec<(OrderNo, Millis)> {
    range.map(|n| (OrderNo(n), Millis(n))).collect()
}
