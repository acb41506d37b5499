//! Workers: handlers, how many at once, how they stop.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tidegate_backend::BoxFuture;
use tidegate_core::Millis;
use tidegate_core::queue::rules::{MAX_ERROR_BYTES, SPREAD};
use tidegate_core::queue::{
    Claimed, MAX_BATCH, MAX_DELAY_MS, MAX_LEASE_MS, MIN_LEASE_MS, Receipt, Settle, TaskId, Verdict,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::claims::{Batch, Line};
use super::handle::{Queue, decode};
use super::running::{self, Running};
use super::settle::{self, Given};
use super::{QueueError, metrics};

/// Most tasks that a worker handles at once.
const MAX_CONCURRENCY: usize = 10_000;
/// How long a stop waits for the last answers to reach the store.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// A task in a handler's hands.
#[derive(Debug, Clone)]
pub struct Delivery<T> {
    /// Unique in the queue.
    pub id: TaskId,
    /// What was scheduled with it.
    pub payload: T,
    /// What it was scheduled for.
    pub due_at: Millis,
    /// 1 the first time.
    pub attempt: u32,
    /// Proof of this claim: larger at each claim of the task, so it serves as a fence.
    pub receipt: Receipt,
    lost: watch::Receiver<bool>,
}

impl<T> Delivery<T> {
    /// Whether the task is another's by now: what this handler does is done twice.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Resolves when the lease is lost: the task was cancelled, changed, or its lease could not be renewed.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        if lost.wait_for(|lost| *lost).await.is_err() {
            // The handler is done: nothing can be lost any more.
            std::future::pending::<()>().await;
        }
    }
}

/// What a handler says of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done: it does not come again.
    Done,
    /// Again, after a delay (without one: 1 s, doubling to 1 h, 20 % more or less); dead if this was the last attempt.
    Retry {
        /// Up to a hundred years.
        after: Option<Duration>,
        /// Kept with the task; cut after 1,024 bytes.
        error: String,
    },
    /// Again at once, for whoever is free, and the attempt is not charged.
    Release,
}

/// What handlers may return: nothing, an [`Answer`], or a result whose error becomes a retry.
pub trait IntoAnswer {
    /// The answer.
    fn into_answer(self) -> Answer;
}

impl IntoAnswer for Answer {
    fn into_answer(self) -> Answer {
        self
    }
}

impl IntoAnswer for () {
    fn into_answer(self) -> Answer {
        Answer::Done
    }
}

impl<E: fmt::Display> IntoAnswer for Result<(), E> {
    fn into_answer(self) -> Answer {
        match self {
            Ok(()) => Answer::Done,
            Err(e) => Answer::Retry { after: None, error: e.to_string() },
        }
    }
}

/// Handles tasks: a batch of one for [`WorkerBuilder::each`].
pub trait Handler<T>: Send + Sync + 'static {
    /// One answer for each task, in order; those that are missing are retries.
    fn handle(&self, tasks: Vec<Delivery<T>>) -> BoxFuture<'static, Vec<Answer>>;
}

struct Each<F>(F);

impl<T, F, R> Handler<T> for Each<F>
where
    T: Send + 'static,
    F: Fn(Delivery<T>) -> R + Send + Sync + 'static,
    R: Future<Output: IntoAnswer> + Send + 'static,
{
    fn handle(&self, tasks: Vec<Delivery<T>>) -> BoxFuture<'static, Vec<Answer>> {
        let futures: Vec<R> = tasks.into_iter().map(&self.0).collect();
        Box::pin(async move {
            let mut answers = Vec::with_capacity(futures.len());
            for future in futures {
                answers.push(future.await.into_answer());
            }
            answers
        })
    }
}

struct Batched<F>(F);

impl<T, F, R> Handler<T> for Batched<F>
where
    T: Send + 'static,
    F: Fn(Vec<Delivery<T>>) -> R + Send + Sync + 'static,
    R: Future<Output = Vec<Answer>> + Send + 'static,
{
    fn handle(&self, tasks: Vec<Delivery<T>>) -> BoxFuture<'static, Vec<Answer>> {
        Box::pin((self.0)(tasks))
    }
}

/// How a worker works. Its handlers run in tasks of the runtime that [`WorkerBuilder::each`] or
/// [`WorkerBuilder::batches`] is called in.
#[derive(Debug)]
pub struct WorkerBuilder<T> {
    queue: Queue<T>,
    concurrency: usize,
    lease: Duration,
}

