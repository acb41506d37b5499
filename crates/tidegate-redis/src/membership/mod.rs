//! Membership filters in Redis and Valkey: one string a bucket, all of a namespace in one slot of a Cluster, so that a
//! script sees the state and the bits at one moment.
//!
//! What a server calls itself is its replication id: a replica that takes a master's place has another, and so has a server
//! after a restart. Both may lack what was acknowledged a moment before. In a Cluster it is asked of the node that holds the
//! filter, in the same script that reads or writes it; a filter that is moved to another node is built anew there. A server without replicas takes another once an hour after the last
//! was seen, which costs a rebuild.
//!
//! Every key expires, and any of them may be evicted: a bucket is there as a whole or not at all.

use std::time::Duration;

use bytes::Bytes;
use redis::Value;
use tidegate_backend::membership::{Agreed, Bits, Change, Held, MAX_BITS_A_CALL, MAX_BUCKETS_A_CALL, MembershipStore};
use tidegate_backend::{BoxFuture, Error, ErrorKind, Result};
use tidegate_core::cache::membership::BUCKET_BYTES;

use crate::cache::RedisCache;
use crate::connect::{self, Call};
use crate::reply;
use crate::scripts;

/// How long an addition keeps the state, milliseconds: longer than any generation.
const STATE_KEPT_MS: i64 = 400 * 86_400_000;

fn millis(keep: Duration) -> Vec<u8> {
    let ms = i64::try_from(keep.as_millis()).unwrap_or(STATE_KEPT_MS).clamp(1, STATE_KEPT_MS);
    ms.to_string().into_bytes()
}

fn number(n: impl ToString) -> Vec<u8> {
    n.to_string().into_bytes()
}

fn check(count: usize, most: usize) -> Result<()> {
    if count > most {
        return Err(Error::new(ErrorKind::Command, format!("{count} at a time are more than the {most} of one call")));
    }
    Ok(())
}

fn agreed(answer: &Value) -> Result<Agreed> {
    match reply::list(answer)? {
        [kind] if reply::bytes(kind)? == b"H" => Ok(Agreed::Done),
        [kind, state] if reply::bytes(kind)? == b"C" => {
            Ok(Agreed::Changed(Bytes::copy_from_slice(reply::bytes(state)?)))
        }
        _ => Err(reply::strange(answer)),
    }
}

impl RedisCache {
    async fn members_found(&self, namespace: &str, generation: u64, buckets: &[u32]) -> Result<Held> {
        check(buckets.len(), MAX_BUCKETS_A_CALL)?;
        let keys = self.keys();
        let mut names = vec![keys.members_state(namespace), keys.members_count(namespace, generation)];
        names.extend(buckets.iter().map(|at| keys.members_bucket(namespace, generation, *at)));
        let answer = match self.connector().one(Call::script(&scripts::MEMBERSHIP_LOOK, names, Vec::new())).await {
            // Of no use until they have arrived; the server is well.
            Err(e) if connect::is_on_its_way(&e) => {
                let (state, home) = (Bytes::new(), Bytes::from_static(b"on its way"));
                return Ok(Held { state, home, added: 0, buckets: vec![None; buckets.len()] });
            }
            answer => answer?,
        };
        let [home, state, added, found @ ..] = reply::list(&answer)? else { return Err(reply::strange(&answer)) };
        if found.len() != buckets.len() {
            return Err(reply::strange(&answer));
        }
        let bucket = |value: &Value| match value {
            Value::BulkString(bytes) if bytes.len() == BUCKET_BYTES => Some(Bytes::copy_from_slice(bytes)),
            // Lost, or a stranger's.
            _ => None,
        };
        Ok(Held {
            state: Bytes::copy_from_slice(reply::bytes(state)?),
            home: Bytes::copy_from_slice(reply::bytes(home)?),
            added: reply::integer(added).ok().and_then(|added| u64::try_from(added).ok()).unwrap_or(0),
            buckets: found.iter().map(bucket).collect(),
        })
    }

