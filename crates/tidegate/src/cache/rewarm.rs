//! Bringing the hottest keys back, the hottest first: what the store still has is read from it together, what it lacks is loaded.
//!
//! Processes that lost the same entries share one pace. A process loads only while it has a *seat*, which is a lease in the store like
//! that of a key: there are [`SEATS`] for a cache, each is worth [`LOADS_A_SEAT`] loads a second, and a process takes no more of them
//! than its own `load_rate` can use. Who has none looks again what the others have brought back. A seat that was lost (its process
//! died, the store was emptied once more) is free again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_backend::CacheKey;
use tidegate_core::cache::cell::Holder;
use tidegate_core::cache::{EntryId, Key, Op, Reply};
use tokio::time::Instant;

use super::flight::{Landing, Outcome};
use super::governor::admit_spare_within;
use super::load::{Hint, Want};
use super::read::Asked;
use super::space::Inner;
use super::ticks::chance;

/// Keys that are asked for together.
const PART: usize = 100;
/// Of what is missing so many are looked at once more before they are loaded: others may have been faster.
const STEP: usize = 10;
/// Processes that load at once, at most, for a cache.
const SEATS: u32 = 4;
/// Loads a second that a seat is worth: with all of them 200.
const LOADS_A_SEAT: u32 = 50;
/// Life of a seat, and after which time it is renewed, milliseconds.
const SEAT_MS: i64 = 2_000;
const RENEW_MS: i64 = 250;
/// Who has no seat looks again after this, half of it more or less.
const LOOK_AGAIN: Duration = Duration::from_millis(400);
/// Loads of a warm-up that run at once, at most.
const MOST_AT_ONCE: usize = 32;
/// So many loads that failed one after the other end a warm-up.
const FAILURES: u32 = 8;
/// Where the seats of a store lie: no cache can have this name.
const SEATS_OF: &str = "~warm";

/// What a warm-up came to.
#[derive(Debug, Default)]
pub(super) struct Warmed {
    /// Still in the store.
    pub(super) found: u64,
    pub(super) loaded: u64,
    /// Loaded, and there is none.
    pub(super) absent: u64,
    pub(super) failed: u64,
    /// One after the other, the last.
    failures: u32,
}

/// How a warm-up ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Every key was looked at.
    Whole,
    /// The store does not answer.
    Down,
    /// There was no room for a load within the hard time limit of one.
    Crowded,
    /// Loads fail.
    Failing,
}

/// A key that is to be brought back.
type Wanted<K> = (K, Bytes);

