//! The copies that a store keeps, in memory: what every store does with changes and fills, and the one that needs no server.

use super::change::{AuthorSet, Change, Entry, Fill, Head, Repost, Ties, Version, What};
use super::post::{PostId, UserId};
use super::{Edge, Order, Place, WINDOW_MS};
use crate::{Map, Millis};

/// How long a copy keeps posts that have left the window, milliseconds: an hour.
pub const KEEP_MS: i64 = 3_600_000;
/// Most posts of an author that a copy is filled with. Where he has more in the window, pages read the rest from the ledger.
/// A copy that changes have made twice as long is cut to as many.
pub const MAX_SET: usize = 2_000;
/// Up to so many reposts of a root are read whole; of more, only those by the viewer's own followees.
pub const MAX_WHOLE_REPOSTS: usize = 512;
/// Most reposts of a root that a copy has; of more, pages ask the ledger.
pub const MAX_REPOSTS: usize = 100_000;

/// What is known of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copy<T> {
    /// A commit that raised it to this version was told and could not be applied: nothing older may be filled in.
    Floor(Version),
    /// It as of this version.
    Known(Version, T),
}

impl<T> Copy<T> {
    /// The version that it is known as of, or that nothing older may be filled in than.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Floor(version) | Self::Known(version, _) => *version,
        }
    }

    /// It, if it is known.
    #[must_use]
    pub fn known(&self) -> Option<(Version, &T)> {
        match self {
            Self::Floor(_) => None,
            Self::Known(version, value) => Some((*version, value)),
        }
    }

    /// What becomes of a copy that is told a change. `begin`: what a subject without a row is. `patch` says whether the value is of any
    /// use after it.
    pub fn told(
        copy: Option<Self>,
        change: &Change,
        begin: impl FnOnce() -> T,
        patch: impl FnOnce(&mut T) -> bool,
    ) -> Self {
        let Change { prev, version, .. } = change;
        let (known, mut value) = match copy {
            Some(copy) if copy.version() >= *version => return copy,
            Some(Self::Known(known, value)) => (known, value),
            None | Some(Self::Floor(_)) if *prev == 0 => (0, begin()),
            None | Some(Self::Floor(_)) => return Self::Floor(*version),
        };
        if known == *prev && patch(&mut value) { Self::Known(*version, value) } else { Self::Floor(*version) }
    }

    /// What becomes of a copy of which a floor is told.
    #[must_use]
    pub fn below(copy: Option<Self>, version: Version) -> Self {
        match copy {
            Some(copy) if copy.version() >= version => copy,
            _ => Self::Floor(version),
        }
    }

    /// Whether a copy of this version may take the place of what is there.
    #[must_use]
    pub fn may_fill(copy: Option<&Self>, version: Version) -> bool {
        copy.is_none_or(|copy| copy.version() <= version)
    }
}

/// An author's posts in a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Posts {
    from: Millis,
    oldest: Option<Millis>,
    /// By place, the oldest first.
    entries: Vec<Entry>,
}

impl Posts {
    /// As the ledger has them.
    #[must_use]
    pub fn filled(set: AuthorSet) -> Self {
        let mut entries = set.entries;
        entries.reverse();
        Self { from: set.from, oldest: set.oldest, entries }
    }

    /// Those of an author without a row.
    #[must_use]
    pub fn none(now: Millis) -> Self {
        Self { from: lowest(now), ..Self::default() }
    }

    /// Applies what a commit at `now` has changed. False: the copy is of no use any more.
    pub fn patch(&mut self, added: &[Entry], removed: &[Place], now: Millis) -> bool {
        for entry in added {
            self.oldest = Some(self.oldest.map_or(entry.place.at, |oldest| oldest.min(entry.place.at)));
            if entry.place.at >= self.from {
                match self.find(&entry.place) {
                    Ok(at) => self.entries[at] = entry.clone(),
                    Err(at) => self.entries.insert(at, entry.clone()),
                }
            }
        }
        for place in removed {
            if let Ok(at) = self.find(place) {
                self.entries.remove(at);
            }
        }
        // Which is the oldest now, only the ledger knows.
        if removed.iter().any(|place| Some(place.at) == self.oldest) {
            return false;
        }
        self.begin_at(lowest(now));
        if self.entries.len() > 2 * MAX_SET {
            let newest_to_go = self.entries[self.entries.len() - MAX_SET - 1].place.at;
            self.begin_at(newest_to_go.plus(1));
        }
        true
    }

    fn begin_at(&mut self, from: Millis) {
        if self.from < from {
            self.entries.drain(..self.entries.partition_point(|entry| entry.place.at < from));
            self.from = from;
        }
    }

    fn find(&self, place: &Place) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.place.cmp(place))
    }

    /// The author in short.
    #[must_use]
    pub fn head(&self, version: Version) -> Head {
        let newest = self.entries.last().map(|entry| entry.place.at);
        Head { version, from: self.from, newest, oldest: self.oldest }
    }

    /// The nearest entries beyond an edge.
    #[must_use]
    pub fn part(&self, version: Version, order: Order, beyond: &Edge, max: usize) -> SetPart {
        let cut = self.entries.partition_point(|entry| beyond.is_above(&entry.place));
        let (entries, all) = match order {
            Order::Newest => (self.entries[..cut].iter().rev().take(max).cloned().collect(), cut),
            Order::Oldest => (self.entries[cut..].iter().take(max).cloned().collect(), self.entries.len() - cut),
        };
        SetPart { version, from: self.from, entries, more: all > max }
    }

    /// Its entries, the oldest first.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

