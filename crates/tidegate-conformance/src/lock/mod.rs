//! The cases every store of locks passes.
//!
//! - [`holders`]: grants, fences, ends, renewals.
//! - [`calls`]: several calls with one token.
//! - [`lines`]: waiting, hand-off, the dead.
//! - [`replay`]: seeded random operations, each answer held against `tidegate_core::lock::Lock`.

pub mod calls;
pub mod holders;
pub mod lines;
pub mod replay;

pub use calls::*;
pub use holders::*;
pub use lines::*;
pub use replay::*;

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{BoxFuture, LockStore, Renewal};
use tidegate_core::Millis;
use tidegate_core::lock::{Acquire, Acquired, AskId, Fence, Leave, LockName, LockToken, Process};

/// A fresh, empty store under test, with what its tests need beside the trait.
pub trait Harness: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn LockStore>;

    /// The same locks, as another process would have them.
    fn another(&self) -> BoxFuture<'_, Arc<dyn LockStore>>;

    /// Lets time pass: by a clock of the test's own, or by sleeping.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Makes the store lose everything; false where that cannot happen while the process lives.
    fn lose(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }
}

/// Opens a fresh, empty store.
pub type Open<'a> = &'a (dyn Fn() -> BoxFuture<'static, Box<dyn Harness>> + Sync);

/// A time that no case outlives, milliseconds.
const LONG: i64 = 60_000;
/// A time that [`Subject::outlive`] outlives, and that some calls in a row on a busy machine do not.
const SHORT: i64 = 400;

struct Subject {
    harness: Box<dyn Harness>,
    store: Arc<dyn LockStore>,
}

impl Subject {
    async fn open(open: Open<'_>) -> Self {
        let harness = open().await;
        let store = harness.store();
        Self { harness, store }
    }

    async fn acquire(&self, lock: &str, n: u64) -> Acquired {
        acquire(&*self.store, lock, ask(&*self.store, n, LONG)).await
    }

    async fn granted(&self, lock: &str, n: u64) -> Fence {
        granted(self.acquire(lock, n).await)
    }

    async fn wait(&self, lock: &str, n: u64) -> Acquired {
        wait(&*self.store, lock, n).await
    }

    async fn release(&self, lock: &str, n: u64) -> bool {
        self.store.release(&name(lock), &token(n)).await.expect("the store answers")
    }

    async fn renew(&self, lock: &str, n: u64, ttl_ms: i64) -> Option<(Fence, Millis)> {
        let mut answers = self.store.renew(&[renewal(lock, n, ttl_ms)]).await;
        assert_eq!(answers.len(), 1);
        answers.remove(0).expect("the store answers")
    }

    async fn outlive(&self) {
        self.harness.pass(Duration::from_millis(SHORT.unsigned_abs() + 100)).await;
    }
}

async fn acquire(store: &dyn LockStore, lock: &str, asked: Acquire) -> Acquired {
    store.acquire(&name(lock), &asked).await.expect("the store answers")
}

async fn wait(store: &dyn LockStore, lock: &str, n: u64) -> Acquired {
    acquire(store, lock, Acquire { wait: true, ..ask(store, n, LONG) }).await
}

fn ask(store: &dyn LockStore, n: u64, ttl_ms: i64) -> Acquire {
    Acquire { token: token(n), ask: AskId(n), process: store.process(), ttl_ms, floor: None, wait: false }
}

/// Call `call` of caller `n`, at the process of `store`.
fn repeat(store: &dyn LockStore, n: u64, call: u64, wait: bool) -> Acquire {
    Acquire { ask: AskId(call), wait, ..ask(store, n, LONG) }
}

async fn leave(store: &dyn LockStore, lock: &str, n: u64, call: u64, why: Leave) {
    store.leave(&name(lock), &token(n), AskId(call), why).await.expect("the store answers");
}

fn granted(acquired: Acquired) -> Fence {
    match acquired {
        Acquired::Granted { fence, .. } => fence,
        other => panic!("not granted: {other:?}"),
    }
}

fn renewal(lock: &str, n: u64, ttl_ms: i64) -> Renewal {
    Renewal { name: name(lock), token: token(n), ask: Some(AskId(n)), ttl_ms, fence: None }
}

fn name(lock: &str) -> LockName {
    LockName::parse(lock).expect("a name")
}

fn token(n: u64) -> LockToken {
    LockToken::parse(&format!("token-of-caller-{n}")).expect("a token")
}

/// Caller `n` hears within five seconds that it was handed `lock`.
async fn woken(store: &dyn LockStore, lock: &str, n: u64) {
    let heard = async {
        loop {
            let names = store.woken().await;
            if names.is_empty() || names.contains(&(name(lock), token(n))) {
                // Some may have been missed: the waiter asks.
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), heard).await.unwrap_or_else(|_| panic!("nobody is told of {lock}"));
}

fn is_another(process: Process, other: Process) {
    assert_ne!(process, other, "each process is another one");
}
