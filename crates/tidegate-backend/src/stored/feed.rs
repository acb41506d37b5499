//! What SQL ledgers of the feed do alike: the bounds of a batch, which rows were asked for, what a decision writes where, the
//! cursor of a list of follows. `leave.rs`: how a user is deleted.
//!
//! A user's row knows beside its versions how many he follows ([`Beside::followees`]), so that nobody counts, and the version
//! of his posts at which he left ([`Beside::leaving`]), while what is left of him is deleted in parts. A post's row knows the
//! version that its author's posts had when it was published (*made*): what a user publishes while he leaves has a larger one
//! than he left with, and stays.

mod leave;
#[cfg(test)]
mod tests;

use tidegate_core::feed::model::Published;
use tidegate_core::feed::{
    AuthorSet, Command, Content, Decision, Edge, Entry, MAX_SET, Outcome, PostId, Rows, StoredPost, UserId, UserRow,
    Version, Visibility, Wants, decide,
};
use tidegate_core::{Map, Millis, Set};

use super::codec::Numbered;
use crate::feed::{FeedCommit, MAX_FEED_COMMANDS, MAX_FEED_POSTS, MAX_FEED_READS, outbox_of};
use crate::{Error, ErrorKind, Result};

pub use leave::{LEAVE_ROWS, Leaver, Left, Remains};

impl Numbered for Visibility {
    const ALL: &'static [Self] = &[Self::Public, Self::Private, Self::Hidden];
}

/// Checks the size of a batch.
///
/// # Errors
/// [`ErrorKind::Command`].
pub fn check_bounds(commands: &[Command]) -> Result<()> {
    let names_a_post =
        |command: &&Command| matches!(command, Command::Publish(_) | Command::Edit(..) | Command::Delete(_));
    check("commands", commands.len(), MAX_FEED_COMMANDS)?;
    check("posts", commands.iter().filter(names_a_post).count(), MAX_FEED_POSTS)
}

/// Checks how much one read asks for.
///
/// # Errors
/// [`ErrorKind::Command`].
pub fn check_reads(count: usize) -> Result<()> {
    check("names", count, MAX_FEED_READS)
}

fn check(what: &str, count: usize, most: usize) -> Result<()> {
    if count > most {
        let text = format!("{count} {what} are too many for one call, which takes {most}; split them");
        return Err(Error::new(ErrorKind::Command, text));
    }
    Ok(())
}

/// What a user's row knows beside its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    /// How many he follows.
    pub followees: i64,
    /// He is being deleted: posts that were made up to this version go.
    pub leaving: Option<Version>,
}

/// The rows of a batch.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Those that the rules know, but for the counts, which are [`Loaded::beside`].
    pub rows: Rows,
    /// What the rows of users know beside their versions.
    pub beside: Map<UserId, Beside>,
    /// Of each post when it was made.
    pub made: Map<PostId, Version>,
    asked: Wants,
}

/// Adds what another asks for.
pub fn extend(wants: &mut Wants, more: Wants) {
    wants.posts.extend(more.posts);
    wants.reposts.extend(more.reposts);
    wants.roots.extend(more.roots);
    wants.users.extend(more.users);
    wants.follows.extend(more.follows);
    wants.counts.extend(more.counts);
    wants.blocks.extend(more.blocks);
}

/// Posts that decide which further rows a batch needs. A ledger that locks rows in an order looks at them first, without a
/// lock.
#[must_use]
pub fn decisive(commands: &[Command]) -> Vec<PostId> {
    let named = commands.iter().filter_map(|command| match command {
        Command::Publish(new) => match &new.content {
            Content::Repost(of) => Some(of.clone()),
            Content::Body(_) => None,
        },
        Command::Edit(id, _) | Command::Delete(id) => Some(id.clone()),
        _ => None,
    });
    let mut named: Vec<PostId> = named.collect();
    named.sort_unstable();
    named.dedup();
    named
}

