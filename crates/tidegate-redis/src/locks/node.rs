//! One Redis of several that vote on locks.

use tidegate_backend::lock::{Kept, LockNode, Mend, Vote};
use tidegate_backend::{BoxFuture, Error, ErrorKind, Renewal, Result};
use tidegate_core::lock::rules::MAX_CALLS;
use tidegate_core::lock::{Acquire, Acquired, AskId, Leave, LockName, LockToken, Look};

use super::policy::{refuse_eviction, watching};
use super::{FENCE_MS, call, decimal, fence, granted, left_by};
use crate::connect::{Call, Connector};
use crate::keys::Keys;
use crate::reply;
use crate::scripts;
use crate::tasks::Tasks;

/// A Redis or Valkey that votes on locks: a server alone, or a master that sentinels name. The servers of one quorum share
/// nothing: no replication between them, no machine, no disk.
///
/// It notes in a key when it began to remember. After a flush, a start or a failover it votes, but does not count, for the
/// longest time of a lock.
pub struct RedisNode {
    connector: Connector,
    keys: Keys,
    /// Ends with it.
    _policy: Tasks,
}

impl RedisNode {
    /// A node under the name of `connector`'s options. One that cannot be reached is no error: calls fail until it can.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: a Cluster is one store, not several that vote.
    pub fn open(connector: Connector) -> Result<Self> {
        if connector.is_cluster() {
            let why = "a Cluster cannot be one server of a quorum; name servers that stand alone (redis://.., or redis-sentinel://..)";
            return Err(Error::new(ErrorKind::Configuration, why));
        }
        let keys = Keys::new(&connector.options().name);
        let policy = watching(connector.clone());
        Ok(Self { connector, keys, _policy: policy })
    }
}

fn vote(answer: &redis::Value) -> Result<Vote> {
    let parts = reply::list(answer)?;
    match parts {
        [kind, number, until, barred, again] if reply::bytes(kind)? == b"G" => {
            Ok(Vote { acquired: granted(number, until, again)?, barred_ms: reply::integer(barred)? })
        }
        [kind] if reply::bytes(kind)? == b"S" => Ok(Vote { acquired: Acquired::Spent, barred_ms: 0 }),
        [kind, left, barred] if reply::bytes(kind)? == b"H" => Ok(Vote {
            acquired: Acquired::Held { for_ms: reply::integer(left)?, before: None, joined: false },
            barred_ms: reply::integer(barred)?,
        }),
        [kind, longest] if reply::bytes(kind)? == b"M" => {
            let longest = reply::integer(longest)?;
            let why = format!(
                "another process of this quorum takes locks for up to {longest} ms, this one says otherwise: give all the same \
                 longest time. To change it, stop them all and delete the key {{tg:..:lq}}:born on every server"
            );
            Err(Error::new(ErrorKind::Configuration, why))
        }
        _ => Err(reply::strange(answer)),
    }
}

fn kept(answer: &redis::Value) -> Result<Kept> {
    let parts = reply::list(answer)?;
    let Some(kind) = parts.first() else { return Err(reply::strange(answer)) };
    match (reply::bytes(kind)?, parts.get(1)) {
        (b"K", Some(number)) => Ok(Kept::Ours(fence(number)?)),
        (b"R", _) => Ok(Kept::Mended),
        (b"N", _) => Ok(Kept::Absent),
        (b"A", _) => Ok(Kept::Anothers),
        _ => Err(reply::strange(answer)),
    }
}

impl LockNode for RedisNode {
    fn name(&self) -> String {
        self.connector.options().address()
    }

    fn trouble(&self) -> Option<String> {
        self.connector.trouble().or_else(|| refuse_eviction(&self.connector).err().map(|e| e.to_string()))
    }

    fn vote<'a>(&'a self, name: &'a LockName, asked: &'a Acquire, longest_ms: i64) -> BoxFuture<'a, Result<Vote>> {
        Box::pin(async move {
            refuse_eviction(&self.connector)?;
            let arguments = vec![
                asked.token.as_str().into(),
                decimal(asked.ttl_ms),
                asked.floor.map_or_else(Vec::new, |floor| floor.0.to_string().into_bytes()),
                decimal(longest_ms),
                decimal(FENCE_MS),
                call(asked.ask),
                MAX_CALLS.to_string().into_bytes(),
            ];
            let question = Call::script(&scripts::LOCK_VOTE, self.keys.voted_lock(name).to_vec(), arguments);
            vote(&self.connector.one(question).await?)
        })
    }

    fn keep<'a>(&'a self, locks: &'a [Renewal], mend: Mend) -> BoxFuture<'a, Vec<Result<Kept>>> {
        let mend: &[u8] = match mend {
            Mend::Never => b"0",
            Mend::Unless => b"1",
            Mend::Surely => b"2",
        };
        let question = |renewal: &Renewal| {
            let [holder, number, _] = self.keys.voted_lock(&renewal.name);
            let arguments = vec![
                renewal.token.as_str().into(),
                decimal(renewal.ttl_ms),
                renewal.fence.map_or_else(Vec::new, |fence| fence.0.to_string().into_bytes()),
                decimal(FENCE_MS),
                mend.to_vec(),
                renewal.ask.map_or_else(Vec::new, call),
            ];
            Call::script(&scripts::LOCK_KEEP, vec![holder, number], arguments)
        };
        let calls: Vec<Call> = locks.iter().map(question).collect();
        Box::pin(async move {
            let answers = self.connector.run(calls).await;
            answers.into_iter().map(|answer| answer.and_then(|answer| kept(&answer))).collect()
        })
    }

    fn give_back<'a>(
        &'a self,
        name: &'a LockName,
        token: &'a LockToken,
        only: Option<(AskId, Leave)>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let [holder, ..] = self.keys.voted_lock(name);
            let [ask, why] = left_by(only);
            let question = Call::script(&scripts::LOCK_GIVE_BACK, vec![holder], vec![token.as_str().into(), ask, why]);
            Ok(reply::integer(&self.connector.one(question).await?)? == 1)
        })
    }

    fn look<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Look>> {
        Box::pin(async move {
            let [holder, ..] = self.keys.voted_lock(name);
            // Nobody waits at one server: its line is a key that nobody writes.
            let line = [holder.as_slice(), b":line"].concat();
            super::looked(&self.connector.one(Call::script(&scripts::LOCK_LOOK, vec![holder, line], Vec::new())).await?)
        })
    }

    fn beat(&self, longest_ms: i64) -> BoxFuture<'_, Result<i64>> {
        Box::pin(async move {
            let call = Call::script(&scripts::LOCK_BORN, vec![self.keys.born()], vec![decimal(longest_ms)]);
            reply::integer(&self.connector.one(call).await?)
        })
    }
}
