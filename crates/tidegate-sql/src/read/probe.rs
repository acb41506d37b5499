//! What the gate asks before it refuses.

use tidegate_backend::{Probe, Probed};
use tidegate_core::SkuId;
use tidegate_core::gate::Copy;

use crate::fault::{Class, Fault, Result};
use crate::session::Session;

/// See `tidegate_backend::Ledger`.
pub(crate) async fn probe(session: &mut Session, probes: &[Probe]) -> Result<Vec<Probed>> {
    let _ = (session, probes);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}

/// See `tidegate_backend::Ledger`.
pub(crate) async fn copies(session: &mut Session, after: Option<&SkuId>, limit: usize) -> Result<Vec<(SkuId, Copy)>> {
    let _ = (session, after, limit);
    Err(Fault::new(Class::Unavailable, "reads come with the next change"))
}
