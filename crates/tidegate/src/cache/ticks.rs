//! Time inside a process: cheap enough for every hit, and never set.

use std::cell::Cell;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// How far the coarse clock may lag behind the exact one, milliseconds (one scheduler tick; 10 ms at 100 Hz).
pub(super) const COARSE_LAG_MS: i64 = 10;

/// Milliseconds since the cache was started, on a clock that nobody sets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ticks {
    /// The kernel's coarse clock: a few nanoseconds a look, up to [`COARSE_LAG_MS`] behind.
    Coarse(i64),
    /// Tokio's clock, which tests pause.
    Tokio(Instant),
}

pub(super) fn coarse_ms() -> i64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

impl Ticks {
    pub(super) fn coarse() -> Self {
        Self::Coarse(coarse_ms())
    }

    pub(super) fn tokio() -> Self {
        Self::Tokio(Instant::now())
    }

    #[inline]
    pub(super) fn now(&self) -> i64 {
        match self {
            Self::Coarse(origin) => coarse_ms() - origin,
            Self::Tokio(origin) => i64::try_from(origin.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// A draw, uniform in `0.0..1.0`: for spreading work, not for secrets.
pub(super) fn chance() -> f64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(uuid::Uuid::new_v4().as_u64_pair().0);
    }
    // SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    let mut z = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(z);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform() {
        let mut tenths = [0_u32; 10];
        for _ in 0..100_000 {
            let draw = chance();
            assert!((0.0..1.0).contains(&draw));
            tenths[(draw * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|n| (9_500..10_500).contains(n)), "{tenths:?}");
    }

    #[test]
    fn the_coarse_clock_goes_with_the_exact_one() {
        let (ticks, began) = (Ticks::coarse(), std::time::Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (coarse, exact) = (ticks.now(), began.elapsed().as_millis() as i64);
        assert!((exact - 2 * COARSE_LAG_MS..=exact + COARSE_LAG_MS).contains(&coarse), "{coarse} {exact}");
    }
}
