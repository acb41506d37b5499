//! The ledger contract on SQLite.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_backend::outbox::invalidate_in;
use tidegate_backend::{BoxFuture, Ledger, Result, Ticket};
use tidegate_conformance::ledger::Caller;
use tidegate_core::Settings;
use tidegate_core::cache::RowVersion;
use tidegate_embedded::{Options, SqliteLedger, SqliteTransaction};
use tokio::runtime::Handle;

/// A connection of the caller's own to the ledger's file.
struct Beside(PathBuf);

impl Caller for Beside {
    fn transact<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a [u8],
        floor: Option<RowVersion>,
        meanwhile: BoxFuture<'a, ()>,
        commit: bool,
    ) -> BoxFuture<'a, Result<Ticket>> {
        Box::pin(async move {
            tokio::task::block_in_place(|| {
                let mut connection = rusqlite::Connection::open(&self.0).expect("it opens");
                let transaction = connection.transaction().expect("it begins");
                let mut own = SqliteTransaction::new(&transaction);
                let ticket = Handle::current().block_on(invalidate_in(&mut own, namespace, key, floor))?;
                Handle::current().block_on(meanwhile);
                if commit { transaction.commit() } else { transaction.rollback() }.expect("it ends");
                Ok(ticket)
            })
        })
    }
}

async fn open(settings: Settings) -> (Arc<dyn Ledger>, Beside, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ledger.db");
    let mut options = Options::new(&path);
    options.settings = settings;
    options.manual_clock = true;
    let ledger = SqliteLedger::open(options).await.expect("a new ledger opens");
    (ledger, Beside(path), folder)
}

tidegate_conformance::ledger_conformance!(open);
