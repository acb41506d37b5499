//! Locks and loads the rows of a batch.
//!
//! Every batch locks in one order: users by name, then posts by id. Which users a deletion or an edit needs is said by posts,
//! so those are looked at before, without a lock; what has changed until the locks are there is found by another round of
//! loading. A user's row is the lock of all that is his: of his follows and his blocks, of those who block him, of what he has
//! shown again. A name that has no row gets one of zeros, which holds it like any other; what is still zero at the end is
//! deleted again. A post's name that is not there cannot be locked: inserting it clashes with whoever was quicker, and the batch
//! runs again.

use tidegate_backend::stored::batch::MAX_ROUNDS;
use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::feed::{Beside, LEAVE_ROWS, Left, Loaded, Remains, decisive, extend};
use tidegate_core::feed::{
    Body, Command, Content, Post, PostId, Rows, StoredPost, UserId, UserRow, Version, Visibility, Wants,
};

use super::pairs::{self, BLOCKS, FOLLOWS, REPOSTS};
use super::store;
use crate::fault::{Class, Fault, Result};
use crate::fetched::Row;
use crate::row::{id, millis, opt_id, opt_millis};
use crate::session::Session;
use crate::value::Value;

/// Most names in a set of one statement.
pub(super) const SET: usize = 512;

/// Columns that [`post`] reads, of `feed_posts`.
pub(super) const POST_COLUMNS: [&str; 12] = [
    "id",
    "author",
    "root",
    "published_at",
    "edited_at",
    "visibility",
    "version",
    "row_version",
    "reposts",
    "made",
    "digest",
    "body",
];

/// The same of `table`.
pub(super) fn post_columns(table: &str) -> String {
    POST_COLUMNS.map(|column| format!("{table}.{column}")).join(", ")
}

/// A version in a column.
pub(super) fn version(row: &Row, at: usize) -> Result<Version> {
    let number = row.int(at)?;
    u64::try_from(number).map_err(|_| Fault::corrupt(format!("{number} in column {at} of a row is no version")))
}

/// Who sees a post.
pub(super) fn visibility(row: &Row, at: usize) -> Result<Visibility> {
    let number = row.int(at)?;
    Visibility::from_number(number).ok_or_else(|| Fault::corrupt(format!("{number} is no visibility of a post")))
}

/// A post from the columns that begin at `at`, and when it was made.
pub(super) fn post(row: &Row, at: usize) -> Result<(StoredPost, Version)> {
    let content = match opt_id(row, at + 2)? {
        Some(root) => Content::Repost(root),
        None => {
            let body = Body::parse(row.text(at + 11)?);
            Content::Body(body.map_err(|e| Fault::corrupt(format!("the body of a post of the database {e}")))?)
        }
    };
    let digest = <[u8; 16]>::try_from(row.bytes(at + 10)?);
    let post = Post {
        id: id(row, at)?,
        author: id(row, at + 1)?,
        content,
        published_at: millis(row, at + 3)?,
        edited_at: opt_millis(row, at + 4)?,
        visibility: visibility(row, at + 5)?,
        version: version(row, at + 6)?,
        digest: u128::from_be_bytes(digest.map_err(|_| Fault::corrupt("the digest of a post has not 16 bytes"))?),
    };
    let stored = StoredPost { post, row: version(row, at + 7)?, reposts: version(row, at + 8)? };
    Ok((stored, version(row, at + 9)?))
}

/// A batch's rows.
#[derive(Default)]
pub(super) struct Loading {
    pub(super) loaded: Loaded,
    /// Names that had no row.
    pub(super) names: Vec<UserId>,
}

