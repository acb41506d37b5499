//! Copies that the feed's pages are made from, in memory.
//!
//! [`MemoryFeed`] does to each subject what `tidegate_core::feed::copy` says, in sharded tables (`table`) that are bounded by
//! bytes, and keeps the news in a ring.

mod table;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_backend::feed::{Event, EventKind, FeedCapabilities, Found, News, Reads};
use tidegate_backend::{BoxFuture, Error, ErrorKind, FeedStore, Result};
use tidegate_core::feed::copy::{Copy, Posts, patch_reposts, reposts_of};
use tidegate_core::feed::{Change, Entry, Fill, PostId, Repost, Subject, Ties, UserId, What};
use tidegate_core::{Map, Millis};
use tokio::time::Instant;

use self::table::{SHARDS, Table, Weigh};

/// How long a lease lasts that no fill ends.
const LEASE: Duration = Duration::from_secs(2);
/// Posts named by the news, for each change that is kept.
const TOUCHED: usize = 8;
/// Leases beyond which those that are over are looked for.
const MANY_LEASES: usize = 1_024;
/// Tables that memory is shared by.
const TABLES: usize = 3;

/// How much a [`MemoryFeed`] keeps.
#[derive(Debug, Clone)]
pub struct MemoryFeedOptions {
    /// About how many bytes the copies take (1 MiB at least; 256 MiB by default). Those that were not used for longest are forgotten.
    pub max_bytes: usize,
    /// How many changes the news go back (100..=1,000,000; 10,000 by default). Who falls further behind forgets what he knows.
    pub news_kept: usize,
}

impl Default for MemoryFeedOptions {
    fn default() -> Self {
        Self { max_bytes: 256 << 20, news_kept: 10_000 }
    }
}

/// Copies of authors' posts, users' ties and roots' reposts that end with the process.
#[derive(Debug)]
pub struct MemoryFeed {
    shared: Arc<Shared>,
    /// The number of the first news that were not given yet.
    next: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    authors: Table<UserId, Posts>,
    users: Table<UserId, Ties>,
    roots: Table<PostId, Map<UserId, Repost>>,
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Whose turn it is to make room.
    turn: AtomicUsize,
    news: Mutex<Ring>,
    /// The number of the news to come.
    end: AtomicU64,
    news_kept: usize,
    leases: Mutex<Leases>,
}

/// The latest news.
#[derive(Debug, Default)]
struct Ring {
    /// The number of the oldest.
    first: u64,
    events: VecDeque<Event>,
    touched: usize,
}

#[derive(Debug)]
struct Leases {
    until: Map<Subject, Instant>,
    /// How many there are when those that are over are looked for.
    look_at: usize,
}

impl Weigh for Posts {
    fn bytes(&self) -> usize {
        self.entries().len() * (size_of::<Entry>() + 64)
    }
}

impl Weigh for Ties {
    fn bytes(&self) -> usize {
        (self.follows.len() + self.hidden.len()) * (size_of::<UserId>() + 48)
    }
}

impl Weigh for Map<UserId, Repost> {
    fn bytes(&self) -> usize {
        self.capacity() * size_of::<(UserId, Repost)>() + self.len() * 112
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each step leaves it whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryFeed {
    /// No copies yet.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: a bound makes no sense.
    pub fn new(options: &MemoryFeedOptions) -> Result<Self> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Configuration, why));
        if options.max_bytes < 1 << 20 {
            return wrong(format!("the copies of a feed take at least 1 MiB, not {} bytes", options.max_bytes));
        }
        if !(100..=1_000_000).contains(&options.news_kept) {
            return wrong(format!("the news of a feed go back 100 to 1,000,000 changes, not {}", options.news_kept));
        }
        let shared = Shared {
            authors: Table::new(),
            users: Table::new(),
            roots: Table::new(),
            bytes: AtomicUsize::new(0),
            max_bytes: options.max_bytes,
            turn: AtomicUsize::new(0),
            news: Mutex::default(),
            end: AtomicU64::new(0),
            news_kept: options.news_kept,
            leases: Mutex::new(Leases { until: Map::default(), look_at: MANY_LEASES }),
        };
        Ok(Self { shared: Arc::new(shared), next: AtomicU64::new(0) })
    }

    /// The same copies, for somebody who is told the news for himself, from now on.
    #[must_use]
    pub fn another(&self) -> Self {
        let next = AtomicU64::new(self.shared.end.load(Ordering::Acquire));
        Self { shared: Arc::clone(&self.shared), next }
    }

    /// About how many bytes the copies take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// How many subjects something is known of, floors with them.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.shared.authors.len() + self.shared.users.len() + self.shared.roots.len()
    }

    /// Forgets everything but floors and the news; pages are made from the ledger until copies are filled again.
    pub fn forget(&self) {
        let shared = &*self.shared;
        for shard in 0..SHARDS {
            shared.authors.forget(shard, &shared.bytes);
            shared.users.forget(shard, &shared.bytes);
            shared.roots.forget(shard, &shared.bytes);
        }
    }

    fn news(&self) -> News {
        let shared = &*self.shared;
        let next = self.next.load(Ordering::Acquire);
        if shared.end.load(Ordering::Acquire) == next {
            return News::default();
        }
        let ring = locked(&shared.news);
        let end = ring.first + ring.events.len() as u64;
        let seen = usize::try_from(next.saturating_sub(ring.first)).unwrap_or(usize::MAX).min(ring.events.len());
        let lost = next < ring.first;
        let events = if lost { Vec::new() } else { ring.events.range(seen..).cloned().collect() };
        drop(ring);
        self.next.fetch_max(end, Ordering::AcqRel);
        News { lost, events }
    }

    fn read_now(&self, reads: &Reads) -> Found {
        let shared = &*self.shared;
        // First: what changes from here on is told the next time.
        let news = if reads.news { self.news() } else { News::default() };
        let heads = reads.heads.iter().map(|author| shared.authors.look(author, |version, posts| posts.head(version)));
        let sets = reads.sets.iter().map(|read| {
            let part = |version, posts: &Posts| posts.part(version, read.order, &read.beyond, read.max);
            shared.authors.look(&read.author, part)
        });
        let users = reads.users.iter().map(|user| shared.users.look(user, |_, ties| ties.clone()));
        let roots = reads
            .roots
            .iter()
            .map(|read| shared.roots.look(&read.root, |_, reposts| reposts_of(reposts, read.among.as_deref())));
        Found { news, heads: heads.collect(), sets: sets.collect(), users: users.collect(), roots: roots.collect() }
    }
}

