//! Loads the rows a batch needs.

use rusqlite::{Connection, OptionalExtension, Result};
use tidegate_core::command::Parked;
use tidegate_core::engine::{Keys, RequestRecord, Rows, Slot};
use tidegate_core::{Map, Millis, Order, OrderId, OrderNo, Set, SkuId, Status};

use super::fault::bad_value;
use super::row;

/// A batch's rows, and what writing them back needs to know of how they lay.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub rows: Rows,
    /// Number and card version of each SKU that has a row.
    pub skus: Map<SkuId, SkuRow>,
    /// Orders that were pending, with their deadline.
    pub pending: Map<OrderNo, Millis>,
    /// Order ids that have a row, as an order or otherwise.
    pub ids: Set<OrderId>,
}

/// Where a SKU lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct SkuRow {
    pub no: i64,
    pub version: i64,
}

impl Loaded {
    /// Loads what `keys` names.
    pub(super) fn load(&mut self, conn: &Connection, keys: Keys) -> Result<()> {
        self.order_numbers(conn, keys.numbers)?;
        self.ids(conn, keys.ids)?;
        for key in keys.order_keys {
            let sql = "SELECT o.id FROM order_keys k JOIN orders o ON o.order_no = k.order_no WHERE k.key = ?1";
            let found = conn.prepare_cached(sql)?.query_row([key.as_str().as_bytes()], |r| row::id(r, 0)).optional()?;
            self.rows.order_keys.insert(key, found);
        }
        for (scope, key) in keys.request_keys {
            let sql = "SELECT command, at FROM request_keys WHERE scope = ?1 AND key = ?2";
            let found = conn
                .prepare_cached(sql)?
                .query_row((scope as i64, key.as_str().as_bytes()), |r| {
                    Ok(RequestRecord { command: r.get(0)?, at: row::millis(r, 1)? })
                })
                .optional()?;
            self.rows.request_keys.insert((scope, key), found);
        }
        for payment in keys.payments {
            let sql = "SELECT order_id FROM payments WHERE payment_id = ?1";
            let found =
                conn.prepare_cached(sql)?.query_row([payment.as_str().as_bytes()], |r| row::id(r, 0)).optional()?;
            self.rows.payments.insert(payment, found);
        }
        for refund in keys.refunds {
            let sql = "SELECT p.payment_id, r.order_id FROM refunds r JOIN payments p ON p.payment_no = r.payment_no WHERE r.refund_id = ?1";
            let found = conn
                .prepare_cached(sql)?
                .query_row([refund.as_str().as_bytes()], |r| Ok((row::id(r, 0)?, row::id(r, 1)?)))
                .optional()?;
            self.rows.refunds.insert(refund, found);
        }
        self.skus(conn, keys.skus)?;
        for sku in keys.recounts {
            if let Some(no) = self.sku_no(conn, &sku)? {
                recount(conn, no)?;
            }
            self.rows.recounted.insert(sku);
        }
        for (sku, buyer) in keys.buyers {
            let sql = "SELECT units FROM buyer_counters WHERE sku_no = ?1 AND buyer_id = ?2";
            let units = match self.sku_no(conn, &sku)? {
                Some(no) => row::one(conn, sql, (no, buyer.as_str().as_bytes()))?,
                None => None,
            };
            self.rows.buyers.insert((sku, buyer), units.unwrap_or(0));
        }
        self.parked(conn, keys.parked)
    }

    /// An order named by its number is loaded whole, so that its id need not be asked for in another round.
    fn order_numbers(&mut self, conn: &Connection, numbers: Vec<OrderNo>) -> Result<()> {
        for no in numbers {
            let order = row::order_by_number(conn, no.0)?;
            self.rows.numbers.insert(no, order.as_ref().map(|o| o.id.clone()));
            if let Some(order) = order {
                self.keep(order);
            }
        }
        Ok(())
    }

