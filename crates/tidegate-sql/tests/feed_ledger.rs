//! The contract of the feed's ledger on both dialects, and its bad days.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;

use common::{Server, open};
use tidegate_backend::outbox::MAX_OUTBOX_BATCH;
use tidegate_backend::{BoxFuture, Deliver, ErrorKind, FeedCommit, FeedLedger, Ledger, OutboxEntry};
use tidegate_core::Millis;
use tidegate_core::feed::model::Published;
use tidegate_core::feed::{Body, Command, Content, NewPost, Outcome, PostId, UserId, Visibility};
use tidegate_sql::{SqlLedger, SqlOptions};

macro_rules! contract {
    ($dialect:ident, $server:ty) => {
        mod $dialect {
            use super::*;

            async fn open(max_followees: usize) -> (Arc<dyn FeedLedger>, Arc<dyn Ledger>, Arc<$server>) {
                let server = <$server>::shared();
                let mut options = SqlOptions::new(server.database());
                (options.max_followees, options.manual_clock) = (max_followees, true);
                let ledger = SqlLedger::open(options).await.unwrap();
                (ledger.clone(), ledger, server)
            }

            tidegate_conformance::feed_ledger_conformance!(open);
        }
    };
}

contract!(contract_mysql, tidegate_conformance::servers::MariaDb);
contract!(contract_postgres, tidegate_conformance::servers::Postgres);

on_both!(
    a_commit_survives_what_kills_its_server_and_waits_in_the_outbox,
    a_batch_that_cannot_be_written_leaves_nothing,
    two_nodes_make_one_post_of_one_id,
    what_a_look_up_of_names_held_is_gone,
);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn post(name: &str) -> PostId {
    PostId::parse(name).unwrap()
}

fn publish(author: &str, id: &str) -> Command {
    Command::Publish(NewPost {
        id: post(id),
        author: user(author),
        content: Content::Body(Body::parse("hello").unwrap()),
        published_at: None,
        visibility: Visibility::Public,
    })
}

fn follow(one: &str, other: &str) -> Command {
    Command::Follow { user: user(one), other: user(other), since: None }
}

async fn commit(ledger: &SqlLedger, commands: Vec<Command>) -> FeedCommit {
    FeedLedger::commit(ledger, commands.into()).await.unwrap()
}

fn rows(server: &Server, url: &str) -> [String; 4] {
    ["feed_users", "feed_posts", "feed_follows", "feed_blocks"]
        .map(|table| server.sql(url, &format!("SELECT count(*) FROM {table}")).trim().to_owned())
}

/// Takes everything.
#[derive(Default)]
struct Takes(std::sync::Mutex<Vec<i64>>);

impl Deliver for Takes {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        let ids: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
        self.0.lock().unwrap().extend(&ids);
        Box::pin(async move { ids })
    }
}

/// Server and node die after the commit, before anybody was told: the relay of another node tells.
async fn a_commit_survives_what_kills_its_server_and_waits_in_the_outbox(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    let done = commit(&ledger, vec![publish("ann", "p"), follow("bob", "ann")]).await;
    server.kill();
    drop(ledger);
    server.restart();
    let ledger = open(&url).await;
    let takes = Takes::default();
    ledger.outbox().relay(MAX_OUTBOX_BATCH, &takes).await.unwrap();
    let mut told = takes.0.into_inner().unwrap();
    let mut right: Vec<i64> = done.outbox.iter().map(|entry| entry.id).collect();
    told.sort_unstable();
    right.sort_unstable();
    assert_eq!((told, right.len()), (right.clone(), 3));
    assert_eq!(ledger.authors(&[user("ann")], Millis(0)).await.unwrap()[0].entries.len(), 1);
}

/// What fails at its last statement has written nothing, and works once it can.
async fn a_batch_that_cannot_be_written_leaves_nothing(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    commit(&ledger, vec![publish("ann", "p"), follow("bob", "ann"), follow("bob", "cy")]).await;
    let before = rows(&server, &url);
    server.sql(&url, "ALTER TABLE tg_outbox RENAME TO hidden");
    let batch = vec![publish("ann", "q"), publish("new", "r"), follow("cy", "ann"), Command::Delete(post("p"))];
    let failed = FeedLedger::commit(&*ledger, batch.clone().into()).await.unwrap_err();
    assert!(matches!(failed.kind(), ErrorKind::Unavailable | ErrorKind::Command), "{failed}");
    assert!(ledger.delete_user(&user("bob")).await.is_err());
    assert_eq!(rows(&server, &url), before);
    server.sql(&url, "ALTER TABLE hidden RENAME TO tg_outbox");
    let done = commit(&ledger, batch).await;
    assert!(
        matches!(&done.outcomes[0], Outcome::Published(Published::New(_)))
            && done.outcomes[3] == Outcome::Deleted(true)
    );
}

/// Two nodes that know nothing of each other.
async fn two_nodes_make_one_post_of_one_id(server: Arc<Server>) {
    let url = server.database();
    let nodes = [open(&url).await, open(&url).await];
    for round in 0..20 {
        let id = format!("p{round}");
        let [a, b] = [0, 1].map(|n| {
            let (node, id) = (nodes[n].clone(), id.clone());
            tokio::spawn(async move { commit(&node, vec![publish("ann", &id), follow("ann", &id)]).await })
        });
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let new = |commit: &FeedCommit| matches!(&commit.outcomes[0], Outcome::Published(Published::New(_)));
        assert!(new(&a) != new(&b), "{a:?} {b:?}");
        assert_eq!(a.changes.len() + b.changes.len(), 2);
    }
}

/// Names that a batch only asked for leave no row behind.
async fn what_a_look_up_of_names_held_is_gone(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    let nothing = (0..40)
        .map(|n| Command::Unfollow(user(&format!("u{n}")), user("ann")))
        .chain([Command::Unblock(user("cy"), user("dee")), follow("eve", "eve")]);
    let done = commit(&ledger, nothing.collect()).await;
    assert!(done.changes.is_empty() && done.outbox.is_empty());
    assert!(!ledger.delete_user(&user("nobody")).await.unwrap().1);
    assert_eq!(rows(&server, &url), ["0", "0", "0", "0"]);
}
