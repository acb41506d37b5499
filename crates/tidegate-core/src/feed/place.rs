//! The order of posts in time, and the part of it that a page may show.

use std::cmp::Ordering;

use super::post::PostId;
use crate::Millis;

/// How far back a feed goes: seven days, milliseconds.
pub const WINDOW_MS: i64 = 7 * 86_400_000;

/// Where something stands: an instant, then the name of the post that put it there, by bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The instant.
    pub at: Millis,
    /// The post.
    pub post: PostId,
}

/// A cut between places: no place is equal to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edge {
    /// Just before every place of this instant.
    Instant(Millis),
    /// Just before this place.
    Before(Place),
    /// Just after this place.
    After(Place),
}

impl Edge {
    fn key(&self) -> (Millis, Option<&PostId>, bool) {
        match self {
            Self::Instant(at) => (*at, None, false),
            Self::Before(place) => (place.at, Some(&place.post), false),
            Self::After(place) => (place.at, Some(&place.post), true),
        }
    }

    /// Whether `place` is older than the cut.
    #[must_use]
    pub fn is_above(&self, place: &Place) -> bool {
        (place.at, Some(&place.post)) < (self.key().0, self.key().1)
            || matches!(self, Self::After(after) if after == place)
    }
}

impl PartialOrd for Edge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Edge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// In which direction a feed is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// From the newest back.
    #[default]
    Newest,
    /// From the oldest on.
    Oldest,
}

/// The places that a walk through a feed may show: from `low` on, below `top`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The oldest instant.
    pub low: Millis,
    /// The end.
    pub top: Edge,
}

impl Range {
    /// Whether `place` lies in it.
    #[must_use]
    pub fn has(&self, place: &Place) -> bool {
        place.at >= self.low && self.top.is_above(place)
    }

    /// Whether no place lies in it, as when all that was asked for has left the window.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.top <= Edge::Instant(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: i64, post: &str) -> Place {
        Place { at: Millis(at), post: PostId::parse(post).expect("an id") }
    }

    #[test]
    fn cuts_lie_between_places() {
        let b = place(5, "b");
        let edges = [
            Edge::Instant(Millis(5)),
            Edge::Before(place(5, "a")),
            Edge::After(place(5, "a")),
            Edge::Before(b.clone()),
            Edge::After(b.clone()),
            Edge::Instant(Millis(6)),
        ];
        assert!(edges.is_sorted());
        let above: Vec<bool> = edges.iter().map(|edge| edge.is_above(&b)).collect();
        assert_eq!(above, [false, false, false, false, true, true]);
        let range = Range { low: Millis(5), top: Edge::After(b.clone()) };
        assert!(range.has(&b) && range.has(&place(5, "a")));
        assert!(!range.has(&place(4, "z")) && !range.has(&place(5, "c")));
    }
}