impl Loaded {
    /// What of `wants` nobody has asked for yet; from now on somebody has. `None`: nothing.
    pub fn missing(&mut self, mut wants: Wants) -> Option<Wants> {
        let asked = &self.asked;
        wants.posts.retain(|key| !asked.posts.contains(key));
        wants.reposts.retain(|key| !asked.reposts.contains(key));
        wants.roots.retain(|key| !asked.roots.contains(key));
        wants.users.retain(|key| !asked.users.contains(key));
        wants.follows.retain(|key| !asked.follows.contains(key));
        wants.counts.retain(|key| !asked.counts.contains(key));
        wants.blocks.retain(|key| !asked.blocks.contains(key));
        extend(&mut self.asked, wants.clone());
        (wants != Wants::default()).then_some(wants)
    }

    /// Takes a user's row in.
    pub fn user(&mut self, name: UserId, row: UserRow, beside: Beside) {
        self.rows.users.insert(name.clone(), row);
        self.beside.insert(name, beside);
    }

    /// Takes a post in.
    pub fn post(&mut self, stored: StoredPost, made: Version) {
        self.made.insert(stored.post.id.clone(), made);
        self.rows.posts.insert(stored.post.id.clone(), stored);
    }

    /// Takes in the post that is an author's repost of a root.
    pub fn repost(&mut self, stored: StoredPost, made: Version) {
        let post = &stored.post;
        self.rows.reposts.insert((post.root().clone(), post.author.clone()), post.id.clone());
        self.post(stored, made);
    }

    /// Decides, and says what is to be written where. `real`: the outbox's instant.
    #[must_use]
    pub fn decide(mut self, commands: &[Command], now: Millis, real: Millis, max_followees: usize) -> Decided {
        let count = |user: &UserId| {
            let followees = self.beside.get(user).map_or(0, |beside| beside.followees);
            (user.clone(), usize::try_from(followees).unwrap_or(0))
        };
        self.rows.counts = self.asked.counts.iter().map(count).collect();
        // Names and bodies are shared, not copied.
        let decision = decide(self.rows.clone(), commands, now, real, max_followees);
        Decided::new(decision, &self)
    }
}

/// A user's row to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserWrite {
    /// Its versions.
    pub row: UserRow,
    /// The rest of it.
    pub beside: Beside,
}

/// A decision by the rows that it writes. Each list is sorted by key. What is deleted goes before anything is inserted.
#[derive(Debug, Default)]
pub struct Decided {
    /// It; what it writes is in the lists.
    pub decision: Decision,
    /// Posts that are there and go.
    pub deleted: Vec<PostId>,
    /// Posts to insert, with the version at which they were made.
    pub new: Vec<(StoredPost, Version)>,
    /// Posts that are there and have another body.
    pub edited: Vec<StoredPost>,
    /// Posts that are there and have changed otherwise.
    pub touched: Vec<StoredPost>,
    /// Users' rows, there or not.
    pub users: Vec<(UserId, UserWrite)>,
    /// Follows that are there and go.
    pub unfollowed: Vec<(UserId, UserId)>,
    /// Follows to insert.
    pub followed: Vec<(UserId, UserId, Millis)>,
    /// Blocks that are there and go.
    pub unblocked: Vec<(UserId, UserId)>,
    /// Blocks to insert.
    pub blocked: Vec<(UserId, UserId)>,
}

impl Decided {
    fn new(mut decision: Decision, loaded: &Loaded) -> Self {
        let (writes, before) = (std::mem::take(&mut decision.writes), &loaded.rows);
        let mut users: Vec<(UserId, UserWrite)> = Vec::with_capacity(writes.users.len());
        for (name, row) in writes.users {
            let beside = loaded.beside.get(&name).copied().unwrap_or_default();
            users.push((name, UserWrite { row, beside }));
        }
        let mut this = Self { decision, users, ..Self::default() };
        let published = this.published();
        for (id, stored) in writes.posts {
            let old = before.posts.get(&id).map(|stored| &stored.post.content);
            match stored {
                None if old.is_some() => this.deleted.push(id),
                None => {}
                Some(stored) if published.contains(&id) => {
                    // Deleted and published anew in this batch.
                    if old.is_some() {
                        this.deleted.push(id);
                    }
                    let made = this.user_mut(&stored.post.author).map_or(0, |write| write.row.posts);
                    this.new.push((stored, made));
                }
                Some(stored) if old == Some(&stored.post.content) => this.touched.push(stored),
                Some(stored) => this.edited.push(stored),
            }
        }
        for (pair, since) in writes.follows {
            let was = before.follows.contains_key(&pair);
            if let Some(write) = this.user_mut(&pair.0) {
                write.beside.followees += i64::from(since.is_some()) - i64::from(was);
            }
            // Ended and begun anew in one batch, it has another instant.
            if was {
                this.unfollowed.push(pair.clone());
            }
            if let Some(since) = since {
                this.followed.push((pair.0, pair.1, since));
            }
        }
        for (pair, is_there) in writes.blocks {
            match (is_there, before.blocks.contains(&pair)) {
                (true, false) => this.blocked.push(pair),
                (false, true) => this.unblocked.push(pair),
                _ => {}
            }
        }
        this
    }

