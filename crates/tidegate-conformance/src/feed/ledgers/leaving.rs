//! Users who are deleted, and what commits leave in the outbox.

use std::sync::Mutex;
use std::time::Duration;

use tidegate_backend::outbox::{MAX_OUTBOX_BATCH, Relayed};
use tidegate_backend::stored::feed::LEAVE_ROWS;
use tidegate_backend::{BoxFuture, Deliver};
use tidegate_core::feed::copy::Copies;

use super::*;

/// Nothing of a user is left, and nobody is tied to him.
async fn is_gone(twin: &Twin, name: &str, followers: &[UserId]) {
    let name = user(name);
    let set = twin.feed.authors(std::slice::from_ref(&name), Millis(0)).await.expect("readable").swap_remove(0);
    assert!(set.version == 0 && set.entries.is_empty() && set.oldest.is_none());
    let ties = twin.feed.ties(std::slice::from_ref(&name)).await.expect("readable").swap_remove(0);
    assert!(ties.version == 0 && ties.follows.is_empty() && ties.hidden.is_empty());
    for some in followers.chunks(MAX_FEED_READS) {
        let ties = twin.feed.ties(some).await.expect("readable");
        assert!(ties.iter().all(|ties| !ties.follows.contains(&name) && !ties.hidden.contains(&name)));
    }
}

/// A user of whom there is much is deleted in parts, and copies that are told of it end up without him.
pub async fn a_user_is_deleted_in_parts(open: Open<'_>) {
    let twin = Twin::open(open).await;
    let (posts, fans, blocked) = (2 * LEAVE_ROWS + 3, LEAVE_ROWS + 7, LEAVE_ROWS + 2);
    let now = twin.now();
    let mut copies = Copies::default();
    let mut tell = |commit: &FeedCommit| commit.changes.iter().for_each(|change| copies.apply(change, commit.now));
    let commit = |commands: Vec<Command>| twin.feed.commit(commands.into());
    for some in (0..posts).collect::<Vec<_>>().chunks(MAX_FEED_POSTS) {
        let new = |n: &usize| publish("ann", &format!("p{n}"), Some(now.plus(-(*n as i64) * 1_000)));
        tell(&commit(some.iter().map(new).collect()).await.expect("it commits"));
    }
    let fan = |n: usize| format!("fan{n}");
    tell(&commit((0..fans).map(|n| follow(&fan(n), "ann")).collect()).await.expect("it commits"));
    tell(&commit((0..fans).map(|n| follow("ann", &fan(n))).collect()).await.expect("it commits"));
    let block = |n: usize| Command::Block(user("ann"), user(&fan(n)));
    let back = |n: usize| Command::Block(user(&fan(n)), user("ann"));
    tell(&commit((0..blocked).map(block).chain((0..9).map(back)).collect()).await.expect("it commits"));
    // Hers that others show, and theirs that she shows.
    let theirs = publish("bob", "b1", None);
    let shown = vec![theirs, repost("bob", "r1", "p1"), repost("cy", "r2", "p1002"), repost("ann", "r3", "b1")];
    tell(&commit(shown).await.expect("it commits"));
    let mut calls = 0;
    loop {
        let (commit, more) = twin.feed.delete_user(&user("ann")).await.expect("it deletes");
        assert!(commit.changes.len() <= 4 * LEAVE_ROWS + 4, "a call is bounded: {}", commit.changes.len());
        assert_eq!(said(&commit.outbox).len(), commit.outbox.len());
        tell(&commit);
        calls += 1;
        let ties = twin.feed.ties(&[user("ann")]).await.expect("readable").swap_remove(0);
        assert!(ties.follows.is_empty(), "her own follows go first");
        if !more {
            break;
        }
    }
    assert_eq!(calls, 3, "as many as her posts need");
    let fans: Vec<UserId> = (0..fans).map(|n| user(&fan(n))).collect();
    is_gone(&twin, "ann", &fans).await;
    assert!(copies.head(&user("ann")).is_none() && copies.ties(&user("ann")).is_none(), "copies of hers are forgotten");
    for fan in &fans {
        let own = copies.ties(fan).expect("it was told");
        assert!(own.follows.is_empty() && own.hidden.is_empty());
    }
    let (version, reposts) = twin.feed.reposts(&post("b1"), None, 9).await.expect("readable");
    assert!(version > 0 && reposts.is_empty());
    assert_eq!(twin.feed.posts(&[post("p1"), post("p1002"), post("r3")]).await.expect("readable"), [None, None, None]);
    let (nothing, more) = twin.feed.delete_user(&user("ann")).await.expect("it deletes");
    assert!(!more && nothing.changes.is_empty() && nothing.outbox.is_empty());
    // A name is free; its next life has nothing of the one before.
    twin.advance(10).await;
    let again =
        twin.feed.commit(vec![publish("ann", "next", None), follow("ann", "bob")].into()).await.expect("it commits");
    assert!(again.changes.iter().all(|change| change.prev == 0));
    let set = twin.feed.authors(&[user("ann")], Millis(0)).await.expect("readable").swap_remove(0);
    assert_eq!(set.entries.len(), 1);
}

