//! SKUs, their stock ledger and product pages on the wire.

use serde::Serialize;
use tidegate::core::{Sku, SkuId, StockChange};
use tidegate::products::Product;
use utoipa::ToSchema;

use super::instant::Instant;
use super::names::StockKindName;
use super::{Kept, MoneyShape};

/// A SKU with its card and its counts.
#[derive(Serialize, ToSchema)]
#[schema(as = Sku)]
pub(crate) struct SkuShape<'a> {
    /// The id, compared byte for byte.
    #[schema(example = "mug-blue")]
    sku: &'a str,
    /// Units in the house: held and sold ones included, fulfilled ones not.
    on_hand: i64,
    /// Units that can be ordered now: `on_hand - held - sold`, never negative.
    #[schema(minimum = 0)]
    available: i64,
    /// Units of pending orders.
    held: i64,
    /// Units of paid orders that are not fulfilled.
    sold: i64,
    /// Counts changes of the card from 1; the `ETag`.
    version: i64,
    /// Counts changes of the counts from 1.
    stock_version: i64,
    #[schema(required)]
    title: Option<&'a str>,
    /// Price of one unit.
    #[schema(required)]
    price: Option<MoneyShape<'a>>,
    #[schema(inline, required)]
    attributes: Option<Kept<'a>>,
    /// Hold time of orders with this SKU, seconds.
    #[schema(required)]
    hold_seconds: Option<i64>,
    /// Most units of one order.
    #[schema(required)]
    max_per_order: Option<i64>,
    /// Most units of one buyer.
    #[schema(required)]
    max_per_buyer: Option<i64>,
    /// Not sold before this instant.
    #[schema(inline, required)]
    on_sale_from: Option<Instant>,
    /// Takes no new orders.
    archived: bool,
}

impl<'a> SkuShape<'a> {
    /// Borrows `sku`.
    pub(crate) fn new(sku: &'a Sku) -> Self {
        Self {
            sku: sku.id.as_str(),
            on_hand: sku.counts.on_hand,
            available: sku.counts.available(),
            held: sku.counts.held,
            sold: sku.counts.sold,
            version: sku.version,
            stock_version: sku.stock_version,
            title: sku.title.as_deref(),
            price: sku.price.as_ref().map(MoneyShape::new),
            attributes: sku.attributes.as_ref().map(Kept),
            hold_seconds: sku.hold_seconds,
            max_per_order: sku.max_per_order,
            max_per_buyer: sku.max_per_buyer,
            on_sale_from: sku.on_sale_from.map(Instant),
            archived: sku.archived,
        }
    }
}

/// What a product page shows.
#[derive(Serialize, ToSchema)]
#[schema(as = Product)]
pub(crate) struct ProductShape<'a> {
    sku: &'a str,
    #[schema(required)]
    title: Option<&'a str>,
    #[schema(required)]
    price: Option<MoneyShape<'a>>,
    #[schema(inline, required)]
    attributes: Option<Kept<'a>>,
    /// Whether a unit can be ordered.
    in_stock: bool,
}

impl<'a> ProductShape<'a> {
    /// Borrows the card of `sku`.
    pub(crate) fn new(sku: &'a SkuId, card: &'a Product, in_stock: bool) -> Self {
        Self {
            sku: sku.as_str(),
            title: card.title.as_deref(),
            price: card.price.as_ref().map(MoneyShape::new),
            attributes: card.attributes.as_ref().map(Kept),
            in_stock,
        }
    }
}

/// A stock count by hand, and what came of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Adjustment)]
pub(crate) struct AdjustmentShape<'a> {
    /// Units added (below 0: taken).
    pub(crate) delta: i64,
    /// Why.
    pub(crate) reason: &'a str,
    pub(crate) sku: SkuShape<'a>,
}

/// One change of a SKU's counts.
#[derive(Serialize, ToSchema)]
#[schema(as = StockChange)]
pub(crate) struct StockChangeShape<'a> {
    #[schema(inline)]
    at: Instant,
    #[schema(inline)]
    kind: StockKindName,
    /// The order behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    order_id: Option<&'a str>,
    /// Change of `on_hand`.
    on_hand: i64,
    /// Change of `held`.
    held: i64,
    /// Change of `sold`.
    sold: i64,
    /// The counts afterwards.
    after: CountsShape,
    /// Why, for a count by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// Counts of a SKU.
#[derive(Serialize, ToSchema)]
#[schema(as = Counts)]
pub(crate) struct CountsShape {
    on_hand: i64,
    held: i64,
    sold: i64,
    available: i64,
}

impl<'a> StockChangeShape<'a> {
    /// Borrows `change`.
    pub(crate) fn new(change: &'a StockChange) -> Self {
        let StockChange { delta, after, .. } = change;
        Self {
            at: Instant(change.at),
            kind: StockKindName(change.kind),
            order_id: change.order.as_ref().map(|(_, id)| id.as_str()),
            on_hand: delta.on_hand,
            held: delta.held,
            sold: delta.sold,
            after: CountsShape {
                on_hand: after.on_hand,
                held: after.held,
                sold: after.sold,
                available: after.available(),
            },
            reason: change.reason.as_deref(),
        }
    }
}
