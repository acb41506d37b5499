//! The embedded back ends: SQLite beside the process, gate and deadlines in it. No server needed.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_backend::{FeedLedger, Ledger};
use tidegate_core::Settings;
use tidegate_embedded::{EmbeddedDeadlines, EmbeddedGate, SqliteLedger};

use crate::{Parts, Result};

/// How to open the embedded back ends.
#[derive(Debug, Clone)]
pub struct Embedded {
    path: PathBuf,
    settings: Settings,
    manual_clock: bool,
    stored_clock: bool,
    full_sync: bool,
    create: bool,
    #[cfg(feature = "queue")]
    queues: Option<tidegate_backend::QueueOptions>,
    #[cfg(feature = "lock")]
    locks: bool,
    max_followees: usize,
}

impl Embedded {
    /// The ledger in the SQLite file at `path`; it and its folder are created when missing. One process owns it. With the
    /// feature `cache`, a file beside it, with `.hot` behind its name, keeps which product pages are read most.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            settings: Settings::default(),
            manual_clock: false,
            stored_clock: false,
            full_sync: true,
            create: true,
            #[cfg(feature = "queue")]
            queues: None,
            #[cfg(feature = "lock")]
            locks: false,
            max_followees: tidegate_core::feed::DEFAULT_MAX_FOLLOWEES,
        }
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

    /// Takes whichever kind of clock the ledger has: for tools that open a stopped ledger.
    #[must_use]
    pub fn stored_clock(mut self) -> Self {
        self.stored_clock = true;
        self
    }

    /// Whether each commit is synced to the disk before it is answered (default). Without, the loss of power (not a
    /// crash of the process) may take the last commits.
    #[must_use]
    pub fn full_sync(mut self, full: bool) -> Self {
        self.full_sync = full;
        self
    }

    /// Opens only a file that is a ledger already: for tools.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.create = false;
        self
    }

    /// Also opens general queues, in a file beside the ledger, with `.queues` behind its name.
    #[cfg(feature = "queue")]
    #[must_use]
    pub fn queues(mut self, options: tidegate_backend::QueueOptions) -> Self {
        self.queues = Some(options);
        self
    }

    /// Also has locks, in memory.
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

    /// Opens the ledger.
    ///
    /// # Errors
    /// [`crate::Error::Configuration`] when it is no ledger and must not be made one, another process owns the file, a newer version wrote it, or its clock is of the
    /// other kind; [`crate::Error::LedgerUnavailable`] when it cannot be read or written.
    pub async fn open(self) -> Result<Parts> {
        let mut hot_keys = self.path.clone().into_os_string();
        hot_keys.push(".hot");
        #[cfg(feature = "queue")]
        let queues_file = {
            let mut file = self.path.clone().into_os_string();
            file.push(".queues");
            PathBuf::from(file)
        };
        let mut options = tidegate_embedded::Options::new(self.path);
        options.settings = self.settings;
        options.manual_clock = self.manual_clock;
        options.stored_clock = self.stored_clock;
        options.create = self.create;
        options.synchronous =
            if self.full_sync { tidegate_embedded::Synchronous::Full } else { tidegate_embedded::Synchronous::Normal };
        #[cfg(feature = "queue")]
        let synchronous = options.synchronous;
        options.max_followees = self.max_followees;
        let sqlite = SqliteLedger::open(options).await?;
        let feed: Arc<dyn FeedLedger> = sqlite.clone();
        let ledger: Arc<dyn Ledger> = sqlite;
        #[cfg(feature = "queue")]
        let queues = match self.queues {
            None => None,
            Some(bounds) => match open_queues(queues_file, bounds, synchronous).await {
                Ok(queues) => Some(queues),
                Err(e) => {
                    // It was only looked at; the refusal is what matters.
                    let _ = ledger.close().await;
                    return Err(e.into());
                }
            },
        };
        #[cfg(not(feature = "queue"))]
        let queues = None;
        #[cfg(feature = "lock")]
        let locks = self.locks.then(|| Arc::new(tidegate_embedded::EmbeddedLocks::new(real_time())) as _);
        #[cfg(not(feature = "lock"))]
        let locks = None;
        let feed_store = tidegate_embedded::MemoryFeed::new(&tidegate_embedded::MemoryFeedOptions::default())?;
        Ok(Parts {
            ledger,
            gate: Arc::new(EmbeddedGate::new()),
            deadlines: Arc::new(EmbeddedDeadlines::new()),
            bus: None,
            cache: None,
            hot_keys: Some(hot_keys.into()),
            queues,
            locks,
            feed: Some(feed),
            feed_store: Some(Arc::new(feed_store)),
            settings: self.settings,
        })
    }
}

/// The clock of queues and locks: real time, whatever clock the ledger has.
#[cfg(any(feature = "queue", feature = "lock"))]
fn real_time() -> Arc<dyn tidegate_backend::Clock> {
    Arc::new(tidegate_embedded::EmbeddedClock::new(None))
}

#[cfg(feature = "queue")]
async fn open_queues(
    file: PathBuf,
    bounds: tidegate_backend::QueueOptions,
    synchronous: tidegate_embedded::Synchronous,
) -> tidegate_backend::Result<Arc<dyn tidegate_backend::QueueStore>> {
    let mut options = tidegate_embedded::SqliteQueueOptions::new(file);
    options.queues = bounds;
    options.synchronous = synchronous;
    Ok(tidegate_embedded::SqliteQueues::open(options, real_time()).await?)
}