impl<T: DeserializeOwned> WorkerBuilder<T> {
    pub(super) fn new(queue: Queue<T>) -> Self {
        Self { queue, concurrency: 16, lease: Duration::from_secs(30) }
    }
}

impl<T: DeserializeOwned + Send + 'static> WorkerBuilder<T> {
    /// Tasks that are in this process at once, in handlers or on their way to or from them (default 16, `1..=10,000`).
    /// With batches it should be a multiple of the batch.
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks.clamp(1, MAX_CONCURRENCY);
        self
    }

    /// For how long a task is this worker's without a sign of life (default 30 s, 100 ms to 1 h). While its handler runs
    /// the lease is renewed at a third of this; if the process dies, another gets the task after it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        let (least, most) = (MIN_LEASE_MS.unsigned_abs(), MAX_LEASE_MS.unsigned_abs());
        self.lease = lease.clamp(Duration::from_millis(least), Duration::from_millis(most));
        self
    }

    /// Starts the worker: `handler` is called once for each task. A panic in it is a retry.
    pub fn each<F, R>(self, handler: F) -> Worker
    where
        F: Fn(Delivery<T>) -> R + Send + Sync + 'static,
        R: Future<Output: IntoAnswer> + Send + 'static,
    {
        self.start(1, Arc::new(Each(handler)))
    }

    /// Starts the worker: `handler` is called with up to `most` (`1..=512`) tasks and answers for each.
    ///
    /// # Errors
    /// [`QueueError::Batch`] if `most` is none of those.
    pub fn batches<F, R>(self, most: usize, handler: F) -> Result<Worker, QueueError>
    where
        F: Fn(Vec<Delivery<T>>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<Answer>> + Send + 'static,
    {
        if !(1..=MAX_BATCH).contains(&most) {
            return Err(QueueError::Batch(most));
        }
        Ok(self.start(most, Arc::new(Batched(handler))))
    }

    fn start(self, most: usize, handler: Arc<dyn Handler<T>>) -> Worker {
        let claims = self.queue.queues.claims.clone();
        let (batches, arriving) = mpsc::unbounded_channel();
        let line = Arc::new(Line {
            queue: self.queue.name.clone(),
            lease_ms: i64::try_from(self.lease.as_millis()).unwrap_or(MAX_LEASE_MS),
            room: Arc::new(Semaphore::new(self.concurrency)),
            batches,
            open: AtomicBool::new(true),
            starved: AtomicBool::new(false),
            once: false,
        });
        let running = Arc::new(Running::default());
        let (answers, given) = mpsc::unbounded_channel();
        let store = self.queue.queues.store.clone();
        let counters = self.queue.counters.clone();
        let settling = tokio::spawn(settle::run(store.clone(), line.clone(), counters, given, claims.bell()));
        let renewing = tokio::spawn(running::renew(store, line.queue.clone(), line.lease_ms, running.clone()));
        let (stop, stopped) = watch::channel(None);
        let serve = Serve {
            queue: self.queue,
            line: line.clone(),
            lease: self.lease,
            most,
            handler,
            running,
            answers,
            concurrency: self.concurrency,
            suspects: VecDeque::new(),
            alone: false,
            report: StopReport::default(),
        };
        let serving = tokio::spawn(serve.run(arriving, stopped));
        claims.join(line.clone());
        let leave = Box::new(move || claims.leave(&line));
        Worker { stop, serving: Some(serving), settling: Some(settling), renewing, leave }
    }
}