impl<K, V> Inner<K, V>
where
    K: Key + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Brings `keys` back, the hottest first.
    pub(super) async fn bring_back(self: &Arc<Self>, keys: &[Wanted<K>], warmed: &mut Warmed) -> End {
        let mut seats = Seats::of(self);
        let mut run = Run { landings: VecDeque::new(), next: Instant::now() };
        let mut end = End::Whole;
        for part in keys.chunks(PART) {
            if let Err(early) = self.bring_part(part, &mut seats, &mut run, warmed).await {
                end = early;
                break;
            }
        }
        for mut landing in run.landings {
            let _ = landing.wait_for(Option::is_some).await;
            warmed.take(&landing);
        }
        seats.give_back(self).await;
        end
    }

    async fn bring_part(
        self: &Arc<Self>,
        part: &[Wanted<K>],
        seats: &mut Seats,
        run: &mut Run<V>,
        warmed: &mut Warmed,
    ) -> Result<(), End> {
        let keys: Vec<K> = part.iter().map(|(key, _)| key.clone()).collect();
        let all = part.iter().map(|(_, encoded)| encoded.clone()).enumerate().collect();
        let mut missing = self.lacks(&keys, all, warmed).await.ok_or(End::Down)?;
        // Processes go through each part in another order, so that each loads some of it.
        shuffle(&mut missing);
        // A loader that batches is asked once for all of them.
        let step = if self.loader.batches() { PART } else { STEP };
        while !missing.is_empty() {
            let places = seats.keep(self).await?;
            if places == 0 {
                tokio::time::sleep(LOOK_AGAIN.mul_f64(0.5 + chance())).await;
                let again = missing.into_iter().map(|(at, encoded, _)| (at, encoded)).collect();
                missing = self.lacks(&keys, again, warmed).await.ok_or(End::Down)?;
                continue;
            }
            let rest = missing.split_off(step.min(missing.len()));
            let some = std::mem::replace(&mut missing, rest);
            let again = some.into_iter().map(|(at, encoded, _)| (at, encoded)).collect();
            let some = self.lacks(&keys, again, warmed).await.ok_or(End::Down)?;
            let pause = Duration::from_secs(1) / (places * LOADS_A_SEAT);
            self.load_some(&keys, some, pause, run, warmed).await?;
        }
        Ok(())
    }

    /// Which of them the store lacks. Whoever keeps copies in process reads what it has; others only ask whether it is there.
    async fn lacks(
        self: &Arc<Self>,
        keys: &[K],
        asked: Vec<(usize, Bytes)>,
        warmed: &mut Warmed,
    ) -> Option<Vec<(usize, Bytes, Hint)>> {
        if asked.is_empty() {
            return Some(Vec::new());
        }
        let answers: Vec<Option<Hint>> = if self.local.is_some() {
            let answers = self.try_store_many(keys, &asked).await?;
            let hint = |answer: Asked<V>| match answer {
                Asked::Answered(_) => None,
                Asked::Missing(hint) => Some(hint),
            };
            answers.into_iter().map(hint).collect()
        } else {
            let names: Vec<CacheKey> = asked.iter().map(|(_, encoded)| self.cache_key(encoded)).collect();
            let store = &self.hub.store;
            let there = store.ask(store.store.touch(&names)).await.ok().filter(|there| there.len() == names.len())?;
            there.into_iter().map(|there| (!there).then_some(Hint::Nothing)).collect()
        };
        let now = self.hub.ticks.now();
        let mut missing = Vec::new();
        for ((at, encoded), hint) in asked.into_iter().zip(answers) {
            match hint {
                None => warmed.found += 1,
                // What has just failed is not worth another load.
                Some(_) if self.memory.holds(&encoded, now) => {}
                Some(hint) => missing.push((at, encoded, hint)),
            }
        }
        Some(missing)
    }

    async fn load_some(
        self: &Arc<Self>,
        keys: &[K],
        mut missing: Vec<(usize, Bytes, Hint)>,
        pause: Duration,
        run: &mut Run<V>,
        warmed: &mut Warmed,
    ) -> Result<(), End> {
        while !missing.is_empty() {
            run.settle(warmed).await?;
            tokio::time::sleep_until(run.next).await;
            let permit = admit_spare_within(self.gates(), self.knobs.hard_timeout).await.map_err(|_| End::Crowded)?;
            run.next = run.next.max(Instant::now()) + pause;
            if self.loader.batches() {
                let started = self.start_many(keys, std::mem::take(&mut missing), Some(permit));
                run.landings.extend(started.into_iter().map(|(.., landing)| landing));
            } else if let Some((at, encoded, hint)) = missing.pop() {
                run.landings.push_back(self.start(&keys[at], &encoded, Want::Load(hint), Some(permit), None));
            }
        }
        Ok(())
    }
}

/// The loads of a warm-up that have not ended.
struct Run<V> {
    landings: VecDeque<Landing<V>>,
    /// When the next may begin.
    next: Instant,
}

impl<V> Run<V> {
    /// Takes note of what has ended; waits while too many run.
    async fn settle(&mut self, warmed: &mut Warmed) -> Result<(), End> {
        while let Some(mut first) = self.landings.pop_front() {
            if first.borrow().is_none() {
                if self.landings.len() + 1 < MOST_AT_ONCE {
                    self.landings.push_front(first);
                    break;
                }
                // A flight lands whatever happens, also when the cache is closed.
                let _ = first.wait_for(Option::is_some).await;
            }
            warmed.take(&first);
        }
        if warmed.failures >= FAILURES { Err(End::Failing) } else { Ok(()) }
    }
}

