//! What the store lacks is read from the ledger, once for all processes as far as a lease can see to it, and filled in.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tidegate_backend::feed::{MAX_FEED_READS, MAX_REPOSTS_READ, Reads};
use tidegate_core::feed::{
    AuthorSet, Fill, Head, MAX_REPOSTS, MAX_WHOLE_REPOSTS, PostId, Repost, Subject, Ties, UserId, Version, WINDOW_MS,
};
use tokio::time::Instant;

use super::inner::{Counts, Inner};
use super::options::{PageCost, Result};
use super::walker::Stop;

/// Between two looks whether somebody else has filled what is missing, doubling to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);
/// Who holds a lease has it for two seconds; who waits longer reads for himself.
const PATIENCE: Duration = Duration::from_millis(2_300);
/// Times that the pages of one root's reposts are read anew because they have changed meanwhile.
const MAX_TRIES: usize = 3;

impl Inner {
    /// Sets of authors from the ledger, in order. `None`: somebody else has filled the store meanwhile, with a version of
    /// `least` or newer.
    pub(super) async fn fetch_authors(
        &self,
        names: &[UserId],
        least: &[Version],
        cost: &mut PageCost,
    ) -> std::result::Result<Vec<Option<AuthorSet>>, Stop> {
        let mut sets: Vec<Option<AuthorSet>> = vec![None; names.len()];
        let mut waiting: Vec<usize> = (0..names.len()).collect();
        let give_up = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        loop {
            let subjects: Vec<Subject> = waiting.iter().map(|at| Subject::Author(names[*at].clone())).collect();
            let granted =
                if Instant::now() < give_up { self.lease(&subjects).await } else { vec![true; subjects.len()] };
            let mine: Vec<usize> = waiting.iter().zip(&granted).filter(|(_, mine)| **mine).map(|(at, _)| *at).collect();
            waiting = waiting.iter().zip(&granted).filter(|(_, mine)| !**mine).map(|(at, _)| *at).collect();
            // Whoever had the lease before may have filled it since it was missed.
            let mine = self.still_missing(mine, names, least).await?;
            let parts = mine.chunks(MAX_FEED_READS).map(|part| {
                let wanted: Vec<UserId> = part.iter().map(|at| names[*at].clone()).collect();
                async move { self.fill_authors(wanted).await }
            });
            let found = try_join_all(parts).await?;
            cost.ledger_reads += mine.len().div_ceil(MAX_FEED_READS) as u64;
            for (at, set) in mine.into_iter().zip(found.into_iter().flatten()) {
                sets[at] = Some(set);
            }
            if waiting.is_empty() {
                return Ok(sets);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            waiting = self.still_missing(waiting, names, least).await?;
            if waiting.is_empty() {
                return Ok(sets);
            }
        }
    }

    /// Those that the store does not have in a version of `least` or newer.
    async fn still_missing(
        &self,
        missing: Vec<usize>,
        names: &[UserId],
        least: &[Version],
    ) -> std::result::Result<Vec<usize>, Stop> {
        let parts = missing.chunks(MAX_FEED_READS).map(|part| async move {
            let heads = part.iter().map(|at| names[*at].clone()).collect();
            let found = self.ask(Reads { heads, ..Reads::default() }).await?.heads;
            let is_there = |at: usize, head: &Option<Head>| head.is_some_and(|head| head.version >= least[at]);
            let left = part.iter().zip(&found).filter(|(at, head)| !is_there(**at, head)).map(|(at, _)| *at);
            Ok::<_, Stop>(left.collect::<Vec<usize>>())
        });
        Ok(try_join_all(parts).await?.concat())
    }

    /// Reads sets and fills them in.
    async fn fill_authors(&self, names: Vec<UserId>) -> Result<Vec<AuthorSet>> {
        let from = self.clock.now().plus(-(WINDOW_MS + tidegate_core::feed::copy::KEEP_MS));
        let sets = {
            let _turn = self.turn().await?;
            self.ledger.authors(&names, from).await?
        };
        Counts::add(&self.counts.authors_from_ledger, names.len());
        let fills = names.into_iter().zip(&sets).map(|(name, set)| Fill::Author(name, set.clone())).collect();
        self.fill(fills).await;
        Ok(sets)
    }

    /// A user's ties from the ledger.
    pub(super) async fn fetch_ties(&self, user: &UserId) -> Result<Ties> {
        let ties = {
            let _turn = self.turn().await?;
            self.ledger.ties(std::slice::from_ref(user)).await?
        };
        let ties = ties.into_iter().next().unwrap_or_default();
        self.fill(vec![Fill::User(user.clone(), ties.clone())]).await;
        Ok(ties)
    }

    /// The reposts of a root by `sources` at least, from the ledger.
    pub(super) async fn fetch_reposts(&self, root: &PostId, sources: &[UserId], fill: bool) -> Result<Vec<Repost>> {
        let _turn = self.turn().await?;
        let (version, some) = self.ledger.reposts(root, None, MAX_WHOLE_REPOSTS + 1).await?;
        if some.len() <= MAX_WHOLE_REPOSTS {
            if fill {
                self.fill(vec![Fill::Root(root.clone(), version, some.clone())]).await;
            }
            return Ok(some);
        }
        if fill && self.lease(&[Subject::Root(root.clone())]).await == [true] {
            for _ in 0..MAX_TRIES {
                if let Some((version, all)) = self.all_reposts(root).await? {
                    self.fill(vec![Fill::Root(root.clone(), version, all.clone())]).await;
                    return Ok(all);
                }
            }
        }
        let mut found = Vec::new();
        for part in sources.chunks(MAX_FEED_READS) {
            found.extend(self.ledger.reposts_by(root, part).await?);
        }
        Ok(found)
    }

    /// All reposts of a root as of one version; `None`: they have changed meanwhile, or are too many.
    async fn all_reposts(&self, root: &PostId) -> Result<Option<(Version, Vec<Repost>)>> {
        let mut all: Vec<Repost> = Vec::new();
        let mut first = None;
        loop {
            let after = all.last().map(|last| last.user.clone());
            let (version, part) = self.ledger.reposts(root, after.as_ref(), MAX_REPOSTS_READ).await?;
            if *first.get_or_insert(version) != version {
                return Ok(None);
            }
            let is_last = part.len() < MAX_REPOSTS_READ;
            all.extend(part);
            if is_last {
                return Ok(Some((version, all)));
            }
            if all.len() > MAX_REPOSTS {
                return Ok(None);
            }
        }
    }

    /// Who fills what; whoever cannot ask does it himself.
    async fn lease(&self, subjects: &[Subject]) -> Vec<bool> {
        let mut granted = Vec::with_capacity(subjects.len());
        for part in subjects.chunks(MAX_FEED_READS) {
            let answer = match &self.store {
                Some(store) => store.lease(part).await.ok(),
                None => None,
            };
            granted
                .extend(answer.filter(|answer| answer.len() == part.len()).unwrap_or_else(|| vec![true; part.len()]));
        }
        granted
    }

    /// Fills the store. What it does not take, or cannot, is filled by the next one who needs it.
    async fn fill(&self, fills: Vec<Fill>) {
        if let Some(store) = &self.store
            && let Err(error) = store.fill(fills).await
        {
            self.health.failed(&error);
        }
    }

    /// Names as a store's question takes them.
    pub(super) fn among(names: &[UserId]) -> impl Iterator<Item = Arc<[UserId]>> + '_ {
        names.chunks(MAX_FEED_READS).map(Arc::from)
    }
}
