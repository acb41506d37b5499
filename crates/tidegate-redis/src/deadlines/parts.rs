//! Partitions that cannot be used while others can: one master of a Cluster is gone, a slot stays half moved, a key holds
//! something else. Nobody waits for them: claims and looks leave them out, what was to be told to them is set aside, and the
//! owner acts on their deadlines from the ledger ([`tidegate_backend::DeadlineQueue::fails`]).
//!
//! A partition is out from its first failure until it has worked for [`HOLD`], tried by a task of its own with calls of every
//! kind that it must serve, so that half a repair does not bring it back.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};
use tidegate_core::{Millis, OrderNo};
use tokio::sync::Notify;

use super::buffer::{Change, MAX_WAITING};
use super::{Inner, wire};
use crate::connect::Call;
use crate::scripts;

/// How long a partition must have worked before it is used again.
const HOLD: Duration = Duration::from_secs(2);
/// Between two tries of those that are out.
const TRY_EVERY: Duration = Duration::from_millis(500);
/// Before the log tells of it: what fails together is told together.
const GATHER: Duration = Duration::from_millis(100);

/// A partition that cannot be used.
#[derive(Debug)]
struct Out {
    /// The latest failure.
    failed: Instant,
    why: String,
    /// What it will be told. Only the newest change of a deadline counts.
    aside: BTreeMap<(Millis, OrderNo), Change>,
    /// What found no room there.
    lost: usize,
}

/// Which partitions are out.
#[derive(Debug, Default)]
pub(super) struct Outs {
    any: AtomicBool,
    out: Mutex<BTreeMap<usize, Out>>,
    /// One is out that was not.
    new: Notify,
}

impl Outs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Out>> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(super) fn has(&self, partition: usize) -> bool {
        self.any() && self.lock().contains_key(&partition)
    }

    /// Those of `0..partitions` that can be used.
    pub(super) fn usable(&self, partitions: usize) -> Vec<usize> {
        if !self.any() {
            return (0..partitions).collect();
        }
        let out = self.lock();
        (0..partitions).filter(|partition| !out.contains_key(partition)).collect()
    }

    /// A call of `partition` failed.
    pub(super) fn failed(&self, partition: usize, why: &Error) {
        let mut out = self.lock();
        let now = Instant::now();
        if let Some(known) = out.get_mut(&partition) {
            (known.failed, known.why) = (now, why.to_string());
            return;
        }
        out.insert(partition, Out { failed: now, why: why.to_string(), aside: BTreeMap::new(), lost: 0 });
        self.any.store(true, Ordering::Release);
        self.new.notify_one();
    }

    /// Keeps a change for later, if its partition is out.
    fn set_aside(&self, partition: usize, deadline: (Millis, OrderNo), change: Change) -> bool {
        let mut out = self.lock();
        let waiting: usize = out.values().map(|out| out.aside.len()).sum();
        let Some(out) = out.get_mut(&partition) else { return false };
        if waiting < MAX_WAITING || out.aside.contains_key(&deadline) {
            out.aside.insert(deadline, change);
        } else if change == Change::Add {
            out.lost += 1;
        }
        true
    }

    /// `partition` served a try of every kind: gives what it is to be told, when that was so for long enough.
    fn worked(&self, partition: usize) -> Option<Out> {
        let mut out = self.lock();
        if out.get(&partition)?.failed.elapsed() < HOLD {
            return None;
        }
        let back = out.remove(&partition);
        self.any.store(!out.is_empty(), Ordering::Release);
        back
    }

    fn list(&self) -> Vec<usize> {
        self.lock().keys().copied().collect()
    }

    /// How many are out, the first of them, and why it is.
    pub(super) fn told(&self) -> Option<(usize, usize, String)> {
        if !self.any() {
            return None;
        }
        let out = self.lock();
        out.iter().next().map(|(partition, first)| (out.len(), *partition, first.why.clone()))
    }
}

impl Inner {
    /// Whether a failure is that of the partition alone: in a Cluster others may lie elsewhere; on a single server only
    /// what a key holds differs.
    fn is_of_one(&self, e: &Error) -> bool {
        let elsewhere = self.connector.is_cluster() && self.connector.is_connected();
        elsewhere || e.kind() == ErrorKind::Corrupt
    }

    /// Notes that a call of `partition` failed; gives the error back if it is not the partition's alone.
    pub(super) fn note_failure(&self, partition: usize, e: Error) -> Result<()> {
        if !self.is_of_one(&e) {
            return Err(e);
        }
        tracing::debug!(partition, error = %e, "a partition of the deadline index failed");
        self.outs.failed(partition, &e);
        Ok(())
    }

    /// Runs calls of partitions. `None`: its partition is out, now or before.
    pub(super) async fn each(&self, calls: Vec<(usize, Call)>) -> Result<Vec<Option<Value>>> {
        let mut answers: Vec<Option<Value>> = Vec::new();
        answers.resize_with(calls.len(), || None);
        let (which, calls): (Vec<_>, Vec<_>) = calls
            .into_iter()
            .enumerate()
            .filter(|(_, (partition, _))| !self.outs.has(*partition))
            .map(|(at, (partition, call))| ((at, partition), call))
            .unzip();
        for ((at, partition), answer) in which.into_iter().zip(self.connector.run(calls).await) {
            match answer {
                Ok(answer) => answers[at] = Some(answer),
                Err(e) => self.note_failure(partition, e)?,
            }
        }
        Ok(answers)
    }

