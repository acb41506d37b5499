//! The delay queue on Redis.
//!
//! - `claim.rs`: claims. `wire.rs`: tasks as scripts take and give them. `known.rs`: queues this process has begun, what was
//!   lost, and which were quiet.
//!
//! A queue is two sorted sets of ids, scored by the instant at which a task can be handed out next: those that wait, and
//! those that are leased, which are due again when their lease ends. A third has the dead. What else is known of a task is
//! one field of a hash, and a far task without a payload has none. All keys of a queue lie in one slot of a Cluster; none
//! expires. What is due is decided by the server's clock.

mod claim;
mod known;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use tidegate_backend::clock::ServerClock;
use tidegate_backend::queue::{Listing, MAX_PURGE, next_place};
use tidegate_backend::{BoxFuture, Handout, QueueCapabilities, QueueOptions, QueueStore, Result, Want};
use tidegate_core::Millis;
use tidegate_core::queue::model::Place;
use tidegate_core::queue::{QueueName, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskId, TaskState};
use tokio::sync::watch;

use self::known::Known;
use self::wire::decimal;
use crate::connect::{Call, Connector, Heard, Listener};
use crate::keys::Keys;
use crate::reply;
use crate::scripts;
use crate::tasks::Tasks;

/// Between two looks at the server's clock while nobody asks for anything else.
const LOOK: Duration = Duration::from_secs(10);
/// Most tasks of one script: it holds up everyone else for less than a millisecond. Calls with more are several scripts, which
/// go and come together; of claims one after the other.
const PIECE: usize = 128;

/// Delayed tasks in Redis or Valkey, shared by every process that names the same server and name.
pub struct RedisQueues {
    inner: Arc<Inner>,
    tasks: Tasks,
}

struct Inner {
    connector: Connector,
    keys: Keys,
    options: QueueOptions,
    clock: ServerClock,
    known: Known,
    /// This process, in messages.
    process: Vec<u8>,
    channel: Vec<u8>,
    /// Counts what may have moved the head of a queue forward.
    moved: watch::Sender<u64>,
}

impl RedisQueues {
    /// Opens the queues under the name of `connector`'s options, and starts their tasks. A server that cannot be reached is
    /// no error: calls fail until it can.
    ///
    /// # Errors
    /// [`tidegate_backend::ErrorKind::Configuration`]: a bound makes no sense.
    pub async fn open(connector: Connector, options: QueueOptions) -> Result<Self> {
        options.check()?;
        connector.bear_refusals();
        let keys = Keys::new(&connector.options().name);
        let inner = Arc::new(Inner {
            channel: keys.queue_channel().into_bytes(),
            keys,
            options,
            clock: ServerClock::new(),
            known: Known::default(),
            process: uuid::Uuid::new_v4().into_bytes().to_vec(),
            moved: watch::Sender::new(0),
            connector,
        });
        inner.look().await;
        let tasks = vec![tokio::spawn(listen(Arc::clone(&inner))), tokio::spawn(watch_clock(Arc::clone(&inner)))];
        Ok(Self { inner, tasks: Tasks::new(tasks) })
    }

    /// The connection it uses.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.inner.connector
    }
}

/// Hears what other processes schedule.
async fn listen(inner: Arc<Inner>) {
    let mut listener = Listener::start(inner.connector.options().clone(), inner.keys.queue_channel());
    loop {
        match listener.next().await {
            Heard::Message(process) if process == inner.process => {}
            Heard::Message(_) | Heard::Gap => inner.woken(),
        }
    }
}

