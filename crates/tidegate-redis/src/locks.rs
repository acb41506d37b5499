//! Locks on Redis: a key that expires for each holder, a line of tokens for those who wait, handed over inside the script
//! that frees the lock. A process has one channel on which it is told what its waiters were handed, whatever their number,
//! and gives its signs of life to parts of the locks.

mod node;
mod policy;

use std::time::{Duration, Instant};

use redis::Value;
use tidegate_backend::{BoxFuture, Error, ErrorKind, LockCapabilities, LockStore, Renewal, Renewed, Result};
use tidegate_core::Millis;
use tidegate_core::lock::rules::{ALIVE_MS, CONFIRM_MS, MAX_CALLS, MAX_WAIT_MS, MAX_WAITERS};
use tidegate_core::lock::{Acquire, Acquired, AskId, Fence, Leave, LockName, LockToken, Look, MAX_TTL_MS, Process};
use tokio::sync::Mutex as AsyncMutex;

use crate::connect::{Call, Connector, Heard, Listener};
use crate::keys::{Keys, LOCK_PARTS};
use crate::reply;
use crate::scripts;
use crate::tasks::Tasks;

pub use node::RedisNode;
use policy::{refuse_eviction, watching};

/// Life of a line after somebody joined it last: the longest wait, and some more.
const LINE_MS: i64 = MAX_WAIT_MS + 5_000;
/// Life of a fence: the longest lock, and as much again. After it the clock alone makes fences grow.
const FENCE_MS: i64 = 2 * MAX_TTL_MS;
/// The longest wait for replicas in one go: it holds up the connection.
const WAIT_SLICE: Duration = Duration::from_millis(3);
/// Names that one look at the channel gives.
const MAX_WOKEN: usize = 1_024;

/// Locks in Redis or Valkey, shared by every process that names the same server and name.
pub struct RedisLocks {
    connector: Connector,
    keys: Keys,
    process: Process,
    channel: Vec<u8>,
    /// `None` once it is closed.
    listener: AsyncMutex<Option<Listener>>,
    /// Whose turn it is to wait for replicas.
    waiting: AsyncMutex<()>,
    /// Looks whether the server may evict locks.
    policy: Tasks,
}

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl RedisLocks {
    /// Opens the locks under the name of `connector`'s options. A server that cannot be reached is no error: calls fail
    /// until it can. No lock is granted by one whose `maxmemory-policy` is not `noeviction`, since a lock is a key that expires:
    /// that is told in the log and by `trouble` at once, and looked at again with every connection and every two seconds.
    #[must_use]
    pub fn open(connector: Connector) -> Self {
        connector.bear_refusals();
        let keys = Keys::new(&connector.options().name);
        // 52 bits: it passes through Lua's numbers nowhere, but other stores' do.
        let process = Process(uuid::Uuid::new_v4().as_u64_pair().0 >> 12);
        let channel = keys.lock_channel();
        let listener = Listener::start(connector.options().clone(), format!("{channel}{}", hex(process)));
        let listener = AsyncMutex::new(Some(listener));
        let policy = watching(connector.clone());
        Self {
            connector,
            keys,
            process,
            channel: channel.into_bytes(),
            listener,
            waiting: AsyncMutex::default(),
            policy,
        }
    }

    /// The connection it uses.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.connector
    }

    fn acquire_call(&self, name: &LockName, asked: &Acquire) -> Call {
        let arguments = vec![
            asked.token.as_str().into(),
            hex(asked.process).into_bytes(),
            decimal(asked.ttl_ms),
            asked.floor.map_or_else(Vec::new, |floor| floor.0.to_string().into_bytes()),
            if asked.wait { b"1".to_vec() } else { b"0".to_vec() },
            decimal(CONFIRM_MS),
            decimal(ALIVE_MS),
            MAX_WAITERS.to_string().into_bytes(),
            decimal(LINE_MS),
            decimal(FENCE_MS),
            self.channel.clone(),
            name.as_str().into(),
            call(asked.ask),
            MAX_CALLS.to_string().into_bytes(),
        ];
        Call::script(&scripts::LOCK_ACQUIRE, self.keys.lock(name).to_vec(), arguments)
    }

    /// Asks in slices, one caller at a time, since each holds up the connection that all share. In one go: whether the lock is
    /// still the caller's on this very server, a write, and who has that write; whoever has it, has what came before it.
    async fn wait_for_replicas(
        &self,
        name: &LockName,
        token: &LockToken,
        wanted: usize,
        within: Duration,
    ) -> Result<usize> {
        if self.connector.is_cluster() {
            let why = "replicas cannot be waited for in a Cluster; use a server with replicas, several servers (Quorum), or Fenced";
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        let deadline = Instant::now() + within;
        let [holder, ..] = self.keys.lock(name);
        loop {
            let reached = {
                let _turn = self.waiting.lock().await;
                let left = deadline.saturating_duration_since(Instant::now()).min(WAIT_SLICE);
                let ms = u64::try_from(left.as_millis()).unwrap_or(1).max(1);
                let calls =
                    vec![Call::plain("HGET", &holder, &[b"t"]), Call::probe(&holder), Call::wait(&holder, wanted, ms)];
                let mut answers = self.connector.run(calls).await.into_iter();
                let mut answer = || answers.next().expect("one answer a call");
                let (whose, written, reached) = (answer()?, answer(), answer());
                if !matches!(&whose, Value::BulkString(whose) if whose == token.as_str().as_bytes()) {
                    return Ok(0);
                }
                written?;
                usize::try_from(reply::integer(&reached?)?).unwrap_or(0)
            };
            if reached >= wanted || Instant::now() >= deadline {
                return Ok(reached);
            }
            tokio::time::sleep(WAIT_SLICE).await;
        }
    }

    async fn give_up(&self, name: &LockName, token: &LockToken, only: Option<(AskId, Leave)>) -> Result<bool> {
        let [ask, why] = left_by(only);
        let arguments = vec![
            token.as_str().into(),
            ask,
            why,
            decimal(CONFIRM_MS),
            decimal(FENCE_MS),
            self.channel.clone(),
            name.as_str().into(),
        ];
        let call = Call::script(&scripts::LOCK_RELEASE, self.keys.lock(name).to_vec(), arguments);
        Ok(reply::integer(&self.connector.one(call).await?)? == 1)
    }
}

