//! A walk made into a page, wherever its sets and posts come from.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_core::Map;
use tidegate_core::Millis;
use tidegate_core::feed::{
    Ask, Edge, End, Entry, Item, Order, Place, Post, PostId, Range, Reason, Repost, Step, StoredPost, UserId, Walk,
    Want, is_visible, item_of, reasons_within,
};

use super::options::FeedError;

/// Why a page came to nothing so far.
#[derive(Debug)]
pub(super) enum Stop {
    /// What was learned counts no more: begin anew.
    Again,
    /// The store does not answer.
    Down,
    /// There will be no page.
    Failed(FeedError),
}

impl From<super::mirror::Stale> for Stop {
    fn from(_: super::mirror::Stale) -> Self {
        Self::Again
    }
}

impl From<FeedError> for Stop {
    fn from(error: FeedError) -> Self {
        Self::Failed(error)
    }
}

impl From<tidegate_backend::Error> for Stop {
    fn from(error: tidegate_backend::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A root as its viewer sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct Looked {
    /// `None`: it is gone, or not to be seen.
    pub(super) root: Option<Post>,
    /// Who wrote it, if it is there.
    pub(super) author: Option<UserId>,
    /// Every reason for it that he sees; the newest first, once they are those of a range.
    pub(super) reasons: Vec<Reason>,
}

impl Looked {
    /// The same with the reasons of a range alone, in their order.
    fn within(self, range: &Range) -> Self {
        Self { reasons: reasons_within(self.reasons, range), ..self }
    }
}

/// A root that is looked at.
#[derive(Debug, Clone)]
pub(super) struct Root<A> {
    pub(super) id: PostId,
    /// Whose sets have it, and where: it is there, or was a moment ago. In none: it is known by its reposts alone.
    pub(super) listed: Vec<(A, Millis)>,
}

/// Where sets and posts come from.
pub(super) trait Source: Send {
    /// Whose sets are read.
    type Author: Copy + Ord + Send + Sync;
    /// Reads parts and tells the walk.
    fn read(
        &mut self,
        walk: &mut Walk<Self::Author>,
        wants: Vec<Want<Self::Author>>,
    ) -> impl Future<Output = Result<(), Stop>> + Send;
    /// The walk has come to its end: whether it goes on for all that.
    fn is_really_the_end(&mut self, walk: &mut Walk<Self::Author>) -> impl Future<Output = Result<bool, Stop>> + Send;
    /// Looks at roots, in order.
    fn look(&mut self, roots: &[Root<Self::Author>]) -> impl Future<Output = Result<Vec<Looked>, Stop>> + Send;
    /// Why there is no further page.
    fn end(&mut self) -> impl Future<Output = Result<End, Stop>> + Send;
    /// Whether reasons that the walk has not met where it passed are left out, instead of beginning anew.
    fn is_lenient(&self) -> bool;
}

/// What a walk came to.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) items: Vec<Item>,
    /// There is a further item.
    pub(super) more: bool,
    /// The first place that was met.
    pub(super) first: Option<Place>,
    /// The instant of the last one that was looked at.
    pub(super) last: Option<Millis>,
    /// The oldest instant that says something about the page.
    pub(super) oldest: Option<Millis>,
    /// Posts that were looked at.
    pub(super) met: HashSet<PostId>,
    /// Their roots.
    pub(super) looked: Map<PostId, Looked>,
}

impl Made {
    fn met(&mut self, place: &Place) {
        self.first.get_or_insert_with(|| place.clone());
        self.last = Some(place.at);
        self.older(place.at);
        self.met.insert(place.post.clone());
    }

    fn older(&mut self, at: Millis) {
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
    }

