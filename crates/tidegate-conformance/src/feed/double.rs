//! A ledger and a store of the feed in memory, for tests of what is built on them: they count, and fail on demand.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate_backend::feed::{
    Event, EventKind, FeedCapabilities, FeedCommit, FeedLedger, FeedStore, Found, News, Reads, outbox_of,
};
use tidegate_backend::outbox::{Deliver, OutboxState, Pending, Relayed, ReplayPoint, Replayed, deliver};
use tidegate_backend::{
    BoxFuture, Clock, ClockStatus, Error, ErrorKind, Outbox, OutboxEntry, Page, PageRequest, Result,
};
use tidegate_core::feed::copy::{Copies, Copy};
use tidegate_core::feed::{
    AuthorSet, Change, Command, Decision, Edge, Entry, Fill, Order, PostId, Repost, StoredPost, Subject, Table, Ties,
    UserId, Version,
};
use tidegate_core::{Map, Millis};

/// Where the feed's time begins.
pub const BEGIN: Millis = Millis(1_800_000_000_000);
/// How long a lease lasts.
const LEASE: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clock that moves by hand.
#[derive(Debug)]
pub struct HandClock(AtomicI64);

impl HandClock {
    /// Moves on.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.now() < at {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    fn status(&self) -> ClockStatus {
        ClockStatus { now: self.now(), host: self.now(), stepped: false, catching_up: false, manual: true }
    }

    fn accept(&self) -> ClockStatus {
        self.status()
    }

    fn advance_to(&self, at: Millis) -> Result<()> {
        self.0.fetch_max(at.0, Ordering::SeqCst);
        Ok(())
    }
}

/// Faults and counts of a double.
#[derive(Debug)]
pub struct Faults {
    down: AtomicBool,
    /// Of a hundred calls so many fail: half of those after they were done.
    percent: AtomicU64,
    chance: Mutex<StdRng>,
    /// Calls that were made.
    pub calls: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        let chance = Mutex::new(StdRng::seed_from_u64(7));
        Self { down: AtomicBool::new(false), percent: AtomicU64::new(0), chance, calls: AtomicU64::new(0) }
    }
}

impl Faults {
    /// Whether every call fails.
    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Of a hundred calls so many fail: half of those after they were done.
    pub fn set_percent(&self, percent: u64) {
        self.percent.store(percent, Ordering::SeqCst);
    }

    /// Runs `work`, unless it fails before; it may fail after.
    fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let failed = || Error::new(ErrorKind::Unavailable, "the test says that it is away");
        if self.down.load(Ordering::SeqCst) {
            return Err(failed());
        }
        let percent = self.percent.load(Ordering::SeqCst);
        let fails = percent > 0 && lock(&self.chance).random_range(0..100) < percent;
        if fails && lock(&self.chance).random_bool(0.5) {
            return Err(failed());
        }
        let done = work();
        if fails { Err(failed()) } else { Ok(done) }
    }
}

#[derive(Debug, Clone)]
struct OutboxRow {
    entry: OutboxEntry,
    delivered: Option<Instant>,
}

/// A ledger of `tidegate_core::feed::Table`, with an outbox and a clock that moves by hand.
#[derive(Debug)]
pub struct MemoryLedger {
    table: Mutex<Table>,
    outbox: Mutex<Vec<OutboxRow>>,
    clock: Arc<HandClock>,
    /// What versions begin at: another instant for each commit.
    real: AtomicI64,
    /// Of reads and commits.
    pub faults: Faults,
    /// Every author whose set was read, in order.
    pub authors_read: Mutex<Vec<UserId>>,
    /// How long such a read takes, milliseconds.
    pub authors_take: AtomicU64,
    /// Calls of [`FeedLedger::entries`].
    pub deep_reads: AtomicU64,
    /// Posts that were read.
    pub posts_read: AtomicU64,
}

impl MemoryLedger {
    /// An empty one; each user may follow so many.
    #[must_use]
    pub fn new(max_followees: usize) -> Arc<Self> {
        Arc::new(Self {
            table: Mutex::new(Table::new(max_followees)),
            outbox: Mutex::default(),
            clock: Arc::new(HandClock(AtomicI64::new(BEGIN.0))),
            real: AtomicI64::new(BEGIN.0),
            faults: Faults::default(),
            authors_read: Mutex::default(),
            authors_take: AtomicU64::new(0),
            deep_reads: AtomicU64::new(0),
            posts_read: AtomicU64::new(0),
        })
    }

