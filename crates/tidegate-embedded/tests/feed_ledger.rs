//! The contract of the feed's ledger on SQLite, and what is SQLite's own of it.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::path::Path;
use std::sync::Arc;

use tidegate_backend::outbox::MAX_OUTBOX_BATCH;
use tidegate_backend::{BoxFuture, Deliver, FeedCommit, FeedLedger, Ledger, OutboxEntry};
use tidegate_core::Millis;
use tidegate_core::feed::{Body, Command, Content, NewPost, Outcome, PostId, UserId, Visibility};
use tidegate_embedded::SqliteLedger;

async fn open(max_followees: usize) -> (Arc<dyn FeedLedger>, Arc<dyn Ledger>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = common::options(folder.path());
    options.max_followees = max_followees;
    let ledger = SqliteLedger::open(options).await.unwrap();
    (ledger.clone(), ledger, folder)
}

tidegate_conformance::feed_ledger_conformance!(open);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn publish(author: &str, id: &str) -> Command {
    Command::Publish(NewPost {
        id: PostId::parse(id).unwrap(),
        author: user(author),
        content: Content::Body(Body::parse("hello").unwrap()),
        published_at: None,
        visibility: Visibility::Public,
    })
}

fn follow(one: &str, other: &str) -> Command {
    Command::Follow { user: user(one), other: user(other), since: None }
}

async fn commit(ledger: &SqliteLedger, commands: Vec<Command>) -> FeedCommit {
    FeedLedger::commit(ledger, commands.into()).await.unwrap()
}

fn sql(folder: &Path, text: &str) {
    rusqlite::Connection::open(common::options(folder).path).unwrap().execute_batch(text).unwrap();
}

fn rows(folder: &Path) -> Vec<i64> {
    let conn = rusqlite::Connection::open(common::options(folder).path).unwrap();
    let count = |table| conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0)).unwrap();
    ["feed_users", "feed_posts", "feed_follows", "feed_blocks", "tg_outbox"].map(count).into()
}

/// A ledger of the version before has no feed; opened, it has one, and what it had.
#[tokio::test]
async fn a_ledger_of_the_third_schema_gets_a_feed() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = common::open(folder.path()).await;
    common::all_well(&ledger, vec![common::put("x", 9, Some(100), None), common::place("o", "b", &[("x", 1)])]).await;
    ledger.close().await.unwrap();
    let tables = ["feed_users", "feed_posts", "feed_follows", "feed_blocks"];
    let drop: String = tables.map(|table| format!("DROP TABLE {table};")).concat();
    sql(folder.path(), &format!("{drop} DELETE FROM schema_steps WHERE version = 4"));
    for round in 0..3 {
        let ledger = common::open(folder.path()).await;
        commit(&ledger, vec![publish("ann", &format!("p{round}")), follow("bob", "ann")]).await;
        let set = ledger.authors(&[user("ann")], Millis(0)).await.unwrap().swap_remove(0);
        assert_eq!(set.entries.len(), round + 1);
        assert!(ledger.order(common::order_id("o")).await.unwrap().is_some());
        common::audit(&ledger).await;
        ledger.close().await.unwrap();
    }
}

/// What fails at its last statement has written nothing, and works once it can.
#[tokio::test]
async fn a_batch_that_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = common::open(folder.path()).await;
    commit(&ledger, vec![publish("ann", "p"), follow("bob", "ann"), follow("bob", "cy")]).await;
    let before = rows(folder.path());
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON tg_outbox BEGIN SELECT RAISE(ABORT, 'refused'); END";
    sql(folder.path(), refuse);
    let batch = vec![
        publish("ann", "q"),
        publish("new", "r"),
        follow("cy", "ann"),
        Command::Block(user("ann"), user("dee")),
        Command::Delete(PostId::parse("p").unwrap()),
    ];
    assert!(FeedLedger::commit(&*ledger, batch.clone().into()).await.is_err());
    assert!(ledger.delete_user(&user("bob")).await.is_err());
    assert_eq!(rows(folder.path()), before);
    sql(folder.path(), "DROP TRIGGER refuse");
    assert_eq!(commit(&ledger, batch).await.outcomes[4], Outcome::Deleted(true));
}

/// The folder of the ledger that a killed process leaves behind; set in that process alone.
const LEFT: &str = "TIDEGATE_TEST_FEED_LEFT_IN";

#[derive(Default)]
struct Takes(std::sync::Mutex<Vec<OutboxEntry>>);

impl Deliver for Takes {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        self.0.lock().unwrap().extend(entries.iter().cloned());
        Box::pin(async move { entries.iter().map(|entry| entry.id).collect() })
    }
}

/// A process is killed after its commit, before it told anybody: the next one's relay tells, and time goes on.
#[tokio::test]
async fn a_commit_survives_a_kill_and_waits_in_the_outbox() {
    if let Some(folder) = std::env::var_os(LEFT) {
        let mut options = common::options(Path::new(&folder));
        options.manual_clock = false;
        let ledger = SqliteLedger::open(options).await.unwrap();
        commit(&ledger, vec![publish("ann", "p"), follow("bob", "ann")]).await;
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        unreachable!("it is dead");
    }
    let folder = tempfile::tempdir().unwrap();
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_commit_survives_a_kill_and_waits_in_the_outbox"])
        .env(LEFT, folder.path())
        .output()
        .unwrap();
    assert!(!child.status.success());
    let mut options = common::options(folder.path());
    options.manual_clock = false;
    let ledger = SqliteLedger::open(options).await.unwrap();
    let set = ledger.authors(&[user("ann")], Millis(0)).await.unwrap().swap_remove(0);
    assert_eq!(set.entries.len(), 1);
    assert!(FeedLedger::clock(&*ledger).now() >= set.entries[0].place.at);
    let takes = Takes::default();
    ledger.outbox().relay(MAX_OUTBOX_BATCH, &takes).await.unwrap();
    let told: Vec<_> = takes.0.into_inner().unwrap().iter().filter_map(tidegate_backend::feed::floor_of).collect();
    assert_eq!(told.len(), 2, "the author and the follower: {told:?}");
    assert!(told.iter().any(|floor| floor.version == set.version));
}

/// The host's clock may have been set back while nobody ran: the feed's time goes on from its newest commit.
#[tokio::test]
async fn time_goes_on_from_the_newest_commit() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = common::options(folder.path());
    options.manual_clock = false;
    let ledger = SqliteLedger::open(options.clone()).await.unwrap();
    commit(&ledger, vec![publish("ann", "p")]).await;
    ledger.close().await.unwrap();
    let ahead = tidegate_backend::clock::host_now().plus(1_500);
    sql(
        folder.path(),
        &format!(
            "DELETE FROM meta WHERE key = 'last_clock'; UPDATE meta SET value = {} WHERE key = 'feed_clock'",
            ahead.0
        ),
    );
    let ledger = SqliteLedger::open(options).await.unwrap();
    let next = commit(&ledger, vec![publish("ann", "q")]).await;
    assert!(next.now >= ahead);
}