/// Who comes back while he is being deleted keeps what he does then, and nothing from before.
pub async fn who_comes_back_meanwhile_lives_on(open: Open<'_>) {
    let twin = Twin::open(open).await;
    let now = twin.now();
    let old: Vec<Command> = (0..MAX_FEED_POSTS).map(|n| publish("ann", &format!("p{n}"), Some(now))).collect();
    twin.feed.commit(old.into()).await.expect("it commits");
    let more_old =
        vec![publish("ann", "q1", None), publish("ann", "q2", None), follow("ann", "bob"), follow("bob", "ann")];
    twin.feed.commit(more_old.into()).await.expect("it commits");
    let (first, more) = twin.feed.delete_user(&user("ann")).await.expect("it deletes");
    assert!(more && !first.changes.is_empty());
    // At the very instant, and older than what is left of the first life.
    let new = vec![publish("ann", "n1", None), publish("ann", "n2", Some(now.plus(-9_999))), follow("ann", "cy")];
    let new = twin.feed.commit(new.into()).await.expect("it commits");
    assert!(new.changes.iter().all(|change| change.prev > 0), "the versions of the name go on");
    let (_, more) = twin.feed.delete_user(&user("ann")).await.expect("it deletes");
    assert!(!more);
    let set = twin.feed.authors(&[user("ann")], Millis(0)).await.expect("readable").swap_remove(0);
    let ids: Vec<&str> = set.entries.iter().map(|entry| entry.place.post.as_str()).collect();
    assert_eq!(ids, ["n1", "n2"]);
    let ties = twin.feed.ties(&[user("ann"), user("bob")]).await.expect("readable");
    assert_eq!((ties[0].follows.as_slice(), ties[1].follows.len()), ([user("cy")].as_slice(), 0));
    // And is deleted like anybody.
    let (_, more) = twin.feed.delete_user(&user("ann")).await.expect("it deletes");
    assert!(!more);
    is_gone(&twin, "ann", &[user("bob"), user("cy")]).await;
}

/// Takes everything.
#[derive(Default)]
struct Takes(Mutex<Vec<OutboxEntry>>);

impl Deliver for Takes {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        self.0.lock().expect("no test panics in between").extend(entries.iter().cloned());
        Box::pin(async move { entries.iter().map(|entry| entry.id).collect() })
    }
}

/// What commits say of changes is in the outbox, for whoever committed, or for a relay.
pub async fn every_change_is_in_the_outbox(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let mut all = Vec::new();
    all.extend(twin.commit(vec![publish("ann", "p1", None), follow("bob", "ann")]).await.outbox);
    all.extend(twin.commit(vec![edit("p1", Some("x"), None), repost("cy", "r1", "p1")]).await.outbox);
    all.extend(twin.commit(vec![Command::Block(user("ann"), user("dee"))]).await.outbox);
    all.extend(twin.delete_user(&user("ann")).await.outbox);
    assert!(twin.commit(vec![edit("never", None, None), follow("bob", "bob")]).await.outbox.is_empty());
    let outbox = twin.ledger.outbox();
    assert_eq!(outbox.pending().await.expect("readable").count, all.len());
    // Who committed has delivered these.
    let own: Vec<i64> = all.iter().take(3).map(|entry| entry.id).collect();
    outbox.mark_delivered(&own).await.expect("it marks");
    let takes = Takes::default();
    let relayed = outbox.relay(MAX_OUTBOX_BATCH, &takes).await.expect("it relays");
    assert_eq!(relayed, Relayed { taken: all.len() - 3, delivered: all.len() - 3 });
    let taken = takes.0.into_inner().expect("no test panics in between");
    assert_eq!(said(&taken), said(&all[3..]));
    let replayed = outbox.replay(Duration::from_secs(60), None, MAX_OUTBOX_BATCH).await.expect("readable");
    assert_eq!(said(&replayed.entries), said(&all));
}
