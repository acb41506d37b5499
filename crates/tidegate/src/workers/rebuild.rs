//! At start: the gate, and a deadline index of this process, are made again from the ledger, page by page.

use super::index;
use crate::Result;
use crate::tidegate::Inner;

/// Rows of one page.
const PAGE: usize = 20_000;

/// Fills the gate from the ledger, and the deadline index if nobody else has it.
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
    if inner.options.workers && !inner.deadlines.is_shared() {
        index::rebuild(inner).await?;
    }
    inner.newest_event.send_replace(inner.ledger.newest_cursor().await?);
    Ok(())
}
