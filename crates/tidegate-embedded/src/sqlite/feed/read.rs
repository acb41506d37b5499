//! Reads of the feed. Each is one transaction.

use rusqlite::{Connection, OptionalExtension, Params, Result, Row};
use tidegate_backend::Page;
use tidegate_backend::stored::feed::{author_set, cut, follows_cursor};
use tidegate_core::Millis;
use tidegate_core::feed::{
    AuthorSet, Edge, Entry, MAX_SET, Order, Place, PostId, Repost, StoredPost, Ties, UserId, Version,
};

use super::load::{self, POST_COLUMNS};
use crate::sqlite::row;

fn bytes(name: &UserId) -> &[u8] {
    name.as_str().as_bytes()
}

fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    conn.prepare_cached(sql)?.query_map(params, read)?.collect()
}

pub(super) fn posts(conn: &Connection, ids: &[PostId]) -> Result<Vec<Option<StoredPost>>> {
    let sql = format!("SELECT {POST_COLUMNS} FROM feed_posts WHERE id = ?1");
    let mut select = conn.prepare_cached(&sql)?;
    let stored = |r: &Row<'_>| load::post(r).map(|(stored, _)| stored);
    ids.iter().map(|id| select.query_row([id.as_str().as_bytes()], stored).optional()).collect()
}

fn entry(r: &Row<'_>) -> Result<Entry> {
    Ok(Entry { place: Place { at: row::millis(r, 0)?, post: row::id(r, 1)? }, root: row::opt_id(r, 2)? })
}

pub(super) fn authors(conn: &Connection, authors: &[UserId], from: Millis) -> Result<Vec<AuthorSet>> {
    let mut version = conn.prepare_cached("SELECT posts FROM feed_users WHERE name = ?1")?;
    let mut oldest = conn.prepare_cached("SELECT min(published_at) FROM feed_posts WHERE author = ?1")?;
    let mut entries = conn.prepare_cached(
        "SELECT published_at, id, root FROM feed_posts WHERE author = ?1 AND published_at >= ?2 \
        ORDER BY published_at DESC, id DESC LIMIT ?3",
    )?;
    let mut set = |author: &UserId| {
        let name = bytes(author);
        let version = version.query_row([name], |r| load::version(r, 0)).optional()?.unwrap_or(0);
        if version == 0 {
            return Ok(author_set(0, from, None, Vec::new()));
        }
        let oldest = oldest.query_row([name], |r| row::opt_millis(r, 0))?;
        let entries = entries.query_map((name, from.0, MAX_SET as i64 + 1), entry)?.collect::<Result<_>>()?;
        Ok(author_set(version, from, oldest, entries))
    };
    authors.iter().map(&mut set).collect()
}

pub(super) fn entries(
    conn: &Connection,
    author: &UserId,
    order: Order,
    beyond: &Edge,
    max: usize,
) -> Result<Vec<Entry>> {
    let head = "SELECT published_at, id, root FROM feed_posts WHERE author = ?1 AND (published_at, id)";
    let (at, post, is_after) = cut(beyond);
    let (compare, order) = match (order, is_after) {
        (Order::Newest, false) => ("<", "published_at DESC, id DESC"),
        (Order::Newest, true) => ("<=", "published_at DESC, id DESC"),
        (Order::Oldest, false) => (">=", "published_at, id"),
        (Order::Oldest, true) => (">", "published_at, id"),
    };
    let sql = format!("{head} {compare} (?2, ?3) ORDER BY {order} LIMIT ?4");
    all(conn, &sql, (bytes(author), at.0, post, max as i64), entry)
}

pub(super) fn ties(conn: &Connection, user: &UserId) -> Result<Ties> {
    let name = [bytes(user)];
    let mut version = conn.prepare_cached("SELECT ties FROM feed_users WHERE name = ?1")?;
    let version = version.query_row(name, |r| load::version(r, 0)).optional()?.unwrap_or(0);
    let names = |sql: &str| all(conn, sql, name, |r| row::id(r, 0));
    Ok(Ties {
        version,
        follows: names("SELECT followee FROM feed_follows WHERE follower = ?1 ORDER BY followee")?,
        hidden: names(
            "SELECT blocked FROM feed_blocks WHERE blocker = ?1 UNION SELECT blocker FROM feed_blocks WHERE blocked = ?1 \
            ORDER BY 1",
        )?,
    })
}

fn repost(r: &Row<'_>) -> Result<Repost> {
    Ok(Repost {
        user: row::id(r, 0)?,
        at: row::millis(r, 1)?,
        post: row::id(r, 2)?,
        visibility: load::visibility(r, 3)?,
    })
}

pub(super) fn reposts(
    conn: &Connection,
    root: &PostId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Version, Vec<Repost>)> {
    let root = root.as_str().as_bytes();
    let mut version = conn.prepare_cached("SELECT reposts FROM feed_posts WHERE id = ?1")?;
    let version = version.query_row([root], |r| load::version(r, 0)).optional()?.unwrap_or(0);
    let sql = "SELECT author, published_at, id, visibility FROM feed_posts WHERE root = ?1 AND author > ?2 \
        ORDER BY author LIMIT ?3";
    let after = after.map_or(&b""[..], bytes);
    Ok((version, all(conn, sql, (root, after, limit as i64), repost)?))
}

pub(super) fn reposts_by(conn: &Connection, root: &PostId, users: &[UserId]) -> Result<Vec<Repost>> {
    let sql = "SELECT author, published_at, id, visibility FROM feed_posts WHERE root = ?1 AND author = ?2";
    let mut select = conn.prepare_cached(sql)?;
    let root = root.as_str().as_bytes();
    let found = users.iter().map(|user| select.query_row((root, bytes(user)), repost).optional());
    found.filter_map(Result::transpose).collect()
}

pub(super) fn follows(
    conn: &Connection,
    user: &UserId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Page<(UserId, Millis)>> {
    let sql =
        "SELECT followee, since FROM feed_follows WHERE follower = ?1 AND followee > ?2 ORDER BY followee LIMIT ?3";
    let key = (bytes(user), after.map_or(&b""[..], bytes), limit as i64 + 1);
    let mut items = all(conn, sql, key, |r| Ok((row::id(r, 0)?, row::millis(r, 1)?)))?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|(name, _)| follows_cursor(name));
    Ok(Page { items, next })
}
