//! The newest fence of each lock, in a transaction of the ledger's own.

use rusqlite::OptionalExtension;
use tidegate_backend::outbox::SqlDialect;
use tidegate_backend::{BoxFuture, Fences, Result, Seal, Sealed};

use super::SqliteLedger;

impl Fences for SqliteLedger {
    fn seal<'a>(&'a self, seal: &'a Seal) -> BoxFuture<'a, Result<Sealed>> {
        Box::pin(async move {
            let (name, fence, owner) = (seal.name.clone(), seal.stored_fence()?, seal.owner);
            let record = move |conn: &rusqlite::Connection| {
                let row = (name.as_str().as_bytes(), fence, owner);
                conn.prepare_cached(SqlDialect::Sqlite.record_fence())?.execute(row)?;
                let mut newer = conn.prepare_cached(SqlDialect::Sqlite.newer_fence())?;
                newer.query_row(row, |r| r.get(0)).optional()
            };
            let newer = self.parts()?.writer.run(move |w| w.transact(record)).await?;
            Ok(Seal::judged(newer))
        })
    }
}
