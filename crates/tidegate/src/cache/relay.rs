//! The way from a ledger's outbox to the caches: what a commit made old is deleted in the store, then in process, then told
//! to the others, then marked delivered.
//!
//! A node hands on at once what its own commits made old. What nobody has handed on, because a process died between its
//! commit and the delete or the store was away, every node's relay looks for once a second; they share the work. When
//! notices were missed, as after a failover, what was delivered within the last minute is delivered once more, since the
//! store may have lost it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use tidegate_backend::outbox::{
    DELIVERED_KEPT, Deliver, MAX_OUTBOX_BATCH, Outbox, OutboxEntry, OutboxState, ReplayPoint,
};
use tidegate_backend::{BoxFuture, CacheKey, CacheNotice, Ledger};
use tidegate_core::Map;
use tidegate_core::cache::Op;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::Instrument;
use tracing::field::Empty;

use super::caches::Caches;
use super::hub::Hub;
use super::sink::Look;
use super::ticket::{Ticket, Unacknowledged};

/// Between two looks for what nobody has handed on.
const PERIOD: Duration = Duration::from_secs(1);
/// Looks between two clearings of what was delivered.
const LOOKS_A_PRUNE: u32 = 10;
/// Most entries of own commits that wait; more are left to the next look.
const MAX_WAITING: usize = 10_000;
/// Most batches of one look.
const MAX_BATCHES: usize = 100;
/// Most pages of one replay.
const MAX_PAGES: usize = 1_000;
/// How long floors of relayed invalidations are kept, milliseconds: longer than a replica lags.
const KEEP_FLOOR_MS: i64 = 60_000;
/// Between two questions for a ticket, doubling to [`LONGEST_TICKET_PAUSE`].
const TICKET_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_TICKET_PAUSE: Duration = Duration::from_millis(160);
/// A ticket that its database does not know for so long was not committed.
const ABSENT_FOR: Duration = Duration::from_secs(1);

/// Hands what commits make old on to caches, until the caches are closed. Cheap to clone.
#[derive(Clone)]
pub struct Relay(pub(super) Arc<Shared>);

/// Whose outbox it is.
enum Source {
    Ledger(Arc<dyn Ledger>),
    Own(Arc<dyn Outbox>),
}

pub(super) struct Shared {
    source: Source,
    pub(super) hub: Arc<Hub>,
    state: Mutex<State>,
    pub(super) arrived: Notify,
    /// Moves whenever something was delivered.
    delivered: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<OutboxEntry>,
    /// Own entries that are not known to be delivered.
    pub(super) open: Map<i64, (Arc<str>, Bytes)>,
    /// What callers have delivered themselves, to be marked; at most as many as may wait.
    pub(super) told: Vec<i64>,
    /// Some did not fit: nothing is settled until a look has found no more.
    overflowed: bool,
    /// Somebody waits for a ticket: it may be of a transaction that no commit of ours tells about.
    ticket: bool,
    /// The tickets that callers wait for.
    tickets: Map<i64, Awaited>,
}

/// A ticket that callers wait for.
#[derive(Default)]
struct Awaited {
    callers: usize,
    /// This relay has delivered it.
    delivered: bool,
}

impl Caches {
    /// Begins to deliver what transactions with [`super::Cache::invalidate_in`] have committed to `outbox`: at once where
    /// somebody waits for it, within a second else. Every process that uses these caches should run one, so that each
    /// delivers what one that died has left: they share the work. All that relay one outbox must share one store. It
    /// ends with the caches.
    ///
    /// An outbox of the caller's own database is opened with `SqlOutbox` or `SqliteOutbox`; that of a
    /// ledger has its relay already (`Tidegate::relay`).
    #[must_use]
    pub fn relay(&self, outbox: Arc<dyn Outbox>) -> Relay {
        self.relay_of(Source::Own(outbox))
    }

    /// Begins to hand on what commits of `ledger` make old.
    pub(crate) fn relay_ledger(&self, ledger: Arc<dyn Ledger>) -> Relay {
        self.relay_of(Source::Ledger(ledger))
    }

    fn relay_of(&self, source: Source) -> Relay {
        let relay = Relay(Arc::new(Shared {
            source,
            hub: Arc::clone(&self.hub),
            state: Mutex::default(),
            arrived: Notify::new(),
            delivered: watch::Sender::new(0),
        }));
        let shared = Arc::clone(&relay.0);
        self.hub.spawn(async move { shared.run().await });
        relay
    }
}

