//! Group commit: commands that arrive together are decided in one transaction and answered after it is durable.
//!
//! Bounds: the queue by commands, a batch by commands and by order lines. One command that cannot be written never
//! fails its batch-mates: the batch is halved until it stands alone.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tidegate_backend::ledger::{MAX_BATCH_COMMANDS, MAX_BATCH_LINES};
use tidegate_backend::{Commit, Deadline, ErrorKind};
use tidegate_core::{Command, Map, Outcome};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use crate::tidegate::Inner;
use crate::{Error, Result};

type Answer = Result<Outcome>;

/// Batches that may be with the ledger at once: one is written while the callers of the other are answered.
const MAX_DECIDING: usize = 2;
/// Commands that make a batch worth sending beside another. Smaller ones wait for it and grow: fewer, larger commits.
const LARGE_BATCH: usize = MAX_BATCH_COMMANDS / 2;

struct Request {
    commands: Vec<Command>,
    lines: usize,
    reply: oneshot::Sender<Vec<Answer>>,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    commands: usize,
    /// Order ids and keys that wait or are being decided (their hashes), with how many commands name each. Two names
    /// with one hash cost one needless trip to the ledger.
    in_flight: Map<u64, u32>,
    /// Batches with the ledger.
    deciding: usize,
    stopping: bool,
}

impl Waiting {
    /// Whether a batch should go to the ledger now: at once when it has none, beside another only when it is large.
    fn can_take(&self) -> bool {
        let beside = self.deciding < MAX_DECIDING && self.commands >= LARGE_BATCH;
        !self.requests.is_empty() && (self.deciding == 0 || beside)
    }

    /// As many requests as fit into a batch, at least one.
    fn take(&mut self) -> Vec<Request> {
        let mut batch = Vec::new();
        let (mut commands, mut lines) = (0, 0);
        while let Some(first) = self.requests.front() {
            let fits = commands + first.commands.len() <= MAX_BATCH_COMMANDS && lines + first.lines <= MAX_BATCH_LINES;
            if !fits && !batch.is_empty() {
                break;
            }
            let request = self.requests.pop_front().expect("it has a front");
            commands += request.commands.len();
            lines += request.lines;
            batch.push(request);
        }
        self.commands -= commands;
        batch
    }
}

/// The bounded queue in front of the ledger.
pub(crate) struct GroupCommit {
    capacity: usize,
    waiting: Mutex<Waiting>,
    arrived: Notify,
    names: foldhash::fast::RandomState,
}

impl GroupCommit {
    /// A queue of at most `capacity` commands.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            waiting: Mutex::default(),
            arrived: Notify::new(),
            names: foldhash::fast::RandomState::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses new commands; those that wait are still decided.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.arrived.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Whether a command that names this order id or key waits or is being decided: a repeat must wait for it.
    pub(crate) fn is_in_flight(&self, order_id: Option<&str>, key: Option<&str>) -> bool {
        let waiting = self.lock();
        let named = |kind: Name, name: Option<&str>| {
            name.is_some_and(|name| waiting.in_flight.contains_key(&self.names.hash_one((kind, name))))
        };
        named(Name::Order, order_id) || named(Name::Key, key)
    }

