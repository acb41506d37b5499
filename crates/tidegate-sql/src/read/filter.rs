//! Lists of orders.

use tidegate_backend::{OrderFilter, Page};
use tidegate_core::Order;

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn orders(
    session: &mut Session,
    filter: &OrderFilter,
    from: Option<i64>,
    limit: usize,
) -> Result<Page<Order>> {
    let _ = (session, filter, from, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
