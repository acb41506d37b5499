//! Loads the rows that a batch needs.

use rusqlite::{Connection, OptionalExtension, Result, Row};
use tidegate_backend::stored::batch::MAX_ROUNDS;
use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::feed::{Beside, LEAVE_ROWS, Left, Loaded, Remains};
use tidegate_core::feed::{
    Body, Command, Content, Post, PostId, StoredPost, UserId, UserRow, Version, Visibility, Wants,
};

use crate::sqlite::fault::bad_value;
use crate::sqlite::row;

/// Columns that [`post`] reads, of `feed_posts`.
pub(super) const POST_COLUMNS: &str =
    "id, author, root, published_at, edited_at, visibility, version, row_version, reposts, made, digest, body";

/// A version in a column.
pub(super) fn version(row: &Row<'_>, column: usize) -> Result<Version> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|e| bad_value(column, e.to_string()))
}

/// Who sees a post.
pub(super) fn visibility(row: &Row<'_>, column: usize) -> Result<Visibility> {
    let number: i64 = row.get(column)?;
    Visibility::from_number(number).ok_or_else(|| bad_value(column, format!("{number} is no visibility")))
}

/// A post, and when it was made.
pub(super) fn post(r: &Row<'_>) -> Result<(StoredPost, Version)> {
    post_at(r, 0)
}

/// The same from the columns that begin at `at`.
pub(super) fn post_at(r: &Row<'_>, at: usize) -> Result<(StoredPost, Version)> {
    let content = match row::opt_id(r, at + 2)? {
        Some(root) => Content::Repost(root),
        None => {
            let text = r.get_ref(at + 11)?.as_str().map_err(|e| bad_value(at + 11, e.to_string()))?;
            Content::Body(Body::parse(text).map_err(|e| bad_value(at + 11, format!("a body {e}")))?)
        }
    };
    let digest: [u8; 16] = r.get(at + 10)?;
    let post = Post {
        id: row::id(r, at)?,
        author: row::id(r, at + 1)?,
        content,
        published_at: row::millis(r, at + 3)?,
        edited_at: row::opt_millis(r, at + 4)?,
        visibility: visibility(r, at + 5)?,
        version: version(r, at + 6)?,
        digest: u128::from_be_bytes(digest),
    };
    let stored = StoredPost { post, row: version(r, at + 7)?, reposts: version(r, at + 8)? };
    Ok((stored, version(r, at + 9)?))
}

/// Loads all that `commands` need, and a user's row besides.
pub(super) fn load_all(conn: &Connection, commands: &[Command], besides: Option<&UserId>) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut wants = Wants::of(commands);
    wants.users.extend(besides.cloned());
    for _ in 0..MAX_ROUNDS {
        let Some(missing) = loaded.missing(wants) else { return Ok(loaded) };
        load(conn, &mut loaded, &missing)?;
        wants = Wants::more(commands, &loaded.rows);
    }
    Err(bad_value(0, format!("the batch still lacks rows after {MAX_ROUNDS} rounds of loading")))
}

