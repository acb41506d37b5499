//! The ledger contract on MySQL's dialect, on MariaDB.
#![cfg(feature = "mysql")]

use std::sync::Arc;

use tidegate_backend::Ledger;
use tidegate_conformance::servers::MariaDb;
use tidegate_core::Settings;
use tidegate_sql::{SqlLedger, SqlOptions};

async fn open(settings: Settings) -> (Arc<dyn Ledger>, Arc<MariaDb>) {
    let server = MariaDb::shared();
    let mut options = SqlOptions::new(server.database());
    options.settings = settings;
    options.manual_clock = true;
    let ledger = SqlLedger::open(options).await.expect("a new ledger opens");
    (ledger, server)
}

tidegate_conformance::ledger_conformance!(open);
