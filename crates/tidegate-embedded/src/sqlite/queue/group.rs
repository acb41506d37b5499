//! Group commit: steps that arrive while a transaction is being synced share the next one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec::IntoIter;

use rusqlite::{Connection, TransactionBehavior};
use tidegate_backend::{Clock, Error, ErrorKind, QueueOptions, Result};
use tokio::sync::{Semaphore, oneshot, watch};

use super::super::checkpoint::{Dirty, Writes};
use super::super::fault;
use super::super::lane::Lane;
use super::super::migrate::QUEUES;
use super::steps::Step;

/// Most steps of one transaction.
const MAX_GROUP: usize = 256;
/// Most steps that wait; more wait for their turn to.
const MAX_WAITING: usize = 4_096;

/// The writer's connection and what it needs for a step.
pub(super) struct Writer {
    pub conn: Connection,
    pub clock: Arc<dyn Clock>,
    pub options: QueueOptions,
    pub dirty: Arc<Dirty>,
    /// Counts the transactions that moved the head of a queue forward.
    pub moved: watch::Sender<u64>,
}

impl Writes for Writer {
    fn connection(&self) -> &Connection {
        &self.conn
    }
}

/// What is left to do once the transaction is durable, or has failed.
type Answer = Box<dyn FnOnce(std::result::Result<(), &Error>) + Send>;
/// Without a transaction it only gives the answer.
type Job = Box<dyn FnOnce(Option<&mut Step<'_>>) -> (rusqlite::Result<()>, Answer) + Send>;

/// Steps that wait for a transaction.
pub(super) struct Group {
    waiting: Mutex<Waiting>,
    permits: Arc<Semaphore>,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Whether the writer was sent to look here.
    called: bool,
}

impl Group {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), permits: Arc::new(Semaphore::new(MAX_WAITING)) })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `step` in a transaction with others; answered once that is durable.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        writer: &Lane<Writer>,
        step: impl FnOnce(&mut Step<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| fault::closed())?;
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |transaction| {
            let (done, value) = match transaction.map(step) {
                Some(Ok(value)) => (Ok(()), Some(value)),
                Some(Err(e)) => (Err(e), None),
                None => (Ok(()), None),
            };
            let tell: Answer = Box::new(move |durable| {
                drop(permit);
                let value = durable.map_err(same).and_then(|()| value.ok_or_else(interrupted));
                let _ = answer.send(value);
            });
            (done, tell)
        });
        let call = {
            let mut waiting = self.lock();
            waiting.jobs.push_back(job);
            !std::mem::replace(&mut waiting.called, true)
        };
        if call {
            let group = self.clone();
            // Without waiting for it: whoever called it may go away.
            writer.send(move |writer| group.drain(writer))?;
        }
        answered.await.unwrap_or_else(|_| Err(interrupted()))
    }

    /// On the writer's thread: transaction after transaction, until nothing waits.
    fn drain(&self, writer: &mut Writer) {
        loop {
            let jobs: Vec<Job> = {
                let mut waiting = self.lock();
                let n = waiting.jobs.len().min(MAX_GROUP);
                if n == 0 {
                    waiting.called = false;
                    return;
                }
                waiting.jobs.drain(..n).collect()
            };
            // A panic ends one transaction: it is rolled back while it unwinds, and its callers hear that it was interrupted.
            let rest = catch_unwind(AssertUnwindSafe(|| transact(writer, jobs))).unwrap_or_default();
            self.put_back(rest);
        }
    }

    fn put_back(&self, jobs: Vec<Job>) {
        let mut waiting = self.lock();
        for job in jobs.into_iter().rev() {
            waiting.jobs.push_front(job);
        }
    }
}

/// One transaction. Those after a step that failed had no part in it: they are given back.
fn transact(writer: &mut Writer, jobs: Vec<Job>) -> Vec<Job> {
    let mut answers = Vec::with_capacity(jobs.len());
    let mut jobs = jobs.into_iter();
    let outcome = commit(writer, &mut jobs, &mut answers).map_err(|e| fault::writing_of(QUEUES.what, e));
    if let Ok(earlier) = outcome {
        writer.dirty.mark();
        if earlier {
            writer.moved.send_modify(|moved| *moved += 1);
        }
    }
    for answer in answers {
        answer(outcome.as_ref().map(|_| ()));
    }
    jobs.collect()
}

/// Whether a head moved forward.
fn commit(writer: &mut Writer, jobs: &mut IntoIter<Job>, answers: &mut Vec<Answer>) -> rusqlite::Result<bool> {
    let now = writer.clock.now();
    let tx = match writer.conn.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(e) => {
            answers.extend(jobs.map(|job| job(None).1));
            return Err(e);
        }
    };
    let mut step = Step::new(&tx, now, writer.options.max_queues, writer.options.max_attempts);
    for job in jobs {
        let (done, answer) = job(Some(&mut step));
        answers.push(answer);
        done?;
    }
    let earlier = step.finish()?;
    tx.commit()?;
    Ok(earlier)
}

fn same(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Command, "a step of the queue was interrupted; nothing of it was written")
}
