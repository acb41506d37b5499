//! Opens a ledger file: folder, lock, connections, schema, clock.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tidegate_backend::{Clock, Error, ErrorKind, LedgerId, ManualClock, Result};
use tidegate_core::feed::DEFAULT_MAX_FOLLOWEES;
use tidegate_core::{Millis, Settings};

use super::buyers::Buyers;
use super::checkpoint::{Checkpointer, Dirty, checkpoint};
use super::lane::Lane;
use super::lock::{self, Lock};
use super::migrate::Schema;
use super::writer::Writer;
use super::{fault, migrate, row, upkeep};
use crate::EmbeddedClock;

/// The first SQLite without the WAL-reset fault that could corrupt a file.
const LEAST_SQLITE: i32 = 3_051_003;
/// Statements a connection keeps prepared; every statement of the ledger fits.
const STATEMENTS: usize = 128;
/// Longest wait for another connection's lock. Only checkpoints ever hold one.
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// Waiting commits. Group commit in front keeps one or two in flight.
const WRITER_QUEUE: usize = 64;
/// Waiting reads.
const READER_QUEUE: usize = 256;
/// Waiting long reads.
const AUDIT_QUEUE: usize = 4;
/// The key of the manual clock's row in `meta`.
pub(super) const MANUAL_CLOCK: &str = "manual_clock";
/// The key of the ledger's own number.
const LEDGER_ID: &str = "ledger_id";
/// The key under which the instant last shown is kept at a close, so that time goes on from there.
pub(super) const LAST_CLOCK: &str = "last_clock";
/// The key of the newest commit's instant of the feed, whose rows are in no order of time.
pub(super) const FEED_CLOCK: &str = "feed_clock";

/// When a commit counts as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// Synced to the disk at each commit: survives the loss of power.
    #[default]
    Full,
    /// Left to the operating system: survives a crash of the process; the loss of power may take the last commits.
    Normal,
}

/// How to open a ledger.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The file; it and its folder are created when missing, if `create` says so.
    pub path: PathBuf,
    /// What the rules may be set to.
    pub settings: Settings,
    /// Most users that one follows (default 20,000).
    pub max_followees: usize,
    /// Order time stands still and moves only by `advance` (tests). Its value is a row of the ledger.
    pub manual_clock: bool,
    /// Takes whichever kind of clock the ledger has, for tools that open a stopped one; `manual_clock` is not asked then.
    pub stored_clock: bool,
    /// Creates file and folder where there are none (default); without, only a file that is a ledger is opened.
    pub create: bool,
    /// When a commit counts as durable.
    pub synchronous: Synchronous,
    /// Page cache of the writer, KiB (default 32,768).
    pub writer_cache_kib: u32,
    /// Page cache of each reader, KiB (default 4,096).
    pub reader_cache_kib: u32,
    /// Reading threads, `1..=64` (default 2).
    pub readers: usize,
    /// Largest size of the file in pages; for tests of a full disk.
    #[doc(hidden)]
    pub max_pages: Option<u32>,
}

impl Options {
    /// The ledger at `path` with the defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            settings: Settings::default(),
            max_followees: DEFAULT_MAX_FOLLOWEES,
            manual_clock: false,
            stored_clock: false,
            create: true,
            synchronous: Synchronous::Full,
            writer_cache_kib: 32 << 10,
            reader_cache_kib: 4 << 10,
            readers: 2,
            max_pages: None,
        }
    }
}

/// Everything an open ledger is made of. Dropped from top to bottom: the lock goes last. The two that nobody calls can
/// be taken out, since calls in flight may keep the whole alive a little longer than `close`.
pub(super) struct Parts {
    pub checkpointer: Mutex<Option<Checkpointer>>,
    pub readers: Lane<Connection>,
    pub audits: Lane<Connection>,
    pub writer: Arc<Lane<Writer>>,
    pub id: LedgerId,
    pub clock: Arc<dyn Clock>,
    /// The outbox's: it runs on where `clock` stands still.
    pub real_clock: Arc<dyn Clock>,
    pub buyers: Arc<Buyers>,
    pub lock: Mutex<Option<Lock>>,
}

