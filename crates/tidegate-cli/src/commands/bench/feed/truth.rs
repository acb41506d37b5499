//! The ledgers that the community is loaded into, and a look at what is asked of one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tidegate::bare_feed::{
    FeedCommit, MAX_OUTBOX_BATCH, Result as Answer, SqlLedger, SqlOptions, SqliteLedger, SqliteOptions,
};
use tidegate::cache::Outbox;
use tidegate::core::Millis;
use tidegate::core::feed::{AuthorSet, Edge, Entry, Repost, StoredPost, Ties, Version};
use tidegate::feed::{Ask, Command, FeedLedger, MAX_FEED_COMMANDS, MAX_FEED_POSTS, Order, Post, PostId, UserId};
use tidegate::{BoxFuture, Clock, Page, PageRequest};

use super::broken;
use super::community::Community;
use crate::commands::bench::deadlines::side::Side;
use crate::commands::bench::deadlines::way::Kind;
use crate::failure::{Failure, Result};

/// Batches on their way at once.
const LOADERS: usize = 2;
/// So that what was marked has been for a while.
const A_MOMENT: Duration = Duration::from_millis(20);
/// What the servers get beyond their defaults, so that all of the community is in memory.
const POSTGRES: [&str; 2] = ["shared_buffers=1GB", "max_wal_size=1GB"];
const MARIADB: [&str; 2] = ["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M"];

/// A ledger that has the community.
#[derive(Clone)]
pub enum Truth {
    Sqlite(Arc<SqliteLedger>),
    Sql(Arc<SqlLedger>, &'static str),
}

/// A database server of this run's own, or none.
pub struct Server {
    name: &'static str,
    side: Side,
}

impl Server {
    /// A private PostgreSQL.
    pub fn postgres(parent: &Path) -> Result<Self> {
        Ok(Self { name: "PostgreSQL", side: Side::postgres_with(parent, &POSTGRES)? })
    }

    /// A private MariaDB.
    pub fn mariadb(parent: &Path) -> Result<Self> {
        Ok(Self { name: "MariaDB", side: Side::mariadb_with(parent, &MARIADB)? })
    }

    /// Opens a ledger on it.
    pub async fn open(&self) -> Result<Truth> {
        let Kind::Sql { url } = self.side.kind() else { return Err(broken("it is no database server")) };
        Ok(Truth::Sql(SqlLedger::open(SqlOptions::new(url)).await.map_err(broken)?, self.name))
    }
}

impl Truth {
    /// A ledger in a file.
    pub async fn sqlite(file: &Path) -> Result<Self> {
        Ok(Self::Sqlite(SqliteLedger::open(SqliteOptions::new(file)).await.map_err(broken)?))
    }

    /// In a figure.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Sql(_, name) => name,
        }
    }

    /// The ledger.
    pub fn ledger(&self) -> Arc<dyn FeedLedger> {
        match self {
            Self::Sqlite(ledger) => Arc::clone(ledger) as _,
            Self::Sql(ledger, _) => Arc::clone(ledger) as _,
        }
    }

    /// Its outbox.
    pub fn outbox(&self) -> Arc<dyn Outbox> {
        match self {
            Self::Sqlite(ledger) => Arc::clone(ledger) as _,
            Self::Sql(ledger, _) => Arc::clone(ledger) as _,
        }
    }

    /// The page of a plain join.
    pub async fn page_by_join(&self, ask: &Ask) -> Result<Vec<Post>> {
        let page = match self {
            Self::Sqlite(ledger) => ledger.page_by_join(ask).await,
            Self::Sql(ledger, _) => ledger.page_by_join(ask).await,
        };
        Ok(page.map_err(broken)?.into_iter().map(|(_, post)| post).collect())
    }

    /// Loads the community; seconds for posts, for follows, and for the join's index.
    pub async fn load(&self, community: &Community) -> Result<[f64; 3]> {
        let began = Instant::now();
        self.commit_all(community.publications(MAX_FEED_POSTS)).await?;
        let posted = began.elapsed().as_secs_f64();
        self.commit_all(community.followings(MAX_FEED_COMMANDS)).await?;
        let followed = began.elapsed().as_secs_f64();
        match self {
            Self::Sqlite(ledger) => ledger.prepare_join().await,
            Self::Sql(ledger, _) => ledger.prepare_join().await,
        }
        .map_err(broken)?;
        Ok([posted, followed - posted, began.elapsed().as_secs_f64() - followed])
    }

    /// Commits batches that nobody is told of: nobody has copies of what they change.
    pub async fn commit_all(&self, batches: impl Iterator<Item = Vec<Command>>) -> Result {
        let (ledger, outbox) = (self.ledger(), self.outbox());
        let commit = |batch: Vec<Command>| {
            let (ledger, outbox) = (&ledger, &outbox);
            async move {
                let commit = ledger.commit(batch.into()).await.map_err(broken)?;
                let ids: Vec<i64> = commit.outbox.iter().map(|entry| entry.id).collect();
                for ids in ids.chunks(MAX_OUTBOX_BATCH) {
                    outbox.mark_delivered(ids).await.map_err(broken)?;
                }
                Ok::<_, Failure>(())
            }
        };
        stream::iter(batches).map(commit).buffer_unordered(LOADERS).try_collect::<()>().await?;
        // Else whoever opens a feed within a minute is told all of it again.
        tokio::time::sleep(A_MOMENT).await;
        while self.outbox().prune(Duration::ZERO).await.map_err(broken)? {}
        Ok(())
    }
}

