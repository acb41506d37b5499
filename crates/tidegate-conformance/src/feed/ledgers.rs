//! The cases every [`FeedLedger`] passes. `Twin` does everything to the ledger and to `tidegate_core::feed::Table`, and finds
//! that both say the same.
//!
//! - here: one thing at a time. `random.rs`: anything in any order. `together.rs`: several writers. `leaving.rs`: users who
//!   are deleted, and what a commit leaves in the outbox.

mod leaving;
mod random;
mod together;

pub use leaving::*;
pub use random::*;
pub use together::*;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tidegate_backend::feed::{FeedCommit, MAX_FEED_COMMANDS, MAX_FEED_POSTS, MAX_FEED_READS, MAX_PART, outbox_of};
use tidegate_backend::{ErrorKind, FeedLedger, Ledger, OutboxEntry, PageRequest};
use tidegate_core::feed::model::{Edited, Followed, Published};
use tidegate_core::feed::{
    Body, Change, Command, Content, Decision, Edge, MAX_BODY_BYTES, MAX_SET, NewPost, Order, Outcome, Place, Post,
    PostEdit, PostId, Subject, Table, UserId, Version, Visibility, WINDOW_MS,
};
use tidegate_core::{Millis, Set};

/// A fresh ledger.
pub struct Opened {
    /// Its feed.
    pub feed: Arc<dyn FeedLedger>,
    /// The same ledger.
    pub ledger: Arc<dyn Ledger>,
    /// A folder, a server: whatever it needs.
    pub kept: Box<dyn Any + Send>,
}

/// Opens a fresh ledger in which each may follow so many, with a manual clock.
pub type Open<'a> = &'a (dyn Fn(usize) -> Pin<Box<dyn Future<Output = Opened> + Send>> + Sync);

/// As many as nobody in these cases follows.
const MANY: usize = 100_000;

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("a name")
}

fn post(name: &str) -> PostId {
    PostId::parse(name).expect("a name")
}

fn text(author: &UserId, id: &PostId, body: &str, at: Option<Millis>) -> NewPost {
    NewPost {
        id: id.clone(),
        author: author.clone(),
        content: Content::Body(Body::parse(body).expect("a body")),
        published_at: at,
        visibility: Visibility::Public,
    }
}

fn publish(author: &str, id: &str, at: Option<Millis>) -> Command {
    Command::Publish(text(&user(author), &post(id), "hello", at))
}

fn repost(author: &str, id: &str, of: &str) -> Command {
    let new = text(&user(author), &post(id), "-", None);
    Command::Publish(NewPost { content: Content::Repost(post(of)), ..new })
}

fn edit(id: &str, body: Option<&str>, visibility: Option<Visibility>) -> Command {
    let body = body.map(|body| Body::parse(body).expect("a body"));
    Command::Edit(post(id), PostEdit { body, visibility })
}

fn follow(one: &str, other: &str) -> Command {
    Command::Follow { user: user(one), other: user(other), since: None }
}

fn published(outcome: &Outcome) -> &Post {
    match outcome {
        Outcome::Published(Published::New(post) | Published::Same(post)) => post,
        other => panic!("nothing was published: {other:?}"),
    }
}

/// What entries of an outbox say, but for what is random in them.
fn said(entries: &[OutboxEntry]) -> Vec<(String, Vec<u8>, Option<i64>)> {
    let of = |entry: &OutboxEntry| (entry.namespace.to_string(), entry.key.to_vec(), entry.stored_floor());
    let mut all: Vec<_> = entries.iter().map(of).collect();
    all.sort_unstable();
    all
}

fn sorted(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by_key(Change::subject);
    changes
}

/// A ledger and the rows that it should have.
struct Twin {
    feed: Arc<dyn FeedLedger>,
    ledger: Arc<dyn Ledger>,
    table: Table,
    _kept: Box<dyn Any + Send>,
}

impl Twin {
    async fn open(open: Open<'_>) -> Self {
        Self::following(open, MANY).await
    }

