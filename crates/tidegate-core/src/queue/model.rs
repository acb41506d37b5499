//! A whole queue in memory: the meaning of every operation.

use std::collections::BTreeSet;
use std::ops::Bound;

use bytes::Bytes;

use super::name::TaskId;
use super::rules::{
    MAX_BATCH, MAX_BATCH_BYTES, batch_with_lapsed, is_suspect, newest_of, next_receipt, replaces, retry_delay_ms,
};
use super::task::{Claimed, Receipt, Schedule, Scheduled, Settle, Settled, Stats, Task, TaskState, Verdict};
use crate::{Map, Millis};

/// A place in an order of tasks: the instant, then the id.
pub type Place = (Millis, TaskId);

#[derive(Debug, Clone)]
struct Stored {
    state: TaskState,
    due_at: Millis,
    visible_at: Millis,
    payload: Bytes,
    attempt: u32,
    receipt: Receipt,
    last_error: Option<String>,
    dead_at: Option<Millis>,
}

/// A queue. Every method is one step; `now` is the store's clock and never goes back.
#[derive(Debug, Clone)]
pub struct Queue {
    tasks: Map<TaskId, Stored>,
    /// Pending and leased ones by the instant they can be handed out next.
    live: BTreeSet<Place>,
    /// Those of `live` that are leased.
    leases: BTreeSet<Place>,
    /// Dead ones by the instant they died.
    dead: BTreeSet<Place>,
    max_attempts: u32,
    last_receipt: u64,
}

impl Queue {
    /// An empty queue whose tasks have `max_attempts` (1 or more) attempts.
    #[must_use]
    pub fn new(max_attempts: u32) -> Self {
        Self {
            tasks: Map::default(),
            live: BTreeSet::new(),
            leases: BTreeSet::new(),
            dead: BTreeSet::new(),
            max_attempts: max_attempts.max(1),
            last_receipt: 0,
        }
    }

    /// Adds a task, or changes the one with its id as the condition allows: then the new `due_at` and payload count from the
    /// start again, whoever holds it has lost it, and a dead one lives again.
    pub fn schedule(&mut self, now: Millis, asked: &Schedule) -> Scheduled {
        let due_at = asked.due.at(now);
        let old = self.tasks.get(&asked.id).map(|task| task.due_at);
        if old.is_some_and(|old| !replaces(asked.condition, old, due_at)) {
            let task = self.get(now, &asked.id).expect("it was just there");
            return Scheduled { new: false, scheduled: false, task };
        }
        self.put(&asked.id, Stored::fresh(due_at, asked.payload.clone()));
        let task = self.get(now, &asked.id).expect("it was just put");
        Scheduled { new: old.is_none(), scheduled: true, task }
    }

    /// Removes a task in any state; whether it was there.
    pub fn cancel(&mut self, id: &TaskId) -> bool {
        self.take(id).is_some()
    }

    /// Hands out up to `max` (at most [`MAX_BATCH`]) tasks that are due, mostly the earliest, some of the newest. A task whose
    /// lease ran out after its last attempt dies instead. An answer that is short does not mean that nothing is due:
    /// [`Queue::next_at`] says so. `now_us`: the clock in microseconds.
    pub fn claim(&mut self, now: Millis, now_us: u64, max: usize, lease_ms: i64) -> Vec<Claimed> {
        let max = max.min(MAX_BATCH);
        let mut claimed: Vec<Claimed> = Vec::new();
        let (mut limit, mut bytes) = (max, 0);
        for id in self.candidates(now, max) {
            let task = &self.tasks[&id];
            let lapsed = task.state == TaskState::Leased;
            if lapsed && task.attempt >= self.max_attempts {
                self.bury(now, &id, Some(lapsed_error(self.max_attempts)));
                continue;
            }
            let allowed = if lapsed { batch_with_lapsed(max, task.attempt, self.max_attempts) } else { max };
            if claimed.len() >= limit.min(allowed) {
                continue;
            }
            if !claimed.is_empty() && bytes + task.payload.len() > MAX_BATCH_BYTES {
                break;
            }
            limit = limit.min(allowed);
            bytes += task.payload.len();
            claimed.push(self.lease(&id, now.plus(lease_ms), now_us));
        }
        claimed
    }

