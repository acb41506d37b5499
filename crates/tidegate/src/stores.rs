//! Back ends by their URLs: which ledger, which store for deadlines and the link between nodes.

use std::fmt;
use std::path::{Path, PathBuf};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(feature = "redis", any(feature = "mysql", feature = "postgres")))]
use crate::redis::Connector as Connection;
#[cfg(all(not(feature = "redis"), any(feature = "mysql", feature = "postgres")))]
use std::convert::Infallible as Connection;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use tidegate_backend::{Bus, CacheStore, DeadlineQueue, Ledger as _};
use tidegate_core::Settings;

use crate::{Error, Parts, Result};

/// A ledger and the store beside it, by their URLs:
///
/// | ledger | store | nodes |
/// | --- | --- | --- |
/// | `sqlite:PATH` | `embedded` | one: the process owns the file |
/// | `mysql://..`, `mariadb://..`, `postgres://..`, `postgresql://..` | `embedded` | one, or a few: each has an index of the deadlines of the orders it placed itself; those of a node that is gone are found by the others' sweep up to two seconds after they are due |
/// | the same | `redis://..`, `redis-sentinel://..`, `redis-cluster://..`, `rediss..://..` | any number |
///
/// Every node of a ledger must be opened with the same store, the same name and number of partitions in it, and the
/// same settings.
#[derive(Clone)]
pub struct Stores {
    ledger: Ledger,
    store: Store,
    settings: Settings,
    manual_clock: bool,
    stored_clock: bool,
    full_sync: bool,
    existing: bool,
    connections: usize,
    writers: usize,
    name: String,
    partitions: usize,
    response_timeout: Duration,
    authority: Option<Vec<u8>>,
    #[cfg(feature = "queue")]
    queues: Option<tidegate_backend::QueueOptions>,
    /// Queues lie in the ledger's database although there is a Redis.
    #[cfg(feature = "queue")]
    queues_in_database: bool,
    #[cfg(feature = "lock")]
    locks: bool,
    max_followees: usize,
}

#[derive(Clone)]
enum Ledger {
    Sqlite(PathBuf),
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        expect(dead_code, reason = "without these features such a ledger is refused before it is kept")
    )]
    Server(String),
}

#[derive(Clone)]
enum Store {
    Embedded,
    #[cfg_attr(
        not(all(feature = "redis", any(feature = "mysql", feature = "postgres"))),
        expect(
            dead_code,
            reason = "without these features such a store is refused before it is kept, or cannot be opened"
        )
    )]
    Redis(String),
}

/// The ledgers there are, for messages.
const LEDGERS: &str =
    "write sqlite:PATH, mysql://user:password@host/database or postgres://user:password@host/database";
/// The stores there are, for messages.
const STORES: &str = "write embedded, redis://host, redis-sentinel://host,host/service or redis-cluster://host,host";

fn unusable(why: impl Into<String>) -> Error {
    Error::Configuration(why.into())
}

/// Refuses an address whose user or password holds characters that end them in a URL: drivers would read a part of the
/// password as the host or the path.
fn is_escaped(url: &str) -> Result<()> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.find(['/', '?', '#']) {
        Some(end) if rest[end..].contains('@') => Err(unusable(
            "its user or password holds a character that has a meaning in a URL; write / as %2F, ? as %3F, # as %23, @ as \
             %40",
        )),
        _ => Ok(()),
    }
}

/// A database server's address, read as its driver does.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn server(url: &str) -> Result<Ledger> {
    tidegate_sql::SqlOptions::new(url).check()?;
    Ok(Ledger::Server(url.to_owned()))
}

/// Such an address is refused before it gets here.
#[cfg(not(any(feature = "mysql", feature = "postgres")))]
fn server(_: &str) -> Result<Ledger> {
    Err(unusable("this build has no ledger on a database server (features mysql, postgres)"))
}

impl Ledger {
    fn parse(url: &str) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.ends_with('/') || path == ":memory:" || path.contains(['?', '\0']) {
                return Err(unusable("it names no file; write sqlite:PATH, such as sqlite:tidegate-data/ledger.db"));
            }
            return Ok(Self::Sqlite(PathBuf::from(path)));
        }
        is_escaped(url)?;
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("mysql" | "mariadb") if cfg!(feature = "mysql") => server(url),
            Some("postgres" | "postgresql") if cfg!(feature = "postgres") => server(url),
            Some("mysql" | "mariadb" | "postgres" | "postgresql") => {
                Err(unusable("this build has no ledger on a database server (features mysql, postgres)"))
            }
            _ => Err(unusable(format!("it is no ledger; {LEDGERS}"))),
        }
    }
}

