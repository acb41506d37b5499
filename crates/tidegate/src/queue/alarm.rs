//! Sleeps that end when they are meant to. The runtime's end on a millisecond of its own, up to two milliseconds late; what
//! is left of a sleep near its end is waited for by a thread, which does nothing else and begins with the first such sleep.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// How late the runtime's sleeps may end, with room.
const ROUGH: Duration = Duration::from_millis(3);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread waits here.
    changed: Condvar,
    /// Whoever sleeps waits here.
    rung: Notify,
}

#[derive(Default)]
struct State {
    /// When to ring.
    at: Option<Instant>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings at the set instants until it is closed.
    fn serve(&self) {
        let mut state = self.lock();
        while !state.closed {
            let left = state.at.map(|at| at.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => {
                    state.at = None;
                    self.rung.notify_one();
                    state
                }
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// An alarm clock for one sleeper. Dropping it ends its thread.
#[derive(Default)]
pub(super) struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// Sleeps for `time`, and some 0.1 ms more at most on a machine with a core to spare.
    pub(super) async fn sleep(&mut self, time: Duration) {
        let end = Instant::now() + time;
        if let Some(rough) = time.checked_sub(ROUGH) {
            tokio::time::sleep(rough).await;
        }
        if !self.set(end) {
            tokio::time::sleep(end.saturating_duration_since(Instant::now())).await;
            return;
        }
        // Some other sleep, which was given up, may have rung.
        while Instant::now() < end {
            self.shared.rung.notified().await;
        }
    }

    /// Whether it will ring at `end`.
    fn set(&mut self, end: Instant) -> bool {
        if self.thread.is_none() {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("tidegate-alarm".to_owned());
            self.thread = thread.spawn(move || shared.serve()).ok();
        }
        let mut state = self.shared.lock();
        // It looks at the clock by itself when an earlier sleep, which was given up, would have ended.
        let sooner = state.at.is_none_or(|at| end < at);
        state.at = Some(end);
        drop(state);
        if sooner {
            self.shared.changed.notify_one();
        }
        self.thread.is_some()
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It holds nothing and waits for nothing else.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sleeps_are_never_short_and_half_of_them_are_less_than_a_millisecond_late() {
        let (mut alarm, mut late) = (Alarm::default(), Vec::new());
        for us in (0..200).map(|n| 50 + n * 37) {
            let (time, began) = (Duration::from_micros(us), Instant::now());
            alarm.sleep(time).await;
            late.push(began.elapsed().checked_sub(time).expect("not early"));
        }
        late.sort();
        assert!(late[100] < Duration::from_millis(1), "{:?}", late[100]);
    }

    #[tokio::test]
    async fn a_sleep_that_is_given_up_neither_shortens_the_next_nor_holds_it_up() {
        let mut alarm = Alarm::default();
        let then = Duration::from_millis(2);
        for given_up in [1, 5_000] {
            let began = Instant::now();
            assert!(alarm.set(began + Duration::from_millis(given_up)));
            alarm.sleep(then).await;
            let took = began.elapsed();
            assert!(took >= then && took < Duration::from_secs(4), "{took:?}");
        }
        let shared = Arc::downgrade(&alarm.shared);
        drop(alarm);
        assert!(shared.upgrade().is_none(), "its thread has ended");
    }
}
