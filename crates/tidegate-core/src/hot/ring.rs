//! Counts by window: the last few are kept, older ones make room.

use super::WINDOWS;

/// One more than are told: the newest is not over yet.
const KEPT: usize = WINDOWS + 1;

/// A number that counts.
pub(super) trait Count: Copy + Default {
    fn plus(self, more: Self) -> Self;
}

impl Count for u32 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

impl Count for u64 {
    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

pub(super) struct Ring<C> {
    counts: [C; KEPT],
    /// The newest window that it knows of.
    newest: i64,
}

impl<C: Count> Ring<C> {
    pub(super) fn new(window: i64) -> Self {
        Self { counts: [C::default(); KEPT], newest: window }
    }

    pub(super) fn newest(&self) -> i64 {
        self.newest
    }

    fn at(window: i64) -> usize {
        window.rem_euclid(KEPT as i64) as usize
    }

    /// Counts in `window`, or in the newest if that is newer.
    pub(super) fn add(&mut self, window: i64, more: C) {
        let first = self.newest.saturating_add(1).max(window.saturating_sub(KEPT as i64 - 1));
        for fresh in first..=window {
            self.counts[Self::at(fresh)] = C::default();
        }
        self.newest = self.newest.max(window);
        let count = &mut self.counts[Self::at(self.newest)];
        *count = count.plus(more);
    }

    /// The counts of the windows before `window`, the newest first.
    pub(super) fn before(&self, window: i64) -> [C; WINDOWS] {
        std::array::from_fn(|n| {
            let asked = window.saturating_sub(1 + n as i64);
            let kept = asked <= self.newest && asked > self.newest.saturating_sub(KEPT as i64);
            if kept { self.counts[Self::at(asked)] } else { C::default() }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_window_has_what_was_counted_in_it(steps in prop::collection::vec((0..40_i64, 1..9_u32), 1..60), ask in 0..30_i64) {
            let (mut ring, mut window, mut all) = (Ring::<u32>::new(-3), -3, Vec::new());
            for (forward, more) in steps {
                window += if forward > 30 { forward } else { forward / 8 };
                ring.add(window, more);
                all.push((window, more));
            }
            let asked = window + ask;
            let told = ring.before(asked);
            for (n, count) in told.into_iter().enumerate() {
                let of = asked - 1 - n as i64;
                let want: u32 = all.iter().filter(|(at, _)| *at == of).map(|(_, more)| more).sum();
                prop_assert_eq!(count, want);
            }
        }
    }
}
