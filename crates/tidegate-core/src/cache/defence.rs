//! How many loads may run and when the next attempt may be made.

use std::time::Duration;

/// The first pause after a failed load, milliseconds; it doubles with each further failure.
pub const FIRST_BACKOFF_MS: i64 = 50;
/// The longest pause between two refreshes of a stale value that fail, milliseconds.
pub const LONGEST_BACKOFF_MS: i64 = 5_000;
/// The longest that one failure is shared by all who ask when there is no stale value, milliseconds.
pub const LONGEST_SHARED_MS: i64 = 500;

/// The pause after a load that failed when `failures` had failed before it, milliseconds.
#[must_use]
pub fn backoff_ms(failures: u32) -> i64 {
    (FIRST_BACKOFF_MS << failures.min(16)).min(LONGEST_BACKOFF_MS)
}

/// Whether a load may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Now,
    /// After this pause; the place is taken.
    After(Duration),
    /// Not within the pause the caller can bear; nothing was taken. Worth asking again after this.
    Overloaded(Duration),
}

/// At most so many loads a second: the generic cell rate algorithm (ITU-T I.371, as virtual scheduling). Time is that
/// since any fixed instant.
#[derive(Debug, Clone)]
pub struct Governor {
    /// Between two loads.
    interval: Option<Duration>,
    /// When the next load may start.
    next: Duration,
}

impl Governor {
    /// At most `rate` loads a second (and one more in the first); `None`: no bound.
    #[must_use]
    pub fn new(rate: Option<std::num::NonZeroU32>) -> Self {
        let interval = rate.map(|rate| Duration::from_secs(1) / rate.get());
        Self { interval, next: Duration::ZERO }
    }

    /// A load that can wait for `patience`.
    pub fn admit(&mut self, now: Duration, patience: Duration) -> Admission {
        let Some(interval) = self.interval else { return Admission::Now };
        let start = self.next.max(now);
        let pause = start - now;
        if pause > patience {
            return Admission::Overloaded(pause - patience);
        }
        self.next = start + interval;
        if pause.is_zero() { Admission::Now } else { Admission::After(pause) }
    }

    /// Names the place that [`Governor::admit`] has just given.
    #[must_use]
    pub fn place(&self) -> Duration {
        self.next
    }

    /// Gives back a place that no load was started on, if nobody has got a later one; else the place stays taken, so that
    /// loads never start faster than the rate.
    pub fn give_back(&mut self, place: Duration) {
        if let Some(interval) = self.interval.filter(|_| self.next == place) {
            self.next -= interval;
        }
    }
}

/// The breaker in front of a store: after some calls in a row without an answer nobody waits for the store; one call at a
/// time finds out whether it is back (Nygard, "Release It!", 2nd edition, chapter 5). Time as in [`Governor`].
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    failures: u32,
    /// Open until then; after it one call may try.
    until: Option<Duration>,
}

/// Calls in a row without an answer that open it.
pub const BREAKER_FAILURES: u32 = 3;
/// It stays open this long before a call tries.
pub const BREAKER_OPEN: Duration = Duration::from_millis(250);

impl Breaker {
    /// Whether a call may be made; the one that tries an open breaker holds the others off for as long again.
    pub fn allows(&mut self, now: Duration) -> bool {
        match self.until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                self.until = Some(now + BREAKER_OPEN);
                true
            }
        }
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.until.is_some()
    }

    /// A call was answered.
    pub fn answered(&mut self) {
        *self = Self::default();
    }

    /// A call was not answered; whether that opened the breaker.
    pub fn failed(&mut self, now: Duration) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = self.until.is_none() && self.failures >= BREAKER_FAILURES;
        if self.failures >= BREAKER_FAILURES {
            self.until = Some(now + BREAKER_OPEN);
        }
        opens
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn backoff_doubles_to_its_bound() {
        assert_eq!([0, 1, 2, 6, 7, u32::MAX].map(backoff_ms), [50, 100, 200, 3_200, 5_000, 5_000]);
    }

    #[test]
    fn loads_start_no_faster_than_the_rate() {
        let mut governor = Governor::new(NonZeroU32::new(50));
        let mut started = Vec::new();
        // A crowd that bears no wait asks each millisecond for three seconds.
        for now in (0..3_000).map(ms) {
            for _ in 0..5 {
                if governor.admit(now, ms(0)) == Admission::Now {
                    started.push(now);
                }
            }
        }
        assert!(started.len() >= 140, "{}", started.len());
        for from in &started {
            let within = started.iter().filter(|at| *at >= from && **at < *from + ms(1_000)).count();
            assert!(within <= 51, "{within}");
        }
    }

    #[test]
    fn places_are_given_in_turn_and_refused_beyond_patience() {
        let mut governor = Governor::new(NonZeroU32::new(10));
        assert_eq!(governor.admit(ms(5_000), ms(150)), Admission::Now);
        assert_eq!(governor.admit(ms(5_000), ms(150)), Admission::After(ms(100)));
        assert_eq!(governor.admit(ms(5_000), ms(150)), Admission::Overloaded(ms(50)));
        assert_eq!(governor.admit(ms(5_050), ms(150)), Admission::After(ms(150)));
        assert_eq!(Governor::new(None).admit(ms(1), ms(0)), Admission::Now);
    }

    #[test]
    fn only_the_last_place_can_be_given_back() {
        let mut governor = Governor::new(NonZeroU32::new(10));
        assert_eq!(governor.admit(ms(1_000), ms(0)), Admission::Now);
        let first = governor.place();
        governor.give_back(first);
        assert_eq!(governor.admit(ms(1_000), ms(0)), Admission::Now);
        assert_eq!(governor.admit(ms(1_000), ms(100)), Admission::After(ms(100)));
        governor.give_back(first);
        assert_eq!(governor.admit(ms(1_000), ms(150)), Admission::Overloaded(ms(50)));
    }

    #[test]
    fn a_breaker_lets_one_call_try_at_a_time() {
        let mut breaker = Breaker::default();
        assert_eq!([1, 2, 3, 4].map(|at| breaker.failed(ms(at))), [false, false, true, false]);
        assert!(breaker.is_open());
        assert!(!breaker.allows(ms(253)));
        assert!(breaker.allows(ms(254)));
        assert!(!breaker.allows(ms(255)), "one tries");
        breaker.answered();
        assert!(breaker.allows(ms(255)) && !breaker.is_open());
    }
}
