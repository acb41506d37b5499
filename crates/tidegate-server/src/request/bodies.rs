//! Every body a client may send, declared once.

use tidegate::core::money::MAX_AMOUNT;
use tidegate::core::order::{MAX_LINES, MAX_METADATA_BYTES, MAX_QUANTITY, MAX_REASON_BYTES};
use tidegate::core::sku::{MAX_ATTRIBUTES_BYTES, MAX_ON_HAND, MAX_TITLE_BYTES};

use super::{Field, Kind, Shape};

/// Most orders of one batch.
pub(crate) const MAX_BATCH_ORDERS: usize = 500;
/// Most SKUs of one batch.
pub(crate) const MAX_BATCH_SKUS: usize = 1_000;
/// Furthest a manual clock moves at once, milliseconds: a hundred years.
pub(crate) const MAX_ADVANCE_MS: i64 = 3_155_760_000_000;

/// Longest hold a request may name, seconds; the server's own bound is lower.
const ANY_HOLD: Kind = Kind::Integer(1, 86_400);

pub(crate) static LINE: Shape = Shape {
    name: "PlaceLine",
    doc: "A line to order. Lines of one SKU are added up.",
    example: r#"{"sku": "mug-blue", "quantity": 2}"#,
    fields: &[
        Field::required("sku", Kind::Label, "The SKU."),
        Field::required("quantity", Kind::Integer(1, MAX_QUANTITY), "Units."),
    ],
};

pub(crate) static PLACE: Shape = Shape {
    name: "PlaceOrder",
    doc: "An order to place. It needs an `order_id` or an `Idempotency-Key`.",
    example: r#"{"order_id": "o-1001", "buyer_id": "buyer-7", "lines": [{"sku": "mug-blue", "quantity": 2}], "hold_seconds": 1800, "metadata": {"cart": 17}}"#,
    fields: &[
        Field::optional("order_id", Kind::OrderId, "The caller's id for it; its identity."),
        Field::required("buyer_id", Kind::Label, "Who buys."),
        Field::required("lines", Kind::List(&LINE, 1, MAX_LINES), "What to hold, all or nothing."),
        Field::optional(
            "hold_seconds",
            ANY_HOLD,
            "How long to hold it; left out, the smallest its SKUs set, else the server's.",
        ),
        Field::optional(
            "supersedes",
            Kind::OrderId,
            "A pending or expired order of the same buyer to cancel in the same commit; its stock counts for this one.",
        ),
        Field::optional("metadata", Kind::JsonObject(MAX_METADATA_BYTES), "Anything to keep with it."),
    ],
};

pub(crate) static PLACE_BATCH: Shape = Shape {
    name: "PlaceOrders",
    doc: "Orders to place; each stands alone and needs its own `order_id`.",
    example: r#"{"orders": [{"order_id": "o-1001", "buyer_id": "buyer-7", "lines": [{"sku": "mug-blue", "quantity": 1}]}]}"#,
    fields: &[Field::required("orders", Kind::List(&PLACE, 0, MAX_BATCH_ORDERS), "The orders.")],
};

pub(crate) static PAY: Shape = Shape {
    name: "ReportPayment",
    doc: "Money that was taken for an order.",
    example: r#"{"payment_id": "pi_3Q", "amount": 2598, "currency": "EUR", "captured_at": "2026-11-29T15:08:10.000Z"}"#,
    fields: &[
        Field::required("payment_id", Kind::Label, "The provider's id of it: makes a repeat harmless."),
        Field::optional("amount", Kind::Integer(1, MAX_AMOUNT), "Minor units; left out, the order's total."),
        Field::optional("currency", Kind::Currency, "Left out, the order's."),
        Field::optional("captured_at", Kind::Instant, "When the provider took it; recorded and shown only."),
    ],
};

pub(crate) static CANCEL: Shape = Shape {
    name: "CancelOrder",
    doc: "How to cancel. The body may be left out.",
    example: r#"{"reason": "changed my mind", "restock": true}"#,
    fields: &[
        Field::optional("reason", Kind::Text(MAX_REASON_BYTES), "Kept with the event."),
        Field::optional("restock", Kind::Flag, "For a paid order: whether its units can be sold again. Default true."),
    ],
};

