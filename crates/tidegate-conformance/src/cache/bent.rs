//! Stores that fail, and stores that are wrong on purpose: what is built on stores must bear the first, and its tests must
//! notice the second.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::Rng;
use tidegate_backend::cache::{CacheCapabilities, CacheKey, CacheNotice, CacheStore};
use tidegate_backend::{BoxFuture, Error, ErrorKind, Result};
use tidegate_core::Millis;
use tidegate_core::cache::{Op, Reply};

use super::Harness;

/// What is wrong with a [`Bent`] store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bend {
    /// Some calls fail, half of them after they were done; the chance of each call.
    Fails(f64),
    /// Renewals are confirmed and not done: a lease ends before its load, unnoticed, as that of a process that was stopped.
    RenewsNothing,
    /// One answer in five is late, by up to 12 ms: what it says may be over by then.
    Slow,
    /// Of every three answers of the bus one is lost, and said to be.
    Gaps,
    /// What the process knows of the store's clock jumps by up to an hour, back and forth, several times a second.
    ClockSteps,
    /// Mutant: a fill whose lease is gone is written nevertheless (a blind SET).
    FillsBlindly,
    /// Mutant: the same, for "there is none" only.
    AbsenceOverwrites,
    /// Nothing is ever heard, and the store knows it: its silence grows.
    Deaf,
    /// Mutant: nothing is ever heard, and the store does not know it.
    DeafUnawares,
}

/// A store behind a [`Bend`].
pub struct Bent {
    inner: Arc<dyn CacheStore>,
    harness: Arc<dyn Harness>,
    bend: Bend,
    began: Instant,
}

impl Bent {
    /// `inner`, which is one of `harness`, bent.
    #[must_use]
    pub fn new(inner: Arc<dyn CacheStore>, harness: Arc<dyn Harness>, bend: Bend) -> Self {
        Self { inner, harness, bend, began: Instant::now() }
    }

    fn draws(&self) -> bool {
        matches!(self.bend, Bend::Fails(chance) if rand::rng().random_bool(chance / 2.0))
    }

    /// The call, which may fail before or after it was done.
    async fn call<T>(&self, call: BoxFuture<'_, Result<T>>) -> Result<T> {
        if self.draws() {
            return Err(fault());
        }
        let answer = call.await;
        self.dawdle().await;
        if self.draws() { Err(fault()) } else { answer }
    }

    async fn dawdle(&self) {
        if self.bend == Bend::Slow && rand::rng().random_range(0..5) == 0 {
            let us = rand::rng().random_range(100..12_000);
            tokio::time::sleep(Duration::from_micros(us)).await;
        }
    }

    async fn apply_one(&self, operation: &(CacheKey, Op)) -> Result<Reply> {
        if self.draws() {
            return Err(fault());
        }
        if self.bend == Bend::RenewsNothing && matches!(operation.1, Op::Renew { .. }) {
            return Ok(Reply::Held);
        }
        let reply = self.inner.apply(std::slice::from_ref(operation)).await.remove(0);
        self.dawdle().await;
        let (key, op) = operation;
        if let (Ok(Reply::Lost), Op::Fill { bytes, ttl_ms, .. }) = (&reply, op) {
            let absence = bytes.first() == Some(&b'A');
            if self.bend == Bend::FillsBlindly || (self.bend == Bend::AbsenceOverwrites && absence) {
                self.harness.write_raw(key, bytes, Duration::from_millis(ttl_ms.unsigned_abs())).await;
                return Ok(Reply::Held);
            }
        }
        if self.draws() { Err(fault()) } else { reply }
    }
}

fn fault() -> Error {
    Error::new(ErrorKind::Unavailable, "the test has cut the store off")
}

impl CacheStore for Bent {
    fn capabilities(&self) -> CacheCapabilities {
        self.inner.capabilities()
    }

    fn now(&self) -> Millis {
        let now = self.inner.now();
        if self.bend != Bend::ClockSteps {
            return now;
        }
        let steps = [0, 3_600_000, -3_600_000, 500, 0, -1_500, 60_000, -60_000];
        now.plus(steps[(self.began.elapsed().as_millis() / 130) as usize % steps.len()])
    }

    fn trouble(&self) -> Option<String> {
        self.inner.trouble()
    }

    fn read<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(self.call(self.inner.read(key)))
    }

    fn read_many<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>>> {
        Box::pin(self.call(self.inner.read_many(keys)))
    }

    fn apply<'a>(&'a self, operations: &'a [(CacheKey, Op)]) -> BoxFuture<'a, Vec<Result<Reply>>> {
        Box::pin(async move {
            let mut replies = Vec::with_capacity(operations.len());
            for operation in operations {
                replies.push(self.apply_one(operation).await);
            }
            replies
        })
    }

    fn tags<'a>(&'a self, namespace: &'a str, tags: &'a [u64], keep: Duration) -> BoxFuture<'a, Result<Vec<u64>>> {
        Box::pin(self.call(self.inner.tags(namespace, tags, keep)))
    }

    fn bump_tag<'a>(&'a self, namespace: &'a str, tag: u64, keep: Duration) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.call(self.inner.bump_tag(namespace, tag, keep)))
    }

    fn clear<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.call(self.inner.clear(namespace)))
    }

    fn tell<'a>(&'a self, notices: &'a [CacheNotice]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.call(self.inner.tell(notices)))
    }

    fn heard(&self) -> BoxFuture<'_, Vec<CacheNotice>> {
        match self.bend {
            Bend::Deaf | Bend::DeafUnawares => Box::pin(std::future::pending()),
            Bend::Gaps => Box::pin(async {
                let heard = self.inner.heard().await;
                if rand::rng().random_range(0..3) == 0 { vec![CacheNotice::Gap] } else { heard }
            }),
            _ => self.inner.heard(),
        }
    }

    fn silence(&self) -> Duration {
        match self.bend {
            Bend::Deaf => self.began.elapsed(),
            Bend::DeafUnawares => Duration::ZERO,
            _ => self.inner.silence(),
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}
