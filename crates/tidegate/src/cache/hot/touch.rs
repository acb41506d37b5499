//! What is read from copies in process looks unused to the store, which then evicts it under everybody else. So the hottest such keys are
//! touched there, without being read.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_backend::CacheKey;
use tidegate_core::cache::Key;

use super::super::space::Inner;

/// So many of the hottest are touched at each round of upkeep that ranks them (once a second), and as many of the others in turn.
const EACH: usize = 50;

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Touches some of these keys, the hottest first, unless the last round is still at it.
    pub(in crate::cache) fn touch(self: &Arc<Self>, hottest: &[&Bytes]) {
        let rounds = &self.hot.rounds;
        if hottest.is_empty() || rounds.touches.swap(true, Ordering::Relaxed) {
            return;
        }
        let round = rounds.touched.fetch_add(1, Ordering::Relaxed);
        let keys: Vec<CacheKey> = turn(hottest, round).map(|encoded| self.cache_key(encoded)).collect();
        let inner = Arc::clone(self);
        self.hub.spawn(async move {
            let store = &inner.hub.store;
            // What is not there any more is found by whoever reads it.
            let _ = store.ask(store.store.touch(&keys)).await;
            inner.hot.rounds.touches.store(false, Ordering::Relaxed);
        });
    }
}

/// The first [`EACH`], and the next ones of the rest.
fn turn<'a, 'b>(hottest: &'a [&'b Bytes], round: usize) -> impl Iterator<Item = &'b Bytes> + use<'a, 'b> {
    let (first, rest) = hottest.split_at(EACH.min(hottest.len()));
    let turns = rest.len().div_ceil(EACH).max(1);
    let now = rest.iter().skip(round % turns * EACH).take(EACH);
    first.iter().chain(now).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_turn_and_the_hottest_each_time() {
        let keys: Vec<Bytes> = (0..170_u8).map(|n| Bytes::copy_from_slice(&[n])).collect();
        let all: Vec<&Bytes> = keys.iter().collect();
        let mut seen = vec![0; keys.len()];
        for round in 0..6 {
            let touched: Vec<&Bytes> = turn(&all, round).collect();
            assert!(touched.len() <= 2 * EACH);
            touched.iter().for_each(|key| seen[usize::from(key[0])] += 1);
        }
        assert!(seen[..EACH].iter().all(|n| *n == 6) && seen[EACH..].iter().all(|n| *n == 2), "{seen:?}");
        assert_eq!(turn(&all[..3], 7).count(), 3);
    }
}
