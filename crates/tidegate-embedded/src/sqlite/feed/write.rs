//! Decides a batch and writes what it changed.

use rusqlite::{Connection, Result as Sql, TransactionBehavior};
use tidegate_backend::stored::codec::Numbered;
use tidegate_backend::stored::feed::{Decided, Leaver, UserWrite};
use tidegate_backend::{FeedCommit, Result};
use tidegate_core::Millis;
use tidegate_core::feed::{Command, Content, StoredPost, UserId, Version};

use super::load;
use crate::sqlite::open::FEED_CLOCK;
use crate::sqlite::writer::Writer;
use crate::sqlite::{fault, outbox};

impl Writer {
    /// Decides and writes a batch of the feed; durable when this returns.
    pub(in crate::sqlite) fn commit_feed(&mut self, commands: &[Command]) -> Result<FeedCommit> {
        let (clock, real, most) = (self.clock.clone(), self.real_clock.clone(), self.max_followees);
        let commit = self.transact_feed(|conn| {
            let loaded = load::load_all(conn, commands, None)?;
            let (now, real) = (clock.now(), real.now());
            let decided = loaded.decide(commands, now, real, most);
            write(conn, &decided)?;
            finish(conn, decided, now, real)
        });
        commit.map_err(fault::writing)
    }

    /// Deletes a part of a user; whether more is left.
    pub(in crate::sqlite) fn delete_user(&mut self, user: &UserId) -> Result<(FeedCommit, bool)> {
        let (clock, real, most) = (self.clock.clone(), self.real_clock.clone(), self.max_followees);
        let commit = self.transact_feed(|conn| {
            let mut commands = load::remains(conn, user)?.commands(user);
            let loaded = load::load_all(conn, &commands, Some(user))?;
            let leaver = Leaver::new(user, &loaded);
            leaver.check(&mut commands, &loaded);
            let (now, real) = (clock.now(), real.now());
            let mut decided = loaded.decide(&commands, now, real, most);
            if leaver.mark(&mut decided) {
                let sql = "DELETE FROM feed_follows WHERE follower = ?1";
                conn.prepare_cached(sql)?.execute([user.as_str().as_bytes()])?;
            }
            let users = std::mem::take(&mut decided.users);
            write(conn, &decided)?;
            decided.users = users;
            let (gone, more) = leaver.finish(&mut decided, load::left(conn, user, leaver.cut)?);
            write_users(conn, &decided.users)?;
            if gone {
                conn.prepare_cached("DELETE FROM feed_users WHERE name = ?1")?.execute([user.as_str().as_bytes()])?;
            }
            decided.decision.outcomes.clear();
            Ok((finish(conn, decided, now, real)?, more))
        });
        commit.map_err(fault::writing)
    }

    fn transact_feed<T>(&mut self, change: impl FnOnce(&Connection) -> Sql<T>) -> Sql<T> {
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = change(&tx)?;
        tx.commit()?;
        self.dirty.mark();
        Ok(value)
    }
}

/// Writes what the commit leaves for others, and the instant from which time goes on.
fn finish(conn: &Connection, decided: Decided, now: Millis, real: Millis) -> Sql<FeedCommit> {
    let is_nothing = decided.is_nothing();
    let commit = decided.commit(now, real);
    if !is_nothing {
        outbox::insert(conn, &commit.outbox)?;
        let sql =
            "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = max(value, ?2)";
        conn.prepare_cached(sql)?.execute((FEED_CLOCK, now.0))?;
    }
    Ok(commit)
}

pub(super) fn write(conn: &Connection, decided: &Decided) -> Sql<()> {
    let mut delete = conn.prepare_cached("DELETE FROM feed_posts WHERE id = ?1")?;
    for id in &decided.deleted {
        delete.execute([id.as_str().as_bytes()])?;
    }
    let mut insert = conn.prepare_cached(
        "INSERT INTO feed_posts (id, author, root, published_at, edited_at, visibility, version, row_version, reposts, \
        made, digest, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    for (stored, made) in &decided.new {
        let post = &stored.post;
        let (root, body) = parts(&post.content);
        insert.execute((
            post.id.as_str().as_bytes(),
            post.author.as_str().as_bytes(),
            root,
            post.published_at.0,
            post.edited_at.map(|at| at.0),
            post.visibility.number(),
            number(post.version),
            number(stored.row),
            number(stored.reposts),
            number(*made),
            post.digest.to_be_bytes(),
            body,
        ))?;
    }
    let mut update = conn.prepare_cached(
        "UPDATE feed_posts SET edited_at = ?2, visibility = ?3, version = ?4, row_version = ?5, reposts = ?6 WHERE id = ?1",
    )?;
    for stored in decided.touched.iter().chain(&decided.edited) {
        update.execute(changing(stored))?;
    }
    let mut update = conn.prepare_cached("UPDATE feed_posts SET body = ?2 WHERE id = ?1")?;
    for stored in &decided.edited {
        update.execute((stored.post.id.as_str().as_bytes(), parts(&stored.post.content).1))?;
    }
    write_users(conn, &decided.users)?;
    write_pairs(conn, decided)
}

type Changing<'a> = (&'a [u8], Option<i64>, i64, i64, i64, i64);

fn changing(stored: &StoredPost) -> Changing<'_> {
    let post = &stored.post;
    (
        post.id.as_str().as_bytes(),
        post.edited_at.map(|at| at.0),
        post.visibility.number(),
        number(post.version),
        number(stored.row),
        number(stored.reposts),
    )
}

fn parts(content: &Content) -> (Option<&[u8]>, Option<&str>) {
    match content {
        Content::Body(body) => (None, Some(body.as_str())),
        Content::Repost(root) => (Some(root.as_str().as_bytes()), None),
    }
}

/// Versions are below 2^53.
fn number(version: Version) -> i64 {
    version.cast_signed()
}

fn write_users(conn: &Connection, users: &[(UserId, UserWrite)]) -> Sql<()> {
    let sql = "INSERT OR REPLACE INTO feed_users (name, posts, ties, followees, leaving) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut write = conn.prepare_cached(sql)?;
    for (name, UserWrite { row, beside }) in users {
        let leaving = beside.leaving.map(number);
        write.execute((name.as_str().as_bytes(), number(row.posts), number(row.ties), beside.followees, leaving))?;
    }
    Ok(())
}

fn write_pairs(conn: &Connection, decided: &Decided) -> Sql<()> {
    let run = |sql: &str, pairs: &[(UserId, UserId)]| -> Sql<()> {
        let mut statement = conn.prepare_cached(sql)?;
        for (one, other) in pairs {
            statement.execute((one.as_str().as_bytes(), other.as_str().as_bytes()))?;
        }
        Ok(())
    };
    run("DELETE FROM feed_follows WHERE follower = ?1 AND followee = ?2", &decided.unfollowed)?;
    run("DELETE FROM feed_blocks WHERE blocker = ?1 AND blocked = ?2", &decided.unblocked)?;
    run("INSERT INTO feed_blocks (blocker, blocked) VALUES (?1, ?2)", &decided.blocked)?;
    let sql = "INSERT INTO feed_follows (follower, followee, since) VALUES (?1, ?2, ?3)";
    let mut insert = conn.prepare_cached(sql)?;
    for (one, other, since) in &decided.followed {
        insert.execute((one.as_str().as_bytes(), other.as_str().as_bytes(), since.0))?;
    }
    Ok(())
}
