//! At start: the gate and the deadline index are made again from the ledger, page by page.

use tidegate_backend::IndexState;
use tidegate_core::{Millis, OrderNo};

use crate::Result;
use crate::tidegate::Inner;

/// Rows of one page of a rebuild.
const PAGE: usize = 20_000;

/// Fills the gate and the deadline index from the ledger.
pub(crate) async fn run(inner: &Inner) -> Result<()> {
    let mut after = None;
    loop {
        let copies = inner.ledger.copies(after.take(), PAGE).await?;
        inner.gate.replace(&copies, true);
        if copies.len() < PAGE {
            break;
        }
        after = copies.last().map(|(sku, _)| sku.clone());
    }
    if inner.options.workers
        && let IndexState::Incomplete(token) = inner.deadlines.state()
    {
        index(inner).await?;
        inner.deadlines.rebuilt(token).await?;
    }
    inner.newest_event.send_replace(inner.ledger.newest_cursor().await?);
    Ok(())
}

async fn index(inner: &Inner) -> Result<()> {
    let mut after: Option<(Millis, OrderNo)> = None;
    loop {
        let page = inner.ledger.deadlines(None, after, PAGE).await?;
        inner.deadlines.schedule(&page).await?;
        if page.len() < PAGE {
            return Ok(());
        }
        after = page.last().map(|(order, at)| (*at, *order));
    }
}