impl Store {
    fn parse(url: &str) -> Result<Self> {
        is_escaped(url)?;
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        match scheme {
            "" if url == "embedded" => Ok(Self::Embedded),
            "redis" | "rediss" | "redis-sentinel" | "rediss-sentinel" | "redis-cluster" | "rediss-cluster" => {
                #[cfg(feature = "redis")]
                {
                    tidegate_redis::RedisOptions::parse(url)?;
                    Ok(Self::Redis(url.to_owned()))
                }
                #[cfg(not(feature = "redis"))]
                Err(unusable("this build has no Redis (feature redis)"))
            }
            _ => Err(unusable(format!("it is no store; {STORES}"))),
        }
    }
}

impl Stores {
    /// The ledger at `ledger`, with the store `store`. Nothing is opened yet.
    ///
    /// # Errors
    /// [`Error::Configuration`]: what is wrong with the ledger's URL, or (see [`Stores::store`]) with the store's. No
    /// message repeats a URL, which may hold a password.
    pub fn new(ledger: &str) -> Result<Self> {
        Ok(Self {
            ledger: Ledger::parse(ledger)?,
            store: Store::Embedded,
            settings: Settings::default(),
            manual_clock: false,
            stored_clock: false,
            full_sync: true,
            existing: false,
            connections: 8,
            writers: 4,
            name: "shop".to_owned(),
            partitions: 16,
            response_timeout: Duration::from_millis(500),
            authority: None,
            #[cfg(feature = "queue")]
            queues: None,
            #[cfg(feature = "queue")]
            queues_in_database: false,
            #[cfg(feature = "lock")]
            locks: false,
            max_followees: tidegate_core::feed::DEFAULT_MAX_FOLLOWEES,
        })
    }

    /// Where deadlines are indexed and how nodes hear of each other; `embedded` unless set.
    ///
    /// # Errors
    /// [`Error::Configuration`]: what is wrong with the URL, or that it does not fit the ledger: one process owns a SQLite
    /// file, so nobody is there to share a store with.
    pub fn store(mut self, store: &str) -> Result<Self> {
        self.store = Store::parse(store)?;
        if matches!((&self.ledger, &self.store), (Ledger::Sqlite(_), Store::Redis(_))) {
            return Err(unusable(
                "one process owns a SQLite ledger, so there is no other node to share a store with; use embedded, or a \
                 ledger on MySQL, MariaDB or PostgreSQL",
            ));
        }
        Ok(self)
    }

    /// Whether `store` is the URL of a store, whatever the ledger is.
    ///
    /// # Errors
    /// [`Error::Configuration`]: what is wrong with it.
    pub fn check_store(store: &str) -> Result<()> {
        Store::parse(store).map(drop)
    }

    /// The rules' settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Order time stands still and moves only by hand (tests). A ledger made so must always be opened so.
    #[must_use]
    pub fn manual_clock(mut self, manual: bool) -> Self {
        self.manual_clock = manual;
        self
    }

    /// Takes whichever kind of clock the ledger has: for tools.
    #[must_use]
    pub fn stored_clock(mut self) -> Self {
        self.stored_clock = true;
        self
    }

