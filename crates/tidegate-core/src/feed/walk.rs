//! Which parts of which authors' sets a page needs: the threshold algorithm (Fagin, Lotem and Naor 2001, "Optimal
//! aggregation algorithms for middleware", section 4), on one list for each author, sorted by time.
//!
//! The walk does no I/O: [`Walk::step`] says what to read next, [`Walk::told`] takes what was read, and entries come out in
//! the order of the page as soon as nothing unread can stand before them. An author's *head* is the newest instant at which
//! he can have a post; a head that is too new costs a read, one that is too old would lose posts.
//!
//! Whoever follows ten thousand pays for a heap of ten thousand pairs of 16 bytes; all else is made for those alone whose
//! sets are read.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::change::{Entry, is_beyond};
use super::place::{Edge, Order, Place, Range};
use crate::Millis;

/// Most sets that are read in one round of a walk from the oldest on: nothing tells there who begins.
const OLDEST_ROUND: usize = 512;
/// Of each author at least one entry in so many of those that are wanted at first.
const LEAST_PART: usize = 4;

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
    /// The next entry, and whose it is.
    Entry(Entry, A),
    /// There is no further one in the range.
    End,
}

/// What is unread of an author's set lies beyond this edge.
struct Frontier<A> {
    beyond: Edge,
    author: A,
    order: Order,
}

/// An entry that was read.
struct Met<A> {
    entry: Entry,
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
    ($kind:ident, $($by:ident).+) => {
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
                nearer(self.order, &self.$($by).+, &other.$($by).+)
            }
        }
    };
}
nearest_first!(Frontier, beyond);
nearest_first!(Met, entry.place);

/// A walk through the sets of many authors.
pub struct Walk<A> {
    order: Order,
    range: Range,
    begin: Edge,
    /// Entries still wanted.
    missing: usize,
    chunk: usize,
    /// Authors of whom nothing was read, by their heads, the newest first.
    heads: BinaryHeap<(i64, A)>,
    frontiers: BinaryHeap<Frontier<A>>,
    entries: BinaryHeap<Met<A>>,
    /// The place of the entry that was given last.
    last: Option<Place>,
    /// Reads that were asked for and not told.
    asked: usize,
}

impl<A: Copy + Ord> Walk<A> {
    /// A walk through `range` from `begin` on, for `wanted` entries at first. `heads`: everybody whose posts count, with the
    /// newest instant at which he can have one; those that have none at all may be left out.
    #[must_use]
    pub fn new(
        order: Order,
        range: Range,
        begin: &Edge,
        wanted: usize,
        heads: impl IntoIterator<Item = (A, Millis)>,
    ) -> Self {
        let wanted = wanted.max(1);
        let mut walk = Self {
            order,
            begin: begin.clone(),
            missing: wanted,
            chunk: wanted,
            heads: BinaryHeap::new(),
            frontiers: BinaryHeap::new(),
            entries: BinaryHeap::new(),
            last: None,
            asked: 0,
            range,
        };
        let pairs: Vec<(i64, A)> = if walk.range.is_empty() {
            Vec::new()
        } else {
            heads.into_iter().filter(|(_, head)| walk.counts(*head)).map(|(author, head)| (head.0, author)).collect()
        };
        walk.heads = BinaryHeap::from(pairs);
        walk
    }

    /// Whether an author with this head can have anything in the walk.
    fn counts(&self, head: Millis) -> bool {
        head >= self.range.low
            && match self.order {
                Order::Newest => true,
                Order::Oldest => Edge::Instant(head.plus(1)) > self.begin,
            }
    }

    /// An author's head has risen since the walk began: what he has beyond what was given already is given, too.
    pub fn raise(&mut self, author: A, head: Millis) {
        if !self.range.is_empty() && self.counts(head) {
            self.heads.push((head.0, author));
        }
    }

    /// Where the unread part of the first author in `heads` begins.
    fn first_head(&self) -> Option<Edge> {
        let (head, _) = self.heads.peek()?;
        let after = Edge::Instant(Millis(head.saturating_add(1)));
        Some(match self.order {
            Order::Newest if after < self.begin => after,
            _ => self.begin.clone(),
        })
    }

    /// Whether the first of `heads` is nearer than the first frontier; `None`: nothing is unread.
    fn head_is_next(&self) -> Option<(bool, Edge)> {
        match (self.first_head(), self.frontiers.peek()) {
            (None, None) => None,
            (Some(head), None) => Some((true, head)),
            (None, Some(frontier)) => Some((false, frontier.beyond.clone())),
            (Some(head), Some(frontier)) => Some(match nearer(self.order, &head, &frontier.beyond) {
                Ordering::Less => (false, frontier.beyond.clone()),
                _ => (true, head),
            }),
        }
    }

