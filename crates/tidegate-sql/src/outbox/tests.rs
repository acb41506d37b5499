//! How much the outbox looks at: with 50,000 delivered rows around those that wait, no more than it was asked for.

use std::time::Duration;

use tidegate_backend::{BoxFuture, Deliver, OutboxEntry};

use super::{mark_delivered, pending, prune, relay, replay, states};
use crate::connect::{Address, Role};
use crate::crowd::{self, ROWS, RUNS, looks_at};
use crate::migrate;
use crate::session::Session;
use crate::upkeep::instant;

/// Entries that wait.
const WAITING: i64 = 500;
/// Entries of a call.
const SOME: usize = 50;
/// Rows a call may look at for each of its entries: where an index names it, the row, the same once more to change it.
const EACH: i64 = 8;
struct Everything;

impl Deliver for Everything {
    fn deliver<'a>(&'a self, entries: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        Box::pin(async { entries.iter().map(|entry| entry.id).collect() })
    }
}

/// Half of the delivered ones are older than a minute.
async fn fill_outbox(session: &mut Session) {
    let now = instant(session).await.unwrap().0;
    let numbers = session
        .dialect()
        .pick(format!("(SELECT seq AS n FROM seq_1_to_{ROWS}) q"), format!("generate_series(1, {ROWS}) n"));
    let key = session.dialect().pick("x'6100'", "CAST('\\x6100' AS BYTEA)");
    let sql = format!(
        "INSERT INTO tg_outbox SELECT n, 0, {key}, NULL, {now}, CASE WHEN n % 100 = 0 THEN NULL \
        WHEN n < {ROWS} / 2 THEN {now} - 3000000 + n ELSE {now} - 20000 + n / 10 END FROM {numbers}"
    );
    session.script(&sql).await.unwrap();
}

async fn every_call_looks_at_its_entries_only(session: &mut Session) {
    let most = SOME as i64 * EACH + 20;
    let minute = Duration::from_secs(60);
    assert_eq!(looks_at!(session, WAITING * 2 + 20, pending(session)).count as i64, WAITING);
    assert_eq!(looks_at!(session, most, relay(session, SOME, &Everything)).delivered, SOME);
    // The relays have delivered some of those that waited.
    let left = WAITING - (RUNS * SOME) as i64;
    assert_eq!(looks_at!(session, WAITING * 2 + 20, pending(session)).count as i64, left);
    let ids: Vec<i64> = (1..=SOME as i64).map(|n| n * 97).collect();
    assert_eq!(looks_at!(session, most, states(session, &ids)).len(), SOME);
    looks_at!(session, most, mark_delivered(session, &ids));
    let page = looks_at!(session, most, replay(session, minute, None, SOME));
    assert_eq!(looks_at!(session, most, replay(session, minute, page.next, SOME)).entries.len(), SOME);
    let more = looks_at!(session, 2_000 * EACH, prune(session, minute));
    assert!(more);
}

async fn check(url: &str) {
    let mut session = Address::parse(url).unwrap().connect(Role::Relay).await.unwrap();
    migrate::run(&mut session, true).await.unwrap();
    fill_outbox(&mut session).await;
    every_call_looks_at_its_entries_only(&mut session).await;
    session.script("DELETE FROM tg_outbox").await.unwrap();
    fill_outbox(&mut session).await;
    session.rows(session.dialect().pick("ANALYZE TABLE tg_outbox", "ANALYZE"), &[]).await.unwrap();
    every_call_looks_at_its_entries_only(&mut session).await;
    // What is written with a writer's settings has other plans.
    let mut writer = Address::parse(url).unwrap().connect(Role::Writer).await.unwrap();
    let ids: Vec<i64> = (1..=SOME as i64).map(|n| ROWS - n * 100).collect();
    let session = &mut writer;
    looks_at!(session, SOME as i64 * EACH + 20, mark_delivered(session, &ids));
    assert!(looks_at!(session, 2_000 * EACH, prune(session, Duration::ZERO)));
}

#[tokio::test]
async fn the_outbox_walks_no_table_on_mariadb() {
    let server = crowd::mariadb();
    check(&server.database()).await;
}

#[tokio::test]
async fn the_outbox_walks_no_table_on_postgres() {
    let server = crowd::postgres();
    check(&server.database()).await;
}
