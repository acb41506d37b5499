//! The whole: a ledger, a gate, a deadline queue, and the workers between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{
    Bus, CacheStore, DeadlineQueue, FeedLedger, FeedStore, Gate, Ledger, LedgerId, LockStore, QueueStore,
};
use tidegate_core::command::Place;
use tidegate_core::{Command, Outcome, Settings};
use tokio::sync::watch;

use crate::workers::Tasks;
use crate::workers::group_commit::GroupCommit;
use crate::workers::health::{self, Health};
use crate::workers::probes::Probes;
use crate::{Catalog, Error, Operations, Orders, Readiness, Result, workers};

/// How long the deadline index, then the bus, may take to close.
const STORE_CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// How long queues and locks may take: what callers that are gone have claimed is handed back first.
#[cfg(any(feature = "lock", feature = "queue"))]
const PRODUCT_CLOSES_WITHIN: Duration = Duration::from_millis(1_500);
/// What the end of the workers leaves of a stop's patience: for the stores and the ledger to close.
const CLOSING: Duration = Duration::from_secs(2);

/// The back ends an instance is made of.
pub struct Parts {
    /// The only arbiter.
    pub ledger: Arc<dyn Ledger>,
    /// Copies of what is available.
    pub gate: Arc<dyn Gate>,
    /// The index of what is due.
    pub deadlines: Arc<dyn DeadlineQueue>,
    /// The link to the other nodes of this ledger, where there are others and a link.
    pub bus: Option<Arc<dyn Bus>>,
    /// Where cached entries lie, shared with the other nodes; `None`: in this process. Without the feature `cache` it is
    /// not used.
    pub cache: Option<Arc<dyn CacheStore>>,
    /// The file that keeps which product pages are read most from one start to the next, where `cache` does not; in a
    /// folder that exists. Without the feature `cache` it is not used.
    pub hot_keys: Option<PathBuf>,
    /// Where the tasks of general queues lie; `None`: there are none. Without the feature `queue` it is not used.
    pub queues: Option<Arc<dyn QueueStore>>,
    /// Where locks lie; `None`: there are none. Without the feature `lock` it is not used.
    pub locks: Option<Arc<dyn LockStore>>,
    /// The feed's truth, in the ledger's database; `None`: there is no feed. Without the feature `feed` it is not used.
    pub feed: Option<Arc<dyn FeedLedger>>,
    /// Where copies of it lie, shared with the other nodes of the ledger; `None`: pages are made of the database alone. Without
    /// the feature `feed` it is not used.
    pub feed_store: Option<Arc<dyn FeedStore>>,
    /// The rules' settings; the ledger must have been opened with the same.
    pub settings: Settings,
}

/// How an instance runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Commands that may wait in front of the ledger; beyond it calls are refused as overloaded.
    pub queue_commands: usize,
    /// Whether this instance acts on deadlines (`serve --no-workers` does not).
    pub workers: bool,
    /// How long a claimed deadline belongs to its worker, milliseconds.
    pub lease_ms: i64,
    /// How its caches run.
    #[cfg(feature = "cache")]
    pub cache: crate::products::CacheOptions,
    /// How its feed runs.
    #[cfg(feature = "feed")]
    pub feed: crate::feed::FeedOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queue_commands: 8_192,
            workers: true,
            lease_ms: 5_000,
            #[cfg(feature = "cache")]
            cache: crate::products::CacheOptions::default(),
            #[cfg(feature = "feed")]
            feed: crate::feed::FeedOptions::default(),
        }
    }
}

/// An instance of Tidegate: a cheap handle, clone it freely.
#[derive(Clone)]
pub struct Tidegate(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) deadlines: Arc<dyn DeadlineQueue>,
    pub(crate) bus: Option<Arc<dyn Bus>>,
    pub(crate) settings: Settings,
    pub(crate) options: Options,
    pub(crate) queue: GroupCommit,
    pub(crate) probes: Probes,
    pub(crate) newest_event: watch::Sender<i64>,
    pub(crate) health: Health,
    #[cfg(feature = "cache")]
    caches: crate::cache::Caches,
    #[cfg(feature = "cache")]
    products: crate::products::Products,
    #[cfg(feature = "queue")]
    queues: Option<crate::queue::Queues>,
    #[cfg(feature = "lock")]
    locks: Option<crate::lock::Locks>,
    #[cfg(feature = "feed")]
    feed: Option<crate::feed::Feed>,
    tasks: Tasks,
}

