//! SKUs: the card (what is shown and what limits a sale) and the counts.

use crate::{Counts, JsonObject, Millis, Money, SkuId};

/// Largest count of units a SKU may have on hand: what a JSON number holds exactly (2^53 - 1).
pub const MAX_ON_HAND: i64 = 9_007_199_254_740_991;
/// Largest `attributes`, in bytes of compact JSON.
pub const MAX_ATTRIBUTES_BYTES: usize = 16 * 1024;
/// Longest title, in bytes.
pub const MAX_TITLE_BYTES: usize = 1_000;

/// A SKU as the ledger keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sku {
    /// The id, compared byte for byte.
    pub id: SkuId,
    /// Shown name.
    pub title: Option<String>,
    /// Unit price; a SKU without one is sold without a total.
    pub price: Option<Money>,
    /// Anything the shop wants to keep with it.
    pub attributes: Option<JsonObject>,
    /// Hold time of orders with this SKU, in seconds.
    pub hold_seconds: Option<i64>,
    /// Most units of one order.
    pub max_per_order: Option<i64>,
    /// Most units of one buyer, over all pending, paid and fulfilled orders.
    pub max_per_buyer: Option<i64>,
    /// When `max_per_buyer` last changed; older orders may exceed it.
    pub buyer_limit_since: Option<Millis>,
    /// Not sold before this instant.
    pub on_sale_from: Option<Millis>,
    /// Archived: no new orders, held ones live on.
    pub archived: bool,
    /// Units.
    pub counts: Counts,
    /// Counts changes of the card, from 1 (the `ETag`).
    pub version: i64,
    /// Counts changes of the counts, from 1.
    pub stock_version: i64,
}

impl Sku {
    /// A new SKU without a card, with `on_hand` units and version 0 (creating it makes that 1).
    #[must_use]
    pub fn new(id: SkuId) -> Self {
        Self {
            id,
            title: None,
            price: None,
            attributes: None,
            hold_seconds: None,
            max_per_order: None,
            max_per_buyer: None,
            buyer_limit_since: None,
            on_sale_from: None,
            archived: false,
            counts: Counts::default(),
            version: 0,
            stock_version: 0,
        }
    }
}

/// One field of a partial update: left out, cleared, or set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Patch<T> {
    /// Left out: unchanged.
    #[default]
    Keep,
    /// `null`: cleared.
    Clear,
    /// Set to this.
    Set(T),
}

impl<T: Clone + PartialEq> Patch<T> {
    /// Applies this to `field`; true when that changed it.
    pub fn apply(&self, field: &mut Option<T>) -> bool {
        let new = match self {
            Patch::Keep => return false,
            Patch::Clear => None,
            Patch::Set(v) => Some(v.clone()),
        };
        let changed = *field != new;
        *field = new;
        changed
    }
}

/// What `PUT /v1/skus/{sku}` may say of the card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkuPatch {
    /// Shown name, up to [`MAX_TITLE_BYTES`].
    pub title: Patch<String>,
    /// Unit price.
    pub price: Patch<Money>,
    /// Free attributes.
    pub attributes: Patch<JsonObject>,
    /// Hold time, seconds.
    pub hold_seconds: Patch<i64>,
    /// Most units of one order.
    pub max_per_order: Patch<i64>,
    /// Most units of one buyer.
    pub max_per_buyer: Patch<i64>,
    /// Not sold before this instant.
    pub on_sale_from: Patch<Millis>,
}
