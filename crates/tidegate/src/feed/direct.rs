//! Pages of the ledger's rows alone, for when there is no store or it does not answer. Exact, and dear: every author's set
//! is read. So only a few are made at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_backend::feed::{MAX_FEED_READS, MAX_PART};
use tidegate_core::feed::change::is_beyond;
use tidegate_core::feed::scope::recent;
use tidegate_core::feed::{
    Ask, Edge, End, Entry, MAX_WHOLE_REPOSTS, Order, Page, PostId, Range, Recent, Repost, StoredPost, UserId, Walk,
    Want,
};
use tidegate_core::{Map, Millis};

use super::inner::{Counts, Inner};
use super::options::{FeedError, PageCost, Result};
use super::pages::finish;
use super::walker::{self, Looked, Root, Source, Stop, see};

/// How far back sets are read at first; most pages end within it.
const FIRST_LOOK_MS: i64 = 86_400_000;

/// What was read of an author.
struct Near {
    /// He has nothing newer.
    newest: Option<Millis>,
    /// His oldest post of all.
    oldest: Option<Millis>,
    /// Nothing of what follows is missing at this instant or after it.
    from: Millis,
    /// The nearest entries.
    entries: Vec<Entry>,
    /// There are no others.
    is_whole: bool,
}

struct FromLedger<'a> {
    feed: &'a Inner,
    viewer: &'a UserId,
    order: Order,
    range: Range,
    /// Himself and whom he follows, by name.
    names: Vec<UserId>,
    /// From whom he is hidden, by name.
    hidden: Vec<UserId>,
    /// What was read of each.
    sets: Vec<Near>,
    /// Where the sets were asked to begin.
    from: Millis,
    /// To whom the walk is limited. `None`: to nobody.
    limited: Option<Recent>,
    cost: PageCost,
}

impl Inner {
    /// A page of the ledger's rows alone.
    pub(super) async fn direct(&self, ask: &Ask, cost: PageCost) -> Result<(Page, PageCost)> {
        let now = self.clock.now();
        let scope = &self.options.scope;
        let (range, begin) = ask.range_from(now, scope.oldest(now))?;
        let _turn = self.turn().await?;
        Counts::add(&self.counts.direct, 1);
        let ties = self.ledger.ties(std::slice::from_ref(&ask.viewer)).await?.into_iter().next().unwrap_or_default();
        let mut names = ties.follows;
        let limited = ask.after.as_ref().and_then(|cursor| cursor.recent.clone());
        if let Some(limited) = &limited {
            names.retain(|name| limited.has(name));
        }
        let chooses = scope.limit_to_recent.filter(|limit| ask.after.is_none() && names.len() > *limit);
        if scope.own_posts {
            names.push(ask.viewer.clone());
        }
        names.sort_unstable();
        names.dedup();
        let order = ask.direction();
        let near = match order {
            // Who posted last counts, if only long ago.
            _ if chooses.is_some() => scope.oldest(now),
            Order::Newest if ask.after.is_none() => range.low.max(now.plus(-FIRST_LOOK_MS)),
            _ => range.low,
        };
        let mut source = FromLedger {
            feed: self,
            viewer: &ask.viewer,
            order,
            range: range.clone(),
            names,
            hidden: ties.hidden,
            sets: Vec::new(),
            from: near,
            limited,
            cost: PageCost { direct: true, ..cost },
        };
        loop {
            source.load(&begin, ask.limit + 1).await?;
            if let Some(limit) = chooses {
                source.choose(scope.oldest(now), limit);
            }
            let heads = source.heads();
            let walk = Walk::new(order, range.clone(), &begin, ask.limit + 1, heads);
            match walker::run(&mut source, walk, ask, &range, &begin).await {
                Ok(made) => {
                    let page = finish(ask, &range, made, source.limited.clone(), source.end());
                    let page = page.await.map_err(failed)?;
                    return Ok((page, source.cost));
                }
                // The page goes further back than the first look.
                Err(Stop::Again) if source.from > range.low => source.from = range.low,
                Err(stop) => return Err(failed(stop)),
            }
        }
    }
}

fn failed(stop: Stop) -> FeedError {
    match stop {
        Stop::Failed(error) => error,
        Stop::Again | Stop::Down => FeedError::Failed(crate::Error::Overloaded),
    }
}