/// A process in keys and channels: 16 digits.
fn hex(process: Process) -> String {
    format!("{:016x}", process.0)
}

/// A call in keys: 16 digits.
fn call(ask: AskId) -> Vec<u8> {
    format!("{:016x}", ask.0).into_bytes()
}

/// Which call gives back, and why, as scripts take it.
fn left_by(only: Option<(AskId, Leave)>) -> [Vec<u8>; 2] {
    let Some((ask, why)) = only else { return Default::default() };
    [call(ask), if why == Leave::Done { b"1".to_vec() } else { b"0".to_vec() }]
}

fn fence(value: &Value) -> Result<Fence> {
    u64::try_from(reply::integer(value)?).map(Fence).map_err(|_| reply::strange(value))
}

fn acquired(answer: &Value) -> Result<Acquired> {
    let parts = reply::list(answer)?;
    match parts {
        [kind, number, until, again] if reply::bytes(kind)? == b"G" => granted(number, until, again),
        [kind, left, before, joined] if reply::bytes(kind)? == b"H" => Ok(Acquired::Held {
            for_ms: reply::integer(left)?,
            before: usize::try_from(reply::integer(before)?).ok(),
            joined: reply::integer(joined)? == 1,
        }),
        [kind] if reply::bytes(kind)? == b"F" => Ok(Acquired::Full),
        [kind] if reply::bytes(kind)? == b"S" => Ok(Acquired::Spent),
        _ => Err(reply::strange(answer)),
    }
}

fn granted(number: &Value, until: &Value, again: &Value) -> Result<Acquired> {
    let (fence, until) = (fence(number)?, Millis(reply::integer(until)?));
    Ok(Acquired::Granted { fence, until, again: reply::integer(again)? == 1 })
}

fn looked(answer: &Value) -> Result<Look> {
    let [number, left, waiters] = reply::parts::<3>(answer)?;
    let left = reply::integer(left)?;
    let held = if left > 0 && !reply::bytes(number)?.is_empty() { Some((fence(number)?, left)) } else { None };
    Ok(Look { held, waiters: usize::try_from(reply::integer(waiters)?).unwrap_or(0) })
}

