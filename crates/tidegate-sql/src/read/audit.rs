//! Streams every row through the auditor, from one snapshot.

use tidegate_core::audit::Auditor;

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn feed(session: &mut Session, auditor: &mut Auditor) -> Result<()> {
    let _ = (session, auditor);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
