//! The handle that callers hold.

use std::fmt;
use std::sync::{Arc, Weak};

use tidegate_backend::PageRequest;
use tidegate_backend::feed::{FeedLedger, FeedStore};
use tidegate_core::Millis;
use tidegate_core::feed::model::{Edited, Followed, Published};
use tidegate_core::feed::{Ask, Command, NewPost, Outcome, Page, Post, PostEdit, PostId, UserId};

use super::commands::check;
use super::inner::Inner;
use super::options::{FeedError, FeedOptions, FeedStats, PageCost, Result};
use super::posts;
use crate::Error;
use crate::cache::sink::Sink;
use crate::cache::{Caches, Relay};

/// What a feed is made of.
#[derive(Clone)]
pub struct FeedParts {
    /// Where its truth lies: in the database of the instance's ledger.
    pub ledger: Arc<dyn FeedLedger>,
    /// Where copies lie. `None`, or one that the other nodes of the ledger do not share: pages are made of the ledger's rows
    /// alone.
    pub store: Option<Arc<dyn FeedStore>>,
}

/// A feed: a cheap handle, clone it freely.
///
/// What was answered is in every page of this process from then on, and in those of other processes, too, if the store took
/// it; else as soon as the relay has told it.
#[derive(Clone)]
pub struct Feed(Arc<Inner>);

impl Feed {
    /// A feed on `caches`; one a process. `relay`: of the outbox that `parts.ledger` writes to; without one, pages are made
    /// of the ledger's rows alone.
    ///
    /// # Errors
    /// [`FeedError::Failed`] with [`Error::Configuration`]: the caches have a feed already, or the options contradict each
    /// other.
    pub fn start(caches: &Caches, relay: Option<Relay>, parts: FeedParts, options: FeedOptions) -> Result<Self> {
        options.scope.check().map_err(Error::Configuration)?;
        let FeedParts { ledger, store } = parts;
        let store = store.filter(|_| relay.is_some());
        let posts = posts::open(caches, Arc::clone(&ledger), &options, store.is_some())
            .map_err(|error| Error::Configuration(format!("the cache of posts: {error}")))?;
        let inner = Arc::new(Inner::new(ledger, store, relay, posts, options));
        let sink: Arc<dyn Sink> = Arc::clone(&inner) as _;
        let sink: Weak<dyn Sink> = Arc::downgrade(&sink);
        if !caches.take_feed(sink) {
            return Err(Error::Configuration("these caches have a feed already; clone its handle".to_owned()).into());
        }
        Ok(Self(inner))
    }

    /// Publishes a post or a repost; known by its name, a repeat answers what is there.
    ///
    /// # Errors
    /// [`FeedError::Failed`]: see [`Error`]; a repeat is harmless.
    pub async fn publish(&self, new: NewPost) -> Result<Published> {
        match self.one(Command::Publish(new)).await? {
            Outcome::Published(published) => Ok(published),
            other => Err(strange(&other)),
        }
    }

