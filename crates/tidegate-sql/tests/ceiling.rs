//! The loops the bench compares with leave a sound ledger behind: they do the work they claim.
#![cfg(all(feature = "ceiling", feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;

use common::{Server, audit, open};
use tidegate_backend::Ledger;
use tidegate_sql::{ceiling, one_by_one};

on_both!(both_loops_write_what_a_ledger_would);

async fn both_loops_write_what_a_ledger_would(server: Arc<Server>) {
    let url = server.database();
    assert_eq!(ceiling(&url, 300, 128).await.unwrap().orders, 300);
    assert_eq!(one_by_one(&url, 100, 8).await.unwrap().orders, 100);
    let ledger = open(&url).await;
    assert_eq!(ledger.newest_cursor().await.unwrap(), 400);
    assert_eq!(ledger.deadlines(None, None, 1_000).await.unwrap().len(), 400);
    audit(&ledger).await;
}
