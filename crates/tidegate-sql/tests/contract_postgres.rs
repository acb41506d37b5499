//! The ledger contract on PostgreSQL.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use tidegate_backend::Ledger;
use tidegate_conformance::servers::Postgres;
use tidegate_core::Settings;
use tidegate_sql::{SqlLedger, SqlOptions};

async fn open(settings: Settings) -> (Arc<dyn Ledger>, Arc<Postgres>) {
    let server = Postgres::shared();
    let mut options = SqlOptions::new(server.database());
    options.settings = settings;
    options.manual_clock = true;
    let ledger = SqlLedger::open(options).await.expect("a new ledger opens");
    (ledger, server)
}

tidegate_conformance::ledger_conformance!(open);