    async fn following(open: Open<'_>, max_followees: usize) -> Self {
        let Opened { feed, ledger, kept } = open(max_followees).await;
        Self { feed, ledger, table: Table::new(max_followees), _kept: kept }
    }

    async fn advance(&self, ms: i64) -> Millis {
        self.ledger.advance(ms).await.expect("its clock is a manual one")
    }

    fn now(&self) -> Millis {
        self.feed.clock().now()
    }

    /// Commits on both sides.
    async fn commit(&mut self, commands: Vec<Command>) -> FeedCommit {
        let commit = self.feed.commit(commands.clone().into()).await.expect("it commits");
        let right = self.table.commit_at(commit.now, real(&commit), &commands);
        assert_eq!(commit.outcomes, right.outcomes, "{commands:?}");
        same(&commit, right);
        commit
    }

    /// Deletes a user of whom there is little, at once.
    async fn delete_user(&mut self, name: &UserId) -> FeedCommit {
        let (commit, more) = self.feed.delete_user(name).await.expect("it deletes");
        let right = self.table.delete_user(commit.now, name);
        assert!(!more && commit.outcomes.is_empty());
        same(&commit, right);
        commit
    }

    /// Everything that can be read is as it should be.
    async fn compare(&self) {
        self.compare_each(1).await;
    }

    /// The same of each so manieth user and post.
    async fn compare_each(&self, step: usize) {
        let mut users: Set<UserId> = self.table.users.keys().cloned().collect();
        users.extend(self.table.follows.keys().chain(&self.table.blocks).flat_map(|(a, b)| [a.clone(), b.clone()]));
        users.extend(["nobody", "ann"].map(user));
        let mut users: Vec<UserId> = users.into_iter().collect();
        users.sort_unstable();
        let users: Vec<UserId> = users.into_iter().step_by(step).collect();
        for some in users.chunks(MAX_FEED_READS) {
            self.compare_users(some).await;
        }
        let gone = [post("never"), post("p1"), post("P1")];
        let posts: Vec<PostId> = self.table.posts.keys().chain(&gone).cloned().collect();
        for some in posts.chunks(MAX_FEED_READS) {
            let right: Vec<_> = some.iter().map(|id| self.table.posts.get(id).cloned()).collect();
            assert_eq!(self.feed.posts(some).await.expect("readable"), right);
        }
        let roots = self.table.posts.values().map(|stored| stored.post.root().clone());
        let roots: Set<PostId> = roots.step_by(step).chain(gone).collect();
        for root in roots {
            self.compare_reposts(&root, &users).await;
        }
    }

    async fn compare_users(&self, users: &[UserId]) {
        let (feed, table) = (&self.feed, &self.table);
        for from in [self.now().plus(-WINDOW_MS), Millis(0), self.now()] {
            let right: Vec<_> = users.iter().map(|user| table.author(user, from)).collect();
            assert_eq!(feed.authors(users, from).await.expect("readable"), right);
        }
        let right: Vec<_> = users.iter().map(|user| table.ties(user)).collect();
        assert_eq!(feed.ties(users).await.expect("readable"), right);
        for user in users {
            for order in [Order::Newest, Order::Oldest] {
                let begin = Edge::Instant(if order == Order::Newest { Millis::MAX } else { Millis(0) });
                let (all, max) = (table.entries(user, order, &begin, usize::MAX), 7);
                let got = feed.entries(user, order, &begin, MAX_PART).await.expect("readable");
                assert_eq!(got, all[..all.len().min(MAX_PART)]);
                for entry in all.iter().step_by(5) {
                    let place = &entry.place;
                    for edge in [Edge::Before(place.clone()), Edge::After(place.clone()), Edge::Instant(place.at)] {
                        let right = table.entries(user, order, &edge, max);
                        assert_eq!(feed.entries(user, order, &edge, max).await.expect("readable"), right, "{edge:?}");
                    }
                }
            }
            let right = table.follows.iter().filter(|((who, _), _)| who == user);
            let right: Vec<_> = right.map(|((_, other), since)| (other.clone(), *since)).collect();
            assert_eq!(self.follows(user, 3).await, right);
        }
    }

