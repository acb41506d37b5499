//! How long an entry lives: fresh, then stale, then gone.

use std::fmt;
use std::time::Duration;

use crate::Millis;

/// A length of time to cache something: 1 ms or more, at most 10 years. Zero cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(i64);

/// Zero is no time to cache anything: leave the setting out where it may be left out, or do not store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroTtl;

impl fmt::Display for ZeroTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0 is no time to cache anything; give at least 1 ms, or leave the setting out")
    }
}

impl std::error::Error for ZeroTtl {}

impl Ttl {
    const LONGEST_MS: u64 = 10 * 365 * 86_400_000;

    /// `N` milliseconds; zero does not compile.
    #[must_use]
    pub const fn millis<const N: u64>() -> Self {
        const { assert!(N > 0 && N <= Self::LONGEST_MS, "a Ttl is 1 ms to 10 years") };
        Self(N as i64)
    }

    /// `N` seconds; zero does not compile.
    #[must_use]
    pub const fn seconds<const N: u64>() -> Self {
        const { assert!(N > 0 && N <= Self::LONGEST_MS / 1_000, "a Ttl is 1 ms to 10 years") };
        Self((N * 1_000) as i64)
    }

    /// In milliseconds, 1 or more.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// As a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = ZeroTtl;

    /// What is longer than nothing and shorter than 1 ms is 1 ms; what is longer than 10 years is 10 years.
    fn try_from(duration: Duration) -> Result<Self, ZeroTtl> {
        if duration.is_zero() {
            return Err(ZeroTtl);
        }
        let ms = duration.as_millis().clamp(1, u128::from(Self::LONGEST_MS));
        Ok(Self(ms as i64))
    }
}

/// The lives of a namespace's entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Life {
    /// A value is fresh for this long from the start of its load.
    pub fresh_for: Ttl,
    /// After that it may still be served for this long, while one refresh runs or when loads fail.
    pub stale_for: Option<Ttl>,
    /// "There is none" is believed for this long; left out, it is not stored.
    pub absent_for: Option<Ttl>,
    /// The part of `fresh_for` and `absent_for` that chance may take away, `0.0..=0.9`. It only ever shortens.
    pub jitter: f64,
    /// How eagerly a fresh value is refreshed before its time, weighed by what its load took; 0 is never, 1 is usual.
    /// The rule is XFetch: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015.
    pub early_refresh: f64,
}

/// The instants of one entry, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// When its load began: what it says was true then or later.
    pub born: Millis,
    /// Fresh before this instant.
    pub soft: Millis,
    /// Not to be served from this instant on.
    pub hard: Millis,
}

/// How an entry may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// As it is.
    Fresh,
    /// As it is, and whoever finds it should see to its refresh.
    Stale,
    /// Not at all.
    Dead,
}

impl Life {
    /// The instants of a value whose load began at `born`; `chance` is uniform in `0.0..1.0`.
    #[must_use]
    pub fn of_value(&self, born: Millis, chance: f64) -> Stamp {
        let soft = born.plus(shortened(self.fresh_for, self.jitter, chance));
        Stamp { born, soft, hard: soft.plus(self.stale_for.map_or(0, Ttl::as_millis)) }
    }

    /// The instants of "there is none"; `None`: it is not stored.
    #[must_use]
    pub fn of_absence(&self, born: Millis, chance: f64) -> Option<Stamp> {
        let soft = born.plus(shortened(self.absent_for?, self.jitter, chance));
        Some(Stamp { born, soft, hard: soft })
    }

    /// The longest an entry may live.
    #[must_use]
    pub fn longest_ms(&self) -> i64 {
        let value = self.fresh_for.as_millis() + self.stale_for.map_or(0, Ttl::as_millis);
        value.max(self.absent_for.map_or(0, Ttl::as_millis))
    }
}

/// `ttl` less a part of at most `jitter`, at least 1 ms.
fn shortened(ttl: Ttl, jitter: f64, chance: f64) -> i64 {
    let taken = ttl.as_millis() as f64 * jitter.clamp(0.0, 0.9) * chance.clamp(0.0, 1.0);
    (ttl.as_millis() - taken as i64).max(1)
}

impl Stamp {
    /// How the entry may be used at `now`. A clock that was set back makes nothing live longer: an entry that was born
    /// more than `slack_ms` after `now` is stale at best.
    #[must_use]
    pub fn freshness(&self, now: Millis, slack_ms: i64) -> Freshness {
        if now >= self.hard {
            Freshness::Dead
        } else if now >= self.soft || self.born.since(now) > slack_ms {
            Freshness::Stale
        } else {
            Freshness::Fresh
        }
    }

