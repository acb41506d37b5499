//! The feed: where its truth lies, and where copies of it lie that pages are made from.
//!
//! - [`FeedLedger`]: users, posts, follows and blocks in the ledger's database. Its commits say what they change
//!   (`tidegate_core::feed::Change`), and leave in the outbox that something changed, for the case that nobody lives to tell.
//! - [`FeedStore`]: copies of authors' sets, users' ties and roots' reposts, shared by processes or not, as
//!   `tidegate_core::feed::copy` says, and the news of every change.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::Millis;
use tidegate_core::cache::RowVersion;
use tidegate_core::feed::{
    AuthorSet, Change, Command, Edge, Entry, Fill, Head, Order, Outcome, PostId, Repost, Reposts, SetPart, StoredPost,
    Subject, Ties, UserId, Version,
};

use crate::outbox::OutboxEntry;
use crate::{BoxFuture, Clock, Error, ErrorKind, Page, PageRequest, Result};

/// Most commands of one commit.
pub const MAX_FEED_COMMANDS: usize = 5_000;
/// Most posts among them.
pub const MAX_FEED_POSTS: usize = 500;
/// Most subjects of one call.
pub const MAX_FEED_READS: usize = 512;
/// Largest page of a list of follows.
pub const MAX_FOLLOWS_PAGE: usize = 1_000;
/// Most reposts of one call of [`FeedLedger::reposts`].
pub const MAX_REPOSTS_READ: usize = 5_000;
/// Most entries that [`FeedLedger::entries`] gives, and a part of a set has.
pub const MAX_PART: usize = 1_000;

/// The namespace of posts in the cache, and in the outbox.
pub const POSTS: &str = "tidegate.posts";
/// The namespaces of subjects in the outbox: an entry of one says the version that it has reached.
pub const AUTHORS: &str = "tidegate.feed.authors";
/// See [`AUTHORS`].
pub const USERS: &str = "tidegate.feed.users";
/// See [`AUTHORS`].
pub const ROOTS: &str = "tidegate.feed.roots";

/// A committed batch: durable before this value exists.
#[derive(Debug)]
pub struct FeedCommit {
    /// The ledger's clock, read after the rows were locked.
    pub now: Millis,
    /// One a command, in order.
    pub outcomes: Vec<Outcome>,
    /// What it changed, each subject once.
    pub changes: Vec<Change>,
    /// The same in the outbox, and the posts that it made old in caches ([`POSTS`]).
    pub outbox: Vec<OutboxEntry>,
}

/// Users, posts, follows and blocks. Every method may be called at any time from any task.
pub trait FeedLedger: Send + Sync {
    /// A short name for metrics and messages: `sqlite`, `mysql`, `postgres`.
    fn name(&self) -> &'static str;

    /// Its clock: the feed's now.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Decides (`tidegate_core::feed::decide`) and writes up to [`MAX_FEED_COMMANDS`] commands, [`MAX_FEED_POSTS`] posts among
    /// them, in one transaction, in order, and returns once that is durable.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unavailable`]: nothing was written, or nobody knows. A repeat is harmless.
    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<FeedCommit>>;

    /// Deletes what is left of a user, a bounded number of rows a call; whether there is more. The first call takes the
    /// user's own follows, blocks and name, so that a user who comes back in between has a new name's life.
    fn delete_user<'a>(&'a self, user: &'a UserId) -> BoxFuture<'a, Result<(FeedCommit, bool)>>;

    /// Up to [`MAX_FEED_READS`] posts as they stand, in order.
    fn posts<'a>(&'a self, ids: &'a [PostId]) -> BoxFuture<'a, Result<Vec<Option<StoredPost>>>>;

    /// The sets of up to [`MAX_FEED_READS`] authors in one consistent read, in order: the newest posts at `from` or after it,
    /// up to `tidegate_core::feed::MAX_SET` each. Of an author with more, `AuthorSet::from` is where those that were given begin to be complete.
    fn authors<'a>(&'a self, authors: &'a [UserId], from: Millis) -> BoxFuture<'a, Result<Vec<AuthorSet>>>;

    /// Up to `max` (`1..=`[`MAX_PART`]) entries of an author's set beyond an edge, the nearest first, whatever the window.
    fn entries<'a>(
        &'a self,
        author: &'a UserId,
        order: Order,
        beyond: &'a Edge,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>>;

    /// The ties of up to [`MAX_FEED_READS`] users, in one consistent read, in order.
    fn ties<'a>(&'a self, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Ties>>>;

    /// Up to `limit` (`1..=`[`MAX_REPOSTS_READ`]) reposts of a root by users after `after`, by user, with the root's version
    /// at the same moment.
    fn reposts<'a>(
        &'a self,
        root: &'a PostId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Version, Vec<Repost>)>>;

    /// The reposts of a root by these users, up to [`MAX_FEED_READS`], in any order.
    fn reposts_by<'a>(&'a self, root: &'a PostId, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Repost>>>;