    /// What comes next. After a [`Step::Read`], every part must have been told.
    pub fn step(&mut self) -> Step<A> {
        debug_assert_eq!(self.asked, 0, "every part that was asked for is told before the next step");
        // A raised head may give what its author's older one gave.
        while self.entries.peek().is_some_and(|met| self.last.as_ref() == Some(&met.entry.place)) {
            self.entries.pop();
        }
        let unread = self.head_is_next().map(|(_, edge)| edge);
        let comes_first = |met: &Met<A>| match (&unread, self.order) {
            (None, _) => true,
            (Some(unread), Order::Newest) => *unread <= Edge::After(met.entry.place.clone()),
            (Some(unread), Order::Oldest) => *unread >= Edge::Before(met.entry.place.clone()),
        };
        if self.entries.peek().is_some_and(comes_first) {
            let met = self.entries.pop().expect("it was just seen");
            self.missing = self.missing.saturating_sub(1);
            self.last = Some(met.entry.place.clone());
            return Step::Entry(met.entry, met.author);
        }
        if unread.is_none() {
            return Step::End;
        }
        Step::Read(self.round())
    }

    /// Parts that may hold one of the entries that are missing: of the nearest authors as many as are missing, but none
    /// beyond the entry that would be the last of them already.
    ///
    /// Each head that was passed in the round is an entry before all of the authors behind it, so that of each of these fewer
    /// are asked for: about half of all. Some more than needed come where entries come to nothing, or heads are too new.
    fn round(&mut self) -> Vec<Want<A>> {
        let missing = self.missing.max(1);
        let last = self.last_of(missing);
        let most = match self.order {
            Order::Newest => missing,
            Order::Oldest => missing.max(OLDEST_ROUND),
        };
        let mut wants = Vec::new();
        let mut passed = 0;
        while wants.len() < most {
            let Some((is_head, beyond)) = self.head_is_next() else { break };
            let too_far = |last: &Place| match self.order {
                Order::Newest => beyond <= Edge::Before(last.clone()),
                Order::Oldest => beyond >= Edge::After(last.clone()),
            };
            if !wants.is_empty() && last.as_ref().is_some_and(too_far) {
                break;
            }
            let author = if is_head {
                self.heads.pop().expect("it was just seen").1
            } else {
                self.frontiers.pop().expect("it was just seen").author
            };
            let max = self.chunk.saturating_sub(passed).max(self.chunk.div_ceil(LEAST_PART));
            // Of a head before the walk's beginning nobody knows what there is behind that.
            if is_head && self.order == Order::Newest && beyond < self.begin {
                passed += 1;
            }
            wants.push(Want { author, beyond, max });
        }
        self.asked = wants.len();
        wants
    }

    /// The last of so many entries at hand, if there are as many.
    fn last_of(&self, count: usize) -> Option<Place> {
        if self.entries.len() < count {
            return None;
        }
        let mut places: Vec<&Place> = self.entries.iter().map(|met| &met.entry.place).collect();
        let (_, last, _) = places.select_nth_unstable_by(count - 1, |a, b| nearer(self.order, b, a));
        Some((*last).clone())
    }

    /// What was read of a part, the nearest first: no more than it said, whatever its range; `more`: whether the set may go
    /// on beyond the last of it.
    pub fn told(&mut self, want: &Want<A>, entries: Vec<Entry>, more: bool) {
        self.asked = self.asked.saturating_sub(1);
        let outside = |place: &Place| match self.order {
            Order::Newest => place.at < self.range.low,
            Order::Oldest => !self.range.top.is_above(place),
        };
        if let (true, Some(Entry { place: last, .. })) = (more, entries.last())
            && !outside(last)
        {
            let beyond = match self.order {
                Order::Newest => Edge::Before(last.clone()),
                Order::Oldest => Edge::After(last.clone()),
            };
            self.frontiers.push(Frontier { beyond, author: want.author, order: self.order });
        }
        let (order, author) = (self.order, want.author);
        let given = self.last.as_ref().map(|last| match order {
            Order::Newest => Edge::Before(last.clone()),
            Order::Oldest => Edge::After(last.clone()),
        });
        let counts = |entry: &Entry| {
            self.range.has(&entry.place) && given.as_ref().is_none_or(|given| is_beyond(order, given, &entry.place))
        };
        let kept = entries.into_iter().filter(counts);
        self.entries.extend(kept.map(|entry| Met { entry, author, order }));
    }

    /// An entry came to nothing: one more is wanted.
    pub fn miss(&mut self) {
        self.missing += 1;
    }
}

impl<A> std::fmt::Debug for Walk<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (unread, entries) = (self.heads.len() + self.frontiers.len(), self.entries.len());
        f.debug_struct("Walk")
            .field("missing", &self.missing)
            .field("unread", &unread)
            .field("entries", &entries)
            .finish()
    }
}
