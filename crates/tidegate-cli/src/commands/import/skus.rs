//! SKUs: the columns of their files, and what a row of CSV says.

use serde_json::{Map, Value, json};
use tidegate::core::Currency;

use super::rows::{Cells, Layout, json_of};

/// Read separately: an archived SKU is made and archived again.
pub const ARCHIVED: &str = "archived";

/// What a file of SKUs holds.
pub static LAYOUT: Layout = Layout {
    columns: &[
        "sku",
        "title",
        "price_minor",
        "price",
        "currency",
        "on_hand",
        "hold_seconds",
        "max_per_order",
        "max_per_buyer",
        "on_sale_from",
        "attributes",
        ARCHIVED,
    ],
    read_only: &["available", "held", "sold", "version", "stock_version"],
    required: "sku",
    from_cells: sku_of,
};

fn sku_of(cells: &Cells<'_>) -> Result<Map<String, Value>, String> {
    let cell = |name: &str| cells.get(name);
    cell("sku").ok_or("the column \"sku\" is empty")?;
    let mut sku = cells.texts(&["sku", "title", "on_sale_from"]);
    if let Some(text) = cell(ARCHIVED) {
        sku.insert(ARCHIVED.to_owned(), json!(text == "true"));
    }
    for name in ["on_hand", "hold_seconds", "max_per_order", "max_per_buyer"] {
        if let Some(text) = cell(name) {
            let number: i64 =
                text.trim().parse().map_err(|_| format!("{name} is {text:?}, but it must be a whole number"))?;
            sku.insert(name.to_owned(), json!(number));
        }
    }
    if let Some(text) = cell("attributes") {
        let value = json_of(text.as_bytes()).map_err(|why| format!("attributes {why}"))?;
        sku.insert("attributes".to_owned(), value);
    }
    if let Some(price) = price(cell("price_minor"), cell("price"), cell("currency"))? {
        sku.insert("price".to_owned(), price);
    }
    Ok(sku)
}

/// A price from `price_minor` (whole minor units) or `price` (a decimal number), and `currency`.
fn price(minor: Option<&str>, decimal: Option<&str>, currency: Option<&str>) -> Result<Option<Value>, String> {
    let (None, None) = (minor, decimal) else {
        let code = currency.ok_or("a price needs its currency, such as EUR")?;
        let currency: Currency = code.parse()?;
        let amount = match (minor, decimal) {
            (Some(_), Some(_)) => return Err("price and price_minor are both set; keep one of them".to_owned()),
            (Some(minor), None) => {
                minor.trim().parse().map_err(|_| format!("price_minor is {minor:?}, but it must be a whole number"))?
            }
            (None, decimal) => minor_units(decimal.unwrap_or_default().trim(), currency)?,
        };
        return Ok(Some(json!({ "amount": amount, "currency": currency.code() })));
    };
    Ok(None)
}

/// `12.99` in minor units of `currency`; never rounded.
fn minor_units(text: &str, currency: Currency) -> Result<i64, String> {
    let digits = currency.minor_digits() as usize;
    let wrong = || {
        format!(
            "price is {text:?}, but it must be a decimal number with at most {digits} digits behind the point in {currency}"
        )
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let numeric = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !numeric(whole) || !numeric(fraction) || fraction.len() > digits || text.ends_with('.') {
        return Err(wrong());
    }
    format!("{whole}{fraction:0<digits$}").parse().map_err(|_| wrong())
}
