//! Spreads the periodic work of several nodes, so that they do not meet on the same rows at the same instant.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// A number nobody can foresee; good enough to spread work, not to keep secrets.
pub(crate) fn number() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Somewhere between `from` and `to`, evenly.
pub(crate) fn between(from: Duration, to: Duration) -> Duration {
    let spread = u64::try_from(to.saturating_sub(from).as_micros()).unwrap_or(u64::MAX);
    from + Duration::from_micros(number() % spread.saturating_add(1))
}

/// Brings `items` into an order of its own.
pub(crate) fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, (number() % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_between_and_differs() {
        let (from, to) = (Duration::from_millis(250), Duration::from_millis(500));
        let drawn: std::collections::BTreeSet<_> = (0..200).map(|_| between(from, to)).collect();
        assert!(drawn.iter().all(|d| (from..=to).contains(d)));
        assert!(drawn.len() > 100, "{} of 200 differ", drawn.len());
        assert_eq!(between(to, to), to);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        shuffle::<u32>(&mut []);
    }
}
