//! Commands: one commit of the ledger, then whoever has copies is told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_backend::feed::{FeedCommit, MAX_FEED_COMMANDS, MAX_FEED_POSTS};
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
    /// Runs commands in order, in commits as large as the ledger takes. What was committed before an error stays.
    pub(super) async fn run(&self, commands: Vec<Command>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(commands.len());
        let mut rest = commands;
        while !rest.is_empty() {
            let is_post = |command: &Command| matches!(command, Command::Publish(_));
            let mut posts = 0;
            let fits = |command: &Command| {
                posts += usize::from(is_post(command));
                posts <= MAX_FEED_POSTS
            };
            let count = rest.iter().take(MAX_FEED_COMMANDS).map(fits).take_while(|fits| *fits).count();
            let next = rest.split_off(count);
            let part: Arc<[Command]> = std::mem::replace(&mut rest, next).into();
            let commit = self.ledger.commit(part).await?;
            outcomes.extend(self.tell(commit).await);
        }
        Ok(outcomes)
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

/// Refuses a batch that is too large to be answered.
pub(super) fn check(commands: &[Command]) -> Result<()> {
    let posts = commands.iter().filter(|command| matches!(command, Command::Publish(_))).count();
    if commands.len() > MAX_FEED_COMMANDS || posts > MAX_FEED_POSTS {
        return Err(FeedError::Invalid(format!(
            "a batch has at most {MAX_FEED_COMMANDS} commands, {MAX_FEED_POSTS} posts among them; split it"
        )));
    }
    Ok(())
}