pub(crate) static EXTEND: Shape = Shape {
    name: "ExtendOrder",
    doc: "A longer hold, counted from now.",
    example: r#"{"hold_seconds": 1800}"#,
    fields: &[Field::required(
        "hold_seconds",
        Kind::Integer(1, MAX_AMOUNT),
        "Seconds from now; over the server's longest hold from `placed_at` it is refused.",
    )],
};

pub(crate) static NOTHING: Shape =
    Shape { name: "Nothing", doc: "An empty object. The body may be left out.", example: "{}", fields: &[] };

pub(crate) static MONEY: Shape = Shape {
    name: "Price",
    doc: "An amount of one currency.",
    example: r#"{"amount": 1299, "currency": "EUR"}"#,
    fields: &[
        Field::required("amount", Kind::Integer(0, MAX_AMOUNT), "Minor units: cents for EUR."),
        Field::required("currency", Kind::Currency, "A code of ISO 4217."),
    ],
};

const TITLE: Field = Field::patch("title", Kind::Text(MAX_TITLE_BYTES), "Shown name.");
const PRICE: Field =
    Field::patch("price", Kind::Object(&MONEY), "Price of one unit; a SKU without one is sold without a total.");
const ON_HAND: Field = Field::optional(
    "on_hand",
    Kind::Integer(0, MAX_ON_HAND),
    "Units of a new SKU (left out: 0); refused with another value for one that exists.",
);
const HOLD: Field = Field::patch("hold_seconds", ANY_HOLD, "Hold time of orders with this SKU.");
const PER_ORDER: Field = Field::patch("max_per_order", Kind::Integer(1, MAX_QUANTITY), "Most units of one order.");
const PER_BUYER: Field = Field::patch(
    "max_per_buyer",
    Kind::Integer(1, MAX_QUANTITY),
    "Most units of one buyer over pending, paid and fulfilled orders.",
);
const ON_SALE: Field = Field::patch("on_sale_from", Kind::Instant, "Not sold before this instant.");
const ATTRIBUTES: Field =
    Field::patch("attributes", Kind::JsonObject(MAX_ATTRIBUTES_BYTES), "Anything to show with it.");

pub(crate) static PUT_SKU: Shape = Shape {
    name: "PutSku",
    doc: "A SKU to create or change. A field left out is unchanged, null clears it; an archived SKU is revived.",
    example: r#"{"title": "Blue mug", "price": {"amount": 1299, "currency": "EUR"}, "on_hand": 500, "max_per_buyer": 4}"#,
    fields: &[TITLE, PRICE, ON_HAND, HOLD, PER_ORDER, PER_BUYER, ON_SALE, ATTRIBUTES],
};

pub(crate) static PUT_SKU_ITEM: Shape = Shape {
    name: "PutSkuItem",
    doc: "A SKU of a batch to create or change.",
    example: r#"{"sku": "mug-blue", "title": "Blue mug", "price": {"amount": 1299, "currency": "EUR"}, "on_hand": 500}"#,
    fields: &[
        Field::required("sku", Kind::Label, "The SKU."),
        TITLE,
        PRICE,
        ON_HAND,
        HOLD,
        PER_ORDER,
        PER_BUYER,
        ON_SALE,
        ATTRIBUTES,
    ],
};

pub(crate) static PUT_SKU_BATCH: Shape = Shape {
    name: "PutSkus",
    doc: "SKUs to create or change; each stands alone.",
    example: r#"{"skus": [{"sku": "mug-blue", "on_hand": 500}]}"#,
    fields: &[Field::required("skus", Kind::List(&PUT_SKU_ITEM, 0, MAX_BATCH_SKUS), "The SKUs.")],
};

pub(crate) static ADJUST: Shape = Shape {
    name: "AdjustStock",
    doc: "A stock count by hand.",
    example: r#"{"delta": -2, "reason": "broken in the warehouse"}"#,
    fields: &[
        Field::required("delta", Kind::Integer(-MAX_ON_HAND, MAX_ON_HAND), "Units to add (below 0: to take); not 0."),
        Field::required("reason", Kind::Text(MAX_REASON_BYTES), "Why; kept in the stock ledger."),
    ],
};

pub(crate) static ADVANCE_CLOCK: Shape = Shape {
    name: "AdvanceClock",
    doc: "How far to move a manual clock.",
    example: r#"{"advance_ms": 1800000}"#,
    fields: &[Field::required("advance_ms", Kind::Integer(0, MAX_ADVANCE_MS), "Milliseconds to move it forward.")],
};
