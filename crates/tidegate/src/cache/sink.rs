//! What an outbox says of the feed, and entries that whoever committed delivers himself.
//!
//! The outbox of a ledger holds keys of caches that are old, and versions that subjects of the feed have reached. The relay
//! hands the latter to the feed's [`Sink`], after the posts that the same commits made old.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tidegate_backend::clock::host_now;
use tidegate_backend::feed::{AUTHORS, ROOTS, USERS, floor_of};
use tidegate_backend::outbox::{Deliver, OutboxEntry};
use tidegate_backend::{BoxFuture, CacheNotice};
use tidegate_core::cache::Key;
use tidegate_core::feed::{Change, Subject};

use super::caches::Caches;
use super::handle::Cache;
use super::hub::{Hub, Space as _};
use super::relay::{Relay, Shared};

/// For so long after a commit a look leaves its versions alone, milliseconds.
const YOUNG_MS: u64 = 500;

/// Takes what the outbox says of the feed.
pub(crate) trait Sink: Send + Sync {
    /// This process has committed a version, and the store does not know it yet.
    fn owe(&self, floor: &Change);
    /// One of the versions of a subject that were owed is known to the store.
    fn paid(&self, subject: &Subject);
    /// More is owed than is remembered, until it is not.
    fn overflow(&self, more: bool);
    /// Tells the store these floors; whether it took them.
    fn deliver(&self, floors: Vec<Change>) -> BoxFuture<'_, bool>;
    /// Whether the store waits for the floors of the last minute.
    fn wants_repeat(&self) -> bool;
    /// It was told them.
    fn repeated(&self) -> BoxFuture<'_, ()>;
}

fn is_of_feed(namespace: &str) -> bool {
    [AUTHORS, USERS, ROOTS].contains(&namespace)
}

impl Caches {
    /// Who takes what the outbox says of the feed, from now on; false: somebody does already.
    pub(crate) fn take_feed(&self, sink: Weak<dyn Sink>) -> bool {
        self.hub.sink.set(sink).is_ok()
    }
}

impl Hub {
    fn feed(&self) -> Option<Arc<dyn Sink>> {
        self.sink.get()?.upgrade()
    }

    /// An entry of an own commit is not delivered yet.
    pub(super) fn owe(&self, entry: &OutboxEntry) {
        if !is_of_feed(&entry.namespace) {
            if let Some(space) = self.space(&entry.namespace) {
                space.owe(&entry.key);
            }
        } else if let (Some(floor), Some(sink)) = (floor_of(entry), self.feed()) {
            sink.owe(&floor);
        }
    }

    /// Now it is.
    pub(super) fn paid(&self, namespace: &Arc<str>, key: &bytes::Bytes) {
        if !is_of_feed(namespace) {
            if let Some(space) = self.space(namespace) {
                space.paid(key);
            }
        } else if let (Some(subject), Some(sink)) = (tidegate_backend::feed::subject_of(namespace, key), self.feed()) {
            sink.paid(&subject);
        }
    }

    /// The feed, if its store waits for the floors of the last minute.
    pub(super) fn waiting_feed(&self) -> Option<Arc<dyn Sink>> {
        self.feed().filter(|sink| sink.wants_repeat())
    }

    pub(super) fn overflow(&self) {
        if let Some(sink) = self.feed() {
            sink.overflow(true);
        }
    }

    pub(super) fn no_overflow(&self) {
        if let Some(sink) = self.feed() {
            sink.overflow(false);
        }
    }

    /// Hands entries on: keys to their caches, then, if all of those arrived, versions to the feed. The ids of those that
    /// arrived.
    pub(super) async fn hand_on(&self, entries: &[OutboxEntry]) -> Vec<i64> {
        if !entries.iter().any(|entry| is_of_feed(&entry.namespace)) {
            return self.invalidate(entries).await;
        }
        let (feed, caches): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| is_of_feed(&entry.namespace));
        let mut arrived = self.invalidate(&caches).await;
        // Without a feed nobody here can tell its store; another node will.
        if let Some(sink) = self.feed()
            && arrived.len() == caches.len()
            && sink.deliver(feed.iter().filter_map(floor_of).collect()).await
        {
            arrived.extend(feed.iter().map(|entry| entry.id));
        }
        arrived
    }
}

