//! What a batch writes, a table each. Where a row may be there already, either the batch holds its lock and updates it, or
//! the row is inserted and a clash of keys makes the batch run again: nothing is overwritten unseen.

use crate::bulk::Kind::{Bytes, Int, Text};
use crate::bulk::Table;

const fn insert(name: &'static str, columns: &'static [(&'static str, crate::bulk::Kind)]) -> Table {
    Table { name, columns, key: &[], update: &[] }
}

pub(super) static NEW_SKUS: Table = insert(
    "skus",
    &[
        ("sku", Bytes),
        ("on_hand", Int),
        ("held", Int),
        ("sold", Int),
        ("stock_version", Int),
        ("version", Int),
        ("archived", Int),
        ("changed_at", Int),
        ("title", Text),
        ("price", Int),
        ("currency", Text),
        ("hold_seconds", Int),
        ("max_per_order", Int),
        ("max_per_buyer", Int),
        ("buyer_limit_since", Int),
        ("on_sale_from", Int),
    ],
);

/// Counts of SKUs there are. The columns that are not updated are those a row must have.
pub(super) static SKU_COUNTS: Table = Table {
    name: "skus",
    columns: &[
        ("sku_no", Int),
        ("sku", Bytes),
        ("on_hand", Int),
        ("held", Int),
        ("sold", Int),
        ("stock_version", Int),
        ("version", Int),
        ("archived", Int),
        ("changed_at", Int),
    ],
    key: &["sku_no"],
    update: &["on_hand", "held", "sold", "stock_version", "changed_at"],
};

/// Cards of SKUs there are.
pub(super) static SKU_CARDS: Table = Table {
    name: "skus",
    columns: &[
        ("sku_no", Int),
        ("sku", Bytes),
        ("on_hand", Int),
        ("held", Int),
        ("sold", Int),
        ("stock_version", Int),
        ("version", Int),
        ("archived", Int),
        ("changed_at", Int),
        ("title", Text),
        ("price", Int),
        ("currency", Text),
        ("hold_seconds", Int),
        ("max_per_order", Int),
        ("max_per_buyer", Int),
        ("buyer_limit_since", Int),
        ("on_sale_from", Int),
    ],
    key: &["sku_no"],
    update: &[
        "version",
        "archived",
        "title",
        "price",
        "currency",
        "hold_seconds",
        "max_per_order",
        "max_per_buyer",
        "buyer_limit_since",
        "on_sale_from",
    ],
};

pub(super) static SKU_ATTRIBUTES: Table = Table {
    name: "sku_attributes",
    columns: &[("sku_no", Int), ("attributes", Text)],
    key: &["sku_no"],
    update: &["attributes"],
};

const ID_COLUMNS: &[(&str, crate::bulk::Kind)] =
    &[("id", Bytes), ("order_no", Int), ("tombstone_at", Int), ("loose", Int)];

pub(super) static NEW_IDS: Table = insert("order_ids", ID_COLUMNS);

pub(super) static OLD_IDS: Table =
    Table { name: "order_ids", columns: ID_COLUMNS, key: &["id"], update: &["order_no", "tombstone_at", "loose"] };

pub(super) static NEW_ORDERS: Table = insert(
    "orders",
    &[
        ("order_no", Int),
        ("id", Bytes),
        ("buyer_id", Bytes),
        ("status", Int),
        ("placed_at", Int),
        ("pay_by", Int),
        ("release_at", Int),
        ("paid_at", Int),
        ("cancelled_at", Int),
        ("cancel_reason", Int),
        ("fulfilled_at", Int),
        ("version", Int),
        ("closed", Int),
        ("last_seq", Int),
        ("payment_count", Int),
        ("requested_hold", Int),
        ("supersedes", Bytes),
        ("total", Int),
        ("currency", Text),
        ("line_items", Bytes),
        ("metadata", Text),
    ],
);

/// The changing part of orders there are.
pub(super) static OLD_ORDERS: Table = Table {
    name: "orders",
    columns: &[
        ("order_no", Int),
        ("id", Bytes),
        ("buyer_id", Bytes),
        ("status", Int),
        ("placed_at", Int),
        ("pay_by", Int),
        ("release_at", Int),
        ("paid_at", Int),
        ("cancelled_at", Int),
        ("cancel_reason", Int),
        ("fulfilled_at", Int),
        ("version", Int),
        ("closed", Int),
        ("last_seq", Int),
        ("payment_count", Int),
        ("line_items", Bytes),
    ],
    key: &["order_no"],
    update: &[
        "status",
        "pay_by",
        "release_at",
        "paid_at",
        "cancelled_at",
        "cancel_reason",
        "fulfilled_at",
        "version",
        "closed",
        "last_seq",
        "payment_count",
    ],
};

pub(super) static LINES: Table = insert("order_lines", &[("sku_no", Int), ("order_no", Int), ("quantity", Int)]);

pub(super) static ORDER_KEYS: Table = insert("order_keys", &[("order_key", Bytes), ("order_no", Int)]);

const REQUEST_COLUMNS: &[(&str, crate::bulk::Kind)] =
    &[("scope", Int), ("request_key", Bytes), ("command", Text), ("at", Int)];

pub(super) static NEW_REQUEST_KEYS: Table = insert("request_keys", REQUEST_COLUMNS);

pub(super) static OLD_REQUEST_KEYS: Table = Table {
    name: "request_keys",
    columns: REQUEST_COLUMNS,
    key: &["scope", "request_key"],
    update: &["command", "at"],
};

/// Counters are read and written under the lock of their SKU.
pub(super) static BUYER_COUNTERS: Table = Table {
    name: "buyer_counters",
    columns: &[("sku_no", Int), ("buyer_id", Bytes), ("units", Int)],
    key: &["sku_no", "buyer_id"],
    update: &["units"],
};

pub(super) static STOCK_CHANGES: Table = insert(
    "stock_changes",
    &[
        ("sku_no", Int),
        ("stock_version", Int),
        ("at", Int),
        ("kind", Int),
        ("order_no", Int),
        ("reason", Text),
        ("on_hand_delta", Int),
        ("held_delta", Int),
        ("sold_delta", Int),
        ("on_hand", Int),
        ("held", Int),
        ("sold", Int),
    ],
);

pub(super) static EVENTS: Table = insert(
    "events",
    &[
        ("event_no", Int),
        ("order_no", Int),
        ("seq", Int),
        ("kind", Int),
        ("at", Int),
        ("status", Int),
        ("pay_by", Int),
        ("release_at", Int),
        ("paid_at", Int),
        ("cancelled_at", Int),
        ("cancel_reason", Int),
        ("fulfilled_at", Int),
        ("version", Int),
        ("extra", Text),
    ],
);

const PAYMENT_COLUMNS: &[(&str, crate::bulk::Kind)] = &[
    ("payment_id", Bytes),
    ("order_id", Bytes),
    ("amount", Int),
    ("currency", Text),
    ("captured_at", Int),
    ("received_at", Int),
    ("outcome", Int),
    ("flagged_at", Int),
];

pub(super) static NEW_PAYMENTS: Table = insert("payments", PAYMENT_COLUMNS);

/// Payments there are, under the lock of their order or id.
pub(super) static OLD_PAYMENTS: Table = Table {
    name: "payments",
    columns: PAYMENT_COLUMNS,
    key: &["payment_id"],
    update: &["amount", "currency", "outcome", "flagged_at"],
};

const REFUND_COLUMNS: &[(&str, crate::bulk::Kind)] = &[
    ("refund_id", Bytes),
    ("payment_no", Int),
    ("order_id", Bytes),
    ("amount", Int),
    ("currency", Text),
    ("status", Int),
    ("reason", Int),
    ("due_at", Int),
    ("settled_at", Int),
];

/// Refunds are new, or there and under the lock of their order or id; their ids are random.
pub(super) static REFUNDS: Table = Table {
    name: "refunds",
    columns: REFUND_COLUMNS,
    key: &["refund_id"],
    update: &["amount", "currency", "status", "settled_at"],
};

pub(super) static PARKED: Table = Table {
    name: "parked",
    columns: &[("order_no", Int), ("at", Int), ("tries", Int), ("reason", Text)],
    key: &["order_no"],
    update: &["at", "tries", "reason"],
};
