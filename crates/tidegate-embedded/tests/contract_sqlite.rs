//! The ledger contract on SQLite.

use std::sync::Arc;

use tidegate_backend::Ledger;
use tidegate_core::Settings;
use tidegate_embedded::{Options, SqliteLedger};

async fn open(settings: Settings) -> (Arc<dyn Ledger>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut options = Options::new(folder.path().join("ledger.db"));
    options.settings = settings;
    options.manual_clock = true;
    let ledger = SqliteLedger::open(options).await.expect("a new ledger opens");
    (ledger, folder)
}

tidegate_conformance::ledger_conformance!(open);
