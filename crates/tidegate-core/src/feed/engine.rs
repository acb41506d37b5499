//! What commands do to the ledger's rows. A ledger loads and locks the rows that [`Wants::of`] and then [`Wants::more`] name,
//! runs [`decide`] on them, writes [`Writes`], commits. The meaning of each command is that of
//! [`super::model::Community`]; this says it of rows, and what changes for whom.

use std::collections::{BTreeMap, BTreeSet};

use super::change::{Change, Entry, Repost, Subject, Version, What, first_version};
use super::model::{Edited, Followed, Published};
use super::place::Place;
use super::post::{Content, NewPost, Post, PostEdit, PostId, UserId, Visibility, digest};
use crate::{Map, Millis};

/// Something to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Publish a post or a repost.
    Publish(NewPost),
    /// Change a post.
    Edit(PostId, PostEdit),
    /// Delete a post.
    Delete(PostId),
    /// Follow from now on.
    Follow {
        /// Who.
        user: UserId,
        /// Whom.
        other: UserId,
        /// Since when; `None`: now. The future becomes now.
        since: Option<Millis>,
    },
    /// Follow no more: who, whom.
    Unfollow(UserId, UserId),
    /// Block from now on: who, whom.
    Block(UserId, UserId),
    /// Block no more: who, whom.
    Unblock(UserId, UserId),
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of a post to publish.
    Published(Published),
    /// Of a change.
    Edited(Edited),
    /// Of a deletion: whether it was there.
    Deleted(bool),
    /// Of a wish to follow.
    Followed(Followed),
    /// Of a block: whether it is possible.
    Blocked(bool),
    /// Of an end: there is no follow or block now.
    Ended,
}

/// A post and what its row knows beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPost {
    /// The post.
    pub post: Post,
    /// Raised with every change of the row, also of what follows: the version of what is cached of it.
    pub row: Version,
    /// The version of its reposts; 0: nobody has shown it again.
    pub reposts: Version,
}

/// A user's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserRow {
    /// The version of his posts; 0: none.
    pub posts: Version,
    /// The version of his ties; 0: none.
    pub ties: Version,
}

/// The rows that commands need.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// Posts by name.
    pub posts: BTreeSet<PostId>,
    /// Reposts by root and author; each is to be loaded among [`Rows::posts`], too.
    pub reposts: BTreeSet<(PostId, UserId)>,
    /// Names of posts to publish: how many reposts there are, by anybody, of one that had the name before.
    pub roots: BTreeSet<PostId>,
    /// Users' rows; one that is not there is as good as [`UserRow::default`], and its name must be locked.
    pub users: BTreeSet<UserId>,
    /// Who may follow whom.
    pub follows: BTreeSet<(UserId, UserId)>,
    /// How many they follow.
    pub counts: BTreeSet<UserId>,
    /// Who may block whom.
    pub blocks: BTreeSet<(UserId, UserId)>,
}

/// The rows that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    /// Posts.
    pub posts: Map<PostId, StoredPost>,
    /// The repost of a root by an author.
    pub reposts: Map<(PostId, UserId), PostId>,
    /// How many reposts a name has, if any.
    pub roots: Map<PostId, usize>,
    /// Users.
    pub users: Map<UserId, UserRow>,
    /// Who follows whom since when.
    pub follows: Map<(UserId, UserId), Millis>,
    /// How many each follows.
    pub counts: Map<UserId, usize>,
    /// Who blocks whom.
    pub blocks: BTreeSet<(UserId, UserId)>,
}

/// What is to be written. `None` in a value: the row is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writes {
    /// Posts.
    pub posts: BTreeMap<PostId, Option<StoredPost>>,
    /// Users.
    pub users: BTreeMap<UserId, UserRow>,
    /// Follows.
    pub follows: BTreeMap<(UserId, UserId), Option<Millis>>,
    /// Blocks: whether there is one.
    pub blocks: BTreeMap<(UserId, UserId), bool>,
}

/// What a batch comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// One a command, in order.
    pub outcomes: Vec<Outcome>,
    /// What is to be written in the same transaction.
    pub writes: Writes,
    /// What stores are told, each subject once.
    pub changes: Vec<Change>,
    /// Posts that are old in caches, with their rows' new versions.
    pub stale: Vec<(PostId, Version)>,
}