    /// The item that an entry stands for, if it is one.
    fn judge(&mut self, entry: &Entry, order: Order, begin: &Edge, lenient: bool) -> Result<Option<Item>, Stop> {
        let place = &entry.place;
        let Some(looked) = self.looked.get(entry.root.as_ref().unwrap_or(&place.post)) else { return Ok(None) };
        let Some(root) = &looked.root else { return Ok(None) };
        // A root may have thousands of reasons, and an entry for each: most of them see at the first that they stand for nothing.
        let mut newest = 0;
        for reason in &looked.reasons {
            let at = reason.place();
            // The walk would have met it, had it been there from the beginning.
            let passed = order == Order::Newest && at > *place && begin.is_above(&at);
            if !passed || self.met.contains(&at.post) {
                break;
            }
            if !lenient {
                return Err(Stop::Again);
            }
            newest += 1;
        }
        let reasons = &looked.reasons[newest..];
        let Some(oldest) = reasons.last().map(|reason| reason.at) else { return Ok(None) };
        let item = item_of(place, root, reasons);
        self.older(oldest);
        Ok(item)
    }
}

/// Walks until a page of `limit` items is full and it is known whether there is a further one.
pub(super) async fn run<S: Source>(
    source: &mut S,
    mut walk: Walk<S::Author>,
    ask: &Ask,
    range: &Range,
    begin: &Edge,
) -> Result<Made, Stop> {
    let mut made = Made::default();
    let mut pending: Vec<(Entry, S::Author)> = Vec::with_capacity(ask.limit + 1);
    loop {
        if made.items.len() + pending.len() <= ask.limit {
            match walk.step() {
                Step::Read(wants) => {
                    source.read(&mut walk, wants).await?;
                    continue;
                }
                Step::Entry(entry, author) => {
                    pending.push((entry, author));
                    continue;
                }
                Step::End if !source.is_really_the_end(&mut walk).await? => continue,
                Step::End => {}
            }
        }
        if pending.is_empty() {
            return Ok(made);
        }
        let mut roots: Vec<Root<S::Author>> = Vec::with_capacity(pending.len());
        for (entry, author) in &pending {
            let id = entry.root.as_ref().unwrap_or(&entry.place.post);
            let listed = entry.root.is_none().then_some((*author, entry.place.at));
            if made.looked.contains_key(id) {
                continue;
            }
            match roots.iter_mut().find(|root| root.id == *id) {
                Some(root) => root.listed.extend(listed),
                None => roots.push(Root { id: id.clone(), listed: listed.into_iter().collect() }),
            }
        }
        let looked = source.look(&roots).await?;
        let looked = looked.into_iter().map(|looked| looked.within(range));
        made.looked.extend(roots.into_iter().map(|root| root.id).zip(looked));
        for (entry, _) in pending.drain(..) {
            made.met(&entry.place);
            match made.judge(&entry, ask.direction(), begin, source.is_lenient())? {
                None => walk.miss(),
                Some(_) if made.items.len() == ask.limit => {
                    made.more = true;
                    return Ok(made);
                }
                Some(item) => made.items.push(item),
            }
        }
    }
}

/// A root and its reposts as a viewer sees them. `place_of`: whether somebody's posts are in his feed, and whether the two
/// are hidden from each other.
pub(super) fn see(
    viewer: &UserId,
    stored: Option<&Arc<StoredPost>>,
    reposts: &[Repost],
    place_of: impl Fn(&UserId) -> (bool, bool),
) -> Looked {
    let Some(stored) = stored else { return Looked::default() };
    let root = &stored.post;
    let author = Some(root.author.clone());
    let (is_source, is_hidden) = place_of(&root.author);
    if is_hidden || !is_visible(viewer, &root.author, root.visibility) {
        return Looked { author, ..Looked::default() };
    }
    let mut reasons = Vec::with_capacity(1 + reposts.len().min(64));
    if is_source {
        reasons.push(Reason { user: root.author.clone(), at: root.published_at, post: root.id.clone() });
    }
    for repost in reposts {
        let (is_source, is_hidden) = place_of(&repost.user);
        if is_source && !is_hidden && is_visible(viewer, &repost.user, repost.visibility) {
            reasons.push(Reason { user: repost.user.clone(), at: repost.at, post: repost.post.clone() });
        }
    }
    Looked { root: Some(root.clone()), author, reasons }
}
