//! Which parts of which authors' sets a page needs: the threshold algorithm (Fagin, Lotem and Naor 2001, "Optimal
//! aggregation algorithms for middleware", section 4), on one list for each author, sorted by time.
//!
//! The walk does no I/O: [`Walk::step`] says what to read next, [`Walk::told`] takes what was read, and entries come out in
//! the order of the page as soon as nothing unread can stand before them. An author's *head* is the newest place that his
//! set can have; a head that is too new costs a read, one that is too old would lose posts.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::place::{Edge, Order, Place, Range};

/// Most sets that are read in one round of a walk from the oldest on: nothing tells there who begins.
const OLDEST_ROUND: usize = 512;

/// A part of an author's set to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want<A> {
    /// Whose.
    pub author: A,
    /// Entries beyond this, the nearest first.
    pub beyond: Edge,
    /// At most so many.
    pub max: usize,
}

/// What a walk needs or gives next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<A> {
    /// Read these, in any order, and tell; then go on.
    Read(Vec<Want<A>>),
    /// The next entry.
    Entry(Place, A),
    /// There is no further one in the range.
    End,
}

/// What is unread of an author's set lies beyond this edge.
struct Frontier<A> {
    beyond: Edge,
    author: A,
    order: Order,
}

struct Entry<A> {
    place: Place,
    author: A,
    order: Order,
}

fn nearer<T: Ord>(order: Order, a: &T, b: &T) -> Ordering {
    match order {
        Order::Newest => a.cmp(b),
        Order::Oldest => b.cmp(a),
    }
}

macro_rules! nearest_first {
    ($kind:ident, $by:ident) => {
        impl<A> PartialEq for $kind<A> {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other) == Ordering::Equal
            }
        }
        impl<A> Eq for $kind<A> {}
        impl<A> PartialOrd for $kind<A> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl<A> Ord for $kind<A> {
            fn cmp(&self, other: &Self) -> Ordering {
                nearer(self.order, &self.$by, &other.$by)
            }
        }
    };
}
nearest_first!(Frontier, beyond);
nearest_first!(Entry, place);

/// A walk through the sets of many authors.
pub struct Walk<A> {
    order: Order,
    range: Range,
    /// Entries still wanted.
    missing: usize,
    chunk: usize,
    frontiers: BinaryHeap<Frontier<A>>,
    entries: BinaryHeap<Entry<A>>,
    /// Reads that were asked for and not told.
    asked: usize,
}

impl<A: Copy> Walk<A> {
    /// A walk through `range` from `begin` on, for `wanted` entries at first. `heads`: everybody whose posts count, with the
    /// newest place that he can have; those that have none at all may be left out.
    #[must_use]
    pub fn new(
        order: Order,
        range: Range,
        begin: &Edge,
        wanted: usize,
        heads: impl IntoIterator<Item = (A, Place)>,
    ) -> Self {
        let mut frontiers = Vec::new();
        for (author, head) in heads {
            if head.at < range.low {
                continue;
            }
            let head = Edge::After(head);
            let beyond = match order {
                Order::Newest => head.min(begin.clone()),
                Order::Oldest if head <= *begin => continue,
                Order::Oldest => begin.clone(),
            };
            frontiers.push(Frontier { beyond, author, order });
        }
        let wanted = wanted.max(1);
        let (frontiers, entries) = (BinaryHeap::from(frontiers), BinaryHeap::new());
        Self { order, range, missing: wanted, chunk: wanted, frontiers, entries, asked: 0 }
    }

    /// What comes next. After a [`Step::Read`], every part must have been told.
    pub fn step(&mut self) -> Step<A> {
        debug_assert_eq!(self.asked, 0, "every part that was asked for is told before the next step");
        let unread = self.frontiers.peek().map(|frontier| &frontier.beyond);
        let comes_first = |entry: &Entry<A>| match (unread, self.order) {
            (None, _) => true,
            (Some(unread), Order::Newest) => *unread <= Edge::After(entry.place.clone()),
            (Some(unread), Order::Oldest) => *unread >= Edge::Before(entry.place.clone()),
        };
        if self.entries.peek().is_some_and(comes_first) {
            let entry = self.entries.pop().expect("it was just seen");
            self.missing = self.missing.saturating_sub(1);
            return Step::Entry(entry.place, entry.author);
        }
        if self.frontiers.is_empty() {
            return Step::End;
        }
        Step::Read(self.round())
    }

    /// Parts that may hold one of the entries that are missing: of the nearest authors as many as are missing, but none
    /// beyond the entry that would be the last of them already.
    fn round(&mut self) -> Vec<Want<A>> {
        let missing = self.missing.max(1);
        let last = self.last_of(missing);
        let most = match self.order {
            Order::Newest => missing,
            Order::Oldest => missing.max(OLDEST_ROUND),
        };
        let mut wants = Vec::new();
        while wants.len() < most {
            let Some(frontier) = self.frontiers.peek() else { break };
            let too_far = |last: &Place| match self.order {
                Order::Newest => frontier.beyond <= Edge::Before(last.clone()),
                Order::Oldest => frontier.beyond >= Edge::After(last.clone()),
            };
            if !wants.is_empty() && last.as_ref().is_some_and(too_far) {
                break;
            }
            let frontier = self.frontiers.pop().expect("it was just seen");
            wants.push(Want { author: frontier.author, beyond: frontier.beyond, max: self.chunk });
        }
        self.asked = wants.len();
        wants
    }

    /// The last of so many entries at hand, if there are as many.
    fn last_of(&self, count: usize) -> Option<Place> {
        if self.entries.len() < count {
            return None;
        }
        let mut places: Vec<&Place> = self.entries.iter().map(|entry| &entry.place).collect();
        let (_, last, _) = places.select_nth_unstable_by(count - 1, |a, b| nearer(self.order, b, a));
        Some((*last).clone())
    }

    /// What was read of a part, the nearest first: no more than it said, whatever its range; `more`: whether the set may go
    /// on beyond the last of it.
    pub fn told(&mut self, want: &Want<A>, places: Vec<Place>, more: bool) {
        self.asked = self.asked.saturating_sub(1);
        let outside = |place: &Place| match self.order {
            Order::Newest => place.at < self.range.low,
            Order::Oldest => !self.range.top.is_above(place),
        };
        let ends = places.last().is_none_or(outside);
        if more && !ends {
            let last = places.last().expect("it has not ended").clone();
            let beyond = match self.order {
                Order::Newest => Edge::Before(last),
                Order::Oldest => Edge::After(last),
            };
            self.frontiers.push(Frontier { beyond, author: want.author, order: self.order });
        }
        let order = self.order;
        let kept = places.into_iter().filter(|place| self.range.has(place));
        self.entries.extend(kept.map(|place| Entry { place, author: want.author, order }));
    }

    /// An entry came to nothing: one more is wanted.
    pub fn miss(&mut self) {
        self.missing += 1;
    }
}

impl<A> std::fmt::Debug for Walk<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (unread, entries) = (self.frontiers.len(), self.entries.len());
        f.debug_struct("Walk")
            .field("missing", &self.missing)
            .field("unread", &unread)
            .field("entries", &entries)
            .finish()
    }
}