impl Tidegate {
    /// Starts an instance: rebuilds the gate, and a deadline index of this process, from the ledger, then starts the workers
    /// on the current tokio runtime (a shared index that lacks deadlines is filled by them). Keep it and end it with
    /// [`Tidegate::stop`].
    ///
    /// # Errors
    /// [`Error::LedgerUnavailable`] when the ledger cannot be read.
    pub async fn start(parts: Parts, options: Options) -> Result<Self> {
        let Parts { ledger, gate, deadlines, bus, cache, hot_keys, queues, locks, feed, feed_store, settings } = parts;
        #[cfg(feature = "cache")]
        let (caches, products) = start_caches(cache, hot_keys, &ledger, &gate, options.cache)?;
        #[cfg(feature = "feed")]
        let feed = feed.map(|ledger| {
            let parts = crate::feed::FeedParts { ledger, store: feed_store };
            crate::feed::Feed::start(&caches, products.relay(), parts, options.feed)
        });
        #[cfg(feature = "feed")]
        let feed = feed.transpose().map_err(|e| Error::Configuration(e.to_string()))?;
        #[cfg(not(feature = "feed"))]
        drop((feed, feed_store));
        #[cfg(not(feature = "cache"))]
        drop((cache, hot_keys));
        #[cfg(not(feature = "queue"))]
        drop(queues);
        #[cfg(not(feature = "lock"))]
        drop(locks);
        let inner = Arc::new(Inner {
            queue: GroupCommit::new(options.queue_commands),
            probes: Probes::new(options.queue_commands),
            newest_event: watch::Sender::new(0),
            health: Health::default(),
            tasks: Tasks::default(),
            #[cfg(feature = "cache")]
            caches,
            #[cfg(feature = "cache")]
            products,
            #[cfg(feature = "queue")]
            queues: queues.map(crate::queue::Queues::new),
            #[cfg(feature = "lock")]
            locks: locks.map(crate::lock::Locks::new),
            #[cfg(feature = "feed")]
            feed,
            ledger,
            gate,
            deadlines,
            bus,
            settings,
            options,
        });
        workers::rebuild::run(&inner).await?;
        inner.tasks.start(&inner);
        Ok(Self(inner))
    }

    /// Orders and the money around them.
    #[must_use]
    pub fn orders(&self) -> Orders {
        Orders(Arc::clone(&self.0))
    }

