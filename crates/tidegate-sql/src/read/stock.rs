//! SKUs and their stock ledger.

use tidegate_backend::Page;
use tidegate_core::{Sku, SkuId, StockChange};

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn sku(session: &mut Session, id: &SkuId) -> Result<Option<Sku>> {
    let _ = (session, id);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn skus(session: &mut Session, from: Option<i64>, limit: usize) -> Result<Page<Sku>> {
    let _ = (session, from, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn stock_changes(
    session: &mut Session,
    id: &SkuId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<StockChange>>> {
    let _ = (session, id, after, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
