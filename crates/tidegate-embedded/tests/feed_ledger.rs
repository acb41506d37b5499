//! The contract of the feed's ledger on SQLite, and what is SQLite's own of it.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is wrong")]

mod common;

use std::sync::Arc;

use tidegate_backend::{FeedLedger, Ledger};
use tidegate_embedded::SqliteLedger;

async fn open(max_followees: usize) -> (Arc<dyn FeedLedger>, Arc<dyn Ledger>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut options = common::options(folder.path());
    options.max_followees = max_followees;
    let ledger = SqliteLedger::open(options).await.unwrap();
    (ledger.clone(), ledger, folder)
}

tidegate_conformance::feed_ledger_conformance!(open);