    /// Whether a fresh entry that took `cost_ms` to load should be refreshed already (XFetch). `chance` is uniform in
    /// `0.0..1.0`; the nearer the end and the dearer the load, the likelier.
    #[must_use]
    pub fn is_early(&self, now: Millis, cost_ms: f64, eagerness: f64, chance: f64) -> bool {
        // ln(0) is infinite: the unluckiest draw is bounded.
        let ahead = cost_ms * eagerness * -chance.max(1e-12).ln();
        eagerness > 0.0 && now.0 as f64 + ahead >= self.soft.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIFE: Life = Life {
        fresh_for: Ttl::seconds::<60>(),
        stale_for: Some(Ttl::seconds::<30>()),
        absent_for: Some(Ttl::seconds::<5>()),
        jitter: 0.2,
        early_refresh: 1.0,
    };

    #[test]
    fn durations_are_never_zero_and_never_for_ever() {
        assert_eq!(Ttl::try_from(Duration::ZERO), Err(ZeroTtl));
        assert_eq!(Ttl::try_from(Duration::from_nanos(1)).map(Ttl::as_millis), Ok(1));
        assert_eq!(Ttl::try_from(Duration::MAX).map(Ttl::as_millis), Ok(Ttl::LONGEST_MS as i64));
        assert_eq!(Ttl::seconds::<2>(), Ttl::millis::<2_000>());
    }

    #[test]
    fn a_value_is_fresh_then_stale_then_gone() {
        let stamp = LIFE.of_value(Millis(1_000), 0.0);
        let at = |ms| stamp.freshness(Millis(ms), 1_000);
        assert_eq!((at(1_000), at(60_999)), (Freshness::Fresh, Freshness::Fresh));
        assert_eq!((at(61_000), at(90_999)), (Freshness::Stale, Freshness::Stale));
        assert_eq!(at(91_000), Freshness::Dead);
        let life = Life { stale_for: None, ..LIFE };
        assert_eq!(life.of_value(Millis(0), 0.0).freshness(Millis(60_000), 1_000), Freshness::Dead);
        assert_eq!(Life { absent_for: None, ..LIFE }.of_absence(Millis(0), 0.5), None);
    }

    #[test]
    fn a_clock_set_back_lengthens_nothing() {
        let stamp = LIFE.of_value(Millis(3_600_000), 0.0);
        assert_eq!(stamp.freshness(Millis(3_599_500), 1_000), Freshness::Fresh, "two clocks are never quite equal");
        assert_eq!(stamp.freshness(Millis(0), 1_000), Freshness::Stale);
    }

    #[test]
    fn early_refresh_grows_likelier_and_dearer_loads_are_earlier() {
        let stamp = Stamp { born: Millis(0), soft: Millis(10_000), hard: Millis(10_000) };
        let draws = 10_000;
        let share = |now: i64, cost: f64| {
            let early = |n: i32| stamp.is_early(Millis(now), cost, 1.0, f64::from(n) / f64::from(draws));
            (0..draws).filter(|n| early(*n)).count() as f64 / f64::from(draws)
        };
        // P(early) = exp(-left / cost).
        for (now, cost) in [(9_900, 100.0), (9_800, 100.0), (9_000, 1_000.0)] {
            let expected = (-(10_000.0 - now as f64) / cost).exp();
            assert!((share(now, cost) - expected).abs() < 0.01, "{now} {cost}: {} {expected}", share(now, cost));
        }
        assert!(!stamp.is_early(Millis(9_999), 1e9, 0.0, 0.5), "0 is never");
    }

    proptest! {
        #[test]
        fn jitter_only_shortens(ms in 1_u64..100_000_000, jitter in 0.0..0.9_f64, chance in 0.0..1.0_f64) {
            let fresh_for = Ttl::try_from(Duration::from_millis(ms)).expect("not zero");
            let stamp = Life { fresh_for, jitter, stale_for: None, ..LIFE }.of_value(Millis(5), chance);
            let lives = stamp.soft.since(stamp.born);
            prop_assert!(lives <= ms as i64);
            prop_assert!(lives >= 1 && lives as f64 >= ms as f64 * (1.0 - jitter) - 1.0);
        }
    }
}
