//! The gate's copies.

use tidegate_core::command::Place;
use tidegate_core::gate::{Copy, Opinion};
use tidegate_core::{Millis, SkuId};

/// Copies of what is available, asked before the ledger is. It never subtracts what is in flight, so it can refuse
/// only what the ledger had refused too; it can never cause an oversell.
pub trait Gate: Send + Sync {
    /// What the copies make of `place` at `now` (`tidegate_core::gate::check`).
    fn check(&self, place: &Place, now: Millis) -> Opinion;

    /// Takes copies made by a commit or by a read that began after it. A copy with an older `stock_version` than the
    /// one held is ignored unless `force`.
    fn replace(&self, copies: &[(SkuId, Copy)], force: bool);

    /// The copy held of `sku`, for reconciliation.
    fn copy_of(&self, sku: &SkuId) -> Option<Copy>;

    /// Number of SKUs held.
    fn len(&self) -> usize;

    /// Whether no SKU is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
