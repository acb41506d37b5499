//! One lock in memory: the meaning of every operation.
//!
//! The line is served first come, first served, by hand-off: a release gives the lock to the first waiter whose process is
//! alive, and tells it. That waiter has [`CONFIRM_MS`] to say so (by asking again with its token); then its own time
//! begins. Nobody can come in between, and a waiter that died costs the others no more than that.
//!
//! A token may be asked with by several calls (`calls`): after a lost reply, at another process. They are one request with one
//! place in the line. A call that ends untold gives back only what no other of them has.

mod calls;

use std::collections::VecDeque;

pub use calls::Leave;
use calls::{Calls, Waits};

use super::rules::{AskId, CONFIRM_MS, Fence, LockToken, MAX_WAITERS, Process, next_fence};
use crate::Millis;

/// What is asked of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// Whose it will be; asking again with the same one is the same request.
    pub token: LockToken,
    /// Which call it is, the same in each of its questions.
    pub ask: AskId,
    /// Who asks.
    pub process: Process,
    /// For how long, `MIN_TTL_MS..=MAX_TTL_MS`.
    pub ttl_ms: i64,
    /// The fence must be above this one.
    pub floor: Option<Fence>,
    /// Joins the line, or takes its place there with it, if the lock is not to be had.
    pub wait: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// It is the caller's until then.
    Granted {
        /// Of this grant.
        fence: Fence,
        /// On the store's clock.
        until: Millis,
        /// Another call with this token was told so before, with this fence.
        again: bool,
    },
    /// Another has it.
    Held {
        /// What is left of the holder's time, milliseconds.
        for_ms: i64,
        /// How many are before the caller in the line; `None` if it is not in it.
        before: Option<usize>,
        /// It stood there for the first time, or anew: it had been taken out, or the store has forgotten the line.
        joined: bool,
    },
    /// The line is full ([`MAX_WAITERS`]).
    Full,
    /// No fence is left to give: the next would be above [`super::MAX_FENCE`].
    Spent,
}

/// A waiter that was handed a lock, and is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// Where it waits.
    pub process: Process,
    /// Which it is.
    pub token: LockToken,
}

/// What a release did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    /// The lock was the caller's.
    pub held: bool,
    /// It was handed to this waiter, at each process where it waits.
    pub wake: Vec<Handed>,
}

/// A lock as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The grant's fence and what is left of its time, milliseconds.
    pub held: Option<(Fence, i64)>,
    /// Who is in the line, the dead not yet noticed among them.
    pub waiters: usize,
}

#[derive(Debug, Clone)]
struct Holder {
    token: LockToken,
    calls: Calls,
    fence: Fence,
    until: Millis,
}

#[derive(Debug, Clone)]
struct Waiter {
    token: LockToken,
    calls: Waits,
    floor: Option<Fence>,
}

/// A lock. Every method is one step; `now` is the store's clock (`now_us` in microseconds), `alive` says which processes
/// gave a sign of life lately.
#[derive(Debug, Clone, Default)]
pub struct Lock {
    holder: Option<Holder>,
    line: VecDeque<Waiter>,
    last: Fence,
}

/// The clock and who is alive, at one step.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    /// The store's clock.
    pub now: Millis,
    /// The same in microseconds.
    pub now_us: u64,
    /// Whether a process gave a sign of life lately.
    pub alive: &'a dyn Fn(Process) -> bool,
}

impl Lock {
    /// Takes the lock, or keeps it (the same token: the same fence, and its time begins anew), or joins the line.
    /// Also gives the waiter to wake, if a lock that ran out was handed to another than the caller.
    pub fn acquire(&mut self, step: Step<'_>, asked: &Acquire) -> (Acquired, Vec<Handed>) {
        if let Some(granted) = self.again(step, asked) {
            return (granted, Vec::new());
        }
        let joined = match self.join(asked) {
            Some(joined) => joined,
            None => return (Acquired::Full, Vec::new()),
        };
        let mut wake = self.settle(step);
        wake.retain(|handed| handed.token != asked.token || handed.process != asked.process);
        if let Some(granted) = self.again(step, asked) {
            return (granted, wake);
        }
        let Some(holder) = &self.holder else { return (self.grant(step, asked), wake) };
        let for_ms = holder.until.since(step.now).max(1);
        let before = self.line.iter().position(|waiter| waiter.token == asked.token);
        (Acquired::Held { for_ms, before, joined }, wake)
    }

    /// Stands in the line if it wants to, where its token stands already if it does; whether that is new. `None`: there is no
    /// room.
    fn join(&mut self, asked: &Acquire) -> Option<bool> {
        if !asked.wait {
            return Some(false);
        }
        let there = self.line.iter_mut().find(|waiter| waiter.token == asked.token);
        if let Some(waiter) = there {
            waiter.calls.join(asked.ask, asked.process);
            waiter.floor = waiter.floor.max(asked.floor);
            return Some(false);
        }
        if self.line.len() >= MAX_WAITERS {
            return None;
        }
        let mut calls = Waits::default();
        calls.join(asked.ask, asked.process);
        self.line.push_back(Waiter { token: asked.token.clone(), calls, floor: asked.floor });
        Some(true)
    }

