//! The shared index of what is due.
//!
//! - `wire.rs`: deadlines as Redis holds them. `buffer.rs`, `flush.rs`: changes on their way to Redis.
//! - `claim.rs`: what is due, over all partitions. `numbers.rs`: how much of it. `wake.rs`: an earlier deadline wakes who sleeps.
//! - `parts.rs`: partitions that cannot be used while others can.
//! - `nodes.rs`: heartbeats, and taking over from nodes that are gone. `rebuild.rs`: who knows what was lost.
//!
//! Orders are spread over partitions by their number; each partition is one sorted set, scored by the instant at which a
//! deadline is claimable next. A claim pushes the score to the lease's end, so there is no second set and nobody who must
//! move things between sets. `now` is always the caller's: the server's clock is used for receipts and heartbeats only.

mod buffer;
mod claim;
mod flush;
mod nodes;
mod numbers;
mod parts;
mod rebuild;
mod wake;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::{
    BoxFuture, Claim, DeadlineQueue, Error, ErrorKind, IndexState, LedgerId, Receipt, Result, Retry,
};
use tidegate_core::queue::Stats;
use tidegate_core::{Millis, OrderNo};

use self::buffer::{Buffer, Change};
use self::nodes::Holds;
use self::parts::Outs;
use self::rebuild::Rebuild;
use self::wake::Wake;
use crate::connect::{Call, Connector, Owner};
use crate::keys::{Keys, MAX_PARTITIONS};
use crate::reply;
use crate::scripts::{self, Script};
use crate::tasks::Tasks;

/// Most deadlines that one script call works on.
const MAX_CALL: usize = 512;
/// Deadlines of a call of `schedule` that is a page of a rebuild, which waits for room in the buffer.
const PAGE: usize = 1_024;
/// Longest wait for room, and for the buffer to be empty.
const PATIENCE: Duration = Duration::from_secs(10);
/// Whoever waits for that looks this often whether Redis is away: then there is nothing to wait for.
const LOOK: Duration = Duration::from_millis(100);

/// Whose index it is and how it is laid out.
#[derive(Debug, Clone)]
pub struct DeadlineOptions {
    /// How many partitions (1..=32; 16 by default, so that a Cluster spreads the load). All nodes of one index must agree; to
    /// change it, stop them all.
    pub partitions: usize,
    /// The ledger whose deadlines these are. An index under a name that another ledger has, or that other nodes divide in
    /// another way, is not used. `None`: nobody compares.
    pub ledger: Option<LedgerId>,
}

impl Default for DeadlineOptions {
    fn default() -> Self {
        Self { partitions: 16, ledger: None }
    }
}

/// The deadlines of all nodes of one ledger, in Redis or Valkey. Dropped without [`DeadlineQueue::close`], what it has
/// claimed is taken over by other nodes after a second, or when its lease ends.
pub struct RedisDeadlines {
    inner: Arc<Inner>,
    tasks: Tasks,
}

struct Inner {
    connector: Connector,
    keys: Keys,
    partitions: usize,
    /// This process: another one under the same name is another node.
    node: [u8; 8],
    buffer: Buffer,
    wake: Wake,
    rebuild: Rebuild,
    holds: Holds,
    outs: Outs,
}

impl RedisDeadlines {
    /// Opens the index that `connector`'s options name, and starts its tasks.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] when there are no or too many partitions, or the name is another ledger's or divided in
    /// another way. A server that cannot be reached is no error:
    /// the state says so, and the index serves once it can.
    pub async fn open(connector: Connector, options: DeadlineOptions) -> Result<Self> {
        if !(1..=MAX_PARTITIONS).contains(&options.partitions) {
            let why = format!("a deadline index has 1..={MAX_PARTITIONS} partitions");
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        connector.must_write();
        if let Some(ledger) = options.ledger {
            connector.take_name(Owner { ledger, partitions: options.partitions }).await?;
        }
        let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
        let inner = Arc::new(Inner {
            keys: Keys::new(&connector.options().name),
            connector,
            partitions: options.partitions,
            node: random.to_be_bytes(),
            buffer: Buffer::default(),
            wake: Wake::default(),
            rebuild: Rebuild::default(),
            holds: Holds::default(),
            outs: Outs::default(),
        });
        inner.first_look().await;
        let tasks = vec![
            tokio::spawn(flush::run(Arc::clone(&inner))),
            tokio::spawn(nodes::run(Arc::clone(&inner))),
            tokio::spawn(wake::run(Arc::clone(&inner))),
            tokio::spawn(parts::run(Arc::clone(&inner))),
        ];
        Ok(Self { inner, tasks: Tasks::new(tasks) })
    }

    /// The connection it uses.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.inner.connector
    }
}

impl Inner {
    fn partition_of(&self, order: OrderNo) -> usize {
        // Orders are numbered in turn: the number itself spreads them evenly.
        usize::try_from(order.0.rem_euclid(self.partitions as i64)).expect("a remainder is small and not negative")
    }

    /// One call of `script` for each run of at most [`MAX_CALL`] items of a partition, and which; `key_count` of its keys.
    fn calls<T>(
        &self,
        script: &'static Script,
        key_count: usize,
        items: impl IntoIterator<Item = (OrderNo, T)>,
        arguments: impl Fn(&[(OrderNo, T)]) -> Vec<Vec<u8>>,
    ) -> Vec<(usize, Call)> {
        let mut by_partition: Vec<Vec<(OrderNo, T)>> = (0..self.partitions).map(|_| Vec::new()).collect();
        for (order, item) in items {
            by_partition[self.partition_of(order)].push((order, item));
        }
        let mut calls = Vec::new();
        for (partition, items) in by_partition.iter().enumerate() {
            for items in items.chunks(MAX_CALL) {
                let keys = self.keys.partition(partition)[..key_count].to_vec();
                calls.push((partition, Call::script(script, keys, arguments(items))));
            }
        }
        calls
    }

