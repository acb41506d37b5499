//! What only the inside can arrange: a COMMIT of which nobody heard, a node that stops with its locks held.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_backend::Ledger;
use tidegate_conformance::servers::{MariaDb, Postgres};
use tidegate_core::command::PutSku;
use tidegate_core::{Command, SkuId, SkuPatch};

use super::settle::{Settled, settle};
use super::{BUSY_TRIES, LOCK_TRIES, LONGEST_PAUSE, Tries, begin_batch};
use crate::connect::{Address, Role};
use crate::fault::{Class, Fault};
use crate::session::{Isolation, Session};
use crate::{SqlLedger, SqlOptions};

async fn connect(url: &str) -> Session {
    Address::parse(url).unwrap().connect(Role::Writer).await.unwrap()
}

async fn begun(url: &str, batch_id: &[u8; 16]) -> Session {
    let mut session = connect(url).await;
    session.begin(Isolation::Write).await.unwrap();
    begin_batch(&mut session, batch_id).await.unwrap();
    session
}

fn put(sku: &str) -> Arc<[Command]> {
    Arc::from(vec![Command::PutSku(PutSku {
        sku: SkuId::parse(sku).unwrap(),
        patch: SkuPatch::default(),
        on_hand: Some(1),
        if_version: None,
    })])
}

async fn an_uncertain_commit_is_settled(url: String) {
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await.unwrap();
    let parts = ledger.parts().unwrap();
    let lost = Fault::new(Class::Lost, "cut off");
    let [committed, dropped, late] = [[1; 16], [2; 16], [3; 16]];

    begun(&url, &committed).await.commit().await.unwrap();
    assert_eq!(settle(&parts, &committed, &lost).await.unwrap(), Settled::Committed);
    // Asking changes nothing.
    assert_eq!(settle(&parts, &committed, &lost).await.unwrap(), Settled::Committed);

    drop(begun(&url, &dropped).await);
    assert_eq!(settle(&parts, &dropped, &lost).await.unwrap(), Settled::RolledBack);
    assert_eq!(settle(&parts, &dropped, &lost).await.unwrap(), Settled::RolledBack);

    // Its COMMIT is still on its way: the question waits for it.
    let mut open = begun(&url, &late).await;
    let committing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        open.commit().await
    });
    assert_eq!(settle(&parts, &late, &lost).await.unwrap(), Settled::Committed);
    committing.await.unwrap().unwrap();
}

/// From the server's side a stopped process is one that is silent inside a transaction.
async fn a_stopped_node_loses_its_locks(url: String) {
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await.unwrap();
    ledger.commit(put("a")).await.unwrap();
    let mut stopped = begun(&url, &[4; 16]).await;
    let sql = "SELECT sku_no FROM skus WHERE sku = ? FOR UPDATE";
    assert!(stopped.one(sql, &[b"a".as_slice().into()]).await.unwrap().is_some());
    // The counter, too: without it no batch at all gets through.
    let sql = "SELECT newest FROM counters WHERE name = 'events' FOR UPDATE";
    assert!(stopped.one(sql, &[]).await.unwrap().is_some());
    let begun = Instant::now();
    let (one, two) = tokio::join!(ledger.commit(put("a")), ledger.commit(put("b")));
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    let took = begun.elapsed();
    assert!((Duration::from_millis(500)..Duration::from_secs(5)).contains(&took), "{took:?}");
    // Going on again it finds that it lost everything, and cannot commit what it had decided.
    assert!(stopped.commit().await.is_err());
}

/// Someone who keeps a lock and stays awake is given up on, in time.
async fn a_lock_that_is_kept_ends_in_unavailable(url: String) {
    let ledger = SqlLedger::open(SqlOptions::new(&url)).await.unwrap();
    ledger.commit(put("a")).await.unwrap();
    let mut awake = begun(&url, &[5; 16]).await;
    let sql = "SELECT sku_no FROM skus WHERE sku = ? FOR UPDATE";
    awake.one(sql, &[b"a".as_slice().into()]).await.unwrap();
    let keeping = tokio::spawn(async move {
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            awake.one("SELECT 1", &[]).await.unwrap();
        }
    });
    let begun = Instant::now();
    let refused = ledger.commit(put("a")).await.unwrap_err();
    keeping.abort();
    assert_eq!(refused.kind(), tidegate_backend::ErrorKind::Unavailable, "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(5) * (LOCK_TRIES + 1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_uncertain_commit_is_settled_on_both() {
    let (mariadb, postgres) = (MariaDb::start(), Postgres::start());
    tokio::join!(
        an_uncertain_commit_is_settled(mariadb.database()),
        an_uncertain_commit_is_settled(postgres.database()),
    );
}

#[tokio::test]
async fn stopped_nodes_lose_their_locks_on_both() {
    let (mariadb, postgres) = (MariaDb::start(), Postgres::start());
    tokio::join!(
        a_stopped_node_loses_its_locks(mariadb.database()),
        a_stopped_node_loses_its_locks(postgres.database()),
        a_lock_that_is_kept_ends_in_unavailable(mariadb.database()),
        a_lock_that_is_kept_ends_in_unavailable(postgres.database()),
    );
}

#[test]
fn tries_are_bounded_a_reason_each() {
    let mut tries = Tries::default();
    let busy = (0..100).take_while(|_| tries.again(Class::Deadlock)).count();
    assert_eq!(busy as u32, BUSY_TRIES - 1);
    assert!(tries.again(Class::LockTimeout) && !tries.again(Class::LockTimeout));
    assert!(tries.again(Class::Lost) && !tries.again(Class::Lost));
    assert!(!tries.again(Class::Data) && !tries.again(Class::Unavailable));
    assert!(tries.pause() <= LONGEST_PAUSE);
}
