//! What a node knows of the ledger's clock, which is the database's.
//!
//! Orders are judged by the database's clock, read inside each commit. A node needs to know it between commits, too: to
//! sleep until a deadline, to ask for what is due. So it keeps an estimate: an instant that the database told, plus the time
//! since the answer arrived. The answer is always a little older than its arrival, so the estimate is never ahead of the
//! database (but by what two clocks drift apart in some seconds), and what it calls due is due.
//!
//! A database's clock that jumps is a *step*: reported, and followed only once somebody accepts it. Until then the estimate
//! runs on by itself, so that a host whose clock was set an hour ahead causes no wave of early cancels.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_backend::steady::{HostTime, SteadyClock, TimeSource};
use tidegate_backend::{BoxFuture, Clock, ClockStatus, ManualClock, Result};
use tidegate_core::Millis;

use crate::fault;
use crate::session::Session;

const NS_PER_MS: i64 = 1_000_000;
/// Of the answers of this time and of as much before it, the one that arrived fastest counts.
const WINDOW_NS: i64 = 5_000 * NS_PER_MS;
/// A database's clock that went back is held for at most this long; then it is followed.
const HELD_MS: i64 = 5_000;
/// Between two looks at the database's clock.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
/// The same for a manual clock, which others may move.
pub(crate) const LOOK_MANUAL: Duration = Duration::from_millis(100);
/// The name of the manual clock's row in `meta`.
pub(crate) const MANUAL_CLOCK: &str = "manual_clock";

/// The database's clock as far as this node knows it.
pub(crate) struct SqlClock(Kind);

enum Kind {
    /// A row of the ledger.
    Manual(ManualClock),
    /// The server's clock.
    Server { steady: SteadyClock, heard: Arc<Heard> },
}

/// What the server told.
struct Heard {
    host: HostTime,
    best: Mutex<Best>,
}

/// Largest distances of the server's clock to this host's boot clock: a slow answer makes it smaller, never larger.
struct Best {
    before: i64,
    now: i64,
    since: i64,
}

impl Heard {
    fn hear(&self, server: Millis, arrived: i64) {
        let distance = server.0.saturating_mul(NS_PER_MS).saturating_sub(arrived);
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        if arrived.saturating_sub(best.since) > WINDOW_NS {
            *best = Best { before: best.now, now: distance, since: arrived };
        } else {
            best.now = best.now.max(distance);
        }
    }
}

/// The server's clock as a source to follow.
struct Source(Arc<Heard>);

impl TimeSource for Source {
    fn wall_ns(&self) -> i64 {
        let best = self.0.best.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.host.boot_ns().saturating_add(best.before.max(best.now))
    }

    fn boot_ns(&self) -> i64 {
        self.0.host.boot_ns()
    }
}

impl SqlClock {
    /// A clock that moves by hand and shows `at`.
    pub(crate) fn manual(at: Millis) -> Self {
        Self(Kind::Manual(ManualClock::new(at)))
    }

    /// An estimate of the server's clock, which just told `server`.
    pub(crate) fn server(server: Millis) -> Self {
        let host = HostTime;
        let since = host.boot_ns();
        let distance = server.0.saturating_mul(NS_PER_MS).saturating_sub(since);
        let heard = Arc::new(Heard { host, best: Mutex::new(Best { before: i64::MIN, now: distance, since }) });
        Self(Kind::Server { steady: SteadyClock::with_source(Box::new(Source(heard.clone())), None), heard })
    }