    /// Opens only a ledger that is there already, and makes none: for tools.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.existing = true;
        self
    }

    /// SQLite only: whether each commit is synced to the disk before it is answered (default).
    #[must_use]
    pub fn full_sync(mut self, full: bool) -> Self {
        self.full_sync = full;
        self
    }

    /// Database servers only: connections for reads (`1..=256`, 8 unless set) and for commits (`1..=64`, 4 unless set).
    #[must_use]
    pub fn connections(mut self, reads: usize, commits: usize) -> Self {
        (self.connections, self.writers) = (reads, commits);
        self
    }

    /// Redis only: what its keys and its channel are named after, so that several shops can share a Redis; `shop` unless
    /// set. A name belongs to the first ledger that uses it; another one is refused.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Redis only: into how many partitions the index is divided (`1..=32`, 16 unless set); a Cluster spreads them. The
    /// same for every node.
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }

    /// Redis only: how long an answer may take (500 ms unless set).
    #[must_use]
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Redis only: trusts the authority in `pem` instead of the system's (`rediss://`).
    #[must_use]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Also opens general queues: in a file beside a SQLite ledger (`.queues` behind its name), in Redis, or, where there is
    /// none, in the database of the ledger. They run on real time, whatever the ledger's clock.
    #[cfg(feature = "queue")]
    #[must_use]
    pub fn queues(mut self, options: tidegate_backend::QueueOptions) -> Self {
        self.queues = Some(options);
        self
    }

    /// General queues lie in the ledger's database although there is a Redis: slower, and as durable as the ledger.
    #[cfg(feature = "queue")]
    #[must_use]
    pub fn queues_in_database(mut self, in_database: bool) -> Self {
        self.queues_in_database = in_database;
        self
    }

    /// Also has locks: in memory with a SQLite ledger, or in Redis. A ledger on a database server without Redis has none.
    #[cfg(feature = "lock")]
    #[must_use]
    pub fn locks(mut self) -> Self {
        self.locks = true;
        self
    }

    /// Most users that one follows; 20,000 unless set.
    #[must_use]
    pub fn max_followees(mut self, max: usize) -> Self {
        self.max_followees = max;
        self
    }

    /// The rules' settings they will be opened with.
    #[must_use]
    pub fn rules(&self) -> &Settings {
        &self.settings
    }

    /// The file of a SQLite ledger; `None` when a server holds it.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match &self.ledger {
            Ledger::Sqlite(path) => Some(path),
            Ledger::Server(_) => None,
        }
    }

    /// Opens them.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the options and the stores do not fit, there is no ledger and none must be made, another process owns the file, a newer version
    /// wrote the ledger, its clock is of the other kind, Redis would evict deadlines, or the name in Redis belongs to another
    /// ledger or to nodes that divide the index in another way;
    /// [`Error::LedgerUnavailable`] when the ledger cannot be read or written. A Redis that does not answer is no
    /// error: the instance begins degraded.
    pub async fn open(self) -> Result<Parts> {
        match &self.ledger {
            #[cfg(feature = "embedded")]
            Ledger::Sqlite(path) => {
                let mut embedded = crate::Embedded::at(path).settings(self.settings).full_sync(self.full_sync);
                embedded = embedded.manual_clock(self.manual_clock).max_followees(self.max_followees);
                if self.stored_clock {
                    embedded = embedded.stored_clock();
                }
                if self.existing {
                    embedded = embedded.existing();
                }
                #[cfg(feature = "queue")]
                if let Some(options) = self.queues {
                    embedded = embedded.queues(options);
                }
                #[cfg(feature = "lock")]
                if self.locks {
                    embedded = embedded.locks();
                }
                embedded.open().await
            }
            #[cfg(not(feature = "embedded"))]
            Ledger::Sqlite(_) => Err(unusable("this build has no SQLite ledger (feature embedded)")),
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            Ledger::Server(url) => self.open_server(url).await,
            #[cfg(not(any(feature = "mysql", feature = "postgres")))]
            Ledger::Server(_) => {
                Err(unusable("this build has no ledger on a database server (features mysql, postgres)"))
            }
        }
    }

    /// Opens the ledger on a database server. The store is reached first, so that a wrong one is told at once; whose its
    /// name is can be asked once the ledger is known.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    async fn open_server(&self, url: &str) -> Result<Parts> {
        let shared = self.connect().await?;
        let cache = match self.cache().await {
            Ok(cache) => cache,
            Err(e) => {
                #[cfg(feature = "redis")]
                if let Some(shared) = shared {
                    shared.close().await;
                }
                return Err(e);
            }
        };
        let mut options = tidegate_sql::SqlOptions::new(url);
        options.settings = self.settings;
        options.manual_clock = self.manual_clock;
        options.stored_clock = self.stored_clock;
        options.create = !self.existing;
        options.pool_size = self.connections;
        options.writers = self.writers;
        options.max_followees = self.max_followees;
        let ledger = match tidegate_sql::SqlLedger::open(options).await {
            Ok(ledger) => ledger,
            Err(e) => {
                #[cfg(feature = "redis")]
                if let Some(shared) = shared {
                    shared.close().await;
                }
                close(cache).await;
                return Err(e.into());
            }
        };
        let gate = Arc::new(tidegate_embedded::EmbeddedGate::new());
        let products = match self.products(url).await {
            Ok(products) => products,
            Err(e) => {
                #[cfg(feature = "redis")]
                if let Some(shared) = shared {
                    shared.close().await;
                }
                let _ = ledger.close().await;
                close(cache).await;
                return Err(e);
            }
        };
        let (deadlines, bus): (Arc<dyn DeadlineQueue>, Option<Arc<dyn Bus>>) = match shared {
            None => (Arc::new(tidegate_embedded::EmbeddedDeadlines::new()), None),
            #[cfg(feature = "redis")]
            Some(shared) => match crate::redis::open(shared, self.partitions, ledger.id()).await {
                Ok((deadlines, bus)) => (deadlines, Some(bus)),
                Err(e) => {
                    // It was only looked at; the refusal is what matters.
                    let _ = ledger.close().await;
                    products.close().await;
                    close(cache).await;
                    return Err(e.into());
                }
            },
            #[cfg(not(feature = "redis"))]
            Some(never) => match never {},
        };
        let Products { queues, locks, feed: feed_store } = products;
        let feed: Option<Arc<dyn tidegate_backend::FeedLedger>> = Some(ledger.clone());
        let settings = self.settings;
        Ok(Parts { ledger, gate, deadlines, bus, cache, hot_keys: None, queues, locks, feed, feed_store, settings })
    }

    /// General queues, locks, and copies of the feed.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    async fn products(&self, url: &str) -> Result<Products> {
        let mut products = Products::default();
        // On a connection of their own: an index of deadlines gives up a server that is full, and what they give back must
        // get through to it.
        let wanted = self.wants_products();
        let shared = if wanted { self.connect().await? } else { None };
        #[cfg(all(feature = "redis", feature = "queue"))]
        if let (Some(connector), Some(options), false) = (&shared, self.queues, self.queues_in_database) {
            products.queues = Some(Arc::new(tidegate_redis::RedisQueues::open(connector.clone(), options).await?));
        }
        #[cfg(feature = "queue")]
        if let (Some(bounds), None) = (self.queues, &products.queues) {
            let mut options = tidegate_sql::SqlQueueOptions::new(url);
            options.queues = bounds;
            products.queues = Some(tidegate_sql::SqlQueues::open(options).await?);
        }
        #[cfg(all(feature = "redis", feature = "lock"))]
        if let (Some(connector), true) = (&shared, self.locks) {
            products.locks = Some(Arc::new(tidegate_redis::RedisLocks::open(connector.clone())));
        }
        #[cfg(all(feature = "redis", feature = "feed"))]
        if let Some(connector) = &shared {
            let options = tidegate_redis::RedisFeedOptions::default();
            products.feed = Some(Arc::new(tidegate_redis::RedisFeed::open(connector.clone(), options)?));
        }
        #[cfg(not(all(feature = "redis", any(feature = "queue", feature = "lock", feature = "feed"))))]
        let _ = (url, shared, &mut products);
        Ok(products)
    }

    /// Whether general queues, locks or copies of the feed lie in the store that nodes share.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    fn wants_products(&self) -> bool {
        if cfg!(feature = "feed") {
            return true;
        }
        #[cfg(feature = "queue")]
        if self.queues.is_some() && !self.queues_in_database {
            return true;
        }
        #[cfg(feature = "lock")]
        if self.locks {
            return true;
        }
        false
    }

    /// How the nodes' Redis is used.
    #[cfg(all(feature = "redis", any(feature = "mysql", feature = "postgres")))]
    fn shared<'a>(&'a self, url: &'a str) -> crate::redis::Shared<'a> {
        crate::redis::Shared {
            url,
            name: &self.name,
            response_timeout: self.response_timeout,
            authority: self.authority.as_deref(),
        }
    }

    /// Where cached entries lie, where nodes share that.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    async fn cache(&self) -> Result<Option<Arc<dyn CacheStore>>> {
        match &self.store {
            #[cfg(all(feature = "redis", feature = "cache"))]
            Store::Redis(url) => Ok(Some(crate::redis::cache(&self.shared(url)).await?)),
            _ => Ok(None),
        }
    }

    /// The connection to a store that nodes share, where there is one.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    async fn connect(&self) -> Result<Option<Connection>> {
        match &self.store {
            Store::Embedded => Ok(None),
            #[cfg(feature = "redis")]
            Store::Redis(url) => Ok(Some(crate::redis::connect(&self.shared(url)).await?)),
            #[cfg(not(feature = "redis"))]
            Store::Redis(_) => Err(unusable("this build has no Redis (feature redis)")),
        }
    }
}

/// Stores of general queues, of locks, and of copies of the feed.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Default)]
struct Products {
    queues: Option<Arc<dyn tidegate_backend::QueueStore>>,
    locks: Option<Arc<dyn tidegate_backend::LockStore>>,
    feed: Option<Arc<dyn tidegate_backend::FeedStore>>,
}

#[cfg(all(feature = "redis", any(feature = "mysql", feature = "postgres")))]
impl Products {
    /// Nobody will use them.
    async fn close(self) {
        if let Some(queues) = self.queues {
            queues.close().await;
        }
        if let Some(locks) = self.locks {
            locks.close().await;
        }
        if let Some(feed) = self.feed {
            feed.close().await;
        }
    }
}

/// A store that nobody will use.
#[cfg(any(feature = "mysql", feature = "postgres"))]
async fn close(cache: Option<Arc<dyn CacheStore>>) {
    if let Some(cache) = cache {
        cache.close().await;
    }
}

/// Without the URLs, which may hold passwords.
impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("file", &self.file()).field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
