//! Payments and refunds.

use tidegate_backend::{Page, PaymentFilter, RefundFilter};
use tidegate_core::{Millis, Payment, PaymentId, Refund};

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn payments(
    session: &mut Session,
    filter: &PaymentFilter,
    from: Option<i64>,
    limit: usize,
) -> Result<Page<Payment>> {
    let _ = (session, filter, from, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn refunds(
    session: &mut Session,
    filter: &RefundFilter,
    from: Option<i64>,
    limit: usize,
) -> Result<Page<Refund>> {
    let _ = (session, filter, from, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn stale_unmatched(session: &mut Session, before: Millis, limit: usize) -> Result<Vec<PaymentId>> {
    let _ = (session, before, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
