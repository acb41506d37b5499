//! Renewals, and what they mend.

use std::sync::{Arc, PoisonError};

use tidegate_backend::lock::{Kept, Mend};
use tidegate_backend::{Renewal, Renewed, Result};
use tidegate_core::Millis;
use tidegate_core::lock::{AskId, Fence, Leave};

use super::Nodes;

/// What the servers say of one lock.
#[derive(Default, Clone)]
struct Seen {
    /// Servers where it is the caller's.
    ours: usize,
    /// The largest fence it has there.
    fence: Fence,
    /// Servers where nobody has it.
    absent: Vec<usize>,
    anothers: usize,
    complaints: Vec<String>,
}

/// Counts a renewal that is on its way; what was given back meanwhile is remembered until none is.
struct OnItsWay<'a>(&'a Nodes);

impl<'a> OnItsWay<'a> {
    fn begin(nodes: &'a Nodes) -> Self {
        nodes.endings.lock().unwrap_or_else(PoisonError::into_inner).renewals += 1;
        Self(nodes)
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let mut endings = self.0.endings.lock().unwrap_or_else(PoisonError::into_inner);
        endings.renewals -= 1;
        if endings.renewals == 0 {
            endings.ended.clear();
        }
    }
}

impl Nodes {
    pub(super) async fn renew(&self, locks: &[Renewal]) -> Vec<Result<Renewed>> {
        let on_its_way = OnItsWay::begin(self);
        let mut locks = locks.to_vec();
        let mut seen = self.keep_everywhere(&locks).await;
        let unknown = locks.iter().any(|lock| lock.fence.is_none());
        if unknown {
            // Whoever renews by its token does not know the fence: it is the largest there is, and a majority must know it.
            for (lock, seen) in locks.iter_mut().zip(&seen) {
                lock.fence = lock.fence.or(Some(seen.fence).filter(|fence| fence.0 > 0));
            }
            seen = self.keep_everywhere(&locks).await;
        }
        self.mend(&locks, &mut seen).await;
        drop(on_its_way);
        locks.iter().zip(seen).map(|(lock, seen)| self.judged(lock, seen)).collect()
    }

    fn judged(&self, lock: &Renewal, seen: Seen) -> Result<Renewed> {
        if seen.ours >= self.majority {
            // No server's clock stands for all; callers count on their own.
            return Ok(Some((lock.fence.unwrap_or(seen.fence), Millis(0))));
        }
        let answered = seen.ours + seen.absent.len() + seen.anothers;
        if seen.ours == 0 && answered >= self.majority {
            return Ok(None);
        }
        Err(self.too_few(seen.ours, &seen.complaints))
    }

    /// Renews at every server, and waits for each: what one lacks is mended with what the others have.
    async fn keep_everywhere(&self, locks: &[Renewal]) -> Vec<Seen> {
        let mut seen = vec![Seen::default(); locks.len()];
        let asked: Arc<[Renewal]> = locks.into();
        let mut answers = self.ask(move |node| {
            let asked = asked.clone();
            async move { Ok(node.keep(&asked, Mend::Never).await) }
        });
        while let Some((at, answer)) = answers.recv().await {
            match answer {
                Ok(kept) => seen.iter_mut().zip(kept).for_each(|(seen, kept)| seen.add(self, at, kept)),
                Err(e) => seen.iter_mut().for_each(|seen| seen.complaints.push(self.complaint(at, &e))),
            }
        }
        seen
    }

    /// Gives each lock to the servers that lack it. Not one that none has any more.
    async fn mend(&self, locks: &[Renewal], seen: &mut [Seen]) {
        let sure = |seen: &Seen| if seen.ours >= self.majority { Mend::Surely } else { Mend::Unless };
        for how in [Mend::Surely, Mend::Unless] {
            let mut lacking: Vec<Vec<usize>> = vec![Vec::new(); self.all.len()];
            for (n, seen) in seen.iter().enumerate().filter(|(_, seen)| seen.ours > 0 && sure(seen) == how) {
                seen.absent.iter().for_each(|at| lacking[*at].push(n));
            }
            self.mend_at(locks, seen, lacking, how).await;
        }
    }

    async fn mend_at(&self, locks: &[Renewal], seen: &mut [Seen], lacking: Vec<Vec<usize>>, how: Mend) {
        let which = (0..self.all.len()).filter(|at| !lacking[*at].is_empty());
        let at_each = |at: usize| lacking[at].iter().map(|n| locks[*n].clone()).collect::<Vec<_>>();
        let mut answers = self.ask_some(which, |at, node| {
            let some = at_each(at);
            async move { Ok(node.keep(&some, how).await) }
        });
        while let Some((at, answer)) = answers.recv().await {
            let Ok(kept) = answer else { continue };
            for (n, kept) in lacking[at].iter().zip(kept) {
                if matches!(kept, Ok(Kept::Mended | Kept::Ours(_))) {
                    seen[*n].ours += 1;
                    seen[*n].absent.retain(|lacks| *lacks != at);
                    self.unless_it_ended(at, &locks[*n]).await;
                }
            }
        }
    }

    /// What was mended while its holder gave it back goes again.
    async fn unless_it_ended(&self, at: usize, lock: &Renewal) {
        let only = {
            let endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
            let ended = |ask: Option<AskId>| endings.ended.contains(&(lock.token.clone(), ask));
            match lock.ask {
                _ if ended(None) => None,
                Some(ask) if ended(Some(ask)) => Some((ask, Leave::Untold)),
                _ => return,
            }
        };
        // If this does not arrive, it ends by itself.
        let _ = tokio::time::timeout(self.within, self.all[at].give_back(&lock.name, &lock.token, only)).await;
    }
}

impl Seen {
    fn add(&mut self, nodes: &Nodes, at: usize, kept: Result<Kept>) {
        match kept {
            Ok(Kept::Ours(fence)) => {
                self.ours += 1;
                self.fence = self.fence.max(fence);
            }
            Ok(Kept::Mended) => self.ours += 1,
            Ok(Kept::Absent) => self.absent.push(at),
            Ok(Kept::Anothers) => self.anothers += 1,
            Err(e) => self.complaints.push(nodes.complaint(at, e)),
        }
    }
}
