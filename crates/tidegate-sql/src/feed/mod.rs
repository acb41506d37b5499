//! The feed: users, posts, follows and blocks in the ledger's database, any number of nodes at once.
//!
//! - here: what the seam asks for, and what is tried again. `load.rs`: rows, locked in one order. `store.rs`: what changed, table
//!   by table. `read.rs`: reads, each one statement, so that all it says is of one moment. `pairs.rs`: rows by two names.
//! - `join.rs` (feature `ceiling`): what the bench compares with.
//!
//! What a batch comes to is `tidegate_core::feed::decide`'s word; what SQL ledgers share of it is
//! `tidegate_backend::stored::feed`.

#[cfg(feature = "ceiling")]
mod join;
mod load;
mod pairs;
mod read;
mod store;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests;

use std::sync::Arc;

use tidegate_backend::feed::{MAX_FOLLOWS_PAGE, MAX_PART, MAX_REPOSTS_READ};
use tidegate_backend::stored::feed::{Decided, Leaver, check_bounds, check_reads, follows_after};
use tidegate_backend::{BoxFuture, Clock, Error, FeedCommit, FeedLedger, Page, PageRequest, Result};
use tidegate_core::Millis;
use tidegate_core::feed::{AuthorSet, Command, Edge, Entry, Order, PostId, Repost, StoredPost, Ties, UserId, Version};

use crate::SqlLedger;
use crate::dialect::Dialect;
use crate::fault::{self, Class, Fault};
use crate::open::Parts;
use crate::session::{Isolation, Session};
use crate::write::{Tries, begin_batch};
use crate::{outbox, upkeep};
use load::Loading;

/// What is to be done.
enum Job<'a> {
    Commands(&'a [Command]),
    /// Delete a part of this user.
    Leave(&'a UserId),
}

/// Decides and writes; durable when this returns. Whether more is left of a user who is deleted.
async fn commit(parts: &Parts, job: Job<'_>) -> Result<(FeedCommit, bool)> {
    let mut tries = Tries::default();
    loop {
        let fault = match attempt(parts, &job).await {
            Ok(done) => return Ok(done),
            Err(fault) => fault,
        };
        if !tries.again(fault.class) {
            return Err(fault.into());
        }
        metrics::counter!("tidegate_sql_retries_total", "reason" => fault.class.name()).increment(1);
        tracing::debug!(fault = %fault, "a batch of the feed is tried again");
        if fault.class == Class::Lost {
            parts.writes.forget_idle();
        }
        tokio::time::sleep(tries.pause()).await;
    }
}

/// One try, from the beginning.
async fn attempt(parts: &Parts, job: &Job<'_>) -> fault::Result<(FeedCommit, bool)> {
    let mut lease = parts.writes.get().await?;
    let session: &mut Session = &mut lease;
    session.begin(Isolation::Write).await?;
    let done = match job {
        Job::Commands(commands) => write(parts, session, commands).await.map(|commit| (commit, false)),
        Job::Leave(user) => leave(parts, session, user).await,
    };
    let done = match done {
        Ok(done) => done,
        Err(fault) => {
            // A connection that cannot even roll back is closed, which does it.
            let _ = session.rollback().await;
            return Err(fault);
        }
    };
    let committed = session.commit().await;
    committed.map(|()| done).map_err(|fault| {
        if fault.class != Class::Lost {
            return fault;
        }
        let text = format!(
            "the database went away while a batch was being committed, and whether it was is not known ({fault}); the same request gives the answer once it is back"
        );
        Fault::new(Class::Unavailable, text)
    })
}

async fn write(parts: &Parts, session: &mut Session, commands: &[Command]) -> fault::Result<FeedCommit> {
    let loading = load::load_all(session, commands, None).await?;
    let (now, real) = instants(parts, session).await?;
    let names = loading.names;
    let decided = loading.loaded.decide(commands, now, real, parts.max_followees);
    store::write(session, &decided).await?;
    store::free_names(session, &names, &decided.users).await?;
    finish(session, decided, now, real).await
}

async fn leave(parts: &Parts, session: &mut Session, user: &UserId) -> fault::Result<(FeedCommit, bool)> {
    let mut commands = load::remains(session, user).await?.commands(user);
    let Loading { loaded, names, .. } = load::load_all(session, &commands, Some(user)).await?;
    let leaver = Leaver::new(user, &loaded);
    leaver.check(&mut commands, &loaded);
    let (now, real) = instants(parts, session).await?;
    let mut decided = loaded.decide(&commands, now, real, parts.max_followees);
    if leaver.mark(&mut decided) {
        store::end_follows(session, user).await?;
    }
    let users = std::mem::take(&mut decided.users);
    store::write(session, &decided).await?;
    decided.users = users;
    let left = load::left(session, user, leaver.cut).await?;
    let (gone, more) = leaver.finish(&mut decided, left);
    store::users(session, &decided.users).await?;
    if gone {
        store::delete_users(session, &[user.as_str().as_bytes()]).await?;
    }
    store::free_names(session, &names, &decided.users).await?;
    decided.decision.outcomes.clear();
    Ok((finish(session, decided, now, real).await?, more))
}

/// The ledger's instant and the server's.
async fn instants(parts: &Parts, session: &mut Session) -> fault::Result<(Millis, Millis)> {
    let now = parts.clock.read(session).await?;
    Ok((now, if parts.clock.is_manual() { upkeep::instant(session).await? } else { now }))
}

/// Leaves in the outbox what others are to be told.
async fn finish(session: &mut Session, decided: Decided, now: Millis, real: Millis) -> fault::Result<FeedCommit> {
    // An answer about what another batch wrote must not be given before that is on disk. Where commits become visible a
    // moment earlier (InnoDB), writing something and committing it waits for both.
    if decided.is_nothing() && !decided.decision.outcomes.is_empty() && session.dialect() == Dialect::MySql {
        begin_batch(session, uuid::Uuid::new_v4().as_bytes()).await?;
    }
    let commit = decided.commit(now, real);
    outbox::insert(session, &commit.outbox).await?;
    Ok(commit)
}

fn failed<'a, T: Send + 'a>(error: Error) -> BoxFuture<'a, Result<T>> {
    Box::pin(std::future::ready(Err(error)))
}

