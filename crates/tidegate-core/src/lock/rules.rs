//! Bounds of a lock, its fences, and what its holder may rely on.

use std::fmt;
use std::sync::Arc;

use crate::id::SkuId;

/// Shortest time a lock is granted for, milliseconds.
pub const MIN_TTL_MS: i64 = 100;
/// Longest time a lock is granted for: a day, milliseconds.
pub const MAX_TTL_MS: i64 = 86_400_000;
/// Longest wait in the line, milliseconds.
pub const MAX_WAIT_MS: i64 = 30_000;
/// A waiter that is handed the lock must say within so many milliseconds that it is there; else the next gets it.
pub const CONFIRM_MS: i64 = 300;
/// A process whose last sign of life is older than so many milliseconds is skipped in every line.
pub const ALIVE_MS: i64 = 600;
/// A process that waits anywhere gives a sign of life every so many milliseconds.
pub const SIGN_MS: i64 = 200;
/// Most waiters of one lock.
pub const MAX_WAITERS: usize = 10_000;
/// Shortest token, bytes.
pub const MIN_TOKEN_BYTES: usize = 16;
/// Longest token, bytes.
pub const MAX_TOKEN_BYTES: usize = 64;

/// Most calls with one token that are told apart: of more, the oldest can no longer give back what all of them were granted.
pub const MAX_CALLS: usize = 8;
/// The largest floor a caller may ask for: so far below [`MAX_FENCE`] that no number of grants gets there.
pub const MAX_FLOOR: u64 = 1 << 52;
/// The largest fence, below 2^53: every language reads it right.
pub const MAX_FENCE: u64 = (1 << 53) - 1;

/// A name of a lock: the same rules as an id of a SKU, compared byte for byte.
pub type LockName = SkuId;

/// A number above 0 that grows with every grant of a name, below 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

/// One life of one process: a restart is another one, so what the dead one asked for is never granted to its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u64);

/// One call that asks for a lock, by a random number of its own: its clean-up gives back what it was granted, and nothing that
/// another call with the same token was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// Whose the lock is: 16 to 64 visible ASCII characters that nobody else can guess.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LockToken(Arc<str>);

/// Why a text is no token: it is not 16 to 64 visible ASCII characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenError;

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {MIN_TOKEN_BYTES} to {MAX_TOKEN_BYTES} visible ASCII characters")
    }
}

impl std::error::Error for TokenError {}

impl LockToken {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let length = (MIN_TOKEN_BYTES..=MAX_TOKEN_BYTES).contains(&text.len());
        if length && text.bytes().all(|b| b.is_ascii_graphic()) { Ok(Self(text.into())) } else { Err(TokenError) }
    }

    /// The text: a secret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What data know its owner by: half of what there is to know of a random token, so it gives nothing away.
    #[must_use]
    pub fn owner(&self) -> i64 {
        xxhash_rust::xxh3::xxh3_64(self.0.as_bytes()).cast_signed()
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockToken(..)")
    }
}

/// The fence after `last`, above `floor`, on a store whose clock says `now_us` (microseconds since 1970): fences grow even
/// if the store forgot the last. `None`: it would be above [`MAX_FENCE`].
#[must_use]
pub fn next_fence(last: Fence, floor: Option<Fence>, now_us: u64) -> Option<Fence> {
    let above = |fence: Fence| fence.0.saturating_add(1);
    let next = above(last).max(now_us).max(floor.map_or(0, above));
    (next <= MAX_FENCE).then_some(Fence(next))
}

/// How long a holder may rely on a lock that was granted for `ttl_ms`, counted from the *sending* of the successful
/// request: less 1 % and 2 ms, since clocks drift.
#[must_use]
pub fn relied_ms(ttl_ms: i64) -> i64 {
    (ttl_ms - ttl_ms / 100 - 2).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_whatever_the_store_forgot() {
        assert_eq!(next_fence(Fence(0), None, 5), Some(Fence(5)));
        assert_eq!(next_fence(Fence(9), None, 5), Some(Fence(10)));
        assert_eq!(next_fence(Fence(0), Some(Fence(77)), 5), Some(Fence(78)));
    }

    #[test]
    fn a_fence_stays_below_2_to_the_53() {
        assert_eq!(next_fence(Fence(MAX_FENCE - 1), None, 5), Some(Fence(MAX_FENCE)));
        assert_eq!(next_fence(Fence(MAX_FENCE), None, 5), None);
        assert_eq!(next_fence(Fence(0), Some(Fence(u64::MAX)), 5), None);
        assert_eq!(next_fence(Fence(0), Some(Fence(MAX_FLOOR)), 5), Some(Fence(MAX_FLOOR + 1)));
    }

    #[test]
    fn tokens() {
        assert!(LockToken::parse(&"x".repeat(16)).is_ok() && LockToken::parse(&"~".repeat(64)).is_ok());
        for bad in ["", "short", &"x".repeat(65), "with a blank in it", "umläut-umläut-umläut"] {
            assert_eq!(LockToken::parse(bad), Err(TokenError), "{bad:?}");
        }
        assert_eq!(format!("{:?}", LockToken::parse(&"s".repeat(20))), "Ok(LockToken(..))");
    }

    #[test]
    fn nobody_relies_on_a_lock_to_its_end() {
        assert_eq!(relied_ms(30_000), 29_698);
        assert_eq!(relied_ms(100), 97);
        assert_eq!(relied_ms(1), 0);
    }
}