    async fn compare_reposts(&self, root: &PostId, users: &[UserId]) {
        let (version, all) = self.table.reposts(root);
        let got = self.feed.reposts(root, None, 5_000).await.expect("readable");
        assert_eq!(got, (version, all.clone()));
        if let Some(first) = all.first() {
            let got = self.feed.reposts(root, Some(&first.user), 1).await.expect("readable");
            assert_eq!(got, (version, all[1..].iter().take(1).cloned().collect()));
        }
        for some in users.chunks(3) {
            let mut got = self.feed.reposts_by(root, some).await.expect("readable");
            got.sort_by(|a, b| a.user.cmp(&b.user));
            let right: Vec<_> = all.iter().filter(|repost| some.contains(&repost.user)).cloned().collect();
            assert_eq!(got, right);
        }
    }

    /// Whom a user follows, page by page.
    async fn follows(&self, user: &UserId, limit: usize) -> Vec<(UserId, Millis)> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.feed.follows(user, PageRequest { cursor, limit }).await.expect("readable");
            assert!(page.items.len() <= limit && (page.next.is_none() || page.items.len() == limit));
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }
}

/// The instant of the clock that versions begin at; of a commit without changes any will do.
fn real(commit: &FeedCommit) -> Millis {
    commit.outbox.first().map_or(commit.now, |entry| entry.committed_at)
}

/// A commit told what it should, and left the same in the outbox.
fn same(commit: &FeedCommit, right: Decision) {
    assert_eq!(sorted(commit.changes.clone()), sorted(right.changes.clone()));
    assert_eq!(said(&commit.outbox), said(&outbox_of(&right.changes, &right.stale, Millis(0))));
}

/// A post is known by its id and content, a repost by its root and author.
pub async fn a_post_is_published_once(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let first = twin.commit(vec![publish("ann", "p1", None)]).await;
    twin.advance(1_000).await;
    let again = twin.commit(vec![publish("ann", "p1", None), publish("bob", "p1", None)]).await;
    assert_eq!(again.outcomes[0], Outcome::Published(Published::Same(published(&first.outcomes[0]).clone())));
    assert_eq!(again.outcomes[1], Outcome::Published(Published::Mismatch));
    assert!(again.changes.is_empty() && again.outbox.is_empty());
    let shown = twin.commit(vec![repost("bob", "r1", "p1"), repost("bob", "r2", "r1"), repost("cy", "r3", "r1")]).await;
    assert_eq!(published(&shown.outcomes[1]).id, post("r1"), "his first repost of the root");
    assert_eq!(published(&shown.outcomes[2]).root(), &post("p1"), "a repost of a repost is one of its root");
    // An edit leaves the request known that made the post; one that changes nothing leaves everything.
    twin.commit(vec![edit("p1", Some("changed"), None), edit("r1", Some("x"), None), edit("never", None, None)]).await;
    let nothing =
        twin.commit(vec![edit("p1", Some("changed"), Some(Visibility::Public)), publish("ann", "p1", None)]).await;
    assert!(nothing.changes.is_empty() && matches!(&nothing.outcomes[0], Outcome::Edited(Edited::Done(_))));
    twin.commit(vec![edit("p1", None, Some(Visibility::Hidden)), repost("dee", "r4", "p1"), repost("dee", "r5", "no")])
        .await;
    twin.compare().await;
    // Whoever takes a name does not take the reposts of the post that had it: not before they are gone.
    let taken = |commit: &FeedCommit| matches!(commit.outcomes[1], Outcome::Published(Published::New(_)));
    let early = twin.commit(vec![Command::Delete(post("p1")), publish("eve", "p1", None), Command::Delete(post("r3"))]);
    assert!(!taken(&early.await));
    twin.compare().await;
    let deleted = ["r1", "r2", "r4", "r5"].map(|id| Command::Delete(post(id)));
    let again = [Command::Delete(post("p1")), publish("eve", "p1", None), repost("bob", "r1", "p1")];
    assert!(!taken(&twin.commit(again.to_vec()).await));
    twin.commit(deleted.to_vec()).await;
    assert!(taken(&twin.commit(again.to_vec()).await));
    twin.compare().await;
    // All of it in one batch.
    let all = [Command::Delete(post("p1")), Command::Delete(post("r1")), publish("ann", "p1", None)];
    twin.commit(all.to_vec()).await;
    twin.commit(vec![repost("bob", "r1", "p1")]).await;
    twin.compare().await;
    twin.ledger.close().await.expect("it closes");
    let closed = twin.feed.posts(&[post("p1")]).await.expect_err("it is closed");
    assert_eq!(closed.kind(), ErrorKind::Unavailable);
}

