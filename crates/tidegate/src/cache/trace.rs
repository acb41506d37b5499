//! What spans and events say of a key: its hash, never its bytes, and nothing of values. All of them are of level DEBUG or
//! rarer, and a hit has none.

use std::fmt;

use tidegate_core::cache::key_hash;

/// A key as spans and events name it. It is hashed only where somebody listens.
pub(super) struct KeyHash<'a>(pub(super) &'a [u8]);

impl fmt::Display for KeyHash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", key_hash(self.0))
    }
}
