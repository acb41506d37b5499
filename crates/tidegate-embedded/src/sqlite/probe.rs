//! What the gate asks before it refuses.

use rusqlite::{Connection, OptionalExtension, Result};
use tidegate_backend::{Probe, Probed};
use tidegate_core::gate::Copy;
use tidegate_core::{Map, SkuId};

use super::row;

const COPY_COLUMNS: &str = "sku, archived, on_sale_from, max_per_order, on_hand - held - sold, stock_version";

fn copy(r: &rusqlite::Row<'_>) -> Result<Copy> {
    Ok(Copy {
        archived: r.get(1)?,
        on_sale_from: row::opt_millis(r, 2)?,
        max_per_order: r.get(3)?,
        available: r.get(4)?,
        stock_version: r.get(5)?,
    })
}

/// Answers `probes` from one read transaction.
pub(super) fn probe(conn: &Connection, probes: &[Probe]) -> Result<Vec<Probed>> {
    let mut ids =
        conn.prepare_cached("SELECT order_no IS NOT NULL OR tombstone_at IS NOT NULL FROM order_ids WHERE id = ?1")?;
    let mut keys = conn.prepare_cached("SELECT 1 FROM order_keys WHERE key = ?1")?;
    let mut skus = conn.prepare_cached(&format!("SELECT {COPY_COLUMNS} FROM skus WHERE sku = ?1"))?;
    let mut seen: Map<&SkuId, Option<Copy>> = Map::default();
    let mut answers = Vec::with_capacity(probes.len());
    for probe in probes {
        let mut known = false;
        if let Some(id) = &probe.order_id {
            known = ids.query_row([id.as_str().as_bytes()], |r| r.get(0)).optional()?.unwrap_or(false);
        }
        if let Some(key) = probe.key.as_ref().filter(|_| !known) {
            known = keys.exists([key.as_str().as_bytes()])?;
        }
        let mut copies = Vec::with_capacity(probe.skus.len());
        for sku in &probe.skus {
            let found = match seen.get(sku) {
                Some(found) => found.clone(),
                None => {
                    let found = skus.query_row([sku.as_str().as_bytes()], copy).optional()?;
                    seen.insert(sku, found.clone());
                    found
                }
            };
            copies.push(found);
        }
        answers.push(Probed { known, copies });
    }
    Ok(answers)
}

/// Copies of all SKUs by id, after `after`.
pub(super) fn copies(conn: &Connection, after: Option<&SkuId>, limit: usize) -> Result<Vec<(SkuId, Copy)>> {
    let sql = format!("SELECT {COPY_COLUMNS} FROM skus WHERE sku > ?1 ORDER BY sku LIMIT ?2");
    let mut select = conn.prepare_cached(&sql)?;
    // Ids are never empty, so the empty BLOB comes before all of them.
    let after = after.map_or(&b""[..], |sku| sku.as_str().as_bytes());
    let rows = select.query_map((after, limit as i64), |r| Ok((row::id(r, 0)?, copy(r)?)))?;
    rows.collect()
}
