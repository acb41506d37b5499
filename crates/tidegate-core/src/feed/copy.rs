//! The copies that a store keeps, in memory: what every store does with changes and fills, and the one that needs no server.

use std::collections::BTreeMap;

use super::change::{AuthorSet, Change, Entry, Fill, Head, Repost, Ties, Version, What};
use super::post::{PostId, UserId};
use super::{Edge, Order, Place, WINDOW_MS};
use crate::{Map, Millis};

/// How long a copy keeps posts that have left the window, milliseconds: an hour.
pub const KEEP_MS: i64 = 3_600_000;
/// Most posts of an author that a copy is filled with. Where he has more in the window, pages read the rest from the ledger.
pub const MAX_SET: usize = 2_000;
/// Up to so many reposts of a root are read whole; of more, only those by the viewer's own followees.
pub const MAX_WHOLE_REPOSTS: usize = 512;
/// Most reposts of a root that a copy is filled with; of more, pages ask the ledger.
pub const MAX_REPOSTS: usize = 100_000;

/// What is known of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy<T> {
    /// A commit that raised it to this version was told and could not be applied: nothing older may be filled in.
    Floor(Version),
    /// It as of this version.
    Known(Version, T),
}

/// An author's posts in a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Posts {
    from: Millis,
    oldest: Option<Millis>,
    entries: BTreeMap<Place, Option<PostId>>,
}

impl Posts {
    fn filled(set: AuthorSet) -> Self {
        let entries = set.entries.into_iter().map(|entry| (entry.place, entry.root)).collect();
        Self { from: set.from, oldest: set.oldest, entries }
    }

    /// False: the copy is of no use any more.
    fn patch(&mut self, added: &[Entry], removed: &[Place], low: Millis) -> bool {
        for entry in added {
            self.oldest = Some(self.oldest.map_or(entry.place.at, |oldest| oldest.min(entry.place.at)));
            if entry.place.at >= self.from {
                self.entries.insert(entry.place.clone(), entry.root.clone());
            }
        }
        for place in removed {
            self.entries.remove(place);
        }
        // Which is the oldest now, only the ledger knows.
        if removed.iter().any(|place| Some(place.at) == self.oldest) {
            return false;
        }
        if self.from < low {
            self.entries.retain(|place, _| place.at >= low);
            self.from = low;
        }
        true
    }
}

/// A part of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetPart {
    /// The version of the set.
    pub version: Version,
    /// Nothing is missing at this instant or after it.
    pub from: Millis,
    /// The nearest entries beyond the edge that was asked for, at `from` or after it.
    pub entries: Vec<Entry>,
    /// Whether there may be further ones, at `from` or after it.
    pub more: bool,
}

/// The reposts of a root that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reposts {
    /// All, in any order.
    All(Vec<Repost>),
    /// There are so many, more than [`MAX_WHOLE_REPOSTS`]: ask for those of some users.
    Many(usize),
    /// Those of the users who were asked for, in any order.
    Among(Vec<Repost>),
}

/// Every copy.
#[derive(Debug, Clone, Default)]
pub struct Copies {
    /// Of authors' posts.
    pub authors: Map<UserId, Copy<Posts>>,
    /// Of users' ties.
    pub users: Map<UserId, Copy<Ties>>,
    /// Of roots' reposts.
    pub roots: Map<PostId, Copy<Map<UserId, Repost>>>,
}

/// What becomes of a copy that is told a change. `begin`: what a subject without a row is.
fn apply<T>(
    copy: Option<Copy<T>>,
    change: &Change,
    begin: impl FnOnce() -> T,
    patch: impl FnOnce(&mut T) -> bool,
) -> Copy<T> {
    let Change { prev, version, .. } = change;
    let (known, mut value) = match copy {
        Some(Copy::Known(known, value)) if known >= *version => return Copy::Known(known, value),
        Some(Copy::Floor(floor)) if floor >= *version => return Copy::Floor(floor),
        Some(Copy::Known(known, value)) => (known, value),
        None | Some(Copy::Floor(_)) if *prev == 0 => (0, begin()),
        None | Some(Copy::Floor(_)) => return Copy::Floor(*version),
    };
    if known == *prev && patch(&mut value) { Copy::Known(*version, value) } else { Copy::Floor(*version) }
}

fn floor<T>(copy: Option<Copy<T>>, version: Version) -> Copy<T> {
    match copy {
        Some(Copy::Known(known, value)) if known >= version => Copy::Known(known, value),
        Some(Copy::Floor(floor)) => Copy::Floor(floor.max(version)),
        _ => Copy::Floor(version),
    }
}

/// Whether a copy of this version may take the place of what is there.
fn may_fill<T>(copy: Option<&Copy<T>>, version: Version) -> bool {
    match copy {
        None => true,
        Some(Copy::Floor(floor)) => *floor <= version,
        Some(Copy::Known(known, _)) => *known <= version,
    }
}