    /// Its clock.
    #[must_use]
    pub fn hand(&self) -> &HandClock {
        &self.clock
    }

    /// Its rows.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    fn committed(&self, decision: Decision) -> FeedCommit {
        let outbox = outbox_of(&decision.changes, &decision.stale, tidegate_backend::clock::host_now());
        let rows = outbox.iter().map(|entry| OutboxRow { entry: entry.clone(), delivered: None });
        lock(&self.outbox).extend(rows);
        FeedCommit { now: self.clock.now(), outcomes: decision.outcomes, changes: decision.changes, outbox }
    }
}

fn ready<'a, T: Send + 'a>(answer: Result<T>) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(answer))
}

impl FeedLedger for MemoryLedger {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as _
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<FeedCommit>> {
        ready(self.faults.run(|| {
            let mut table = self.table();
            let real = Millis(self.real.fetch_add(1, Ordering::SeqCst));
            let decision = table.commit_at(self.clock.now(), real, &commands);
            self.committed(decision)
        }))
    }

    fn delete_user<'a>(&'a self, user: &'a UserId) -> BoxFuture<'a, Result<(FeedCommit, bool)>> {
        ready(self.faults.run(|| {
            let mut table = self.table();
            self.real.fetch_add(1, Ordering::SeqCst);
            let decision = table.delete_user(self.clock.now(), user);
            (self.committed(decision), false)
        }))
    }

    fn posts<'a>(&'a self, ids: &'a [PostId]) -> BoxFuture<'a, Result<Vec<Option<StoredPost>>>> {
        self.posts_read.fetch_add(ids.len() as u64, Ordering::SeqCst);
        ready(self.faults.run(|| {
            let table = self.table();
            ids.iter().map(|id| table.posts.get(id).cloned()).collect()
        }))
    }

    fn authors<'a>(&'a self, authors: &'a [UserId], from: Millis) -> BoxFuture<'a, Result<Vec<AuthorSet>>> {
        lock(&self.authors_read).extend(authors.iter().cloned());
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(self.authors_take.load(Ordering::SeqCst))).await;
            self.faults.run(|| {
                let table = self.table();
                authors.iter().map(|author| table.author(author, from)).collect()
            })
        })
    }

    fn entries<'a>(
        &'a self,
        author: &'a UserId,
        order: Order,
        beyond: &'a Edge,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        self.deep_reads.fetch_add(1, Ordering::SeqCst);
        ready(self.faults.run(|| self.table().entries(author, order, beyond, max)))
    }

    fn ties<'a>(&'a self, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Ties>>> {
        ready(self.faults.run(|| {
            let table = self.table();
            users.iter().map(|user| table.ties(user)).collect()
        }))
    }

    fn reposts<'a>(
        &'a self,
        root: &'a PostId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Version, Vec<Repost>)>> {
        ready(self.faults.run(|| {
            let (version, mut all) = self.table().reposts(root);
            all.retain(|repost| after.is_none_or(|after| repost.user > *after));
            all.truncate(limit);
            (version, all)
        }))
    }

    fn reposts_by<'a>(&'a self, root: &'a PostId, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Repost>>> {
        ready(self.faults.run(|| {
            let users: BTreeSet<&UserId> = users.iter().collect();
            let (_, mut all) = self.table().reposts(root);
            all.retain(|repost| users.contains(&repost.user));
            all
        }))
    }

    fn follows<'a>(&'a self, user: &'a UserId, page: PageRequest) -> BoxFuture<'a, Result<Page<(UserId, Millis)>>> {
        ready(self.faults.run(|| {
            let table = self.table();
            let after = page.cursor.as_deref();
            let of = table.follows.iter().filter(|((who, _), _)| who == user);
            let left = of.filter(|((_, other), _)| after.is_none_or(|after| other.as_str() > after));
            let mut items: Vec<_> = left.take(page.limit + 1).map(|((_, other), at)| (other.clone(), *at)).collect();
            let more = items.len() > page.limit;
            items.truncate(page.limit);
            let next = items.last().filter(|_| more).map(|(other, _)| other.to_string());
            Page { items, next }
        }))
    }
}

