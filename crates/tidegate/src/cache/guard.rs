//! The store behind its breaker: after some calls without an answer nobody waits for it; one at a time finds out whether
//! it is back. The breaker lives in the process, not in the store that died.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::{CacheKey, CacheStore, Error};
use tidegate_core::cache::{Breaker, Op, Reply};

use super::ticks::Ticks;

/// The store cannot be asked, or gave no answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Down;

pub(super) struct Guarded {
    pub(super) store: Arc<dyn CacheStore>,
    breaker: Mutex<Breaker>,
    /// Whether the breaker remembers a failure; while it does not, nobody takes its lock.
    failing: AtomicBool,
    ticks: Ticks,
}

impl Guarded {
    pub(super) fn new(store: Arc<dyn CacheStore>, ticks: Ticks) -> Self {
        Self { store, breaker: Mutex::default(), failing: AtomicBool::new(false), ticks }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.ticks.now().unsigned_abs())
    }

    /// A question to the store that may be left out.
    pub(super) async fn ask<T>(&self, question: impl Future<Output = tidegate_backend::Result<T>>) -> Result<T, Down> {
        if !self.allows() || self.store.trouble().is_some() {
            return Err(Down);
        }
        self.learn(question.await).map_err(|_| Down)
    }

    fn allows(&self) -> bool {
        !self.failing.load(Ordering::Acquire) || self.breaker().allows(self.now())
    }

    fn learn<T>(&self, answer: tidegate_backend::Result<T>) -> Result<T, Error> {
        match &answer {
            Ok(_) if self.failing.load(Ordering::Acquire) => {
                let mut breaker = self.breaker();
                if breaker.is_open() {
                    tracing::info!(store = self.store.capabilities().name, "the cache's store answers again");
                }
                breaker.answered();
                self.failing.store(false, Ordering::Release);
            }
            Ok(_) => {}
            Err(error) => {
                let mut breaker = self.breaker();
                self.failing.store(true, Ordering::Release);
                if breaker.failed(self.now()) {
                    tracing::warn!(store = self.store.capabilities().name, %error, "the cache's store gives no answer");
                }
            }
        }
        answer
    }

    pub(super) async fn read(&self, key: &CacheKey) -> Result<Option<Bytes>, Down> {
        if !self.allows() || self.store.trouble().is_some() {
            return Err(Down);
        }
        self.learn(self.store.read(key).await).map_err(|_| Down)
    }

    pub(super) async fn read_many(&self, keys: &[CacheKey]) -> Result<Vec<Option<Bytes>>, Down> {
        if !self.allows() || self.store.trouble().is_some() {
            return Err(Down);
        }
        let answers = self.learn(self.store.read_many(keys).await).map_err(|_| Down)?;
        if answers.len() == keys.len() { Ok(answers) } else { Err(Down) }
    }

    /// One operation of a reader or a load.
    pub(super) async fn apply(&self, key: &CacheKey, op: Op) -> Result<Reply, Down> {
        if !self.allows() || self.store.trouble().is_some() {
            return Err(Down);
        }
        self.write(&[(key.clone(), op)]).await.pop().and_then(Result::ok).ok_or(Down)
    }

    /// The same, many: an answer each.
    pub(super) async fn apply_many(&self, operations: &[(CacheKey, Op)]) -> Vec<Result<Reply, Down>> {
        if !self.allows() || self.store.trouble().is_some() {
            return operations.iter().map(|_| Err(Down)).collect();
        }
        self.write(operations).await.into_iter().map(|answer| answer.map_err(|_| Down)).collect()
    }

    /// Operations whose caller must know: tried even while the breaker is open.
    pub(super) async fn write(&self, operations: &[(CacheKey, Op)]) -> Vec<tidegate_backend::Result<Reply>> {
        let mut answers: Vec<_> = self.store.apply(operations).await.into_iter().map(|a| self.learn(a)).collect();
        answers.truncate(operations.len());
        answers.resize_with(operations.len(), || {
            Err(Error::new(
                tidegate_backend::ErrorKind::Corrupt,
                "the store answered fewer operations than it was given",
            ))
        });
        answers
    }

    pub(super) async fn tags(&self, namespace: &str, tags: &[u64], keep: Duration) -> Result<Vec<u64>, Down> {
        if !self.allows() || self.store.trouble().is_some() {
            return Err(Down);
        }
        let counters = self.learn(self.store.tags(namespace, tags, keep).await).map_err(|_| Down)?;
        if counters.len() == tags.len() { Ok(counters) } else { Err(Down) }
    }

    /// What a call that must be acknowledged gave.
    pub(super) fn acknowledged<T>(&self, answer: tidegate_backend::Result<T>) -> tidegate_backend::Result<T> {
        self.learn(answer)
    }
}