    /// Changes a post.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn edit(&self, id: PostId, edit: PostEdit) -> Result<Edited> {
        match self.one(Command::Edit(id, edit)).await? {
            Outcome::Edited(edited) => Ok(edited),
            other => Err(strange(&other)),
        }
    }

    /// Deletes a post; whether it was there.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn delete(&self, id: PostId) -> Result<bool> {
        match self.one(Command::Delete(id)).await? {
            Outcome::Deleted(was_there) => Ok(was_there),
            other => Err(strange(&other)),
        }
    }

    /// `user` follows `other` from now on, or says that he does since `since`.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn follow(&self, user: UserId, other: UserId, since: Option<Millis>) -> Result<Followed> {
        match self.one(Command::Follow { user, other, since }).await? {
            Outcome::Followed(followed) => Ok(followed),
            other => Err(strange(&other)),
        }
    }

    /// `user` follows `other` no more.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn unfollow(&self, user: UserId, other: UserId) -> Result<()> {
        self.one(Command::Unfollow(user, other)).await.map(drop)
    }

    /// Neither sees the other's posts and reposts from now on; false: nobody blocks himself.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn block(&self, user: UserId, other: UserId) -> Result<bool> {
        match self.one(Command::Block(user, other)).await? {
            Outcome::Blocked(is_possible) => Ok(is_possible),
            other => Err(strange(&other)),
        }
    }

    /// `user` blocks `other` no more.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn unblock(&self, user: UserId, other: UserId) -> Result<()> {
        self.one(Command::Unblock(user, other)).await.map(drop)
    }

    /// Runs up to [`super::MAX_FEED_COMMANDS`] commands, [`super::MAX_FEED_POSTS`] of posts among them, in order and in one
    /// commit; their outcomes in order.
    ///
    /// # Errors
    /// [`FeedError::Invalid`]: there are more. Else as [`Feed::publish`].
    pub async fn batch(&self, commands: Vec<Command>) -> Result<Vec<Outcome>> {
        check(&commands)?;
        self.0.run(commands).await
    }

    /// Deletes all that is left of a user: posts, follows and blocks both ways. In several commits; repeat it if it fails.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn delete_user(&self, user: &UserId) -> Result<()> {
        self.0.delete_user(user).await
    }

    /// A post as it stands: what this process has committed, what others have within a second.
    ///
    /// # Errors
    /// As [`Feed::publish`].
    pub async fn post(&self, id: &PostId) -> Result<Option<Post>> {
        Ok(self.0.posts.get(id).await?.value.map(|stored| stored.post.clone()))
    }

    /// Whom a user follows and since when, by name.
    ///
    /// # Errors
    /// [`Error::BadCursor`]; else as [`Feed::publish`].
    pub async fn follows(&self, user: &UserId, page: PageRequest) -> Result<tidegate_backend::Page<(UserId, Millis)>> {
        Ok(self.0.ledger.follows(user, page).await?)
    }

    /// A page of a feed.
    ///
    /// # Errors
    /// [`FeedError::CursorExpired`]; [`FeedError::Invalid`]: a page of no items, or of too many; [`FeedError::Failed`]: neither
    /// the store nor the ledger gives what is needed.
    pub async fn page(&self, ask: &Ask) -> Result<Arc<Page>> {
        Ok(self.page_and_cost(ask).await?.0)
    }

    /// The same, and what it cost.
    ///
    /// # Errors
    /// As [`Feed::page`].
    pub async fn page_and_cost(&self, ask: &Ask) -> Result<(Arc<Page>, PageCost)> {
        let (page, cost) = self.0.page(ask).await?;
        metrics::counter!("tidegate_feed_pages_total").increment(1);
        metrics::counter!("tidegate_feed_memory_pages_total").increment(u64::from(cost.kept));
        metrics::counter!("tidegate_feed_author_sets_read_total").increment(cost.sets);
        metrics::counter!("tidegate_feed_sql_queries_total").increment(cost.ledger_reads);
        Ok((page, cost))
    }

    /// The feed's now: the ledger's clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.0.clock.now()
    }

    /// What it has done so far, in this process.
    #[must_use]
    pub fn stats(&self) -> FeedStats {
        self.0.counts.stats()
    }

    /// Closes the store.
    pub(crate) async fn close(&self) {
        if let Some(store) = &self.0.store {
            store.close().await;
        }
    }

    async fn one(&self, command: Command) -> Result<Outcome> {
        let outcomes = self.0.run(vec![command]).await?;
        let none = || FeedError::Failed(Error::Broken("the ledger gave no outcome of a command".to_owned()));
        outcomes.into_iter().next().ok_or_else(none)
    }
}

fn strange(outcome: &Outcome) -> FeedError {
    FeedError::Failed(Error::Broken(format!("the ledger answered another command: {outcome:?}")))
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
