//! The cache's store on Redis and Valkey.
//!
//! - [`ops`]: operations as scripts and commands. Reads are plain `GET`s.
//! - [`ears`], [`stream`], [`wire`]: what processes tell each other, through streams that can be resumed.
//! - [`beat`], [`recent`]: the server's clock; what is done again on a server that was not known.
//! - [`clear`]: deleting a namespace; counters of tags. [`options`]: [`RedisCacheOptions`]. `ceiling` (feature `ceiling`): what
//!   the bench compares with.
//!
//! Every key expires. What the server loses (a restart, an eviction) is a miss, and a process that may have missed a
//! notice hears of a gap. A failover may lose deletes that the old master acknowledged: each process repeats its own of the
//! last minute on the new one before it reads there (in a Cluster: within about a second); until all have, another process
//! may read what they deleted. A process that is cut off together with an old master, and from every sentinel, goes on
//! reading there what others have deleted on the new one.

mod beat;
#[cfg(feature = "ceiling")]
mod ceiling;
mod clear;
mod ears;
mod ops;
mod options;
mod recent;
mod stream;
mod wire;

#[cfg(feature = "ceiling")]
pub use ceiling::BareReads;
pub use options::RedisCacheOptions;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tidegate_backend::cache::{CacheCapabilities, MAX_CACHE_BATCH, MAX_HOT_LIST_BYTES};
use tidegate_backend::clock::ServerClock;
use tidegate_backend::{BoxFuture, CacheKey, CacheNotice, CacheStore, Error, ErrorKind, MembershipStore, Result};
use tidegate_core::Millis;
use tidegate_core::cache::{Op, Reply, RowVersion};
use tidegate_core::hot::Report;
use tokio::sync::{Notify, watch};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::ears::{Ears, Proven};
use self::recent::{Done, Recent};
use crate::connect::{self, Call, Connector, RedisOptions, Role};
use crate::hotkeys;
use crate::keys::Keys;
use crate::reply;
use crate::scripts;
use crate::tasks::Tasks;

/// Bytes of values in one round trip, give or take an operation.
const MOST_BYTES: usize = 16 << 20;
/// Messages in one call.
const MOST_MESSAGES: usize = 100;
/// How long an idle stream is kept, milliseconds.
const STREAM_KEPT_MS: &str = "86400000";

/// Cached entries in Redis or Valkey, alone, under Sentinel or in a Cluster, on connections of its own: one for commands, one
/// to be woken on, and one (in a Cluster [`RedisCacheOptions::buckets`]) to hear notices on.
pub struct RedisCache {
    inner: Arc<Inner>,
    ears: tokio::sync::Mutex<Ears>,
    proven: Proven,
    tasks: Tasks,
}

struct Inner {
    connector: Connector,
    keys: Keys,
    options: RedisCacheOptions,
    /// Tells own notices from others'.
    teller: [u8; 16],
    woken: String,
    clock: ServerClock,
    recent: Recent,
    /// The connection on which recent invalidations are known to be done.
    settled: watch::Sender<u64>,
    /// The same, cheaper to read.
    settled_epoch: AtomicU64,
    /// Other processes divide their notices in another way.
    divided: AtomicBool,
    /// The largest counter of a tag.
    seen: AtomicU64,
    /// The server's birth as it was last seen; empty: never yet.
    born: Mutex<Box<[u8]>>,
    /// There was another.
    lost: Notify,
}

impl RedisCache {
    /// Connects and starts its tasks. A server that cannot be reached is no error: `trouble` says so, and it is looked for
    /// until [`CacheStore::close`].
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: bad options, a server that must not be used (too old, it does not let us in), or
    /// processes under this name that divide their notices in another way; the text says what to do.
    pub async fn open(redis: RedisOptions, options: RedisCacheOptions) -> Result<Self> {
        options.check()?;
        let mut redis = redis.response_timeout(options.timeout);
        redis.role = Role::Cache;
        let connector = Connector::start(redis).await?;
        let keys = Keys::new(&connector.options().name);
        let inner = Arc::new(Inner {
            woken: keys.woken_channel(),
            keys,
            teller: ops::random_id().0,
            clock: ServerClock::new(),
            recent: Recent::default(),
            settled: watch::Sender::new(0),
            settled_epoch: AtomicU64::new(0),
            divided: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            born: Mutex::default(),
            lost: Notify::new(),
            connector,
            options,
        });
        let mut known = HashSet::new();
        if let Err(e) = inner.beat(&mut known).await
            && e.kind() == ErrorKind::Configuration
        {
            inner.connector.close().await;
            return Err(e);
        }
        let proven = Proven::new(ears::readers(&inner.connector, inner.options.buckets));
        let (ears, mut tasks) = ears::start(&inner);
        tasks.push(tokio::spawn(beat::run(inner.clone(), known)));
        Ok(Self { inner, ears: tokio::sync::Mutex::new(ears), proven, tasks: Tasks::new(tasks) })
    }