    /// SKUs and their stock.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        Catalog(Arc::clone(&self.0))
    }

    /// Events, readiness, the clock, reconciliation.
    #[must_use]
    pub fn operations(&self) -> Operations {
        Operations(Arc::clone(&self.0))
    }

    /// Product pages, through the cache.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn products(&self) -> crate::products::Products {
        self.0.products.clone()
    }

    /// The caches of this instance: more can be made on the same store, under the same budget. They end with it.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn caches(&self) -> crate::cache::Caches {
        self.0.caches.clone()
    }

    /// The relay of the ledger's outbox, for tickets of transactions in the ledger's database; `None`: the nodes of this
    /// ledger share no store, and nothing of it is cached.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn relay(&self) -> Option<crate::cache::Relay> {
        self.0.products.relay()
    }

    /// The general queues of this instance, if it has a store for them. They end with it.
    #[cfg(feature = "queue")]
    #[must_use]
    pub fn queues(&self) -> Option<crate::queue::Queues> {
        self.0.queues.clone()
    }

    /// The locks of this instance, if it has a store for them. They end with it.
    #[cfg(feature = "lock")]
    #[must_use]
    pub fn locks(&self) -> Option<crate::lock::Locks> {
        self.0.locks.clone()
    }

    /// Where the ledger keeps the newest fence of each lock: for `lock::Fenced`.
    #[cfg(feature = "lock")]
    #[must_use]
    pub fn fences(&self) -> Arc<dyn crate::lock::Fences> {
        Arc::new(crate::lock::LedgerFences(self.0.ledger.clone()))
    }

    /// The feed of this instance, if its ledger has one. It ends with it.
    #[cfg(feature = "feed")]
    #[must_use]
    pub fn feed(&self) -> Option<crate::feed::Feed> {
        self.0.feed.clone()
    }

    /// Which ledger it is: the same on every node.
    #[must_use]
    pub fn ledger_id(&self) -> LedgerId {
        self.0.ledger.id()
    }

    /// The rules' settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Refuses new commands, answers those it has, ends the workers, hands back the deadlines it has claimed, closes the
    /// link to other nodes and the ledger. Calls after this fail with
    /// [`Error::Stopping`]. What is not done within `patience` is given up (it was not acknowledged).
    ///
    /// # Errors
    /// [`Error::LedgerUnavailable`] when the ledger could not be closed in order; nothing acknowledged is lost.
    pub async fn stop(&self, patience: Duration) -> Result<()> {
        let ended = tokio::time::timeout(patience, async {
            self.0.queue.stop();
            self.0.probes.stop();
            let working = patience.saturating_sub(CLOSING).max(patience / 4);
            if tokio::time::timeout(working, self.0.tasks.stop()).await.is_err() {
                // A ledger that gives no answer: what waits for it was not acknowledged and is refused as stopping.
                tracing::warn!("the ledger does not answer; what waits for it is given up");
                self.0.tasks.abort().await;
            }
            self.0.close_products().await;
            // Neither may keep the ledger from closing: a lease that is not handed back ends by itself.
            let _ = tokio::time::timeout(STORE_CLOSES_WITHIN, self.0.deadlines.close()).await;
            if let Some(bus) = &self.0.bus {
                let _ = tokio::time::timeout(STORE_CLOSES_WITHIN, bus.close()).await;
            }
            #[cfg(feature = "cache")]
            let _ = tokio::time::timeout(STORE_CLOSES_WITHIN, self.0.caches.close()).await;
            #[cfg(feature = "feed")]
            if let Some(feed) = &self.0.feed {
                let _ = tokio::time::timeout(STORE_CLOSES_WITHIN, feed.close()).await;
            }
            self.0.ledger.close().await
        });
        match ended.await {
            Ok(closed) => Ok(closed?),
            Err(_) => Err(Error::LedgerUnavailable(format!("did not stop within {} s", patience.as_secs()))),
        }
    }
}

/// The caches of an instance, and its product pages.
#[cfg(feature = "cache")]
fn start_caches(
    store: Option<Arc<dyn CacheStore>>,
    hot_keys: Option<PathBuf>,
    ledger: &Arc<dyn Ledger>,
    gate: &Arc<dyn Gate>,
    options: crate::products::CacheOptions,
) -> Result<(crate::cache::Caches, crate::products::Products)> {
    use crate::cache::{Caches, EmbeddedCache, EmbeddedCacheOptions};
    let store = match store {
        Some(store) => store,
        None => Arc::new(EmbeddedCache::open(EmbeddedCacheOptions::default())?),
    };
    // Else a node could not hear what another has changed.
    let hears = ledger.capabilities().sole_writer || store.capabilities().shared;
    let mut builder = Caches::builder(store)
        .local_bytes(options.local_bytes)
        .load_budget(options.load_budget)
        .hot_keys(options.rewarm);
    if let Some(rate) = options.load_rate {
        builder = builder.load_rate(rate);
    }
    if let Some(file) = hot_keys {
        builder = builder.hot_keys_in(file);
    }
    let caches = builder.start().map_err(|e| Error::Configuration(e.to_string()))?;
    let products =
        crate::products::Products::start(&caches, Arc::clone(ledger), Arc::clone(gate), options.products, hears)?;
    Ok((caches, products))
}

impl Inner {
    /// Closes queues and locks, side by side: they may use the connection that the bus closes.
    async fn close_products(&self) {
        #[cfg(feature = "lock")]
        let locks = async {
            if let Some(locks) = &self.locks {
                let _ = tokio::time::timeout(PRODUCT_CLOSES_WITHIN, locks.close()).await;
            }
        };
        #[cfg(not(feature = "lock"))]
        let locks = std::future::ready(());
        #[cfg(feature = "queue")]
        let queues = async {
            if let Some(queues) = &self.queues {
                let _ = tokio::time::timeout(PRODUCT_CLOSES_WITHIN, queues.close()).await;
            }
        };
        #[cfg(not(feature = "queue"))]
        let queues = std::future::ready(());
        tokio::join!(locks, queues);
    }