impl Outbox for MemoryLedger {
    fn relay<'a>(&'a self, max: usize, to: &'a dyn Deliver) -> BoxFuture<'a, Result<Relayed>> {
        Box::pin(async move {
            let waiting: Vec<OutboxEntry> = {
                let rows = lock(&self.outbox);
                rows.iter().filter(|row| row.delivered.is_none()).take(max).map(|row| row.entry.clone()).collect()
            };
            let arrived = deliver(to, &waiting).await?;
            self.mark_delivered(&arrived).await?;
            Ok(Relayed { taken: waiting.len(), delivered: arrived.len() })
        })
    }

    fn mark_delivered<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<()>> {
        let ids: BTreeSet<i64> = ids.iter().copied().collect();
        for row in lock(&self.outbox).iter_mut().filter(|row| ids.contains(&row.entry.id)) {
            row.delivered.get_or_insert_with(Instant::now);
        }
        ready(Ok(()))
    }

    fn states<'a>(&'a self, ids: &'a [i64]) -> BoxFuture<'a, Result<Vec<OutboxState>>> {
        let rows = lock(&self.outbox);
        let known: Map<i64, bool> = rows.iter().map(|row| (row.entry.id, row.delivered.is_some())).collect();
        let state = |id: &i64| match known.get(id) {
            None => OutboxState::Absent,
            Some(false) => OutboxState::Waiting,
            Some(true) => OutboxState::Delivered,
        };
        ready(Ok(ids.iter().map(state).collect()))
    }

    fn replay(&self, within: Duration, after: Option<ReplayPoint>, _: usize) -> BoxFuture<'_, Result<Replayed>> {
        let is_recent = |row: &&OutboxRow| row.delivered.is_some_and(|at| at.elapsed() < within);
        let rows = lock(&self.outbox);
        let entries = match after {
            None => rows.iter().filter(is_recent).map(|row| row.entry.clone()).collect(),
            Some(_) => Vec::new(),
        };
        ready(Ok(Replayed { entries, next: None }))
    }

    fn prune(&self, keep: Duration) -> BoxFuture<'_, Result<bool>> {
        lock(&self.outbox).retain(|row| row.delivered.is_none_or(|at| at.elapsed() < keep));
        ready(Ok(false))
    }

    fn pending(&self) -> BoxFuture<'_, Result<Pending>> {
        let count = lock(&self.outbox).iter().filter(|row| row.delivered.is_none()).count();
        ready(Ok(Pending { count, oldest: None }))
    }
}

#[derive(Debug, Default)]
struct Shared {
    copies: Copies,
    leases: Map<Subject, Instant>,
    events: VecDeque<Event>,
    /// The number of the first event.
    first: u64,
    /// Times that all was lost.
    flushes: u64,
}

/// A store of `tidegate_core::feed::copy::Copies`. Each [`MemoryStore::handle`] is another process.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Shared>>,
    /// Flushes that were heard of, and the number of the next event.
    position: Mutex<(u64, u64)>,
    /// Of this process' calls.
    pub faults: Faults,
    /// Every author whose set this process has read, in order.
    pub sets_read: Mutex<Vec<UserId>>,
    /// Heads that this process has read.
    pub heads_read: AtomicU64,
}

impl MemoryStore {
    fn on(shared: Arc<Mutex<Shared>>) -> Arc<Self> {
        let position = {
            let shared = lock(&shared);
            (shared.flushes, shared.first + shared.events.len() as u64)
        };
        Arc::new(Self {
            shared,
            position: Mutex::new(position),
            faults: Faults::default(),
            sets_read: Mutex::default(),
            heads_read: AtomicU64::new(0),
        })
    }

    /// An empty one.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::on(Arc::default())
    }

    /// Another process' sight of it.
    #[must_use]
    pub fn handle(&self) -> Arc<Self> {
        Self::on(Arc::clone(&self.shared))
    }

    /// Everything is lost, as by a FLUSHALL.
    pub fn flush(&self) {
        let mut shared = lock(&self.shared);
        *shared = Shared { flushes: shared.flushes + 1, ..Shared::default() };
    }

    /// Forgets the copy of a subject, as by an eviction.
    pub fn forget(&self, subject: &Subject) {
        let copies = &mut lock(&self.shared).copies;
        match subject {
            Subject::Author(author) => drop(copies.authors.remove(author)),
            Subject::User(user) => drop(copies.users.remove(user)),
            Subject::Root(root) => drop(copies.roots.remove(root)),
        }
    }

    /// What it has.
    #[must_use]
    pub fn copies(&self) -> Copies {
        lock(&self.shared).copies.clone()
    }
}

