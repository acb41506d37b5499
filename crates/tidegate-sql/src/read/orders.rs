//! One order, deadlines, the parked list.

use tidegate_backend::Page;
use tidegate_core::command::Parked;
use tidegate_core::{Millis, Order, OrderId, OrderNo};

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn order(session: &mut Session, id: &OrderId) -> Result<Option<Order>> {
    let _ = (session, id);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn deadlines(
    session: &mut Session,
    before: Option<Millis>,
    after: Option<(Millis, OrderNo)>,
    limit: usize,
) -> Result<Vec<(OrderNo, Millis)>> {
    let _ = (session, before, after, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn parked(session: &mut Session, from: Option<i64>, limit: usize) -> Result<Page<Parked>> {
    let _ = (session, from, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
