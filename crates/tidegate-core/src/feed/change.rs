//! What a commit changes, as the stores that pages are made from are told it.
//!
//! Three kinds of [`Subject`] have a *version* in the ledger, which every commit that touches them raises by one: an
//! author's posts, a user's ties, a root's reposts. A store keeps a copy of each with the version it has. A [`Change`] says
//! from which version to which it leads, so that a copy is never patched with a hole: who is told the same twice passes
//! over it, who missed one forgets the copy and keeps the version as a *floor*, below which nothing may be filled in. So
//! changes may come late, twice, out of order, or not at all if the outbox's floor comes in their place.

use super::post::{PostId, UserId, Visibility};
use super::{Order, Place};
use crate::Millis;

/// Counts the commits that touched a subject; 0: the ledger has no row of it. Below 2^53.
pub type Version = u64;

/// The version that a row begins with. Larger than any that a row of this name can have had before, as long as less than
/// 1,024 commits a millisecond touch it.
#[must_use]
pub fn first_version(real: Millis) -> Version {
    real.0.max(1).unsigned_abs() << 10
}

/// Something that has a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// An author's posts and reposts.
    Author(UserId),
    /// Whom a user follows, and from whom he is hidden.
    User(UserId),
    /// Who shows a root again.
    Root(PostId),
}

/// A post in its author's set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// What it shows again, if it is a repost.
    pub root: Option<PostId>,
}

/// A repost, by its root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repost {
    /// Whose. A user reposts a root once.
    pub user: UserId,
    /// When.
    pub at: Millis,
    /// Its name.
    pub post: PostId,
    /// Who sees it.
    pub visibility: Visibility,
}

/// What a commit changed of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The version it was at; 0: there was nothing.
    pub prev: Version,
    /// The version it is at.
    pub version: Version,
    /// What.
    pub what: What,
}

/// What is different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Of an author's posts.
    Posts {
        /// Whose.
        author: UserId,
        /// New ones.
        added: Vec<Entry>,
        /// Deleted ones.
        removed: Vec<Place>,
        /// Those that say something else now, or are seen by others, or are gone.
        touched: Vec<PostId>,
    },
    /// Of a user's ties. Each name is in one of the lists at most.
    Ties {
        /// Whose.
        user: UserId,
        /// Followed from now on.
        follow: Vec<UserId>,
        /// Followed no more.
        unfollow: Vec<UserId>,
        /// Hidden from each other from now on.
        hide: Vec<UserId>,
        /// Hidden no more.
        show: Vec<UserId>,
    },
    /// Of a root's reposts.
    Reposts {
        /// The root.
        root: PostId,
        /// New ones, and those that are seen by others now.
        set: Vec<Repost>,
        /// Who undid his.
        unset: Vec<UserId>,
    },
    /// Something, or all of it is gone: copies of older versions count for nothing. `prev` means nothing here.
    Floor(Subject),
}

impl Change {
    /// Whose version it raises.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match &self.what {
            What::Posts { author, .. } => Subject::Author(author.clone()),
            What::Ties { user, .. } => Subject::User(user.clone()),
            What::Reposts { root, .. } => Subject::Root(root.clone()),
            What::Floor(subject) => subject.clone(),
        }
    }
}

/// An author's newest posts, as the ledger has them at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorSet {
    /// The version they have.
    pub version: Version,
    /// Nothing is missing at this instant or after it.
    pub from: Millis,
    /// The instant of his oldest post of all, also before `from`.
    pub oldest: Option<Millis>,
    /// His posts at `from` or after it, the newest first.
    pub entries: Vec<Entry>,
}

/// An author in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The version of his posts.
    pub version: Version,
    /// Nothing is missing at this instant or after it.
    pub from: Millis,
    /// The instant of the newest post at `from` or after it.
    pub newest: Option<Millis>,
    /// The instant of the oldest post of all, also before `from`.
    pub oldest: Option<Millis>,
}

impl AuthorSet {
    /// It in short.
    #[must_use]
    pub fn head(&self) -> Head {
        let newest = self.entries.first().map(|entry| entry.place.at);
        Head { version: self.version, from: self.from, newest, oldest: self.oldest }
    }
}

/// Whom a user follows, and from whom he is hidden by a block of either side. Each list by name, each name once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ties {
    /// The version they have.
    pub version: Version,
    /// Whom he follows.
    pub follows: Vec<UserId>,
    /// Whose posts he does not see, and who does not see his.
    pub hidden: Vec<UserId>,
}

/// What a copy is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// An author's posts.
    Author(UserId, AuthorSet),
    /// A user's ties.
    User(UserId, Ties),
    /// A root's reposts, by user, each once.
    Root(PostId, Version, Vec<Repost>),
}

impl Fill {
    /// Of what.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self {
            Self::Author(author, _) => Subject::Author(author.clone()),
            Self::User(user, _) => Subject::User(user.clone()),
            Self::Root(root, ..) => Subject::Root(root.clone()),
        }
    }

    /// The version it has.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::Author(_, set) => set.version,
            Self::User(_, ties) => ties.version,
            Self::Root(_, version, _) => *version,
        }
    }
}

/// Whether a place is beyond an edge, in a direction.
#[must_use]
pub fn is_beyond(order: Order, edge: &super::Edge, place: &Place) -> bool {
    match order {
        Order::Newest => edge.is_above(place),
        Order::Oldest => !edge.is_above(place),
    }
}