impl Relay {
    /// Takes what a commit of this process made old; it is delivered at once.
    pub(crate) fn hand(&self, entries: Vec<OutboxEntry>) {
        if entries.is_empty() {
            return;
        }
        let mut state = self.0.state();
        for entry in self.0.open(&mut state, entries) {
            state.waiting.push_back(entry);
        }
        drop(state);
        self.0.arrived.notify_one();
    }

    /// Waits until nothing that this process committed about `key` (encoded) is left to be delivered; false: not within
    /// `patience`. Then reads of this process give nothing older, and after a second no other's.
    pub async fn settled(&self, namespace: &str, key: &[u8], patience: Duration) -> bool {
        let mut delivered = self.0.delivered.subscribe();
        let settled = async {
            // The sender lives as long as `self`.
            let _ = delivered.wait_for(|_| self.0.is_settled(namespace, key)).await;
        };
        tokio::time::timeout(patience, settled).await.is_ok()
    }

    /// Waits until the invalidation that a transaction of the caller's own wrote is acknowledged: the store has deleted the
    /// entry, and others were told. Then no strong read of any process gives what was loaded before, no read of this one,
    /// and after a second none at all. Call it after the commit.
    ///
    /// # Errors
    /// [`Unacknowledged`]: not within `patience`; or, after a second, that it was not committed.
    pub async fn acknowledged(&self, ticket: &Ticket, patience: Duration) -> Result<(), Unacknowledged> {
        let awaited = Awaiting::new(&self.0, ticket.id());
        let mut stop = self.0.hub.stop.subscribe();
        tokio::select! {
            biased;
            answer = awaited.settled(patience) => {
                // Another process may have delivered it, and its notice may still be on its way.
                let (namespace, key) = (Arc::clone(&ticket.namespace), ticket.key.clone());
                answer.map(|()| self.0.hub.hear(&[CacheNotice::Invalidated { namespace, key }]))
            }
            _ = stop.wait_for(|stopped| *stopped) => Err(Unacknowledged::Stopping),
        }
    }
}

/// A caller that waits for a ticket.
struct Awaiting<'a> {
    shared: &'a Shared,
    id: i64,
}

impl<'a> Awaiting<'a> {
    fn new(shared: &'a Shared, id: i64) -> Self {
        shared.state().tickets.entry(id).or_default().callers += 1;
        Self { shared, id }
    }

    fn is_delivered(&self) -> bool {
        self.shared.state().tickets.get(&self.id).is_some_and(|awaited| awaited.delivered)
    }

    async fn settled(&self, patience: Duration) -> Result<(), Unacknowledged> {
        let began = Instant::now();
        let give_up = began + patience;
        let mut delivered = self.shared.delivered.subscribe();
        // As long as the database says nothing, a transaction whose commit was answered counts as committed.
        let (mut seen, mut known_at, mut pause) = (OutboxState::Waiting, began, TICKET_PAUSE);
        loop {
            let asked = tokio::time::timeout_at(give_up, self.shared.outbox().states(&[self.id])).await;
            if let Ok(Ok(states)) = asked {
                seen = states.first().copied().unwrap_or(OutboxState::Absent);
            }
            match seen {
                OutboxState::Delivered => return Ok(()),
                OutboxState::Waiting => {
                    known_at = Instant::now();
                    self.shared.state().ticket = true;
                    self.shared.arrived.notify_one();
                }
                OutboxState::Absent if known_at.elapsed() >= ABSENT_FOR => return Err(Unacknowledged::NotCommitted),
                OutboxState::Absent => {}
            }
            let next = give_up.min(Instant::now() + pause);
            pause = (pause * 2).min(LONGEST_TICKET_PAUSE);
            // The sender lives as long as the relay.
            let _ = tokio::time::timeout_at(next, delivered.wait_for(|_| self.is_delivered())).await;
            if self.is_delivered() {
                return Ok(());
            }
            if Instant::now() >= give_up {
                return Err(match seen {
                    OutboxState::Absent => Unacknowledged::NotCommitted,
                    _ => Unacknowledged::NotDelivered,
                });
            }
        }
    }
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(awaited) = state.tickets.get_mut(&self.id) {
            awaited.callers -= 1;
            if awaited.callers == 0 {
                state.tickets.remove(&self.id);
            }
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("open", &self.0.state().open.len()).finish_non_exhaustive()
    }
}

