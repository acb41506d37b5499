//! What the SQLite ledger refuses, and what it survives.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use tidegate_backend::outbox::Relayed;
use tidegate_backend::{BoxFuture, Deliver, Error, ErrorKind, Ledger, OutboxEntry};
use tidegate_embedded::{Options, SqliteLedger};

async fn refused(options: Options, kind: ErrorKind, words: &[&str]) {
    let error: Error = SqliteLedger::open(options).await.map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn a_second_opener_is_told_who_owns_it() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(&folder.path().join("deep/er")).await;
    let again = options(&folder.path().join("deep/er"));
    refused(again.clone(), ErrorKind::Owned, &[&std::process::id().to_string()]).await;
    ledger.close().await.unwrap();
    let ledger = SqliteLedger::open(again.clone()).await.unwrap();
    drop(ledger);
    SqliteLedger::open(again).await.unwrap();
}

#[tokio::test]
async fn files_that_are_not_ours() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    ledger.close().await.unwrap();
    let sql = |path: &std::path::Path, sql: &str| rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
    sql(&options(folder.path()).path, "INSERT INTO schema_steps VALUES (99, 0)");
    refused(options(folder.path()), ErrorKind::NewerSchema, &["99", "schemas up to"]).await;
    sql(
        &options(folder.path()).path,
        "DELETE FROM schema_steps WHERE version = 99; UPDATE schema_steps SET checksum = 1",
    );
    refused(options(folder.path()), ErrorKind::Corrupt, &["another wording"]).await;

    let other = folder.path().join("other.db");
    sql(&other, "CREATE TABLE t (a)");
    let before = std::fs::read(&other).unwrap();
    refused(Options::new(&other), ErrorKind::Configuration, &["another program"]).await;
    assert!(std::fs::read(&other).unwrap() == before && !folder.path().join("other.db.lock").exists(), "left alone");
    let mut only = Options::new(folder.path().join("none/ledger.db"));
    only.create = false;
    refused(only, ErrorKind::Configuration, &["no Tidegate ledger", "tidegate serve"]).await;
    assert!(!folder.path().join("none").exists());
    let text = folder.path().join("text.db");
    std::fs::write(&text, "this is no database, it is a text that is long enough to be looked at".repeat(20)).unwrap();
    refused(Options::new(&text), ErrorKind::Corrupt, &["text.db"]).await;
    refused(Options::new(folder.path().join("text.db/x/ledger.db")), ErrorKind::Unavailable, &["folder"]).await;
}

#[tokio::test]
async fn a_ledger_of_the_first_schema_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let id = ledger.id();
    all_well(&ledger, vec![put("x", 9, Some(100), None), place("o", "b", &[("x", 1)])]).await;
    ledger.close().await.unwrap();
    // What the later steps add is all that the first does not have.
    let conn = rusqlite::Connection::open(options(folder.path()).path).unwrap();
    let later = ["tg_outbox", "tg_fences", "feed_users", "feed_posts", "feed_follows", "feed_blocks"];
    let tables = later.map(|table| format!("DROP TABLE {table};")).concat();
    conn.execute_batch(&format!("{tables} DELETE FROM schema_steps WHERE version > 1")).unwrap();
    drop(conn);
    let ledger = open(folder.path()).await;
    assert_eq!((ledger.id(), ledger.outbox().pending().await.unwrap().count), (id, 0));
    let changed = commit(&ledger, vec![put("x", 9, Some(200), None), place("p", "b", &[("x", 1)])]).await;
    assert_eq!((changed.outbox.len(), ledger.outbox().pending().await.unwrap().count), (1, 1));
    assert!(ledger.order(order_id("o")).await.unwrap().is_some());
    audit(&ledger).await;
}

/// Takes nothing: whatever it is given waits on.
struct Nowhere;

impl Deliver for Nowhere {
    fn deliver<'a>(&'a self, _: &'a [OutboxEntry]) -> BoxFuture<'a, Vec<i64>> {
        Box::pin(async { Vec::new() })
    }
}