impl Shared {
    fn apply(&self, change: &Change, now: Millis) {
        let bytes = &self.bytes;
        match &change.what {
            What::Posts { author, added, removed, .. } => self.authors.change(author, bytes, |copy| {
                Copy::told(copy, change, || Posts::none(now), |posts| posts.patch(added, removed, now))
            }),
            What::Ties { user, follow, unfollow, hide, show } => self.users.change(user, bytes, |copy| {
                Copy::told(copy, change, Ties::default, |ties| {
                    ties.patch(change.version, [follow, unfollow, hide, show]);
                    true
                })
            }),
            What::Reposts { root, set, unset } => self.roots.change(root, bytes, |copy| {
                Copy::told(copy, change, Map::default, |reposts| patch_reposts(reposts, set, unset))
            }),
            What::Floor(Subject::Author(author)) => {
                self.authors.change(author, bytes, |copy| Copy::below(copy, change.version));
            }
            What::Floor(Subject::User(user)) => {
                self.users.change(user, bytes, |copy| Copy::below(copy, change.version));
            }
            What::Floor(Subject::Root(root)) => {
                self.roots.change(root, bytes, |copy| Copy::below(copy, change.version));
            }
        }
        self.tell(Event::of(change));
        self.make_room();
    }

    fn tell(&self, event: Event) {
        let touched = |event: &Event| match &event.what {
            EventKind::Posts { touched, .. } => touched.len(),
            _ => 0,
        };
        let mut ring = locked(&self.news);
        ring.touched += touched(&event);
        ring.events.push_back(event);
        while ring.events.len() > self.news_kept || ring.touched > self.news_kept * TOUCHED {
            let Some(oldest) = ring.events.pop_front() else { break };
            ring.touched -= touched(&oldest);
            ring.first += 1;
        }
        self.end.store(ring.first + ring.events.len() as u64, Ordering::Release);
    }

    fn fill(&self, fill: Fill) -> bool {
        let (subject, version, bytes) = (fill.subject(), fill.version(), &self.bytes);
        let taken = match fill {
            Fill::Author(author, set) => self.authors.fill(&author, bytes, version, || Posts::filled(set)),
            Fill::User(user, ties) => self.users.fill(&user, bytes, version, || ties),
            Fill::Root(root, _, reposts) => self.roots.fill(&root, bytes, version, || {
                reposts.into_iter().map(|repost| (repost.user.clone(), repost)).collect()
            }),
        };
        locked(&self.leases).until.remove(&subject);
        self.make_room();
        taken
    }

    /// One shard after the other forgets what was not used lately.
    fn make_room(&self) {
        for _ in 0..4 * TABLES * SHARDS {
            if self.bytes.load(Ordering::Relaxed) <= self.max_bytes {
                return;
            }
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let shard = turn / TABLES % SHARDS;
            match turn % TABLES {
                0 => self.authors.evict(shard, &self.bytes, self.max_bytes),
                1 => self.users.evict(shard, &self.bytes, self.max_bytes),
                _ => self.roots.evict(shard, &self.bytes, self.max_bytes),
            }
        }
    }

    fn lease(&self, subjects: &[Subject]) -> Vec<bool> {
        let now = Instant::now();
        let mut leases = locked(&self.leases);
        if leases.until.len() >= leases.look_at {
            leases.until.retain(|_, until| *until > now);
            leases.look_at = MANY_LEASES.max(2 * leases.until.len());
        }
        let mut ask = |subject: &Subject| match leases.until.get(subject) {
            Some(until) if *until > now => false,
            _ => {
                leases.until.insert(subject.clone(), now + LEASE);
                true
            }
        };
        subjects.iter().map(&mut ask).collect()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl FeedStore for MemoryFeed {
    fn capabilities(&self) -> FeedCapabilities {
        FeedCapabilities { name: "memory", shared: false }
    }

    fn apply<'a>(&'a self, changes: &'a [Change], now: Millis) -> BoxFuture<'a, Result<()>> {
        changes.iter().for_each(|change| self.shared.apply(change, now));
        ready(Ok(()))
    }

    fn read(&self, reads: Reads) -> BoxFuture<'_, Result<Found>> {
        ready(reads.check().map(|()| self.read_now(&reads)))
    }

    fn fill(&self, fills: Vec<Fill>) -> BoxFuture<'_, Result<Vec<bool>>> {
        ready(Ok(fills.into_iter().map(|fill| self.shared.fill(fill)).collect()))
    }

    fn lease<'a>(&'a self, subjects: &'a [Subject]) -> BoxFuture<'a, Result<Vec<bool>>> {
        ready(Ok(self.shared.lease(subjects)))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(())
    }
}