impl Parts {
    /// Ends every thread, empties the write-ahead log and gives the file back; this blocks.
    pub(super) fn close(&self) -> Result<()> {
        drop(self.checkpointer.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.readers.close();
        self.audits.close();
        let shown = self.clock.status();
        if !shown.manual {
            let stored =
                self.writer.run_blocking(move |w| w.transact(|conn| upkeep::store_last_clock(conn, shown.now)));
            if let Err(e) = stored {
                tracing::warn!(error = %e, "the clock's last instant could not be kept; a full disk does that");
            }
        }
        let copied = self.writer.run_blocking(|w| checkpoint(&w.conn, "TRUNCATE").map_err(fault::writing));
        self.writer.close();
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        copied.map(|_| ())
    }
}

/// Locks the file, opens the writer's connection and brings the file up to date.
pub(super) fn open_file(options: &Options, schema: &Schema) -> Result<(Connection, Lock)> {
    let version = rusqlite::version_number();
    if version < LEAST_SQLITE {
        let context = format!("SQLite {} can corrupt a file; build with 3.51.3 or newer", rusqlite::version());
        return Err(Error::new(ErrorKind::Configuration, context));
    }
    look(options, schema)?;
    create_folder(&options.path)?;
    let lock = lock::take(&options.path, schema.what)?;
    let mut conn = connect(options, schema, Role::Writer)?;
    migrate::run(&mut conn, schema)?;
    Ok((conn, lock))
}

/// Opens the ledger; this blocks.
pub(super) fn open(options: &Options) -> Result<Parts> {
    let (conn, lock) = open_file(options, &migrate::LEDGER)?;
    let id = id(&conn)?;
    let clock = clock(&conn, options)?;
    let real_clock = if clock.status().manual { Arc::new(EmbeddedClock::new(None)) } else { clock.clone() };
    let readers = (0..options.readers.clamp(1, 64))
        .map(|_| connect(options, &migrate::LEDGER, Role::Reader))
        .collect::<Result<_>>()?;
    let auditor = connect(options, &migrate::LEDGER, Role::Reader)?;
    let copier = connect(options, &migrate::LEDGER, Role::Checkpoint)?;
    let dirty = Arc::new(Dirty::default());
    // Not on the writer: what is read once would fill its cache.
    let buyers = Arc::new(Buyers::load(&auditor).map_err(fault::reading)?);
    let writer = Writer {
        conn,
        clock: clock.clone(),
        real_clock: real_clock.clone(),
        settings: options.settings,
        max_followees: options.max_followees,
        dirty: dirty.clone(),
        buyers: buyers.clone(),
        last: None,
    };
    let writer = Arc::new(Lane::start("tidegate-write", vec![writer], WRITER_QUEUE)?);
    Ok(Parts {
        checkpointer: Mutex::new(Some(Checkpointer::start(copier, dirty, writer.clone())?)),
        readers: Lane::start("tidegate-read", readers, READER_QUEUE)?,
        audits: Lane::start("tidegate-audit", vec![auditor], AUDIT_QUEUE)?,
        writer,
        id,
        clock,
        real_clock,
        buyers,
        lock: Mutex::new(Some(lock)),
    })
}

/// Refuses a file that is none of ours before anything is written, be it a lock or a journal mode.
fn look(options: &Options, schema: &Schema) -> Result<()> {
    let (path, size) = (&options.path, std::fs::metadata(&options.path).map_or(0, |file| file.len()));
    if size == 0 {
        if options.create {
            return Ok(());
        }
        return Err(no_ledger(path));
    }
    // A ledger that was killed has rows, perhaps all of them, in the log: the writer's connection will look.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        return Ok(());
    }
    let look = || {
        let conn =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.busy_timeout(BUSY)?;
        migrate::kind(&conn, schema)
    };
    match look().map_err(|e| cannot_open(path, schema, e))? {
        migrate::Kind::Ours => Ok(()),
        migrate::Kind::Empty if options.create => Ok(()),
        migrate::Kind::Empty => Err(no_ledger(path)),
        migrate::Kind::Foreign => Err(migrate::foreign(schema)),
    }
}

fn no_ledger(path: &Path) -> Error {
    let text = format!(
        "there is no Tidegate ledger in {}; name another file, or start `tidegate serve` on it to make one",
        path.display()
    );
    Error::new(ErrorKind::Configuration, text)
}

fn cannot_open(path: &Path, schema: &Schema, e: rusqlite::Error) -> Error {
    let cause = fault::reading_of(schema.what, e);
    Error::new(cause.kind(), format!("the {} {} cannot be opened", schema.what, path.display())).because(cause)
}

