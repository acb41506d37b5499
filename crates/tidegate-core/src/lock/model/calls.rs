//! The calls that one request of a caller's was asked by: a token may be sent more than once, by several connections, to
//! several processes, and what one of them was told must not be taken back by another's clean-up.

use std::collections::VecDeque;

use super::super::rules::{AskId, MAX_CALLS, Process};

/// Why a call gives back what it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Leave {
    /// Nobody was told of it: its caller went away, or it failed. It takes back itself alone.
    Untold,
    /// Its caller had it, and is done with it. It takes back itself, and the calls before it, which its caller made before.
    Done,
}

/// The calls that a grant was answered to, by the first question of each. The lock is held until the last of them gives it
/// back, or somebody releases it by its token.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    asks: VecDeque<AskId>,
    /// Before these there were others, which never give it back: more than are kept, or a renewal by the token alone.
    others: bool,
    /// It was handed over to these, and none of them has said yet that it is there.
    handed: bool,
}

impl Calls {
    pub(super) fn one(ask: AskId) -> Self {
        Self { asks: VecDeque::from([ask]), others: false, handed: false }
    }

    pub(super) fn handed(asks: impl Iterator<Item = AskId>) -> Self {
        Self { asks: asks.collect(), others: false, handed: true }
    }

    /// `ask` is answered that it has the lock; whether another call was before.
    pub(super) fn answer(&mut self, ask: AskId) -> bool {
        if self.handed {
            *self = Self::one(ask);
            return false;
        }
        if !self.asks.contains(&ask) {
            if self.asks.len() >= MAX_CALLS {
                self.asks.pop_front();
                self.others = true;
            }
            self.asks.push_back(ask);
        }
        self.others || self.asks.len() > 1
    }

    /// Somebody was told by the token alone that the lock is held: no call's clean-up ends it any more.
    pub(super) fn keep(&mut self) {
        (self.others, self.handed) = (true, false);
    }

    /// `ask` gives it back; whether nobody has it then.
    pub(super) fn leave(&mut self, ask: AskId, why: Leave) -> bool {
        let Some(at) = self.asks.iter().position(|other| *other == ask) else { return false };
        match why {
            Leave::Untold => drop(self.asks.remove(at)),
            Leave::Done => {
                self.asks.drain(..=at);
                self.others = false;
            }
        }
        self.asks.is_empty() && !self.others
    }
}

/// The calls that wait with one token, each at its process: whichever is alive is told.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits(VecDeque<(AskId, Process)>);

impl Waits {
    /// `ask` waits at `process`.
    pub(super) fn join(&mut self, ask: AskId, process: Process) {
        if !self.0.contains(&(ask, process)) {
            if self.0.len() >= MAX_CALLS {
                // It joins again at its next question.
                self.0.pop_front();
            }
            self.0.push_back((ask, process));
        }
    }

    /// `ask` waits no more; whether none does then.
    pub(super) fn leave(&mut self, ask: AskId) -> bool {
        self.0.retain(|(other, _)| *other != ask);
        self.0.is_empty()
    }

    /// Those whose process is alive.
    pub(super) fn living(&self, alive: &dyn Fn(Process) -> bool) -> Vec<(AskId, Process)> {
        self.0.iter().copied().filter(|(_, process)| alive(*process)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(asks: &[u64]) -> Calls {
        let mut calls = Calls::default();
        for ask in asks {
            calls.answer(AskId(*ask));
        }
        calls
    }

    #[test]
    fn the_last_to_give_back_ends_it() {
        let mut calls = answered(&[1, 2]);
        assert!(!calls.leave(AskId(3), Leave::Untold), "it never had it");
        assert!(!calls.leave(AskId(1), Leave::Untold) && !calls.leave(AskId(1), Leave::Untold));
        assert!(calls.leave(AskId(2), Leave::Untold));
    }

    #[test]
    fn who_is_done_is_done_with_what_it_asked_before() {
        assert!(answered(&[1, 2]).leave(AskId(2), Leave::Done));
        let mut later = answered(&[1, 2]);
        assert!(!later.leave(AskId(1), Leave::Done), "it asked again since");
        assert!(later.leave(AskId(2), Leave::Untold));
    }

    #[test]
    fn what_was_told_by_the_token_alone_stays() {
        let mut calls = answered(&[1]);
        calls.keep();
        assert!(!calls.leave(AskId(1), Leave::Untold));
        assert!(answered(&[1, 2]).answer(AskId(2)) && !Calls::default().answer(AskId(1)));
    }

    #[test]
    fn of_too_many_the_oldest_stay() {
        let many: Vec<u64> = (0..=MAX_CALLS as u64).collect();
        let mut calls = answered(&many);
        assert_eq!(calls.asks.len(), MAX_CALLS);
        for ask in &many {
            assert!(!calls.leave(AskId(*ask), Leave::Untold), "the first may have been told");
        }
        assert!(answered(&many).leave(AskId(MAX_CALLS as u64), Leave::Done));
    }

    #[test]
    fn the_first_that_is_there_has_what_was_handed_over() {
        let mut calls = Calls::handed([AskId(1), AskId(2)].into_iter());
        assert!(!calls.answer(AskId(2)));
        assert!(!calls.leave(AskId(1), Leave::Untold) && calls.leave(AskId(2), Leave::Untold));
    }
}