/// A worker. Dropped without [`Worker::stop`], its handlers are aborted, and what they held comes again when its lease ends.
pub struct Worker {
    stop: watch::Sender<Option<Instant>>,
    serving: Option<JoinHandle<StopReport>>,
    settling: Option<JoinHandle<()>>,
    renewing: JoinHandle<()>,
    leave: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopReport {
    /// Tasks whose handlers were waited for.
    pub finished: usize,
    /// Tasks that were handed back, their attempt not charged: not begun, or aborted at the deadline.
    pub handed_back: usize,
}

impl Worker {
    /// Claims no more, waits up to `within` for the handlers that run, aborts the rest, hands back what is not done, and
    /// sees the answers through.
    pub async fn stop(mut self, within: Duration) -> StopReport {
        (self.leave)();
        self.stop.send_replace(Some(Instant::now() + within));
        let report = match self.serving.take() {
            Some(serving) => serving.await.unwrap_or_default(),
            None => StopReport::default(),
        };
        self.renewing.abort();
        if let Some(settling) = self.settling.take()
            && tokio::time::timeout(LAST_ANSWERS, settling).await.is_err()
        {
            tracing::warn!("the last answers of a worker did not reach the store; their tasks come again");
        }
        report
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        (self.leave)();
        self.renewing.abort();
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
        if let Some(settling) = self.settling.take() {
            settling.abort();
        }
    }
}

/// The task that spreads what was claimed over handlers.
struct Serve<T> {
    queue: Queue<T>,
    line: Arc<Line>,
    lease: Duration,
    most: usize,
    handler: Arc<dyn Handler<T>>,
    running: Arc<Running>,
    answers: mpsc::UnboundedSender<Given>,
    concurrency: usize,
    /// Tasks that their holders may have died of; each is handled while this worker holds nothing else. They take no room
    /// while they wait: the first one wants all of it, so no more is claimed.
    suspects: VecDeque<Delivery<T>>,
    /// One of them has left that line and is not done.
    alone: bool,
    report: StopReport,
}

/// Tasks of one call of a handler, and the room they take.
struct Job {
    tasks: Vec<(TaskId, Receipt)>,
    room: OwnedSemaphorePermit,
    /// It took all the room there is.
    alone: bool,
}

type Outcome = (Vec<Answer>, Job);

impl<T: DeserializeOwned + Send + 'static> Serve<T> {
    async fn run(
        mut self,
        mut arriving: mpsc::UnboundedReceiver<Batch>,
        mut stopped: watch::Receiver<Option<Instant>>,
    ) -> StopReport {
        let mut handling = JoinSet::<Outcome>::new();
        let deadline = loop {
            tokio::select! {
                biased;
                Ok(deadline) = async { stopped.wait_for(Option::is_some).await.map(|at| *at) } => break deadline,
                Some(done) = handling.join_next(), if !handling.is_empty() => self.done(done),
                batch = arriving.recv() => match batch {
                    Some(batch) => self.begin(batch, &mut handling),
                    None => break None,
                },
            }
            self.next_suspect(&mut handling);
        };
        let deadline = deadline.unwrap_or_else(Instant::now);
        // A claim that is on its way comes back as well, unless the store takes longer than this worker may.
        let _ = tokio::time::timeout_at(deadline.into(), self.queue.queues.claims.round_ends()).await;
        arriving.close();
        while let Some(batch) = arriving.recv().await {
            self.hand_back(batch);
        }
        while !handling.is_empty() {
            match tokio::time::timeout_at(deadline.into(), handling.join_next()).await {
                Ok(Some(done)) => {
                    self.report.finished += done.as_ref().map_or(1, |(_, job)| job.tasks.len());
                    self.done(done);
                }
                Ok(None) => break,
                Err(_) => {
                    handling.abort_all();
                    while handling.join_next().await.is_some() {}
                }
            }
        }
        // Whatever is left in hands was aborted.
        for (id, receipt) in self.running.all() {
            let until = self.running.end(receipt);
            self.report.handed_back += 1;
            self.give(Settle { id, receipt, verdict: Verdict::Release }, until, None);
        }
        self.report
    }

    fn begin(&mut self, batch: Batch, handling: &mut JoinSet<Outcome>) {
        let Batch { tasks, mut room } = batch;
        self.queue.counters.claimed.increment(tasks.len() as u64);
        let now = self.queue.queues.store.now();
        let until = |task: &Claimed| {
            let left = task.lease_until.since(now).max(0).unsigned_abs();
            Instant::now() + Duration::from_millis(left).min(self.lease)
        };
        let mut batch: Vec<Delivery<T>> = Vec::with_capacity(self.most.min(tasks.len()));
        for task in tasks {
            let until = until(&task);
            metrics::lateness(now.since(task.visible_at));
            match decode(&task.payload) {
                Ok(payload) => {
                    let lost = self.running.begin(&task.id, task.receipt, until);
                    let Claimed { id, due_at, attempt, receipt, suspect, .. } = task;
                    let delivery = Delivery { id, payload, due_at, attempt, receipt, lost };
                    if suspect {
                        self.suspects.push_back(delivery);
                        drop(room.split(1));
                    } else {
                        batch.push(delivery);
                    }
                }
                Err(e) => {
                    let verdict = retry(None, format!("the payload is not of the worker's type: {e}"));
                    self.give(Settle { id: task.id, receipt: task.receipt, verdict }, until, room.split(1));
                }
            }
            if batch.len() >= self.most {
                self.spawn(std::mem::take(&mut batch), &mut room, handling);
            }
        }
        if !batch.is_empty() {
            self.spawn(batch, &mut room, handling);
        }
    }