fn load(conn: &Connection, loaded: &mut Loaded, wants: &Wants) -> Result<()> {
    let sql = format!("SELECT {POST_COLUMNS} FROM feed_posts WHERE id = ?1");
    let mut select = conn.prepare_cached(&sql)?;
    for id in &wants.posts {
        if let Some((stored, made)) = select.query_row([id.as_str().as_bytes()], post).optional()? {
            loaded.post(stored, made);
        }
    }
    let sql = format!("SELECT {POST_COLUMNS} FROM feed_posts WHERE root = ?1 AND author = ?2");
    let mut select = conn.prepare_cached(&sql)?;
    for (root, author) in &wants.reposts {
        let key = (root.as_str().as_bytes(), author.as_str().as_bytes());
        if let Some((stored, made)) = select.query_row(key, post).optional()? {
            loaded.repost(stored, made);
        }
    }
    let mut select = conn.prepare_cached("SELECT COUNT(*) FROM feed_posts WHERE root = ?1")?;
    for root in &wants.roots {
        let reposts = select.query_row([root.as_str().as_bytes()], |r| r.get::<_, i64>(0))?;
        loaded.rows.roots.insert(root.clone(), usize::try_from(reposts).unwrap_or(usize::MAX));
    }
    let mut select = conn.prepare_cached("SELECT posts, ties, followees, leaving FROM feed_users WHERE name = ?1")?;
    for name in &wants.users {
        let found = select.query_row([name.as_str().as_bytes()], |r| {
            let leaving = r.get::<_, Option<i64>>(3)?.map(|_| version(r, 3)).transpose()?;
            let row = UserRow { posts: version(r, 0)?, ties: version(r, 1)? };
            Ok((row, Beside { followees: r.get(2)?, leaving }))
        });
        if let Some((row, beside)) = found.optional()? {
            loaded.user(name.clone(), row, beside);
        }
    }
    let sql = "SELECT since FROM feed_follows WHERE follower = ?1 AND followee = ?2";
    let mut select = conn.prepare_cached(sql)?;
    for pair in &wants.follows {
        let key = (pair.0.as_str().as_bytes(), pair.1.as_str().as_bytes());
        if let Some(since) = select.query_row(key, |r| row::millis(r, 0)).optional()? {
            loaded.rows.follows.insert(pair.clone(), since);
        }
    }
    let mut select = conn.prepare_cached("SELECT 1 FROM feed_blocks WHERE blocker = ?1 AND blocked = ?2")?;
    for pair in &wants.blocks {
        if select.exists((pair.0.as_str().as_bytes(), pair.1.as_str().as_bytes()))? {
            loaded.rows.blocks.insert(pair.clone());
        }
    }
    Ok(())
}

/// Some of what is left of a user.
pub(super) fn remains(conn: &Connection, user: &UserId) -> Result<Remains> {
    let name = user.as_str().as_bytes();
    let posts = "SELECT p.id FROM feed_posts p LEFT JOIN feed_users u ON u.name = p.author \
        WHERE p.author = ?1 AND p.made <= coalesce(u.leaving, p.made) ORDER BY p.published_at, p.id LIMIT ?2";
    let mut select = conn.prepare_cached(posts)?;
    let posts = select.query_map((name, LEAVE_ROWS as i64), |r| row::id(r, 0))?.collect::<Result<Vec<PostId>>>()?;
    let names = |sql: &str| -> Result<Vec<UserId>> {
        conn.prepare_cached(sql)?.query_map((name, LEAVE_ROWS as i64), |r| row::id(r, 0))?.collect()
    };
    Ok(Remains {
        posts,
        followers: names("SELECT follower FROM feed_follows WHERE followee = ?1 ORDER BY follower LIMIT ?2")?,
        blocked: names("SELECT blocked FROM feed_blocks WHERE blocker = ?1 ORDER BY blocked LIMIT ?2")?,
        blockers: names("SELECT blocker FROM feed_blocks WHERE blocked = ?1 ORDER BY blocker LIMIT ?2")?,
    })
}

/// What there is of a user who left at `cut`.
pub(super) fn left(conn: &Connection, user: &UserId, cut: Version) -> Result<Left> {
    let sql = "SELECT EXISTS (SELECT 1 FROM feed_posts WHERE author = ?1 AND made <= ?2)
        OR EXISTS (SELECT 1 FROM feed_follows WHERE followee = ?1)
        OR EXISTS (SELECT 1 FROM feed_blocks WHERE blocker = ?1) OR EXISTS (SELECT 1 FROM feed_blocks WHERE blocked = ?1),
        EXISTS (SELECT 1 FROM feed_posts WHERE author = ?1)";
    let mut select = conn.prepare_cached(sql)?;
    let key = (user.as_str().as_bytes(), i64::try_from(cut).unwrap_or(i64::MAX));
    select.query_row(key, |r| Ok(Left { remains: r.get(0)?, posts: r.get(1)? }))
}
