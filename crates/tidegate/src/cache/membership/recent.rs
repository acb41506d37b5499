//! The additions of the last minute. A server that takes another's place may lack what that one acknowledged: they are made
//! again there, and making them twice does no harm.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

/// How long they are kept.
const KEPT: Duration = Duration::from_secs(60);
/// Most that are kept; the oldest go first.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<(Instant, Bytes)>>);

impl Recent {
    /// Ids that are being added.
    pub(super) fn remember(&self, ids: &[Bytes]) {
        let now = Instant::now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(ids.iter().map(|id| (now, id.clone())));
        let over = kept.len().saturating_sub(MOST);
        let old = kept.partition_point(|(added, _)| now.duration_since(*added) > KEPT);
        kept.drain(..old.max(over));
    }

    pub(super) fn all(&self) -> Vec<Bytes> {
        let now = Instant::now();
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|(added, _)| now.duration_since(*added) <= KEPT).map(|(_, id)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let recent = Recent::default();
        let id = |n: usize| Bytes::from(n.to_string());
        recent.remember(&(0..MOST).map(id).collect::<Vec<_>>());
        recent.remember(&[id(MOST), id(MOST + 1)]);
        let all = recent.all();
        assert_eq!((all.len(), &all[0], &all[MOST - 1]), (MOST, &id(2), &id(MOST + 1)));
    }
}
