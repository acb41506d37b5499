//! How much the feed's reads and commits look at: with a community around them, no more than they call for.

use tidegate_backend::FeedLedger;
use tidegate_core::Millis;
use tidegate_core::feed::{Ask, Body, Command, Content, Edge, NewPost, Order, PostEdit, PostId, UserId, Visibility};

use super::read;
use crate::connect::{Address, Role};
use crate::crowd::{self, looks_at, rows_read};
use crate::dialect::Dialect;
use crate::session::Session;
use crate::{SqlLedger, SqlOptions};

/// Posts, follows and blocks.
const ROWS: i64 = 50_000;
/// Authors.
const AUTHORS: i64 = 500;

fn user(n: i64) -> UserId {
    UserId::parse(&format!("u{n}")).unwrap()
}

fn post(name: &str) -> PostId {
    PostId::parse(name).unwrap()
}

/// Posts at the instants 1 to [`ROWS`], of one author after the other; everybody follows a hundred, and blocks a hundred; `p1`
/// is shown again by 400.
async fn fill(session: &mut Session) {
    let (numbers, name) = match session.dialect() {
        Dialect::MySql => (format!("(SELECT seq AS n FROM seq_1_to_{ROWS}) q"), "CONCAT('{}', {n})"),
        Dialect::Postgres => (format!("generate_series(1, {ROWS}) n"), "CAST('{}' || {n} AS BYTEA)"),
    };
    let name = |prefix: &str, n: &str| name.replace("{}", prefix).replace("{n}", n);
    let digest = session.dialect().pick("REPEAT('x', 16)", "CAST('xxxxxxxxxxxxxxxx' AS BYTEA)");
    let author = name("u", &format!("(n % {AUTHORS})"));
    let div = session.dialect().pick("DIV", "/");
    let other = name("u", &format!("((n {div} {AUTHORS} + n) % {AUTHORS})"));
    let tables = [
        format!(
            "feed_posts (id, author, published_at, visibility, version, row_version, reposts, made, digest, body)
            SELECT {}, {author}, n, 0, 1, 5, 0, 5, {digest}, 'hello' FROM {numbers}",
            name("p", "n")
        ),
        format!(
            "feed_posts (id, author, root, published_at, visibility, version, row_version, reposts, made, digest)
            SELECT {}, {author}, {}, n, 0, 1, 5, 0, 5, {digest} FROM {numbers} WHERE n < 400",
            name("r", "n"),
            name("p", "1")
        ),
        format!("feed_follows (follower, followee, since) SELECT {author}, {other}, 0 FROM {numbers}"),
        format!("feed_blocks (blocker, blocked) SELECT {author}, {other} FROM {numbers}"),
        format!(
            "feed_users (name, posts, ties, followees) SELECT {}, 5, 5, 100 FROM {numbers} WHERE n <= {AUTHORS}",
            name("u", "(n - 1)")
        ),
    ];
    for table in tables {
        session.script(&format!("INSERT INTO {table}")).await.unwrap();
    }
}

async fn every_read_looks_at_its_part_only(session: &mut Session) {
    let some: Vec<UserId> = (0..50).map(user).collect();
    let ids: Vec<PostId> = (0..50).map(|n| post(&format!("p{}", n * 900))).collect();
    assert_eq!(looks_at!(session, 250, read::posts(session, &ids)).iter().flatten().count(), 49);
    // Of each the newest ten, and which is the oldest.
    let from = Millis(ROWS - 10 * AUTHORS + 1);
    let sets = looks_at!(session, 1_300, read::authors(session, &some, from));
    assert!(sets.iter().all(|set| set.entries.len() == 10 && set.oldest.is_some_and(|at| at.0 <= AUTHORS)));
    if session.dialect() == Dialect::MySql {
        long_authors_are_counted(session).await;
    }
    for order in [Order::Newest, Order::Oldest] {
        for edge in [Edge::Instant(Millis(ROWS / 2)), Edge::After(at(ROWS / 2))] {
            let part = looks_at!(session, 100, read::entries(session, &some[7], order, &edge, 20));
            assert_eq!(part.len(), 20);
        }
    }
    let ties = looks_at!(session, 50 * 700, read::ties(session, &some));
    assert!(ties.iter().all(|ties| (99..=101).contains(&ties.follows.len()) && ties.hidden.len() >= 100));
    let (_, reposts) = looks_at!(session, 200, read::reposts(session, &post("p1"), Some(&user(3)), 20));
    assert_eq!(reposts.len(), 20);
    assert_eq!(looks_at!(session, 250, read::reposts_by(session, &post("p1"), &some)).len(), 49);
    let page = looks_at!(session, 100, read::follows(session, &user(3), Some(&user(3)), 20));
    assert_eq!((page.items.len(), page.next.is_some()), (20, true));
}

