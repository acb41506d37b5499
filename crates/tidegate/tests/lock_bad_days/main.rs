//! Bad days of locks on a real Redis, each named by the case it is (cases of other people's libraries).
//!
//! - `holders`: renewals that go wrong, answers that are lost, servers that go away. `lines`: waiters that die, storms.
#![allow(clippy::unwrap_used, reason = "tests")]

mod holders;
mod lines;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::lock::{Ask, Locks, RedisLocks};
use tidegate_redis::{Connector, RedisOptions};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) async fn open(url: &str) -> Locks {
    let options = RedisOptions::parse(url).unwrap().name("bad").unwrap();
    Locks::new(Arc::new(RedisLocks::open(Connector::start(options).await.unwrap())))
}

pub(crate) fn ask() -> Ask {
    Ask::new(5 * SECOND)
}

/// In the suite, and with `--long`.
pub(crate) fn scaled<T>(few: T, many: T) -> T {
    if std::env::var_os("TIDEGATE_TEST_LONG").is_some() { many } else { few }
}

pub(crate) fn dice(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Until `ready`; how long it took.
pub(crate) async fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(2 * MS).await;
    }
    began.elapsed()
}
