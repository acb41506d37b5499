//! SKUs and their stock.

use std::sync::Arc;

use tidegate_backend::{Page, PageRequest};
use tidegate_core::command::{Adjust, PutSku};
use tidegate_core::request::{check_adjust, check_put};
use tidegate_core::{Command, Outcome, Sku, SkuId, StockChange};

use crate::Result;
use crate::orders::unexpected;
use crate::tidegate::Inner;

/// SKUs and their stock: a cheap handle.
#[derive(Clone)]
pub struct Catalog(pub(crate) Arc<Inner>);

fn sku_put(outcome: Outcome) -> Result<(Sku, bool)> {
    match outcome {
        Outcome::SkuPut { sku, created } => Ok((sku, created)),
        other => Err(unexpected(&other)),
    }
}

impl Catalog {
    /// Creates or changes a SKU. Returns it and whether it is new.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`]; [`crate::Error::Refused`]: `stock-exists`, `stale`.
    pub async fn put(&self, put: PutSku) -> Result<(Sku, bool)> {
        let put = check_put(put, &self.0.settings)?;
        self.0.expect(std::iter::once(&put.sku)).await;
        self.0.submit_one(Command::PutSku(put)).await.and_then(sku_put)
    }

    /// Creates or changes up to 1,000 SKUs; each stands alone, answers come in order.
    pub async fn put_many(&self, puts: Vec<PutSku>) -> Vec<Result<(Sku, bool)>> {
        self.0.expect(puts.iter().map(|put| &put.sku)).await;
        let checked = puts.into_iter().map(|put| Ok(Command::PutSku(check_put(put, &self.0.settings)?)));
        self.0.submit_sound(checked).await.into_iter().map(|answer| answer.and_then(sku_put)).collect()
    }

    /// Counts stock by hand. Returns the SKU and whether this repeats an earlier call.
    ///
    /// # Errors
    /// [`crate::Error::Refused`]: `unknown-sku`, `below-committed`, `idempotency-mismatch`.
    pub async fn adjust(&self, adjust: Adjust) -> Result<(Sku, bool)> {
        let adjust = check_adjust(adjust)?;
        match self.0.submit_one(Command::Adjust(adjust)).await? {
            Outcome::Adjusted { sku, replayed } => Ok((sku, replayed)),
            other => Err(unexpected(&other)),
        }
    }

    /// Archives a SKU: no new orders, held ones live on.
    ///
    /// # Errors
    /// [`crate::Error::Refused`]: `unknown-sku`.
    pub async fn archive(&self, sku: SkuId) -> Result<Sku> {
        match self.0.submit_one(Command::ArchiveSku(sku)).await? {
            Outcome::Archived(sku) => Ok(sku),
            other => Err(unexpected(&other)),
        }
    }

    /// A SKU, straight from the ledger.
    ///
    /// # Errors
    /// [`crate::Error::LedgerUnavailable`].
    pub async fn get(&self, sku: SkuId) -> Result<Option<Sku>> {
        Ok(self.0.ledger.sku(sku).await?)
    }

    /// SKUs, newest first.
    ///
    /// # Errors
    /// [`crate::Error::BadCursor`]; [`crate::Error::LedgerUnavailable`].
    pub async fn list(&self, page: PageRequest) -> Result<Page<Sku>> {
        Ok(self.0.ledger.skus(page).await?)
    }

    /// Every change of a SKU's counts, oldest first; `None` when there is no such SKU.
    ///
    /// # Errors
    /// As [`Catalog::list`].
    pub async fn changes(&self, sku: SkuId, page: PageRequest) -> Result<Option<Page<StockChange>>> {
        Ok(self.0.ledger.stock_changes(sku, page).await?)
    }
}
