//! Reads, on connections that wait for no write.
//!
//! - `orders.rs`, `filter.rs`, `events.rs`, `money.rs`, `stock.rs`: orders and what belongs to them, page by page.
//! - `probe.rs`: the gate's questions and copies. `audit.rs`: everything, from one snapshot.
//!
//! Each function takes a connection that is in no transaction and leaves it so. What takes several statements is read
//! in one snapshot, unless their order makes no difference; a page is a bounded number of statements, whatever is on it.

pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod filter;
pub(crate) mod money;
pub(crate) mod orders;
pub(crate) mod probe;
pub(crate) mod stock;
#[cfg(test)]
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod tests;

use tidegate_backend::Page;
use tidegate_backend::stored::cursor::{List, encode};

use crate::fault::Result;
use crate::session::Session;
use crate::value::Value;

/// Most deadlines, copies or stale payments that one call gives; callers page.
pub(crate) const MAX_ROWS: usize = 100_000;

fn bytes(text: &str) -> Value<'_> {
    text.as_bytes().into()
}

/// Ends the snapshot in which `read` was read.
async fn finish<T>(session: &mut Session, read: Result<T>) -> Result<T> {
    match read {
        Ok(value) => {
            session.commit().await?;
            Ok(value)
        }
        Err(fault) => {
            // The fault comes first; a connection that cannot even roll back is thrown away.
            let _ = session.rollback().await;
            Err(fault)
        }
    }
}

/// A page of numbered items from rows of which one more than `limit` was asked for.
fn page<T>(rows: impl Iterator<Item = Result<(i64, T)>>, limit: usize, list: List) -> Result<Page<T>> {
    let mut items = Vec::new();
    let mut last = 0;
    for row in rows {
        let (number, item) = row?;
        if items.len() == limit {
            return Ok(Page { items, next: Some(encode(list, last)) });
        }
        last = number;
        items.push(item);
    }
    Ok(Page { items, next: None })
}
