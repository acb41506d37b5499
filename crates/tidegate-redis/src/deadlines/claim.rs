//! What is due, over all partitions.

use std::time::Duration;

use redis::Value;
use tidegate_backend::{Claim, ErrorKind, Receipt, Result};
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
#[derive(Debug, Default)]
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
            shares(max, &self.outs.usable(self.partitions), self.partitions)
        };
        if quotas.iter().all(|quota| *quota == Quota::default()) {
            return Ok(Vec::new());
        }
        let arguments = vec![wire::due_until(now), wire::not_before(until), self.node.to_vec()];
        let number = |n: usize| n.to_string().into_bytes();
        let quota = |at: usize| vec![number(quotas[at].earliest), number(quotas[at].newest)];
        let (mut earliest, mut newest) = (Vec::new(), Vec::new());
        // What was claimed is handed out, whatever else is wrong.
        let mut failed = None;
        for (_, part) in self.over_partitions(&scripts::CLAIM, &arguments, quota).await? {
            let parts = reply::parts::<4>(&part).and_then(|[_, _, early, late]| {
                taken(early, &mut earliest)?;
                taken(late, &mut newest)
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

    /// Looks at all partitions in one round trip; one that is out looks empty.
    pub(super) async fn peek(&self, now: Millis, earliest: usize, newest: usize) -> Result<Vec<Part>> {
        let number = |n: usize| n.to_string().into_bytes();
        let arguments = vec![wire::due_until(now), number(earliest), number(newest)];
        let mut found: Vec<Part> = Vec::with_capacity(self.partitions);
        found.resize_with(self.partitions, Part::default);
        for (at, part) in self.over_partitions(&scripts::PEEK, &arguments, |_| Vec::new()).await? {
            let [_, head, members, earliest, newest] = reply::parts::<5>(&part)?;
            found[at] = Part {
                head: reply::score(head)?.map(wire::instant),
                members: usize::try_from(reply::integer(members)?).unwrap_or(0),
                earliest: scored(earliest)?,
                newest: scored(newest)?,
            };
        }
        Ok(found)
    }

    /// Runs a script over all partitions that can be used; what each answered. In one call, or one for each where keys may
    /// not be mixed.
    pub(super) async fn over_partitions(
        &self,
        script: &'static Script,
        arguments: &[Vec<u8>],
        each: impl Fn(usize) -> Vec<Vec<u8>>,
    ) -> Result<Vec<(usize, Value)>> {
        let call = |some: &[usize]| {
            let keys = some.iter().flat_map(|at| self.keys.partition(*at)).collect();
            Call::script(script, keys, arguments.iter().cloned().chain(some.iter().flat_map(|at| each(*at))).collect())
        };
        let usable = self.outs.usable(self.partitions);
        let mut told = Vec::with_capacity(usable.len());
        if !self.connector.is_cluster() {
            match self.connector.one(call(&usable)).await {
                // Something in one of them, and nothing was done: each by itself.
                Err(e) if e.kind() == ErrorKind::Corrupt => {}
                answer => {
                    self.split(answer?, &usable, &mut told)?;
                    return Ok(told);
                }
            }
        }
        let calls = usable.iter().map(|at| (*at, call(&[*at]))).collect();
        for (at, answer) in usable.iter().zip(self.each(calls).await?) {
            if let Some(answer) = answer {
                self.split(answer, &[*at], &mut told)?;
            }
        }
        Ok(told)
    }

    /// The parts of an answer, once what their marks say is noted.
    pub(super) fn split(&self, answer: Value, some: &[usize], into: &mut Vec<(usize, Value)>) -> Result<()> {
        reply::parts::<1>(&answer)?;
        let Value::Array(values) = answer else { return Err(reply::strange(&answer)) };
        let mut values = values.into_iter();
        let server = values.next().unwrap_or(Value::Nil);
        for (at, part) in some.iter().zip(values) {
            let [mark] = reply::parts::<1>(&part)?;
            self.rebuild.saw(reply::bytes(mark)? == reply::bytes(&server)?);
            into.push((*at, part));
        }
        Ok(())
    }
}

fn sooner(a: Option<Millis>, b: Option<Millis>) -> Option<Millis> {
    a.into_iter().chain(b).min()
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

/// An equal share for each of `usable`, of all `partitions`.
fn shares(max: usize, usable: &[usize], partitions: usize) -> Vec<Quota> {
    let mut quotas = vec![Quota::default(); partitions];
    for (nth, at) in usable.iter().enumerate() {
        let share = max / usable.len() + usize::from(nth < max % usable.len());
        let newest = share / NEWEST_SHARE;
        quotas[*at] = Quota { earliest: share - newest, newest };
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (max, partitions) in [(512, 16), (100, 16), (33, 32), (7, 1)] {
            let quotas = shares(max, &(0..partitions).collect::<Vec<_>>(), partitions);
            assert_eq!(quotas.iter().map(|q| q.earliest + q.newest).sum::<usize>(), max);
        }
        assert_eq!(shares(16, &[1], 2), [Quota::default(), Quota { earliest: 14, newest: 2 }]);
        assert_eq!(shares(16, &[], 1), [Quota::default()]);
    }
}
