//! What is done for the hottest keys: their copies are pinned in process, refreshed before they turn stale, and brought back
//! after a start, a flush, or whatever else has emptied the store.
//!
//! All of it is work that can wait: it takes from the budget of loads only what misses leave (`governor`). When a warm-up begins is
//! said here, how it goes in `rewarm`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::cache::Key;
use tokio::time::Instant;
use tracing::Instrument;

use super::handle::Cache;
use super::hot::HotKey;
use super::rewarm::{End, Warmed};
use super::space::Inner;
use super::ticks::chance;

/// The hottest are ranked again after this, or earlier if one of them is due to be refreshed; milliseconds.
const RANK_EVERY_MS: i64 = 1_000;
const RANK_AGAIN_MS: i64 = 200;
/// The hottest are refreshed so long before they turn stale, milliseconds, beside what twice their load takes; and not
/// before the last quarter of their fresh life.
const AHEAD_MS: i64 = 1_500;
/// So many hot keys that missed together are no chance, unless a fiftieth of all are more, or half of them fewer.
const MISSES: usize = 8;
/// Between two warm-ups, milliseconds.
const WARM_AGAIN_MS: u64 = 3_000;
/// Doubled so often at most while warm-ups end because loads fail: 48 s.
const MOST_DOUBLINGS: u32 = 4;
/// Processes that lost the same notices do not all begin at once.
const SPREAD: Duration = Duration::from_millis(200);

impl<K, V> Cache<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Up to `most` of the keys that are read most in this process lately, and more than once, the hottest first, by reads
    /// of any kind and outcome. Known from samples, as far as [`super::CacheBuilder::hot_keys`] says.
    #[must_use]
    pub fn hottest(&self, most: usize) -> Vec<HotKey<K>> {
        self.inner.hot.hottest(most, self.inner.hub.ticks.now())
    }
}

/// So many of the hot keys missed within a second or so: the store has lost them.
fn misses_of(known: usize) -> usize {
    known.div_ceil(2).clamp(2, MISSES).max(known / 50)
}

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Begins to bring back what was hot when it was last saved.
    pub(super) fn begin_warm(self: &Arc<Self>) {
        if self.hot.most == 0 {
            return;
        }
        self.hot.rounds.warms.store(true, Ordering::Relaxed);
        let inner = Arc::clone(self);
        self.hub.spawn(async move {
            let saved = inner.hub.lists.of(&inner.namespace).await;
            let decoded = saved.into_iter().filter_map(|encoded| Some((K::decode(&encoded)?, encoded)));
            let keys: Vec<(K, Bytes)> = decoded.take(inner.hot.most).collect();
            for (rank, (key, encoded)) in keys.iter().enumerate() {
                inner.hot.seed(key, encoded, rank);
            }
            inner.warm_up("start", keys).await;
        });
    }

    /// A round of upkeep.
    pub(super) fn tend(self: &Arc<Self>) {
        if self.hot.most == 0 || self.hub.is_stopping() {
            return;
        }
        let now = self.hub.ticks.now();
        let (missed, known) = self.hot.count_missed();
        if missed >= misses_of(known) && self.warm_again(now, "misses") {
            self.hot.forgive_misses();
        } else if self.hot.rounds.gap.load(Ordering::Relaxed) && self.warm_again(now, "gap") {
            self.hot.rounds.gap.store(false, Ordering::Relaxed);
        }
        let mut rank_at = self.hot.rounds.rank_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if now >= *rank_at {
            self.hot.forgive_misses();
            *rank_at = self.tend_copies(now).max(now + RANK_AGAIN_MS);
        }
    }

    /// Pins the copies of the hottest and refreshes those that will turn stale; when to look again.
    fn tend_copies(self: &Arc<Self>, now: i64) -> i64 {
        let ranked = self.hot.rank(now);
        let mut again = now + RANK_EVERY_MS;
        let Some(local) = &self.local else { return again };
        let mut room = local.most_pinned();
        let (mut pinned, mut copied) = (Vec::new(), Vec::new());
        for hot in &ranked {
            let Some(kept) = local.get(&hot.encoded) else { continue };
            copied.push(&hot.encoded);
            let weight = local.weight_of(&hot.encoded, &kept);
            if local.may_be_pinned(weight) && weight <= room {
                room -= weight;
                pinned.push(&hot.encoded);
            }
            let ahead = (AHEAD_MS + (2.0 * kept.cost_ms) as i64).min((kept.soft - kept.born) / 4);
            let due = kept.soft.saturating_sub(ahead);
            if kept.value.is_none() || now >= kept.hard {
                continue;
            }
            // Whoever wants no early refresh gets none.
            if self.knobs.life.early_refresh <= 0.0 {
                continue;
            }
            if now >= due {
                self.kick(&hot.key, &hot.encoded, kept.id);
            } else {
                again = again.min(due);
            }
        }
        self.hot.pin(pinned.into_iter());
        self.touch(&copied);
        again
    }

    /// Begins a warm-up of what is hot now, unless one runs or has just been begun, or loads fail.
    fn warm_again(self: &Arc<Self>, now: i64, why: &'static str) -> bool {
        let rounds = &self.hot.rounds;
        let (at, last) = (now.unsigned_abs(), rounds.warmed_at.load(Ordering::Relaxed));
        let pause = WARM_AGAIN_MS << rounds.failed.load(Ordering::Relaxed).min(MOST_DOUBLINGS);
        if (last > 0 && at < last + pause) || rounds.warms.swap(true, Ordering::Relaxed) {
            return false;
        }
        rounds.warmed_at.store(at + 1, Ordering::Relaxed);
        let hottest = self.hot.hottest(self.hot.most, now);
        let keys = hottest.into_iter().map(|hot| (hot.key, hot.encoded)).collect();
        let inner = Arc::clone(self);
        self.hub.spawn(async move {
            tokio::time::sleep(SPREAD.mul_f64(chance())).await;
            inner.warm_up(why, keys).await;
        })
    }

    /// Brings `keys` back, and says what came of it.
    async fn warm_up(self: &Arc<Self>, why: &'static str, keys: Vec<(K, Bytes)>) {
        if !keys.is_empty() {
            let span = tracing::debug_span!("cache.warm", namespace = %self.namespace, why, keys = keys.len());
            let warm = async {
                let began = Instant::now();
                let mut warmed = Warmed::default();
                let end = self.bring_back(&keys, &mut warmed).await;
                let Warmed { found, loaded, absent, failed, .. } = warmed;
                let counts = &self.metrics.counts;
                counts.rewarm_found.add(found);
                counts.rewarm_loads.add(loaded);
                counts.rewarm_absences.add(absent);
                counts.rewarm_failures.add(failed);
                let took_ms = began.elapsed().as_millis() as u64;
                tracing::debug!(found, loaded, absent, failed, ?end, took_ms, "warmed");
                if end == End::Failing {
                    tracing::warn!(namespace = %self.namespace, failed, "hot keys are not brought back for now: loads fail");
                    self.hot.rounds.failed.fetch_add(1, Ordering::Relaxed);
                } else if loaded + absent > 0 {
                    self.hot.rounds.failed.store(0, Ordering::Relaxed);
                }
                // What is not back now is asked for again.
                if matches!(end, End::Down | End::Crowded | End::Failing) {
                    self.hot.rounds.gap.store(true, Ordering::Relaxed);
                }
            };
            warm.instrument(span).await;
        }
        self.hot.rounds.warms.store(false, Ordering::Relaxed);
    }
}
