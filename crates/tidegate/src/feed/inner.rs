//! The insides of a feed: what it is made of, and its questions to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_backend::feed::{Event, EventKind, FeedLedger, FeedStore, Found, MAX_FEED_READS, News, Reads, RootRead};
use tidegate_core::feed::{Change, PostId, Reposts, Subject};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

use super::health::{Health, Ticks};
use super::kept::KeptPages;
use super::mirror::Mirror;
use super::options::{FeedError, FeedOptions, FeedStats};
use super::owed::Owed;
use super::posts::Posts;
use super::walker::Stop;
use crate::Error;
use crate::cache::Relay;
use crate::cache::sink::Sink;

/// How long a page waits for its turn at the ledger.
const TURN_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) made: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) direct: AtomicU64,
    pub(super) sets: AtomicU64,
    pub(super) authors_from_ledger: AtomicU64,
    pub(super) news_alone: AtomicU64,
    pub(super) told: AtomicU64,
    pub(super) left: AtomicU64,
}

impl Counts {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn stats(&self) -> FeedStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FeedStats {
            made: of(&self.made),
            kept: of(&self.kept),
            direct: of(&self.direct),
            sets: of(&self.sets),
            authors_from_ledger: of(&self.authors_from_ledger),
            news_alone: of(&self.news_alone),
            told: of(&self.told),
            left: of(&self.left),
        }
    }
}

pub(super) struct Inner {
    pub(super) ledger: Arc<dyn FeedLedger>,
    pub(super) clock: Arc<dyn tidegate_backend::Clock>,
    /// `None`: pages are made of the ledger's rows alone.
    pub(super) store: Option<Arc<dyn FeedStore>>,
    pub(super) relay: Option<Relay>,
    pub(super) posts: Posts,
    pub(super) mirror: Mirror,
    pub(super) owed: Owed,
    pub(super) health: Health,
    pub(super) kept: KeptPages,
    pub(super) ticks: Ticks,
    pub(super) options: FeedOptions,
    pub(super) counts: Counts,
    /// When the reading of the news began that was done last, in ticks.
    news_at: AtomicI64,
    /// One asks for the news alone.
    news_turn: Mutex<()>,
    ledger_turns: Semaphore,
}

impl Inner {
    pub(super) fn new(
        ledger: Arc<dyn FeedLedger>,
        store: Option<Arc<dyn FeedStore>>,
        relay: Option<Relay>,
        posts: Posts,
        options: FeedOptions,
    ) -> Self {
        let ticks = Ticks::new();
        Self {
            clock: ledger.clock(),
            ledger,
            store,
            relay,
            posts,
            mirror: Mirror::new(options.max_names, options.follow_cache_bytes, options.scope.own_posts, ticks),
            owed: Owed::default(),
            health: Health::new(ticks),
            kept: KeptPages::new(options.page_cache_bytes),
            ticks,
            counts: Counts::default(),
            news_at: AtomicI64::new(i64::MIN),
            news_turn: Mutex::new(()),
            ledger_turns: Semaphore::new(options.ledger_reads.max(1)),
            options,
        }
    }

    /// The store, if it is there.
    pub(super) fn store(&self) -> Result<&Arc<dyn FeedStore>, Stop> {
        self.store.as_ref().ok_or(Stop::Down)
    }

    /// What the store has of the reposts of `roots`, in order.
    pub(super) async fn ask_reposts(&self, roots: &[PostId]) -> Result<Vec<Option<Reposts>>, Stop> {
        let mut found = Vec::with_capacity(roots.len());
        for part in roots.chunks(MAX_FEED_READS) {
            let reads = part.iter().map(|root| RootRead { root: root.clone(), among: None }).collect();
            let answers = self.ask(Reads { roots: reads, ..Reads::default() }).await?.roots;
            found.extend(answers.into_iter().chain(std::iter::repeat(None)).take(part.len()));
        }
        Ok(found)
    }

    /// Asks the store; the news are taken at once.
    pub(super) async fn ask(&self, reads: Reads) -> Result<Found, Stop> {
        let (began, with_news) = (self.ticks.now(), reads.news);
        match self.store()?.read(reads).await {
            Ok(found) => {
                self.health.answered();
                if with_news {
                    self.take_news(&found.news);
                    self.news_at.fetch_max(began, Ordering::AcqRel);
                    if found.news.lost {
                        return Err(Stop::Again);
                    }
                }
                Ok(found)
            }
            Err(error) => {
                self.health.failed(&error);
                Err(Stop::Down)
            }
        }
    }

    /// Copies of posts that are old go before it is known that something happened to their authors.
    fn take_news(&self, news: &News) {
        if news.lost {
            // Which posts have changed is lost, too.
            self.posts.forget_all_local();
        }
        for event in &news.events {
            self.forget_posts(event);
        }
        self.mirror.take(news);
    }

    fn forget_posts(&self, event: &Event) {
        match (&event.subject, &event.what) {
            (_, EventKind::Posts { touched, .. }) => self.posts.forget_local(touched.iter()),
            // A post says whether it was shown again.
            (Subject::Root(root), EventKind::Floor) => self.posts.forget_local(std::iter::once(root)),
            (Subject::Root(root), _) if event.prev == 0 => self.posts.forget_local(std::iter::once(root)),
            _ => {}
        }
    }

    /// Whether the news are as new as a page from memory needs.
    pub(super) fn news_are_fresh(&self) -> bool {
        let within = i64::try_from(self.options.news_within.as_millis()).unwrap_or(i64::MAX);
        self.news_at.load(Ordering::Acquire).saturating_add(within) > self.ticks.now()
    }

    /// Asks for the news, unless somebody else just has.
    pub(super) async fn refresh_news(&self) -> Result<(), Stop> {
        let _turn = self.news_turn.lock().await;
        if self.news_are_fresh() {
            return Ok(());
        }
        if !self.health.may_ask() {
            return Err(Stop::Down);
        }
        Counts::add(&self.counts.news_alone, 1);
        self.ask(Reads { news: true, ..Reads::default() }).await.map(drop)
    }

    /// A turn at the ledger.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, FeedError> {
        match tokio::time::timeout(TURN_WITHIN, self.ledger_turns.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(FeedError::Failed(Error::Stopping)),
            Err(_) => Err(FeedError::Failed(Error::Overloaded)),
        }
    }
}

impl Sink for Inner {
    fn owe(&self, floor: &Change) {
        self.owed.owe(floor);
    }

    fn paid(&self, subject: &Subject) {
        self.owed.paid(subject);
    }

    fn overflow(&self, more: bool) {
        self.owed.set_overflowed(more);
    }

    fn wants_repeat(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.wants_repeat())
    }

    fn repeated(&self) -> tidegate_backend::BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(store) = &self.store else { return };
            if let Err(error) = store.repeated().await {
                // It is asked for once more.
                self.health.failed(&error);
            }
        })
    }

    fn deliver(&self, floors: Vec<Change>) -> tidegate_backend::BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(store) = &self.store else { return false };
            match store.apply(&floors, self.clock.now()).await {
                Ok(()) => {
                    self.health.answered();
                    true
                }
                Err(error) => {
                    self.health.failed(&error);
                    false
                }
            }
        })
    }
}
