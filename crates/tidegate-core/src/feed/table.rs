//! The rows of a feed's ledger in memory: what [`super::engine`] reads and writes, without I/O. Ledgers are held against it,
//! and tests that need no database use it.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{AuthorSet, Change, Entry, Repost, Subject, Ties, Version, What};
use super::copy::MAX_SET;
use super::engine::{Command, Decision, Rows, StoredPost, UserRow, Wants, decide};
use super::post::{Content, PostId, UserId};
use super::{Edge, Order, Place};
use crate::{Map, Millis};

/// Every row.
#[derive(Debug, Clone)]
pub struct Table {
    max_followees: usize,
    /// Posts.
    pub posts: BTreeMap<PostId, StoredPost>,
    /// Users that have a row.
    pub users: BTreeMap<UserId, UserRow>,
    /// Who follows whom since when.
    pub follows: BTreeMap<(UserId, UserId), Millis>,
    /// Who blocks whom.
    pub blocks: BTreeSet<(UserId, UserId)>,
}

impl Table {
    /// No rows; each user may follow `max_followees`.
    #[must_use]
    pub fn new(max_followees: usize) -> Self {
        let (posts, users, follows) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { max_followees, posts, users, follows, blocks: BTreeSet::new() }
    }

    /// Decides and writes a batch.
    pub fn commit(&mut self, now: Millis, commands: &[Command]) -> Decision {
        self.commit_at(now, now, commands)
    }

    /// The same where the ledger's clock is another than the one that versions begin at.
    pub fn commit_at(&mut self, now: Millis, real: Millis, commands: &[Command]) -> Decision {
        let mut rows = Rows::default();
        self.load(&Wants::of(commands), &mut rows);
        let more = Wants::more(commands, &rows);
        self.load(&more, &mut rows);
        let decision = decide(rows, commands, now, real, self.max_followees);
        self.write(&decision);
        decision
    }

    fn load(&self, wants: &Wants, rows: &mut Rows) {
        for (root, author) in &wants.reposts {
            let is_it = |stored: &&StoredPost| {
                stored.post.author == *author && stored.post.content == Content::Repost(root.clone())
            };
            if let Some(stored) = self.posts.values().find(is_it) {
                rows.reposts.insert((root.clone(), author.clone()), stored.post.id.clone());
                rows.posts.insert(stored.post.id.clone(), stored.clone());
            }
        }
        for root in &wants.roots {
            let shows = |stored: &&StoredPost| stored.post.content == Content::Repost(root.clone());
            rows.roots.insert(root.clone(), self.posts.values().filter(shows).count());
        }
        let posts = wants.posts.iter().filter_map(|id| Some((id.clone(), self.posts.get(id)?.clone())));
        rows.posts.extend(posts);
        rows.users.extend(wants.users.iter().filter_map(|user| Some((user.clone(), *self.users.get(user)?))));
        rows.follows.extend(wants.follows.iter().filter_map(|pair| Some((pair.clone(), *self.follows.get(pair)?))));
        let count = |user: &UserId| self.follows.keys().filter(|(who, _)| who == user).count();
        rows.counts.extend(wants.counts.iter().map(|user| (user.clone(), count(user))));
        rows.blocks.extend(wants.blocks.intersection(&self.blocks).cloned());
    }

    fn write(&mut self, decision: &Decision) {
        for (id, stored) in &decision.writes.posts {
            match stored {
                Some(stored) => drop(self.posts.insert(id.clone(), stored.clone())),
                None => drop(self.posts.remove(id)),
            }
        }
        self.users.extend(decision.writes.users.clone());
        for (pair, since) in &decision.writes.follows {
            match since {
                Some(since) => drop(self.follows.insert(pair.clone(), *since)),
                None => drop(self.follows.remove(pair)),
            }
        }
        for (pair, is_there) in &decision.writes.blocks {
            if *is_there {
                self.blocks.insert(pair.clone())
            } else {
                self.blocks.remove(pair)
            };
        }
    }

