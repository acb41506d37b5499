//! Reads of SKUs and their stock ledger.

use rusqlite::{Connection, OptionalExtension, Result, Row};
use tidegate_backend::Page;
use tidegate_core::{Counts, OrderNo, Sku, SkuId, StockChange};

use super::orders::page;
use super::row;
use tidegate_backend::stored::cursor::List;

fn select(rest: &str) -> String {
    format!("SELECT {} FROM skus s LEFT JOIN sku_attributes a ON a.sku_no = s.sku_no {rest}", row::SKU_COLUMNS)
}

/// The SKU with this id, and its number.
pub(super) fn sku(conn: &Connection, id: &SkuId) -> Result<Option<(i64, Sku)>> {
    conn.prepare_cached(&select("WHERE s.sku = ?1"))?.query_row([id.as_str().as_bytes()], row::sku).optional()
}

/// SKUs, newest first, from below the number `before`.
pub(super) fn skus(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Page<Sku>> {
    let mut select = conn.prepare_cached(&select("WHERE s.sku_no < ?1 ORDER BY s.sku_no DESC LIMIT ?2"))?;
    page(select.query_map((before.unwrap_or(i64::MAX), limit as i64 + 1), row::sku)?, limit, List::Skus)
}

/// Columns that [`change`] reads, of `stock_changes c LEFT JOIN orders o`.
pub(super) const CHANGE_COLUMNS: &str = "c.stock_version, c.at, c.kind, c.order_no, o.id, c.reason, c.on_hand_delta, c.held_delta, \
    c.sold_delta, c.on_hand, c.held, c.sold";

/// A row of the stock ledger of `sku`.
pub(super) fn change(r: &Row<'_>, sku: &SkuId) -> Result<StockChange> {
    let order = match row::opt_id(r, 4)? {
        Some(id) => Some((OrderNo(r.get(3)?), id)),
        None => None,
    };
    Ok(StockChange {
        sku: sku.clone(),
        stock_version: r.get(0)?,
        at: row::millis(r, 1)?,
        kind: row::numbered(r, 2)?,
        order,
        reason: r.get(5)?,
        delta: Counts { on_hand: r.get(6)?, held: r.get(7)?, sold: r.get(8)? },
        after: Counts { on_hand: r.get(9)?, held: r.get(10)?, sold: r.get(11)? },
    })
}

/// A SKU's stock ledger above version `after`, oldest first.
pub(super) fn stock_changes(
    conn: &Connection,
    id: &SkuId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<StockChange>>> {
    let Some(no) = row::one::<i64>(conn, "SELECT sku_no FROM skus WHERE sku = ?1", [id.as_str().as_bytes()])? else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {CHANGE_COLUMNS} FROM stock_changes c LEFT JOIN orders o ON o.order_no = c.order_no \
        WHERE c.sku_no = ?1 AND c.stock_version > ?2 ORDER BY c.stock_version LIMIT ?3"
    );
    let mut select = conn.prepare_cached(&sql)?;
    let rows = select.query_map((no, after, limit as i64 + 1), |r| change(r, id).map(|c| (c.stock_version, c)))?;
    page(rows, limit, List::StockChanges).map(Some)
}
