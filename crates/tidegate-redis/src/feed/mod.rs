//! Copies that the feed's pages are made from, on Redis and Valkey.
//!
//! - [`wire`]: copies as Redis holds them. [`news`]: what changed, and whether some of it was missed.
//! - [`read`], [`write`]: reads, changes, fills and leases as commands and scripts. [`watch`]: which server it is.
//!
//! Every copy lies in the partition of its name, with the news of it: so copy and news change in one script, in a Cluster as
//! well. A server alone has one partition, since that makes the news one command. Every key expires.
//!
//! What the server loses is unknown and filled again. A server that was started again, or has replaced another, may lack what
//! was acknowledged, and have what is old: it is not read until that is made up for ([`watch`]).

mod news;
mod read;
mod watch;
mod wire;
mod write;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Value;
use tidegate_backend::feed::{FeedCapabilities, Found, News, Reads};
use tidegate_backend::{BoxFuture, Error, ErrorKind, FeedStore, Result};
use tidegate_core::Millis;
use tidegate_core::feed::{Change, Fill, Subject};
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_64;

use self::news::{Id, Position, Read};
use crate::connect::{Call, Connector};
use crate::keys::{FEED_PARTS, Keys};
use crate::scripts;
use crate::tasks::Tasks;

/// How often a read of the news is begun anew because some are lost.
const MAX_LOSSES: usize = 3;
/// How long idle news are kept, milliseconds.
const NEWS_KEPT_MS: &str = "86400000";

/// How a feed uses its Redis.
#[derive(Debug, Clone)]
pub struct RedisFeedOptions {
    /// About how many changes the news of a partition go back (100..=1,000,000; 10,000 by default). A process that falls further
    /// behind forgets what it knows of authors.
    pub news_kept: usize,
}

impl Default for RedisFeedOptions {
    fn default() -> Self {
        Self { news_kept: 10_000 }
    }
}

/// Copies of authors' posts, users' ties and roots' reposts in Redis or Valkey, shared by every process that names the same
/// server and name.
///
/// The news are those since this value gave some last: whoever looks after a mirror of its own opens one of his own.
pub struct RedisFeed {
    inner: Arc<Inner>,
    tasks: Tasks,
}

struct Inner {
    connector: Connector,
    keys: Keys,
    options: RedisFeedOptions,
    parts: usize,
    news: Positions,
    /// Counts how often a partition was seen on another server than before.
    servers: AtomicU64,
    /// How often the last floors are to be repeated to another server than before, how often that was asked for, and done.
    due: AtomicU64,
    asked: AtomicU64,
    repeated: AtomicU64,
    /// By partition: the server that lacks what the last floors tell.
    doubted: Mutex<Vec<Option<Vec<u8>>>>,
    /// There is a server that is not read for now.
    strange: Notify,
}

/// Where in the news of each partition this process is.
struct Positions {
    read: Mutex<Vec<Option<Position>>>,
    /// The last of each that it has told.
    told: Mutex<Vec<Option<Id>>>,
}