impl FromLedger<'_> {
    /// Reads every set from `from` on; of each the entries that are nearest are kept.
    async fn load(&mut self, begin: &Edge, max: usize) -> Result<()> {
        self.sets.clear();
        for part in self.names.chunks(MAX_FEED_READS) {
            self.cost.ledger_reads += 1;
            let sets = self.feed.ledger.authors(part, self.from).await?;
            Counts::add(&self.feed.counts.authors_from_ledger, part.len());
            for mut set in sets {
                let newest = set.entries.first().map(|entry| entry.place.at);
                let newest = newest.or_else(|| set.oldest.map(|_| set.from.plus(-1)));
                if self.order == Order::Oldest {
                    set.entries.reverse();
                }
                set.entries.retain(|entry| is_beyond(self.order, begin, &entry.place));
                let is_whole = set.entries.len() <= max;
                set.entries.truncate(max);
                set.entries.shrink_to_fit();
                let (oldest, from, entries) = (set.oldest, set.from, set.entries);
                self.sets.push(Near { newest, oldest, from, entries, is_whole });
            }
        }
        Ok(())
    }

    /// Leaves those who posted last, and the viewer himself.
    fn choose(&mut self, oldest: Millis, limit: usize) {
        let newest =
            |at: &usize| self.sets[*at].newest.filter(|newest| *newest >= oldest && self.names[*at] != *self.viewer);
        let (at, heads): (Vec<usize>, Vec<Millis>) =
            (0..self.names.len()).filter_map(|at| newest(&at).map(|newest| (at, newest))).unzip();
        let Some(chosen) = recent(&heads, limit, |n| &self.names[at[n]]) else { return };
        self.limited = Some(Recent::of(chosen.iter().map(|n| &self.names[at[*n]])));
        let own = self.names.iter().position(|name| name == self.viewer);
        let stays: BTreeSet<usize> = chosen.into_iter().map(|n| at[n]).chain(own).collect();
        let all = std::mem::take(&mut self.names).into_iter().zip(std::mem::take(&mut self.sets));
        (self.names, self.sets) = all.enumerate().filter(|(at, _)| stays.contains(at)).map(|(_, one)| one).unzip();
    }

    fn heads(&self) -> Vec<(u32, Millis)> {
        let head = |(at, set): (usize, &Near)| Some((u32::try_from(at).ok()?, set.newest?));
        self.sets.iter().enumerate().filter_map(head).collect()
    }

    async fn posts(&self, ids: &[PostId]) -> Result<Vec<Option<Arc<StoredPost>>>> {
        let mut found = Vec::with_capacity(ids.len());
        for part in ids.chunks(MAX_FEED_READS) {
            found.extend(self.feed.ledger.posts(part).await?.into_iter().map(|post| post.map(Arc::new)));
        }
        Ok(found)
    }

    async fn reposts(&mut self, root: &PostId) -> Result<Vec<Repost>> {
        self.cost.ledger_reads += 1;
        let ledger = &self.feed.ledger;
        let (_, some) = ledger.reposts(root, None, MAX_WHOLE_REPOSTS + 1).await?;
        if some.len() <= MAX_WHOLE_REPOSTS {
            return Ok(some);
        }
        let mut found = Vec::new();
        for part in self.names.chunks(MAX_FEED_READS) {
            self.cost.ledger_reads += 1;
            found.extend(ledger.reposts_by(root, part).await?);
        }
        Ok(found)
    }
}

impl Source for FromLedger<'_> {
    type Author = u32;

    async fn read(&mut self, walk: &mut Walk<u32>, wants: Vec<Want<u32>>) -> std::result::Result<(), Stop> {
        for want in wants {
            let set = &self.sets[want.author as usize];
            let is_in = |entry: &&Entry| is_beyond(self.order, &want.beyond, &entry.place);
            let mut entries: Vec<Entry> = set.entries.iter().filter(is_in).take(want.max).cloned().collect();
            self.cost.sets += 1;
            let reaches_down = set.from <= self.range.low;
            // From the oldest on, what a set lacks comes first.
            if entries.len() >= want.max && (self.order == Order::Newest || reaches_down) {
                walk.told(&want, entries, true);
                continue;
            }
            if set.is_whole && reaches_down {
                walk.told(&want, entries, false);
                continue;
            }
            if !reaches_down && self.from > self.range.low {
                return Err(Stop::Again);
            }
            let name = &self.names[want.author as usize];
            self.cost.ledger_reads += 1;
            entries = self.feed.ledger.entries(name, self.order, &want.beyond, want.max.min(MAX_PART)).await?;
            let more = entries.len() == want.max;
            walk.told(&want, entries, more);
        }
        Ok(())
    }

    async fn is_really_the_end(&mut self, _: &mut Walk<u32>) -> std::result::Result<bool, Stop> {
        if self.from > self.range.low {
            return Err(Stop::Again);
        }
        Ok(true)
    }

    async fn look(&mut self, roots: &[Root<Self::Author>]) -> std::result::Result<Vec<Looked>, Stop> {
        self.cost.roots += roots.len() as u64;
        let roots: Vec<PostId> = roots.iter().map(|root| root.id.clone()).collect();
        let posts = self.posts(&roots).await?;
        let mut reposts: Map<PostId, Vec<Repost>> = Map::default();
        for (root, post) in roots.iter().zip(&posts) {
            if post.as_ref().is_some_and(|post| post.reposts > 0) {
                reposts.insert(root.clone(), self.reposts(root).await?);
            }
        }
        let place_of =
            |user: &UserId| (self.names.binary_search(user).is_ok(), self.hidden.binary_search(user).is_ok());
        let none = Vec::new();
        let look = |(root, post): (&PostId, &Option<Arc<StoredPost>>)| {
            see(self.viewer, post.as_ref(), reposts.get(root).unwrap_or(&none), place_of)
        };
        Ok(roots.iter().zip(&posts).map(look).collect())
    }

    async fn end(&mut self) -> std::result::Result<End, Stop> {
        if self.range.is_empty() || self.limited.is_some() {
            return Ok(End::Window);
        }
        let is_beyond = |set: &Near| match self.order {
            Order::Newest => set.oldest.is_some_and(|oldest| oldest < self.range.low),
            Order::Oldest => set.newest.is_some_and(|newest| Edge::Instant(newest) >= self.range.top),
        };
        Ok(if self.sets.iter().any(is_beyond) { End::Window } else { End::Complete })
    }

    /// Its rows are read at several moments, and nobody tells what happened between.
    fn is_lenient(&self) -> bool {
        true
    }
}
