//! What a process knows of authors in short, and of whom its viewers follow: names as numbers, heads in dense arrays, and
//! the newest changes in a log, so that a page knows in no time that nothing happened to it.
//!
//! - A head counts while its author is *known*: it was read at some version, and every change since was applied. A change
//!   that does not fit makes him unknown; his version stays as a floor, below which nothing may be learned.
//! - What was lost makes everybody unknown. Once there are too many names all are forgotten: numbers from before are of
//!   another *epoch*, and whoever holds some begins anew.

mod apply;
mod log;
mod ties;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use quick_cache::sync::Cache;
use tidegate_core::feed::{End, Head, Order, UserId, Version};
use tidegate_core::{Map, Millis, Set};

use super::health::Ticks;
use log::Log;
pub(super) use log::Watch;
pub(super) use ties::Circle;
use ties::Weight;

/// In `newest`: nothing is known of the author.
const UNKNOWN: i64 = i64::MAX;
/// In `newest`: he has no post that a feed can show.
const NONE: i64 = i64::MIN;
/// In `oldest`: he has none at all.
const NO_OLDEST: i64 = i64::MAX;

/// What was learned counts no more: begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stale;

/// At which epoch and loss something was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    epoch: u64,
    lost: u64,
}

/// Heads of a circle.
#[derive(Debug)]
pub(super) struct Scan {
    /// The log's number before.
    pub(super) seq: u64,
    /// Those that may have something in the range.
    pub(super) heads: Vec<(u32, Millis)>,
    /// Those of whom nothing is known.
    pub(super) unknown: Vec<u32>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    lost: u64,
    numbers: Map<UserId, u32>,
    names: Vec<UserId>,
    newest: Vec<i64>,
    oldest: Vec<i64>,
    /// The version of the head, or a floor if he is unknown.
    version: Vec<Version>,
    /// Changes of authors' posts by this process that are in the log: the news will tell them once more.
    own: Set<(u32, Version)>,
    /// The newest version of his ties that was heard of.
    ties: Vec<Version>,
    log: Log,
}

pub(super) struct Mirror {
    state: RwLock<State>,
    /// The log's next number.
    seq: AtomicU64,
    circles: Cache<u32, std::sync::Arc<Circle>, Weight>,
    max_names: usize,
    own_posts: bool,
    ticks: Ticks,
}

impl State {
    fn point(&self) -> Point {
        Point { epoch: self.epoch, lost: self.lost }
    }

    fn at(&self, point: Point) -> Result<(), Stale> {
        if self.point() == point { Ok(()) } else { Err(Stale) }
    }

    fn intern(&mut self, name: &UserId) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // `max_names` fits 32 bits.
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.clone(), number);
        self.names.push(name.clone());
        self.newest.push(UNKNOWN);
        self.oldest.push(NO_OLDEST);
        self.version.push(0);
        self.ties.push(0);
        number
    }
}

