//! Writes what a decided batch changed, a statement or two a table.

use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::feed::{Decided, UserWrite};
use tidegate_core::feed::{Content, StoredPost, UserId, Version};

use super::load::SET;
use super::pairs::{self, BLOCKS, FOLLOWS};
use crate::bulk::Kind::{Bytes, Int, Text};
use crate::bulk::{Bulk, Kind, Table};
use crate::fault::Result;
use crate::session::Session;
use crate::value::Value;

/// Rows of zeros that hold names; a row that is there stays as it is, and is locked.
static NAMES: Table = Table {
    name: "feed_users",
    columns: &[("name", Bytes), ("posts", Int), ("ties", Int), ("followees", Int)],
    key: &["name"],
    update: &["name"],
};

static USERS: Table = Table {
    name: "feed_users",
    columns: &[("name", Bytes), ("posts", Int), ("ties", Int), ("followees", Int), ("leaving", Int)],
    key: &["name"],
    update: &["posts", "ties", "followees", "leaving"],
};

const POST_COLUMNS: &[(&str, Kind)] = &[
    ("id", Bytes),
    ("author", Bytes),
    ("root", Bytes),
    ("published_at", Int),
    ("edited_at", Int),
    ("visibility", Int),
    ("version", Int),
    ("row_version", Int),
    ("reposts", Int),
    ("made", Int),
    ("digest", Bytes),
    ("body", Text),
];

static NEW_POSTS: Table = Table { name: "feed_posts", columns: POST_COLUMNS, key: &[], update: &[] };

/// Posts that are there, and locked; their bodies stay as they are.
static TOUCHED_POSTS: Table = Table {
    name: "feed_posts",
    columns: POST_COLUMNS,
    key: &["id"],
    update: &["edited_at", "visibility", "version", "row_version", "reposts"],
};

/// The same with new bodies.
static EDITED_POSTS: Table = Table {
    name: "feed_posts",
    columns: POST_COLUMNS,
    key: &["id"],
    update: &["edited_at", "visibility", "version", "row_version", "reposts", "body"],
};

static NEW_FOLLOWS: Table = Table {
    name: "feed_follows",
    columns: &[("follower", Bytes), ("followee", Bytes), ("since", Int)],
    key: &[],
    update: &[],
};

static NEW_BLOCKS: Table =
    Table { name: "feed_blocks", columns: &[("blocker", Bytes), ("blocked", Bytes)], key: &[], update: &[] };

/// Versions are below 2^53.
fn number(version: Version) -> i64 {
    version.cast_signed()
}

/// A post's row. `made` and the body count only where the table says so.
fn post(bulk: &mut Bulk, stored: &StoredPost, made: Version, with_body: bool) {
    let post = &stored.post;
    let (root, body) = match &post.content {
        Content::Body(body) => (None, Some(body.as_str()).filter(|_| with_body)),
        Content::Repost(root) => (Some(root.as_str().as_bytes()), None),
    };
    bulk.bytes(post.id.as_str().as_bytes())
        .bytes(post.author.as_str().as_bytes())
        .bytes(root)
        .int(post.published_at.0)
        .int(post.edited_at.map(|at| at.0))
        .int(post.visibility.number())
        .int(number(post.version))
        .int(number(stored.row))
        .int(number(stored.reposts))
        .int(number(made))
        .bytes(post.digest.to_be_bytes().as_slice())
        .text(body);
}

