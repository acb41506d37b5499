//! Moves committed pages from the write-ahead log into the file, on a thread and connection of its own.
//!
//! On the writer a checkpoint would be part of some commit's time. Here the bulk is copied while commits go on; only
//! what was written meanwhile is copied on the writer's thread, so that the log can start again from its beginning.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tidegate_backend::{Error, ErrorKind, Result};

use super::fault;
use super::lane::Lane;
use super::open::BUSY;

/// Log size in bytes at which a checkpoint begins.
const BEGIN: i64 = 16 << 20;
/// What may be left to copy on the writer's thread.
const REST: i64 = 4 << 20;
/// Log size past which the file is cut back as well. Only a very long read can let it grow so far.
const HARD: i64 = 256 << 20;
/// Copying rounds before the writer is asked whatever is left.
const ROUNDS: usize = 4;
/// Longest wait of the writer's thread for readers that still use the log.
const WRITER_WAIT: Duration = Duration::from_millis(50);
/// Least time between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Least time between two attempts that a long read made vain.
const VAIN_PAUSE: Duration = Duration::from_secs(1);

/// Says that something was committed. Marking is cheap: the thread wakes at most once in [`LOOK_EVERY`].
#[derive(Debug, Default)]
pub(super) struct Dirty {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    dirty: bool,
    stop: bool,
}

impl Dirty {
    /// Something was committed.
    pub(super) fn mark(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.dirty {
            state.dirty = true;
            self.wake.notify_one();
        }
    }

    fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.wake.notify_one();
    }

    /// Waits `pause`, then for a mark; false when it is time to stop.
    fn wait(&self, pause: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = self.wake.wait_timeout_while(state, pause, |s| !s.stop);
        let (state, _) = rested.unwrap_or_else(PoisonError::into_inner);
        let marked = self.wake.wait_while(state, |s| !s.stop && !s.dirty);
        let mut state = marked.unwrap_or_else(PoisonError::into_inner);
        state.dirty = false;
        !state.stop
    }
}

/// The state of a lane that writes.
pub(super) trait Writes: Send + 'static {
    /// Its connection.
    fn connection(&self) -> &Connection;
}

/// The thread; stops when dropped.
pub(super) struct Checkpointer {
    dirty: Arc<Dirty>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread on `conn`.
    pub(super) fn start<W: Writes>(conn: Connection, dirty: Arc<Dirty>, writer: Arc<Lane<W>>) -> Result<Self> {
        let marks = dirty.clone();
        let run = move || {
            let mut pause = LOOK_EVERY;
            while marks.wait(pause) {
                pause = match look(&conn, &writer) {
                    Ok(true) => LOOK_EVERY,
                    Ok(false) => VAIN_PAUSE,
                    Err(e) => {
                        tracing::warn!(error = %e, "a checkpoint failed; the write-ahead log grows until one succeeds");
                        VAIN_PAUSE
                    }
                };
            }
        };
        let thread = std::thread::Builder::new().name("tidegate-ckpt".into()).spawn(run);
        let thread = thread
            .map_err(|e| Error::new(ErrorKind::Unavailable, "the checkpoint thread could not be started").because(e))?;
        Ok(Self { dirty, thread: Some(thread) })
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.dirty.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How full the log is, in bytes, and how much of it is not in the file yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub size: i64,
    pub left: i64,
}

/// Runs a checkpoint of this kind. `NOOP` copies nothing and only tells.
pub(super) fn checkpoint(conn: &Connection, kind: &str) -> rusqlite::Result<Log> {
    let page: i64 = conn.pragma_query_value(None, "page_size", |r| r.get(0))?;
    conn.query_row(&format!("PRAGMA wal_checkpoint({kind})"), [], |r| {
        let (frames, copied): (i64, i64) = (r.get(1)?, r.get(2)?);
        Ok(Log { size: frames.max(0) * page, left: (frames - copied).max(0) * page })
    })
}

/// Copies the rest and lets the log start again, if no reader keeps it from that for long.
fn finish(conn: &Connection, kind: &str) -> rusqlite::Result<Log> {
    conn.busy_timeout(WRITER_WAIT)?;
    let log = checkpoint(conn, kind);
    conn.busy_timeout(BUSY)?;
    log
}

/// One look at the log, and a checkpoint when it is due. False when a reader kept it from getting anywhere.
fn look<W: Writes>(conn: &Connection, writer: &Lane<W>) -> Result<bool> {
    let mut log = checkpoint(conn, "NOOP").map_err(fault::writing)?;
    if log.size < BEGIN {
        return Ok(true);
    }
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let before = log.left;
        log = checkpoint(conn, "PASSIVE").map_err(fault::writing)?;
        if log.left <= REST || log.left >= before {
            break;
        }
    }
    // A reader that began long ago pins the log: copying more on the writer's thread would only delay it.
    if log.left > 8 * REST && log.size < HARD {
        return Ok(false);
    }
    let kind = if log.size >= HARD { "TRUNCATE" } else { "RESTART" };
    let end = writer.run_blocking(move |w| finish(w.connection(), kind).map_err(fault::writing))?;
    tracing::debug!(bytes = log.size, left = end.left, took = ?begun.elapsed(), "checkpoint");
    Ok(end.left == 0)
}
