//! The one loop that claims for every worker of the process.
//!
//! One call asks all queues at once, so an idle process with a thousand queues costs the store two calls a second. It sleeps
//! until the earliest instant that it was told of, is woken by an earlier one, by a worker that has room again, and in any
//! case after half a second: a wake-up that is lost delays nothing for longer. Where a store does not hear what other processes
//! schedule, the loop looks again soon after it has found something, and less and less often while it finds nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_backend::{Handout, QueueStore, Want};
use tidegate_core::Millis;
use tidegate_core::queue::{Claimed, QueueName};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::alarm::Alarm;

/// Longest sleep.
const TICK: Duration = Duration::from_millis(500);
/// Shortest sleep on a store that does not hear of other processes; it doubles up to [`TICK`] while nothing is found.
const SOON: Duration = Duration::from_millis(5);
/// Most tasks of one queue in one claim.
const MAX_CLAIM: usize = 256;
/// The first pause after a failure; it doubles up to [`TICK`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// Something that has been due for this long though a worker was free is trouble.
const OVERDUE: Duration = Duration::from_secs(2);

/// Tasks for one worker, and the room they take.
pub(super) struct Batch {
    pub tasks: Vec<Claimed>,
    pub room: OwnedSemaphorePermit,
}

/// A worker, as the loop sees it.
pub(super) struct Line {
    pub queue: QueueName,
    pub lease_ms: i64,
    /// How many tasks it can take.
    pub room: Arc<Semaphore>,
    pub batches: mpsc::UnboundedSender<Batch>,
    pub open: AtomicBool,
    /// More was due than it could take: it rings once it has room again.
    pub starved: AtomicBool,
    /// It takes one batch, whatever its size, and leaves.
    pub once: bool,
}

impl Line {
    /// Has it ring once it has room again; whether it has none. What came free meanwhile is seen here or rings.
    fn starve(&self) -> bool {
        self.starved.store(true, Ordering::SeqCst);
        self.room.available_permits() == 0
    }
}

pub(super) struct Claims {
    store: Arc<dyn QueueStore>,
    lines: Mutex<Vec<Arc<Line>>>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// Rung when a worker has room again, begins or ends.
    bell: Arc<Notify>,
    /// Held by a round.
    rounds: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when claims fail, and why.
    failing: Option<(Instant, String)>,
    /// Since when something is due that a free worker did not get.
    overdue: Option<Instant>,
}

impl Claims {
    pub(super) fn new(store: Arc<dyn QueueStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            lines: Mutex::default(),
            task: Mutex::default(),
            bell: Arc::default(),
            rounds: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        })
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a worker rings when it has room again.
    pub(super) fn bell(&self) -> Arc<Notify> {
        self.bell.clone()
    }

    /// Claims for `line` from now on.
    pub(super) fn join(self: &Arc<Self>, line: Arc<Line>) {
        Self::lock(&self.lines).push(line);
        let mut task = Self::lock(&self.task);
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            // The loop holds no owner of itself: it ends with the last handle.
            *task = Some(tokio::spawn(run(Arc::downgrade(self), self.bell.clone())));
        }
        self.bell.notify_one();
    }

    /// No more is claimed for `line`, but by a round that is under way.
    pub(super) fn leave(&self, line: &Arc<Line>) {
        line.open.store(false, Ordering::Release);
        Self::lock(&self.lines).retain(|other| !Arc::ptr_eq(other, line));
    }

    /// Waits for the round that is under way, if one is: what it claims for a line that left arrives before this returns.
    pub(super) async fn round_ends(&self) {
        drop(self.rounds.lock().await);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let state = Self::lock(&self.state);
        if let Some((since, why)) = &state.failing
            && since.elapsed() >= OVERDUE
        {
            return Some(format!("due tasks cannot be claimed: {why}"));
        }
        let late = state.overdue.map(|since| since.elapsed()).filter(|late| *late >= OVERDUE)?;
        Some(format!("tasks have been due for {} s though a worker is free", late.as_secs()))
    }

    pub(super) async fn close(&self) {
        let task = Self::lock(&self.task).take();
        if let Some(task) = task {
            task.abort();
            // It was told to end; how it ended is of no interest.
            let _ = task.await;
        }
    }

    /// One round: how long to sleep after it.
    async fn round(&self, pace: &mut Pace) -> Duration {
        let _round = self.rounds.lock().await;
        let lines: Vec<Arc<Line>> = Self::lock(&self.lines).clone();
        let mut asked = Vec::new();
        for line in &lines {
            if line.room.available_permits() == 0 && line.starve() {
                continue;
            }
            let free = line.room.available_permits().min(MAX_CLAIM);
            let taken = u32::try_from(free).ok().and_then(|free| line.room.clone().try_acquire_many_owned(free).ok());
            asked.extend(taken.map(|room| (line, room)));
        }
        if asked.is_empty() {
            // Nobody wants anything: what the last who did met is over for them.
            let mut state = Self::lock(&self.state);
            state.overdue = None;
            if lines.is_empty() {
                state.failing = None;
            }
            return TICK;
        }
        let want = |(line, room): &(&Arc<Line>, OwnedSemaphorePermit)| Want {
            queue: line.queue.clone(),
            max: room.num_permits(),
            lease_ms: line.lease_ms,
        };
        let wants: Vec<Want> = asked.iter().map(want).collect();
        match self.store.claim(&wants).await {
            Ok(handouts) => {
                pace.pause = FIRST_PAUSE;
                Self::lock(&self.state).failing = None;
                let found = handouts.iter().any(|handout| !handout.tasks.is_empty());
                pace.sleep(found, self.hand_over(asked, handouts))
            }
            Err(e) => {
                self.failed(&e.to_string());
                let now = pace.pause;
                pace.pause = (now * 2).min(TICK);
                now
            }
        }
    }

    fn failed(&self, why: &str) {
        let mut state = Self::lock(&self.state);
        match &mut state.failing {
            Some((_, known)) => why.clone_into(known),
            None => {
                tracing::warn!(why, "due tasks cannot be claimed; it is tried again");
                state.failing = Some((Instant::now(), why.to_owned()));
            }
        }
    }

    /// Gives the tasks to their workers; how long to sleep.
    fn hand_over(&self, asked: Vec<(&Arc<Line>, OwnedSemaphorePermit)>, handouts: Vec<Handout>) -> Duration {
        let (mut next, mut waiting) = (None::<Millis>, false);
        for ((line, mut room), handout) in asked.into_iter().zip(handouts) {
            let count = handout.tasks.len().min(room.num_permits());
            // A claim is bounded: a worker with more room than that goes on at once.
            let full = count == room.num_permits() && (line.starve() || line.once);
            if let Some(at) = handout.next_at {
                // A worker that is full rings once it has room.
                if !full {
                    next = Some(next.map_or(at, |next| next.min(at)));
                    waiting |= handout.tasks.is_empty();
                }
            }
            if count == 0 {
                continue;
            }
            let taken = if line.once { Some(room) } else { room.split(count) };
            if let Some(room) = taken {
                // A worker that is gone does not take it: the leases end by themselves.
                let _ = line.batches.send(Batch { tasks: handout.tasks, room });
            }
        }
        let now = self.store.now();
        let late = waiting && next.is_some_and(|next| next < now);
        let mut state = Self::lock(&self.state);
        state.overdue = if late { state.overdue.or_else(|| Some(Instant::now())) } else { None };
        drop(state);
        next.map_or(TICK, |next| self.store.until(next).min(TICK))
    }
}