    fn spawn(&self, batch: Vec<Delivery<T>>, room: &mut OwnedSemaphorePermit, handling: &mut JoinSet<Outcome>) {
        let Some(room) = room.split(batch.len()) else { return };
        let tasks = batch.iter().map(|task| (task.id.clone(), task.receipt)).collect();
        let job = Job { tasks, room, alone: false };
        let handler = self.handler.clone();
        handling.spawn(async move { (handle(&*handler, batch).await, job) });
    }

    /// Begins with the next suspect, if none is under way: it waits until every other task of this worker is answered.
    fn next_suspect(&mut self, handling: &mut JoinSet<Outcome>) {
        if self.alone {
            return;
        }
        let Some(task) = self.suspects.pop_front() else { return };
        self.alone = true;
        let (handler, room) = (self.handler.clone(), self.line.room.clone());
        let all = u32::try_from(self.concurrency).unwrap_or(u32::MAX);
        handling.spawn(async move {
            let room = room.acquire_many_owned(all).await.expect("it is never closed");
            let job = Job { tasks: vec![(task.id.clone(), task.receipt)], room, alone: true };
            // Another has it by now.
            if task.is_lost() {
                return (vec![Answer::Release], job);
            }
            tracing::warn!(id = %task.id, attempt = task.attempt, "a task that its holders may have died of is handled alone");
            (handle(&*handler, vec![task]).await, job)
        });
    }

    fn done(&mut self, done: Result<Outcome, tokio::task::JoinError>) {
        // Aborted ones are handed back at the end.
        let Ok((answers, job)) = done else { return };
        let Job { tasks, mut room, alone } = job;
        self.alone &= !alone;
        let mut answers = answers.into_iter();
        for (id, receipt) in tasks {
            let missing = || Answer::Retry { after: None, error: "the handler gave no answer for it".to_owned() };
            let verdict = match answers.next().unwrap_or_else(missing) {
                Answer::Done => Verdict::Ack,
                Answer::Release => Verdict::Release,
                Answer::Retry { after, error } => retry(after, error),
            };
            let until = self.running.end(receipt);
            self.give(Settle { id, receipt, verdict }, until, room.split(1));
        }
    }

    fn hand_back(&mut self, batch: Batch) {
        let Batch { tasks, mut room } = batch;
        for task in tasks {
            self.report.handed_back += 1;
            let settle = Settle { id: task.id, receipt: task.receipt, verdict: Verdict::Release };
            self.give(settle, Instant::now() + self.lease, room.split(1));
        }
    }

    fn give(&self, settle: Settle, until: Instant, room: Option<OwnedSemaphorePermit>) {
        debug_assert!(self.line.open.load(Ordering::Relaxed) || room.is_some() || settle.verdict == Verdict::Release);
        // Whoever sends them outlives this task, unless the worker was dropped: then leases end by themselves.
        let _ = self.answers.send(Given { settle, until, _room: room });
    }
}

/// Calls the handler; a panic in it is a retry of all.
async fn handle<T: 'static>(handler: &dyn Handler<T>, tasks: Vec<Delivery<T>>) -> Vec<Answer> {
    let count = tasks.len();
    let handled = Caught(Box::pin(async move { handler.handle(tasks).await })).await;
    handled.unwrap_or_else(|panic| vec![Answer::Retry { after: None, error: panic }; count])
}

fn retry(after: Option<Duration>, error: String) -> Verdict {
    // Not every store keeps NUL, and a task must not be lost to its handler's words.
    let mut error = error.replace('\0', "\u{FFFD}");
    let mut end = error.len().min(MAX_ERROR_BYTES);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error.truncate(end);
    let delay_ms = after.map(|after| i64::try_from(after.as_millis()).unwrap_or(MAX_DELAY_MS).min(MAX_DELAY_MS));
    let spread = u16::try_from(uuid::Uuid::new_v4().as_u128() % (u128::from(SPREAD) + 1)).unwrap_or(0);
    Verdict::Retry { delay_ms, spread, error: Some(error) }
}

/// A future whose panics are errors.
struct Caught<F>(Pin<Box<F>>);

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        use std::task::Poll;
        let inner = self.0.as_mut();
        match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Poll::Ready(Err(format!("the handler panicked: {text}")))
            }
        }
    }
}