    async fn members_added(&self, namespace: &str, state: &[u8], bits: &[Bits]) -> Result<Agreed> {
        check(bits.len(), MAX_BITS_A_CALL)?;
        let keys = self.keys();
        let mut names = vec![keys.members_state(namespace)];
        let mut arguments = vec![state.to_vec(), number(STATE_KEPT_MS), number(BUCKET_BYTES)];
        let mut place = |name: Vec<u8>| {
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            number(at + 1)
        };
        for group in bits {
            arguments.push(place(keys.members_bucket(namespace, group.generation, group.bucket)));
            arguments.push(place(keys.members_count(namespace, group.generation)));
            arguments.push(number(group.offsets.len()));
            arguments.extend(group.offsets.iter().map(number));
        }
        match self.connector().one(Call::script(&scripts::MEMBERSHIP_ADD, names, arguments)).await {
            Err(e) if e.kind() == ErrorKind::Corrupt || connect::is_on_its_way(&e) => {
                // Something of another type lies under our keys, or they are on their way to another node, which would not
                // be believed there. Without a state nobody is refused, and it is built anew: no write has to wait.
                self.connector().one(Call::plain("UNLINK", &keys.members_state(namespace), &[])).await?;
                Ok(Agreed::Changed(Bytes::new()))
            }
            answer => agreed(&answer?),
        }
    }
}

impl MembershipStore for RedisCache {
    fn look<'a>(&'a self, namespace: &'a str, generation: u64, buckets: &'a [u32]) -> BoxFuture<'a, Result<Held>> {
        Box::pin(self.members_found(namespace, generation, buckets))
    }

    fn add<'a>(&'a self, namespace: &'a str, state: &'a [u8], bits: &'a [Bits]) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(self.members_added(namespace, state, bits))
    }

    fn prepare<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
        keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check(buckets.len(), MAX_BUCKETS_A_CALL)?;
            let keys = self.keys();
            let mut names = vec![keys.members_count(namespace, generation)];
            names.extend(buckets.map(|at| keys.members_bucket(namespace, generation, at)));
            let arguments = vec![number(BUCKET_BYTES), millis(keep)];
            self.connector().one(Call::script(&scripts::MEMBERSHIP_PREPARE, names, arguments)).await.map(drop)
        })
    }

    fn merge<'a>(
        &'a self,
        namespace: &'a str,
        state: &'a [u8],
        generation: u64,
        buckets: &'a [(u32, Bytes)],
        added: Option<u64>,
    ) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(async move {
            check(buckets.len(), MAX_BUCKETS_A_CALL)?;
            let keys = self.keys();
            let mut names = vec![keys.members_state(namespace), keys.members_count(namespace, generation)];
            names.push(keys.members_room(namespace));
            let mut arguments = vec![state.to_vec(), added.map_or_else(Vec::new, number), number(BUCKET_BYTES)];
            for (at, bytes) in buckets {
                names.push(keys.members_bucket(namespace, generation, *at));
                arguments.push(bytes.to_vec());
            }
            agreed(&self.connector().one(Call::script(&scripts::MEMBERSHIP_MERGE, names, arguments)).await?)
        })
    }

    fn replace<'a>(&'a self, namespace: &'a str, change: Change<'a>) -> BoxFuture<'a, Result<Agreed>> {
        Box::pin(async move {
            let names = vec![self.keys().members_state(namespace), self.keys().members_lead(namespace)];
            let leader = if change.leader == 0 { Vec::new() } else { number(change.leader) };
            let (state, new) = (change.state.to_vec(), change.new.to_vec());
            let arguments = vec![state, new, millis(change.keep), leader, change.home.to_vec()];
            agreed(&self.connector().one(Call::script(&scripts::MEMBERSHIP_REPLACE, names, arguments)).await?)
        })
    }

    fn lead<'a>(&'a self, namespace: &'a str, leader: u64, keep: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let keep = if keep.is_zero() { b"0".to_vec() } else { millis(keep) };
            let arguments = vec![number(leader), keep];
            let names = vec![self.keys().members_lead(namespace)];
            let answer = self.connector().one(Call::script(&scripts::MEMBERSHIP_LEAD, names, arguments)).await?;
            Ok(reply::integer(&answer)? == 1)
        })
    }

    fn discard<'a>(
        &'a self,
        namespace: &'a str,
        generation: u64,
        buckets: std::ops::Range<u32>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            check(buckets.len(), MAX_BUCKETS_A_CALL)?;
            let names: Vec<_> = buckets.map(|at| self.keys().members_bucket(namespace, generation, at)).collect();
            let rest: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let count = self.keys().members_count(namespace, generation);
            self.connector().one(Call::plain("UNLINK", &count, &rest)).await.map(drop)
        })
    }
}