    fn published(&self) -> Set<PostId> {
        let new = self.decision.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Published(Published::New(post)) => Some(post.id.clone()),
            _ => None,
        });
        new.collect()
    }

    /// What is written of a user's row.
    fn user_mut(&mut self, user: &UserId) -> Option<&mut UserWrite> {
        let at = self.users.binary_search_by(|(name, _)| name.cmp(user)).ok()?;
        Some(&mut self.users[at].1)
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.decision.changes.is_empty()
            && self.decision.stale.is_empty()
            && self.users.is_empty()
            && self.unblocked.is_empty()
            && self.blocked.is_empty()
    }

    /// What the caller is told, with the entries of the outbox that are to be written beside the rest. `real`: the instant of
    /// the outbox's clock.
    #[must_use]
    pub fn commit(self, now: Millis, real: Millis) -> FeedCommit {
        let Decision { outcomes, changes, stale, .. } = self.decision;
        let outbox = outbox_of(&changes, &stale, real);
        FeedCommit { now, outcomes, changes, outbox }
    }
}

/// An author's set from his newest entries at `from` or after it, of which one more than [`MAX_SET`] was asked for.
#[must_use]
pub fn author_set(version: Version, from: Millis, oldest: Option<Millis>, mut entries: Vec<Entry>) -> AuthorSet {
    let mut from = from;
    if entries.len() > MAX_SET {
        entries.truncate(MAX_SET);
        // Of the oldest instant some may be missing.
        from = entries.last().map_or(from, |last| last.place.at.plus(1));
        entries.retain(|entry| entry.place.at >= from);
    }
    AuthorSet { version, from, oldest, entries }
}

/// A cut between places as a statement compares it: the instant, the post's name (the empty one is before all names), and
/// whether the place itself is older than the cut.
#[must_use]
pub fn cut(edge: &Edge) -> (Millis, &[u8], bool) {
    match edge {
        Edge::Instant(at) => (*at, b"", false),
        Edge::Before(place) => (place.at, place.post.as_str().as_bytes(), false),
        Edge::After(place) => (place.at, place.post.as_str().as_bytes(), true),
    }
}

/// The first byte of cursors of lists of follows.
const FOLLOWS: char = 'f';

fn check_digits(name: &str) -> u32 {
    let mixed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (mixed ^ (mixed >> 32)) as u32
}

/// The cursor of a list of follows after this name: opaque to callers.
#[must_use]
pub fn follows_cursor(name: &UserId) -> String {
    let mut text = String::from(FOLLOWS);
    let bytes = name.as_str().bytes().chain(check_digits(name.as_str()).to_be_bytes());
    bytes.for_each(|byte| text.push_str(&format!("{byte:02x}")));
    text
}

/// The name in a cursor.
///
/// # Errors
/// [`ErrorKind::BadCursor`] for every text that [`follows_cursor`] does not give.
pub fn follows_after(cursor: Option<&str>) -> Result<Option<UserId>> {
    let Some(text) = cursor else { return Ok(None) };
    let decoded = text.strip_prefix(FOLLOWS).and_then(from_hex).and_then(|bytes| {
        let (bytes, _) = bytes.split_last_chunk::<4>()?;
        let name = UserId::parse(std::str::from_utf8(bytes).ok()?).ok()?;
        // With its check digits, and as it is written here.
        (follows_cursor(&name) == text).then_some(name)
    });
    match decoded {
        Some(name) => Ok(Some(name)),
        None => Err(Error::new(ErrorKind::BadCursor, "this page cursor is none of this list; start again without one")),
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect()
}