fn locked<T>(all: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    // Each step leaves them whole.
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Positions {
    fn has_told(&self, part: usize, id: Id) {
        let told = &mut locked(&self.told)[part];
        *told = (*told).max(Some(id));
    }

    /// Forgets what was told, unless something was since.
    fn forget_told(&self, part: usize, last: Option<Id>) {
        let told = &mut locked(&self.told)[part];
        *told = (*told).filter(|_| *told != last);
    }
}

impl RedisFeed {
    /// Opens the copies under the name of `connector`'s options, in the runtime this is called in. A server that cannot be reached is no error: calls fail until
    /// it can. One whose `maxmemory-policy` is not `noeviction` is not read: it may delete floors.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: a bound makes no sense.
    pub fn open(connector: Connector, options: RedisFeedOptions) -> Result<Self> {
        if !(100..=1_000_000).contains(&options.news_kept) {
            let why = format!("the news of a feed go back 100 to 1,000,000 changes, not {}", options.news_kept);
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        connector.bear_refusals();
        let parts = if connector.is_cluster() { FEED_PARTS } else { 1 };
        let keys = Keys::new(&connector.options().name);
        let news = Positions { read: Mutex::new(vec![None; parts]), told: Mutex::new(vec![None; parts]) };
        let inner = Arc::new(Inner {
            connector,
            keys,
            options,
            parts,
            news,
            servers: AtomicU64::new(0),
            due: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            doubted: Mutex::new(vec![None; parts]),
            strange: Notify::new(),
        });
        let tasks = Tasks::new(vec![tokio::spawn(watch::run(Arc::clone(&inner)))]);
        Ok(Self { inner, tasks })
    }

    /// The connection it uses.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.inner.connector
    }
}

impl Inner {
    fn part(&self, name: &str) -> usize {
        if self.parts == 1 { 0 } else { (xxh3_64(name.as_bytes()) % self.parts as u64) as usize }
    }

    /// Which of the names lie in each partition that has some.
    fn by_part<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<(usize, Vec<usize>)> {
        let mut parts: Vec<(usize, Vec<usize>)> = (0..self.parts).map(|part| (part, Vec::new())).collect();
        names.enumerate().for_each(|(n, name)| parts[self.part(name)].1.push(n));
        parts.retain(|(_, which)| !which.is_empty());
        parts
    }

    async fn read(&self, reads: &Reads) -> Result<Found> {
        reads.check()?;
        self.refuse_eviction()?;
        if reads.news {
            return self.read_with_news(reads).await;
        }
        let mut plan = self.plan(reads);
        let answers = self.connector.run(plan.take_calls()).await;
        plan.found(answers.into_iter())
    }

    /// Positions move once the news are given: whoever gives up waiting has taken none.
    async fn read_with_news(&self, reads: &Reads) -> Result<Found> {
        let era = self.era();
        let told = locked(&self.news.told).clone();
        let mut at = locked(&self.news.read).clone();
        // Another server may lack the newest.
        at.iter_mut().for_each(|position| *position = position.filter(|position| position.era == era));
        let mut lost = false;
        for _ in 0..=MAX_LOSSES {
            lost |= self.begin(&mut at, era).await?;
            let positions: Vec<Position> = at.iter().flatten().copied().collect();
            let mut plan = self.plan(reads);
            let streams = positions.iter().enumerate();
            let mut calls: Vec<Call> =
                streams.map(|(part, position)| news::ask(&self.keys.feed_news(part), position)).collect();
            calls.extend(plan.take_calls());
            let mut answers = self.connector.run(calls).await.into_iter();
            let mut events = Vec::new();
            let of_news: Vec<Result<Value>> = answers.by_ref().take(self.parts).collect();
            for (part, answer) in of_news.into_iter().enumerate() {
                at[part] = self.follow(part, positions[part], answer, told[part], lost, &mut events).await?;
            }
            if at.iter().all(Option::is_some) {
                let found = plan.found(answers)?;
                // The loss of what was told is said once, and not before somebody hears it.
                for (part, at) in at.iter().enumerate() {
                    if at.map(|at| at.id) < told[part] {
                        self.news.forget_told(part, told[part]);
                    }
                }
                *locked(&self.news.read) = at;
                return Ok(Found { news: News { lost, events }, ..found });
            }
            lost = true;
        }
        Err(news::restless())
    }

    /// Finds the end of the news where it is not known; whether that was so anywhere.
    async fn begin(&self, at: &mut [Option<Position>], era: (u64, u64)) -> Result<bool> {
        let unknown: Vec<usize> = (0..at.len()).filter(|part| at[*part].is_none()).collect();
        let call = |part: &usize| {
            let arguments = vec![NEWS_KEPT_MS.into(), news::begun(), watch::now(), watch::MARK_KEPT_MS.into()];
            let keys = vec![self.keys.feed_news(*part), self.keys.feed_mark(*part)];
            Call::script(&scripts::FEED_BEGIN, keys, arguments)
        };
        let answers = self.connector.run(unknown.iter().map(call).collect()).await;
        for (part, answer) in unknown.iter().zip(answers) {
            let answer = match answer {
                Err(e) if e.kind() == ErrorKind::Corrupt => {
                    self.mend(*part, std::iter::empty()).await?;
                    self.connector.one(call(part)).await
                }
                answer => answer,
            };
            let Some(position) = news::begin(&answer?, era)? else {
                self.strange.notify_one();
                return Err(watch::strange());
            };
            at[*part] = Some(position);
        }
        Ok(!unknown.is_empty())
    }

    /// Reads on to the end of a partition's news; `None`: some are lost.
    async fn follow(
        &self,
        part: usize,
        mut position: Position,
        mut answer: Result<Value>,
        told: Option<Id>,
        lost: bool,
        events: &mut Vec<tidegate_backend::feed::Event>,
    ) -> Result<Option<Position>> {
        loop {
            let entries = match answer {
                Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(None),
                answer => answer?,
            };
            // What cannot be read is a stranger's, and as good as lost.
            match news::follow(&position, &entries, events).unwrap_or(Read::Lost) {
                Read::Lost => return Ok(None),
                Read::On(next, true) => {
                    position = next;
                    answer = self.connector.one(news::ask(&self.keys.feed_news(part), &position)).await;
                }
                // What this process told is not there: a master has replaced another that had it.
                Read::On(next, false) if Some(next.id) < told && !lost => return Ok(None),
                Read::On(next, false) => return Ok(Some(next)),
            }
        }
    }
}

impl FeedStore for RedisFeed {
    fn capabilities(&self) -> FeedCapabilities {
        FeedCapabilities { name: "redis", shared: true }
    }

    fn apply<'a>(&'a self, changes: &'a [Change], now: Millis) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.inner.apply(changes, now))
    }

    fn read(&self, reads: Reads) -> BoxFuture<'_, Result<Found>> {
        Box::pin(async move { self.inner.read(&reads).await })
    }

    fn fill(&self, fills: Vec<Fill>) -> BoxFuture<'_, Result<Vec<bool>>> {
        Box::pin(async move {
            self.inner.refuse_eviction()?;
            self.inner.fill(&fills).await
        })
    }

    fn lease<'a>(&'a self, subjects: &'a [Subject]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(self.inner.lease(subjects))
    }

    fn wants_repeat(&self) -> bool {
        self.inner.wants_repeat()
    }

    fn repeated(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.inner.repeated())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.tasks.ended())
    }
}

impl std::fmt::Debug for RedisFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisFeed").field("parts", &self.inner.parts).finish_non_exhaustive()
    }
}
