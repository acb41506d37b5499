//! Pages: from memory, from the store, or of the ledger's rows alone.

use std::sync::Arc;

use tidegate_core::Millis;
use tidegate_core::feed::{Ask, Edge, End, MAX_PAGE_ITEMS, Page, PostId, Range, Recent, UserId, Walk};

use super::from_store::FromStore;
use super::inner::{Counts, Inner};
use super::kept::{Kept, is_kept};
use super::mirror::Watch;
use super::options::{FeedError, PageCost, Result};
use super::walker::{self, Made, Source as _, Stop};

/// Times that a page is begun anew because of what happened meanwhile; the last one takes what it finds.
const MAX_BEGINNINGS: u64 = 6;

/// A page, once the walk has come to its end; `recent`: to whom it is limited; `end`: why there is none after it.
pub(super) async fn finish(
    ask: &Ask,
    range: &Range,
    mut made: Made,
    recent: Option<Recent>,
    end: impl Future<Output = std::result::Result<End, Stop>>,
) -> std::result::Result<Page, Stop> {
    let items = std::mem::take(&mut made.items);
    let next = match (items.last(), made.first.take()) {
        (Some(last), Some(first)) if made.more => Ok(ask.cursor(range, &first, last.place(), recent)),
        _ => Err(end.await?),
    };
    Ok(Page { items, next })
}

impl Inner {
    /// A page, and what it cost.
    pub(super) async fn page(&self, ask: &Ask) -> Result<(Arc<Page>, PageCost)> {
        if !(1..=MAX_PAGE_ITEMS).contains(&ask.limit) {
            return Err(FeedError::Invalid(format!("a page has 1 to {MAX_PAGE_ITEMS} items")));
        }
        if is_kept(ask)
            && let Some(page) = self.kept_page(ask).await
        {
            return Ok((page, PageCost { kept: true, ..PageCost::default() }));
        }
        Counts::add(&self.counts.made, 1);
        let mut cost = PageCost::default();
        while self.store.is_some() && !self.owed.is_overflowed() && self.health.may_ask() {
            match self.by_store(ask, &mut cost).await {
                Ok(page) => return Ok((page, cost)),
                Err(Stop::Again) if cost.restarts < MAX_BEGINNINGS => cost.restarts += 1,
                Err(Stop::Again | Stop::Down) => break,
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        let (page, cost) = self.direct(ask, cost).await?;
        Ok((Arc::new(page), cost))
    }

    async fn by_store(&self, ask: &Ask, cost: &mut PageCost) -> std::result::Result<Arc<Page>, Stop> {
        let now = self.clock.now();
        let oldest_shown = self.options.scope.oldest(now);
        let (range, begin) = ask.range_from(now, oldest_shown).map_err(FeedError::from)?;
        let (point, owner) = self.mirror.number(&ask.viewer);
        let circle = FromStore::circle(self, &ask.viewer, point, owner, cost).await?;
        let mut source = FromStore {
            feed: self,
            viewer: &ask.viewer,
            point,
            owner,
            followed: Arc::clone(&circle),
            circle,
            recent: ask.after.as_ref().and_then(|cursor| cursor.recent.clone()),
            order: ask.direction(),
            window: oldest_shown,
            seq: 0,
            is_first: !range.is_empty(),
            lenient: cost.restarts >= MAX_BEGINNINGS - 1,
            has_future: false,
            has_absent: false,
            cost: *cost,
            range: range.clone(),
        };
        let made = Self::walk(&mut source, ask, &begin).await;
        *cost = source.cost;
        let made = made?;
        let (last, watched) = (made.last, is_kept(ask).then(|| watched(&made)));
        let (more, oldest) = (made.more, made.oldest);
        let recent = source.recent.clone();
        let page = finish(ask, &range, made, recent, source.end()).await;
        *cost = source.cost;
        let page = Arc::new(page?);
        if let Some((looked_at, authors)) = watched
            && !source.has_absent
            && !source.has_future
        {
            let authors: Vec<&UserId> = authors.iter().collect();
            let watch = Watch {
                point,
                owner,
                circle: Arc::clone(&source.followed),
                last: last.filter(|_| more),
                looked_at,
                authors: self.mirror.sorted_numbers(point, &authors)?,
            };
            let until = oldest.map_or(Millis(i64::MAX), |oldest| oldest.plus(self.options.scope.window_ms));
            self.keep(ask, Kept::new(Arc::clone(&page), source.seq, watch, until));
        }
        Ok(page)
    }

    async fn walk(source: &mut FromStore<'_>, ask: &Ask, begin: &Edge) -> std::result::Result<Made, Stop> {
        let heads = source.begin(ask.after.is_none()).await?;
        if let Edge::Instant(top) = source.range.top {
            source.has_future = heads.iter().any(|(_, newest)| *newest >= top);
        }
        let range = source.range.clone();
        let walk = Walk::new(source.order, range.clone(), begin, ask.limit + 1, heads);
        walker::run(source, walk, ask, &range, begin).await
    }
}

/// The posts that a page depends on, sorted, and who wrote its roots.
fn watched(made: &Made) -> (Vec<PostId>, Vec<UserId>) {
    let mut posts: Vec<PostId> = made.met.iter().chain(made.looked.keys()).cloned().collect();
    posts.sort_unstable();
    posts.dedup();
    let authors = made.looked.values().filter_map(|looked| looked.author.clone()).collect();
    (posts, authors)
}
