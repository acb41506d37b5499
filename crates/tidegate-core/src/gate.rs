//! The gate: a soft filter in front of the ledger. It can refuse, never accept.

use crate::command::Place;
use crate::{Millis, Sku, SkuId};

/// The gate's copy of a SKU: the parts of its card that every order is checked against, and what is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Archived SKUs are left to the ledger.
    pub archived: bool,
    /// Not sold before this instant.
    pub on_sale_from: Option<Millis>,
    /// Most units of one order.
    pub max_per_order: Option<i64>,
    /// Units the ledger could give when the copy was made.
    pub available: i64,
    /// The `stock_version` it was made at.
    pub stock_version: i64,
}

impl From<&Sku> for Copy {
    fn from(sku: &Sku) -> Self {
        Self {
            archived: sku.archived,
            on_sale_from: sku.on_sale_from,
            max_per_order: sku.max_per_order,
            available: sku.counts.available(),
            stock_version: sku.stock_version,
        }
    }
}

/// What the gate makes of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opinion {
    /// The ledger decides.
    Pass,
    /// By its copies this SKU has too few units. Before it is refused, the ledger's readers must be asked whether
    /// the order exists already and whether the copy still holds.
    Short {
        /// The first line's SKU that is short.
        sku: SkuId,
        /// Units asked for.
        asked: i64,
        /// Units by the copy.
        available: i64,
    },
    /// The gate has no copy of this SKU: the ledger's readers know whether it exists.
    Unknown(SkuId),
}

/// Checks `place` against the copies `copy_of` gives. Precedence is that of orders.md section 3: a card that would refuse
/// is left to the ledger, so that its refusal comes first; an order with `supersedes` always passes.
pub fn check(place: &Place, now: Millis, mut copy_of: impl FnMut(&SkuId) -> Option<Copy>) -> Opinion {
    if place.supersedes.is_some() {
        return Opinion::Pass;
    }
    let mut short = None;
    for (sku, asked) in &place.lines {
        let Some(copy) = copy_of(sku) else {
            return Opinion::Unknown(sku.clone());
        };
        let card_refuses = copy.archived
            || copy.on_sale_from.is_some_and(|from| now < from)
            || copy.max_per_order.is_some_and(|max| *asked > max);
        if card_refuses {
            return Opinion::Pass;
        }
        if short.is_none() && copy.available < *asked {
            short = Some(Opinion::Short { sku: sku.clone(), asked: *asked, available: copy.available });
        }
    }
    short.unwrap_or(Opinion::Pass)
}
