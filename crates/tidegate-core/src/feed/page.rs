//! What is asked of a feed, what comes back, and how an entry of an author's set becomes an item.

use super::place::{Edge, Order, Place, Range, WINDOW_MS};
use super::post::{Post, PostId, UserId};
use super::scope::Recent;
use crate::Millis;

/// Most items of a page.
pub const MAX_PAGE_ITEMS: usize = 100;
/// Most reasons that an item shows; all are counted.
pub const MAX_SHOWN_REASONS: usize = 20;

/// A page that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Whose feed.
    pub viewer: UserId,
    /// The direction.
    pub order: Order,
    /// Nothing before this instant.
    pub since: Option<Millis>,
    /// Nothing at this instant or after it.
    pub until: Option<Millis>,
    /// Most items, `1..=MAX_PAGE_ITEMS`.
    pub limit: usize,
    /// Where the page before ended; then `order`, `since` and `until` are its.
    pub after: Option<Cursor>,
}

/// Where a page ended, and what its walk began with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The walk's direction.
    pub order: Order,
    /// What was asked for at first.
    pub since: Option<Millis>,
    /// The end of the walk's range, fixed by its first page: what was posted since is on a new first page.
    pub top: Edge,
    /// The last place that was shown.
    pub position: Place,
    /// To whom the walk is limited. `None`: it is not.
    pub recent: Option<Recent>,
}

/// The cursor's place has left the window: begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorExpired;

/// Why an item is in a feed: the publication of its root, or a repost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// Whose.
    pub user: UserId,
    /// When.
    pub at: Millis,
    /// The post that it is: the root or a repost.
    pub post: PostId,
}

impl Reason {
    /// Where it stands.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { at: self.at, post: self.post.clone() }
    }
}

/// A root in a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The root.
    pub root: Post,
    /// The newest reasons, newest first, up to [`MAX_SHOWN_REASONS`].
    pub reasons: Vec<Reason>,
    /// How many there are.
    pub reason_count: usize,
}

impl Item {
    /// Where it stands: at its newest reason.
    #[must_use]
    pub fn place(&self) -> Place {
        // An item has a reason.
        self.reasons
            .first()
            .map_or_else(|| Place { at: self.root.published_at, post: self.root.id.clone() }, Reason::place)
    }
}

/// Why there is no further page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// None of those who are followed has a post beyond it.
    Complete,
    /// They have, but beyond what a feed shows, or beyond what was asked for, or the feed leaves some of them out. Also:
    /// nothing of what was asked for is within what a feed shows.
    Window,
}

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// As many as were asked for, or all that are left.
    pub items: Vec<Item>,
    /// Where the next page begins, or why there is none.
    pub next: Result<Cursor, End>,
}

impl Ask {
    /// The part of time that the page's walk may show, and the edge at which this page begins.
    ///
    /// # Errors
    /// [`CursorExpired`].
    pub fn range(&self, now: Millis) -> Result<(Range, Edge), CursorExpired> {
        self.range_from(now, now.plus(-WINDOW_MS))
    }

    /// The same, of a feed whose window begins at `oldest`.
    ///
    /// # Errors
    /// [`CursorExpired`].
    pub fn range_from(&self, now: Millis, oldest: Millis) -> Result<(Range, Edge), CursorExpired> {
        let since = self.after.as_ref().map_or(self.since, |cursor| cursor.since);
        let low = since.map_or(oldest, |since| since.max(oldest));
        let Some(cursor) = &self.after else {
            let end = now.plus(1);
            let top = Edge::Instant(self.until.map_or(end, |until| until.min(end)));
            let begin = match self.order {
                Order::Newest => top.clone(),
                Order::Oldest => Edge::Instant(low),
            };
            return Ok((Range { low, top }, begin));
        };
        if cursor.position.at < oldest {
            return Err(CursorExpired);
        }
        let begin = match cursor.order {
            Order::Newest => Edge::Before(cursor.position.clone()),
            Order::Oldest => Edge::After(cursor.position.clone()),
        };
        Ok((Range { low, top: cursor.top.clone() }, begin))
    }

    /// The walk's direction.
    #[must_use]
    pub fn direction(&self) -> Order {
        self.after.as_ref().map_or(self.order, |cursor| cursor.order)
    }

    /// The cursor behind `last`, the last item of a page of this walk; `newest`: the first place that the walk met; `recent`:
    /// to whom its first page is limited.
    ///
    /// The walk's end is fixed as narrowly as it can be: at the newest place there was. So a repost that comes after the
    /// first page, in the same millisecond even, is not taken for one that was shown.
    #[must_use]
    pub fn cursor(&self, range: &Range, newest: &Place, last: Place, recent: Option<Recent>) -> Cursor {
        let top = match (&self.after, self.order) {
            (Some(cursor), _) => cursor.top.clone(),
            (None, Order::Newest) => Edge::After(newest.clone()),
            (None, Order::Oldest) => range.top.clone(),
        };
        let since = self.after.as_ref().map_or(self.since, |cursor| cursor.since);
        let recent = self.after.as_ref().map_or(recent, |cursor| cursor.recent.clone());
        Cursor { order: self.direction(), since, top, position: last, recent }
    }
}

/// Those of `reasons` that lie in a range, the newest first.
#[must_use]
pub fn reasons_within(mut reasons: Vec<Reason>, range: &Range) -> Vec<Reason> {
    reasons.retain(|reason| range.has(&reason.place()));
    reasons.sort_by_cached_key(|reason| std::cmp::Reverse(reason.place()));
    reasons
}

/// The item that an entry at `place` stands for, if it is the one: `root` as the viewer sees it, and every reason for it that
/// he sees, as [`reasons_within`] gives them. An entry whose root has a newer reason stands for nothing: that one does.
#[must_use]
pub fn item_of(place: &Place, root: &Post, reasons: &[Reason]) -> Option<Item> {
    if reasons.first()?.place() != *place {
        return None;
    }
    let shown = reasons[..reasons.len().min(MAX_SHOWN_REASONS)].to_vec();
    Some(Item { root: root.clone(), reasons: shown, reason_count: reasons.len() })
}