    fn grant(&mut self, step: Step<'_>, asked: &Acquire) -> Acquired {
        let Some(fence) = next_fence(self.last, asked.floor, step.now_us) else { return Acquired::Spent };
        self.last = fence;
        let until = step.now.plus(asked.ttl_ms);
        self.holder = Some(Holder { token: asked.token.clone(), calls: Calls::one(asked.ask), fence, until });
        Acquired::Granted { fence, until, again: false }
    }

    /// The holder asks again: after a lost reply, or to say that it is there after a hand-off.
    fn again(&mut self, step: Step<'_>, asked: &Acquire) -> Option<Acquired> {
        let last = self.last;
        let holder = self.holder.as_mut().filter(|h| h.token == asked.token && step.now < h.until)?;
        let too_low = asked.floor.is_some_and(|floor| holder.fence <= floor);
        if too_low {
            let Some(fence) = next_fence(last, asked.floor, step.now_us) else { return Some(Acquired::Spent) };
            holder.fence = fence;
        }
        holder.until = step.now.plus(asked.ttl_ms);
        let again = holder.calls.answer(asked.ask) && !too_low;
        let (fence, until) = (holder.fence, holder.until);
        self.last = self.last.max(fence);
        Some(Acquired::Granted { fence, until, again })
    }

    /// Lets go of a lock that ran out, and hands a free one to the first live waiter, which is to be told.
    fn settle(&mut self, step: Step<'_>) -> Vec<Handed> {
        if self.holder.as_ref().is_some_and(|holder| step.now < holder.until) {
            return Vec::new();
        }
        self.holder = None;
        while let Some(waiter) = self.line.pop_front() {
            let living = waiter.calls.living(step.alive);
            let fence = next_fence(self.last, waiter.floor, step.now_us);
            // One that no fence is left for is told when it asks.
            let Some(fence) = fence.filter(|_| !living.is_empty()) else { continue };
            self.last = fence;
            let until = step.now.plus(CONFIRM_MS);
            let calls = Calls::handed(living.iter().map(|(ask, _)| *ask));
            self.holder = Some(Holder { token: waiter.token.clone(), calls, fence, until });
            let mut processes: Vec<Process> = living.into_iter().map(|(_, process)| process).collect();
            processes.sort_unstable();
            processes.dedup();
            return processes.into_iter().map(|process| Handed { process, token: waiter.token.clone() }).collect();
        }
        Vec::new()
    }

    /// Gives the lock back by its token, whoever else asked with it, and hands it on.
    pub fn release(&mut self, step: Step<'_>, token: &LockToken) -> Released {
        let held = self.holder.as_ref().is_some_and(|h| h.token == *token && step.now < h.until);
        if held {
            self.holder = None;
        }
        Released { held, wake: self.settle(step) }
    }

    /// One call leaves the line, and gives back what it was granted, unless another call with its token is there or was told
    /// of the grant.
    pub fn leave(&mut self, step: Step<'_>, token: &LockToken, ask: AskId, why: Leave) -> Released {
        self.line.retain_mut(|waiter| waiter.token != *token || !waiter.calls.leave(ask));
        let mine = self.holder.as_mut().filter(|h| h.token == *token && step.now < h.until);
        let held = mine.is_some_and(|holder| holder.calls.leave(ask, why));
        if held {
            self.holder = None;
        }
        Released { held, wake: self.settle(step) }
    }

    /// Moves the end of a lock that is still the caller's to `ttl_ms` from now: its fence and end, or `None` if it is lost.
    /// It never takes a lock. `ask` is the call that it was granted to; without one, no call's clean-up ends it any more.
    pub fn renew(
        &mut self,
        now: Millis,
        token: &LockToken,
        ask: Option<AskId>,
        ttl_ms: i64,
    ) -> Option<(Fence, Millis)> {
        let holder = self.holder.as_mut().filter(|h| h.token == *token && now < h.until)?;
        holder.until = now.plus(ttl_ms);
        if ask.is_none() {
            holder.calls.keep();
        }
        Some((holder.fence, holder.until))
    }

    /// The lock as it stands.
    #[must_use]
    pub fn look(&self, now: Millis) -> Look {
        let held = self.holder.as_ref().filter(|holder| now < holder.until);
        Look { held: held.map(|h| (h.fence, h.until.since(now))), waiters: self.line.len() }
    }

    /// The last fence that was given.
    #[must_use]
    pub fn last_fence(&self) -> Fence {
        self.last
    }

    /// Whether nothing of it is alive: it may be forgotten once its last fence is behind the clock.
    #[must_use]
    pub fn is_idle(&self, now: Millis) -> bool {
        self.look(now).held.is_none() && self.line.is_empty()
    }
}

#[cfg(test)]
mod tests;
