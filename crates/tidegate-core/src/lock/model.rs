//! One lock in memory: the meaning of every operation.
//!
//! The line is served first come, first served, by hand-off: a release gives the lock to the first waiter whose process is
//! alive, and tells it. That waiter has [`CONFIRM_MS`] to say so (by asking again with its token); then its own time
//! begins. Nobody can come in between, and a waiter that died costs the others no more than that.

use std::collections::VecDeque;

use super::rules::{CONFIRM_MS, Fence, LockToken, MAX_WAITERS, Process, next_fence};
use crate::Millis;

/// What is asked of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// Whose it will be; asking again with the same one is the same request.
    pub token: LockToken,
    /// Who asks.
    pub process: Process,
    /// For how long, `MIN_TTL_MS..=MAX_TTL_MS`.
    pub ttl_ms: i64,
    /// The fence must be above this one.
    pub floor: Option<Fence>,
    /// Joins the line if the lock is not to be had.
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
    },
    /// Another has it.
    Held {
        /// What is left of the holder's time, milliseconds.
        for_ms: i64,
        /// How many are before the caller in the line; `None` if it is not in it.
        before: Option<usize>,
    },
    /// The line is full ([`MAX_WAITERS`]).
    Full,
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
    /// It was handed to this waiter.
    pub wake: Option<Handed>,
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
    fence: Fence,
    until: Millis,
}

#[derive(Debug, Clone)]
struct Waiter {
    token: LockToken,
    process: Process,
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
    pub fn acquire(&mut self, step: Step<'_>, asked: &Acquire) -> (Acquired, Option<Handed>) {
        if let Some(granted) = self.again(step, asked) {
            return (granted, None);
        }
        let place = self.line.iter().position(|waiter| waiter.token == asked.token);
        if place.is_none() && asked.wait {
            if self.line.len() >= MAX_WAITERS {
                return (Acquired::Full, None);
            }
            self.line.push_back(Waiter { token: asked.token.clone(), process: asked.process, floor: asked.floor });
        }
        let wake = self.settle(step).filter(|handed| handed.token != asked.token);
        if let Some(granted) = self.again(step, asked) {
            return (granted, wake);
        }
        if self.holder.is_none() {
            return (self.grant(step, asked), wake);
        }
        let for_ms = self.holder.as_ref().map_or(0, |holder| holder.until.since(step.now)).max(1);
        let before = self.line.iter().position(|waiter| waiter.token == asked.token);
        (Acquired::Held { for_ms, before }, wake)
    }

    fn grant(&mut self, step: Step<'_>, asked: &Acquire) -> Acquired {
        self.last = next_fence(self.last, asked.floor, step.now_us);
        let (fence, until) = (self.last, step.now.plus(asked.ttl_ms));
        self.holder = Some(Holder { token: asked.token.clone(), fence, until });
        Acquired::Granted { fence, until }
    }

    /// The holder asks again: after a lost reply, or to say that it is there after a hand-off.
    fn again(&mut self, step: Step<'_>, asked: &Acquire) -> Option<Acquired> {
        let last = self.last;
        let holder = self.holder.as_mut().filter(|h| h.token == asked.token && step.now < h.until)?;
        if asked.floor.is_some_and(|floor| holder.fence <= floor) {
            holder.fence = next_fence(last, asked.floor, step.now_us);
        }
        holder.until = step.now.plus(asked.ttl_ms);
        let (fence, until) = (holder.fence, holder.until);
        self.last = self.last.max(fence);
        Some(Acquired::Granted { fence, until })
    }

    /// Lets go of a lock that ran out, and hands a free one to the first live waiter, which is to be told.
    fn settle(&mut self, step: Step<'_>) -> Option<Handed> {
        if self.holder.as_ref().is_some_and(|holder| step.now < holder.until) {
            return None;
        }
        self.holder = None;
        while let Some(waiter) = self.line.pop_front() {
            if !(step.alive)(waiter.process) {
                continue;
            }
            self.last = next_fence(self.last, waiter.floor, step.now_us);
            let until = step.now.plus(CONFIRM_MS);
            self.holder = Some(Holder { token: waiter.token.clone(), fence: self.last, until });
            return Some(Handed { process: waiter.process, token: waiter.token });
        }
        None
    }

    /// Gives the lock back, and hands it on.
    pub fn release(&mut self, step: Step<'_>, token: &LockToken) -> Released {
        let held = self.holder.as_ref().is_some_and(|h| h.token == *token && step.now < h.until);
        if held {
            self.holder = None;
        }
        Released { held, wake: self.settle(step) }
    }

    /// Leaves the line, or gives back what was handed over meanwhile.
    pub fn leave(&mut self, step: Step<'_>, token: &LockToken) -> Released {
        self.line.retain(|waiter| waiter.token != *token);
        self.release(step, token)
    }

    /// Moves the end of a lock that is still the caller's to `ttl_ms` from now: its fence and end, or `None` if it is lost.
    /// It never takes a lock.
    pub fn renew(&mut self, now: Millis, token: &LockToken, ttl_ms: i64) -> Option<(Fence, Millis)> {
        let holder = self.holder.as_mut().filter(|h| h.token == *token && now < h.until)?;
        holder.until = now.plus(ttl_ms);
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