    /// The keys in Redis of everything cached under `key`: a plain `DEL` of them by any client invalidates what is in Redis
    /// and revokes every lease. It tells no process, so in-process copies live out their own lives.
    #[must_use]
    pub fn redis_keys(&self, key: &CacheKey) -> Vec<Vec<u8>> {
        self.inner.keys.entries(key).collect()
    }

    /// Commands sent since the start (a script is one), without those that wait for notices.
    #[must_use]
    pub fn commands_sent(&self) -> u64 {
        self.inner.connector.commands_sent()
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.inner.connector
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.inner.keys
    }
}

/// How often a read is begun anew because the connection was replaced meanwhile.
const MAX_TURNS: usize = 4;

fn restless() -> Error {
    Error::new(ErrorKind::Unavailable, "the connection to Redis is replaced again and again")
}

impl Inner {
    /// Whether the present connection is known to lead to what this process left behind.
    fn is_settled(&self) -> bool {
        self.settled_epoch.load(Ordering::Acquire) == self.connector.epoch()
    }

    /// Waits until it is.
    async fn settle(&self) -> Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        let mut settled = self.settled.subscribe();
        let waited = settled.wait_for(|settled| *settled >= self.connector.epoch());
        match tokio::time::timeout(self.options.timeout, waited).await {
            Ok(_) => Ok(()),
            Err(_) => {
                let why =
                    self.connector.trouble().unwrap_or_else(|| "recent invalidations are being repeated".to_owned());
                Err(Error::new(ErrorKind::Unavailable, format!("Redis cannot be used: {why}")))
            }
        }
    }

    async fn read(&self, key: &CacheKey) -> Result<Option<Bytes>> {
        for _ in 0..MAX_TURNS {
            let epoch = self.settled_epoch().await?;
            let name = self.keys.slot(key, key.schema);
            let mut command = redis::Cmd::with_capacity(2, name.len() + 3);
            command.arg("GET").arg(&name[..]);
            let answer = found(self.connector.direct(command, &name).await);
            if self.connector.epoch() == epoch {
                return answer;
            }
        }
        Err(restless())
    }

    /// The epoch of a connection that is known to lead to what this process left behind. Whoever reads looks afterwards whether
    /// it is still that: a connection that came meanwhile may lead to a server that lacks what was deleted.
    async fn settled_epoch(&self) -> Result<u64> {
        for _ in 0..MAX_TURNS {
            let epoch = self.connector.epoch();
            if self.settled_epoch.load(Ordering::Acquire) == epoch {
                return Ok(epoch);
            }
            self.settle().await?;
        }
        Err(restless())
    }

    async fn read_many(&self, keys: &[CacheKey]) -> Result<Vec<Option<Bytes>>> {
        check_count(keys.len())?;
        for _ in 0..MAX_TURNS {
            let epoch = self.settled_epoch().await?;
            let answer = self.read_them(keys).await;
            if self.connector.epoch() == epoch {
                return answer;
            }
        }
        Err(restless())
    }

    async fn read_them(&self, keys: &[CacheKey]) -> Result<Vec<Option<Bytes>>> {
        let Some((first, rest)) = keys.split_first() else { return Ok(Vec::new()) };
        let first = self.keys.slot(first, first.schema);
        let mut command = redis::Cmd::with_capacity(1 + keys.len(), 8 + keys.len() * (first.len() + 8));
        command.arg("MGET").arg(&first[..]);
        for key in rest {
            command.arg(self.keys.slot(key, key.schema));
        }
        match self.connector.direct(command, &first).await {
            Ok(Value::Array(values)) if values.len() == keys.len() => {
                values.into_iter().map(|value| found(Ok(value))).collect()
            }
            Ok(other) => Err(reply::strange(&other)),
            Err(e) if connect::is_on_its_way(&e) => {
                let mut found = Vec::with_capacity(keys.len());
                for key in keys {
                    found.push(self.read(key).await?);
                }
                Ok(found)
            }
            Err(e) => Err(e),
        }
    }

    /// Each round has a key once, so that what is sent again is not overtaken by what came after it.
    async fn apply(&self, operations: &[(CacheKey, Op)]) -> Vec<Result<Reply>> {
        let failed = |e: &Error| operations.iter().map(|_| Err(Error::new(e.kind(), e.to_string()))).collect();
        if let Err(e) = check_count(operations.len()) {
            return failed(&e);
        }
        if let Err(e) = self.settle().await {
            return failed(&e);
        }
        self.recent.remember(operations.iter().filter_map(|(key, op)| Done::of(key, op)));
        let mut answers = Vec::with_capacity(operations.len());
        let mut rest = operations;
        while !rest.is_empty() {
            let round;
            (round, rest) = rest.split_at(round_of(rest));
            let of_round = self.round(round).await;
            let silent = of_round.iter().all(|answer| matches!(answer, Err(e) if e.kind() == ErrorKind::Unavailable));
            answers.extend(of_round);
            if silent {
                // One time limit is enough to learn it.
                answers.extend(rest.iter().map(|_| {
                    Err(Error::new(ErrorKind::Unavailable, "not tried, since Redis did not answer what came before it"))
                }));
                break;
            }
        }
        answers
    }

    async fn round(&self, operations: &[(CacheKey, Op)]) -> Vec<Result<Reply>> {
        let mut answers = self.once(operations).await;
        for ((key, op), answer) in operations.iter().zip(&mut answers) {
            if answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::Corrupt) {
                // What strangers left under our keys is garbage, and garbage is a miss.
                if let Err(e) = self.connector.one(self.mend(key)).await {
                    *answer = Err(e);
                    continue;
                }
                let again = self.once(&[(key.clone(), op.clone())]).await.pop();
                *answer = again.expect("one answer an operation");
            }
            if let (Err(e), Op::Invalidate { floor, keep_floor_ms }) = (&*answer, op)
                && connect::is_on_its_way(e)
            {
                *answer = self.invalidate_one_by_one(key, *floor, *keep_floor_ms).await;
            }
        }
        answers
    }

    /// While the keys of a cell move from one node to another, only commands with one key work. In this order no fill gets
    /// in between: the floor is there before anything is deleted, and what was deleted is deleted.
    async fn invalidate_one_by_one(&self, key: &CacheKey, floor: Option<RowVersion>, keep_ms: i64) -> Result<Reply> {
        if let Some(floor) = floor {
            self.connector.one(self.floor(key, floor, keep_ms)).await?;
        }
        for name in self.keys.entries(key) {
            // One after another: the client's ASKING counts for whatever it sends next (redis-rs 1.8).
            self.connector.one(Call::plain("UNLINK", &name, &[])).await?;
        }
        Ok(Reply::Held)
    }

    async fn once(&self, operations: &[(CacheKey, Op)]) -> Vec<Result<Reply>> {
        let mut calls = Vec::with_capacity(operations.len());
        let made: Vec<Result<()>> =
            operations.iter().map(|(key, op)| self.call(key, op).map(|call| calls.push(call))).collect();
        let mut answers = self.connector.run(calls).await.into_iter();
        let answer =
            |made: Result<()>| made.and_then(|()| answers.next().expect("one answer a call")).and_then(ops::answer);
        made.into_iter().map(answer).collect()
    }

    async fn tell(&self, notices: &[CacheNotice]) -> Result<()> {
        let mut by_bucket: Vec<Vec<&CacheNotice>> = vec![Vec::new(); self.options.buckets];
        for notice in notices {
            by_bucket[self.bucket(notice)].push(notice);
        }
        let mut calls = Vec::new();
        for (bucket, notices) in by_bucket.into_iter().enumerate() {
            for messages in wire::encode(notices.into_iter()).chunks(MOST_MESSAGES) {
                let kept = self.options.notices_kept.to_string().into_bytes();
                let mut arguments = vec![self.teller.to_vec(), kept, STREAM_KEPT_MS.as_bytes().to_vec()];
                arguments.extend(messages.iter().cloned());
                calls.push(Call::script(&scripts::CACHE_TELL, vec![self.keys.cache_stream(bucket)], arguments));
            }
        }
        self.connector.run(calls).await.into_iter().try_for_each(|answer| answer.map(|_| ()))
    }

    /// The stream of a notice: those about one key keep their order.
    fn bucket(&self, notice: &CacheNotice) -> usize {
        let hash = match notice {
            CacheNotice::Invalidated { namespace, key } | CacheNotice::Woken { namespace, key } => {
                xxh3_64_with_seed(key, xxh3_64_with_seed(namespace.as_bytes(), 0))
            }
            CacheNotice::Tag { namespace, .. } | CacheNotice::Cleared { namespace } => {
                xxh3_64_with_seed(namespace.as_bytes(), 0)
            }
            CacheNotice::Gap | CacheNotice::Lost => 0,
        };
        (hash % self.options.buckets as u64) as usize
    }
}

