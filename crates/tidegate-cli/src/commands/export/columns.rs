//! The columns of each export. A CSV of SKUs can be read back by `import-skus`.

use serde_json::Value;

use super::What;

/// One column: its name, and the JSON pointer of its value in the item (in the order's line with `line`).
#[derive(Clone, Copy)]
pub struct Column {
    /// As the header says it.
    pub name: &'static str,
    pointer: &'static str,
    line: bool,
}

const fn item(name: &'static str, pointer: &'static str) -> Column {
    Column { name, pointer, line: false }
}

const fn line(name: &'static str, pointer: &'static str) -> Column {
    Column { name, pointer, line: true }
}

const ORDERS: &[Column] = &[
    item("order_id", "/id"),
    item("buyer_id", "/buyer_id"),
    item("status", "/status"),
    line("sku", "/sku"),
    line("quantity", "/quantity"),
    line("unit_price_minor", "/unit_price/amount"),
    item("total_minor", "/total/amount"),
    item("currency", "/total/currency"),
    item("placed_at", "/placed_at"),
    item("pay_by", "/pay_by"),
    item("release_at", "/release_at"),
    item("paid_at", "/paid_at"),
    item("cancelled_at", "/cancelled_at"),
    item("cancel_reason", "/cancel_reason"),
    item("fulfilled_at", "/fulfilled_at"),
    item("version", "/version"),
    item("metadata", "/metadata"),
];

const SKUS: &[Column] = &[
    item("sku", "/sku"),
    item("title", "/title"),
    item("price_minor", "/price/amount"),
    item("currency", "/price/currency"),
    item("on_hand", "/on_hand"),
    item("available", "/available"),
    item("held", "/held"),
    item("sold", "/sold"),
    item("hold_seconds", "/hold_seconds"),
    item("max_per_order", "/max_per_order"),
    item("max_per_buyer", "/max_per_buyer"),
    item("on_sale_from", "/on_sale_from"),
    item("archived", "/archived"),
    item("attributes", "/attributes"),
    item("version", "/version"),
    item("stock_version", "/stock_version"),
];

const LEDGER: &[Column] = &[
    item("sku", "/sku"),
    item("at", "/at"),
    item("kind", "/kind"),
    item("order_id", "/order_id"),
    item("reason", "/reason"),
    item("on_hand", "/on_hand"),
    item("held", "/held"),
    item("sold", "/sold"),
    item("after_on_hand", "/after/on_hand"),
    item("after_held", "/after/held"),
    item("after_sold", "/after/sold"),
    item("after_available", "/after/available"),
];

fn table(what: What) -> &'static [Column] {
    match what {
        What::Orders => ORDERS,
        What::Skus => SKUS,
        What::Ledger => LEDGER,
    }
}

/// The columns of an export.
pub fn of(what: What) -> impl Iterator<Item = &'static Column> {
    table(what).iter()
}

/// The rows of one item: one a line for an order, else one.
pub fn rows(what: What, item: &Value) -> Vec<Vec<String>> {
    let row = |line: Option<&Value>| {
        let cell =
            |column: &Column| if column.line { line } else { Some(item) }.and_then(|v| v.pointer(column.pointer));
        of(what).map(|column| text(cell(column))).collect()
    };
    match item.get("lines").and_then(Value::as_array) {
        Some(lines) if what == What::Orders && !lines.is_empty() => lines.iter().map(|line| row(Some(line))).collect(),
        _ => vec![row(None)],
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_order_has_a_row_a_line() {
        let order = json!({"id": "o", "status": "paid", "lines": [{"sku": "a", "quantity": 2}, {"sku": "b", "quantity": 1, "unit_price": {"amount": 5, "currency": "EUR"}}], "metadata": {}});
        let rows = rows(What::Orders, &order);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1][..6], ["o", "", "paid", "b", "1", "5"]);
    }
}
