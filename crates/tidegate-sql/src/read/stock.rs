//! Reads of SKUs and their stock ledger.

use tidegate_backend::Page;
use tidegate_backend::stored::cursor::List;
use tidegate_core::{Counts, OrderNo, Sku, SkuId, StockChange};

use super::{bytes, page};
use crate::fault::Result;
use crate::fetched::Row;
use crate::row;
use crate::session::Session;
use crate::value::Value;

fn select(rest: &str) -> String {
    format!("SELECT {} FROM skus s LEFT JOIN sku_attributes a ON a.sku_no = s.sku_no {rest}", row::SKU_COLUMNS)
}

/// The SKU with this id.
pub(crate) async fn sku(session: &mut Session, id: &SkuId) -> Result<Option<Sku>> {
    let found = session.one(&select("WHERE s.sku = ?"), &[bytes(id.as_str())]).await?;
    found.map(|r| row::sku(&r).map(|(_, sku)| sku)).transpose()
}

/// SKUs, newest first, from below the number `before`.
pub(crate) async fn skus(session: &mut Session, before: Option<i64>, limit: usize) -> Result<Page<Sku>> {
    let sql = select("WHERE s.sku_no < ? ORDER BY s.sku_no DESC LIMIT ?");
    let values = [before.unwrap_or(i64::MAX).into(), Value::from(limit as i64 + 1)];
    let rows = session.rows(&sql, &values).await?;
    page(rows.iter().map(row::sku), limit, List::Skus)
}

/// Numbered SKUs above `after`, oldest first.
pub(super) async fn skus_from(session: &mut Session, after: i64, limit: usize) -> Result<Vec<(i64, Sku)>> {
    let sql = select("WHERE s.sku_no > ? ORDER BY s.sku_no LIMIT ?");
    let rows = session.rows(&sql, &[after.into(), Value::from(limit as i64)]).await?;
    rows.iter().map(row::sku).collect()
}

/// Columns that [`change`] reads, of `stock_changes c LEFT JOIN orders o`.
pub(super) const CHANGE_COLUMNS: &str = "c.stock_version, c.at, c.kind, c.order_no, o.id, c.reason, c.on_hand_delta, \
    c.held_delta, c.sold_delta, c.on_hand, c.held, c.sold";

/// A row of the stock ledger of `sku`.
pub(super) fn change(r: &Row, sku: &SkuId) -> Result<StockChange> {
    let order = match row::opt_id(r, 4)? {
        Some(id) => Some((OrderNo(r.int(3)?), id)),
        None => None,
    };
    Ok(StockChange {
        sku: sku.clone(),
        stock_version: r.int(0)?,
        at: row::millis(r, 1)?,
        kind: row::numbered(r, 2)?,
        order,
        reason: r.opt_text(5)?.map(str::to_owned),
        delta: Counts { on_hand: r.int(6)?, held: r.int(7)?, sold: r.int(8)? },
        after: Counts { on_hand: r.int(9)?, held: r.int(10)?, sold: r.int(11)? },
    })
}

/// A SKU's stock ledger above version `after`, oldest first.
pub(crate) async fn stock_changes(
    session: &mut Session,
    id: &SkuId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<StockChange>>> {
    // A SKU keeps its number, so that the two statements need no common instant.
    let found = session.one("SELECT sku_no FROM skus WHERE sku = ?", &[bytes(id.as_str())]).await?;
    let Some(found) = found else { return Ok(None) };
    let sql = format!(
        "SELECT {CHANGE_COLUMNS} FROM stock_changes c LEFT JOIN orders o ON o.order_no = c.order_no \
        WHERE c.sku_no = ? AND c.stock_version > ? ORDER BY c.stock_version LIMIT ?"
    );
    let values = [found.int(0)?.into(), after.into(), Value::from(limit as i64 + 1)];
    let rows = session.rows(&sql, &values).await?;
    page(rows.iter().map(|r| change(r, id).map(|c| (c.stock_version, c))), limit, List::StockChanges).map(Some)
}