fn create_folder(path: &Path) -> Result<()> {
    let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("the folder {} cannot be created", folder.display())).because(e)
    })
}

/// The writer's connection alone, for the ceiling loop.
#[cfg(feature = "ceiling")]
pub(super) fn connect_writer(options: &Options) -> Result<Connection> {
    connect(options, &migrate::LEDGER, Role::Writer)
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Role {
    Writer,
    Reader,
    Checkpoint,
}

pub(super) fn connect(options: &Options, schema: &Schema, role: Role) -> Result<Connection> {
    let access = match role {
        Role::Reader => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Role::Checkpoint => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let setup = || {
        let conn = Connection::open_with_flags(&options.path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.busy_timeout(BUSY)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        if role == Role::Writer {
            conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            if let Some(pages) = options.max_pages {
                conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
            }
        }
        let synchronous = if options.synchronous == Synchronous::Full { "FULL" } else { "NORMAL" };
        let cache = match role {
            Role::Writer => options.writer_cache_kib,
            Role::Reader => options.reader_cache_kib,
            Role::Checkpoint => 256,
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.pragma_update(None, "cache_size", -i64::from(cache))?;
        conn.pragma_update_and_check(None, "wal_autocheckpoint", 0, |_| Ok(()))?;
        conn.pragma_update(None, "foreign_keys", false)?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(conn)
    };
    setup().map_err(|e: rusqlite::Error| cannot_open(&options.path, schema, e))
}

/// The ledger's number, made when it has none.
fn id(conn: &Connection) -> Result<LedgerId> {
    let sql = "SELECT value FROM meta WHERE key = ?1";
    let stored: Option<i64> = row::one(conn, sql, [LEDGER_ID]).map_err(fault::reading)?;
    if let Some(id) = stored {
        return Ok(LedgerId(id.cast_unsigned()));
    }
    let (id, _) = uuid::Uuid::new_v4().as_u64_pair();
    conn.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", (LEDGER_ID, id.cast_signed()))
        .map_err(fault::writing)?;
    Ok(LedgerId(id))
}

fn clock(conn: &Connection, options: &Options) -> Result<Arc<dyn Clock>> {
    let stored: Option<i64> =
        row::one(conn, "SELECT value FROM meta WHERE key = ?1", [MANUAL_CLOCK]).map_err(fault::reading)?;
    let newest = newest_instant(conn).map_err(fault::reading)?;
    let manual = if options.stored_clock { stored.is_some() } else { options.manual_clock };
    match (manual, stored) {
        (true, Some(at)) => Ok(Arc::new(ManualClock::new(Millis(at)))),
        (true, None) if newest.is_some() => Err(Error::new(
            ErrorKind::Configuration,
            "the ledger was made without a manual clock and has orders or stock; start without --manual-clock, or name another file",
        )),
        (true, None) => {
            let at = tidegate_backend::clock::host_now();
            conn.execute("INSERT INTO meta (key, value) VALUES (?1, ?2)", (MANUAL_CLOCK, at.0))
                .map_err(fault::writing)?;
            Ok(Arc::new(ManualClock::new(at)))
        }
        (false, Some(_)) => Err(Error::new(
            ErrorKind::Configuration,
            "the ledger has a manual clock; start with --manual-clock, or name another file",
        )),
        (false, None) => {
            let shown: Option<i64> =
                row::one(conn, "SELECT value FROM meta WHERE key = ?1", [LAST_CLOCK]).map_err(fault::reading)?;
            Ok(Arc::new(EmbeddedClock::new(newest.max(shown.map(Millis)))))
        }
    }
}

/// The newest instant any row has; time goes on from there.
fn newest_instant(conn: &Connection) -> rusqlite::Result<Option<Millis>> {
    let sql = "SELECT max(at) FROM (
        SELECT (SELECT at FROM events ORDER BY cursor DESC LIMIT 1) AS at
        UNION ALL SELECT max(changed_at) FROM skus
        UNION ALL SELECT (SELECT received_at FROM payments ORDER BY payment_no DESC LIMIT 1)
        UNION ALL SELECT max(tombstone_at) FROM order_ids WHERE tombstone_at IS NOT NULL
        UNION ALL SELECT max(at) FROM request_keys
        UNION ALL SELECT value FROM meta WHERE key = ?1)";
    conn.query_row(sql, [FEED_CLOCK], |r| r.get::<_, Option<i64>>(0)).map(|at| at.map(Millis))
}
