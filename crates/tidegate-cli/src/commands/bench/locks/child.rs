//! `tidegate bench locks-process`: a process that takes locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate::lock::{Ask, LockError, Locks, RedisLocks};
use tokio::task::JoinSet;

use super::failed;
use crate::commands::bench::process::{Part, now_us, obey};
use crate::commands::bench::redis;
use crate::failure::Result;
use crate::load::record::Record;

const TTL: Duration = Duration::from_secs(30);
/// Longest wait in a line.
const WAIT: Duration = Duration::from_secs(30);

/// Where its locks are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The server.
    pub url: String,
    /// Under which the keys lie.
    pub name: String,
}

/// What it is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// So many callers take a lock of their own and give it back, again and again.
    Loop { callers: usize, for_ms: u64 },
    /// So many wait for one lock, coming evenly over a time; each gives it back at once.
    Wait { lock: String, waiters: u64, over_ms: u64 },
}

/// One that got the lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Granted {
    /// When it asked.
    pub asked_us: u64,
    /// When it had the lock.
    pub granted_us: u64,
    /// When it sent its release.
    pub released_us: u64,
    /// Its fence.
    pub fence: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Taken and given back.
    pub pairs: u64,
    /// What failed.
    pub errors: u64,
    /// How long taking one took: median, 99th of 100, the longest.
    pub acquired_ms: [f64; 3],
    /// Who waited and got it.
    pub grants: Vec<Granted>,
}

/// Obeys.
///
/// # Errors
/// [`crate::failure::Failure`].
pub fn run() -> Result {
    obey::<Taking>()
}

struct Taking(Locks);

impl Part for Taking {
    type Setup = Setup;
    type Order = Order;
    type Report = Report;

    async fn open(setup: Setup) -> Result<Self> {
        let connector = redis::connect(&setup.url, &setup.name).await?;
        Ok(Self(Locks::new(Arc::new(RedisLocks::open(connector)))))
    }

    async fn obey(&mut self, order: Order) -> Result<Report> {
        match order {
            Order::Loop { callers, for_ms } => self.all(callers, Duration::from_millis(for_ms)).await,
            Order::Wait { lock, waiters, over_ms } => self.wait(&lock, waiters, over_ms).await,
        }
    }
}

impl Taking {
    async fn all(&self, callers: usize, time: Duration) -> Result<Report> {
        let (mut all, began) = (JoinSet::new(), Instant::now());
        for caller in 0..callers {
            let (locks, name) = (self.0.clone(), format!("own-{}-{caller}", std::process::id()));
            all.spawn(async move {
                let (mut taken, mut errors) = (Record::new(), 0);
                while began.elapsed() < time {
                    let asked = Instant::now();
                    match locks.acquire(&name, Ask::new(TTL)).await {
                        Ok(guard) => {
                            taken.time(asked.elapsed());
                            errors += u64::from(!matches!(guard.release().await, Ok(true)));
                        }
                        Err(_) => errors += 1,
                    }
                }
                (taken, errors)
            });
        }
        let (mut taken, mut errors) = (Record::new(), 0);
        while let Some(caller) = all.join_next().await {
            let (of_caller, wrong) = caller.map_err(failed)?;
            taken.merge(&of_caller);
            errors += wrong;
        }
        let times = taken.percentiles();
        let acquired_ms = [times.p50, times.p99, times.max];
        Ok(Report { pairs: taken.len(), errors, acquired_ms, grants: Vec::new() })
    }

    async fn wait(&self, lock: &str, waiters: u64, over_ms: u64) -> Result<Report> {
        let (mut all, began) = (JoinSet::new(), tokio::time::Instant::now());
        for n in 0..waiters {
            let (locks, lock) = (self.0.clone(), lock.to_owned());
            let at = began + Duration::from_micros(n * over_ms * 1_000 / waiters.max(1));
            all.spawn(async move {
                tokio::time::sleep_until(at).await;
                let asked_us = now_us();
                let guard = locks.acquire(&lock, Ask::new(TTL).wait(WAIT)).await?;
                let granted_us = now_us();
                let (fence, released_us) = (guard.fence().0, now_us());
                guard.release().await?;
                Ok::<_, LockError>(Granted { asked_us, granted_us, released_us, fence })
            });
        }
        let mut report = Report::default();
        while let Some(waiter) = all.join_next().await {
            match waiter.map_err(failed)? {
                Ok(granted) => report.grants.push(granted),
                Err(_) => report.errors += 1,
            }
        }
        Ok(report)
    }
}
