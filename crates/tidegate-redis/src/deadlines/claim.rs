//! What is due, over all partitions.

use std::time::Duration;

use redis::Value;
use tidegate_backend::{Claim, Receipt, Result};
use tidegate_core::Millis;

use super::{Inner, wire};
use crate::connect::Call;
use crate::reply;
use crate::scripts::{self, Script};

/// One claimed order in this many is taken from the newest due.
const NEWEST_SHARE: usize = 8;
/// Claims of up to this many are made in exact order over all partitions, at the price of a look before. Larger ones take an
/// equal share of each partition: with that many due, the order within a few milliseconds matters to nobody.
const MAX_EXACT: usize = 32;

/// Score and member.
type Scored = (f64, Vec<u8>);

/// What a look at a partition shows.
#[derive(Debug)]
pub(super) struct Part {
    head: Option<Millis>,
    pub(super) members: usize,
    earliest: Vec<Scored>,
    newest: Vec<Scored>,
}

/// How many of the earliest and of the newest to take from a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Quota {
    earliest: usize,
    newest: usize,
}

struct Taken {
    score: f64,
    member: Vec<u8>,
    claim: Claim,
}

impl Inner {
    /// Claims up to `max`, in one round trip when `max` is large.
    pub(super) async fn claim(&self, now: Millis, max: usize, until: Millis) -> Result<Vec<Claim>> {
        let quotas = if max <= MAX_EXACT && self.partitions > 1 {
            let newest = max / NEWEST_SHARE;
            let parts = self.peek(now, max - newest, newest).await?;
            exact(&parts, max - newest, newest)
        } else {
            shares(max, self.partitions)
        };
        if quotas.iter().all(|quota| *quota == Quota::default()) {
            return Ok(Vec::new());
        }
        let arguments = vec![wire::due_until(now), wire::not_before(until), self.node.to_vec()];
        let number = |n: usize| n.to_string().into_bytes();
        let quota = |at: usize| vec![number(quotas[at].earliest), number(quotas[at].newest)];
        let (mut earliest, mut newest) = (Vec::new(), Vec::new());
        // In a Cluster one partition may fail while others answer: what was claimed is handed out.
        let mut failed = None;
        for answer in self.connector.run(self.over_partitions(&scripts::CLAIM, &arguments, quota)).await {
            let parts = answer.and_then(|answer| {
                let (server, parts) = split(&answer)?;
                for part in parts {
                    let [mark, _, early, late] = reply::parts::<4>(part)?;
                    self.rebuild.saw(reply::bytes(mark)? == server);
                    taken(early, &mut earliest)?;
                    taken(late, &mut newest)?;
                }
                Ok(())
            });
            failed = failed.or(parts.err());
        }
        if !earliest.is_empty() || !newest.is_empty() {
            self.holds_leases(Duration::from_millis(until.since(now).unsigned_abs())).await;
        }
        if let Some(e) = failed
            && earliest.is_empty()
            && newest.is_empty()
        {
            return Err(e);
        }
        let order = |a: &Taken, b: &Taken| a.score.total_cmp(&b.score).then_with(|| a.member.cmp(&b.member));
        earliest.sort_by(order);
        newest.sort_by(|a, b| order(b, a));
        Ok(earliest.into_iter().chain(newest).map(|taken| taken.claim).collect())
    }

    /// The earliest instant at which something is claimable.
    pub(super) async fn next_at(&self) -> Result<Option<Millis>> {
        self.wake.look();
        let parts = self.peek(Millis(i64::MIN), 0, 0).await?;
        let head = parts.iter().fold(None, |head, part| sooner(head, part.head));
        self.wake.found(head);
        Ok(head)
    }

    /// Looks at all partitions in one round trip.
    pub(super) async fn peek(&self, now: Millis, earliest: usize, newest: usize) -> Result<Vec<Part>> {
        let number = |n: usize| n.to_string().into_bytes();
        let arguments = vec![wire::due_until(now), number(earliest), number(newest)];
        let mut found = Vec::with_capacity(self.partitions);
        for answer in self.all(self.over_partitions(&scripts::PEEK, &arguments, |_| Vec::new())).await? {
            let (server, parts) = split(&answer)?;
            for part in parts {
                let [mark, head, members, earliest, newest] = reply::parts::<5>(part)?;
                self.rebuild.saw(reply::bytes(mark)? == server);
                found.push(Part {
                    head: reply::score(head)?.map(wire::instant),
                    members: usize::try_from(reply::integer(members)?).unwrap_or(0),
                    earliest: scored(earliest)?,
                    newest: scored(newest)?,
                });
            }
        }
        Ok(found)
    }

