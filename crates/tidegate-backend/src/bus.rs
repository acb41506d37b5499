//! What the nodes of one ledger tell each other. A message may come late, twice or never: each only brings forward what
//! a read of the ledger would have found.

use tidegate_core::gate::Copy;
use tidegate_core::{Millis, SkuId};

use crate::BoxFuture;

/// What one node tells the others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    /// SKUs as a commit left them.
    pub copies: Vec<(SkuId, Copy)>,
    /// The newest event's cursor.
    pub newest_event: Option<i64>,
    /// Where a manual clock stands.
    pub clock: Option<Millis>,
    /// Notices may have been missed before this one: whoever hears it reads the ledger.
    pub gap: bool,
}

/// The link between nodes.
pub trait Bus: Send + Sync {
    /// Tells the other nodes, without waiting. What a full buffer cannot hold is dropped, and the others are told of
    /// a gap.
    fn tell(&self, notice: Notice);

    /// The next notices of other nodes, at least one. One caller at a time.
    fn heard(&self) -> BoxFuture<'_, Vec<Notice>>;

    /// Why it is cut off, while it is.
    fn trouble(&self) -> Option<String>;

    /// Ends the tasks of its own.
    fn close(&self) -> BoxFuture<'_, ()>;
}
