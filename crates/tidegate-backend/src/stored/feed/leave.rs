//! How a user is deleted, a bounded number of rows a call.
//!
//! A call looks up some of what is left ([`Remains`]), locks and loads what deleting that needs, and decides it like any
//! batch. The first call ends his own follows at once and marks his row as leaving. The row is his name: it stays as long as
//! anything is left, so that whatever he does meanwhile finds its versions, and goes with the last of the rest.

use tidegate_core::feed::{Change, Command, PostId, Subject, UserId, UserRow, Version, What};

use super::{Beside, Decided, Loaded, UserWrite};

/// Most posts, most followers and most blocks of each side that one call takes.
pub const LEAVE_ROWS: usize = 500;

/// Some of what is left of a user, up to [`LEAVE_ROWS`] each, as it was seen without a lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Remains {
    /// His posts, the oldest first.
    pub posts: Vec<PostId>,
    /// Who follows him.
    pub followers: Vec<UserId>,
    /// Whom he blocks.
    pub blocked: Vec<UserId>,
    /// Who blocks him.
    pub blockers: Vec<UserId>,
}

impl Remains {
    /// What ends them.
    #[must_use]
    pub fn commands(&self, user: &UserId) -> Vec<Command> {
        let mut posts: Vec<&PostId> = self.posts.iter().collect();
        posts.sort_unstable();
        let posts = posts.into_iter().cloned().map(Command::Delete);
        let follows = self.followers.iter().map(|other| Command::Unfollow(other.clone(), user.clone()));
        let blocked = self.blocked.iter().map(|other| Command::Unblock(user.clone(), other.clone()));
        let blockers = self.blockers.iter().map(|other| Command::Unblock(other.clone(), user.clone()));
        posts.chain(follows).chain(blocked).chain(blockers).collect()
    }
}

/// What there is when a call has deleted its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Left {
    /// Posts that were made before he left, followers, or blocks of either side.
    pub remains: bool,
    /// Posts of his at all.
    pub posts: bool,
}

/// A user who is being deleted.
#[derive(Debug)]
pub struct Leaver {
    user: UserId,
    row: UserRow,
    beside: Beside,
    /// This is the first call.
    is_first: bool,
    /// Posts that were made up to this version go.
    pub cut: Version,
}

impl Leaver {
    /// What the loaded rows, locked by now, say of him; his own must have been asked for.
    #[must_use]
    pub fn new(user: &UserId, loaded: &Loaded) -> Self {
        let row = loaded.rows.users.get(user).copied().unwrap_or_default();
        let beside = loaded.beside.get(user).copied().unwrap_or_default();
        let cut = beside.leaving.unwrap_or(row.posts);
        Self { user: user.clone(), row, beside, is_first: beside.leaving.is_none(), cut }
    }

    /// Leaves out what became somebody else's, or his own again, since it was seen.
    pub fn check(&self, commands: &mut Vec<Command>, loaded: &Loaded) {
        commands.retain(|command| match command {
            Command::Delete(id) => {
                let author = loaded.rows.posts.get(id).map(|stored| &stored.post.author);
                author == Some(&self.user) && loaded.made.get(id).is_some_and(|made| *made <= self.cut)
            }
            _ => true,
        });
    }

    /// Marks him in what was decided; whether all of his own follows are to be deleted, too.
    pub fn mark(&self, decided: &mut Decided) -> bool {
        if decided.user_mut(&self.user).is_none() {
            let write = UserWrite { row: self.row, beside: self.beside };
            decided.users.push((self.user.clone(), write));
            decided.users.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        }
        let is_told = |change: &Change| matches!(&change.what, What::Ties { user, .. } if *user == self.user);
        let told = decided.decision.changes.iter().any(is_told);
        let ends_follows = self.is_first && self.beside.followees > 0;
        let Some(write) = decided.user_mut(&self.user) else { return ends_follows };
        write.beside.leaving = Some(self.cut);
        if ends_follows {
            write.beside.followees = 0;
            if !told {
                write.row.ties += 1;
            }
            let version = write.row.ties;
            decided.decision.changes.retain(|change| !is_told(change));
            decided.decision.changes.push(floor(Subject::User(self.user.clone()), version));
        }
        ends_follows
    }

    /// Says what becomes of his row, once all else is written; whether the row is to be deleted, and whether more is left.
    pub fn finish(&self, decided: &mut Decided, left: Left) -> (bool, bool) {
        if left.remains {
            return (false, true);
        }
        let Some(write) = decided.user_mut(&self.user) else { return (false, false) };
        if left.posts || write.beside.followees > 0 {
            // He came back meanwhile.
            write.beside.leaving = None;
            return (false, false);
        }
        let row = write.row;
        decided.users.retain(|(name, _)| *name != self.user);
        let own = [Subject::Author(self.user.clone()), Subject::User(self.user.clone())];
        let changes = &mut decided.decision.changes;
        changes.retain(|change| !own.contains(&change.subject()));
        let floors = own.into_iter().zip([row.posts, row.ties]).filter(|(_, version)| *version > 0);
        // The name's next life begins above: `first_version`.
        changes.extend(floors.map(|(own, version)| floor(own, version + 1)));
        (true, false)
    }
}

fn floor(subject: Subject, version: Version) -> Change {
    Change { prev: 0, version, what: What::Floor(subject) }
}
