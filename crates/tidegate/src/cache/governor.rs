//! How many loads run: a budget of concurrent ones, a rate, and a bounded queue with patience, for the process and for
//! each cache. Beyond that a load is not admitted: its callers get an older value or are told when to ask again.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::cache::{Admission, Governor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ticks::Ticks;

/// Most loads that wait for one gate.
pub const MAX_WAITING_LOADS: usize = 10_000;
/// Work that can wait looks for room so often.
const SPARE_LOOK: Duration = Duration::from_millis(5);
/// It takes a place in a rate so long before, or whatever looks for one less often than there are some would leave them
/// unused. A miss waits so much longer at most.
const SPARE_AHEAD: Duration = Duration::from_millis(20);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A bound on loads: the process' or one cache's.
pub(super) struct Gate {
    permits: Arc<Semaphore>,
    budget: usize,
    rate: Mutex<Governor>,
    loads_a_second: Option<NonZeroU32>,
    /// When loads may begin: between its place in the rate and its beginning a load asks for a lease, and those that a slow
    /// answer held up must not begin all at once.
    beginnings: Mutex<Governor>,
    waiting: AtomicUsize,
    /// What a load takes, microseconds, a moving mean.
    mean_us: AtomicU64,
    ticks: Ticks,
}

/// Leave to load. Dropped: the place in the budget is free again.
pub(super) struct Permit {
    /// Of each gate: its place in the budget and in the rate.
    places: Vec<(Arc<Gate>, OwnedSemaphorePermit, Duration)>,
}

impl Permit {
    /// Of a load within a load: it goes on the outer one's permit, or a budget of one would wait for itself.
    pub(super) fn nested() -> Self {
        Self { places: Vec::new() }
    }

    /// No load was started on it.
    pub(super) fn unused(self) {
        for (gate, _, place) in &self.places {
            gate.rate().give_back(*place);
        }
    }

    /// To be awaited just before the load begins. As long as a lease took to be granted, at most.
    pub(super) async fn begin(&self) {
        for (gate, ..) in &self.places {
            let admission = {
                let mut beginnings = gate.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
                beginnings.admit(gate.now(), Duration::MAX)
            };
            if let Admission::After(pause) = admission {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// A load was, and took so long.
    pub(super) fn took(&self, load: Duration) {
        let us = u64::try_from(load.as_micros()).unwrap_or(u64::MAX);
        for (gate, ..) in &self.places {
            let mean = gate.mean_us.load(Ordering::Relaxed);
            gate.mean_us.store(mean - mean / 8 + us / 8, Ordering::Relaxed);
        }
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(super) fn new(budget: usize, rate: Option<NonZeroU32>, ticks: Ticks) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(budget)),
            budget,
            rate: Mutex::new(Governor::new(rate)),
            loads_a_second: rate,
            beginnings: Mutex::new(Governor::new(rate)),
            waiting: AtomicUsize::new(0),
            mean_us: AtomicU64::new(0),
            ticks,
        }
    }

    /// Its bound on loads a second, if it has one.
    pub(super) fn loads_a_second(&self) -> Option<u32> {
        self.loads_a_second.map(NonZeroU32::get)
    }

    fn rate(&self) -> MutexGuard<'_, Governor> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.ticks.now().unsigned_abs())
    }

    /// When the loads that wait now will have been served.
    fn retry_after(&self) -> Duration {
        let rounds = (self.waiting.load(Ordering::Relaxed) / self.budget) as u64 + 1;
        Duration::from_micros(self.mean_us.load(Ordering::Relaxed).saturating_mul(rounds))
            .clamp(SHORTEST_RETRY, LONGEST_RETRY)
    }

    async fn place(&self, patience: Duration) -> Result<(OwnedSemaphorePermit, Duration), Duration> {
        let began = self.now();
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
                let _waiting = Waiting(&self.waiting);
                if ahead >= MAX_WAITING_LOADS {
                    return Err(self.retry_after());
                }
                let acquired = tokio::time::timeout(patience, Arc::clone(&self.permits).acquire_owned()).await;
                acquired.ok().and_then(Result::ok).ok_or_else(|| self.retry_after())?
            }
        };
        let left = patience.saturating_sub(self.now().saturating_sub(began));
        let (admission, place) = {
            let mut rate = self.rate();
            (rate.admit(self.now(), left), rate.place())
        };
        match admission {
            Admission::Now => {}
            Admission::After(pause) => tokio::time::sleep(pause).await,
            Admission::Overloaded(retry) => return Err(retry.clamp(SHORTEST_RETRY, LONGEST_RETRY)),
        }
        Ok((permit, place))
    }

    /// A place for work that can wait, and for how long it must: only if no miss waits and a quarter of the budget stays
    /// free for misses.
    fn spare_place(&self, ahead: Duration) -> Option<(OwnedSemaphorePermit, Duration, Duration)> {
        if self.waiting.load(Ordering::Relaxed) > 0 || self.permits.available_permits() <= self.budget / 4 {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let mut rate = self.rate();
        match rate.admit(self.now(), ahead) {
            Admission::Now => Some((permit, rate.place(), Duration::ZERO)),
            Admission::After(pause) => Some((permit, rate.place(), pause)),
            Admission::Overloaded(_) => None,
        }
    }
}

