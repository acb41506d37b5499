//! A majority takes a lock, or gives it back.

use std::sync::PoisonError;

use tidegate_backend::lock::{Kept, Mend, Vote};
use tidegate_backend::{Error, ErrorKind, Renewal, Result};
use tidegate_core::Millis;
use tidegate_core::lock::{Acquire, Acquired, AskId, Fence, Leave, LockName, LockToken, Look};

use super::Nodes;
use super::ask::Answers;

/// What the servers have said so far.
#[derive(Default)]
struct Tally {
    /// Who gave it: server, fence, whether it counts.
    given: Vec<(usize, Fence, bool)>,
    until: Option<Millis>,
    /// What is left of another's time, at servers that count.
    left: Vec<i64>,
    complaints: Vec<String>,
    wrong: Option<Error>,
    /// Another call with the token was told of a grant with this fence.
    told: Option<Fence>,
    /// A server has no fence left to give.
    spent: bool,
}

impl Tally {
    fn add(&mut self, nodes: &Nodes, at: usize, answer: Result<Vote>) {
        let vote = match answer {
            Ok(vote) => vote,
            Err(e) => {
                self.complaints.push(nodes.complaint(at, &e));
                if e.kind() == ErrorKind::Configuration {
                    self.wrong = Some(e);
                }
                return;
            }
        };
        let counts = vote.barred_ms <= 0;
        if !counts {
            let why = format!("started or flushed lately, it counts in {} ms", vote.barred_ms);
            self.complaints.push(nodes.complaint(at, why));
        }
        match vote.acquired {
            Acquired::Granted { fence, until, again } => {
                self.given.push((at, fence, counts));
                self.told = self.told.max(Some(fence).filter(|_| again));
                self.until = Some(self.until.map_or(until, |before| before.min(until)));
            }
            Acquired::Held { for_ms, .. } if counts => self.left.push(for_ms),
            Acquired::Held { .. } | Acquired::Full => {}
            Acquired::Spent => self.spent = true,
        }
    }

    fn counted(&self) -> usize {
        self.given.iter().filter(|(_, _, counts)| *counts).count()
    }

    /// The largest fence that was given.
    fn fence(&self) -> Fence {
        self.given.iter().map(|(_, fence, _)| *fence).max().unwrap_or_default()
    }
}

impl Nodes {
    pub(super) async fn acquire(&self, name: &LockName, asked: &Acquire) -> Result<Acquired> {
        let (lock, ask, longest) = (name.clone(), Acquire { wait: false, ..asked.clone() }, self.longest_ms);
        let mut votes = self.ask(|node| {
            let (lock, ask, underway) = (lock.clone(), ask.clone(), self.underway.begin(&ask.token));
            async move {
                let vote = node.vote(&lock, &ask, longest).await;
                drop(underway);
                vote
            }
        });
        let mut tally = Tally::default();
        while let Some((at, answer)) = votes.recv().await {
            tally.add(self, at, answer);
            if tally.counted() >= self.majority {
                break;
            }
        }
        if tally.counted() >= self.majority {
            let renewal = |fence| Renewal {
                name: name.clone(),
                token: asked.token.clone(),
                ask: Some(asked.ask),
                ttl_ms: asked.ttl_ms,
                fence: Some(fence),
            };
            let fence = tally.fence();
            let taught = self.teach(&tally, renewal(fence)).await;
            if taught >= self.majority {
                self.teach_the_rest(votes, renewal(fence));
                let again = tally.told == Some(fence);
                return Ok(Acquired::Granted { fence, until: tally.until.unwrap_or_default(), again });
            }
            tally.complaints.push("a fence was not taken".to_owned());
            // Whatever they said, it does not stand.
            tally.given.retain(|(_, given, _)| *given == fence);
        }
        // Split votes: everybody gives back what it has, and asks again some time later. Not what another call was told of.
        let back = self.give_back(name, &asked.token, Some((asked.ask, Leave::Untold))).await;
        drop(back);
        self.refused(tally)
    }

