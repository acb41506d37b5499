//! Every statement of the feed goes by an index.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use tidegate_backend::Page;
use tidegate_core::Millis;
use tidegate_core::feed::{Body, Command, Content, Edge, NewPost, Order, Place, PostEdit, PostId, UserId, Visibility};

use super::{load, read, write};
use crate::sqlite::migrate;

fn user(n: usize) -> UserId {
    UserId::parse(&format!("u{n}")).expect("a name")
}

fn post(n: usize) -> PostId {
    PostId::parse(&format!("p{n}")).expect("a name")
}

fn publish(n: usize, content: Content) -> Command {
    let (published_at, visibility) = (Some(Millis(n as i64)), Visibility::Public);
    Command::Publish(NewPost { id: post(n), author: user(n % 7), content, published_at, visibility })
}

fn commit(conn: &Connection, commands: &[Command]) {
    let loaded = load::load_all(conn, commands, None).expect("it loads");
    let decided = loaded.decide(commands, Millis(100), Millis(100), 50);
    write::write(conn, &decided).expect("it writes");
}

/// Runs everything that there is, with and without statistics.
fn run(conn: &Connection, round: usize) {
    let body = || Content::Body(Body::parse("x").expect("a body"));
    let (a, b) = (user(1), user(2));
    let mut commands: Vec<Command> = (0..60).map(|n| publish(round * 100 + n, body())).collect();
    commands.extend((60..70).map(|n| publish(round * 100 + n, Content::Repost(post(3)))));
    for n in 0..20 {
        commands.push(Command::Follow { user: user(n), other: user(n + 1), since: None });
        commands.push(Command::Block(user(n), user(n + 2)));
    }
    commit(conn, &commands);
    let edit = PostEdit { body: Some(Body::parse("y").expect("a body")), visibility: None };
    commit(
        conn,
        &[
            Command::Edit(post(4), edit),
            Command::Delete(post(5)),
            Command::Unfollow(a.clone(), b.clone()),
            Command::Unblock(a.clone(), user(3)),
        ],
    );
    load::remains(conn, &a).expect("readable");
    load::left(conn, &a, 5).expect("readable");
    read::posts(conn, &[post(1)]).expect("readable");
    read::authors(conn, std::slice::from_ref(&a), Millis(0)).expect("readable");
    let place = Place { at: Millis(9), post: post(9) };
    for order in [Order::Newest, Order::Oldest] {
        for edge in [Edge::Instant(Millis(50)), Edge::Before(place.clone()), Edge::After(place.clone())] {
            read::entries(conn, &a, order, &edge, 5).expect("readable");
        }
    }
    read::ties(conn, &a).expect("readable");
    read::reposts(conn, &post(3), Some(&a), 5).expect("readable");
    read::reposts_by(conn, &post(3), std::slice::from_ref(&a)).expect("readable");
    let page: Page<_> = read::follows(conn, &a, Some(&b), 5).expect("readable");
    assert!(page.next.is_none());
}

#[test]
fn no_statement_of_the_feed_walks_a_table() {
    let mut conn = Connection::open_in_memory().expect("it opens");
    migrate::run(&mut conn, &migrate::LEDGER).expect("it migrates");
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let note = seen.clone();
    let trace = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, sql) = event {
            note.lock().expect("no test panics in between").insert(sql.to_owned());
        }
    };
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(trace)).expect("it traces");
    run(&conn, 0);
    conn.execute_batch("ANALYZE").expect("it analyzes");
    run(&conn, 1);
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, None::<fn(TraceEvent<'_>)>).expect("it stops");
    let seen = seen.lock().expect("no test panics in between");
    let statements: Vec<&String> = seen.iter().filter(|sql| sql.contains("feed_")).collect();
    assert!(statements.len() > 30, "{} statements", statements.len());
    for sql in statements {
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("it explains");
        let parameters = vec![rusqlite::types::Null; explain.parameter_count()];
        let plan = explain.query_map(rusqlite::params_from_iter(parameters), |r| r.get::<_, String>(3));
        for line in plan.expect("a plan").map(|line| line.expect("a line")) {
            let walks = line.starts_with("SCAN ") && line != "SCAN CONSTANT ROW";
            // The two sides of a block are merged.
            let sorts = line.contains("TEMP B-TREE") && !sql.contains(" UNION ");
            assert!(!walks && !sorts, "{sql}: {line}");
        }
    }
}