/// F4: a post stands at its own time, and the future is now.
pub async fn f4_posts_stand_at_their_time(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let now = twin.now();
    let at = |by: i64| Some(now.plus(by));
    let hours = -6 * 3_600_000;
    let made = twin
        .commit(vec![
            publish("ann", "new", at(-5)),
            publish("ann", "imported", at(hours)),
            publish("ann", "future", at(60_000)),
            publish("ann", "old", at(-2 * WINDOW_MS)),
            publish("ann", "ancient", Some(Millis(-5))),
        ])
        .await;
    let times: Vec<i64> = made.outcomes.iter().map(|outcome| published(outcome).published_at.since(now)).collect();
    assert_eq!(times[..4], [-5, hours, 0, -2 * WINDOW_MS]);
    let set = &twin.feed.authors(&[user("ann")], now.plus(-WINDOW_MS)).await.expect("readable")[0];
    let ids: Vec<&str> = set.entries.iter().map(|entry| entry.place.post.as_str()).collect();
    assert_eq!((ids, set.oldest), (vec!["future", "new", "imported"], Some(Millis(-5))));
    let since = Command::Follow { user: user("bob"), other: user("ann"), since: at(hours) };
    let later = Command::Follow { user: user("bob"), other: user("cy"), since: at(60_000) };
    let followed = twin.commit(vec![since, later]).await;
    let instant = |outcome: &Outcome| match outcome {
        Outcome::Followed(Followed::Since(since)) => since.since(now),
        other => panic!("{other:?}"),
    };
    assert_eq!(followed.outcomes.iter().map(instant).collect::<Vec<_>>(), [hours, 0]);
    twin.compare().await;
}

/// Names are bytes: no case, accent, width or blank makes two the same, and they are in the order of their bytes.
pub async fn names_of_users_and_posts_are_bytes(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let (long, longer) = ("x".repeat(128), "x".repeat(127));
    let wide = "\u{1f4a5}".repeat(32);
    let users = [
        "ann",
        "Ann",
        "ANN",
        "\u{e1}nn",
        "a\u{301}nn",
        "ann\u{200b}",
        "a n",
        "a  n",
        "%2F",
        "a/b",
        "a'b\"",
        "a\\",
        "a%",
        "_",
        "stra\u{df}e",
        "strasse",
        "\u{131}",
        "i",
        "I",
        "0",
        "00",
        "null",
        "\u{ff41}nn",
        &long,
        &longer,
        &wide,
    ];
    let ids: Vec<String> = (0..users.len()).map(|n| format!("p{n}")).collect();
    let bodies = ["a'b\\\"", "\u{1f4a5} ", " ", "\u{e9}", &"\u{1f4a5}".repeat(MAX_BODY_BYTES / 4)];
    let mut commands: Vec<Command> = Vec::new();
    for (n, name) in users.iter().enumerate() {
        let body = bodies[n % bodies.len()];
        commands.push(Command::Publish(text(&user(name), &post(&ids[n]), body, None)));
        commands.push(follow("ann", name));
        commands.push(follow(name, "Ann"));
        commands.push(Command::Block(user("a n"), user(name)));
    }
    // Ids of posts differ in case, too; and the longest is 64 bytes.
    for id in ["a", "A", "a-", "a.", "a:", "a_", "0", &"z".repeat(64), &"Z".repeat(64)] {
        commands.push(publish("ann", id, Some(Millis(1_000))));
    }
    twin.commit(commands).await;
    twin.compare().await;
    let follows = twin.follows(&user("ann"), 7).await;
    assert!(
        follows.len() == users.len() - 1
            && follows.is_sorted_by(|a, b| a.0.as_str().as_bytes() < b.0.as_str().as_bytes())
    );
    let unfollow = users.map(|name| Command::Unfollow(user("ann"), user(name)));
    twin.commit(unfollow.into()).await;
    twin.delete_user(&user("ANN")).await;
    twin.delete_user(&user(&wide)).await;
    twin.compare().await;
}