/// Token, a blank, name.
fn handed(message: &[u8]) -> Option<(LockName, LockToken)> {
    let (token, name) = std::str::from_utf8(message).ok()?.split_once(' ')?;
    Some((LockName::parse(name).ok()?, LockToken::parse(token).ok()?))
}

fn renewed(answer: &Value) -> Result<Renewed> {
    match answer {
        Value::BulkString(text) if text.is_empty() => Ok(None),
        _ => {
            let [number, until] = reply::parts::<2>(answer)?;
            Ok(Some((fence(number)?, Millis(reply::integer(until)?))))
        }
    }
}

impl LockStore for RedisLocks {
    fn capabilities(&self) -> LockCapabilities {
        LockCapabilities { name: "redis", shared: true, fair: true, longest_ms: MAX_TTL_MS }
    }

    fn process(&self) -> Process {
        self.process
    }

    fn trouble(&self) -> Option<String> {
        self.connector.trouble().or_else(|| refuse_eviction(&self.connector).err().map(|e| e.to_string()))
    }

    fn acquire<'a>(&'a self, name: &'a LockName, asked: &'a Acquire) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            refuse_eviction(&self.connector)?;
            acquired(&self.connector.one(self.acquire_call(name, asked)).await?)
        })
    }

    fn release<'a>(&'a self, name: &'a LockName, token: &'a LockToken) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.give_up(name, token, None))
    }

    fn leave<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        ask: AskId,
        why: Leave,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.give_up(name, token, Some((ask, why))).await.map(drop) })
    }

    fn renew<'a>(&'a self, locks: &'a [Renewal]) -> BoxFuture<'a, Vec<Result<Renewed>>> {
        let call = |renewal: &Renewal| {
            let [holder, number, ..] = self.keys.lock(&renewal.name);
            let alone = if renewal.ask.is_none() { b"1".to_vec() } else { b"0".to_vec() };
            let arguments = vec![renewal.token.as_str().into(), decimal(renewal.ttl_ms), decimal(FENCE_MS), alone];
            Call::script(&scripts::LOCK_RENEW, vec![holder, number], arguments)
        };
        let calls: Vec<Call> = locks.iter().map(call).collect();
        Box::pin(async move {
            let answers = self.connector.run(calls).await;
            answers.into_iter().map(|answer| answer.and_then(|answer| renewed(&answer))).collect()
        })
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        Box::pin(async move {
            let [holder, _, line, ..] = self.keys.lock(name);
            let answer = self.connector.one(Call::script(&scripts::LOCK_LOOK, vec![holder, line], Vec::new())).await?;
            looked(&answer)
        })
    }

    fn replicated<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        wanted: usize,
        within: Duration,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(self.wait_for_replicas(name, token, wanted, within))
    }

    fn sign<'a>(&'a self, names: &'a [LockName]) -> BoxFuture<'a, Result<()>> {
        let mut parts = [false; LOCK_PARTS];
        for name in names {
            parts[Keys::lock_part(name)] = true;
        }
        let arguments = vec![hex(self.process).into_bytes(), decimal(ALIVE_MS), decimal(LINE_MS)];
        let call =
            |part: usize| Call::script(&scripts::LOCK_SIGN, vec![self.keys.locks_alive(part)], arguments.clone());
        let calls: Vec<Call> = (0..LOCK_PARTS).filter(|part| parts[*part]).map(call).collect();
        Box::pin(async move {
            for answer in self.connector.run(calls).await {
                answer?;
            }
            Ok(())
        })
    }

    fn woken(&self) -> BoxFuture<'_, Vec<(LockName, LockToken)>> {
        Box::pin(async move {
            let mut listener = self.listener.lock().await;
            let Some(listener) = listener.as_mut() else { return std::future::pending().await };
            let mut names = Vec::new();
            let mut heard = Some(listener.next().await);
            while let Some(one) = heard {
                match one {
                    Heard::Gap => return Vec::new(),
                    Heard::Message(bytes) => names.extend(handed(&bytes)),
                }
                heard = if names.len() < MAX_WOKEN { listener.try_next() } else { None };
            }
            names
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.policy.end();
            // Whoever listens has it until it hears something: then nobody needs to be told to stop.
            if let Ok(mut listener) = self.listener.try_lock() {
                drop(listener.take());
            }
        })
    }
}