    fn keep(&mut self, order: Order) {
        if self.rows.ids.contains_key(&order.id) {
            return;
        }
        if order.state.status == Status::Pending {
            self.pending.insert(order.no, order.state.release_at);
        }
        self.ids.insert(order.id.clone());
        self.rows.ids.insert(order.id.clone(), Slot { order: Some(order), tombstone: None, unmatched: Vec::new() });
    }

    fn ids(&mut self, conn: &Connection, ids: Vec<OrderId>) -> Result<()> {
        let mut select = conn.prepare_cached("SELECT order_no, tombstone_at, loose FROM order_ids WHERE id = ?1")?;
        for id in ids {
            let read =
                |r: &rusqlite::Row<'_>| Ok((r.get::<_, Option<i64>>(0)?, row::opt_millis(r, 1)?, r.get::<_, i64>(2)?));
            let Some((no, tombstone, loose)) = select.query_row([id.as_str().as_bytes()], read).optional()? else {
                self.rows.ids.insert(id, Slot::default());
                continue;
            };
            if let Some(no) = no {
                let order =
                    row::order_by_number(conn, no)?.ok_or_else(|| bad_value(0, format!("order {id} has no row")))?;
                self.keep(order);
                continue;
            }
            let unmatched = if loose > 0 { row::payments_of(conn, &id)? } else { Vec::new() };
            self.ids.insert(id.clone());
            self.rows.ids.insert(id, Slot { order: None, tombstone, unmatched });
        }
        Ok(())
    }

    fn skus(&mut self, conn: &Connection, skus: Vec<SkuId>) -> Result<()> {
        let sql = format!(
            "SELECT {} FROM skus s LEFT JOIN sku_attributes a ON a.sku_no = s.sku_no WHERE s.sku = ?1",
            row::SKU_COLUMNS
        );
        let mut select = conn.prepare_cached(&sql)?;
        for id in skus {
            let found = select.query_row([id.as_str().as_bytes()], row::sku).optional()?;
            if let Some((no, sku)) = &found {
                self.skus.insert(id.clone(), SkuRow { no: *no, version: sku.version });
            }
            self.rows.skus.insert(id, found.map(|(_, sku)| sku));
        }
        Ok(())
    }

    fn parked(&mut self, conn: &Connection, orders: Vec<OrderNo>) -> Result<()> {
        for no in orders {
            let sql = "SELECT k.order_no, o.id, k.at, k.tries, k.reason FROM parked k JOIN orders o ON o.order_no = k.order_no WHERE k.order_no = ?1";
            let found = conn.prepare_cached(sql)?.query_row([no.0], parked).optional()?;
            self.rows.parked.insert(no, found);
        }
        Ok(())
    }

    /// The number of a SKU, whether or not the rules asked for its row.
    pub(super) fn sku_no(&mut self, conn: &Connection, sku: &SkuId) -> Result<Option<i64>> {
        if let Some(row) = self.skus.get(sku) {
            return Ok(Some(row.no));
        }
        row::one(conn, "SELECT sku_no FROM skus WHERE sku = ?1", [sku.as_str().as_bytes()])
    }
}

/// A row of the parked list: number, id, since when, tries, reason.
pub(super) fn parked(row: &rusqlite::Row<'_>) -> Result<Parked> {
    Ok(Parked {
        order: OrderNo(row.get(0)?),
        order_id: row::id(row, 1)?,
        at: row::millis(row, 2)?,
        tries: row.get(3)?,
        reason: row.get(4)?,
    })
}

/// Counts every buyer's units of a SKU from the orders there are.
fn recount(conn: &Connection, sku_no: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM buyer_counters WHERE sku_no = ?1")?.execute([sku_no])?;
    let sql = "INSERT INTO buyer_counters (sku_no, buyer_id, units)
        SELECT l.sku_no, o.buyer_id, sum(l.quantity) FROM order_lines l JOIN orders o ON o.order_no = l.order_no
        WHERE l.sku_no = ?1 AND o.status <> 2 GROUP BY o.buyer_id";
    conn.prepare_cached(sql)?.execute([sku_no])?;
    Ok(())
}