    /// Whoever is earliest due of up to `max`, and of a pile an eighth from its other end, the newest first.
    fn candidates(&self, now: Millis, max: usize) -> Vec<TaskId> {
        let due = || self.live.range::<Place, _>(..first_after(now));
        let newest = if due().nth(max).is_some() { newest_of(max) } else { 0 };
        let earliest = due().take(max - newest);
        let others = due().rev().take(newest);
        earliest.chain(others).map(|(_, id)| id.clone()).collect()
    }

    fn lease(&mut self, id: &TaskId, until: Millis, now_us: u64) -> Claimed {
        let mut task = self.take(id).expect("a candidate is there");
        self.last_receipt = next_receipt(self.last_receipt, now_us);
        let visible_at = task.visible_at;
        let suspect = is_suspect(task.state == TaskState::Leased, task.attempt, self.max_attempts);
        task.state = TaskState::Leased;
        task.attempt += 1;
        task.visible_at = until;
        task.receipt = Receipt(self.last_receipt);
        let claimed = Claimed {
            id: id.clone(),
            due_at: task.due_at,
            visible_at,
            payload: task.payload.clone(),
            attempt: task.attempt,
            receipt: task.receipt,
            lease_until: until,
            suspect,
        };
        self.put(id, task);
        claimed
    }

    /// Does what the holder of a task says, if it still holds it: also after its lease ran out, until somebody else has it.
    pub fn settle(&mut self, now: Millis, asked: &Settle) -> Settled {
        let held = |task: &&Stored| task.state == TaskState::Leased && task.receipt == asked.receipt;
        let Some(task) = self.tasks.get(&asked.id).filter(held) else { return Settled::Lost };
        if let Verdict::Retry { error, .. } = &asked.verdict
            && task.attempt >= self.max_attempts
        {
            self.bury(now, &asked.id, error.clone());
            return Settled::Dead;
        }
        let mut task = self.take(&asked.id).expect("it was just there");
        match &asked.verdict {
            Verdict::Ack => return Settled::Done,
            Verdict::Extend(lease_ms) => task.visible_at = now.plus(*lease_ms),
            Verdict::Release => {
                task.state = TaskState::Pending;
                task.attempt -= 1;
                task.visible_at = task.due_at;
            }
            Verdict::Retry { delay_ms, spread, error } => {
                let delay = delay_ms.unwrap_or_else(|| retry_delay_ms(task.attempt, *spread));
                task.state = TaskState::Pending;
                task.visible_at = now.plus(delay).min(Millis::MAX);
                task.last_error.clone_from(error);
            }
        }
        self.put(&asked.id, task);
        Settled::Done
    }

    /// Gives a dead task a new life, due in `delay_ms`; `None` if no dead task has this id.
    pub fn requeue(&mut self, now: Millis, id: &TaskId, delay_ms: i64) -> Option<Task> {
        let payload = self.tasks.get(id).filter(|task| task.state == TaskState::Dead)?.payload.clone();
        self.put(id, Stored::fresh(now.plus(delay_ms).min(Millis::MAX), payload));
        self.get(now, id)
    }

    /// Removes up to `max` dead tasks, the oldest first, of those that died before `before`; how many, and whether there
    /// are more.
    pub fn purge(&mut self, before: Option<Millis>, max: usize) -> (usize, bool) {
        let old = |(at, _): &&Place| before.is_none_or(|before| *at < before);
        let mut ids: Vec<TaskId> =
            self.dead.iter().take_while(old).take(max.saturating_add(1)).map(|(_, id)| id.clone()).collect();
        let more = ids.len() > max;
        ids.truncate(max);
        for id in &ids {
            self.take(id);
        }
        (ids.len(), more)
    }

    /// A task as it stands.
    #[must_use]
    pub fn get(&self, now: Millis, id: &TaskId) -> Option<Task> {
        self.tasks.get(id).map(|task| task.view(now, id))
    }