/// A user follows as many as he may; who stopped makes room.
pub async fn follows_have_a_limit_and_page(open: Open<'_>) {
    let mut twin = Twin::following(open, 10).await;
    let names: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
    let commit = twin.commit(names.iter().map(|name| follow("ann", name)).collect()).await;
    let refused = commit.outcomes.iter().filter(|outcome| **outcome == Outcome::Followed(Followed::Limit)).count();
    assert_eq!(refused, 2);
    twin.commit(vec![Command::Unfollow(user("ann"), user("u3")), follow("ann", "u11"), follow("ann", "u10")]).await;
    twin.commit(vec![Command::Unfollow(user("ann"), user("u0")), follow("ann", "u0"), follow("ann", "ann")]).await;
    twin.commit(vec![Command::Unfollow(user("ann"), user("never")), Command::Unfollow(user("who"), user("ann"))]).await;
    twin.commit(vec![follow("ann", "u10"), follow("ann", "u9")]).await;
    twin.compare().await;
    for bad in ["", "f", "x", "o100", "f6100"] {
        let page = PageRequest { cursor: Some(bad.to_owned()), limit: 5 };
        let error = twin.feed.follows(&user("ann"), page).await.expect_err("no cursor of this list");
        assert_eq!(error.kind(), ErrorKind::BadCursor, "{bad}");
    }
}

/// Blocks of either side hide both from each other, as long as there is one.
pub async fn blocks_hide_both(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let (ann, bob) = (user("ann"), user("bob"));
    let block = |a: &UserId, b: &UserId| Command::Block(a.clone(), b.clone());
    let unblock = |a: &UserId, b: &UserId| Command::Unblock(a.clone(), b.clone());
    let steps = [
        vec![block(&ann, &bob), block(&ann, &ann)],
        vec![block(&bob, &ann)],
        vec![block(&bob, &ann)],
        vec![unblock(&ann, &bob)],
        vec![unblock(&ann, &bob), block(&ann, &bob), unblock(&bob, &ann)],
        vec![unblock(&ann, &bob), block(&ann, &bob)],
        vec![unblock(&ann, &bob), unblock(&ann, &user("never"))],
    ];
    for (n, step) in steps.into_iter().enumerate() {
        twin.commit(step).await;
        twin.compare().await;
        let ties = twin.feed.ties(&[ann.clone(), bob.clone()]).await.expect("readable");
        let hidden = usize::from(n < 6);
        assert_eq!((ties[0].hidden.len(), ties[1].hidden.len()), (hidden, hidden), "step {n}");
    }
}