/// Writes all of it.
pub(super) async fn write(session: &mut Session, decided: &Decided) -> Result<()> {
    let deleted: Vec<&[u8]> = decided.deleted.iter().map(|id| id.as_str().as_bytes()).collect();
    // In this form a DELETE of MySQL takes an index hint: for many ids of a short table it would walk it.
    let sql = session.dialect().pick(
        "DELETE p FROM feed_posts p FORCE INDEX (PRIMARY) WHERE p.id IN ?",
        "DELETE FROM feed_posts WHERE id IN ?",
    );
    for some in deleted.chunks(SET) {
        session.execute(sql, &[Value::Blobs(some)]).await?;
    }
    let (mut new, mut touched) = (Bulk::new(&NEW_POSTS), Bulk::new(&TOUCHED_POSTS));
    let mut edited = Bulk::new(&EDITED_POSTS);
    decided.new.iter().for_each(|(stored, made)| post(&mut new, stored, *made, true));
    decided.touched.iter().for_each(|stored| post(&mut touched, stored, 0, false));
    decided.edited.iter().for_each(|stored| post(&mut edited, stored, 0, true));
    for bulk in [&new, &touched, &edited] {
        session.write(bulk).await?;
    }
    users(session, &decided.users).await?;
    let ended: Vec<_> = decided.unfollowed.iter().map(pairs::of_users).collect();
    FOLLOWS.delete(session, &ended).await?;
    let ended: Vec<_> = decided.unblocked.iter().map(pairs::of_users).collect();
    BLOCKS.delete(session, &ended).await?;
    let (mut follows, mut blocks) = (Bulk::new(&NEW_FOLLOWS), Bulk::new(&NEW_BLOCKS));
    for (one, other, since) in &decided.followed {
        follows.bytes(one.as_str().as_bytes()).bytes(other.as_str().as_bytes()).int(since.0);
    }
    for (one, other) in &decided.blocked {
        blocks.bytes(one.as_str().as_bytes()).bytes(other.as_str().as_bytes());
    }
    session.write(&follows).await?;
    session.write(&blocks).await
}

/// Writes users' rows.
pub(super) async fn users(session: &mut Session, users: &[(UserId, UserWrite)]) -> Result<()> {
    let mut all = Bulk::new(&USERS);
    for (name, UserWrite { row, beside }) in users {
        all.bytes(name.as_str().as_bytes())
            .int(number(row.posts))
            .int(number(row.ties))
            .int(beside.followees)
            .int(beside.leaving.map(number));
    }
    session.write(&all).await
}

/// Makes rows for names that have none, or waits for those who are making them, and locks them.
pub(super) async fn hold_names(session: &mut Session, names: &[&[u8]]) -> Result<()> {
    let mut all = Bulk::new(&NAMES);
    for name in names {
        all.bytes(*name).int(0).int(0).int(0);
    }
    session.write(&all).await
}

/// Deletes the rows of zeros that held `names`, but for those that were written.
pub(super) async fn free_names(session: &mut Session, names: &[UserId], written: &[(UserId, UserWrite)]) -> Result<()> {
    let is_written = |user: &&UserId| written.binary_search_by(|(name, _)| name.cmp(user)).is_ok();
    let free: Vec<&[u8]> = names.iter().filter(|user| !is_written(user)).map(|user| user.as_str().as_bytes()).collect();
    let zeros = "posts = 0 AND ties = 0 AND leaving IS NULL";
    // One that was there a moment later than it was looked for is not of zeros.
    let sql = session.dialect().pick(
        format!("DELETE u FROM feed_users u FORCE INDEX (PRIMARY) WHERE u.name IN ? AND {zeros}"),
        format!("DELETE FROM feed_users WHERE name IN ? AND {zeros}"),
    );
    for some in free.chunks(SET) {
        session.execute(&sql, &[Value::Blobs(some)]).await?;
    }
    Ok(())
}

/// Deletes users' rows.
pub(super) async fn delete_users(session: &mut Session, names: &[&[u8]]) -> Result<()> {
    session.execute("DELETE FROM feed_users WHERE name IN ?", &[Value::Blobs(names)]).await.map(drop)
}

/// Ends all that a user follows, as many as one may follow.
pub(super) async fn end_follows(session: &mut Session, user: &UserId) -> Result<()> {
    let name = Value::from(user.as_str().as_bytes());
    session.execute("DELETE FROM feed_follows WHERE follower = ?", &[name]).await.map(drop)
}
