//! The newest fence of each lock, in a transaction of its own.

use tidegate_backend::outbox::SqlDialect;
use tidegate_backend::{BoxFuture, Fences, Seal, Sealed};

use crate::SqlLedger;
use crate::fault::Result;
use crate::session::Session;

/// Each of the two statements commits by itself: the second sees the fence that the first recorded, or a newer one.
async fn record(session: &mut Session, seal: &Seal, fence: i64) -> Result<Sealed> {
    let dialect = session.dialect().pick(SqlDialect::MySql, SqlDialect::Postgres);
    let values = [seal.name.as_str().as_bytes().into(), fence.into(), seal.owner.into()];
    session.execute(dialect.record_fence(), &values).await?;
    let newer = session.one(dialect.newer_fence(), &values).await?;
    Ok(Seal::judged(newer.map(|row| row.int(0)).transpose()?))
}

impl Fences for SqlLedger {
    fn seal<'a>(&'a self, seal: &'a Seal) -> BoxFuture<'a, tidegate_backend::Result<Sealed>> {
        Box::pin(async move {
            let fence = seal.stored_fence()?;
            let parts = self.parts()?;
            let mut lease = parts.writes.get().await?;
            Ok(record(&mut lease, seal, fence).await?)
        })
    }
}