    /// Deletes a user, at once. Ledgers do it in parts.
    pub fn delete_user(&mut self, now: Millis, user: &UserId) -> Decision {
        let posts: Vec<Command> =
            self.posts.values().filter(|stored| stored.post.author == *user).map(delete).collect();
        let follows: Vec<Command> = self.follows.keys().filter(|(a, b)| a == user || b == user).map(unfollow).collect();
        let blocks: Vec<Command> = self.blocks.iter().filter(|(a, b)| a == user || b == user).map(unblock).collect();
        let mut decision = self.commit_at(now, now, &[posts, follows, blocks].concat());
        let row = self.users.remove(user).unwrap_or_default();
        let own = [Subject::Author(user.clone()), Subject::User(user.clone())];
        decision.changes.retain(|change| !own.contains(&change.subject()));
        let floors = own.into_iter().zip([row.posts, row.ties]).filter(|(_, version)| *version > 0);
        // The name's next life begins above: `first_version`.
        let floors = floors.map(|(own, version)| Change { prev: 0, version: version + 1, what: What::Floor(own) });
        decision.changes.extend(floors);
        decision
    }

    /// An author's set.
    #[must_use]
    pub fn author(&self, author: &UserId, from: Millis) -> AuthorSet {
        let mut all: Vec<Entry> =
            self.posts.values().filter(|stored| stored.post.author == *author).map(entry_of).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = all.last().map(|entry| entry.place.at);
        all.retain(|entry| entry.place.at >= from);
        let mut from = from;
        if all.len() > MAX_SET {
            all.truncate(MAX_SET);
            // Of the oldest instant some may be missing.
            from = all.last().map_or(from, |last| last.place.at.plus(1));
            all.retain(|entry| entry.place.at >= from);
        }
        let version = self.users.get(author).map_or(0, |row| row.posts);
        AuthorSet { version, from, oldest, entries: all }
    }

    /// Entries of an author's set beyond an edge, the nearest first.
    #[must_use]
    pub fn entries(&self, author: &UserId, order: Order, beyond: &Edge, max: usize) -> Vec<Entry> {
        let all = self.posts.values().filter(|stored| stored.post.author == *author).map(entry_of);
        let mut all: Vec<Entry> = all.filter(|entry| super::change::is_beyond(order, beyond, &entry.place)).collect();
        all.sort_unstable();
        if order == Order::Newest {
            all.reverse();
        }
        all.truncate(max);
        all
    }

    /// A user's ties.
    #[must_use]
    pub fn ties(&self, user: &UserId) -> Ties {
        let follows = self.follows.keys().filter(|(who, _)| who == user).map(|(_, other)| other.clone()).collect();
        let other = |(a, b): &(UserId, UserId)| match (a == user, b == user) {
            (true, _) => Some(b.clone()),
            (_, true) => Some(a.clone()),
            _ => None,
        };
        let hidden: BTreeSet<UserId> = self.blocks.iter().filter_map(other).collect();
        let version = self.users.get(user).map_or(0, |row| row.ties);
        Ties { version, follows, hidden: hidden.into_iter().collect() }
    }

    /// A root's reposts, by user.
    #[must_use]
    pub fn reposts(&self, root: &PostId) -> (Version, Vec<Repost>) {
        let of = |stored: &&StoredPost| stored.post.content == Content::Repost(root.clone());
        let mut all: Vec<Repost> = self.posts.values().filter(of).map(repost_of).collect();
        all.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        (self.posts.get(root).map_or(0, |stored| stored.reposts), all)
    }

    /// The version of everything that has one.
    #[must_use]
    pub fn versions(&self) -> Map<Subject, Version> {
        let users = self.users.iter().flat_map(|(user, row)| {
            [(Subject::Author(user.clone()), row.posts), (Subject::User(user.clone()), row.ties)]
        });
        users.chain(self.posts.iter().map(|(id, stored)| (Subject::Root(id.clone()), stored.reposts))).collect()
    }
}

fn delete(stored: &StoredPost) -> Command {
    Command::Delete(stored.post.id.clone())
}

fn unfollow((user, other): &(UserId, UserId)) -> Command {
    Command::Unfollow(user.clone(), other.clone())
}

fn unblock((user, other): &(UserId, UserId)) -> Command {
    Command::Unblock(user.clone(), other.clone())
}

fn entry_of(stored: &StoredPost) -> Entry {
    let post = &stored.post;
    let root = match &post.content {
        Content::Body(_) => None,
        Content::Repost(root) => Some(root.clone()),
    };
    Entry { place: Place { at: post.published_at, post: post.id.clone() }, root }
}

fn repost_of(stored: &StoredPost) -> Repost {
    let post = &stored.post;
    Repost { user: post.author.clone(), at: post.published_at, post: post.id.clone(), visibility: post.visibility }
}