impl Mirror {
    pub(super) fn new(max_names: usize, follow_cache_bytes: usize, own_posts: bool, ticks: Ticks) -> Self {
        let circles = Cache::with_weighter(1_024, follow_cache_bytes as u64, Weight);
        let max_names = max_names.clamp(1, u32::MAX as usize - 1);
        Self { state: RwLock::default(), seq: AtomicU64::new(0), circles, max_names, own_posts, ticks }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log's next number: while it stays, nothing has happened.
    #[inline]
    pub(super) fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// A user's number, now.
    pub(super) fn number(&self, name: &UserId) -> (Point, u32) {
        {
            let state = self.read();
            if let Some(number) = state.numbers.get(name) {
                return (state.point(), *number);
            }
        }
        let mut state = self.write();
        self.make_room(&mut state, 1);
        let number = state.intern(name);
        (state.point(), number)
    }

    /// The numbers of users.
    pub(super) fn numbers(&self, point: Point, names: &[&UserId]) -> Result<Vec<u32>, Stale> {
        {
            let state = self.read();
            state.at(point)?;
            let known: Option<Vec<u32>> = names.iter().map(|name| state.numbers.get(*name).copied()).collect();
            if let Some(known) = known {
                return Ok(known);
            }
        }
        let mut state = self.write();
        self.make_room(&mut state, names.len());
        state.at(point)?;
        Ok(names.iter().map(|name| state.intern(name)).collect())
    }

    /// Forgets all, if so many more names were too many.
    fn make_room(&self, state: &mut State, more: usize) {
        if state.names.len() + more <= self.max_names {
            return;
        }
        let (epoch, lost, log) = (state.epoch + 1, state.lost, std::mem::take(&mut state.log));
        *state = State { epoch, lost, log, ..State::default() };
        self.circles.clear();
        state.log.forget();
        self.seq.store(state.log.seq(), Ordering::Release);
    }

    /// The names of numbers.
    pub(super) fn names(&self, point: Point, numbers: &[u32]) -> Result<Vec<UserId>, Stale> {
        let state = self.read();
        if state.epoch != point.epoch {
            return Err(Stale);
        }
        Ok(numbers.iter().map(|number| state.names[*number as usize].clone()).collect())
    }

    /// The heads of a circle that reach `low`.
    pub(super) fn scan(&self, point: Point, circle: &Circle, low: Millis) -> Result<Scan, Stale> {
        let state = self.read();
        state.at(point)?;
        let mut heads = Vec::with_capacity(circle.sources().len());
        let mut unknown = Vec::new();
        for number in circle.sources() {
            let newest = state.newest[*number as usize];
            if newest >= low.0 {
                if newest == UNKNOWN {
                    unknown.push(*number);
                } else {
                    heads.push((*number, Millis(newest)));
                }
            }
        }
        Ok(Scan { seq: state.log.seq(), heads, unknown })
    }

    /// The versions below which what a store has of these authors is too old.
    pub(super) fn floors(&self, point: Point, numbers: impl Iterator<Item = u32>) -> Result<Vec<Version>, Stale> {
        let state = self.read();
        state.at(point)?;
        Ok(numbers.map(|number| state.version[number as usize]).collect())
    }

    /// Learns heads that were read at `point`; those that say too little, or are too old. `low`: the beginning of the window.
    /// `of_ledger`: they are the ledger's, and before they were read these versions were known: who has no row there, and of
    /// whom nothing was heard since, is gone.
    pub(super) fn learn(
        &self,
        point: Point,
        heads: &[(u32, Option<Head>)],
        low: Millis,
        of_ledger: Option<&[Version]>,
    ) -> Result<Vec<u32>, Stale> {
        let mut state = self.write();
        state.at(point)?;
        let mut left = Vec::new();
        for (n, (number, head)) in heads.iter().enumerate() {
            let at = *number as usize;
            let is_gone = |head: &Head| {
                let before = of_ledger.and_then(|versions| versions.get(n));
                head.version == 0 && before == Some(&state.version[at]) && state.newest[at] == UNKNOWN
            };
            match head {
                Some(head) if is_gone(head) => {
                    (state.newest[at], state.oldest[at]) = (NONE, NO_OLDEST);
                }
                Some(head) if head.version >= state.version[at] => {
                    state.newest[at] = match (head.newest, head.oldest) {
                        (Some(newest), _) => newest.0,
                        // All that is known to be complete is empty, and the window goes further back.
                        (None, Some(_)) if head.from > low => {
                            left.push(*number);
                            continue;
                        }
                        (None, _) => NONE,
                    };
                    state.oldest[at] = head.oldest.map_or(NO_OLDEST, |oldest| oldest.0);
                    state.version[at] = head.version;
                }
                // He was learned meanwhile, or what was found is too old.
                _ if state.newest[at] != UNKNOWN => {}
                _ => left.push(*number),
            }
        }
        Ok(left)
    }

    /// Why a walk of this circle that has come to its end goes on no further; or the authors whose heads are needed for that.
    pub(super) fn end(
        &self,
        point: Point,
        circle: &Circle,
        order: Order,
        (low, top): (Millis, Millis),
    ) -> Result<Result<End, Vec<u32>>, Stale> {
        let state = self.read();
        state.at(point)?;
        let mut unknown = Vec::new();
        for number in circle.sources() {
            let at = *number as usize;
            let newest = state.newest[at];
            if newest == UNKNOWN {
                unknown.push(*number);
                continue;
            }
            let is_beyond = match order {
                Order::Newest => state.oldest[at] < low.0,
                Order::Oldest => newest >= top.0,
            };
            if is_beyond {
                return Ok(Ok(End::Window));
            }
        }
        Ok(if unknown.is_empty() { Ok(End::Complete) } else { Err(unknown) })
    }

    /// Whether each of these users is in a circle's feed, and whether he is hidden from its owner.
    pub(super) fn places_of<'a>(
        &self,
        point: Point,
        circle: &Circle,
        users: impl Iterator<Item = &'a UserId>,
    ) -> Result<Vec<(bool, bool)>, Stale> {
        let state = self.read();
        if state.epoch != point.epoch {
            return Err(Stale);
        }
        let place = |user: &UserId| match state.numbers.get(user) {
            Some(number) => (circle.has(*number), circle.hides(*number)),
            None => (false, false),
        };
        Ok(users.map(place).collect())
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("names", &self.read().names.len()).field("seq", &self.seq()).finish()
    }
}