/// Loads all that `commands` need, and a user's row besides.
pub(super) async fn load_all(session: &mut Session, commands: &[Command], besides: Option<&UserId>) -> Result<Loading> {
    let mut loading = Loading::default();
    let mut wants = Wants::of(commands);
    wants.users.extend(besides.cloned());
    let decisive = decisive(commands);
    if !decisive.is_empty() {
        let mut seen = Rows::default();
        for (stored, _) in posts(session, decisive.iter(), false).await? {
            seen.posts.insert(stored.post.id.clone(), stored);
        }
        extend(&mut wants, Wants::more(commands, &seen));
    }
    for _ in 0..MAX_ROUNDS {
        let Some(missing) = loading.loaded.missing(wants) else { return Ok(loading) };
        loading.load(session, &missing).await?;
        wants = Wants::more(commands, &loading.loaded.rows);
    }
    Err(Fault::new(Class::Data, format!("the batch still lacks rows after {MAX_ROUNDS} rounds of loading")))
}

/// Posts by name, locked in the order of their names or not at all.
async fn posts<'a>(
    session: &mut Session,
    ids: impl Iterator<Item = &'a PostId>,
    lock: bool,
) -> Result<Vec<(StoredPost, Version)>> {
    let ids: Vec<&[u8]> = ids.map(|id| id.as_str().as_bytes()).collect();
    let index = session.dialect().pick("FORCE INDEX (PRIMARY)", "");
    let lock = if lock { "ORDER BY p.id FOR UPDATE" } else { "" };
    let sql = format!("SELECT {} FROM feed_posts p {index} WHERE p.id IN ? {lock}", post_columns("p"));
    let mut found = Vec::new();
    for some in ids.chunks(SET) {
        for row in session.rows(&sql, &[Value::Blobs(some)]).await? {
            found.push(post(&row, 0)?);
        }
    }
    Ok(found)
}

impl Loading {
    async fn load(&mut self, session: &mut Session, wants: &Wants) -> Result<()> {
        let names: Vec<&UserId> = wants.users.iter().collect();
        for some in names.chunks(SET) {
            self.users(session, some).await?;
        }
        for (stored, made) in posts(session, wants.posts.iter(), true).await? {
            self.loaded.post(stored, made);
        }
        let reposts: Vec<_> = wants.reposts.iter().map(pairs::of_repost).collect();
        for row in REPOSTS.rows(session, &post_columns("t"), &reposts).await? {
            let (stored, made) = post(&row, 0)?;
            self.loaded.repost(stored, made);
        }
        self.roots(session, wants).await?;
        let follows: Vec<_> = wants.follows.iter().map(pairs::of_users).collect();
        for row in FOLLOWS.rows(session, "t.follower, t.followee, t.since", &follows).await? {
            self.loaded.rows.follows.insert((id(&row, 0)?, id(&row, 1)?), millis(&row, 2)?);
        }
        let blocks: Vec<_> = wants.blocks.iter().map(pairs::of_users).collect();
        for row in BLOCKS.rows(session, "t.blocker, t.blocked", &blocks).await? {
            self.loaded.rows.blocks.insert((id(&row, 0)?, id(&row, 1)?));
        }
        Ok(())
    }

    /// Locks users; they are in the order of their names.
    async fn users(&mut self, session: &mut Session, users: &[&UserId]) -> Result<()> {
        let names: Vec<&[u8]> = users.iter().map(|user| user.as_str().as_bytes()).collect();
        self.lock(session, &names).await?;
        let rows = &self.loaded.rows.users;
        let without: Vec<&&UserId> = users.iter().filter(|user| !rows.contains_key(**user)).collect();
        if without.is_empty() {
            return Ok(());
        }
        let names: Vec<&[u8]> = without.iter().map(|user| user.as_str().as_bytes()).collect();
        store::hold_names(session, &names).await?;
        self.names.extend(without.into_iter().map(|user| (*user).clone()));
        // Another may have been quicker, and his row is not of zeros.
        self.lock(session, &names).await
    }

    async fn lock(&mut self, session: &mut Session, names: &[&[u8]]) -> Result<()> {
        let index = session.dialect().pick("FORCE INDEX (PRIMARY)", "");
        let sql = format!(
            "SELECT name, posts, ties, followees, leaving FROM feed_users {index} WHERE name IN ? ORDER BY name FOR UPDATE"
        );
        for row in session.rows(&sql, &[Value::Blobs(names)]).await? {
            let leaving = row.opt_int(4)?.map(|_| version(&row, 4)).transpose()?;
            let beside = Beside { followees: row.int(3)?, leaving };
            let versions = UserRow { posts: version(&row, 1)?, ties: version(&row, 2)? };
            self.loaded.user(id(&row, 0)?, versions, beside);
        }
        Ok(())
    }