    /// Why general queues, or locks, cannot be used, while that is so: a word for each, and what is wrong.
    pub(crate) fn products_trouble(&self) -> Vec<(&'static str, String)> {
        #[cfg(feature = "queue")]
        let queues = self.queues.as_ref().and_then(crate::queue::Queues::trouble);
        #[cfg(not(feature = "queue"))]
        let queues = None;
        #[cfg(feature = "lock")]
        let locks = self.locks.as_ref().and_then(crate::lock::Locks::trouble);
        #[cfg(not(feature = "lock"))]
        let locks = None;
        let named = |word, trouble: Option<String>| trouble.map(|why| (word, why));
        named("queues-unavailable", queues).into_iter().chain(named("locks-unavailable", locks)).collect()
    }

    /// Hands on what a commit made old in caches. Without caches nobody here takes it.
    pub(crate) fn made_old(&self, entries: Vec<tidegate_backend::OutboxEntry>) {
        #[cfg(feature = "cache")]
        self.products.made_old(entries);
        #[cfg(not(feature = "cache"))]
        drop(entries);
    }

    /// Says that these SKUs may exist from the next commit on.
    pub(crate) async fn expect(&self, skus: impl Iterator<Item = &tidegate_core::SkuId>) {
        #[cfg(feature = "cache")]
        self.products.expect(skus).await;
        #[cfg(not(feature = "cache"))]
        drop(skus);
    }

    /// Whether this instance takes invalidations from the ledger's outbox.
    pub(crate) fn takes_invalidations(&self) -> bool {
        #[cfg(feature = "cache")]
        return self.products.takes_invalidations();
        #[cfg(not(feature = "cache"))]
        false
    }

    /// Puts one command in front of the ledger and waits for its durable answer.
    pub(crate) async fn submit_one(&self, command: Command) -> Result<Outcome> {
        self.queue.submit(vec![command]).await?.pop().expect("one answer a command")
    }

    /// Puts commands in front of the ledger, in groups a batch can hold; one answer each, in order.
    pub(crate) async fn submit_many(&self, mut commands: Vec<Command>) -> Vec<Result<Outcome>> {
        let mut answers = Vec::with_capacity(commands.len());
        while !commands.is_empty() {
            let rest = commands.split_off(commands.len().min(tidegate_backend::ledger::MAX_BATCH_COMMANDS));
            let count = commands.len();
            match self.queue.submit(commands).await {
                Ok(group) => answers.extend(group),
                Err(e) => answers.extend((0..count).map(|_| Err(e.clone()))),
            }
            commands = rest;
        }
        answers
    }

    /// Places an order, past the gate.
    pub(crate) async fn place(&self, place: Place) -> Result<Outcome> {
        match self.past_the_gate(&place).await? {
            Some(refusal) => Err(refusal.into()),
            None => self.submit_one(Command::Place(place)).await,
        }
    }

    /// Places many: those the gate lets through go to the ledger as one group.
    pub(crate) async fn place_many(&self, places: Vec<Place>) -> Vec<Result<Outcome>> {
        let opinions = workers::probes::judge_many(self, &places).await;
        let passed = places.into_iter().zip(opinions).map(|(place, opinion)| match opinion? {
            None => Ok(Command::Place(place)),
            Some(refusal) => Err(refusal.into()),
        });
        self.submit_sound(passed).await
    }

    /// Decides the commands that there are; what stands in another's place stays its answer. One answer each, in order.
    pub(crate) async fn submit_sound(&self, commands: impl Iterator<Item = Result<Command>>) -> Vec<Result<Outcome>> {
        let mut sound = Vec::new();
        let slots: Vec<Result<()>> = commands.map(|command| command.map(|command| sound.push(command))).collect();
        let mut decided = self.submit_many(sound).await.into_iter();
        slots.into_iter().map(|slot| slot.and_then(|()| decided.next().expect("one answer a command"))).collect()
    }

    /// Whether other processes may write the ledger or share the deadline index.
    pub(crate) fn is_one_of_several(&self) -> bool {
        !self.ledger.capabilities().sole_writer || self.bus.is_some() || self.deadlines.is_shared()
    }

    /// Wakes readers of events if `cursor` is newer than any before.
    pub(crate) fn saw_event(&self, cursor: i64) {
        self.newest_event.send_if_modified(|newest| {
            let later = cursor > *newest;
            *newest = cursor.max(*newest);
            later
        });
    }

    pub(crate) fn readiness(&self) -> Readiness {
        health::readiness(self)
    }
}
