//! The ledger contract on MySQL's dialect, on MariaDB.
#![cfg(feature = "mysql")]

use std::sync::Arc;

use sqlx::{Connection, MySqlConnection};
use tidegate_backend::outbox::invalidate_in;
use tidegate_backend::{BoxFuture, Ledger, Result, Ticket};
use tidegate_conformance::ledger::Caller;
use tidegate_conformance::servers::MariaDb;
use tidegate_core::Settings;
use tidegate_core::cache::RowVersion;
use tidegate_sql::{MySqlTransaction, SqlLedger, SqlOptions};

/// A connection of the caller's own to the ledger's database.
struct Beside(String);

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
            let mut connection = MySqlConnection::connect(&self.0).await.expect("it connects");
            let mut transaction = connection.begin().await.expect("it begins");
            let mut own = MySqlTransaction::new(&mut transaction);
            let ticket = invalidate_in(&mut own, namespace, key, floor).await?;
            meanwhile.await;
            if commit { transaction.commit().await } else { transaction.rollback().await }.expect("it ends");
            Ok(ticket)
        })
    }
}

async fn open(settings: Settings) -> (Arc<dyn Ledger>, Beside, Arc<MariaDb>) {
    let server = MariaDb::shared();
    let url = server.database();
    let mut options = SqlOptions::new(&url);
    options.settings = settings;
    options.manual_clock = true;
    let ledger = SqlLedger::open(options).await.expect("a new ledger opens");
    (ledger, Beside(url), server)
}

tidegate_conformance::ledger_conformance!(open);