    /// Queues up to [`MAX_BATCH_COMMANDS`] commands and waits for one answer each, in order. They may be decided in
    /// several transactions, each command in one.
    pub(crate) async fn submit(&self, commands: Vec<Command>) -> Result<Vec<Answer>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        let lines = commands.iter().map(lines_of).sum();
        {
            let mut waiting = self.lock();
            if waiting.stopping {
                return Err(Error::Stopping);
            }
            // A group always fits into an empty queue, however small that was made.
            if waiting.commands > 0 && waiting.commands + commands.len() > self.capacity {
                metrics::counter!("tidegate_overloaded_total").increment(1);
                return Err(Error::Overloaded);
            }
            let could = waiting.can_take();
            waiting.commands += commands.len();
            for command in &commands {
                self.flight_names(command).for_each(|name| *waiting.in_flight.entry(name).or_default() += 1);
            }
            waiting.requests.push_back(Request { commands, lines, reply });
            if !could && waiting.can_take() {
                self.arrived.notify_one();
            }
        }
        answer.await.map_err(|_| self.unanswered())
    }

    /// Why a batch ended without its answers: the instance stopped, or the task that had it panicked.
    fn unanswered(&self) -> Error {
        if self.is_stopping() {
            return Error::Stopping;
        }
        let why =
            "the answer was lost after a fault of ours and the change may have been made; the same call again is safe";
        Error::LedgerUnavailable(why.to_owned())
    }

    /// The next batch: as many requests as fit, in order of arrival. `None` when stopped and empty.
    async fn next(&self) -> Option<Vec<Request>> {
        loop {
            {
                let mut waiting = self.lock();
                if waiting.can_take() {
                    waiting.deciding += 1;
                    return Some(waiting.take());
                }
                if waiting.stopping && waiting.requests.is_empty() {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    fn landed(&self, commands: &[Command]) {
        let mut waiting = self.lock();
        for name in commands.iter().flat_map(|command| self.flight_names(command)) {
            if let Entry::Occupied(mut count) = waiting.in_flight.entry(name) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    /// The names a repeat of this command would carry: the id its caller chose, its key.
    fn flight_names(&self, command: &Command) -> impl Iterator<Item = u64> + use<> {
        let (id, key) = match command {
            Command::Place(place) => (
                place.chosen.then(|| self.names.hash_one((Name::Order, place.order_id.as_str()))),
                place.key.as_ref().map(|key| self.names.hash_one((Name::Key, key.as_str()))),
            ),
            _ => (None, None),
        };
        id.into_iter().chain(key)
    }
}

#[derive(Hash)]
enum Name {
    Order,
    Key,
}

fn lines_of(command: &Command) -> usize {
    match command {
        Command::Place(place) => place.lines.len(),
        _ => 1,
    }
}

/// Decides batch after batch until the queue is stopped and empty.
pub(crate) async fn run(inner: Arc<Inner>) {
    let mut deciding = JoinSet::new();
    while let Some(batch) = inner.queue.next().await {
        deciding.spawn(answer(Arc::clone(&inner), batch));
        while deciding.try_join_next().is_some() {}
    }
    while deciding.join_next().await.is_some() {}
}

/// A batch with the ledger; makes room for the next however it ends.
struct Deciding<'a>(&'a GroupCommit);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.lock().deciding -= 1;
        self.0.arrived.notify_one();
    }
}

async fn answer(inner: Arc<Inner>, batch: Vec<Request>) {
    let room = Deciding(&inner.queue);
    let mut commands = Vec::with_capacity(batch.iter().map(|request| request.commands.len()).sum());
    let mut replies = Vec::with_capacity(batch.len());
    for request in batch {
        replies.push((request.commands.len(), request.reply));
        commands.extend(request.commands);
    }
    let commands: Arc<[Command]> = commands.into();
    let mut answers = decide(&inner, Arc::clone(&commands)).await.into_iter();
    inner.queue.landed(&commands);
    drop(room);
    for (count, reply) in replies {
        // A caller that went away has its answer in the ledger.
        let _ = reply.send(answers.by_ref().take(count).collect());
    }
}

/// Commits `commands`, halving the batch while a single command spoils it. One answer each, in order.
async fn decide(inner: &Inner, commands: Arc<[Command]>) -> Vec<Answer> {
    let mut answers = Vec::with_capacity(commands.len());
    let mut parts = vec![commands];
    while let Some(part) = parts.pop() {
        let begun = Instant::now();
        let waiting = inner.health.waiting();
        let committed = inner.ledger.commit(Arc::clone(&part)).await;
        drop(waiting);
        match committed {
            Ok(commit) => {
                metrics::histogram!("tidegate_commit_seconds").record(begun.elapsed());
                metrics::histogram!("tidegate_commit_batch").record(part.len() as f64);
                inner.health.wrote(None);
                answers.extend(apply(inner, commit).await);
            }
            Err(e) if e.kind() == ErrorKind::Command && part.len() > 1 => {
                let (left, right) = part.split_at(part.len() / 2);
                parts.push(right.into());
                parts.push(left.into());
            }
            Err(e) => {
                if e.kind() == ErrorKind::Command {
                    tracing::error!(error = %e, "a command could not be written");
                } else {
                    // The change of health is what the log tells, not each batch of an outage.
                    tracing::debug!(error = %e, commands = part.len(), "commit failed");
                    inner.health.wrote(Some(e.to_string()));
                }
                let e = Error::from(e);
                answers.extend((0..part.len()).map(|_| Err(e.clone())));
            }
        }
    }
    answers
}

/// What follows a commit, before anyone is answered: gate copies, the other nodes, deadlines, the newest event. Nothing of
/// it waits for a store: a shared index and the link between nodes buffer what they are given.
async fn apply(inner: &Inner, commit: Commit) -> Vec<Answer> {
    inner.gate.replace(&commit.copies, false);
    super::bus::tell(inner, &commit);
    inner.made_old(commit.outbox);
    let mut due = Vec::new();
    let mut gone = Vec::new();
    for deadline in commit.deadlines {
        match deadline {
            Deadline::At(order, at) => due.push((order, at)),
            Deadline::Gone(order, at) => gone.push((order, at)),
        }
    }
    // Losing the index loses nothing: the sweep finds what it misses.
    for done in [inner.deadlines.schedule(&due).await, inner.deadlines.cancel(&gone).await] {
        if let Err(e) = done
            && let Some(times) = inner.health.index_misses.due()
        {
            tracing::warn!(error = %e, times, "the deadline index missed commits; the sweep will find them");
        }
    }
    if let Some(cursor) = commit.last_cursor {
        inner.saw_event(cursor);
    }
    commit.verdicts.into_iter().map(|verdict| verdict.map_err(Error::from)).collect()
}