/// A ledger that counts what is asked of it.
pub struct Counted {
    ledger: Arc<dyn FeedLedger>,
    /// Statements that read.
    pub reads: AtomicU64,
    /// How often each author's set was read.
    authors: std::sync::Mutex<HashMap<UserId, u64>>,
}

impl Counted {
    /// Of this one.
    pub fn new(ledger: Arc<dyn FeedLedger>) -> Arc<Self> {
        Arc::new(Self { ledger, reads: AtomicU64::new(0), authors: std::sync::Mutex::default() })
    }

    /// Statements so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Authors whose sets were read since this was asked last, and the most reads that one had.
    pub fn take_authors(&self) -> (usize, u64) {
        let authors = std::mem::take(&mut *self.authors.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        (authors.len(), authors.values().copied().max().unwrap_or(0))
    }

    fn count(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl FeedLedger for Counted {
    fn name(&self) -> &'static str {
        self.ledger.name()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.ledger.clock()
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Answer<FeedCommit>> {
        self.ledger.commit(commands)
    }

    fn delete_user<'a>(&'a self, user: &'a UserId) -> BoxFuture<'a, Answer<(FeedCommit, bool)>> {
        self.ledger.delete_user(user)
    }

    fn posts<'a>(&'a self, ids: &'a [PostId]) -> BoxFuture<'a, Answer<Vec<Option<StoredPost>>>> {
        self.count();
        self.ledger.posts(ids)
    }

    fn authors<'a>(&'a self, authors: &'a [UserId], from: Millis) -> BoxFuture<'a, Answer<Vec<AuthorSet>>> {
        self.count();
        let mut all = self.authors.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        authors.iter().for_each(|author| *all.entry(author.clone()).or_default() += 1);
        drop(all);
        self.ledger.authors(authors, from)
    }

    fn entries<'a>(
        &'a self,
        author: &'a UserId,
        order: Order,
        beyond: &'a Edge,
        max: usize,
    ) -> BoxFuture<'a, Answer<Vec<Entry>>> {
        self.count();
        self.ledger.entries(author, order, beyond, max)
    }

    fn ties<'a>(&'a self, users: &'a [UserId]) -> BoxFuture<'a, Answer<Vec<Ties>>> {
        self.count();
        self.ledger.ties(users)
    }

    fn reposts<'a>(
        &'a self,
        root: &'a PostId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> BoxFuture<'a, Answer<(Version, Vec<Repost>)>> {
        self.count();
        self.ledger.reposts(root, after, limit)
    }

    fn reposts_by<'a>(&'a self, root: &'a PostId, users: &'a [UserId]) -> BoxFuture<'a, Answer<Vec<Repost>>> {
        self.count();
        self.ledger.reposts_by(root, users)
    }

    fn follows<'a>(&'a self, user: &'a UserId, page: PageRequest) -> BoxFuture<'a, Answer<Page<(UserId, Millis)>>> {
        self.count();
        self.ledger.follows(user, page)
    }
}