/// The instant at which copies begin that were told of a commit at `now`.
#[must_use]
pub fn lowest(now: Millis) -> Millis {
    now.plus(-(WINDOW_MS + KEEP_MS))
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

impl Ties {
    /// Applies what a commit has changed: names that are followed or hidden from now on, and no more.
    pub fn patch(&mut self, version: Version, [follow, unfollow, hide, show]: [&[UserId]; 4]) {
        change_list(&mut self.follows, follow, unfollow);
        change_list(&mut self.hidden, hide, show);
        self.version = version;
    }
}

fn change_list(list: &mut Vec<UserId>, add: &[UserId], remove: &[UserId]) {
    for user in remove {
        if let Ok(at) = list.binary_search(user) {
            list.remove(at);
        }
    }
    for user in add {
        if let Err(at) = list.binary_search(user) {
            list.insert(at, user.clone());
        }
    }
}

/// Applies what a commit has changed of a root's reposts. False: the copy is of no use any more.
pub fn patch_reposts(reposts: &mut Map<UserId, Repost>, set: &[Repost], unset: &[UserId]) -> bool {
    reposts.extend(set.iter().map(|repost| (repost.user.clone(), repost.clone())));
    unset.iter().for_each(|user| drop(reposts.remove(user)));
    reposts.len() <= MAX_REPOSTS
}

/// A root's reposts: all, or of many those by `among`.
#[must_use]
pub fn reposts_of(reposts: &Map<UserId, Repost>, among: Option<&[UserId]>) -> Reposts {
    match among {
        _ if reposts.len() <= MAX_WHOLE_REPOSTS => Reposts::All(reposts.values().cloned().collect()),
        None => Reposts::Many(reposts.len()),
        Some(users) => Reposts::Among(users.iter().filter_map(|user| reposts.get(user)).cloned().collect()),
    }
}

impl Copies {
    /// Takes a change. `now`: of the ledger, when it committed.
    pub fn apply(&mut self, change: &Change, now: Millis) {
        use super::Subject::{Author, Root, User};
        match &change.what {
            What::Posts { author, added, removed, .. } => {
                let copy = self.authors.remove(author);
                let copy = Copy::told(copy, change, || Posts::none(now), |posts| posts.patch(added, removed, now));
                self.authors.insert(author.clone(), copy);
            }
            What::Ties { user, follow, unfollow, hide, show } => {
                let copy = Copy::told(self.users.remove(user), change, Ties::default, |ties| {
                    ties.patch(change.version, [follow, unfollow, hide, show]);
                    true
                });
                self.users.insert(user.clone(), copy);
            }
            What::Reposts { root, set, unset } => {
                let copy = self.roots.remove(root);
                let copy = Copy::told(copy, change, Map::default, |reposts| patch_reposts(reposts, set, unset));
                self.roots.insert(root.clone(), copy);
            }
            What::Floor(Author(author)) => {
                let copy = Copy::below(self.authors.remove(author), change.version);
                self.authors.insert(author.clone(), copy);
            }
            What::Floor(User(user)) => {
                let copy = Copy::below(self.users.remove(user), change.version);
                self.users.insert(user.clone(), copy);
            }
            What::Floor(Root(root)) => {
                let copy = Copy::below(self.roots.remove(root), change.version);
                self.roots.insert(root.clone(), copy);
            }
        }
    }

    /// Takes what was read from the ledger, unless something newer was told; whether it did.
    pub fn fill(&mut self, fill: Fill) -> bool {
        let version = fill.version();
        match fill {
            Fill::Author(author, set) if Copy::may_fill(self.authors.get(&author), version) => {
                self.authors.insert(author, Copy::Known(version, Posts::filled(set)));
            }
            Fill::User(user, ties) if Copy::may_fill(self.users.get(&user), version) => {
                self.users.insert(user, Copy::Known(version, ties));
            }
            Fill::Root(root, version, reposts) if Copy::may_fill(self.roots.get(&root), version) => {
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
        let (version, posts) = self.authors.get(author)?.known()?;
        Some(posts.head(version))
    }

    /// The nearest entries of an author's set beyond an edge.
    #[must_use]
    pub fn part(&self, author: &UserId, order: Order, beyond: &Edge, max: usize) -> Option<SetPart> {
        let (version, posts) = self.authors.get(author)?.known()?;
        Some(posts.part(version, order, beyond, max))
    }

    /// A user's ties, if they are known.
    #[must_use]
    pub fn ties(&self, user: &UserId) -> Option<&Ties> {
        Some(self.users.get(user)?.known()?.1)
    }

    /// A root's reposts, if they are known: all, or of many those by `among`.
    #[must_use]
    pub fn reposts(&self, root: &PostId, among: Option<&[UserId]>) -> Option<Reposts> {
        Some(reposts_of(self.roots.get(root)?.known()?.1, among))
    }
}