impl Warmed {
    fn take<V>(&mut self, landing: &Landing<V>) {
        let landed = landing.borrow();
        match landed.as_ref().map(|landed| &landed.result) {
            Some(Outcome::Found(_, true)) => self.found += 1,
            Some(Outcome::Found(kept, false)) if kept.value.is_none() => self.absent += 1,
            Some(Outcome::Found(..)) => self.loaded += 1,
            Some(Outcome::Failed(_)) => {
                self.failed += 1;
                self.failures += 1;
                return;
            }
            Some(Outcome::Again) | None => return,
        }
        self.failures = 0;
    }
}

/// The seats that this process has for a cache.
struct Seats {
    keys: Vec<CacheKey>,
    /// No more than these are of use.
    wanted: usize,
    taken: Vec<(usize, EntryId)>,
    renew_at: i64,
}

impl Seats {
    fn of<K, V: 'static>(inner: &Inner<K, V>) -> Self {
        let rate = inner.gates().iter().filter_map(|gate| gate.loads_a_second()).min();
        let wanted = rate.map_or(SEATS, |rate| rate.div_ceil(LOADS_A_SEAT).clamp(1, SEATS));
        let key = |seat| CacheKey {
            namespace: SEATS_OF.into(),
            schema: 0,
            key: format!("{}/{seat}", inner.namespace).into(),
        };
        Self { keys: (0..SEATS).map(key).collect(), wanted: wanted as usize, taken: Vec::new(), renew_at: i64::MIN }
    }

    /// How many this process has now: those it had are renewed, and free ones are taken while more are of use.
    async fn keep<K, V: 'static>(&mut self, inner: &Inner<K, V>) -> Result<u32, End> {
        let now = inner.hub.ticks.now();
        if now >= self.renew_at {
            self.renew_at = now.saturating_add(RENEW_MS);
            let renew = |(seat, token): &(usize, EntryId)| {
                (self.keys[*seat].clone(), Op::Renew { holder: Holder::Lease(*token), for_ms: SEAT_MS })
            };
            let renewals: Vec<_> = self.taken.iter().map(renew).collect();
            let mut answers = self.ask(inner, &renewals).await?.into_iter();
            self.taken.retain(|_| matches!(answers.next(), Some(Reply::Held)));
            self.take_more(inner).await?;
        }
        Ok(self.taken.len() as u32)
    }

    async fn take_more<K, V: 'static>(&mut self, inner: &Inner<K, V>) -> Result<(), End> {
        let first = (chance() * self.keys.len() as f64) as usize;
        for seat in (0..self.keys.len()).map(|n| (first + n) % self.keys.len()) {
            if self.taken.len() >= self.wanted {
                break;
            }
            if self.taken.iter().any(|(taken, _)| *taken == seat) {
                continue;
            }
            let token = Inner::<K, V>::id();
            let lease = [(self.keys[seat].clone(), Op::Lease { token, for_ms: SEAT_MS })];
            if let Some(Reply::Granted(_)) = self.ask(inner, &lease).await?.first() {
                self.taken.push((seat, token));
            }
        }
        Ok(())
    }

    /// Others need not wait for their end.
    async fn give_back<K, V: 'static>(self, inner: &Inner<K, V>) {
        let release = |(seat, token): &(usize, EntryId)| {
            (self.keys[*seat].clone(), Op::Release { holder: Holder::Lease(*token) })
        };
        let releases: Vec<_> = self.taken.iter().map(release).collect();
        // Where that fails they end by themselves.
        let _ = self.ask(inner, &releases).await;
    }

    async fn ask<K, V: 'static>(&self, inner: &Inner<K, V>, operations: &[(CacheKey, Op)]) -> Result<Vec<Reply>, End> {
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let answers = inner.hub.store.apply_many(operations).await;
        answers.into_iter().collect::<Result<_, _>>().map_err(|_| End::Down)
    }
}

fn shuffle<T>(items: &mut [T]) {
    for last in (1..items.len()).rev() {
        items.swap(last, (chance() * (last + 1) as f64) as usize);
    }
}