/// The size of a read is checked before a connection is asked for.
macro_rules! few {
    ($names:ident) => {
        if let Err(error) = check_reads($names.len()) {
            return failed(error);
        }
    };
}

impl FeedLedger for SqlLedger {
    fn name(&self) -> &'static str {
        self.dialect().name()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        tidegate_backend::Ledger::clock(self)
    }

    fn commit(&self, commands: Arc<[Command]>) -> BoxFuture<'_, Result<FeedCommit>> {
        Box::pin(async move {
            check_bounds(&commands)?;
            let parts = self.parts()?;
            let _permit = parts.commits.acquire().await.map_err(|_| fault::closed())?;
            Ok(commit(&parts, Job::Commands(&commands)).await?.0)
        })
    }

    fn delete_user<'a>(&'a self, user: &'a UserId) -> BoxFuture<'a, Result<(FeedCommit, bool)>> {
        Box::pin(async move {
            let parts = self.parts()?;
            let _permit = parts.commits.acquire().await.map_err(|_| fault::closed())?;
            commit(&parts, Job::Leave(user)).await
        })
    }

    fn posts<'a>(&'a self, ids: &'a [PostId]) -> BoxFuture<'a, Result<Vec<Option<StoredPost>>>> {
        few!(ids);
        read!(self, session => read::posts(session, ids))
    }

    fn authors<'a>(&'a self, authors: &'a [UserId], from: Millis) -> BoxFuture<'a, Result<Vec<AuthorSet>>> {
        few!(authors);
        read!(self, session => read::authors(session, authors, from))
    }

    fn entries<'a>(
        &'a self,
        author: &'a UserId,
        order: Order,
        beyond: &'a Edge,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>>> {
        read!(self, session => read::entries(session, author, order, beyond, max.clamp(1, MAX_PART)))
    }

    fn ties<'a>(&'a self, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Ties>>> {
        few!(users);
        read!(self, session => read::ties(session, users))
    }

    fn reposts<'a>(
        &'a self,
        root: &'a PostId,
        after: Option<&'a UserId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<(Version, Vec<Repost>)>> {
        read!(self, session => read::reposts(session, root, after, limit.clamp(1, MAX_REPOSTS_READ)))
    }

    fn reposts_by<'a>(&'a self, root: &'a PostId, users: &'a [UserId]) -> BoxFuture<'a, Result<Vec<Repost>>> {
        few!(users);
        read!(self, session => read::reposts_by(session, root, users))
    }

    fn follows<'a>(&'a self, user: &'a UserId, page: PageRequest) -> BoxFuture<'a, Result<Page<(UserId, Millis)>>> {
        let after = match follows_after(page.cursor.as_deref()) {
            Ok(after) => after,
            Err(error) => return failed(error),
        };
        let limit = page.limit.clamp(1, MAX_FOLLOWS_PAGE);
        read!(self, session => read::follows(session, user, after.as_ref(), limit))
    }
}