impl Wants {
    /// What is needed first: all that the commands name.
    #[must_use]
    pub fn of(commands: &[Command]) -> Self {
        let mut wants = Self::default();
        for command in commands {
            match command {
                Command::Publish(new) => {
                    wants.posts.insert(new.id.clone());
                    wants.users.insert(new.author.clone());
                    wants.roots.insert(new.id.clone());
                    if let Content::Repost(of) = &new.content {
                        wants.posts.insert(of.clone());
                    }
                }
                Command::Edit(id, _) | Command::Delete(id) => {
                    wants.posts.insert(id.clone());
                }
                Command::Follow { user, other, .. } => {
                    wants.users.insert(user.clone());
                    wants.follows.insert((user.clone(), other.clone()));
                    wants.counts.insert(user.clone());
                }
                Command::Unfollow(user, other) => {
                    wants.users.insert(user.clone());
                    wants.follows.insert((user.clone(), other.clone()));
                }
                Command::Block(user, other) | Command::Unblock(user, other) => {
                    wants.users.extend([user.clone(), other.clone()]);
                    wants.blocks.extend([(user.clone(), other.clone()), (other.clone(), user.clone())]);
                }
            }
        }
        wants
    }

    /// What is needed then, once the posts that were asked for are there: the roots of those that are reposts, who wrote what
    /// is changed, and whether an author has shown a root before. Some of it may have been asked for already.
    #[must_use]
    pub fn more(commands: &[Command], rows: &Rows) -> Self {
        let mut published: Map<&PostId, Vec<&Content>> = Map::default();
        for command in commands {
            if let Command::Publish(new) = command {
                published.entry(&new.id).or_default().push(&new.content);
            }
        }
        // Every root that a post of this name has, or may have before the batch ends: it may be deleted and published anew.
        let roots_of = |of: &PostId| {
            let (mut roots, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![of.clone()]);
            while let Some(of) = open.pop() {
                roots.extend(rows.posts.get(&of).map(|stored| stored.post.root().clone()));
                for content in published.get(&of).into_iter().flatten() {
                    match content {
                        Content::Body(_) => drop(roots.insert(of.clone())),
                        Content::Repost(next) if seen.insert(next.clone()) => open.push(next.clone()),
                        Content::Repost(_) => {}
                    }
                }
            }
            roots
        };
        let mut wants = Self::default();
        for command in commands {
            match command {
                Command::Publish(NewPost { author, content: Content::Repost(of), .. }) => {
                    for root in roots_of(of) {
                        wants.reposts.insert((root.clone(), author.clone()));
                        wants.posts.insert(root);
                    }
                }
                Command::Edit(id, _) | Command::Delete(id) => {
                    let Some(stored) = rows.posts.get(id) else { continue };
                    wants.users.insert(stored.post.author.clone());
                    wants.posts.insert(stored.post.root().clone());
                    // A repost that is deleted may be made anew in the same batch.
                    if let Content::Repost(root) = &stored.post.content {
                        wants.reposts.insert((root.clone(), stored.post.author.clone()));
                    }
                }
                _ => {}
            }
        }
        wants
    }
}

/// Decides a batch at `now`, in order: what each command comes to, given those before it. `rows` must have all that
/// [`Wants::of`] and [`Wants::more`] name and that there is. `real`: the instant of a clock that goes on where the ledger's is
/// moved by hand; versions begin there, since a name's second life may begin at the same instant as its first.
#[must_use]
pub fn decide(rows: Rows, commands: &[Command], now: Millis, real: Millis, max_followees: usize) -> Decision {
    let first = first_version(real);
    let mut batch = Batch { rows, now, first, max_followees, out: Decision::default(), told: BTreeMap::new() };
    let outcomes = commands.iter().map(|command| batch.run(command)).collect();
    batch.out.outcomes = outcomes;
    batch.finish()
}

struct Batch {
    rows: Rows,
    now: Millis,
    /// The version that new rows begin with.
    first: Version,
    max_followees: usize,
    out: Decision,
    told: BTreeMap<Subject, Change>,
}