    /// Waits until what was scheduled and cancelled here has reached Redis.
    async fn settled(&self) -> Result<()> {
        self.or_trouble(self.buffer.empty()).await
    }

    /// Waits for something that only Redis can bring, no longer than it can be used.
    async fn or_trouble(&self, something: impl Future<Output = ()>) -> Result<()> {
        let mut something = std::pin::pin!(something);
        let begun = tokio::time::Instant::now();
        while tokio::time::timeout(LOOK, something.as_mut()).await.is_err() {
            if let Some(why) = self.trouble() {
                return Err(Error::new(ErrorKind::Unavailable, format!("deadlines wait for Redis: {why}")));
            }
            if begun.elapsed() >= PATIENCE {
                return Err(Error::new(ErrorKind::Unavailable, "deadlines wait for Redis"));
            }
        }
        Ok(())
    }

    /// Why none of it can be used.
    fn trouble(&self) -> Option<String> {
        // Of a Cluster the connection says that something of it cannot be reached.
        if self.connector.is_cluster() && self.connector.is_connected() {
            return self.parts_trouble().filter(|_| self.outs.usable(self.partitions).is_empty());
        }
        self.connector.trouble()
    }

    /// Takes changes up without waiting for Redis.
    fn put(&self, deadlines: &[(OrderNo, Millis)], change: Change) {
        let lost = self.buffer.put(deadlines, change);
        if lost > 0 && change == Change::Add {
            self.rebuild.lost(lost);
        }
    }

    /// Wakes when something waits again. Where a partition is out, leases end by themselves.
    async fn end_claims(&self, calls: Vec<(usize, Call)>) -> Result<()> {
        let answers = self.each(calls).await?;
        if answers.iter().flatten().any(|answer| reply::integer(answer).is_ok_and(|restored| restored > 0)) {
            self.wake.earlier();
        }
        Ok(())
    }
}

/// Order number and receipt.
fn proof(order: OrderNo, receipt: Receipt) -> Vec<u8> {
    [wire::sortable(order.0), receipt.0.to_be_bytes()].concat()
}

impl DeadlineQueue for RedisDeadlines {
    fn is_shared(&self) -> bool {
        true
    }

    fn state(&self) -> IndexState {
        self.inner.rebuild.asked();
        match self.inner.trouble() {
            Some(why) => IndexState::Unavailable(why),
            None => self.inner.rebuild.token().map_or(IndexState::Whole, IndexState::Incomplete),
        }
    }

    fn failing(&self) -> Option<String> {
        self.inner.parts_trouble()
    }

    fn fails(&self, order: OrderNo) -> bool {
        self.inner.outs.has(self.inner.partition_of(order))
    }

    fn rebuilt(&self, token: u64) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.inner.end_rebuild(token))
    }

    fn schedule<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.inner.rebuild.asked();
            if deadlines.len() < PAGE {
                self.inner.put(deadlines, Change::Add);
                return Ok(());
            }
            for page in deadlines.chunks(buffer::ROOM_FOR_PAGES) {
                self.inner.or_trouble(self.inner.buffer.room()).await?;
                self.inner.put(page, Change::Add);
            }
            Ok(())
        })
    }

    fn cancel<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<()>> {
        self.inner.put(deadlines, Change::Remove);
        Box::pin(std::future::ready(Ok(())))
    }

    fn claim(&self, now: Millis, max: usize, lease_ms: i64) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(self.inner.claim(now, max.clamp(1, MAX_CALL), now.plus(lease_ms.max(1))))
    }

    fn ack<'a>(&'a self, receipts: &'a [(OrderNo, Receipt)]) -> BoxFuture<'a, Result<()>> {
        let calls = self.inner.calls(&scripts::ACK, 2, receipts.iter().copied(), |items| {
            items.iter().map(|(order, receipt)| proof(*order, *receipt)).collect()
        });
        Box::pin(self.inner.end_claims(calls))
    }

    fn retry<'a>(&'a self, retries: &'a [Retry]) -> BoxFuture<'a, Result<()>> {
        let calls = self.inner.calls(&scripts::RETRY, 2, retries.iter().map(|r| (r.order, *r)), |items| {
            let each = items.iter().flat_map(|(order, retry)| {
                let mut text = proof(*order, retry.receipt);
                text.extend(wire::sortable(retry.at.0));
                text.push(if retry.charge { b'1' } else { b'0' });
                [text, wire::not_before(retry.at)]
            });
            each.collect()
        });
        Box::pin(self.inner.end_claims(calls))
    }

    fn next_at(&self) -> BoxFuture<'_, Result<Option<Millis>>> {
        Box::pin(self.inner.next_at())
    }

    fn earlier(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inner.wake.sleep())
    }

    fn len(&self) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move {
            self.inner.settled().await?;
            Ok(self.inner.peek(Millis(i64::MIN), 0, 0).await?.iter().map(|part| part.members).sum())
        })
    }

    fn numbers(&self, now: Millis) -> BoxFuture<'_, Result<Stats>> {
        Box::pin(self.inner.numbers(now))
    }

    fn contains<'a>(&'a self, deadlines: &'a [(OrderNo, Millis)]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(self.inner.contains(deadlines))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // What cannot be flushed or handed back now is found by the sweep, or when its lease ends.
            let _ = tokio::time::timeout(Duration::from_secs(1), self.inner.buffer.empty()).await;
            self.tasks.end();
            self.inner.leave().await;
        })
    }
}