fn change_list(list: &mut Vec<UserId>, add: &[UserId], remove: &[UserId]) {
    list.retain(|user| !remove.contains(user));
    list.extend(add.iter().cloned());
    list.sort_unstable();
    list.dedup();
}

impl Copies {
    /// Takes a change. `now`: of the ledger, when it committed.
    pub fn apply(&mut self, change: &Change, now: Millis) {
        use super::Subject::{Author, Root, User};
        match &change.what {
            What::Posts { author, added, removed, .. } => {
                let low = now.plus(-(WINDOW_MS + KEEP_MS));
                let begin = || Posts { from: low, ..Posts::default() };
                let copy = apply(self.authors.remove(author), change, begin, |posts| posts.patch(added, removed, low));
                self.authors.insert(author.clone(), copy);
            }
            What::Ties { user, follow, unfollow, hide, show } => {
                let copy = apply(self.users.remove(user), change, Ties::default, |ties| {
                    change_list(&mut ties.follows, follow, unfollow);
                    change_list(&mut ties.hidden, hide, show);
                    ties.version = change.version;
                    true
                });
                self.users.insert(user.clone(), copy);
            }
            What::Reposts { root, set, unset } => {
                let copy = apply(self.roots.remove(root), change, Map::default, |reposts| {
                    reposts.extend(set.iter().map(|repost| (repost.user.clone(), repost.clone())));
                    unset.iter().for_each(|user| drop(reposts.remove(user)));
                    true
                });
                self.roots.insert(root.clone(), copy);
            }
            What::Floor(Author(author)) => {
                let copy = floor(self.authors.remove(author), change.version);
                self.authors.insert(author.clone(), copy);
            }
            What::Floor(User(user)) => {
                let copy = floor(self.users.remove(user), change.version);
                self.users.insert(user.clone(), copy);
            }
            What::Floor(Root(root)) => {
                let copy = floor(self.roots.remove(root), change.version);
                self.roots.insert(root.clone(), copy);
            }
        }
    }

    /// Takes what was read from the ledger, unless something newer was told; whether it did.
    pub fn fill(&mut self, fill: Fill) -> bool {
        let version = fill.version();
        match fill {
            Fill::Author(author, set) if may_fill(self.authors.get(&author), version) => {
                self.authors.insert(author, Copy::Known(version, Posts::filled(set)));
            }
            Fill::User(user, ties) if may_fill(self.users.get(&user), version) => {
                self.users.insert(user, Copy::Known(version, ties));
            }
            Fill::Root(root, version, reposts) if may_fill(self.roots.get(&root), version) => {
                let reposts = reposts.into_iter().map(|repost| (repost.user.clone(), repost)).collect();
                self.roots.insert(root, Copy::Known(version, reposts));
            }
            _ => return false,
        }
        true
    }

    /// An author in short, if his posts are known.
    #[must_use]
    pub fn head(&self, author: &UserId) -> Option<Head> {
        let Copy::Known(version, posts) = self.authors.get(author)? else { return None };
        let newest = posts.entries.last_key_value().map(|(place, _)| place.at);
        Some(Head { version: *version, from: posts.from, newest, oldest: posts.oldest })
    }

    /// The nearest entries of an author's set beyond an edge.
    #[must_use]
    pub fn part(&self, author: &UserId, order: Order, beyond: &Edge, max: usize) -> Option<SetPart> {
        let Copy::Known(version, posts) = self.authors.get(author)? else { return None };
        let is_beyond = |place: &Place| super::change::is_beyond(order, beyond, place);
        let all = posts.entries.iter().filter(|(place, _)| is_beyond(place));
        let entry = |(place, root): (&Place, &Option<PostId>)| Entry { place: place.clone(), root: root.clone() };
        let mut entries: Vec<Entry> = match order {
            Order::Newest => all.rev().take(max + 1).map(entry).collect(),
            Order::Oldest => all.take(max + 1).map(entry).collect(),
        };
        let more = entries.len() > max;
        entries.truncate(max);
        Some(SetPart { version: *version, from: posts.from, entries, more })
    }

    /// A user's ties, if they are known.
    #[must_use]
    pub fn ties(&self, user: &UserId) -> Option<&Ties> {
        match self.users.get(user)? {
            Copy::Known(_, ties) => Some(ties),
            Copy::Floor(_) => None,
        }
    }

    /// A root's reposts, if they are known: all, or of many those by `among`.
    #[must_use]
    pub fn reposts(&self, root: &PostId, among: Option<&[UserId]>) -> Option<Reposts> {
        let Copy::Known(_, reposts) = self.roots.get(root)? else { return None };
        Some(match among {
            _ if reposts.len() <= MAX_WHOLE_REPOSTS => Reposts::All(reposts.values().cloned().collect()),
            None => Reposts::Many(reposts.len()),
            Some(users) => Reposts::Among(users.iter().filter_map(|user| reposts.get(user)).cloned().collect()),
        })
    }
}