/// How long the loop sleeps.
struct Pace {
    /// After the next failure.
    pause: Duration,
    /// The longest sleep, where the store does not wake for other processes; `None`: it does.
    interval: Option<Duration>,
}

impl Pace {
    fn new(wakes: bool) -> Self {
        Self { pause: FIRST_PAUSE, interval: (!wakes).then_some(TICK) }
    }

    /// The sleep after a round that has `found` something or not and knows of nothing for `sleep`.
    fn sleep(&mut self, found: bool, sleep: Duration) -> Duration {
        let Some(interval) = &mut self.interval else { return sleep };
        *interval = if found { SOON } else { (*interval * 2).min(TICK) };
        // What is due and was not found is locked by another process for a moment.
        if found { sleep.min(*interval) } else { sleep.clamp(SOON, *interval) }
    }
}

async fn run(claims: std::sync::Weak<Claims>, bell: Arc<Notify>) {
    let mut pace = match claims.upgrade() {
        Some(claims) => Pace::new(claims.store.capabilities().wakes),
        None => return,
    };
    let mut alarm = Alarm::default();
    loop {
        let (sleep, earlier) = {
            let Some(claims) = claims.upgrade() else { return };
            // Before the claim: what is scheduled while it runs wakes.
            let earlier = claims.store.earlier();
            (claims.round(&mut pace).await, earlier)
        };
        if sleep.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = until_due(&mut alarm, sleep) => {}
            () = earlier => {}
            () = bell.notified() => {}
        }
    }
}

/// A sleep after which something is due ends to the point; the longest one has no such end.
async fn until_due(alarm: &mut Alarm, sleep: Duration) {
    if sleep < TICK {
        alarm.sleep(sleep).await;
    } else {
        tokio::time::sleep(sleep).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_does_not_wake_is_asked_often_while_something_is_found() {
        let (mut pace, far) = (Pace::new(false), TICK);
        assert_eq!(pace.sleep(false, far), TICK, "idle");
        assert_eq!(pace.sleep(true, far), SOON);
        let idle: Vec<u128> = (0..8).map(|_| pace.sleep(false, far).as_millis()).collect();
        assert_eq!(idle, [10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(pace.sleep(true, Duration::ZERO), Duration::ZERO, "there is more");
        assert_eq!(pace.sleep(false, Duration::ZERO), SOON, "others have it");
        let soon = Duration::from_millis(7);
        assert_eq!(pace.sleep(false, soon), soon, "the next is known");
        let mut woken = Pace::new(true);
        assert_eq!((woken.sleep(true, far), woken.sleep(false, Duration::ZERO)), (far, Duration::ZERO));
    }
}