    /// Up to `limit` tasks after a place: pending and leased ones by `visible_at`, then id; of one state if `state` says so
    /// (not `Dead`: see [`Queue::list_dead`]).
    #[must_use]
    pub fn list(&self, now: Millis, state: Option<TaskState>, after: Option<&Place>, limit: usize) -> Vec<Task> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let views = self.live.range::<Place, _>((from, Bound::Unbounded)).map(|(_, id)| self.tasks[id].view(now, id));
        views.filter(|task| state.is_none_or(|state| task.state == state)).take(limit).collect()
    }

    /// Up to `limit` dead tasks, the newest dead first, of those that come after a place (`dead_at`, id).
    #[must_use]
    pub fn list_dead(&self, now: Millis, after: Option<&Place>, limit: usize) -> Vec<Task> {
        let to = after.map_or(Bound::Unbounded, Bound::Excluded);
        let places = self.dead.range::<Place, _>((Bound::Unbounded, to)).rev().take(limit);
        places.map(|(_, id)| self.tasks[id].view(now, id)).collect()
    }

    /// The queue in numbers.
    #[must_use]
    pub fn stats(&self, now: Millis) -> Stats {
        let count = |n: usize| n as u64;
        let leased = self.leases.range::<Place, _>(first_after(now)..).count();
        let due = self.live.range::<Place, _>(..first_after(now)).count();
        Stats {
            pending: count(self.live.len() - leased),
            due: count(due),
            leased: count(leased),
            dead: count(self.dead.len()),
            oldest_due_at: self.next_at().filter(|at| *at <= now),
        }
    }

    /// The earliest instant at which something can be handed out; the end of a lease counts.
    #[must_use]
    pub fn next_at(&self) -> Option<Millis> {
        self.live.first().map(|(visible, _)| *visible)
    }

    fn bury(&mut self, now: Millis, id: &TaskId, error: Option<String>) {
        let mut task = self.take(id).expect("only tasks that are there are buried");
        task.state = TaskState::Dead;
        task.dead_at = Some(now);
        task.last_error = error;
        self.put(id, task);
    }

    fn take(&mut self, id: &TaskId) -> Option<Stored> {
        let task = self.tasks.remove(id)?;
        match task.dead_at {
            Some(at) => self.dead.remove(&(at, id.clone())),
            None => self.live.remove(&(task.visible_at, id.clone())),
        };
        if task.state == TaskState::Leased {
            self.leases.remove(&(task.visible_at, id.clone()));
        }
        Some(task)
    }

    fn put(&mut self, id: &TaskId, task: Stored) {
        self.take(id);
        match task.dead_at {
            Some(at) => self.dead.insert((at, id.clone())),
            None => self.live.insert((task.visible_at, id.clone())),
        };
        if task.state == TaskState::Leased {
            self.leases.insert((task.visible_at, id.clone()));
        }
        self.tasks.insert(id.clone(), task);
    }
}

/// Before it lie all places of `now` and earlier, after it all later ones.
fn first_after(now: Millis) -> Place {
    // The smallest id there is.
    (now.plus(1), TaskId::parse("!").expect("an id"))
}

impl Stored {
    fn fresh(due_at: Millis, payload: Bytes) -> Self {
        Self {
            state: TaskState::Pending,
            due_at,
            visible_at: due_at,
            payload,
            attempt: 0,
            receipt: Receipt(0),
            last_error: None,
            dead_at: None,
        }
    }

    fn view(&self, now: Millis, id: &TaskId) -> Task {
        let lapsed = self.state == TaskState::Leased && self.visible_at <= now;
        Task {
            id: id.clone(),
            state: if lapsed { TaskState::Pending } else { self.state },
            due_at: self.due_at,
            visible_at: self.visible_at,
            payload: self.payload.clone(),
            attempt: self.attempt,
            last_error: self.last_error.clone().filter(|error| !error.is_empty()),
            dead_at: self.dead_at,
        }
    }
}

/// The reason of a task that died because nobody answered for it.
#[must_use]
pub fn lapsed_error(attempts: u32) -> String {
    format!("the lease of the last of {attempts} attempts ran out unanswered")
}

#[cfg(test)]
mod tests;
