//! What is known of the clock of a store's server: its distance from the host's steady one, from questions and answers.
//!
//! The answer to a question was given between asking and hearing it, so its distance is known up to half the round trip;
//! the shortest of the last round trips counts. An answer that contradicts it shows that a clock was set: it counts alone.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::Millis;

use super::host_now;

/// How many answers are remembered.
const REMEMBERED: usize = 8;
/// What two steady clocks drift apart while they are, microseconds: 200 parts in a million over 10 s.
const DRIFT_US: i64 = 2_000;

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// The server's clock less ours, microseconds.
    distance: i64,
    round_trip: i64,
}

/// The clock of a server, as well as it is known here. Until it was heard, the host's.
#[derive(Debug)]
pub struct ServerClock {
    began: Instant,
    distance_us: AtomicI64,
    samples: Mutex<Vec<Sample>>,
}

fn micros(since: Duration) -> i64 {
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerClock {
    /// Nothing was heard yet.
    #[must_use]
    pub fn new() -> Self {
        let host = host_now().0.saturating_mul(1_000);
        Self { began: Instant::now(), distance_us: AtomicI64::new(host), samples: Mutex::default() }
    }

    /// Its present instant.
    pub fn now(&self) -> Millis {
        Millis(self.now_us().div_euclid(1_000))
    }

    /// How long until one of its instants, to the microsecond; zero if it has come.
    pub fn until(&self, at: Millis) -> Duration {
        Duration::from_micros(at.0.saturating_mul(1_000).saturating_sub(self.now_us()).max(0).unsigned_abs())
    }

    fn now_us(&self) -> i64 {
        self.distance_us.load(Ordering::Relaxed).saturating_add(micros(self.began.elapsed()))
    }

    /// The server said `server_us` (microseconds since 1970) between these instants.
    pub fn learn(&self, asked: Instant, heard: Instant, server_us: i64) {
        let (asked, heard) = (micros(asked - self.began), micros(heard - self.began));
        let sample = Sample { distance: server_us - (asked + heard) / 2, round_trip: heard - asked };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |other: &Sample| {
            (sample.distance - other.distance).abs() <= (sample.round_trip + other.round_trip) / 2 + DRIFT_US
        };
        if !samples.iter().all(fits) {
            samples.clear();
        }
        if samples.len() >= REMEMBERED {
            samples.remove(0);
        }
        samples.push(sample);
        if let Some(best) = samples.iter().min_by_key(|sample| sample.round_trip) {
            self.distance_us.store(best.distance, Ordering::Relaxed);
        }
    }

    /// Another server may answer from now on.
    pub fn forget(&self) {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(clock: &ServerClock, at_ms: u64, took_ms: u64, server_ms: i64) {
        let asked = clock.began + Duration::from_millis(at_ms);
        clock.learn(asked, asked + Duration::from_millis(took_ms), server_ms * 1_000);
    }

    fn distance_ms(clock: &ServerClock) -> i64 {
        clock.distance_us.load(Ordering::Relaxed) / 1_000
    }

    #[test]
    fn the_shortest_round_trip_counts_and_a_step_is_followed_at_once() {
        let clock = ServerClock::new();
        assert!((clock.now().0 - host_now().0).abs() < 1_000, "the host's until told otherwise");
        // The server is 50,000 ms ahead; the way there is short and the way back long.
        ask(&clock, 0, 100, 50_010);
        assert_eq!(distance_ms(&clock), 49_960);
        ask(&clock, 1_000, 2, 51_001);
        ask(&clock, 2_000, 80, 52_070);
        assert_eq!(distance_ms(&clock), 50_000, "the best of them");
        for n in 3..20 {
            ask(&clock, n * 1_000, 60, n as i64 * 1_000 + 50_030);
        }
        assert_eq!(distance_ms(&clock), 50_000);
        ask(&clock, 20_000, 4, 20_002);
        assert_eq!(distance_ms(&clock), 0, "set back");
        clock.forget();
        ask(&clock, 21_000, 500, 21_250 + 9);
        assert_eq!(distance_ms(&clock), 9, "the first of another server counts whatever it took");
        let left = clock.until(Millis(clock.now().0 + 5));
        assert!(left > Duration::from_millis(3) && left <= Duration::from_millis(5), "to the microsecond: {left:?}");
        assert_eq!(clock.until(clock.now()), Duration::ZERO);
    }
}
