//! Commands: one commit of the ledger, then whoever has copies is told.

use std::time::Duration;

use tidegate_backend::feed::{FeedCommit, MAX_FEED_COMMANDS};
use tidegate_backend::stored::feed::check_bounds;
use tidegate_core::Millis;
use tidegate_core::feed::{Change, Command, Outcome, UserId, What};

use super::inner::{Counts, Inner};
use super::options::{FeedError, Result};

/// How long a command's answer waits for caches and store; then the relay tells them.
const ANSWER_WITHIN: Duration = Duration::from_millis(1_500);

/// Whether nobody can have a copy of a post that these changes make old: only new posts, and reposts of what was shown
/// again before. (That a new name was asked for before, and there was none, is found out where it matters.)
fn makes_nothing_old(changes: &[Change]) -> bool {
    changes.iter().all(|change| match &change.what {
        What::Posts { removed, touched, .. } => removed.is_empty() && touched.is_empty(),
        What::Reposts { .. } => change.prev != 0,
        What::Ties { .. } => true,
        What::Floor(_) => false,
    })
}

impl Inner {
    /// Runs commands in order, in one commit.
    pub(super) async fn run(&self, commands: Vec<Command>) -> Result<Vec<Outcome>> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let commit = self.ledger.commit(commands.into()).await?;
        Ok(self.tell(commit).await)
    }

    /// Deletes a user, commit after commit.
    pub(super) async fn delete_user(&self, user: &UserId) -> Result<()> {
        loop {
            let (commit, more) = self.ledger.delete_user(user).await?;
            self.tell(commit).await;
            if !more {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Tells what a commit has changed: caches of posts, then the store, then this process' mirror. Whatever cannot be told
    /// in time is left to the relay; this process' own pages are right at once all the same.
    async fn tell(&self, commit: FeedCommit) -> Vec<Outcome> {
        let FeedCommit { now, outcomes, changes, outbox } = commit;
        if changes.is_empty() && outbox.is_empty() {
            return outcomes;
        }
        if let Some(relay) = &self.relay {
            let mut charge = relay.charge(outbox);
            let told = tokio::time::timeout(ANSWER_WITHIN, async {
                // Else whoever hears of a change could load the old post once more.
                if !makes_nothing_old(&changes) && !charge.invalidate().await {
                    return false;
                }
                self.tell_store(&changes, now).await
            });
            if told.await == Ok(true) {
                charge.told();
                Counts::add(&self.counts.told, changes.len());
            } else {
                Counts::add(&self.counts.left, changes.len());
            }
        }
        self.mirror.take_own(&changes);
        outcomes
    }

    async fn tell_store(&self, changes: &[Change], now: Millis) -> bool {
        let Some(store) = &self.store else { return false };
        if !self.health.may_ask() {
            return false;
        }
        for part in changes.chunks(MAX_FEED_COMMANDS) {
            if let Err(error) = store.apply(part, now).await {
                self.health.failed(&error);
                return false;
            }
        }
        self.health.answered();
        true
    }
}

/// Refuses a batch that no ledger takes.
pub(super) fn check(commands: &[Command]) -> Result<()> {
    check_bounds(commands).map_err(|e| FeedError::Invalid(e.to_string()))
}
