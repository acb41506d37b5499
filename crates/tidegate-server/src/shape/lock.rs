//! Locks on the wire.

use serde::Serialize;
use tidegate::lock::Look;
use utoipa::ToSchema;

/// A lock that was granted.
#[derive(Serialize, ToSchema)]
#[schema(as = Grant)]
pub(crate) struct GrantShape<'a> {
    #[schema(example = "nightly-sweep")]
    pub(crate) name: &'a str,
    /// Whose it is: renew and release it with this in the header `Lock-Token`. A secret.
    #[schema(example = "5f0c7a2e9b0d4c0e8a1f6d3b2c4e5f60")]
    pub(crate) token: &'a str,
    /// Larger at each grant of the name: write it with what the lock protects, and refuse smaller ones there.
    #[schema(minimum = 1)]
    pub(crate) fence: u64,
    /// How long the caller may rely on the lock, milliseconds, counted from the sending of its request (a wait in the line
    /// is in it).
    #[schema(minimum = 0)]
    pub(crate) valid_ms: u64,
}

/// A lock as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Lock)]
pub(crate) struct LookShape<'a> {
    name: &'a str,
    held: bool,
    /// Of the grant; absent while nobody has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// What is left of the holder's time, milliseconds; absent while nobody has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_ms: Option<i64>,
    /// How many stand in the line.
    waiters: usize,
}

impl<'a> LookShape<'a> {
    /// Of this lock.
    pub(crate) fn new(name: &'a str, look: Look) -> Self {
        Self {
            name,
            held: look.held.is_some(),
            fence: look.held.map(|(fence, _)| fence.0),
            valid_ms: look.held.map(|(_, left)| left),
            waiters: look.waiters,
        }
    }
}