/// More entries than are read without counting each author's: the answer is the same.
async fn long_authors_are_counted(session: &mut Session) {
    let all: Vec<UserId> = (0..400).map(user).collect();
    let sets = read::authors(session, &all, Millis(0)).await.unwrap();
    assert!(sets.iter().all(|set| set.entries.len() >= 80 && set.from == Millis(0)));
    assert!(sets.iter().all(|set| set.entries.is_sorted_by(|a, b| a.place > b.place)));
    assert!(sets.iter().map(|set| set.entries.len()).sum::<usize>() > 38_000);
}

fn at(n: i64) -> tidegate_core::feed::Place {
    tidegate_core::feed::Place { at: Millis(n), post: post(&format!("p{n}")) }
}

/// Batches of fifty, each of which may look at so many rows for each command.
fn batches(round: i64) -> Vec<(&'static str, i64, Vec<Command>)> {
    let fifty = |command: &dyn Fn(i64) -> Command| (0..50).map(command).collect::<Vec<_>>();
    let new = |id: String, author: i64, content: Content| {
        let (published_at, visibility) = (Some(Millis(9)), Visibility::Public);
        Command::Publish(NewPost { id: post(&id), author: user(author), content, published_at, visibility })
    };
    let body = || Content::Body(Body::parse("new").unwrap());
    let old = |n: i64| post(&format!("p{}", n * 900 + 7 + round));
    vec![
        ("new posts", 25, fifty(&|n| new(format!("new-{round}-{n}"), n * 7, body()))),
        ("repeats", 25, fifty(&|n| new(format!("new-{round}-{n}"), n * 7, body()))),
        ("reposts", 40, fifty(&|n| new(format!("again-{round}-{n}"), n * 7, Content::Repost(old(n))))),
        ("edits", 40, fifty(&|n| Command::Edit(old(n), PostEdit { body: None, visibility: Some(Visibility::Hidden) }))),
        ("deletions", 40, fifty(&|n| Command::Delete(old(n)))),
        ("follows", 25, fifty(&|n| Command::Follow { user: user(n), other: user(n * 9 + 250 + round), since: None })),
        ("unfollows", 25, fifty(&|n| Command::Unfollow(user(n), user(n + round)))),
        ("blocks", 40, fifty(&|n| Command::Block(user(n), user(n + 300)))),
        ("unblocks", 40, fifty(&|n| Command::Unblock(user(n), user(n + 300)))),
    ]
}

async fn every_commit_looks_at_its_rows_only(ledger: &SqlLedger, round: i64) {
    let parts = ledger.parts().unwrap();
    for (name, each, batch) in batches(round) {
        let size = batch.len() as i64;
        let mut lease = parts.writes.get().await.unwrap();
        let start = rows_read(&mut lease).await;
        let own = rows_read(&mut lease).await - start;
        drop(lease);
        FeedLedger::commit(ledger, batch.into()).await.unwrap();
        // There is one writer's connection, so it is the one that committed.
        let looked_at = rows_read(&mut parts.writes.get().await.unwrap()).await - start - 2 * own;
        assert!(looked_at <= each * size, "{size} {name} look at {looked_at} rows");
    }
}