    /// Keeps those changes for later whose partition is out; gives the others.
    pub(super) fn set_aside(&self, changes: Vec<((Millis, OrderNo), Change)>) -> Vec<((Millis, OrderNo), Change)> {
        if self.outs.told().is_none() {
            return changes;
        }
        let stays = |((at, order), change): &((Millis, OrderNo), Change)| {
            !self.outs.set_aside(self.partition_of(*order), (*at, *order), *change)
        };
        changes.into_iter().filter(stays).collect()
    }

    /// Why partitions cannot be used, as long as some are out.
    pub(super) fn parts_trouble(&self) -> Option<String> {
        let (count, first, why) = self.outs.told()?;
        let keys = String::from_utf8_lossy(&self.keys.partition(first)[0]).into_owned();
        let which = format!("{count} of {} partitions of the deadline index", self.partitions);
        Some(format!("{which} cannot be used, such as that of the key {keys}: {why}"))
    }

    /// Tries a partition with calls of every kind that it must serve: all its keys, two of them, a write.
    fn tries(&self, partition: usize) -> [Call; 3] {
        let keys = self.keys.partition(partition);
        let (none, nobody) = (b"0".to_vec(), wire::member(OrderNo(i64::MIN), Millis(i64::MIN)));
        let claim = vec![wire::due_until(Millis(i64::MIN)), none.clone(), self.node.to_vec(), none.clone(), none];
        [
            Call::script(&scripts::CLAIM, keys.to_vec(), claim),
            Call::script(&scripts::CONTAINS, keys[..2].to_vec(), vec![nobody]),
            Call::probe(&keys[0]),
        ]
    }

    /// One try of all that are out.
    async fn try_those_out(&self) {
        let out = self.outs.list();
        let calls: Vec<Call> = out.iter().flat_map(|partition| self.tries(*partition)).collect();
        let per_partition = calls.len() / out.len().max(1);
        let mut answers = self.connector.run(calls).await.into_iter();
        for partition in out {
            let failure = answers.by_ref().take(per_partition).fold(None, |failure, answer| failure.or(answer.err()));
            if let Some(e) = failure {
                self.outs.failed(partition, &e);
            } else if let Some(back) = self.outs.worked(partition) {
                self.comes_back(back);
            }
        }
    }

    fn comes_back(&self, out: Out) {
        let lost = out.lost + self.buffer.put_back(out.aside);
        if lost > 0 {
            self.rebuild.lost(lost);
        }
        self.wake.earlier();
    }
}

/// Tries what is out until it is aborted.
pub(super) async fn run(inner: Arc<Inner>) {
    loop {
        inner.outs.new.notified().await;
        tokio::time::sleep(GATHER).await;
        let Some(why) = inner.parts_trouble() else { continue };
        let begun = Instant::now();
        tracing::warn!(why, "deadlines of some partitions are acted on from the ledger");
        while inner.outs.any() {
            inner.try_those_out().await;
            tokio::time::sleep(TRY_EVERY).await;
        }
        let seconds = begun.elapsed().as_secs_f64();
        tracing::info!(seconds, "every partition of the deadline index can be used again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_takes_a_partition_out_and_only_a_while_of_work_brings_it_back() {
        let outs = Outs::default();
        let deadline = |order| (Millis(1), OrderNo(order));
        assert!(!outs.set_aside(1, deadline(1), Change::Add), "it is not out");
        outs.failed(1, &Error::new(ErrorKind::Corrupt, "why"));
        assert_eq!((outs.has(0), outs.has(1), outs.usable(3)), (false, true, vec![0, 2]));
        assert_eq!(outs.told(), Some((1, 1, "why".to_owned())));
        assert!(outs.set_aside(1, deadline(1), Change::Add) && outs.set_aside(1, deadline(1), Change::Remove));
        assert!(outs.worked(1).is_none(), "it failed a moment ago");
        outs.lock().get_mut(&1).expect("it is out").failed -= HOLD;
        let back = outs.worked(1).expect("it has worked for a while");
        assert_eq!(back.aside.into_iter().collect::<Vec<_>>(), [(deadline(1), Change::Remove)]);
        assert_eq!((outs.told(), outs.usable(2)), (None, vec![0, 1]));
    }

    #[test]
    fn what_is_set_aside_is_bounded() {
        let outs = Outs::default();
        outs.failed(0, &Error::new(ErrorKind::Corrupt, "why"));
        outs.failed(1, &Error::new(ErrorKind::Corrupt, "why"));
        let mut out = outs.lock();
        let full = (0..MAX_WAITING as i64).map(|n| ((Millis(n), OrderNo(n)), Change::Add)).collect();
        out.get_mut(&0).expect("it is out").aside = full;
        drop(out);
        assert!(outs.set_aside(1, (Millis(1), OrderNo(1)), Change::Add));
        assert!(outs.set_aside(1, (Millis(1), OrderNo(1)), Change::Remove));
        let out = outs.lock();
        assert_eq!((out[&1].lost, out[&1].aside.len()), (1, 0));
    }
}