impl Shared {
    fn outbox(&self) -> &dyn Outbox {
        match &self.source {
            Source::Ledger(ledger) => ledger.outbox(),
            Source::Own(outbox) => &**outbox,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the entries of an own commit; those that fit.
    pub(super) fn open(&self, state: &mut State, entries: Vec<OutboxEntry>) -> Vec<OutboxEntry> {
        let mut opened = Vec::with_capacity(entries.len());
        for entry in entries {
            if state.open.len() >= MAX_WAITING {
                state.overflowed = true;
                self.hub.overflow();
                break;
            }
            // Before the commit is answered: reads of this process are exact from then on, whether the store answers or not.
            self.hub.owe(&entry);
            state.open.insert(entry.id, (Arc::clone(&entry.namespace), entry.key.clone()));
            opened.push(entry);
        }
        opened
    }

    pub(super) fn pay(&self, keys: &[(Arc<str>, Bytes)]) {
        keys.iter().for_each(|(namespace, key)| self.hub.paid(namespace, key));
    }

    /// A caller has delivered these himself: they are marked.
    pub(super) fn tell(&self, ids: &[i64]) {
        let mut state = self.state();
        let paid: Vec<_> = ids.iter().filter_map(|id| state.open.remove(id)).collect();
        // What does not fit is delivered once more, which does no harm.
        let room = MAX_WAITING.saturating_sub(state.told.len());
        state.told.extend(ids.iter().take(room));
        drop(state);
        self.pay(&paid);
        self.delivered.send_modify(|count| *count += 1);
        self.arrived.notify_one();
    }

    fn is_settled(&self, namespace: &str, key: &[u8]) -> bool {
        let state = self.state();
        !state.overflowed && !state.open.values().any(|(space, open)| &**space == namespace && open[..] == *key)
    }

    async fn run(&self) {
        let mut looks = 0_u32;
        let mut next = Instant::now();
        let mut gaps = self.hub.gaps.subscribe();
        loop {
            let missed = tokio::select! {
                () = self.arrived.notified() => false,
                () = tokio::time::sleep_until(next) => false,
                Ok(()) = gaps.changed() => true,
            };
            self.deliver_own().await;
            self.mark_told().await;
            if missed {
                self.replay().await;
            }
            if let Some(feed) = self.hub.waiting_feed()
                && self.replay().await
            {
                feed.repeated().await;
            }
            let overdue = Instant::now() >= next;
            if std::mem::take(&mut self.state().ticket) || overdue {
                self.look().await;
            }
            if overdue {
                next = Instant::now() + PERIOD;
                looks = looks.wrapping_add(1);
                if looks % LOOKS_A_PRUNE == 1 {
                    self.prune().await;
                }
            }
        }
    }

    async fn deliver_own(&self) {
        loop {
            let batch: Vec<OutboxEntry> = {
                let mut state = self.state();
                let count = state.waiting.len().min(MAX_OUTBOX_BATCH);
                state.waiting.drain(..count).collect()
            };
            if batch.is_empty() {
                return;
            }
            let arrived = self.deliver(&batch).await;
            if let Err(error) = self.outbox().mark_delivered(&arrived).await {
                // They come again, which does no harm.
                tracing::debug!(%error, "delivered invalidations could not be marked");
            }
        }
    }

    /// Marks what callers have delivered themselves, many at a time.
    async fn mark_told(&self) {
        loop {
            let batch: Vec<i64> = {
                let told = &mut self.state().told;
                let count = told.len().min(MAX_OUTBOX_BATCH);
                told.drain(..count).collect()
            };
            if batch.is_empty() {
                return;
            }
            if let Err(error) = self.outbox().mark_delivered(&batch).await {
                tracing::debug!(%error, "what was delivered could not be marked");
                return;
            }
        }
    }

    /// Hands on what nobody has.
    async fn look(&self) {
        let before: Vec<i64> = self.state().open.keys().copied().collect();
        for _ in 0..MAX_BATCHES {
            let look = Look::new(self);
            match self.outbox().relay(MAX_OUTBOX_BATCH, &look).await {
                Ok(relayed)
                    if relayed.delivered + look.left() < relayed.taken || look.left() > MAX_OUTBOX_BATCH / 2 =>
                {
                    return;
                }
                Ok(relayed) if relayed.taken < MAX_OUTBOX_BATCH => return self.close(&before).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "the outbox of invalidations could not be relayed");
                    return;
                }
            }
        }
    }

