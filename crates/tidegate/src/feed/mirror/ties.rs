//! Whom a user follows and from whom he is hidden, as numbers.

use std::sync::Arc;

use tidegate_core::feed::{Recent, Ties, UserId, Version, What};

use super::{Mirror, Point, Stale, State};

/// A user, whom he follows, and from whom he is hidden.
#[derive(Debug)]
pub(in crate::feed) struct Circle {
    pub(super) point: Point,
    /// The version of his ties.
    pub(in crate::feed) version: Version,
    /// Those whose posts are in his feed, himself among them unless the feed leaves one's own posts out; sorted.
    sources: Vec<u32>,
    /// Sorted.
    hidden: Vec<u32>,
}

impl Circle {
    /// Those whose posts are in his feed.
    pub(in crate::feed) fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// Whether somebody's posts are in his feed.
    pub(in crate::feed) fn has(&self, number: u32) -> bool {
        self.sources.binary_search(&number).is_ok()
    }

    /// The same with these of his sources alone.
    pub(in crate::feed) fn only(&self, mut sources: Vec<u32>) -> Self {
        sources.sort_unstable();
        Self { point: self.point, version: self.version, sources, hidden: self.hidden.clone() }
    }

    /// Whether he and somebody are hidden from each other.
    pub(in crate::feed) fn hides(&self, number: u32) -> bool {
        self.hidden.binary_search(&number).is_ok()
    }
}

/// Bytes of a circle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight;

impl quick_cache::Weighter<u32, Arc<Circle>> for Weight {
    fn weight(&self, _: &u32, circle: &Arc<Circle>) -> u64 {
        128 + 4 * (circle.sources.len() + circle.hidden.len()) as u64
    }
}

fn change(list: &[u32], add: &[u32], mut remove: Vec<u32>) -> Vec<u32> {
    remove.sort_unstable();
    let stays = |number: &&u32| remove.binary_search(number).is_err();
    let mut changed: Vec<u32> = list.iter().filter(stays).copied().collect();
    changed.extend_from_slice(add);
    changed.sort_unstable();
    changed.dedup();
    changed
}

impl State {
    fn circle(&mut self, owner: u32, ties: &Ties, own_posts: bool) -> Circle {
        let mut numbers = |names: &[UserId]| names.iter().map(|name| self.intern(name)).collect::<Vec<u32>>();
        let (mut sources, mut hidden) = (numbers(&ties.follows), numbers(&ties.hidden));
        if own_posts {
            sources.push(owner);
        }
        sources.sort_unstable();
        sources.dedup();
        hidden.sort_unstable();
        Circle { point: self.point(), version: ties.version, sources, hidden }
    }
}

impl Mirror {
    /// A user's circle, if it is known.
    pub(in crate::feed) fn circle(&self, point: Point, owner: u32) -> Option<Arc<Circle>> {
        self.circles.get(&owner).filter(|circle| circle.point == point)
    }

    /// The version below which a user's ties are too old.
    pub(in crate::feed) fn ties_floor(&self, point: Point, owner: u32) -> Result<Version, Stale> {
        let state = self.read();
        state.at(point)?;
        Ok(state.ties[owner as usize])
    }

    /// A circle limited to some of those who are followed; its owner stays.
    pub(in crate::feed) fn limited(
        &self,
        point: Point,
        owner: u32,
        circle: &Circle,
        recent: &Recent,
    ) -> Result<Circle, Stale> {
        let state = self.read();
        if state.epoch != point.epoch {
            return Err(Stale);
        }
        let stays = |number: &u32| *number == owner || recent.has(&state.names[*number as usize]);
        Ok(circle.only(circle.sources.iter().copied().filter(stays).collect()))
    }

    /// Learns ties that were read at `point`.
    pub(in crate::feed) fn learn_ties(&self, point: Point, owner: u32, ties: &Ties) -> Result<Arc<Circle>, Stale> {
        let mut state = self.write();
        self.make_room(&mut state, ties.follows.len() + ties.hidden.len());
        state.at(point)?;
        let circle = Arc::new(state.circle(owner, ties, self.own_posts));
        if ties.version >= state.ties[owner as usize] {
            self.circles.insert(owner, Arc::clone(&circle));
        }
        Ok(circle)
    }

    /// A user's ties have changed; `own`: how, if that is known.
    pub(super) fn ties_changed(
        &self,
        state: &mut State,
        owner: u32,
        prev: Version,
        version: Version,
        own: Option<&What>,
    ) {
        let point = state.point();
        let Some(circle) = self.circles.get(&owner).filter(|circle| circle.point == point) else { return };
        if circle.version >= version {
            return;
        }
        match own {
            Some(What::Ties { follow, unfollow, hide, show, .. }) if circle.version == prev => {
                let mut numbers = |names: &[UserId]| names.iter().map(|name| state.intern(name)).collect::<Vec<u32>>();
                let [follow, unfollow, hide, show] = [follow, unfollow, hide, show].map(|names| numbers(names));
                let sources = change(&circle.sources, &follow, unfollow);
                let hidden = change(&circle.hidden, &hide, show);
                self.circles.insert(owner, Arc::new(Circle { point, version, sources, hidden }));
            }
            _ => drop(self.circles.remove(&owner)),
        }
    }
}
