//! Reads of the feed, on connections that wait for no write. Each is one statement: all it says is of one moment.

use tidegate_backend::Page;
use tidegate_backend::stored::feed::{author_set, cut, follows_cursor};
use tidegate_core::feed::{
    AuthorSet, Edge, Entry, MAX_SET, Order, Place, PostId, Repost, StoredPost, Ties, UserId, Version,
};
use tidegate_core::{Map, Millis};

use super::load::{self, post_columns, version};
use crate::dialect::Dialect;
use crate::fault::Result;
use crate::fetched::Row;
use crate::row::{id, millis, opt_id, opt_millis};
use crate::session::Session;
use crate::value::Value;

fn bytes(name: &UserId) -> &[u8] {
    name.as_str().as_bytes()
}

fn names(users: &[UserId]) -> Vec<&[u8]> {
    let mut names: Vec<&[u8]> = users.iter().map(bytes).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The table of posts, read by this index. MySQL is told it, since it may walk a short table or take another one.
fn posts_by(session: &Session, index: &str) -> String {
    session.dialect().pick(format!("feed_posts FORCE INDEX ({index})"), "feed_posts".to_owned())
}

pub(super) async fn posts(session: &mut Session, ids: &[PostId]) -> Result<Vec<Option<StoredPost>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut all: Vec<&[u8]> = ids.iter().map(|id| id.as_str().as_bytes()).collect();
    all.sort_unstable();
    all.dedup();
    let sql = format!("SELECT {} FROM feed_posts p WHERE p.id IN ?", post_columns("p"));
    let mut found: Map<PostId, StoredPost> = Map::default();
    for row in session.rows(&sql, &[Value::Blobs(&all)]).await? {
        let (stored, _) = load::post(&row, 0)?;
        found.insert(stored.post.id.clone(), stored);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// What is known of an author while rows come in.
#[derive(Default)]
struct Author {
    version: Version,
    oldest: Option<Millis>,
    entries: Vec<Entry>,
}

/// An entry from the columns that begin at `at`: instant, id, root.
fn entry(row: &Row, at: usize) -> Result<Entry> {
    Ok(Entry { place: Place { at: millis(row, at)?, post: id(row, at + 1)? }, root: opt_id(row, at + 2)? })
}

pub(super) async fn authors(session: &mut Session, authors: &[UserId], from: Millis) -> Result<Vec<AuthorSet>> {
    if authors.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(authors);
    let found = match session.dialect() {
        Dialect::Postgres => {
            each_author(session, POSTGRES_AUTHORS, &[Value::List(&names), from.into(), newest()]).await?
        }
        Dialect::MySql => {
            let values = [Value::Blobs(&names), Value::Blobs(&names), from.into(), (MYSQL_ENTRIES as i64).into()];
            let found = each_author(session, MYSQL_AUTHORS, &values).await?;
            if found.values().map(|author| author.entries.len()).sum::<usize>() < MYSQL_ENTRIES {
                found
            } else {
                let values = [Value::Blobs(&names), Value::Blobs(&names), from.into(), newest()];
                each_author(session, MYSQL_LONG_AUTHORS, &values).await?
            }
        }
    };
    let set = |author: &UserId| match found.get(author) {
        Some(Author { version, oldest, entries }) => author_set(*version, from, *oldest, entries.clone()),
        None => author_set(0, from, None, Vec::new()),
    };
    Ok(authors.iter().map(set).collect())
}

/// How many entries of an author are asked for.
fn newest() -> Value<'static> {
    Value::from(MAX_SET as i64 + 1)
}

/// A line for each entry, with what is said of the author.
const POSTGRES_AUTHORS: &str = "SELECT u.name, u.posts, o.published_at, e.published_at, e.id, e.root \
    FROM UNNEST(?::BYTEA[]) w (name) JOIN feed_users u ON u.name = w.name \
    LEFT JOIN LATERAL (SELECT p.published_at FROM feed_posts p WHERE p.author = w.name \
    ORDER BY p.published_at, p.id LIMIT 1) o ON true \
    LEFT JOIN LATERAL (SELECT p.published_at, p.id, p.root FROM feed_posts p WHERE p.author = w.name \
    AND p.published_at >= ? ORDER BY p.published_at DESC, p.id DESC LIMIT ?) e ON true";

/// So many entries of all authors together are read without counting each one's, which costs MySQL several looks at each.
const MYSQL_ENTRIES: usize = 30_000;

macro_rules! mysql_authors {
    ($entries:literal) => {
        concat!(
            "(SELECT u.name, u.posts, (SELECT o.published_at FROM feed_posts o FORCE INDEX (feed_posts_author) \
            WHERE o.author = u.name ORDER BY o.published_at LIMIT 1), NULL, NULL, NULL FROM feed_users u \
            WHERE u.name IN ?) UNION ALL ",
            $entries
        )
    };
}

/// A line for each author, and one for each entry.
const MYSQL_AUTHORS: &str = mysql_authors!(
    "(SELECT author, NULL, NULL, published_at, id, root FROM feed_posts FORCE INDEX (feed_posts_author) \
    WHERE author IN ? AND published_at >= ? LIMIT ?)"
);

/// The same of authors who have so many that each one's must be counted.
const MYSQL_LONG_AUTHORS: &str = mysql_authors!(
    "(SELECT r.author, NULL, NULL, r.published_at, r.id, r.root FROM (SELECT author, published_at, id, root, \
    ROW_NUMBER() OVER (PARTITION BY author ORDER BY published_at DESC, id DESC) AS nth FROM feed_posts \
    FORCE INDEX (feed_posts_author) WHERE author IN ? AND published_at >= ?) r WHERE r.nth <= ?)"
);

/// Authors by name, the entries of each the newest first.
async fn each_author(session: &mut Session, sql: &str, values: &[Value<'_>]) -> Result<Map<UserId, Author>> {
    let mut found: Map<UserId, Author> = Map::default();
    let take = |row: Row| {
        let author = found.entry(id(&row, 0)?).or_default();
        if row.opt_int(1)?.is_some() {
            (author.version, author.oldest) = (version(&row, 1)?, opt_millis(&row, 2)?);
        }
        if row.opt_int(3)?.is_some() {
            author.entries.push(entry(&row, 3)?);
        }
        Ok(())
    };
    session.each(sql, values, take).await?;
    for author in found.values_mut() {
        author.entries.sort_unstable_by(|a, b| b.place.cmp(&a.place));
    }
    Ok(found)
}

pub(super) async fn entries(
    session: &mut Session,
    author: &UserId,
    order: Order,
    beyond: &Edge,
    max: usize,
) -> Result<Vec<Entry>> {
    let (at, post, is_after) = cut(beyond);
    let (author, max, at, post) =
        (Value::from(bytes(author)), Value::from(max as i64), Value::from(at), Value::from(post));
    let (less, same, by) = match (order, is_after) {
        (Order::Newest, false) => ("<", "<", "DESC"),
        (Order::Newest, true) => ("<", "<=", "DESC"),
        (Order::Oldest, false) => (">", ">=", "ASC"),
        (Order::Oldest, true) => (">", ">", "ASC"),
    };
    let head = format!("SELECT published_at, id, root FROM {}", posts_by(session, "feed_posts_author"));
    let (sql, values) = match session.dialect() {
        // It takes no index for pairs: what is left of the instant, then the other instants.
        Dialect::MySql => (
            format!(
                "({head} WHERE author = ? AND published_at = ? AND id {same} ? ORDER BY id {by} LIMIT ?) UNION ALL \
                ({head} WHERE author = ? AND published_at {less} ? ORDER BY published_at {by}, id {by} LIMIT ?) \
                ORDER BY 1 {by}, 2 {by} LIMIT ?"
            ),
            vec![author, at, post, max, author, at, max, max],
        ),
        Dialect::Postgres => (
            format!(
                "{head} WHERE author = ? AND (published_at, id) {same} (?, ?) ORDER BY published_at {by}, id {by} LIMIT ?"
            ),
            vec![author, at, post, max],
        ),
    };
    session.rows(&sql, &values).await?.iter().map(|row| entry(row, 0)).collect()
}

pub(super) async fn ties(session: &mut Session, users: &[UserId]) -> Result<Vec<Ties>> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(users);
    let by_blocked = session.dialect().pick("feed_blocks FORCE INDEX (feed_blocks_blocked)", "feed_blocks");
    let sql = format!(
        "SELECT 0, name, ties, NULL FROM feed_users WHERE name IN ? \
        UNION ALL SELECT 1, follower, NULL, followee FROM feed_follows WHERE follower IN ? \
        UNION ALL SELECT 2, blocker, NULL, blocked FROM feed_blocks WHERE blocker IN ? \
        UNION ALL SELECT 2, blocked, NULL, blocker FROM {by_blocked} WHERE blocked IN ?"
    );
    let mut found: Map<UserId, Ties> = Map::default();
    session
        .each(&sql, &[Value::Blobs(&names); 4], |row| {
            let ties = found.entry(id(&row, 1)?).or_default();
            match row.int(0)? {
                0 => ties.version = version(&row, 2)?,
                1 => ties.follows.push(id(&row, 3)?),
                _ => ties.hidden.push(id(&row, 3)?),
            }
            Ok(())
        })
        .await?;
    for ties in found.values_mut() {
        ties.follows.sort_unstable();
        ties.hidden.sort_unstable();
        ties.hidden.dedup();
    }
    Ok(users.iter().map(|user| found.get(user).cloned().unwrap_or_default()).collect())
}

/// A repost from the columns that begin at `at`: author, instant, id, visibility.
fn repost(row: &Row, at: usize) -> Result<Repost> {
    Ok(Repost {
        user: id(row, at)?,
        at: millis(row, at + 1)?,
        post: id(row, at + 2)?,
        visibility: load::visibility(row, at + 3)?,
    })
}

pub(super) async fn reposts(
    session: &mut Session,
    root: &PostId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Version, Vec<Repost>)> {
    let sql = format!(
        "(SELECT reposts, NULL, NULL, NULL, NULL FROM feed_posts WHERE id = ?) UNION ALL \
        (SELECT NULL, author, published_at, id, visibility FROM {} WHERE root = ? AND author > ? ORDER BY author LIMIT ?)",
        posts_by(session, "feed_posts_root")
    );
    let root = Value::from(root.as_str().as_bytes());
    // Names are never empty.
    let after = Value::from(after.map_or(&b""[..], bytes));
    let (mut of, mut all) = (0, Vec::new());
    for row in session.rows(&sql, &[root, root, after, (limit as i64).into()]).await? {
        match row.opt_int(0)? {
            Some(_) => of = version(&row, 0)?,
            None => all.push(repost(&row, 1)?),
        }
    }
    all.sort_unstable_by(|a, b| a.user.cmp(&b.user));
    Ok((of, all))
}

pub(super) async fn reposts_by(session: &mut Session, root: &PostId, users: &[UserId]) -> Result<Vec<Repost>> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(users);
    let sql = format!(
        "SELECT author, published_at, id, visibility FROM {} WHERE root = ? AND author IN ?",
        posts_by(session, "feed_posts_root")
    );
    let rows = session.rows(&sql, &[root.as_str().as_bytes().into(), Value::Blobs(&names)]).await?;
    rows.iter().map(|row| repost(row, 0)).collect()
}

pub(super) async fn follows(
    session: &mut Session,
    user: &UserId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Page<(UserId, Millis)>> {
    let index = session.dialect().pick("FORCE INDEX (PRIMARY)", "");
    let sql = format!(
        "SELECT followee, since FROM feed_follows {index} WHERE follower = ? AND followee > ? ORDER BY followee LIMIT ?"
    );
    let after = after.map_or(&b""[..], bytes);
    let rows = session.rows(&sql, &[bytes(user).into(), after.into(), (limit as i64 + 1).into()]).await?;
    let mut items =
        rows.iter().map(|row| Ok((id(row, 0)?, millis(row, 1)?))).collect::<Result<Vec<(UserId, Millis)>>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|(name, _)| follows_cursor(name));
    Ok(Page { items, next })
}
