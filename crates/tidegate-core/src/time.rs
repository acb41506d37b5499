//! Instants.

use serde::{Deserialize, Serialize};

/// An instant: milliseconds since 1970-01-01T00:00:00Z, UTC, without leap seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    /// The latest instant the contract can print: 9999-12-31T23:59:59.999Z.
    pub const MAX: Millis = Millis(253_402_300_799_999);
    /// The earliest instant the contract can print: 0001-01-01T00:00:00.000Z.
    pub const MIN: Millis = Millis(-62_135_596_800_000);

    /// This instant moved by `seconds`, saturating at the ends of `i64`.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Millis {
        Millis(self.0.saturating_add(seconds.saturating_mul(1_000)))
    }

    /// This instant moved by `ms`, saturating at the ends of `i64`.
    #[must_use]
    pub const fn plus(self, ms: i64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant (negative if it is later).
    #[must_use]
    pub const fn since(self, earlier: Millis) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