    /// One call for all partitions, or one for each where keys may not be mixed.
    fn over_partitions(
        &self,
        script: &'static Script,
        arguments: &[Vec<u8>],
        each: impl Fn(usize) -> Vec<Vec<u8>>,
    ) -> Vec<Call> {
        let step = if self.connector.is_cluster() { 1 } else { self.partitions };
        let calls = (0..self.partitions).step_by(step).map(|from| {
            let some = from..self.partitions.min(from + step);
            let keys = some.clone().flat_map(|at| self.keys.partition(at)).collect();
            Call::script(script, keys, arguments.iter().cloned().chain(some.flat_map(&each)).collect())
        });
        calls.collect()
    }
}

fn sooner(a: Option<Millis>, b: Option<Millis>) -> Option<Millis> {
    a.into_iter().chain(b).min()
}

/// The server's run id, and the rest of an answer.
fn split(answer: &Value) -> Result<(&[u8], &[Value])> {
    let (server, parts) = reply::list(answer)?.split_first().ok_or_else(|| reply::strange(answer))?;
    Ok((reply::bytes(server)?, parts))
}

fn scored(value: &Value) -> Result<Vec<Scored>> {
    let pairs = reply::list(value)?.chunks_exact(2).map(|pair| {
        let score = reply::score(&pair[1])?.ok_or_else(|| reply::strange(&pair[1]))?;
        Ok((score, reply::bytes(&pair[0])?.to_vec()))
    });
    pairs.collect()
}

fn taken(value: &Value, into: &mut Vec<Taken>) -> Result<()> {
    for part in reply::list(value)?.chunks_exact(4) {
        let member = reply::bytes(&part[0])?;
        let (order, due_at) = wire::from_member(member).ok_or_else(|| reply::strange(&part[0]))?;
        let attempt = u32::try_from(reply::integer(&part[1])?).unwrap_or(u32::MAX);
        let receipt = Receipt(reply::integer(&part[2])?.unsigned_abs());
        let score = reply::score(&part[3])?.ok_or_else(|| reply::strange(&part[3]))?;
        into.push(Taken { score, member: member.to_vec(), claim: Claim { order, due_at, attempt, receipt } });
    }
    Ok(())
}

/// Exactly the earliest and the newest of all that the look has shown.
fn exact(parts: &[Part], earliest: usize, newest: usize) -> Vec<Quota> {
    let mut quotas = vec![Quota::default(); parts.len()];
    let all = |pick: fn(&Part) -> &Vec<Scored>| {
        let mut all: Vec<(f64, &[u8], usize)> = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            all.extend(pick(part).iter().map(|(score, member)| (*score, member.as_slice(), at)));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
        all
    };
    let mut early = all(|part| &part.earliest);
    early.truncate(earliest);
    early.iter().for_each(|(_, _, at)| quotas[*at].earliest += 1);
    let late = all(|part| &part.newest);
    let left = late.iter().rev().filter(|(_, member, _)| !early.iter().any(|(_, taken, _)| taken == member));
    left.take(newest).for_each(|(_, _, at)| quotas[*at].newest += 1);
    quotas
}

/// An equal share for each partition.
fn shares(max: usize, partitions: usize) -> Vec<Quota> {
    let share = |at: usize| max / partitions + usize::from(at < max % partitions);
    (0..partitions)
        .map(|at| {
            let newest = share(at) / NEWEST_SHARE;
            Quota { earliest: share(at) - newest, newest }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (max, partitions) in [(512, 16), (100, 16), (33, 32), (7, 1)] {
            let quotas = shares(max, partitions);
            assert_eq!(quotas.iter().map(|q| q.earliest + q.newest).sum::<usize>(), max);
        }
        assert_eq!(shares(16, 1), [Quota { earliest: 14, newest: 2 }]);
    }
}
