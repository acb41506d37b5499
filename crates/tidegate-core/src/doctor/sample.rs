//! What a sample of keys says of all of them.

use std::collections::BTreeMap;

/// 99 of 100 intervals hold the true share.
pub const CONFIDENCE: f64 = 0.99;
/// The normal distribution's quantile of that.
const Z: f64 = 2.575_829_3;

/// A sample of a server's keys, each key once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeySample {
    /// Keys the server has.
    pub total: u64,
    /// How they were found: `all`, `random`, `scan`.
    pub how: &'static str,
    /// Keys that were looked at.
    pub keys: u64,
    /// They may not be asked when they expire.
    pub ttl_forbidden: bool,
    /// What they begin with, and what is known of each such.
    pub prefixes: BTreeMap<String, Group>,
    /// Keys of Tidegate's own that must not go: what they are, and how many may be evicted under which policies.
    pub own: BTreeMap<String, Own>,
}

/// Keys of one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Group {
    /// Keys of it in the sample.
    pub keys: u64,
    /// Of these, those that never expire.
    pub without_ttl: u64,
    /// They are Tidegate's own: whether they expire is right as it is.
    pub is_ours: bool,
}

/// Keys of Tidegate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Own {
    /// How many were seen.
    pub keys: u64,
    /// Of these, those that expire: a `volatile` policy takes them too.
    pub expiring: u64,
}

/// A share, and where the true one lies with a probability of [`CONFIDENCE`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// What was seen.
    pub share: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What `some` of a sample of `of` say of `all` that the sample was drawn from, each once: Wilson's interval (E. B. Wilson, 1927), with
/// a sample that counts for more the more of all it holds, and exact when it holds all.
#[must_use]
pub fn share(some: u64, of: u64, all: u64) -> Share {
    if of == 0 {
        return Share { share: 0.0, low: 0.0, high: 1.0 };
    }
    let (n, share) = (of as f64, some as f64 / of as f64);
    if of >= all {
        return Share { share, low: share, high: share };
    }
    let n = n * (all as f64 - 1.0) / (all as f64 - n);
    let weight = 1.0 + Z * Z / n;
    let middle = (share + Z * Z / (2.0 * n)) / weight;
    let half = Z / weight * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    // None and all are what they are, whatever is lost in rounding.
    let low = if some == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if some == of { 1.0 } else { (middle + half).min(1.0) };
    Share { share, low, high }
}

impl KeySample {
    /// How many of the sample never expire.
    #[must_use]
    pub fn without_ttl(&self) -> u64 {
        self.prefixes.values().map(|group| group.without_ttl).sum()
    }

    /// The part of a prefix's keys that never expire.
    #[must_use]
    pub fn share_without_ttl(&self, group: &Group) -> Share {
        share(group.without_ttl, group.keys, self.about(group))
    }

    /// The part that a prefix is of all keys.
    #[must_use]
    pub fn share_of_keys(&self, group: &Group) -> Share {
        share(group.keys, self.keys, self.total)
    }

    /// About how many keys of all are of this prefix.
    #[must_use]
    pub fn about(&self, group: &Group) -> u64 {
        if self.keys >= self.total || self.keys == 0 {
            return group.keys;
        }
        let all = u128::from(group.keys) * u128::from(self.total) / u128::from(self.keys);
        u64::try_from(all).unwrap_or(u64::MAX).max(group.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        let near = |a: f64, b: f64| (a - b).abs() < 0.001;
        // As a table of Wilson's interval has it.
        let half = share(50, 100, u64::MAX);
        assert!(near(half.low, 0.375_5) && near(half.high, 0.624_5), "{half:?}");
        let none = share(0, 2_000, 1_000_000);
        assert!(none.low == 0.0 && near(none.high, 0.003_3), "{none:?}");
        assert_eq!(share(7, 10, 10), Share { share: 0.7, low: 0.7, high: 0.7 });
        for of in 1..3_000 {
            assert_eq!((share(0, of, 1 << 40).low, share(of, of, 1 << 40).high), (0.0, 1.0));
        }
        assert_eq!(share(0, 0, 10), Share { share: 0.0, low: 0.0, high: 1.0 });
        let (few, most) = (share(500, 1_000, 1_000_000), share(500, 1_000, 1_010));
        assert!(most.high - most.low < (few.high - few.low) / 5.0, "{few:?} {most:?}");
    }

    /// Samples without a key twice hold the true share as often as is said.
    #[test]
    fn intervals_hold_the_truth() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for (all, with, of) in [(10_000_u64, 300_u64, 2_000_u64), (4_000, 3_900, 2_000), (100_000, 50_000, 500)] {
            let rounds = 1_000;
            let mut held = 0;
            for _ in 0..rounds {
                let (mut left, mut left_with, mut some) = (all, with, 0);
                for _ in 0..of {
                    if random() % left < left_with {
                        (some, left_with) = (some + 1, left_with - 1);
                    }
                    left -= 1;
                }
                let said = share(some, of, all);
                held += u32::from((said.low..=said.high).contains(&(with as f64 / all as f64)));
            }
            assert!(held >= 975, "{held} of {rounds} for {with} of {all}");
        }
    }

    #[test]
    fn parts_of_all() {
        let group = Group { keys: 20, without_ttl: 20, is_ours: false };
        let sample =
            KeySample { total: 1_000, keys: 100, prefixes: [("a:".to_owned(), group)].into(), ..KeySample::default() };
        assert_eq!((sample.about(&group), sample.without_ttl()), (200, 20));
        assert!(sample.share_of_keys(&group).low < 0.2 && sample.share_without_ttl(&group).high == 1.0);
    }
}
