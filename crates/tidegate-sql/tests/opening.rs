//! What a database must be to be opened, and what opening makes of it.
#![cfg(all(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Server, audit, commit, open, place, placed, put};
use tidegate_backend::clock::host_now;
use tidegate_backend::{ErrorKind, Ledger};
use tidegate_core::Command;
use tidegate_sql::{SqlLedger, SqlOptions};

/// Tables of the fourth schema.
const FEED: &str = "feed_users, feed_posts, feed_follows, feed_blocks";

on_both!(
    many_open_an_empty_database_at_once,
    a_schema_that_was_left_halfway_is_finished,
    a_ledger_of_the_first_schema_is_brought_up_to_date,
    a_newer_or_other_schema_is_refused,
    another_programs_database_is_refused,
    a_clock_fits_its_ledger,
    numbers_of_full_batches_do_not_meet,
    an_order_of_a_thousand_lines,
    the_estimate_keeps_to_the_databases_clock,
    a_wrong_password_is_a_setting,
);

async fn many_open_an_empty_database_at_once(server: Arc<Server>) {
    let url = server.database();
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { SqlLedger::open(SqlOptions::new(url)).await })
        })
        .collect();
    let mut ids = std::collections::HashSet::new();
    for (n, opened) in opening.into_iter().enumerate() {
        let ledger = opened.await.unwrap().unwrap();
        ids.insert(ledger.id());
        commit(&ledger, vec![put(&format!("s{n}"), 1, None)]).await;
        ledger.close().await.unwrap();
        assert_eq!(ledger.newest_cursor().await.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(server.sql(&url, "SELECT count(*) FROM tidegate_schema").trim(), "4");
    ids.insert(open(&url).await.id());
    assert_eq!(ids.len(), 1, "one number on every node, and after a reopening: {ids:?}");
    let ledger_id = "FROM meta WHERE name = 'ledger_id'";
    assert_eq!(server.sql(&url, &format!("SELECT count(*) {ledger_id}")).trim(), "1");
    // As in a ledger that is older than these numbers.
    server.sql(&url, &format!("DELETE {ledger_id}"));
    let (a, b) = tokio::join!(open(&url), open(&url));
    assert_eq!(a.id(), b.id());
    assert!(!ids.contains(&a.id()));
}

async fn a_schema_that_was_left_halfway_is_finished(server: Arc<Server>) {
    let url = server.database();
    open(&url).await.close().await.unwrap();
    // As after a kill: MySQL has some of the tables and no step is remembered; PostgreSQL has nothing of it.
    let left = if server.is_mariadb() {
        "DELETE FROM tidegate_schema; DROP TABLE parked, refunds, events".to_owned()
    } else {
        format!(
            "DELETE FROM tidegate_schema; DROP TABLE meta, batches, counters, skus, sku_attributes, order_ids, orders, \
            order_lines, order_keys, request_keys, buyer_counters, stock_changes, events, payments, refunds, parked, \
            tg_outbox, tg_fences, {FEED}"
        )
    };
    server.sql(&url, &left);
    let ledger = open(&url).await;
    commit(&ledger, vec![put("a", 5, None), place("o", &[("a", 1)])]).await;
    audit(&ledger).await;
}

async fn a_ledger_of_the_first_schema_is_brought_up_to_date(server: Arc<Server>) {
    let url = server.database();
    let ledger = open(&url).await;
    let id = ledger.id();
    commit(&ledger, vec![put("a", 5, Some(100)), place("o", &[("a", 1)])]).await;
    ledger.close().await.unwrap();
    // What the later steps add is all that the first does not have.
    server
        .sql(&url, &format!("DROP TABLE tg_outbox, tg_fences, {FEED}; DELETE FROM tidegate_schema WHERE version > 1"));
    let mut tool = SqlOptions::new(&url);
    tool.create = false;
    let (ledger, other) = tokio::join!(open(&url), SqlLedger::open(tool));
    assert_eq!((ledger.id(), other.unwrap().id()), (id, id));
    assert_eq!(server.sql(&url, "SELECT count(*) FROM tidegate_schema").trim(), "4");
    assert_eq!(ledger.outbox().pending().await.unwrap().count, 0);
    let changed = commit(&ledger, vec![put("a", 5, Some(200)), place("p", &[("a", 1)])]).await;
    assert!(placed(&commit(&ledger, vec![place("o", &[("a", 1)])]).await.verdicts[0]).1, "the order of before");
    assert_eq!((changed.outbox.len(), ledger.outbox().pending().await.unwrap().count), (1, 1));
    audit(&ledger).await;
}

async fn error_of(url: &str) -> tidegate_backend::Error {
    SqlLedger::open(SqlOptions::new(url)).await.unwrap_err()
}

async fn a_newer_or_other_schema_is_refused(server: Arc<Server>) {
    let url = server.database();
    open(&url).await.close().await.unwrap();
    let sum = if server.is_mariadb() { "x'00'" } else { "'\\x00'" };
    server.sql(&url, &format!("INSERT INTO tidegate_schema (version, checksum) VALUES (99, {sum})"));
    let error = error_of(&url).await;
    assert_eq!(error.kind(), ErrorKind::NewerSchema);
    assert!(error.to_string().contains("schema 99"), "{error}");
    server.sql(&url, "DELETE FROM tidegate_schema WHERE version = 99");
    server.sql(&url, &format!("UPDATE tidegate_schema SET checksum = {sum}"));
    assert_eq!(error_of(&url).await.kind(), ErrorKind::Corrupt);
    server.sql(&url, "DELETE FROM tidegate_schema WHERE version > 1");
    server.sql(&url, "UPDATE tidegate_schema SET version = 0");
    let error = error_of(&url).await;
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("names step 0 where step 1 is due"), "{error}");
}

