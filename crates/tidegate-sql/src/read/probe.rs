//! What the gate asks before it refuses: the hot path of a sale that is sold out.
//!
//! Up to 500 questions are one statement, and so of one instant: each of its parts looks rows up by a unique index.

use tidegate_backend::{Probe, Probed};
use tidegate_core::gate::Copy;
use tidegate_core::{Map, Set, SkuId};

use super::{MAX_ROWS, bytes, finish};
use crate::dialect::Dialect;
use crate::fault::Result;
use crate::fetched::Row;
use crate::row;
use crate::session::{Isolation, Session};
use crate::value::Value;

/// Most SKUs that one statement looks up. Questions of long orders about more than these take one statement for each
/// as many.
const MAX_SKUS: usize = 512;

/// What the probes ask for, each thing once, as it lies in its column.
#[derive(Default)]
struct Asked<'a> {
    ids: Vec<&'a [u8]>,
    keys: Vec<&'a [u8]>,
    skus: Vec<&'a [u8]>,
}

/// What there is of it.
#[derive(Default)]
struct Found {
    ids: Set<Vec<u8>>,
    keys: Set<Vec<u8>>,
    copies: Map<SkuId, Copy>,
}

/// Answers `probes` from one instant.
pub(crate) async fn probe(session: &mut Session, probes: &[Probe]) -> Result<Vec<Probed>> {
    let mut asked = Asked::default();
    let mut skus: Set<&SkuId> = Set::default();
    for probe in probes {
        asked.ids.extend(probe.order_id.as_ref().map(|id| id.as_str().as_bytes()));
        asked.keys.extend(probe.key.as_ref().map(|key| key.as_str().as_bytes()));
        skus.extend(&probe.skus);
    }
    asked.skus.extend(skus.into_iter().map(|sku| sku.as_str().as_bytes()));
    for list in [&mut asked.ids, &mut asked.keys, &mut asked.skus] {
        list.sort_unstable();
        list.dedup();
    }
    let found = if asked.skus.len() <= MAX_SKUS {
        look_up(session, &asked).await?
    } else {
        session.begin(Isolation::Snapshot).await?;
        let read = look_up_in_parts(session, asked).await;
        finish(session, read).await?
    };
    let answer = |probe: &Probe| {
        let id = probe.order_id.as_ref().is_some_and(|id| found.ids.contains(id.as_str().as_bytes()));
        let key = probe.key.as_ref().is_some_and(|key| found.keys.contains(key.as_str().as_bytes()));
        let copies = probe.skus.iter().map(|sku| found.copies.get(sku).cloned()).collect();
        Probed { known: id || key, copies }
    };
    Ok(probes.iter().map(answer).collect())
}

async fn look_up_in_parts(session: &mut Session, mut asked: Asked<'_>) -> Result<Found> {
    let all = std::mem::take(&mut asked.skus);
    let mut found = look_up(session, &asked).await?;
    for skus in all.chunks(MAX_SKUS) {
        let part = Asked { skus: skus.to_vec(), ..Asked::default() };
        found.copies.extend(look_up(session, &part).await?.copies);
    }
    Ok(found)
}

/// One statement. Its first column tells what a row is: an id, a key, a SKU.
async fn look_up(session: &mut Session, asked: &Asked<'_>) -> Result<Found> {
    let skus = format!("SELECT 2, {} FROM skus s WHERE s.sku IN ?", row::COPY_COLUMNS);
    let ids = "SELECT 0, id, 0, 0, 0, 0, 0 FROM order_ids WHERE id IN ? AND (order_no IS NOT NULL OR tombstone_at IS NOT NULL)";
    let keys = "SELECT 1, order_key, 0, 0, 0, 0, 0 FROM order_keys WHERE order_key IN ?";
    let lists = [&asked.skus, &asked.ids, &asked.keys].map(|list| places(session.dialect(), list));
    let parts = [skus.as_str(), ids, keys].into_iter().zip(&lists).filter(|(_, list)| !list.is_empty());
    let (parts, values): (Vec<&str>, Vec<Value<'_>>) = parts.map(|(sql, list)| (sql, Value::Blobs(list))).unzip();
    let mut found = Found::default();
    if parts.is_empty() {
        return Ok(found);
    }
    for r in session.rows(&parts.join(" UNION ALL "), &values).await? {
        match r.int(0)? {
            0 => _ = found.ids.insert(r.bytes(1)?.to_vec()),
            1 => _ = found.keys.insert(r.bytes(1)?.to_vec()),
            _ => {
                let (sku, copy) = row::copy(&r, 1)?;
                found.copies.insert(sku, copy);
            }
        }
    }
    Ok(found)
}

/// The list as it is sent. MySQL prepares a statement anew for each length of a list, so three lengths must do.
fn places<'a>(dialect: Dialect, list: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let mut places = list.to_vec();
    if let (Dialect::MySql, Some(last)) = (dialect, list.last()) {
        let length = [8, 64, MAX_SKUS].into_iter().find(|n| *n >= list.len()).unwrap_or(list.len());
        places.resize(length, last);
    }
    places
}

/// Copies of all SKUs by id, after `after`.
pub(crate) async fn copies(session: &mut Session, after: Option<&SkuId>, limit: usize) -> Result<Vec<(SkuId, Copy)>> {
    let sql = format!("SELECT {} FROM skus s WHERE s.sku > ? ORDER BY s.sku LIMIT ?", row::COPY_COLUMNS);
    // Ids are never empty, so no bytes at all come before all of them.
    let after = bytes(after.map_or("", SkuId::as_str));
    let mut copies = Vec::new();
    let read = |r: Row| {
        copies.push(row::copy(&r, 0)?);
        Ok(())
    };
    session.each(&sql, &[after, Value::from(limit.min(MAX_ROWS) as i64)], read).await?;
    Ok(copies)
}