/// Waits for leave to load at all gates; the error: worth asking again after this.
pub(super) async fn admit(gates: [&Arc<Gate>; 2], patience: Duration) -> Result<Permit, Duration> {
    let mut permit = Permit::nested();
    for gate in gates {
        match gate.place(patience).await {
            Ok((taken, place)) => permit.places.push((Arc::clone(gate), taken, place)),
            Err(retry) => {
                permit.unused();
                return Err(retry);
            }
        }
    }
    Ok(permit)
}

/// Leave to load for work that can wait, if there is room to spare.
pub(super) fn admit_spare(gates: [&Arc<Gate>; 2]) -> Option<Permit> {
    spare_soon(gates, Duration::ZERO).map(|(permit, _)| permit)
}

/// The same, and after which pause, at most `ahead`.
fn spare_soon(gates: [&Arc<Gate>; 2], ahead: Duration) -> Option<(Permit, Duration)> {
    let (mut permit, mut longest) = (Permit::nested(), Duration::ZERO);
    for gate in gates {
        match gate.spare_place(ahead) {
            Some((taken, place, pause)) => {
                permit.places.push((Arc::clone(gate), taken, place));
                longest = longest.max(pause);
            }
            None => {
                permit.unused();
                return None;
            }
        }
    }
    Some((permit, longest))
}

/// The same, waiting for room up to `patience`.
pub(super) async fn admit_spare_within(gates: [&Arc<Gate>; 2], patience: Duration) -> Result<Permit, Duration> {
    let give_up = gates[0].now() + patience;
    loop {
        if let Some((permit, pause)) = spare_soon(gates, SPARE_AHEAD) {
            tokio::time::sleep(pause).await;
            return Ok(permit);
        }
        if gates[0].now() >= give_up {
            return Err(gates[1].retry_after());
        }
        tokio::time::sleep(SPARE_LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(budget: usize, rate: u32) -> Arc<Gate> {
        Arc::new(Gate::new(budget, NonZeroU32::new(rate), Ticks::tokio()))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_kept_and_the_rest_waits_in_turn() {
        let (process, cache) = (gate(2, 0), gate(64, 0));
        let first = admit([&cache, &process], SECOND).await.expect("free");
        let _second = admit([&cache, &process], SECOND).await.expect("free");
        assert!(admit_spare([&cache, &process]).is_none());
        assert!(admit([&cache, &process], SECOND).await.is_err(), "patience ends");
        assert_eq!(cache.permits.available_permits(), 62, "and leaves nothing behind");
        let third = tokio::spawn({
            let (process, cache) = (process.clone(), cache.clone());
            async move { admit([&cache, &process], SECOND).await.is_ok() }
        });
        tokio::time::sleep(SECOND / 2).await;
        drop(first);
        assert!(third.await.expect("no panic"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_is_kept_and_unused_places_are_given_back() {
        let (process, cache) = (gate(64, 10), gate(64, 0));
        let began = tokio::time::Instant::now();
        for _ in 0..5 {
            admit([&cache, &process], SECOND).await.expect("within patience").unused();
        }
        assert!(began.elapsed() < SECOND / 20, "{:?}", began.elapsed());
        for _ in 0..6 {
            drop(admit([&cache, &process], SECOND).await.expect("within patience"));
        }
        assert!(began.elapsed() >= SECOND / 2, "{:?}", began.elapsed());
        assert!(admit([&cache, &process], SECOND / 20).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn loads_that_were_held_up_together_begin_apart() {
        let (process, cache) = (gate(64, 10), gate(64, 0));
        let mut permits = Vec::new();
        for _ in 0..5 {
            permits.push(admit([&cache, &process], SECOND).await.expect("within patience"));
        }
        let began = tokio::time::Instant::now();
        for permit in &permits {
            permit.begin().await;
        }
        assert!(began.elapsed() >= SECOND * 4 / 10, "{:?}", began.elapsed());
        // One that comes in time does not wait.
        tokio::time::sleep(SECOND).await;
        let (permit, began) = (admit([&cache, &process], SECOND).await.expect("free"), tokio::time::Instant::now());
        permit.begin().await;
        assert!(began.elapsed().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_can_wait_leaves_room_for_misses() {
        let (process, cache) = (gate(8, 0), gate(64, 0));
        let spare: Vec<_> = std::iter::from_fn(|| admit_spare([&cache, &process])).collect();
        assert_eq!(spare.len(), 6);
        assert!(admit([&cache, &process], Duration::ZERO).await.is_ok());
    }
}
