//! The newest changes, in the order in which this process heard of them.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_core::Millis;
use tidegate_core::feed::{PostId, UserId};

use super::{Circle, Mirror, Point, Stale, UNKNOWN};

/// So many are remembered. A page that was not looked at for longer is made anew.
const MAX_LOG: usize = 65_536;
/// After an author's floor pages with him are not kept for so long, milliseconds: what he changed is not said, and copies of
/// his posts live for a second at most.
const QUIET_MS: i64 = 2_000;
/// More floors at once, and no page is kept.
const MAX_FLOORS: usize = 4_096;

/// What happened.
#[derive(Debug)]
pub(super) enum Happened {
    /// An author's posts changed. No number: he has none yet.
    Posts {
        author: Option<u32>,
        /// The newest of new ones.
        added: Option<Millis>,
        /// Some were deleted.
        removed: bool,
        touched: Arc<[PostId]>,
    },
    /// An author's posts changed, nobody says how.
    Floor(u32),
    /// A user's ties.
    Ties(u32),
    /// A root's reposts.
    Root(PostId),
}

#[derive(Debug, Default)]
pub(super) struct Log {
    /// The number of the first one that is remembered.
    first: u64,
    happened: VecDeque<Happened>,
    floors: VecDeque<(u32, i64)>,
    /// Until when no page is kept.
    quiet_until: i64,
}

impl Log {
    /// The number of the next one.
    pub(super) fn seq(&self) -> u64 {
        self.first + self.happened.len() as u64
    }

    pub(super) fn push(&mut self, happened: Happened, now: i64) {
        if let Happened::Floor(author) = &happened {
            while self.floors.front().is_some_and(|(_, at)| *at + QUIET_MS < now) {
                self.floors.pop_front();
            }
            if self.floors.len() >= MAX_FLOORS {
                self.floors.clear();
                self.quiet_until = now + QUIET_MS;
            }
            self.floors.push_back((*author, now));
        }
        if self.happened.len() >= MAX_LOG {
            self.happened.pop_front();
            self.first += 1;
        }
        self.happened.push_back(happened);
    }

    /// What was kept before this is of no use.
    pub(super) fn forget(&mut self) {
        self.first = self.seq() + 1;
        self.happened.clear();
        self.floors.clear();
    }

    /// What happened from a number on; `None`: some of it is forgotten.
    fn since(&self, seq: u64) -> Option<impl Iterator<Item = &Happened>> {
        let at = seq.checked_sub(self.first)?;
        Some(self.happened.range(usize::try_from(at).ok()?.min(self.happened.len())..))
    }
}

/// What happened to a circle since it was scanned.
#[derive(Debug)]
pub(in crate::feed) struct Since {
    /// The log's number now.
    pub(in crate::feed) seq: u64,
    /// Authors that may have new posts, and the newest instant of them.
    pub(in crate::feed) raised: Vec<(u32, Millis)>,
    /// The circle itself has changed.
    pub(in crate::feed) other_ties: bool,
}

/// What a kept page depends on.
#[derive(Debug)]
pub(in crate::feed) struct Watch {
    pub(in crate::feed) point: Point,
    pub(in crate::feed) owner: u32,
    pub(in crate::feed) circle: Arc<Circle>,
    /// Nothing older than this matters; `None`: all does, since the page has an end.
    pub(in crate::feed) last: Option<Millis>,
    /// Posts and roots that were looked at; sorted.
    pub(in crate::feed) looked_at: Vec<PostId>,
    /// Who wrote the roots; sorted.
    pub(in crate::feed) authors: Vec<u32>,
}

impl Watch {
    fn minds(&self, happened: &Happened) -> bool {
        match happened {
            Happened::Ties(user) => *user == self.owner,
            Happened::Root(root) => self.looked_at.binary_search(root).is_ok(),
            Happened::Floor(author) => self.circle.has(*author) || self.authors.binary_search(author).is_ok(),
            Happened::Posts { author, added, removed, touched } => {
                let is_newer = |at: Millis| self.last.is_none_or(|last| at >= last);
                let is_source = || author.is_some_and(|author| self.circle.has(author));
                touched.iter().any(|post| self.looked_at.binary_search(post).is_ok())
                    || (added.is_some_and(is_newer) || *removed && self.last.is_none()) && is_source()
            }
        }
    }
}

impl Mirror {
    /// What happened to a circle since `seq`.
    pub(in crate::feed) fn since(&self, point: Point, owner: u32, circle: &Circle, seq: u64) -> Result<Since, Stale> {
        let state = self.read();
        state.at(point)?;
        let mut since = Since { seq: state.log.seq(), raised: Vec::new(), other_ties: false };
        if since.seq == seq {
            return Ok(since);
        }
        for happened in state.log.since(seq).ok_or(Stale)? {
            match happened {
                Happened::Posts { author: Some(author), added: Some(_), .. } | Happened::Floor(author)
                    if circle.has(*author) =>
                {
                    // Unknown: as if he had posted just now.
                    since.raised.push((*author, Millis(state.newest[*author as usize].min(UNKNOWN - 1))));
                }
                Happened::Ties(user) if *user == owner => {
                    since.other_ties = circle.version < state.ties[owner as usize]
                }
                _ => {}
            }
        }
        Ok(since)
    }

    /// Whether a page that depends on this is as it was at `seq`; until which number.
    pub(in crate::feed) fn is_unchanged(&self, watch: &Watch, seq: u64) -> Option<u64> {
        let state = self.read();
        state.at(watch.point).ok()?;
        let now = state.log.seq();
        let changed = state.log.since(seq)?.any(|happened| watch.minds(happened));
        (!changed).then_some(now)
    }

    /// Whether a page that depends on this may be kept.
    pub(in crate::feed) fn may_keep(&self, watch: &Watch) -> bool {
        let state = self.read();
        let now = self.ticks.now();
        let is_of_it = |author: u32| watch.circle.has(author) || watch.authors.binary_search(&author).is_ok();
        let recent = |at: i64| at + QUIET_MS >= now;
        state.log.quiet_until <= now && !state.log.floors.iter().any(|(author, at)| recent(*at) && is_of_it(*author))
    }

    /// Users that wrote roots, as numbers; `None`: not all of them have one, so changes of theirs may have been missed.
    pub(in crate::feed) fn sorted_numbers(&self, point: Point, users: &[&UserId]) -> Result<Vec<u32>, Stale> {
        let mut numbers = self.numbers(point, users)?;
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}
