//! Names of queues and ids of tasks.

use std::fmt;

use crate::id::{IdError, SkuId};

/// Longest name of a queue, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// An id of a task, unique in its queue: the same rules as an id of a SKU (1 to 128 bytes, no control characters, no blank
/// at either end), compared byte for byte.
pub type TaskId = SkuId;

/// Why a text is no id of a task.
pub type TaskIdError = IdError;

/// Why a text is no name of a queue. `Display` says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Empty, or longer than [`MAX_NAME_BYTES`].
    Length,
    /// A character outside `a-z 0-9 . _ -`, or the first is no letter or digit.
    Alphabet,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "must be 1 to {MAX_NAME_BYTES} characters"),
            Self::Alphabet => f.write_str("must be made of a-z 0-9 . _ - and start with a letter or digit"),
        }
    }
}

impl std::error::Error for NameError {}

/// A name of a queue: 1 to [`MAX_NAME_BYTES`] of `a-z 0-9 . _ -`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(std::sync::Arc<str>);

impl QueueName {
    /// Checks `text` and keeps it.
    ///
    /// # Errors
    /// [`NameError`] names the first rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > MAX_NAME_BYTES {
            return Err(NameError::Length);
        }
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let allowed = |b: u8| plain(b) || matches!(b, b'.' | b'_' | b'-');
        if !plain(text.as_bytes()[0]) || !text.bytes().all(allowed) {
            return Err(NameError::Alphabet);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it belongs to the product itself (`orders`, `tidegate.*`): others may look at it only.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        self.as_str() == "orders" || self.as_str().starts_with("tidegate.")
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for QueueName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "0", "mail.send", "a_b-c.9", &"x".repeat(64)] {
            assert_eq!(QueueName::parse(good).expect(good).as_str(), good);
        }
        for bad in ["", &"x".repeat(65)] {
            assert_eq!(QueueName::parse(bad), Err(NameError::Length), "{bad:?}");
        }
        for bad in [".a", "-a", "_a", "A", "a b", "a/b", "ä", "a{b}", "a\n"] {
            assert_eq!(QueueName::parse(bad), Err(NameError::Alphabet), "{bad:?}");
        }
    }

    #[test]
    fn reserved() {
        let reserved = |text| QueueName::parse(text).expect("a name").is_reserved();
        assert!(reserved("orders") && reserved("tidegate.feed"));
        assert!(!reserved("orders2") && !reserved("tidegate") && !reserved("my.orders"));
    }
}