#[tokio::test]
async fn rows_of_the_outbox_that_nobody_can_read_block_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let conn = rusqlite::Connection::open(options(folder.path()).path).unwrap();
    // One that nobody can read, older than all; one of a kind that a later Tidegate may know.
    let rows = "(1, 0, x'ff', NULL, 0), (2, 9, x'ff', NULL, 0)";
    let sql = format!("INSERT INTO tg_outbox (id, kind, entry_key, floor, committed_at) VALUES {rows}");
    conn.execute_batch(&sql).unwrap();
    let entries = commit(&ledger, vec![put("x", 1, None, None), put("y", 1, None, None)]).await.outbox;
    let outbox = ledger.outbox();
    assert_eq!(outbox.relay(1, &Nowhere).await.unwrap(), Relayed { taken: 1, delivered: 0 });
    assert_eq!(outbox.relay(9, &Nowhere).await.unwrap(), Relayed { taken: 2, delivered: 0 });
    assert_eq!(outbox.pending().await.unwrap().count, 2);
    outbox.mark_delivered(&[entries[0].id, entries[1].id]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!outbox.prune(Duration::ZERO).await.unwrap());
    let left: i64 = conn.query_row("SELECT id FROM tg_outbox", [], |r| r.get(0)).unwrap();
    assert_eq!(left, 2, "what is not known is left alone");
}

#[tokio::test]
async fn pruning_the_outbox_is_bounded_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    let conn = rusqlite::Connection::open(options(folder.path()).path).unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)";
    let sql = format!(
        "INSERT INTO tg_outbox SELECT i, 0, x'6100', NULL, i, CASE WHEN i > 10 THEN i END FROM ({many} SELECT i FROM n)"
    );
    conn.execute_batch(&sql).unwrap();
    let mut rounds = 1;
    while ledger.outbox().prune(Duration::from_secs(60)).await.unwrap() {
        rounds += 1;
    }
    assert_eq!((rounds, ledger.outbox().pending().await.unwrap().count), (3, 10));
    let left: i64 = conn.query_row("SELECT count(*) FROM tg_outbox", [], |r| r.get(0)).unwrap();
    assert_eq!(left, 10);
}

#[tokio::test]
async fn a_manual_clock_and_its_flag_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let manual = options(folder.path());
    let mut real = manual.clone();
    real.manual_clock = false;
    let ledger = open(folder.path()).await;
    let start = ledger.clock().now();
    assert_eq!(ledger.advance(90_000).await.unwrap(), start.plus(90_000));
    assert_eq!(ledger.advance(-1).await.unwrap_err().kind(), ErrorKind::Configuration);
    ledger.close().await.unwrap();
    refused(real.clone(), ErrorKind::Configuration, &["--manual-clock"]).await;
    let ledger = open(folder.path()).await;
    assert_eq!(ledger.clock().now(), start.plus(90_000));
    ledger.close().await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    real.path = folder.path().join("real.db");
    let ledger = SqliteLedger::open(real.clone()).await.unwrap();
    assert_eq!(ledger.advance(1).await.unwrap_err().kind(), ErrorKind::Configuration);
    all_well(&ledger, vec![put("x", 1, None, None)]).await;
    ledger.close().await.unwrap();
    real.manual_clock = true;
    refused(real, ErrorKind::Configuration, &["without a manual clock"]).await;
}

#[tokio::test]
async fn a_full_disk_is_unavailable_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = options(folder.path());
    small.max_pages = Some(150);
    let ledger = SqliteLedger::open(small).await.unwrap();
    all_well(&ledger, vec![put("x", 1_000_000, None, None)]).await;
    let (mut kept, mut failed) = (0, 0);
    for batch in 0..200 {
        let commands: Vec<_> = (0..20).map(|i| place(&format!("o{batch}-{i}"), "b", &[("x", 1)])).collect();
        match ledger.commit(commands.into()).await {
            Ok(commit) => kept += commit.verdicts.iter().filter(|v| v.is_ok()).count(),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
                failed += 1;
                if failed == 3 {
                    break;
                }
            }
        }
    }
    assert!(failed == 3 && kept > 100);
    assert_eq!(ledger.deadlines(None, None, 100_000).await.unwrap().len(), kept);
    audit(&ledger).await;
    ledger.close().await.unwrap();
    // With room again it goes on, and the numbers have no gap.
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![place("after", "b", &[("x", 1)])]).await;
    assert_eq!(ledger.order(order_id("after")).await.unwrap().unwrap().no.0, kept as i64 + 1);
    audit(&ledger).await;
}