fn check_count(count: usize) -> Result<()> {
    if count > MAX_CACHE_BATCH {
        let why = format!("{count} at a time are more than the {MAX_CACHE_BATCH} that a store of a cache takes");
        return Err(Error::new(ErrorKind::Command, why));
    }
    Ok(())
}

/// What a read found. Another type than a string is a stranger's, as unreadable as any garbage.
fn found(answer: Result<Value>) -> Result<Option<Bytes>> {
    match answer {
        Ok(Value::BulkString(bytes)) => Ok(Some(bytes.into())),
        Ok(Value::Nil) => Ok(None),
        Ok(other) => Err(reply::strange(&other)),
        Err(e) if e.kind() == ErrorKind::Corrupt => Ok(Some(Bytes::new())),
        Err(e) => Err(e),
    }
}

/// How many operations from the first on are on keys of their own, and not too long together.
fn round_of(operations: &[(CacheKey, Op)]) -> usize {
    let mut keys = HashSet::new();
    let mut bytes = 0;
    for (at, (key, op)) in operations.iter().enumerate() {
        bytes += ops::weight(op);
        if at > 0 && (bytes > MOST_BYTES || keys.contains(&(&key.namespace, &key.key))) {
            return at;
        }
        keys.insert((&key.namespace, &key.key));
    }
    operations.len()
}

