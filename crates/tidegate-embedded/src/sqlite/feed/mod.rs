//! The feed in the ledger's file: users, posts, follows and blocks.
//!
//! `load.rs`, `write.rs`: a batch on the writer's thread, which is the only one, so that no row needs a lock. `read.rs`: reads,
//! each of one instant. What a batch comes to is `tidegate_core::feed::decide`'s word; what SQL ledgers share of it is
//! `tidegate_backend::stored::feed`. `join.rs` (feature `ceiling`): what the bench compares with.

#[cfg(feature = "ceiling")]
mod join;
mod load;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use tidegate_backend::feed::{MAX_FOLLOWS_PAGE, MAX_PART, MAX_REPOSTS_READ};
use tidegate_backend::stored::feed::{check_bounds, check_reads, follows_after};
use tidegate_backend::{BoxFuture, Clock, Error, FeedCommit, FeedLedger, Page, PageRequest, Result};
use tidegate_core::Millis;
use tidegate_core::feed::{AuthorSet, Command, Edge, Entry, Order, PostId, Repost, StoredPost, Ties, UserId, Version};

use super::SqliteLedger;

fn failed<'a, T: Send + 'a>(error: Error) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Err(error)))
}

impl FeedLedger for SqliteLedger {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<FeedCommit>> {
        match check_bounds(&commands) {
            Ok(()) => self.write(move |writer| writer.commit_feed(&commands)),
            Err(error) => failed(error),
        }
    }

    fn delete_user<'a>(&'a self, user: &'a UserId) -> BoxFuture<'a, Result<(FeedCommit, bool)>> {
        let user = user.clone();
        self.write(move |writer| writer.delete_user(&user))
    }

    fn posts<'a>(&'a self, ids: &'a [PostId]) -> BoxFuture<'a, Result<Vec<Option<StoredPost>>>> {
        if let Err(error) = check_reads(ids.len()) {
            return failed(error);
        }
        let ids = ids.to_vec();
        self.read(move |conn| read::posts(conn, &ids))
    }

    fn authors<'a>(&'a self, authors: &'a [UserId], from: Millis) -> BoxFuture<'a, Result<Vec<AuthorSet>>> {
        if let Err(error) = check_reads(authors.len()) {
            return failed(error);
        }
        let authors = authors.to_vec();
        self.read(move |conn| read::authors(conn, &authors, from))
    }

    fn entries<'a>(
        &'a self,
        author: &'a UserId,
        order: Order,
        beyond: &'a Edge,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        let (author, beyond) = (author.clone(), beyond.clone());
        self.read(move |conn| read::entries(conn, &author, order, &beyond, max.clamp(1, MAX_PART)))
    }

    fn ties<'a>(&'a self, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Ties>>> {
        if let Err(error) = check_reads(users.len()) {
            return failed(error);
        }
        let users = users.to_vec();
        self.read(move |conn| users.iter().map(|user| read::ties(conn, user)).collect())
    }

    fn reposts<'a>(
        &'a self,
        root: &'a PostId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Version, Vec<Repost>)>> {
        let (root, after) = (root.clone(), after.cloned());
        self.read(move |conn| read::reposts(conn, &root, after.as_ref(), limit.clamp(1, MAX_REPOSTS_READ)))
    }

    fn reposts_by<'a>(&'a self, root: &'a PostId, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Repost>>> {
        if let Err(error) = check_reads(users.len()) {
            return failed(error);
        }
        let (root, users) = (root.clone(), users.to_vec());
        self.read(move |conn| read::reposts_by(conn, &root, &users))
    }

    fn follows<'a>(&'a self, user: &'a UserId, page: PageRequest) -> BoxFuture<'a, Result<Page<(UserId, Millis)>>> {
        let user = user.clone();
        match follows_after(page.cursor.as_deref()) {
            Ok(after) => {
                self.read(move |conn| read::follows(conn, &user, after.as_ref(), page.limit.clamp(1, MAX_FOLLOWS_PAGE)))
            }
            Err(error) => failed(error),
        }
    }
}