impl Shared {
    /// The version of a subject's copy, and whether more is known than that.
    fn known(&self, subject: &Subject) -> Option<(Version, bool)> {
        fn of<T>(copy: Option<&Copy<T>>) -> Option<(Version, bool)> {
            copy.map(|copy| (copy.version(), matches!(copy, Copy::Known(..))))
        }
        match subject {
            Subject::Author(author) => of(self.copies.authors.get(author)),
            Subject::User(user) => of(self.copies.users.get(user)),
            Subject::Root(root) => of(self.copies.roots.get(root)),
        }
    }

    fn apply(&mut self, change: &Change, now: Millis) {
        let subject = change.subject();
        let before = self.known(&subject);
        self.copies.apply(change, now);
        let is_floor = matches!(change.what, tidegate_core::feed::What::Floor(_));
        if is_floor && before.is_some_and(|(version, _)| version >= change.version) {
            // It was told already.
            return;
        }
        let is_known = self.known(&subject).is_some_and(|(_, is_known)| is_known);
        let mut event = Event::of(change);
        if !is_known {
            event.what = EventKind::Floor;
        }
        self.events.push_back(event);
        if self.events.len() > 10_000 {
            self.events.pop_front();
            self.first += 1;
        }
    }

    fn news(&self, position: &mut (u64, u64)) -> News {
        let next = self.first + self.events.len() as u64;
        let (flushes, at) = std::mem::replace(position, (self.flushes, next));
        if flushes != self.flushes || at < self.first {
            return News { lost: true, events: Vec::new() };
        }
        let skip = usize::try_from(at - self.first).unwrap_or(usize::MAX);
        News { lost: false, events: self.events.iter().skip(skip).cloned().collect() }
    }
}

impl FeedStore for MemoryStore {
    fn capabilities(&self) -> FeedCapabilities {
        FeedCapabilities { name: "double", shared: true }
    }

    fn apply<'a>(&'a self, changes: &'a [Change], now: Millis) -> BoxFuture<'a, Result<()>> {
        ready(self.faults.run(|| {
            let mut shared = lock(&self.shared);
            changes.iter().for_each(|change| shared.apply(change, now));
        }))
    }

    fn read(&self, reads: Reads) -> BoxFuture<'_, Result<Found>> {
        ready(self.faults.run(|| {
            let shared = lock(&self.shared);
            let copies = &shared.copies;
            lock(&self.sets_read).extend(reads.sets.iter().map(|read| read.author.clone()));
            self.heads_read.fetch_add(reads.heads.len() as u64, Ordering::SeqCst);
            let part =
                |read: &tidegate_backend::feed::SetRead| copies.part(&read.author, read.order, &read.beyond, read.max);
            Found {
                news: if reads.news { shared.news(&mut lock(&self.position)) } else { News::default() },
                heads: reads.heads.iter().map(|author| copies.head(author)).collect(),
                sets: reads.sets.iter().map(part).collect(),
                users: reads.users.iter().map(|user| copies.ties(user).cloned()).collect(),
                roots: reads.roots.iter().map(|read| copies.reposts(&read.root, read.among.as_deref())).collect(),
            }
        }))
    }

    fn fill(&self, fills: Vec<Fill>) -> BoxFuture<'_, Result<Vec<bool>>> {
        ready(self.faults.run(|| {
            let mut shared = lock(&self.shared);
            let mut fill = |fill: Fill| {
                shared.leases.remove(&fill.subject());
                shared.copies.fill(fill)
            };
            fills.into_iter().map(&mut fill).collect()
        }))
    }

    fn lease<'a>(&'a self, subjects: &'a [Subject]) -> BoxFuture<'a, Result<Vec<bool>>> {
        ready(self.faults.run(|| {
            let mut shared = lock(&self.shared);
            let mut lease = |subject: &Subject| {
                let is_free = shared.leases.get(subject).is_none_or(|at| at.elapsed() >= LEASE);
                if is_free {
                    shared.leases.insert(subject.clone(), Instant::now());
                }
                is_free
            };
            subjects.iter().map(&mut lease).collect()
        }))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
