//! The invalidations of the last minute. A failover may have lost what the old master acknowledged: they are repeated on
//! a server that was not known before, and doing them twice does no harm.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::CacheKey;
use tidegate_core::cache::{Op, RowVersion};

/// How long they are kept.
const KEPT: Duration = Duration::from_secs(60);
/// Most that are kept; the oldest go first, and are counted.
const MOST: usize = 100_000;

/// What was done, as far as it must be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// A key was invalidated, or replaced by this version.
    Invalidated { key: CacheKey, floor: Option<RowVersion>, keep_floor_ms: i64 },
    /// A tag's counter was moved on.
    Bumped { namespace: Arc<str>, tag: u64, keep: Duration },
    /// A namespace was cleared.
    Cleared { namespace: Arc<str> },
}

impl Done {
    /// What of `op` must be done again.
    pub(super) fn of(key: &CacheKey, op: &Op) -> Option<Self> {
        let (floor, keep_floor_ms) = match op {
            Op::Invalidate { floor, keep_floor_ms } => (*floor, *keep_floor_ms),
            Op::Put { bytes, keep_floor_ms, .. } => (tidegate_core::cache::entry::version_of(bytes), *keep_floor_ms),
            _ => return None,
        };
        Some(Self::Invalidated { key: key.clone(), floor, keep_floor_ms })
    }
}

/// What was done in the last minute.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<(Instant, Done)>>);

impl Recent {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Done)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be said before it is done: then whatever is acknowledged is known here.
    pub(super) fn remember(&self, done: impl Iterator<Item = Done>) {
        let mut lost = 0;
        {
            let now = Instant::now();
            let mut all = self.lock();
            while all.front().is_some_and(|(at, _)| now - *at > KEPT) {
                all.pop_front();
            }
            for done in done {
                if all.len() >= MOST {
                    all.pop_front();
                    lost += 1;
                }
                all.push_back((now, done));
            }
        }
        if lost > 0 {
            metrics::counter!("tidegate_cache_unrepeatable_total").increment(lost);
        }
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Done> {
        let now = Instant::now();
        self.lock().iter().filter(|(at, _)| now - *at <= KEPT).map(|(_, done)| done.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let recent = Recent::default();
        let done = |tag| Done::Bumped { namespace: "n".into(), tag, keep: Duration::ZERO };
        recent.remember((0..=MOST as u64).map(done));
        let all = recent.all();
        assert_eq!((all.len(), &all[0], all.last()), (MOST, &done(1), Some(&done(MOST as u64))));
    }
}