async fn another_programs_database_is_refused(server: Arc<Server>) {
    let url = server.database();
    server.sql(&url, "CREATE TABLE orders (id INTEGER)");
    let error = error_of(&url).await;
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("orders"), "{error}");
    let other = "CREATE TABLE unrelated (id INTEGER); DROP TABLE orders";
    server.sql(&url, other);
    open(&url).await;
}

async fn a_clock_fits_its_ledger(server: Arc<Server>) {
    let (plain, manual) = (server.database(), server.database());
    let options = |url: &str, manual_clock, stored_clock| {
        let mut options = SqlOptions::new(url);
        (options.manual_clock, options.stored_clock) = (manual_clock, stored_clock);
        options
    };
    let kind =
        |options| async { SqlLedger::open(options).await.map(|l| l.clock().status().manual).map_err(|e| e.kind()) };
    assert_eq!(kind(options(&manual, true, false)).await, Ok(true));
    assert_eq!(kind(options(&manual, false, false)).await, Err(ErrorKind::Configuration));
    assert_eq!(kind(options(&manual, false, true)).await, Ok(true));
    let ledger = open(&plain).await;
    commit(&ledger, vec![put("a", 1, None)]).await;
    assert_eq!(kind(options(&plain, true, false)).await, Err(ErrorKind::Configuration));
    assert_eq!(kind(options(&plain, true, true)).await, Ok(false));
    assert_eq!(ledger.advance(1).await.unwrap_err().kind(), ErrorKind::Configuration);
}

async fn numbers_of_full_batches_do_not_meet(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    commit(&ledger, vec![put("a", 1_000_000, None)]).await;
    let batch = |b: usize| (0..512).map(|n| place(&format!("o-{b}-{n}"), &[("a", 1)])).collect::<Vec<Command>>();
    let mut last = 0;
    for b in 0..3 {
        for verdict in commit(&ledger, batch(b)).await.verdicts {
            let (order, _) = placed(&verdict);
            assert!(order.no.0 > last, "{} after {last}", order.no.0);
            last = order.no.0;
        }
    }
    let too_many: Vec<Command> = batch(4).into_iter().chain([place("one-more", &[("a", 1)])]).collect();
    assert_eq!(ledger.commit(too_many.into()).await.unwrap_err().kind(), ErrorKind::Command);
    audit(&ledger).await;
}

async fn an_order_of_a_thousand_lines(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    // As long as ids may be, so that the statements are.
    let skus: Vec<String> = (0..1_000).map(|n| format!("{n:0>128}")).collect();
    for skus in skus.chunks(500) {
        commit(&ledger, skus.iter().map(|sku| put(sku, 10, Some(1))).collect()).await;
    }
    let lines: Vec<(&str, i64)> = skus.iter().map(|sku| (sku.as_str(), 2)).collect();
    let verdicts = commit(&ledger, (0..3).map(|n| place(&format!("o{n}"), &lines)).collect()).await.verdicts;
    assert_eq!(placed(&verdicts[2]).0.lines.len(), 1_000);
    let ended = commit(&ledger, vec![common::cancel("o0"), common::pay("o1", "p")]).await;
    assert!(ended.verdicts.iter().all(Result::is_ok), "{:?}", ended.verdicts);
    audit(&ledger).await;
}

async fn the_estimate_keeps_to_the_databases_clock(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    for n in 0..10 {
        // The database runs on this host, so its clock is the host's.
        let (estimate, host) = (ledger.clock().now(), host_now());
        assert!(estimate <= host, "{estimate:?} is ahead of {host:?}");
        assert!(host.since(estimate) < 500, "{estimate:?} is far behind {host:?}");
        let now = commit(&ledger, vec![put(&format!("s{n}"), 1, None)]).await.now;
        assert!(now >= estimate && now <= host_now());
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(!ledger.clock().status().stepped);
}

async fn a_wrong_password_is_a_setting(server: Arc<Server>) {
    if server.is_mariadb() {
        let url = server.database().replace("tidegate:tidegate", "tidegate:wrong");
        let error = error_of(&url).await;
        assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
        assert!(error.to_string().contains("check user and password"), "{error}");
    }
    let url = server.database();
    let error = error_of(&format!("{url}_absent")).await;
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("create it: CREATE DATABASE"), "{error}");
    let option = if server.is_mariadb() { "ssl-mode=required" } else { "sslmode=require" };
    let error = error_of(&format!("{url}?{option}")).await;
    assert_eq!(error.kind(), ErrorKind::Configuration, "{error}");
    assert!(error.to_string().contains("switch TLS on at the server"), "{error}");
    let other = if server.is_mariadb() { ("mysql://", "postgres://") } else { ("postgres://", "mysql://") };
    let error = error_of(&url.replace(other.0, other.1)).await;
    assert!(error.to_string().contains("postgres://"), "{error}");
    server.kill();
    let error = error_of(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Neither the server's nor the session's time zone moves an instant.
async fn instants_in_odd_zones(server: Arc<Server>) {
    let ledger = open(&server.database()).await;
    let before = host_now();
    let commit = commit(&ledger, vec![put("a", 1, None), place("o", &[("a", 1)])]).await;
    assert!((0..2_000).contains(&commit.now.since(before)), "{:?} {before:?}", commit.now);
    assert!(ledger.clock().now().since(before).abs() < 2_000);
    assert_eq!(placed(&commit.verdicts[1]).0.placed_at, commit.now);
}

#[tokio::test]
async fn odd_zones_on_postgres() {
    instants_in_odd_zones(Server::postgres(&[("timezone", "Asia/Kathmandu")])).await;
}

#[tokio::test]
async fn odd_zones_on_mariadb() {
    instants_in_odd_zones(Server::mariadb(&[("default-time-zone", "-11:30")])).await;
}