    /// Nothing is left for this relay: what of `open` no other has in its hands was delivered.
    async fn close(&self, open: &[i64]) {
        let mut done = Vec::new();
        for part in open.chunks(MAX_OUTBOX_BATCH) {
            let Ok(states) = self.outbox().states(part).await else { return };
            done.extend(part.iter().zip(states).filter(|(_, state)| *state != OutboxState::Waiting).map(|(id, _)| *id));
        }
        let mut state = self.state();
        let keys: Vec<_> = done.iter().filter_map(|id| state.open.remove(id)).collect();
        if std::mem::take(&mut state.overflowed) {
            self.hub.no_overflow();
        }
        drop(state);
        self.pay(&keys);
        // Another node has deleted them, and its notice may still be on its way.
        let heard = keys.into_iter().map(|(namespace, key)| CacheNotice::Invalidated { namespace, key });
        self.hub.hear(&heard.collect::<Vec<_>>());
        self.delivered.send_modify(|count| *count += 1);
    }

    async fn prune(&self) {
        for _ in 0..MAX_BATCHES {
            match self.outbox().prune(DELIVERED_KEPT).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, "delivered invalidations could not be cleared");
                    return;
                }
            }
        }
    }

    /// Hands on once more what was within the last minute; whether all of it arrived.
    async fn replay(&self) -> bool {
        let mut all = true;
        let mut after: Option<ReplayPoint> = None;
        for _ in 0..MAX_PAGES {
            let page = match self.outbox().replay(DELIVERED_KEPT, after, MAX_OUTBOX_BATCH).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(%error, "invalidations that a failover may have lost could not be repeated");
                    return false;
                }
            };
            all &= self.deliver(&page.entries).await.len() == page.entries.len();
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
        false
    }
}

impl Deliver for Shared {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        Box::pin(async move {
            let span = tracing::debug_span!("cache.relay", entries = entries.len(), delivered = Empty);
            let arrived = self.hub.hand_on(entries).instrument(span.clone()).await;
            span.record("delivered", arrived.len());
            let mut paid = Vec::new();
            {
                let mut state = self.state();
                for id in &arrived {
                    paid.extend(state.open.remove(id));
                    if let Some(awaited) = state.tickets.get_mut(id) {
                        awaited.delivered = true;
                    }
                }
            }
            self.pay(&paid);
            metrics::counter!("tidegate_cache_invalidations_relayed_total").increment(arrived.len() as u64);
            self.delivered.send_modify(|count| *count += 1);
            arrived
        })
    }
}

impl Hub {
    /// What a commit has written exists: its ids enter the membership filters of their caches. The namespaces where that
    /// failed.
    async fn add_members(&self, entries: &[OutboxEntry]) -> Vec<Arc<str>> {
        let mut by_namespace: Map<Arc<str>, Vec<Bytes>> = Map::default();
        for entry in entries {
            by_namespace.entry(Arc::clone(&entry.namespace)).or_default().push(entry.key.clone());
        }
        let mut unadded = Vec::new();
        for (namespace, ids) in by_namespace {
            if let Some(register) = self.space(&namespace).and_then(|space| space.register())
                && let Err(error) = register.add(&ids).await
            {
                tracing::debug!(%namespace, %error, "ids could not be added to a membership filter");
                unadded.push(namespace);
            }
        }
        unadded
    }

    /// Deletes what `entries` name in the store, then in process, then tells the others; the ids of those that arrived.
    pub(super) async fn invalidate(&self, entries: &[OutboxEntry]) -> Vec<i64> {
        if entries.is_empty() {
            return Vec::new();
        }
        let operations: Vec<(CacheKey, Op)> = entries
            .iter()
            .map(|entry| {
                let (namespace, key) = (Arc::clone(&entry.namespace), entry.key.clone());
                let op = Op::Invalidate { floor: entry.floor, keep_floor_ms: KEEP_FLOOR_MS };
                (CacheKey { namespace, schema: 0, key }, op)
            })
            .collect();
        let (answers, unadded) = join(self.store.write(&operations), self.add_members(entries)).await;
        let mut arrived = Vec::with_capacity(entries.len());
        let mut notices = Vec::with_capacity(entries.len());
        for (entry, answer) in entries.iter().zip(answers) {
            if answer.is_ok() {
                if !unadded.contains(&entry.namespace) {
                    arrived.push(entry.id);
                }
                let (namespace, key) = (Arc::clone(&entry.namespace), entry.key.clone());
                notices.push(CacheNotice::Invalidated { namespace, key });
            }
        }
        self.hear(&notices);
        // Others may still hold copies: then it has not arrived.
        match self.store.acknowledged(self.store.store.tell(&notices).await) {
            Ok(()) => arrived,
            Err(_) => Vec::new(),
        }
    }
}