/// The largest batches are taken, larger ones are refused before anything is written.
pub async fn batches_are_large_and_bounded(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let now = twin.now();
    let posts = |from: usize, count: usize| -> Vec<Command> {
        let new = |n: usize| publish(&format!("u{}", n % 90), &format!("p{n}"), Some(now.plus(-(n as i64) * 1_000)));
        (from..from + count).map(new).collect()
    };
    twin.commit(posts(0, MAX_FEED_POSTS)).await;
    let again = twin.commit(posts(100, MAX_FEED_POSTS)).await;
    let new = |outcome: &&Outcome| matches!(outcome, Outcome::Published(Published::New(_)));
    assert_eq!(again.outcomes.iter().filter(new).count(), 100);
    // Of many, and of one.
    let follows = |n: usize| match n % 3 {
        0 => follow("ann", &format!("v{n}")),
        1 => follow(&format!("u{}", n % 700), &format!("v{}", n / 700)),
        _ => follow(&format!("w{n}"), "ann"),
    };
    twin.commit((0..MAX_FEED_COMMANDS).map(follows).collect()).await;
    twin.commit((0..MAX_FEED_COMMANDS).map(follows).rev().collect()).await;
    let shown: Vec<Command> = (0..400).map(|n| repost(&format!("w{n}"), &format!("r{n}"), "p1")).collect();
    twin.commit(shown).await;
    let edited = (0..400).map(|n| edit(&format!("p{n}"), Some("y"), Some(Visibility::Private)));
    twin.commit(edited.chain((0..100).map(|n| Command::Delete(post(&format!("r{n}"))))).collect()).await;
    for too_many in [posts(1_000, MAX_FEED_POSTS + 1), (0..=MAX_FEED_COMMANDS).map(follows).collect()] {
        let error = twin.feed.commit(too_many.into()).await.expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::Command);
    }
    let names: Vec<UserId> = (0..=MAX_FEED_READS).map(|n| user(&format!("u{n}"))).collect();
    assert_eq!(twin.feed.authors(&names, now).await.expect_err("too many").kind(), ErrorKind::Command);
    assert_eq!(twin.feed.ties(&names).await.expect_err("too many").kind(), ErrorKind::Command);
    assert!(twin.feed.commit(Arc::new([])).await.expect("nothing to do").outcomes.is_empty());
    twin.compare_each(41).await;
}

/// Of an author with many posts the newest are given, and it is said from where on they are all there is; deep reads give
/// the rest, also where hundreds stand at one instant.
pub async fn long_sets_are_cut_and_read_deep(open: Open<'_>) {
    let mut twin = Twin::open(open).await;
    let (now, ann) = (twin.now(), user("ann"));
    let total = MAX_SET + 300;
    let at = |n: usize| now.plus(-((n / 150) as i64) * 1_000);
    let ids: Vec<String> = (0..total).map(|n| format!("p{:05}", n * 7_919 % total)).collect();
    for some in (0..total).collect::<Vec<_>>().chunks(MAX_FEED_POSTS) {
        twin.commit(some.iter().map(|n| publish("ann", &ids[*n], Some(at(*n)))).collect()).await;
    }
    let sets = twin.feed.authors(&[ann.clone(), user("bob"), ann.clone()], Millis(0)).await.expect("readable");
    assert_eq!(sets[0], twin.table.author(&ann, Millis(0)));
    assert!(sets[0] == sets[2] && sets[0].entries.len() > MAX_SET - 150 && sets[0].from > Millis(0));
    assert_eq!(sets[1], twin.table.author(&user("bob"), Millis(0)));
    for order in [Order::Newest, Order::Oldest] {
        let mut edge = Edge::Instant(if order == Order::Newest { Millis::MAX } else { Millis(0) });
        let mut all = Vec::new();
        loop {
            let part = twin.feed.entries(&ann, order, &edge, 333).await.expect("readable");
            let Some(last) = part.last() else { break };
            let place: Place = last.place.clone();
            edge = if order == Order::Newest { Edge::Before(place) } else { Edge::After(place) };
            all.extend(part);
        }
        let begin = Edge::Instant(if order == Order::Newest { Millis::MAX } else { Millis(0) });
        assert_eq!(all, twin.table.entries(&ann, order, &begin, usize::MAX));
    }
}