    /// Whom a user follows and since when, by name.
    fn follows<'a>(&'a self, user: &'a UserId, page: PageRequest) -> BoxFuture<'a, Result<Page<(UserId, Millis)>>>;
}

/// What a store can promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCapabilities {
    /// A short name for metrics and messages: `memory`, `redis`.
    pub name: &'static str,
    /// Other processes see the same copies, and are told the same news.
    pub shared: bool,
}

/// A part of an author's set to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetRead {
    /// Whose.
    pub author: UserId,
    /// The direction.
    pub order: Order,
    /// Entries beyond this, the nearest first.
    pub beyond: Edge,
    /// At most so many, `1..=`[`MAX_PART`].
    pub max: usize,
}

/// Reposts to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRead {
    /// Of which root.
    pub root: PostId,
    /// Of a root with many, only those by these users.
    pub among: Option<Arc<[UserId]>>,
}

/// What is read in one round trip.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reads {
    /// Whether to ask for the news.
    pub news: bool,
    /// Authors in short.
    pub heads: Vec<UserId>,
    /// Parts of authors' sets.
    pub sets: Vec<SetRead>,
    /// Users' ties.
    pub users: Vec<UserId>,
    /// Roots' reposts.
    pub roots: Vec<RootRead>,
}

impl Reads {
    /// Whether one call may ask for so much.
    ///
    /// # Errors
    /// [`ErrorKind::Command`]: no; the text says how much it may.
    pub fn check(&self) -> Result<()> {
        let Self { news: _, heads, sets, users, roots } = self;
        let most = [heads.len(), sets.len(), users.len(), roots.len()].into_iter().max().unwrap_or(0);
        if most > MAX_FEED_READS {
            let why = format!("{most} at a time are more than the {MAX_FEED_READS} that a store of a feed reads");
            return Err(Error::new(ErrorKind::Command, why));
        }
        if let Some(set) = sets.iter().find(|set| !(1..=MAX_PART).contains(&set.max)) {
            let why = format!("a part of a set has 1..={MAX_PART} entries, not {}", set.max);
            return Err(Error::new(ErrorKind::Command, why));
        }
        Ok(())
    }
}

/// What was found, each in the order in which it was asked for; `None`: the store does not know, and may be filled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// What changed since news were given last, or earlier.
    pub news: News,
    /// Authors in short.
    pub heads: Vec<Option<Head>>,
    /// Parts of authors' sets.
    pub sets: Vec<Option<SetPart>>,
    /// Users' ties.
    pub users: Vec<Option<Ties>>,
    /// Roots' reposts.
    pub roots: Vec<Option<Reposts>>,
}

/// What changed. Some of it may be told twice, and in another order than it happened between subjects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Some may be missing: nothing that was learned from the store before this still counts.
    pub lost: bool,
    /// In the order in which the store took them.
    pub events: Vec<Event>,
}

/// A change, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Of what.
    pub subject: Subject,
    /// The version before.
    pub prev: Version,
    /// The version since.
    pub version: Version,
    /// What it means for the author in short.
    pub what: EventKind,
}

/// What an event means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// An author has new posts, or fewer.
    Posts {
        /// The newest and the oldest instant of new ones.
        added: Option<(Millis, Millis)>,
        /// Some were deleted.
        removed: bool,
        /// `What::Posts::touched`.
        touched: Vec<PostId>,
    },
    /// A user's ties or a root's reposts changed.
    Other,
    /// Ask anew (`What::Floor`, or a change that the copy had no use for).
    Floor,
}

impl Event {
    /// The event of a change.
    #[must_use]
    pub fn of(change: &Change) -> Self {
        use tidegate_core::feed::What;
        let what = match &change.what {
            What::Posts { added, removed, touched, .. } => {
                let instants = || added.iter().map(|entry| entry.place.at);
                EventKind::Posts {
                    added: instants().max().zip(instants().min()),
                    removed: !removed.is_empty(),
                    touched: touched.clone(),
                }
            }
            What::Ties { .. } | What::Reposts { .. } => EventKind::Other,
            What::Floor(_) => EventKind::Floor,
        };
        Self { subject: change.subject(), prev: change.prev, version: change.version, what }
    }
}

/// Where the copies lie. Every method may be called at any time from any task and is answered, or fails, within the store's
/// time limit; one that failed may have been done. What each does to a subject is what `tidegate_core::feed::copy::Copies`
/// does, at once.
pub trait FeedStore: Send + Sync {
    /// What it can promise.
    fn capabilities(&self) -> FeedCapabilities;

    /// Applies changes that are committed, and tells the news of each, in one round trip; up to [`MAX_FEED_COMMANDS`].
    /// `now`: of the ledger, when they were committed. Floors are kept for a minute at least.
    fn apply<'a>(&'a self, changes: &'a [Change], now: Millis) -> BoxFuture<'a, Result<()>>;

