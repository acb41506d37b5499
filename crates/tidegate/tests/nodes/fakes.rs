//! An index and a link that nodes share, in this process, and that fail on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_backend::{
    BoxFuture, Bus, Claim, DeadlineQueue, Error, ErrorKind, IndexState, Notice, Receipt, Result, Retry,
};
use tidegate_core::queue::Stats;
use tidegate_core::{Millis, OrderNo};
use tidegate_embedded::EmbeddedDeadlines;
use tokio::sync::{Mutex as AsyncMutex, broadcast};

/// An index that two instances share.
pub struct SharedIndex {
    held: Mutex<Arc<EmbeddedDeadlines>>,
    down: AtomicBool,
    pub closed: AtomicUsize,
}

impl SharedIndex {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::new(Arc::new(EmbeddedDeadlines::new())),
            down: AtomicBool::new(false),
            closed: AtomicUsize::new(0),
        })
    }

    /// It does not answer (`true`), or answers again.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// It loses everything.
    pub fn flush_all(&self) {
        *self.held.lock().expect("nobody panics with it") = Arc::new(EmbeddedDeadlines::new());
    }

    fn up(&self) -> Result<Arc<EmbeddedDeadlines>> {
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the test has cut the index off"));
        }
        Ok(Arc::clone(&self.held.lock().expect("nobody panics with it")))
    }
}

impl DeadlineQueue for SharedIndex {
    fn is_shared(&self) -> bool {
        true
    }

    fn state(&self) -> IndexState {
        self.up().map_or_else(|e| IndexState::Unavailable(e.to_string()), |held| held.state())
    }

    fn rebuilt(&self, token: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.up()?.rebuilt(token).await })
    }

    fn schedule<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Ok(held) = self.up() else {
                // What cannot be taken up now makes it lack deadlines.
                self.flush_all();
                return Ok(());
            };
            held.schedule(deadlines).await
        })
    }

    fn cancel<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { if let Ok(held) = self.up() { held.cancel(deadlines).await } else { Ok(()) } })
    }

    fn claim(&self, now: Millis, max: usize, lease_ms: i64) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(async move { self.up()?.claim(now, max, lease_ms).await })
    }

    fn ack<'a>(&'a self, receipts: &'a [(OrderNo, Receipt)]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.up()?.ack(receipts).await })
    }

    fn retry<'a>(&'a self, retries: &'a [Retry]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.up()?.retry(retries).await })
    }

    fn next_at(&self) -> BoxFuture<'_, Result<Option<Millis>>> {
        Box::pin(async move { self.up()?.next_at().await })
    }

    fn earlier(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self.up() {
                Ok(held) => held.earlier().await,
                Err(_) => std::future::pending().await,
            }
        })
    }

    fn len(&self) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move { self.up()?.len().await })
    }

    fn numbers(&self, now: Millis) -> BoxFuture<'_, Result<Stats>> {
        Box::pin(async move { self.up()?.numbers(now).await })
    }

    fn contains<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(async move { self.up()?.contains(deadlines).await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(()))
    }
}

/// One node's end of a link.
pub struct Link {
    node: usize,
    hub: broadcast::Sender<(usize, Notice)>,
    heard: AsyncMutex<broadcast::Receiver<(usize, Notice)>>,
    cut: Arc<AtomicBool>,
    gap: AtomicBool,
}

/// The ends of a link between two nodes, and what cuts it.
pub fn link() -> (Arc<Link>, Arc<Link>, Arc<AtomicBool>) {
    let hub = broadcast::Sender::new(10_000);
    let cut = Arc::new(AtomicBool::new(false));
    let end = |node| {
        let heard = AsyncMutex::new(hub.subscribe());
        Arc::new(Link { node, hub: hub.clone(), heard, cut: Arc::clone(&cut), gap: AtomicBool::new(false) })
    };
    (end(0), end(1), cut)
}

impl Link {
    /// Its node is told that it may have missed something.
    pub fn tell_of_a_gap(&self) {
        self.gap.store(true, Ordering::SeqCst);
        // Wakes whoever listens.
        let _ = self.hub.send((usize::MAX, Notice::default()));
    }
}

impl Bus for Link {
    fn tell(&self, notice: Notice) {
        if !self.cut.load(Ordering::SeqCst) {
            let _ = self.hub.send((self.node, notice));
        }
    }

    fn heard(&self) -> BoxFuture<'_, Vec<Notice>> {
        Box::pin(async move {
            let mut heard = self.heard.lock().await;
            loop {
                let (node, mut notice) = heard.recv().await.expect("the hub lives as long as its ends");
                notice.gap |= self.gap.swap(false, Ordering::SeqCst);
                if node != self.node {
                    return vec![notice];
                }
            }
        })
    }

    fn trouble(&self) -> Option<String> {
        self.cut.load(Ordering::SeqCst).then(|| "the test has cut the link".to_owned())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
