//! A clock that runs by itself and follows another: the order clock of an embedded ledger, and what a node knows of a
//! database's clock.
//!
//! It shows its source's wall clock at the start plus the time since (`CLOCK_BOOTTIME`, which runs through suspend).
//! A source that drifts is followed slowly; one that jumps is a *step*: reported, and followed only once somebody
//! accepts it. It never runs backwards: an accepted step back is made up by running at half speed.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::Millis;
use tokio::sync::Notify;

use crate::{BoxFuture, Clock, ClockStatus};

const NS_PER_MS: i64 = 1_000_000;
/// A larger distance to the host's clock is a step.
pub const STEP_NS: i64 = 2_000 * NS_PER_MS;
/// A smaller one is made up at this rate: 500 parts in a million, what NTP daemons use.
const SLEW_DIVISOR: i64 = 2_000;
/// Longest sleep between two looks at the clock: the timer's clock stands still in suspend, this one does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Where a clock takes its time from.
pub trait TimeSource: Send + Sync {
    /// The wall clock to follow, nanoseconds since 1970 (UTC).
    fn wall_ns(&self) -> i64;
    /// Nanoseconds since some fixed instant, suspend included; never runs backwards.
    fn boot_ns(&self) -> i64;
}

/// The host's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostTime;

impl TimeSource for HostTime {
    fn wall_ns(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn boot_ns(&self) -> i64 {
        let t = clock_gettime(ClockId::Boottime);
        t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec)
    }
}

/// A steady clock. See the module's text for what it promises.
pub struct SteadyClock {
    source: Box<dyn TimeSource>,
    state: Mutex<State>,
    accepted: Notify,
}

struct State {
    /// What is added to the boot clock.
    offset: i64,
    /// The boot clock at the last look.
    boot: i64,
    /// An accepted step back: where `offset` goes at half speed.
    goal: Option<i64>,
}

struct Reading {
    now: i64,
    wall: i64,
    stepped: bool,
    catching_up: bool,
}

impl SteadyClock {
    /// A clock on the host's time that never shows an instant before `not_before` (the newest in the ledger).
    #[must_use]
    pub fn new(not_before: Option<Millis>) -> Self {
        Self::with_source(Box::new(HostTime), not_before)
    }

