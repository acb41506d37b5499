//! Events.

use tidegate_backend::{EventRecord, Page};
use tidegate_core::OrderId;

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn order_events(
    session: &mut Session,
    id: &OrderId,
    after: i64,
    limit: usize,
) -> Result<Option<Page<EventRecord>>> {
    let _ = (session, id, after, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn events(session: &mut Session, after: i64, limit: usize) -> Result<Vec<EventRecord>> {
    let _ = (session, after, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn newest_cursor(session: &mut Session) -> Result<i64> {
    let _ = (session);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