#[tokio::test]
async fn a_broken_row_fails_its_own_command_only() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 10, None, None), place("bad", "b", &[("x", 1)]), place("good", "b", &[("x", 1)])])
        .await;
    ledger.close().await.unwrap();
    let conn = rusqlite::Connection::open(options(folder.path()).path).unwrap();
    conn.execute_batch("UPDATE orders SET lines = x'07' WHERE id = CAST('bad' AS BLOB)").unwrap();
    drop(conn);
    let ledger = open(folder.path()).await;
    let error = ledger.commit(vec![cancel("bad"), cancel("good")].into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Command);
    assert_eq!(ledger.commit(vec![cancel("bad")].into()).await.unwrap_err().kind(), ErrorKind::Command);
    all_well(&ledger, vec![cancel("good")]).await;
    assert_eq!(ledger.order(order_id("bad")).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let too_many: Vec<_> = (0..513).map(|i| cancel(&format!("c{i}"))).collect();
    assert_eq!(ledger.commit(too_many.into()).await.unwrap_err().kind(), ErrorKind::Command);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_do_not_wait_for_writes_and_closing_finishes_them() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 1_000_000, None, None), place("first", "b", &[("x", 1)])]).await;
    let writes: Vec<_> = (0..20)
        .map(|batch| {
            let commands: Arc<[_]> = (0..500).map(|i| place(&format!("o{batch}-{i}"), "b", &[("x", 1)])).collect();
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.commit(commands).await })
        })
        .collect();
    for _ in 0..50 {
        let read = tokio::time::timeout(Duration::from_secs(2), ledger.order(order_id("first"))).await;
        assert!(read.unwrap().unwrap().is_some());
    }
    for write in writes {
        assert!(write.await.unwrap().is_ok());
    }
    ledger.close().await.unwrap();
    ledger.close().await.unwrap();
    assert_eq!(ledger.probe_write().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let wal = folder.path().join("ledger.db-wal");
    assert!(!wal.exists() || std::fs::metadata(wal).unwrap().len() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_read_holds_up_no_commit() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open(folder.path()).await;
    all_well(&ledger, vec![put("x", 1_000_000, None, None)]).await;
    let reader = rusqlite::Connection::open(options(folder.path()).path).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM skus").unwrap();
    let log = folder.path().join("ledger.db-wal");
    let (mut batch, mut slowest) = (0, Duration::ZERO);
    while std::fs::metadata(&log).unwrap().len() < 24 << 20 {
        let commands = (0..500).map(|i| place(&format!("o{}-{batch}", i * 7_919 % 500), "b", &[("x", 1)])).collect();
        let begun = std::time::Instant::now();
        all_well(&ledger, commands).await;
        slowest = slowest.max(begun.elapsed());
        batch += 1;
    }
    // The log passed the size at which a checkpoint begins, and the reader made each of them vain.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let begun = std::time::Instant::now();
    all_well(&ledger, vec![place("last", "b", &[("x", 1)])]).await;
    slowest = slowest.max(begun.elapsed());
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    // Once it is gone, the log is used from its beginning again.
    reader.execute_batch("COMMIT").unwrap();
    for round in 0..60 {
        all_well(&ledger, vec![place(&format!("more-{round}"), "b", &[("x", 1)])]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let frames: i64 = reader.query_row("PRAGMA wal_checkpoint(NOOP)", [], |r| r.get(1)).unwrap();
        if frames < 1_000 {
            return;
        }
    }
    panic!("the log was never taken back");
}

#[tokio::test]
async fn time_goes_on_from_the_last_instant_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = SqliteLedger::open(Options::new(&path)).await.unwrap();
    let clock = ledger.clock();
    let shown = clock.now();
    ledger.close().await.unwrap();
    drop(ledger);
    let meta = |value: i64| {
        let conn = rusqlite::Connection::open(&path).unwrap();
        let sql = "UPDATE meta SET value = ?1 WHERE key = 'last_clock' AND value >= ?2";
        assert_eq!(conn.execute(sql, (value, shown.0)).unwrap(), 1, "the close has kept it");
    };
    // As if the host's clock had been an hour ahead then.
    meta(shown.0 + 3_600_000);
    let ledger = SqliteLedger::open(Options::new(&path)).await.unwrap();
    let status = ledger.clock().status();
    assert!(status.now.0 >= shown.0 + 3_600_000 && status.catching_up, "{status:?}");
    ledger.close().await.unwrap();
}

#[tokio::test]
async fn tools_take_whichever_clock_the_ledger_has() {
    let folder = tempfile::tempdir().unwrap();
    for manual in [true, false] {
        let mut options = Options::new(folder.path().join(format!("{manual}.db")));
        options.manual_clock = manual;
        SqliteLedger::open(options.clone()).await.unwrap().close().await.unwrap();
        options.manual_clock = false;
        options.stored_clock = true;
        let ledger = SqliteLedger::open(options).await.unwrap();
        assert_eq!(ledger.clock().status().manual, manual);
        ledger.close().await.unwrap();
    }
}