/// Keeps the server's clock known, and learns of new connections.
async fn watch_clock(inner: Arc<Inner>) {
    let mut epochs = inner.connector.epochs();
    loop {
        // A sender that is gone never tells of a new one: the pause is left.
        let changed = tokio::time::timeout(LOOK, epochs.changed()).await;
        if changed.is_ok() {
            inner.clock.forget();
            inner.known.forget_names();
            inner.woken();
        }
        inner.look().await;
        if matches!(changed, Ok(Err(_))) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Inner {
    fn woken(&self) {
        self.moved.send_modify(|moved| *moved += 1);
    }

    /// Asks for the server's time.
    async fn look(&self) {
        let asked = Instant::now();
        let call = Call::script(&scripts::QUEUE_GET, self.any_keys(), Vec::new());
        if let Ok(answer) = self.connector.one(call).await
            && let Ok([now]) = reply::parts::<1>(&answer)
            && let Ok(now) = reply::integer(now)
        {
            self.clock.learn(asked, Instant::now(), now.saturating_mul(1_000));
        }
    }

    /// Keys of a queue that nobody has.
    fn any_keys(&self) -> Vec<Vec<u8>> {
        let names = self.keys.queue_names();
        let clock = [names.strip_suffix(b"names").unwrap_or(&names), b"clock"].concat();
        vec![clock; 5]
    }

    /// The first answer of a call tells the time best: the others were given later than it, but arrive with it.
    fn heard(&self, asked: Instant, stamp: &Value) -> Result<()> {
        self.clock.learn(asked, Instant::now(), reply::integer(stamp)?);
        Ok(())
    }

    /// Names the queue in the list of queues, once in this process and once more after a loss.
    async fn begin(&self, queue: &QueueName) -> Result<()> {
        if self.known.is_named(queue) {
            return Ok(());
        }
        let arguments = vec![queue.as_str().into(), self.options.max_queues.to_string().into_bytes()];
        let call = Call::script(&scripts::QUEUE_BEGIN, vec![self.keys.queue_names()], arguments);
        if reply::integer(&self.connector.one(call).await?)? == 0 {
            return Err(self.options.too_many());
        }
        self.known.name(queue);
        Ok(())
    }

    async fn schedule(&self, queue: &QueueName, tasks: &[Schedule]) -> Result<Vec<Scheduled>> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        self.begin(queue).await?;
        let number = uuid::Uuid::new_v4().simple().to_string().into_bytes();
        let head = [self.channel.clone(), self.process.clone(), number, decimal(Millis::MAX.0)];
        let batches = wire::batches(tasks);
        let call = |batch: &&[Schedule]| {
            let arguments = head.iter().cloned().chain(batch.iter().flat_map(wire::schedule)).collect();
            Call::script(&scripts::QUEUE_SCHEDULE, self.keys.queue(queue).to_vec(), arguments)
        };
        let asked = Instant::now();
        let answers = self.connector.run(batches.iter().map(call).collect()).await;
        let mut scheduled = Vec::with_capacity(tasks.len());
        for (n, (batch, answer)) in batches.iter().zip(answers).enumerate() {
            let answer = answer?;
            let [stamp, number, began, earlier] = reply::parts::<4>(&answer)?;
            if n == 0 {
                self.heard(asked, stamp)?;
            }
            self.known.has_number(queue, reply::bytes(number)?);
            if reply::integer(began)? == 1 {
                // The list may have been lost with the queue.
                self.known.forget_name(queue);
            }
            if reply::integer(earlier)? == 1 {
                self.woken();
            }
            let now = self.clock.now();
            wire::scheduled(batch, &reply::list(&answer)?[4..], now, &mut scheduled)?;
        }
        if !self.known.is_named(queue) {
            self.begin(queue).await?;
        }
        Ok(scheduled)
    }

    async fn cancel(&self, queue: &QueueName, ids: &[TaskId]) -> Result<Vec<bool>> {
        let keys = self.keys.queue(queue)[..4].to_vec();
        let call = |ids: &[TaskId]| Call::script(&scripts::QUEUE_CANCEL, keys.clone(), wire::ids(ids));
        let mut there = Vec::with_capacity(ids.len());
        for answer in self.connector.run(ids.chunks(PIECE).map(call).collect()).await {
            for one in reply::list(&answer?)? {
                there.push(reply::integer(one)? == 1);
            }
        }
        Ok(there)
    }

    async fn settle(&self, queue: &QueueName, tasks: &[Settle]) -> Result<Vec<Settled>> {
        let attempts = self.options.max_attempts.to_string().into_bytes();
        let head = [self.channel.clone(), self.process.clone(), attempts, decimal(Millis::MAX.0)];
        let keys = self.keys.queue(queue);
        let call = |tasks: &[Settle]| {
            if wire::is_acks(tasks) {
                let [_, leased, _, entries, _] = &keys;
                return Call::script(&scripts::QUEUE_ACK, vec![leased.clone(), entries.clone()], wire::acks(tasks));
            }
            let arguments = head.iter().cloned().chain(tasks.iter().flat_map(wire::settle)).collect();
            Call::script(&scripts::QUEUE_SETTLE, keys.to_vec(), arguments)
        };
        let asked = Instant::now();
        let mut settled = Vec::with_capacity(tasks.len());
        let answers = self.connector.run(tasks.chunks(PIECE).map(call).collect()).await;
        for (tasks, answer) in tasks.chunks(PIECE).zip(answers) {
            let answer = answer?;
            let [stamp, told] = reply::parts::<2>(&answer)?;
            if settled.is_empty() {
                self.heard(asked, stamp)?;
            }
            if wire::is_acks(tasks) {
                wire::acked(told, &mut settled)?;
                continue;
            }
            if reply::integer(told)? == 1 {
                self.woken();
            }
            for one in &reply::list(&answer)?[2..] {
                settled.push(wire::settled(one)?);
            }
        }
        Ok(settled)
    }

    async fn get(&self, queue: &QueueName, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        let keys = self.keys.queue(queue).to_vec();
        let call = |ids: &[TaskId]| Call::script(&scripts::QUEUE_GET, keys.clone(), wire::ids(ids));
        let answers = self.connector.run(ids.chunks(PIECE).map(call).collect()).await;
        let mut tasks = Vec::with_capacity(ids.len());
        for (ids, answer) in ids.chunks(PIECE).zip(answers) {
            let answer = answer?;
            let (now, rest) = wire::timed(&answer)?;
            for (id, parts) in ids.iter().zip(rest.chunks_exact(3)) {
                tasks.push(wire::task(id, parts, now)?);
            }
        }
        Ok(tasks)
    }

    async fn list(
        &self,
        queue: &QueueName,
        listing: &Listing,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<Task>> {
        let [waiting, leased, dead, tasks, mark] = self.keys.queue(queue);
        let page = |set: Vec<u8>, state: TaskState, part: &str| {
            let reverse = state == TaskState::Dead;
            let arguments = wire::page(after, limit, reverse, part);
            (state, Call::script(&scripts::QUEUE_LIST, vec![set, tasks.clone(), mark.clone()], arguments))
        };
        use TaskState::{Dead, Leased, Pending};
        let parts = match listing {
            Listing::Dead => vec![page(dead, Dead, "a")],
            Listing::Live(None) => vec![page(waiting, Pending, "a"), page(leased, Leased, "a")],
            Listing::Live(Some(Leased)) => vec![page(leased, Leased, "h")],
            Listing::Live(Some(_)) => vec![page(waiting, Pending, "a"), page(leased, Leased, "l")],
        };
        let (states, calls): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let mut found = Vec::new();
        for (state, answer) in states.into_iter().zip(self.connector.run(calls).await) {
            let answer = answer?;
            let (now, rest) = wire::timed(&answer)?;
            for parts in rest.chunks_exact(3) {
                found.push(wire::listed(state, parts, now)?);
            }
        }
        match listing {
            Listing::Dead => found.reverse(),
            Listing::Live(_) => found.sort_by(|a, b| (a.visible_at, &a.id).cmp(&(b.visible_at, &b.id))),
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn queues(&self, after: Option<&QueueName>, limit: usize) -> Result<Vec<QueueName>> {
        let from = after.map_or_else(|| b"-".to_vec(), |after| format!("({after}").into_bytes());
        let limit = limit.to_string();
        let call =
            Call::plain("ZRANGEBYLEX", &self.keys.queue_names(), &[&from, b"+", b"LIMIT", b"0", limit.as_bytes()]);
        let answer = self.connector.one(call).await?;
        reply::list(&answer)?.iter().map(wire::name).collect()
    }

    async fn stats(&self, queues: &[QueueName]) -> Result<Vec<Option<Stats>>> {
        let call = |queue: &QueueName| {
            let [waiting, leased, dead, _, mark] = self.keys.queue(queue);
            Call::script(&scripts::QUEUE_STATS, vec![waiting, leased, dead, mark], Vec::new())
        };
        let answers = self.connector.run(queues.iter().map(call).collect()).await;
        answers.into_iter().map(|answer| wire::stats(&answer?)).collect()
    }

    async fn requeue(&self, queue: &QueueName, id: &TaskId, delay_ms: i64) -> Result<Option<Task>> {
        let [waiting, _, dead, tasks, mark] = self.keys.queue(queue);
        let arguments = vec![
            self.channel.clone(),
            self.process.clone(),
            id.as_str().into(),
            decimal(delay_ms),
            decimal(Millis::MAX.0),
        ];
        let call = Call::script(&scripts::QUEUE_REQUEUE, vec![waiting, dead, tasks, mark], arguments);
        let task = wire::requeued(id, &self.connector.one(call).await?)?;
        if task.is_some() {
            self.woken();
        }
        Ok(task)
    }

    async fn purge(&self, queue: &QueueName, before: Option<Millis>) -> Result<(usize, bool)> {
        let [_, _, dead, tasks, _] = self.keys.queue(queue);
        let before = before.map_or_else(|| b"+inf".to_vec(), |before| decimal(before.0));
        let mut gone = 0;
        loop {
            let most = (MAX_PURGE - gone).min(PIECE);
            let arguments = vec![before.clone(), most.to_string().into_bytes()];
            let call = Call::script(&scripts::QUEUE_PURGE, vec![dead.clone(), tasks.clone()], arguments);
            let answer = self.connector.one(call).await?;
            let [purged, more] = reply::parts::<2>(&answer)?;
            gone += usize::try_from(reply::integer(purged)?).unwrap_or(0);
            let more = reply::integer(more)? > 0;
            if !more || gone >= MAX_PURGE {
                return Ok((gone, more));
            }
        }
    }
}

impl QueueStore for RedisQueues {
    fn capabilities(&self) -> QueueCapabilities {
        QueueCapabilities { name: "redis", shared: true, durable: false, wakes: true }
    }

    fn now(&self) -> Millis {
        self.inner.clock.now()
    }

    fn until(&self, at: Millis) -> Duration {
        self.inner.clock.until(at)
    }

    fn trouble(&self) -> Option<String> {
        self.inner.connector.trouble()
    }

    fn schedule<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Schedule]) -> BoxFuture<'a, Result<Vec<Scheduled>>> {
        Box::pin(self.inner.schedule(queue, tasks))
    }

    fn cancel<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(self.inner.cancel(queue, ids))
    }

    fn claim<'a>(&'a self, wants: &'a [Want]) -> BoxFuture<'a, Result<Vec<Handout>>> {
        Box::pin(claim::claim(&self.inner, wants))
    }

    fn settle<'a>(&'a self, queue: &'a QueueName, tasks: &'a [Settle]) -> BoxFuture<'a, Result<Vec<Settled>>> {
        Box::pin(self.inner.settle(queue, tasks))
    }

    fn get<'a>(&'a self, queue: &'a QueueName, ids: &'a [TaskId]) -> BoxFuture<'a, Result<Vec<Option<Task>>>> {
        Box::pin(self.inner.get(queue, ids))
    }

    fn list<'a>(
        &'a self,
        queue: &'a QueueName,
        listing: Listing,
        after: Option<Place>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Vec<Task>, Option<Place>)>> {
        Box::pin(async move {
            let page = self.inner.list(queue, &listing, after.as_ref(), limit).await?;
            let next = next_place(&listing, &page, limit);
            Ok((page, next))
        })
    }

    fn queues<'a>(&'a self, after: Option<&'a QueueName>, limit: usize) -> BoxFuture<'a, Result<Vec<QueueName>>> {
        Box::pin(self.inner.queues(after, limit))
    }

    fn stats<'a>(&'a self, queues: &'a [QueueName]) -> BoxFuture<'a, Result<Vec<Option<Stats>>>> {
        Box::pin(self.inner.stats(queues))
    }

    fn requeue<'a>(
        &'a self,
        queue: &'a QueueName,
        id: &'a TaskId,
        delay_ms: i64,
    ) -> BoxFuture<'a, Result<Option<Task>>> {
        Box::pin(self.inner.requeue(queue, id, delay_ms))
    }

    fn purge<'a>(&'a self, queue: &'a QueueName, before: Option<Millis>) -> BoxFuture<'a, Result<(usize, bool)>> {
        Box::pin(self.inner.purge(queue, before))
    }

    fn earlier(&self) -> BoxFuture<'static, ()> {
        let mut moved = self.inner.moved.subscribe();
        Box::pin(async move {
            if moved.changed().await.is_err() {
                // The store is gone: nothing is scheduled any more.
                std::future::pending::<()>().await;
            }
        })
    }

    fn losses(&self) -> u64 {
        self.inner.known.losses()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.tasks.end();
        Box::pin(std::future::ready(()))
    }
}