    /// Reads in one round trip: of a Cluster, one to each server that has some of it. The news have everything whose
    /// [`FeedStore::apply`] was answered, to whichever process, before this was called. They are those since this store gave
    /// some last, so whoever keeps a mirror has a store of his own, and takes them in as they are given, one call's before the
    /// next is made. A store that may have lost changes that were answered says `lost`, if it is asked once in a while: whoever
    /// keeps the outbox then repeats the floors of the last minute.
    fn read(&self, reads: Reads) -> BoxFuture<'_, Result<Found>>;

    /// Fills copies with what was read from the ledger; whether each was taken: not if something newer was told meanwhile.
    /// The ledger was read less than a minute ago.
    fn fill(&self, fills: Vec<Fill>) -> BoxFuture<'_, Result<Vec<bool>>>;

    /// Asks to be the one who fills each: for two seconds, or until it was filled, others get false.
    fn lease<'a>(&'a self, subjects: &'a [Subject]) -> BoxFuture<'a, Result<Vec<bool>>>;

    /// Whether the floors of the last minute are to be repeated: a server may lack what it was told then. Reads may fail until they were.
    fn wants_repeat(&self) -> bool {
        false
    }

    /// They were, since [`FeedStore::wants_repeat`] was true.
    fn repeated(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The entry of the outbox for a subject's new version, or for a post that is old in caches.
#[must_use]
pub fn outbox_entry(namespace: &str, key: Bytes, floor: Version, at: Millis) -> OutboxEntry {
    OutboxEntry::of_feed(namespace, key, RowVersion::new(floor), at)
}

/// What the outbox is told of a commit: each change's subject, and each post that is old in caches.
#[must_use]
pub fn outbox_of(changes: &[Change], stale: &[(PostId, Version)], at: Millis) -> Vec<OutboxEntry> {
    let posts = stale.iter().map(|(post, row)| outbox_entry(POSTS, key_of(post), *row, at));
    let subjects = changes.iter().map(|change| {
        let (namespace, key) = match change.subject() {
            Subject::Author(author) => (AUTHORS, key_of(&author)),
            Subject::User(user) => (USERS, key_of(&user)),
            Subject::Root(root) => (ROOTS, key_of(&root)),
        };
        outbox_entry(namespace, key, change.version, at)
    });
    posts.chain(subjects).collect()
}

/// The encoded key of a name.
fn key_of<K: tidegate_core::cache::Key>(name: &K) -> Bytes {
    let mut to = tidegate_core::cache::KeyWriter::new();
    name.write(&mut to);
    Bytes::copy_from_slice(to.as_bytes())
}

/// The subject of an outbox's entry, if it is one.
#[must_use]
pub fn subject_of(namespace: &str, key: &[u8]) -> Option<Subject> {
    use tidegate_core::cache::Key;
    match namespace {
        AUTHORS => UserId::decode(key).map(Subject::Author),
        USERS => UserId::decode(key).map(Subject::User),
        ROOTS => PostId::decode(key).map(Subject::Root),
        _ => None,
    }
}

/// The floor that an entry of the outbox tells, if it is one of a subject.
#[must_use]
pub fn floor_of(entry: &OutboxEntry) -> Option<Change> {
    let subject = subject_of(&entry.namespace, &entry.key)?;
    let version = entry.floor.map_or(0, RowVersion::get);
    Some(Change { prev: 0, version, what: tidegate_core::feed::What::Floor(subject) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::feed::What;

    #[test]
    fn a_floor_comes_back_from_its_entry() {
        let user = |name: &str| UserId::parse(name).expect("a name");
        let root = PostId::parse("p-1").expect("a name");
        let posts =
            What::Posts { author: user("\u{e9} b"), added: vec![], removed: vec![], touched: vec![root.clone()] };
        let ties = What::Ties { user: user("bob"), follow: vec![], unfollow: vec![], hide: vec![], show: vec![] };
        let reposts = What::Reposts { root: root.clone(), set: vec![], unset: vec![] };
        let changes: Vec<Change> =
            [posts, ties, reposts].map(|what| Change { prev: 6, version: (1 << 53) - 1, what }).into();
        let entries = outbox_of(&changes, &[(root, 9)], Millis(5));
        assert_eq!(entries.len(), 4);
        assert_eq!((&*entries[0].namespace, floor_of(&entries[0])), (POSTS, None));
        for (entry, change) in entries[1..].iter().zip(&changes) {
            let stored = entry.stored_key();
            let back = OutboxEntry::from_stored(entry.id, &stored, entry.stored_floor(), entry.committed_at);
            let floor = floor_of(&back.expect("it is one")).expect("it is a subject's");
            assert_eq!((floor.subject(), floor.version), (change.subject(), change.version));
            assert_eq!(Event::of(&floor).what, EventKind::Floor);
        }
    }
}
