//! What the store lacks is read from the ledger, once for all processes as far as a lease can see to it, and filled in.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use tidegate_backend::feed::{MAX_FEED_READS, MAX_REPOSTS_READ, Reads};
use tidegate_core::feed::{
    AuthorSet, Fill, Head, MAX_REPOSTS, MAX_WHOLE_REPOSTS, PostId, Repost, Subject, Ties, UserId, Version, WINDOW_MS,
};
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

use super::inner::{Counts, Inner};
use super::options::{PageCost, Result};
use super::walker::Stop;

/// Between two looks whether somebody else has filled what is missing, doubling to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);
/// A lease is its holder's for two seconds, then somebody else's. Who waits for so long while nothing at all is filled reads for
/// himself.
const PATIENCE: Duration = Duration::from_secs(7);
/// Times that the pages of one root's reposts are read anew because they have changed meanwhile.
const MAX_TRIES: usize = 3;

/// What came of a part of the sets that are missing.
struct Part {
    /// Those that were read from the ledger.
    found: Vec<(usize, AuthorSet)>,
    /// Those that somebody else reads.
    others: Vec<usize>,
}

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
        let mut give_up = Instant::now() + PATIENCE;
        let mut pause = PAUSE;
        loop {
            let before = waiting.len();
            let is_over = Instant::now() >= give_up;
            let parts = waiting.chunks(MAX_FEED_READS).map(|part| self.fetch_part(part, names, least, is_over));
            let fetched = try_join_all(parts).await?;
            waiting.clear();
            for part in fetched {
                cost.ledger_reads += u64::from(!part.found.is_empty());
                part.found.into_iter().for_each(|(at, set)| sets[at] = Some(set));
                waiting.extend(part.others);
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
            if waiting.len() < before {
                give_up = Instant::now() + PATIENCE;
            }
        }
    }

    /// Reads and fills those of a part that are this process' to fill. Leases are taken once it is its turn at the ledger: they
    /// are short, and a lease of what waits for its turn would end before it is read, and let others read it as well.
    async fn fetch_part(
        &self,
        part: &[usize],
        names: &[UserId],
        least: &[Version],
        is_over: bool,
    ) -> std::result::Result<Part, Stop> {
        let turn = self.turn().await?;
        let subjects: Vec<Subject> = part.iter().map(|at| Subject::Author(names[*at].clone())).collect();
        let granted = if is_over { vec![true; subjects.len()] } else { self.lease(&subjects).await };
        let of = |is_mine: bool| {
            let is_of = move |(_, mine): &(&usize, &bool)| **mine == is_mine;
            part.iter().zip(&granted).filter(is_of).map(|(at, _)| *at).collect::<Vec<usize>>()
        };
        let (mine, others) = (of(true), of(false));
        // Whoever had the lease before may have filled it since it was missed.
        let mine = self.still_missing(mine, names, least).await?;
        if mine.is_empty() {
            return Ok(Part { found: Vec::new(), others });
        }
        let wanted: Vec<UserId> = mine.iter().map(|at| names[*at].clone()).collect();
        let sets = self.fill_authors(wanted, turn).await?;
        Ok(Part { found: mine.into_iter().zip(sets).collect(), others })
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
    async fn fill_authors(&self, names: Vec<UserId>, turn: SemaphorePermit<'_>) -> Result<Vec<AuthorSet>> {
        let from = self.clock.now().plus(-(WINDOW_MS + tidegate_core::feed::copy::KEEP_MS));
        let sets = self.ledger.authors(&names, from).await?;
        drop(turn);
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
