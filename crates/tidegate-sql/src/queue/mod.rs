//! The delay queue in a database: any number of processes, no server beside the database.
//!
//! - here: [`SqlQueues`], transactions and what is tried again. `head.rs`: a queue's row, and the clock.
//! - `steps.rs`: steps of tasks by their ids. `claim.rs`: what is due. `raise.rs`: where a look at what is due begins.
//! - `read.rs`: reads. `wake.rs`: who sleeps in this process is woken.
//!
//! A task is one row, changed in place: a claim moves its instant forward by the lease, an acknowledgement deletes it. What is
//! due is the beginning of an index's range; claims lock its rows with `SKIP LOCKED`, so they never wait for each other. What
//! is due, leases and receipts are by the database's clock, read by the statement that locks the rows.

mod claim;
mod head;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod looks;
mod raise;
mod read;
mod steps;
mod wake;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidegate_backend::queue::{Listing, MAX_PURGE, next_place};
use tidegate_backend::{BoxFuture, Error, Handout, QueueCapabilities, QueueOptions, QueueStore, Result, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{MAX_BATCH, QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId};

use crate::connect::{Address, Role};
use crate::dialect::Dialect;
use crate::fault::{self, Class, Fault};
use crate::migrate;
use crate::pool::Pool;
use crate::reading::READ_TRIES;
use crate::session::{Isolation, Session};
use crate::write::Tries;
use claim::{Claims, Receipts};
use head::{Head, QueueClock};
use raise::Rounds;
use steps::Step;
use wake::Wake;

/// Connections for claims, so that these never wait behind a burst of schedules.
const CLAIMS: usize = 2;
/// Connections for reads.
const READS: usize = 4;
/// Connections for counts.
const COUNTS: usize = 2;

/// How to open queues in a database.
#[derive(Clone)]
#[non_exhaustive]
pub struct SqlQueueOptions {
    /// `mysql://user:password@host:port/database` (MariaDB, too) or `postgres://..`, as for a ledger; a ledger's own will do.
    pub url: String,
    /// Bounds.
    pub queues: QueueOptions,
    /// Connections for schedules, answers and the like, `1..=256` (default 8). Claims have 2 more, reads 4, and
    /// counts 2.
    pub connections: usize,
}

impl SqlQueueOptions {
    /// The database at `url` with the defaults.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), queues: QueueOptions::default(), connections: 8 }
    }
}

/// Without the address, which may hold a password.
impl fmt::Debug for SqlQueueOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlQueueOptions")
            .field("queues", &self.queues)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

struct Parts {
    steps: Pool,
    claims: Pool,
    reads: Pool,
    /// Counts take their time.
    counts: Pool,
}

/// Delayed tasks in a SQL database. Any number of processes may have one open; their bounds must agree.
pub struct SqlQueues {
    /// Taken out by `close`.
    parts: Mutex<Option<Arc<Parts>>>,
    dialect: Dialect,
    options: QueueOptions,
    clock: QueueClock,
    receipts: Receipts,
    wake: Wake,
    rounds: Rounds,
}

impl fmt::Debug for SqlQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlQueues")
            .field("dialect", &self.dialect)
            .field("open", &self.parts().is_ok())
            .finish_non_exhaustive()
    }
}

/// Why a transaction did not come to its end.
struct Failed {
    fault: Fault,
    /// Its COMMIT was sent, so it may have.
    uncertain: bool,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, uncertain: false }
    }
}

/// A want with its place, its queue, and the queue's next task, which is due.
type Asked<'a> = (usize, &'a Want, Head, Millis);

/// Ends a transaction after its work.
async fn end<T>(session: &mut Session, worked: fault::Result<T>) -> std::result::Result<T, Failed> {
    match worked {
        Ok(value) => match session.commit().await {
            Ok(()) => Ok(value),
            Err(fault) => Err(Failed { uncertain: fault.class == Class::Lost, fault }),
        },
        Err(fault) => {
            // A connection that cannot even roll back is closed, which does it.
            let _ = session.rollback().await;
            Err(fault.into())
        }
    }
}

/// Whether to try once more after a failure, and the pause before that.
async fn again(pool: &Pool, tries: &mut Tries, failed: Failed) -> Result<()> {
    let Failed { fault, uncertain } = failed;
    if uncertain || !tries.again(fault.class) {
        return Err(fault.into());
    }
    metrics::counter!("tidegate_sql_retries_total", "reason" => fault.class.name()).increment(1);
    tracing::debug!(%fault, "a step of a queue is tried again");
    if fault.class == Class::Lost {
        pool.forget_idle();
    }
    tokio::time::sleep(tries.pause()).await;
    Ok(())
}