    /// How many reposts names have.
    async fn roots(&mut self, session: &mut Session, wants: &Wants) -> Result<()> {
        let roots: Vec<&[u8]> = wants.roots.iter().map(|root| root.as_str().as_bytes()).collect();
        let index = session.dialect().pick("FORCE INDEX (feed_posts_root)", "");
        let sql = format!("SELECT root, COUNT(*) FROM feed_posts {index} WHERE root IN ? GROUP BY root");
        for some in roots.chunks(SET) {
            for row in session.rows(&sql, &[Value::Blobs(some)]).await? {
                let reposts = usize::try_from(row.int(1)?).unwrap_or(usize::MAX);
                self.loaded.rows.roots.insert(id(&row, 0)?, reposts);
            }
        }
        Ok(())
    }
}

/// Some of what is left of a user, seen without a lock.
pub(super) async fn remains(session: &mut Session, user: &UserId) -> Result<Remains> {
    let name = Value::from(user.as_str().as_bytes());
    let limit = Value::from(LEAVE_ROWS as i64);
    let leaving = session.one("SELECT leaving FROM feed_users WHERE name = ?", &[name]).await?;
    let cut = leaving.map(|row| row.opt_int(0)).transpose()?.flatten().unwrap_or(i64::MAX);
    let index = session.dialect().pick("FORCE INDEX (feed_posts_author)", "");
    let sql = format!(
        "SELECT id FROM feed_posts {index} WHERE author = ? AND made <= ? ORDER BY author, published_at, id LIMIT ?"
    );
    let posts = session.rows(&sql, &[name, cut.into(), limit]).await?;
    let posts = posts.iter().map(|row| id(row, 0)).collect::<Result<_>>()?;
    let mut names = Vec::new();
    for (table, wanted, by, index) in [
        ("feed_follows", "follower", "followee", "feed_follows_followee"),
        ("feed_blocks", "blocked", "blocker", "PRIMARY"),
        ("feed_blocks", "blocker", "blocked", "feed_blocks_blocked"),
    ] {
        let index = session.dialect().pick(format!("FORCE INDEX ({index})"), String::new());
        let sql = format!("SELECT {wanted} FROM {table} {index} WHERE {by} = ? ORDER BY {by}, {wanted} LIMIT ?");
        let found = session.rows(&sql, &[name, limit]).await?;
        names.push(found.iter().map(|row| id(row, 0)).collect::<Result<Vec<UserId>>>()?);
    }
    let mut names = names.into_iter();
    let mut next = || names.next().unwrap_or_default();
    Ok(Remains { posts, followers: next(), blocked: next(), blockers: next() })
}

/// What there is of a user who left at `cut`.
pub(super) async fn left(session: &mut Session, user: &UserId, cut: Version) -> Result<Left> {
    let name = Value::from(user.as_str().as_bytes());
    let is_there = |what: &str| format!("CASE WHEN EXISTS (SELECT 1 FROM {what}) THEN 1 ELSE 0 END");
    let sql = format!(
        "SELECT {} + {} + {} + {}, {}",
        is_there("feed_posts WHERE author = ? AND made <= ?"),
        is_there("feed_follows WHERE followee = ?"),
        is_there("feed_blocks WHERE blocker = ?"),
        is_there("feed_blocks WHERE blocked = ?"),
        is_there("feed_posts WHERE author = ?"),
    );
    let row = session.one(&sql, &[name, cut.cast_signed().into(), name, name, name, name]).await?;
    let row = row.ok_or_else(|| Fault::corrupt("a question of what is left has no answer"))?;
    Ok(Left { remains: row.int(0)? > 0, posts: row.int(1)? > 0 })
}