    /// Whether it moves only by hand.
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, Kind::Manual(_))
    }

    /// The ledger's present instant, read in the transaction of `session`; this clock learns from it.
    pub(crate) async fn read(&self, session: &mut Session) -> fault::Result<Millis> {
        match &self.0 {
            Kind::Manual(clock) => {
                let sql = "SELECT value FROM meta WHERE name = ?";
                let row = session.one(sql, &[MANUAL_CLOCK.into()]).await?;
                let row = row.ok_or_else(|| fault::Fault::corrupt("the row of the manual clock is gone"))?;
                let at = Millis(row.int(0)?);
                // Cannot fail: it is a manual one. It never moves backwards.
                let _ = clock.advance_to(at);
                Ok(at)
            }
            Kind::Server { heard, .. } => {
                let sql = format!("SELECT {}, (SELECT at FROM counters WHERE name = 'events')", instant_of(session));
                let row = session.one(&sql, &[]).await?;
                let arrived = heard.host.boot_ns();
                let row = row.ok_or_else(|| fault::Fault::corrupt("the server does not tell its time"))?;
                let (server, newest) = (row.int(0)?, row.opt_int(1)?.unwrap_or(0));
                heard.hear(Millis(server), arrived);
                Ok(Millis(if (0..HELD_MS).contains(&(newest - server)) { newest } else { server }))
            }
        }
    }
}

/// The server's instant in milliseconds, whatever the time zone of server or session.
pub(crate) fn instant_of(session: &Session) -> &'static str {
    session.dialect().pick(
        "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000",
        "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)",
    )
}

impl Clock for SqlClock {
    fn now(&self) -> Millis {
        match &self.0 {
            Kind::Manual(clock) => clock.now(),
            Kind::Server { steady, .. } => steady.now(),
        }
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        match &self.0 {
            Kind::Manual(clock) => clock.sleep_until(at),
            Kind::Server { steady, .. } => steady.sleep_until(at),
        }
    }

    fn status(&self) -> ClockStatus {
        match &self.0 {
            Kind::Manual(clock) => clock.status(),
            Kind::Server { steady, .. } => steady.status(),
        }
    }

    fn accept(&self) -> ClockStatus {
        match &self.0 {
            Kind::Manual(clock) => clock.accept(),
            Kind::Server { steady, .. } => steady.accept(),
        }
    }

    fn advance_to(&self, at: Millis) -> Result<()> {
        match &self.0 {
            Kind::Manual(clock) => clock.advance_to(at),
            Kind::Server { steady, .. } => steady.advance_to(at),
        }
    }
}

impl fmt::Debug for SqlClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlClock").field("status", &self.status()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(clock: &SqlClock) -> &Heard {
        match &clock.0 {
            Kind::Server { heard, .. } => heard,
            Kind::Manual(_) => unreachable!("made as a server's"),
        }
    }

    const START: Millis = Millis(1_700_000_000_000);

    #[test]
    fn slow_answers_do_not_hold_it_back_and_none_puts_it_ahead() {
        let clock = SqlClock::server(START);
        let heard = server(&clock);
        let begun = heard.host.boot_ns();
        // An answer that took 300 ms on its way.
        heard.hear(START, begun + 300 * NS_PER_MS);
        let status = clock.status();
        assert!(!status.stepped);
        assert!(status.host.since(START) < 200, "the fast answer counts: {status:?}");
        assert!(clock.now() <= status.host);
    }

    #[test]
    fn a_step_of_the_server_is_told_and_waits_to_be_accepted() {
        let clock = SqlClock::server(START);
        let heard = server(&clock);
        let hour = 3_600_000;
        heard.hear(START.plus(hour), heard.host.boot_ns());
        assert!(clock.status().stepped);
        assert!(clock.now().since(START) < 1_000, "it runs on by itself");
        assert!(!clock.accept().stepped);
        assert!(clock.now().since(START) >= hour);
    }

    #[test]
    fn a_server_that_goes_back_is_noticed_once_old_answers_have_left_the_window() {
        let clock = SqlClock::server(START);
        let heard = server(&clock);
        let begun = heard.host.boot_ns();
        let back = |ms: i64| heard.hear(START.plus(ms - 60_000), begun + ms * NS_PER_MS);
        back(1_000);
        assert!(!clock.status().stepped, "it may have been a slow answer");
        back(6_000);
        back(12_000);
        assert!(clock.status().stepped);
    }
}