/// Runs `$work` in a transaction on a connection of `$pool`, again while it meets the locks of others.
macro_rules! transact {
    ($pool:expr, $session:ident => $work:expr) => {{
        let mut tries = Tries::default();
        loop {
            let tried: std::result::Result<_, Failed> = async {
                let mut lease = $pool.get().await?;
                let $session: &mut Session = &mut lease;
                $session.begin(Isolation::Write).await?;
                let worked: fault::Result<_> = async { $work }.await;
                end($session, worked).await
            }
            .await;
            match tried {
                Ok(value) => break Ok(value),
                Err(failed) => {
                    if let Err(e) = again(&$pool, &mut tries, failed).await {
                        break Err(e);
                    }
                }
            }
        }
    }};
}

/// Runs a step on a queue that has begun; wakes whoever waits for what it put. `$else` where it has not.
macro_rules! step {
    ($self:ident, $queue:expr, $step:ident => $call:expr, else $else:expr) => {
        Box::pin(async move {
            let parts = $self.parts()?;
            let done: Result<_> = transact!(parts.steps, session => {
                match head::find(session, &$self.clock, $queue).await? {
                    None => Ok((None, None)),
                    Some(head) => {
                        let mut step = Step::new(session, head, $self.options.max_attempts);
                        let $step = &mut step;
                        let value = $call.await?;
                        Ok((Some(value), step.first))
                    }
                }
            });
            let (value, first) = done?;
            if let Some(at) = first {
                $self.wake.put($queue, at);
            }
            Ok(value.unwrap_or_else(|| $else))
        })
    };
}

impl SqlQueues {
    /// Opens the queues in a database, making their tables where there are none. A ledger may lie beside them.
    ///
    /// # Errors
    /// `ErrorKind::NewerSchema`: the tables are of a newer Tidegate; `ErrorKind::Configuration`: an address or bounds that
    /// cannot be used, or tables of the same names that another program made; `ErrorKind::Unavailable`: a server that cannot
    /// be reached.
    pub async fn open(options: SqlQueueOptions) -> Result<Arc<Self>> {
        options.queues.check()?;
        let address = Address::parse(&options.url)?;
        let dialect = address.dialect();
        let schema = Pool::new(address.clone(), Role::Audit, 1)?;
        migrate::queues(&mut *schema.get().await?).await?;
        schema.close();
        let parts = Parts {
            steps: Pool::new(address.clone(), Role::Queue, options.connections.clamp(1, 256))?,
            claims: Pool::new(address.clone(), Role::Queue, CLAIMS)?,
            reads: Pool::new(address.clone(), Role::Reader, READS)?,
            counts: Pool::new(address, Role::Audit, COUNTS)?,
        };
        let clock = QueueClock::new();
        head::hear(&mut *parts.reads.get().await?, &clock).await?;
        Ok(Arc::new(Self {
            parts: Mutex::new(Some(Arc::new(parts))),
            dialect,
            options: options.queues,
            clock,
            receipts: Receipts::default(),
            wake: Wake::new(),
            rounds: Rounds::new(),
        }))
    }

    fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(closed)
    }

    async fn schedule_all(&self, queue: &QueueName, tasks: &[Schedule]) -> Result<Vec<Scheduled>> {
        let parts = self.parts()?;
        let done: Result<_> = transact!(parts.steps, session => {
            match head::begin(session, &self.clock, queue, &self.options).await? {
                None => Ok(None),
                Some(head) => {
                    let mut step = Step::new(session, head, self.options.max_attempts);
                    let answers = step.schedule(tasks).await?;
                    Ok(Some((answers, step.first)))
                }
            }
        });
        let Some((answers, first)) = done? else { return Err(self.options.too_many()) };
        if let Some(at) = first {
            self.wake.put(queue, at);
        }
        Ok(answers)
    }

    async fn claim_all(&self, wants: &[Want]) -> Result<Vec<Handout>> {
        let parts = self.parts()?;
        let looks: Vec<_> = wants.iter().map(|want| self.wake.look(&want.queue)).collect();
        let mut handouts = vec![Handout { tasks: Vec::new(), next_at: None, failed: None }; wants.len()];
        let names: Vec<&QueueName> = wants.iter().map(|want| &want.queue).collect();
        let heads = self.heads(&parts, &names).await?;
        let mut due: Vec<Asked<'_>> = Vec::new();
        for (at, want) in wants.iter().enumerate() {
            let Some((head, next_at)) = heads.get(&want.queue) else { continue };
            handouts[at].next_at = *next_at;
            if want.max > 0
                && let Some(from) = next_at.filter(|next| *next <= head.now())
            {
                due.push((at, want, *head, from));
            }
        }
        let mut failed = None;
        let mut from = 0;
        while from < due.len() {
            match self.claim_some(&parts, &due[from..]).await {
                Ok(some) => {
                    for handout in some {
                        let (at, _, head, _) = due[from];
                        if !handout.tasks.is_empty() && raise::is_worth_it(&head, handout.next_at) {
                            self.raise(&parts, &head).await;
                        }
                        handouts[at] = handout;
                        from += 1;
                    }
                }
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        // What was handed out already is not lost over what was not.
        if let Some(e) = failed {
            if handouts.iter().all(|handout| handout.tasks.is_empty()) {
                return Err(e);
            }
            due[from..].iter().for_each(|(at, ..)| handouts[*at].failed = Some(e.to_string()));
        }
        for (look, handout) in looks.into_iter().zip(&handouts) {
            look.told(handout.next_at);
        }
        Ok(handouts)
    }

    /// Claims for the first of these that one transaction has room for, one at least.
    async fn claim_some(&self, parts: &Parts, due: &[Asked<'_>]) -> Result<Vec<Handout>> {
        let claims = Claims { clock: &self.clock, receipts: &self.receipts, max_attempts: self.options.max_attempts };
        transact!(parts.claims, session => {
            let (mut handouts, mut tasks) = (Vec::new(), 0);
            for (_, want, head, from) in due {
                let handout = claims.claim(session, *head, *from, want).await?;
                tasks += handout.tasks.len();
                handouts.push(handout);
                if tasks >= MAX_BATCH {
                    break;
                }
            }
            Ok(handouts)
        })
    }

    /// An optimisation: what fails here is tried at the next claim.
    async fn raise(&self, parts: &Parts, head: &Head) {
        let raised: Result<()> = transact!(parts.claims, session => raise::raise(session, head).await);
        if let Err(error) = raised {
            tracing::debug!(%error, "a queue's low could not be raised");
        }
    }

    async fn heads(
        &self,
        parts: &Parts,
        queues: &[&QueueName],
    ) -> Result<tidegate_core::Map<QueueName, (Head, Option<Millis>)>> {
        let (all, mut tries) = (self.rounds.is_for_all(), 1);
        loop {
            let mut lease = parts.claims.get().await?;
            let began = Instant::now();
            match claim::heads(&mut lease, &self.clock, queues, all).await {
                Ok(heads) => {
                    if all {
                        self.rounds.took(began.elapsed());
                    }
                    return Ok(heads);
                }
                Err(fault) if fault.class == Class::Lost && tries < READ_TRIES => parts.claims.forget_idle(),
                Err(fault) => return Err(fault.into()),
            }
            tries += 1;
        }
    }
}

fn closed() -> Error {
    Error::new(tidegate_backend::ErrorKind::Unavailable, "the queues are closed")
}

impl QueueStore for SqlQueues {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities { name: self.dialect.name(), shared: true, durable: true, wakes: false }
    }

    fn now(&self) -> Millis {
        self.clock.now()
    }

    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>> {
        Box::pin(self.schedule_all(queue, tasks))
    }

    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>> {
        step!(self, queue, step => step.cancel(ids), else vec![false; ids.len()])
    }

    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>> {
        Box::pin(self.claim_all(wants))
    }

    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>> {
        step!(self, queue, step => step.settle(tasks), else vec![Settled::Lost; tasks.len()])
    }

    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>> {
        read!(self, session => read::get(session, &self.clock, queue, ids))
    }

    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>> {
        read!(self, session => async {
            let page = read::list(session, &self.clock, queue, &listing, after.as_ref(), limit).await?;
            let next = next_place(&listing, &page, limit);
            Ok((page, next))
        })
    }

    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>> {
        read!(self, session => read::queues(session, after, limit))
    }

    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>> {
        read!(self, counts, session => async {
            let mut stats = Vec::with_capacity(queues.len());
            for queue in queues {
                stats.push(read::stats(session, &self.clock, queue).await?);
            }
            Ok(stats)
        })
    }

    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>> {
        step!(self, queue, step => step.requeue(id, delay_ms), else None)
    }

    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>> {
        step!(self, queue, step => step.purge(before, MAX_PURGE), else (0, false))
    }

    fn earlier(&self) -> BoxFuture<'static, ()> {
        self.wake.earlier()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(parts) = parts {
                [&parts.steps, &parts.claims, &parts.reads, &parts.counts].into_iter().for_each(Pool::close);
            }
        })
    }
}
