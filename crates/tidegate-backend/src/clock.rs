//! Clocks. The rules get instants from the ledger's clock only.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::Millis;
use tokio::sync::watch;

use crate::{BoxFuture, Error, ErrorKind, Result};

mod server;

pub use server::ServerClock;

/// The ledger's clock against the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// What orders are judged by.
    pub now: Millis,
    /// The host's wall clock.
    pub host: Millis,
    /// Whether the two are more than 2 s apart: a step that nobody has accepted.
    pub stepped: bool,
    /// Whether it is more than 2 s ahead of the host's after an accepted step back (or a restart) and runs at half speed
    /// until the host's clock has caught up. Holds last up to twice as long meanwhile; nothing is early.
    pub catching_up: bool,
    /// Whether it moves only by hand.
    pub manual: bool,
}

/// A source of instants that never runs backwards.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Millis;

    /// Resolves once `now() >= at`; at once if it is.
    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()>;

    /// This clock against the host's.
    fn status(&self) -> ClockStatus;

    /// Follows the host's clock after a step (`tidegate clock accept`).
    fn accept(&self) -> ClockStatus;

    /// Moves a manual clock forward.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] for every other clock.
    fn advance_to(&self, at: Millis) -> Result<()> {
        let _ = at;
        Err(Error::new(ErrorKind::Configuration, "this clock is not a manual one; start with --manual-clock"))
    }
}

/// The host's wall clock, as it is. Ledgers use better ones; tools and tests may use this.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// The host's wall clock in milliseconds.
#[must_use]
pub fn host_now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        host_now()
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(self.now());
                if left <= 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(left.unsigned_abs())).await;
            }
        })
    }

    fn status(&self) -> ClockStatus {
        let now = self.now();
        ClockStatus { now, host: now, stepped: false, catching_up: false, manual: false }
    }

    fn accept(&self) -> ClockStatus {
        self.status()
    }
}

/// A clock that stands still until it is moved: thirty minutes pass in a millisecond.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Millis>,
    moving: Mutex<()>,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Millis) -> Self {
        Self { now: watch::Sender::new(start), moving: Mutex::new(()) }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        *self.now.borrow()
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        let mut seen = self.now.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self`, which this future borrows.
            let _ = seen.wait_for(|now| *now >= at).await;
        })
    }

    fn status(&self) -> ClockStatus {
        ClockStatus { now: self.now(), host: host_now(), stepped: false, catching_up: false, manual: true }
    }

    fn accept(&self) -> ClockStatus {
        self.status()
    }

    fn advance_to(&self, at: Millis) -> Result<()> {
        let _one_at_a_time = self.moving.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.now.send_if_modified(|now| {
            let later = at > *now;
            if later {
                *now = at;
            }
            later
        });
        Ok(())
    }
}