impl CacheStore for RedisCache {
    fn capabilities(&self) -> CacheCapabilities {
        CacheCapabilities { name: "redis", shared: true }
    }

    fn now(&self) -> Millis {
        self.inner.clock.now()
    }

    fn trouble(&self) -> Option<String> {
        self.inner.connector.trouble()
    }

    fn membership(&self) -> Option<&dyn MembershipStore> {
        Some(self)
    }

    fn read<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(self.inner.read(key))
    }

    fn read_many<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<Option<Bytes>>>> {
        Box::pin(self.inner.read_many(keys))
    }

    fn apply<'a>(&'a self, operations: &'a [(CacheKey, Op)]) -> BoxFuture<'a, Vec<Result<Reply>>> {
        Box::pin(self.inner.apply(operations))
    }

    fn tags<'a>(&'a self, namespace: &'a str, tags: &'a [u64], keep: Duration) -> BoxFuture<'a, Result<Vec<u64>>> {
        Box::pin(async move {
            self.inner.settle().await?;
            let calls = tags.iter().map(|tag| self.inner.tag(namespace, *tag, keep, false)).collect();
            let answers = self.inner.connector.run(calls).await.into_iter();
            answers.map(|answer| self.inner.counter(&answer?)).collect()
        })
    }

    fn bump_tag<'a>(&'a self, namespace: &'a str, tag: u64, keep: Duration) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            self.inner.settle().await?;
            self.inner.recent.remember(std::iter::once(Done::Bumped { namespace: namespace.into(), tag, keep }));
            let answer = self.inner.connector.one(self.inner.tag(namespace, tag, keep, true)).await?;
            self.inner.counter(&answer)
        })
    }

    fn clear<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            self.inner.settle().await?;
            self.inner.recent.remember(std::iter::once(Done::Cleared { namespace: namespace.into() }));
            self.inner.clear(namespace).await
        })
    }

    fn tell<'a>(&'a self, notices: &'a [CacheNotice]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.inner.tell(notices))
    }

    fn save_hot_keys<'a>(&'a self, namespace: &'a str, list: &'a [u8], keep: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if list.len() > MAX_HOT_LIST_BYTES {
                let why = format!("a list of hot keys has at most {MAX_HOT_LIST_BYTES} bytes, not {}", list.len());
                return Err(Error::new(ErrorKind::Command, why));
            }
            let key = self.inner.keys.hot_keys(namespace);
            let life = keep.as_millis().max(1).to_string();
            let set = Call::plain("SET", &key, &[list, b"PX", life.as_bytes()]);
            self.inner.connector.one(set).await.map(drop)
        })
    }

    fn hot_keys<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            let key = self.inner.keys.hot_keys(namespace);
            found(self.inner.connector.one(Call::plain("GET", &key, &[])).await)
        })
    }

    fn touch<'a>(&'a self, keys: &'a [CacheKey]) -> BoxFuture<'a, Result<Vec<bool>>> {
        Box::pin(async move {
            check_count(keys.len())?;
            // One key a command, so that in a Cluster each goes to its server.
            let touch = |key: &CacheKey| Call::plain("TOUCH", &self.inner.keys.slot(key, key.schema), &[]);
            let answers = self.inner.connector.run(keys.iter().map(touch).collect()).await;
            answers.into_iter().map(|answer| Ok(reply::integer(&answer?)? > 0)).collect()
        })
    }

    fn tell_hot_keys<'a>(&'a self, report: &'a Report<CacheKey>, keep: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let report = report.clone().named(|key| self.inner.keys.slot(&key, key.schema)).encode();
            hotkeys::tell(&self.inner.connector, &self.inner.teller, report, keep).await
        })
    }

    fn heard(&self) -> BoxFuture<'_, Vec<CacheNotice>> {
        Box::pin(async move { self.ears.lock().await.next(&self.proven).await })
    }

    fn silence(&self) -> Duration {
        if self.inner.divided.load(Ordering::Acquire) { Duration::MAX } else { self.proven.silence() }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.tasks.ended().await;
            self.inner.connector.close().await;
        })
    }
}