    /// No majority: because another has it, or because too few answer.
    fn refused(&self, mut tally: Tally) -> Result<Acquired> {
        let mine = tally.counted();
        if tally.spent {
            return Ok(Acquired::Spent);
        }
        if mine + tally.left.len() < self.majority {
            let too_few = self.too_few(mine + tally.left.len(), &tally.complaints);
            // What no waiting mends is told as what it is.
            return Err(tally.wrong.unwrap_or(too_few));
        }
        // When so many have run out that a majority is free.
        tally.left.sort_unstable();
        let needed = self.majority.saturating_sub(mine).max(1);
        let for_ms = tally.left.get(needed - 1).or(tally.left.last()).copied().unwrap_or(1);
        Ok(Acquired::Held { for_ms, before: None, joined: false })
    }

    /// Teaches the grant's fence to those that gave a smaller one; how many that count know it then.
    async fn teach(&self, tally: &Tally, grant: Renewal) -> usize {
        let fence = grant.fence.unwrap_or_default();
        let counts = |at: usize| tally.given.iter().any(|(given, _, counts)| *given == at && *counts);
        let mut know = tally.given.iter().filter(|(_, given, counts)| *given == fence && *counts).count();
        let lower = tally.given.iter().filter(|(_, given, _)| *given != fence).map(|(at, ..)| *at);
        let mut answers = self.keep_at(lower, grant, Mend::Never);
        while know < self.majority
            && let Some((at, answer)) = answers.recv().await
        {
            let taught = matches!(answer.as_deref(), Ok([Ok(Kept::Ours(known))]) if *known == fence);
            know += usize::from(taught && counts(at));
        }
        know
    }

    fn keep_at(
        &self,
        which: impl IntoIterator<Item = usize>,
        grant: Renewal,
        mend: Mend,
    ) -> Answers<Vec<Result<Kept>>> {
        self.ask_some(which, move |_, node| {
            let grant = grant.clone();
            async move { Ok(node.keep(&[grant], mend).await) }
        })
    }

    /// Those that answer after the majority know the grant's fence, too. It makes nothing, so it may come after a release.
    fn teach_the_rest(&self, mut votes: Answers<Vote>, grant: Renewal) {
        let all = self.all.clone();
        let within = self.within;
        tokio::spawn(async move {
            while let Some((at, vote)) = votes.recv().await {
                if vote.is_ok_and(
                    |vote| matches!(vote.acquired, Acquired::Granted { fence, .. } if Some(fence) != grant.fence),
                ) {
                    let keep = [grant.clone()];
                    // Whether it learns it is of no interest: a majority knows it.
                    let _ = tokio::time::timeout(within, all[at].keep(&keep, Mend::Never)).await;
                }
            }
        });
    }

    /// Gives a lock back wherever it is, by its token or for one call; whether it was anywhere.
    pub(super) async fn give_back(
        &self,
        name: &LockName,
        token: &LockToken,
        only: Option<(AskId, Leave)>,
    ) -> Result<bool> {
        {
            let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
            if endings.renewals > 0 {
                endings.ended.insert((token.clone(), only.map(|(ask, _)| ask)));
            }
        }
        // Their time is bounded as every question's is.
        self.underway.none(token).await;
        let (lock, whose) = (name.clone(), token.clone());
        let mut answers = self.ask(move |node| {
            let (lock, whose) = (lock.clone(), whose.clone());
            async move { node.give_back(&lock, &whose, only).await }
        });
        let (mut there, mut answered, mut complaints) = (false, 0, Vec::new());
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(held) => {
                    there |= held;
                    answered += 1;
                }
                Err(e) => complaints.push(self.complaint(at, e)),
            }
        }
        // Where it could not be given back, it ends by itself.
        if answered >= self.majority { Ok(there) } else { Err(self.too_few(answered, &complaints)) }
    }

    /// A lock as a majority sees it.
    pub(super) async fn look(&self, name: &LockName) -> Result<Look> {
        let lock = name.clone();
        let mut answers = self.ask(move |node| {
            let lock = lock.clone();
            async move { node.look(&lock).await }
        });
        let (mut seen, mut answered, mut complaints) = (Vec::new(), 0, Vec::new());
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(look) => {
                    answered += 1;
                    seen.extend(look.held);
                }
                Err(e) => complaints.push(self.complaint(at, e)),
            }
        }
        if answered < self.majority {
            return Err(self.too_few(answered, &complaints));
        }
        let votes = |fence: Fence| seen.iter().filter(|(other, _)| *other == fence).count();
        let most = seen.iter().copied().max_by_key(|(fence, left)| (votes(*fence), *left));
        Ok(Look { held: most.filter(|_| seen.len() >= self.majority), waiters: 0 })
    }
}