async fn check(url: &str) {
    let mut options = SqlOptions::new(url);
    (options.writers, options.manual_clock) = (1, true);
    let ledger = SqlLedger::open(options).await.unwrap();
    let address = Address::parse(url).unwrap();
    fill(&mut address.connect(Role::Audit).await.unwrap()).await;
    let mut session = address.connect(Role::Reader).await.unwrap();
    // A server that knows nothing of its tables yet, and one that knows all.
    every_read_looks_at_its_part_only(&mut session).await;
    every_commit_looks_at_its_rows_only(&ledger, 0).await;
    let tables = "ANALYZE TABLE feed_users, feed_posts, feed_follows, feed_blocks";
    session.rows(session.dialect().pick(tables, "ANALYZE"), &[]).await.unwrap();
    every_read_looks_at_its_part_only(&mut session).await;
    every_commit_looks_at_its_rows_only(&ledger, 1).await;
    // A user who has a part of everything goes in one call.
    assert!(!ledger.delete_user(&user(3)).await.unwrap().1);
    assert_eq!(ledger.ties(&[user(3)]).await.unwrap()[0].version, 0);
    tidegate_backend::Ledger::close(&*ledger).await.unwrap();
}

#[tokio::test]
async fn nothing_of_the_feed_walks_a_table_on_mariadb() {
    let server = crowd::mariadb();
    check(&server.database()).await;
}

#[tokio::test]
async fn nothing_of_the_feed_walks_a_table_on_postgres() {
    let server = crowd::postgres();
    check(&server.database()).await;
}

/// The peer of the bench shows what the community's rules say, where a plain join can.
#[cfg(feature = "ceiling")]
async fn the_join_gives_a_page(url: &str) {
    let mut options = SqlOptions::new(url);
    options.manual_clock = true;
    let ledger = SqlLedger::open(options).await.unwrap();
    let now = tidegate_backend::Ledger::clock(&*ledger).now();
    let new = |id: &str, author: i64, ago: i64, content: Content| {
        let published_at = Some(now.plus(-ago));
        let visibility = Visibility::Public;
        Command::Publish(NewPost { id: post(id), author: user(author), content, published_at, visibility })
    };
    let body = |text: &str| Content::Body(Body::parse(text).unwrap());
    let follow = |other: i64| Command::Follow { user: user(0), other: user(other), since: None };
    let commands = vec![
        new("a", 1, 50, body("a")),
        new("b", 2, 40, body("b")),
        new("c", 3, 30, body("c")),
        new("again", 2, 20, Content::Repost(post("c"))),
        new("d", 1, 20, body("d")),
        follow(1),
        follow(2),
    ];
    FeedLedger::commit(&*ledger, commands.into()).await.unwrap();
    ledger.prepare_join().await.unwrap();
    ledger.prepare_join().await.unwrap();
    let mut ask = Ask { viewer: user(0), order: Order::Newest, since: None, until: None, limit: 3, after: None };
    let first = ledger.page_by_join(&ask).await.unwrap();
    let shown: Vec<&str> = first.iter().map(|(_, root)| root.id.as_str()).collect();
    assert_eq!(shown, ["d", "c", "b"]);
    assert_eq!(first[1].0.post, post("again"));
    let last = first[2].0.clone();
    let top = Edge::After(first[0].0.clone());
    ask.after =
        Some(tidegate_core::feed::Cursor { order: Order::Newest, since: None, top, position: last, recent: None });
    let rest = ledger.page_by_join(&ask).await.unwrap();
    assert_eq!(rest.iter().map(|(_, root)| root.id.as_str()).collect::<Vec<_>>(), ["a"]);
    tidegate_backend::Ledger::close(&*ledger).await.unwrap();
}

#[cfg(feature = "ceiling")]
#[tokio::test]
async fn a_join_gives_pages_on_both() {
    the_join_gives_a_page(&crowd::mariadb().database()).await;
    the_join_gives_a_page(&crowd::postgres().database()).await;
}