impl Batch {
    fn run(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Publish(new) => Outcome::Published(self.publish(new)),
            Command::Edit(id, edit) => Outcome::Edited(self.edit(id, edit)),
            Command::Delete(id) => Outcome::Deleted(self.delete(id)),
            Command::Follow { user, other, since } => Outcome::Followed(self.follow(user, other, *since)),
            Command::Unfollow(user, other) => self.unfollow(user, other),
            Command::Block(user, other) => Outcome::Blocked(self.block(user, other)),
            Command::Unblock(user, other) => self.unblock(user, other),
        }
    }

    fn publish(&mut self, new: &NewPost) -> Published {
        let digest = digest(new);
        if let Some(there) = self.rows.posts.get(&new.id) {
            return if there.post.digest == digest { Published::Same(there.post.clone()) } else { Published::Mismatch };
        }
        // Who showed the one that had this name did not show this one.
        if self.rows.roots.get(&new.id).is_some_and(|reposts| *reposts > 0) {
            return Published::Mismatch;
        }
        let content = match &new.content {
            Content::Body(_) => new.content.clone(),
            Content::Repost(of) => match self.root_of(of) {
                Some(root) => Content::Repost(root),
                None => return Published::UnknownRoot,
            },
        };
        let published_at = new.published_at.map_or(self.now, |at| at.min(self.now));
        let post = Post {
            id: new.id.clone(),
            author: new.author.clone(),
            content,
            published_at,
            edited_at: None,
            visibility: new.visibility,
            version: 1,
            digest,
        };
        let root = match &post.content {
            Content::Body(_) => None,
            Content::Repost(root) => {
                let by = (root.clone(), post.author.clone());
                if let Some(first) = self.rows.reposts.get(&by) {
                    let first = self.rows.posts.get(first).map(|stored| stored.post.clone());
                    // The ledger loads a repost with its name.
                    return first.map_or(Published::UnknownRoot, Published::Same);
                }
                self.rows.reposts.insert(by, post.id.clone());
                *self.rows.roots.entry(root.clone()).or_default() += 1;
                self.set_repost(root, &post);
                Some(root.clone())
            }
        };
        let entry = Entry { place: place_of(&post), root };
        self.write_post(StoredPost { post: post.clone(), row: 0, reposts: 0 });
        self.tell_posts(&post.author, |added, _, _| added.push(entry));
        Published::New(post)
    }

    /// The root of a post that may be reposted: both are there and public.
    fn root_of(&self, of: &PostId) -> Option<PostId> {
        let public = |id: &PostId| {
            self.rows.posts.get(id).map(|stored| &stored.post).filter(|post| post.visibility == Visibility::Public)
        };
        let root = public(of)?.root().clone();
        public(&root).map(|_| root)
    }

    fn edit(&mut self, id: &PostId, edit: &PostEdit) -> Edited {
        let Some(stored) = self.rows.posts.get(id) else { return Edited::Unknown };
        let mut post = stored.post.clone();
        if let Some(body) = &edit.body {
            if matches!(post.content, Content::Repost(_)) {
                return Edited::NoBody;
            }
            post.content = Content::Body(body.clone());
        }
        post.visibility = edit.visibility.unwrap_or(post.visibility);
        if post == stored.post {
            return Edited::Done(post);
        }
        post.version += 1;
        post.edited_at = Some(self.now);
        let changed = StoredPost { post: post.clone(), ..stored.clone() };
        if let Content::Repost(root) = &post.content {
            self.set_repost(root, &post);
        }
        self.tell_posts(&post.author, |_, _, touched| touched.push(id.clone()));
        self.write_post(changed);
        Edited::Done(post)
    }

    fn delete(&mut self, id: &PostId) -> bool {
        let Some(stored) = self.rows.posts.remove(id) else { return false };
        let post = stored.post;
        let place = place_of(&post);
        self.tell_posts(&post.author, |_, removed, touched| {
            removed.push(place);
            touched.push(id.clone());
        });
        if let Content::Repost(root) = &post.content {
            self.rows.reposts.remove(&(root.clone(), post.author.clone()));
            if let Some(reposts) = self.rows.roots.get_mut(root) {
                *reposts = reposts.saturating_sub(1);
            }
            if let Some(version) = self.raise_root(root) {
                self.tell_reposts(root, version, |_, unset| unset.push(post.author.clone()));
            }
        }
        if stored.reposts > 0 {
            let version = stored.reposts + 1;
            let floor = Change { prev: 0, version, what: What::Floor(Subject::Root(id.clone())) };
            self.told.insert(Subject::Root(id.clone()), floor);
        }
        self.out.writes.posts.insert(id.clone(), None);
        self.out.stale.retain(|(stale, _)| stale != id);
        self.out.stale.push((id.clone(), stored.row + 1));
        true
    }

    fn follow(&mut self, user: &UserId, other: &UserId, since: Option<Millis>) -> Followed {
        if user == other {
            return Followed::Oneself;
        }
        let pair = (user.clone(), other.clone());
        if let Some(since) = self.rows.follows.get(&pair) {
            return Followed::Since(*since);
        }
        let count = self.rows.counts.entry(user.clone()).or_default();
        if *count >= self.max_followees {
            return Followed::Limit;
        }
        *count += 1;
        let since = since.map_or(self.now, |at| at.min(self.now));
        self.rows.follows.insert(pair.clone(), since);
        self.out.writes.follows.insert(pair, Some(since));
        self.tell_ties(user, |ties| move_to(ties.0, ties.1, other));
        Followed::Since(since)
    }

    fn unfollow(&mut self, user: &UserId, other: &UserId) -> Outcome {
        let pair = (user.clone(), other.clone());
        if self.rows.follows.remove(&pair).is_some() {
            if let Some(count) = self.rows.counts.get_mut(user) {
                *count -= 1;
            }
            self.out.writes.follows.insert(pair, None);
            self.tell_ties(user, |ties| move_to(ties.1, ties.0, other));
        }
        Outcome::Ended
    }

    fn block(&mut self, user: &UserId, other: &UserId) -> bool {
        if user == other {
            return false;
        }
        let was_hidden = self.is_hidden(user, other);
        let pair = (user.clone(), other.clone());
        if self.rows.blocks.insert(pair.clone()) {
            self.out.writes.blocks.insert(pair, true);
            if !was_hidden {
                self.tell_ties(user, |ties| move_to(ties.2, ties.3, other));
                self.tell_ties(other, |ties| move_to(ties.2, ties.3, user));
            }
        }
        true
    }

    fn unblock(&mut self, user: &UserId, other: &UserId) -> Outcome {
        let pair = (user.clone(), other.clone());
        if self.rows.blocks.remove(&pair) {
            self.out.writes.blocks.insert(pair, false);
            if !self.is_hidden(user, other) {
                self.tell_ties(user, |ties| move_to(ties.3, ties.2, other));
                self.tell_ties(other, |ties| move_to(ties.3, ties.2, user));
            }
        }
        Outcome::Ended
    }

    fn is_hidden(&self, one: &UserId, other: &UserId) -> bool {
        let blocks = |a: &UserId, b: &UserId| self.rows.blocks.contains(&(a.clone(), b.clone()));
        blocks(one, other) || blocks(other, one)
    }

    /// Writes a post, with a new version of its row.
    fn write_post(&mut self, mut stored: StoredPost) {
        stored.row = if stored.row == 0 { self.first } else { stored.row + 1 };
        let id = stored.post.id.clone();
        // Deleted before in this batch: the new row is above the old one's floor.
        if let Some((_, floor)) = self.out.stale.iter().find(|(stale, _)| *stale == id) {
            stored.row = stored.row.max(floor + 1);
        }
        self.out.stale.retain(|(stale, _)| *stale != id);
        self.out.stale.push((id.clone(), stored.row));
        self.out.writes.posts.insert(id.clone(), Some(stored.clone()));
        self.rows.posts.insert(id, stored);
    }

    /// The next version of a root's reposts, from which to which; `None`: the root is gone, and nobody asks for them.
    fn raise_root(&mut self, root: &PostId) -> Option<(Version, Version)> {
        let is_root = |stored: &&StoredPost| matches!(stored.post.content, Content::Body(_));
        let mut stored = self.rows.posts.get(root).filter(is_root)?.clone();
        let before = stored.reposts;
        let next = if before == 0 { self.first } else { before + 1 };
        match self.told.get_mut(&Subject::Root(root.clone())) {
            None => stored.reposts = next,
            // It was deleted and published anew in this batch: its reposts, too, are others.
            Some(floor) if matches!(floor.what, What::Floor(_)) => {
                floor.version = next.max(floor.version + 1);
                stored.reposts = floor.version;
            }
            Some(_) => {}
        }
        let version = stored.reposts;
        if before == 0 {
            // What is cached of a post says whether it was shown again.
            self.write_post(stored);
        } else {
            self.out.writes.posts.insert(root.clone(), Some(stored.clone()));
            self.rows.posts.insert(root.clone(), stored);
        }
        Some((before, version))
    }

    fn set_repost(&mut self, root: &PostId, post: &Post) {
        let Some(version) = self.raise_root(root) else { return };
        let repost = Repost {
            user: post.author.clone(),
            at: post.published_at,
            post: post.id.clone(),
            visibility: post.visibility,
        };
        self.tell_reposts(root, version, |set, unset| {
            unset.retain(|user| *user != repost.user);
            set.retain(|other| other.user != repost.user);
            set.push(repost);
        });
    }

    fn tell_reposts(
        &mut self,
        root: &PostId,
        (prev, version): (Version, Version),
        tell: impl FnOnce(&mut Vec<Repost>, &mut Vec<UserId>),
    ) {
        let what = || What::Reposts { root: root.clone(), set: Vec::new(), unset: Vec::new() };
        let change =
            self.told.entry(Subject::Root(root.clone())).or_insert_with(|| Change { prev, version, what: what() });
        if let What::Reposts { set, unset, .. } = &mut change.what {
            tell(set, unset);
            set.retain(|repost| !unset.contains(&repost.user));
        }
    }

    fn tell_posts(&mut self, author: &UserId, tell: impl FnOnce(&mut Vec<Entry>, &mut Vec<Place>, &mut Vec<PostId>)) {
        let row = self.rows.users.entry(author.clone()).or_default();
        let subject = Subject::Author(author.clone());
        let first = self.first;
        let change = self.told.entry(subject).or_insert_with(|| {
            let prev = row.posts;
            row.posts = if prev == 0 { first } else { prev + 1 };
            let what =
                What::Posts { author: author.clone(), added: Vec::new(), removed: Vec::new(), touched: Vec::new() };
            Change { prev, version: row.posts, what }
        });
        self.out.writes.users.insert(author.clone(), *row);
        if let What::Posts { added, removed, touched, .. } = &mut change.what {
            tell(added, removed, touched);
            // Deleted and published anew at the same place, or the other way round: a store removes after it has added.
            let (mut gone, mut again) = (Vec::new(), Vec::new());
            for place in removed.iter() {
                let is_there = self.rows.posts.get(&place.post).is_some_and(|stored| place_of(&stored.post) == *place);
                if is_there { again.push(place.clone()) } else { gone.push(place.clone()) }
            }
            removed.retain(|place| !again.contains(place));
            added.retain(|entry| !gone.contains(&entry.place));
        }
    }

    fn tell_ties(&mut self, user: &UserId, tell: impl FnOnce(&mut TieLists<'_>)) {
        let row = self.rows.users.entry(user.clone()).or_default();
        let first = self.first;
        let change = self.told.entry(Subject::User(user.clone())).or_insert_with(|| {
            let prev = row.ties;
            row.ties = if prev == 0 { first } else { prev + 1 };
            let what = What::Ties {
                user: user.clone(),
                follow: Vec::new(),
                unfollow: Vec::new(),
                hide: Vec::new(),
                show: Vec::new(),
            };
            Change { prev, version: row.ties, what }
        });
        self.out.writes.users.insert(user.clone(), *row);
        if let What::Ties { follow, unfollow, hide, show, .. } = &mut change.what {
            tell(&mut (follow, unfollow, hide, show));
        }
    }

    fn finish(mut self) -> Decision {
        self.out.changes = self.told.into_values().collect();
        self.out
    }
}

type TieLists<'a> = (&'a mut Vec<UserId>, &'a mut Vec<UserId>, &'a mut Vec<UserId>, &'a mut Vec<UserId>);

/// `user` is in the list `to`, and no longer in the one that says the contrary. Both are sorted: a batch may move thousands.
fn move_to(to: &mut Vec<UserId>, from: &mut Vec<UserId>, user: &UserId) {
    if let Ok(at) = from.binary_search(user) {
        from.remove(at);
    }
    if let Err(at) = to.binary_search(user) {
        to.insert(at, user.clone());
    }
}

fn place_of(post: &Post) -> Place {
    Place { at: post.published_at, post: post.id.clone() }
}