    /// The same, on another source of time.
    #[must_use]
    pub fn with_source(source: Box<dyn TimeSource>, not_before: Option<Millis>) -> Self {
        let (wall, boot) = (source.wall_ns(), source.boot_ns());
        let floor = not_before.map_or(i64::MIN, |m| m.0.saturating_mul(NS_PER_MS));
        let behind = floor > wall;
        // A restart follows the host's clock. When the ledger is ahead of it, that is a step back like any other.
        let state = State {
            offset: wall.max(floor).saturating_sub(boot),
            boot,
            goal: behind.then_some(wall.saturating_sub(boot)),
        };
        Self { source, state: Mutex::new(state), accepted: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, state: &mut State) -> Reading {
        let boot = self.source.boot_ns().max(state.boot);
        let wall = self.source.wall_ns();
        let host = wall.saturating_sub(boot);
        let passed = boot - state.boot;
        state.boot = boot;
        if let Some(goal) = state.goal {
            state.offset = goal.max(state.offset - passed / 2);
            if state.offset == goal {
                state.goal = None;
            }
        }
        let distance = host.saturating_sub(state.goal.unwrap_or(state.offset));
        let stepped = distance.saturating_abs() > STEP_NS;
        if !stepped && state.goal.is_none() {
            let most = passed / SLEW_DIVISOR;
            state.offset += distance.clamp(-most, most);
        }
        let catching_up = state.goal.is_some_and(|goal| state.offset.saturating_sub(goal) > STEP_NS);
        Reading { now: boot.saturating_add(state.offset), wall, stepped, catching_up }
    }

    fn now_ns(&self) -> i64 {
        self.read(&mut self.lock()).now
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Millis {
        Millis(self.now_ns().div_euclid(NS_PER_MS))
    }

    fn sleep_until(&self, at: Millis) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let at = at.0.saturating_mul(NS_PER_MS);
            loop {
                // Armed before the clock is read, so that a step accepted in between is not missed.
                let accepted = self.accepted.notified();
                let left = at.saturating_sub(self.now_ns());
                if left <= 0 {
                    return;
                }
                let nap = Duration::from_nanos(left.unsigned_abs()).min(LONGEST_SLEEP);
                tokio::select! {
                    () = tokio::time::sleep(nap) => {}
                    () = accepted => {}
                }
            }
        })
    }

    fn status(&self) -> ClockStatus {
        let reading = self.read(&mut self.lock());
        let ms = |ns: i64| Millis(ns.div_euclid(NS_PER_MS));
        ClockStatus {
            now: ms(reading.now),
            host: ms(reading.wall),
            stepped: reading.stepped,
            catching_up: reading.catching_up,
            manual: false,
        }
    }

    fn accept(&self) -> ClockStatus {
        {
            let mut state = self.lock();
            let reading = self.read(&mut state);
            if reading.stepped {
                let host = reading.wall.saturating_sub(state.boot);
                if host >= state.offset {
                    state.offset = host;
                    state.goal = None;
                } else {
                    state.goal = Some(host);
                }
            }
        }
        self.accepted.notify_waiters();
        self.status()
    }
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteadyClock").field("status", &self.status()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Instant;

    use super::*;

    const SECOND: i64 = 1_000 * NS_PER_MS;
    const START: i64 = 1_700_000_000 * SECOND;

    #[derive(Default, Clone)]
    struct Fake(Arc<(AtomicI64, AtomicI64)>);

    impl Fake {
        fn pass(&self, ns: i64) {
            self.0.0.fetch_add(ns, Ordering::SeqCst);
            self.0.1.fetch_add(ns, Ordering::SeqCst);
        }
        fn step(&self, ns: i64) {
            self.0.0.fetch_add(ns, Ordering::SeqCst);
        }
    }

    impl TimeSource for Fake {
        fn wall_ns(&self) -> i64 {
            START + self.0.0.load(Ordering::SeqCst)
        }
        fn boot_ns(&self) -> i64 {
            77 * SECOND + self.0.1.load(Ordering::SeqCst)
        }
    }

    fn clock(not_before: Option<Millis>) -> (Fake, SteadyClock) {
        let fake = Fake::default();
        (fake.clone(), SteadyClock::with_source(Box::new(fake), not_before))
    }

    fn since_start(c: &SteadyClock) -> i64 {
        c.now().0 - START / NS_PER_MS
    }

    #[test]
    fn a_step_is_reported_and_followed_only_when_accepted() {
        let (host, c) = clock(None);
        host.pass(10 * SECOND);
        host.step(3_600 * SECOND);
        assert_eq!(since_start(&c), 10_000);
        assert!(c.status().stepped);
        host.pass(SECOND);
        assert_eq!(since_start(&c), 11_000, "it runs on by itself");
        let after = c.accept();
        assert!(!after.stepped && after.now == after.host);
        assert_eq!(since_start(&c), 3_611_000);
    }

    #[test]
    fn a_step_back_runs_at_half_speed_once_accepted() {
        let (host, c) = clock(None);
        host.pass(100 * SECOND);
        host.step(-10 * SECOND);
        assert!(c.status().stepped);
        let accepted = c.accept();
        assert!(!accepted.stepped && accepted.catching_up, "accepted: it is on its way, and says so");
        assert_eq!(since_start(&c), 100_000);
        let mut last = c.now();
        for _ in 0..19 {
            host.pass(SECOND);
            assert_eq!(c.now().since(last), 500);
            last = c.now();
        }
        host.pass(2 * SECOND);
        let s = c.status();
        assert_eq!((s.now, s.stepped, s.catching_up), (s.host, false, false), "converged");
        host.step(-5 * SECOND);
        assert!(c.status().stepped, "another step is one again");
        host.step(5 * SECOND);
        assert!(!c.status().stepped, "taken back by the host itself");
    }

    #[test]
    fn a_small_difference_is_slewed() {
        for direction in [1, -1] {
            let (host, c) = clock(None);
            host.step(direction * SECOND);
            assert!(!c.status().stepped);
            host.pass(100 * SECOND);
            assert_eq!(since_start(&c), 100_000 + direction * 50);
            for _ in 0..40 {
                host.pass(100 * SECOND);
                let _ = c.now();
            }
            let s = c.status();
            assert_eq!(s.now, s.host);
        }
    }

    #[test]
    fn it_starts_at_the_newest_instant_of_the_ledger() {
        let (host, c) = clock(Some(Millis(START / NS_PER_MS + 60_000)));
        assert_eq!(since_start(&c), 60_000);
        assert!(c.status().catching_up, "a restart ahead of the host is told, too");
        host.pass(SECOND);
        assert_eq!(since_start(&c), 60_500, "on its way to the host's clock");
        host.pass(119 * SECOND);
        assert_eq!(since_start(&c), 120_000);
        let (_, c) = clock(Some(Millis(0)));
        assert_eq!(since_start(&c), 0);
    }

    #[tokio::test]
    async fn sleeping_is_never_early_and_seldom_late() {
        let c = SteadyClock::new(None);
        let mut late: Vec<Duration> = Vec::new();
        for ms in [0, 1, 3, 7, 12, 20, 5, 2, 9] {
            let at = c.now().plus(ms);
            c.sleep_until(at).await;
            let now = c.now_ns();
            assert!(now >= at.0 * NS_PER_MS);
            late.push(Duration::from_nanos((now - at.0 * NS_PER_MS).unsigned_abs()));
        }
        late.sort();
        // On an idle machine this is about a millisecond; a busy one must not fail the build.
        assert!(late[late.len() / 2] < Duration::from_millis(20), "{late:?}");
    }

    #[tokio::test]
    async fn an_accepted_step_wakes_sleepers() {
        let (host, c) = clock(None);
        let c = Arc::new(c);
        let sleeper = tokio::spawn({
            let c = c.clone();
            async move { c.sleep_until(Millis(START / NS_PER_MS + 1_000_000)).await }
        });
        tokio::task::yield_now().await;
        let begun = Instant::now();
        host.step(2_000 * SECOND);
        c.accept();
        sleeper.await.unwrap();
        assert!(begun.elapsed() < Duration::from_millis(500));
    }
}