/// A relay's look for what nobody has handed on. Versions of the feed are left alone while whoever committed them may be
/// about to tell them: a version that is told before the change that leads to it costs the store its copy.
pub(super) struct Look<'a> {
    relay: &'a Shared,
    left: AtomicUsize,
}

impl<'a> Look<'a> {
    pub(super) fn new(relay: &'a Shared) -> Self {
        Self { relay, left: AtomicUsize::new(0) }
    }

    /// How many entries were left alone.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

impl Deliver for Look<'_> {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        let now = host_now();
        let is_young = move |entry: &OutboxEntry| now.since(entry.committed_at).unsigned_abs() < YOUNG_MS;
        let leave = move |entry: &&OutboxEntry| is_of_feed(&entry.namespace) && is_young(entry);
        let left = entries.iter().filter(leave).count();
        self.left.fetch_add(left, Ordering::Relaxed);
        if left == 0 {
            return self.relay.deliver(entries);
        }
        Box::pin(async move {
            let ripe: Vec<OutboxEntry> = entries.iter().filter(|entry| !leave(entry)).cloned().collect();
            self.relay.deliver(&ripe).await
        })
    }
}

/// Entries of an own commit that its caller delivers. What he has not is left to the relay.
pub(crate) struct Charge {
    relay: Relay,
    entries: Vec<OutboxEntry>,
}

impl Relay {
    /// Takes what a commit of this process made old, for its caller to deliver. Reads of this process are exact from now
    /// on.
    pub(crate) fn charge(&self, entries: Vec<OutboxEntry>) -> Charge {
        let opened = {
            let mut state = self.0.state();
            self.0.open(&mut state, entries)
        };
        Charge { relay: self.clone(), entries: opened }
    }
}

impl Charge {
    fn shared(&self) -> &Shared {
        &self.relay.0
    }

    /// Deletes in caches what is old there; whether all of it arrived.
    pub(crate) async fn invalidate(&mut self) -> bool {
        let caches: Vec<OutboxEntry> =
            self.entries.iter().filter(|entry| !is_of_feed(&entry.namespace)).cloned().collect();
        let mut all = true;
        for part in caches.chunks(tidegate_backend::outbox::MAX_OUTBOX_BATCH) {
            let arrived = self.shared().hub.invalidate(part).await;
            all &= arrived.len() == part.len();
            self.delivered(|entry| arrived.contains(&entry.id));
        }
        all
    }

    /// The feed's store was told the versions.
    pub(crate) fn told(&mut self) {
        self.delivered(|entry| is_of_feed(&entry.namespace));
    }

    fn delivered(&mut self, is_it: impl Fn(&OutboxEntry) -> bool) {
        let (done, left) = std::mem::take(&mut self.entries).into_iter().partition(is_it);
        self.entries = left;
        let done: Vec<OutboxEntry> = done;
        if !done.is_empty() {
            self.shared().tell(&done.iter().map(|entry| entry.id).collect::<Vec<_>>());
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let entries = std::mem::take(&mut self.entries);
        self.shared().state().waiting.extend(entries);
        self.shared().arrived.notify_one();
    }
}

impl<K, V> Cache<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Forgets copies in process, as if it had been told that these keys are old.
    pub(crate) fn forget_local<'a>(&self, keys: impl Iterator<Item = &'a K>) {
        for key in keys {
            // A key that cannot be written has no copy.
            if let Ok(key) = super::handle::encoded(key) {
                let namespace = Arc::clone(&self.inner.namespace);
                self.inner.hear(&CacheNotice::Invalidated { namespace, key });
            }
        }
    }

    /// Forgets every copy in process.
    pub(crate) fn forget_all_local(&self) {
        self.inner.hear(&CacheNotice::Cleared { namespace: Arc::clone(&self.inner.namespace) });
    }
}
