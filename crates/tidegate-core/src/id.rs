//! Identifiers: compared byte for byte, cheap to clone, valid by construction.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest SKU, buyer or payment id, in bytes of UTF-8.
pub const MAX_LABEL_BYTES: usize = 128;
/// Longest order id, in bytes.
pub const MAX_ORDER_ID_BYTES: usize = 64;
/// Longest idempotency key, in bytes.
pub const MAX_KEY_BYTES: usize = 128;

/// Why a text is not a valid identifier. `Display` says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// The text is empty.
    Empty,
    /// The text is longer than this many bytes.
    TooLong(usize),
    /// The text has a control character.
    Control,
    /// The text begins or ends with a blank.
    EdgeBlank,
    /// An order id has a character outside `A-Z a-z 0-9 . _ : -` or does not start with a letter or digit.
    OrderAlphabet,
    /// An idempotency key has a character that is not visible ASCII.
    KeyAlphabet,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdError::Empty => f.write_str("must not be empty"),
            IdError::TooLong(max) => write!(f, "must be at most {max} bytes of UTF-8"),
            IdError::Control => f.write_str("must not contain control characters"),
            IdError::EdgeBlank => f.write_str("must not begin or end with a blank"),
            IdError::OrderAlphabet => {
                f.write_str("must be made of A-Z a-z 0-9 . _ : - and start with a letter or digit")
            }
            IdError::KeyAlphabet => f.write_str("must be visible ASCII characters only"),
        }
    }
}

impl std::error::Error for IdError {}

fn check_label(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_LABEL_BYTES {
        return Err(IdError::TooLong(MAX_LABEL_BYTES));
    }
    if text.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    let blank = |c: Option<char>| c.is_some_and(char::is_whitespace);
    if blank(text.chars().next()) || blank(text.chars().next_back()) {
        return Err(IdError::EdgeBlank);
    }
    Ok(())
}

fn check_order_id(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_ORDER_ID_BYTES {
        return Err(IdError::TooLong(MAX_ORDER_ID_BYTES));
    }
    let bytes = text.as_bytes();
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if !bytes[0].is_ascii_alphanumeric() || !bytes.iter().all(allowed) {
        return Err(IdError::OrderAlphabet);
    }
    Ok(())
}

fn check_key(text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty);
    }
    if text.len() > MAX_KEY_BYTES {
        return Err(IdError::TooLong(MAX_KEY_BYTES));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(IdError::KeyAlphabet);
    }
    Ok(())
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and keeps it.
            ///
            /// # Errors
            /// [`IdError`] names the first rule the text breaks.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The text, exactly as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

text_id!(
    /// A SKU: 1..=128 bytes of UTF-8, no control characters, no blank at either end.
    SkuId, check_label
);
text_id!(
    /// A buyer: as a [`SkuId`].
    BuyerId, check_label
);
text_id!(
    /// A payment report's id, chosen by the payment provider: as a [`SkuId`].
    PaymentId, check_label
);
text_id!(
    /// An order id: 1..=64 of `A-Z a-z 0-9 . _ : -`, starting with a letter or digit.
    OrderId, check_order_id
);
text_id!(
    /// A refund's id, made by the ledger: the alphabet of an [`OrderId`].
    RefundId, check_order_id
);
text_id!(
    /// An `Idempotency-Key`: 1..=128 visible ASCII characters.
    IdempotencyKey, check_key
);

/// The ledger's own number of an order: dense enough to sort by age, unique in one ledger, never shown to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderNo(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        for (text, want) in [
            ("12345.", None),
            ("0012", None),
            ("É", None),
            ("a b", None),
            ("a/b%2F", None),
            ("", Some(IdError::Empty)),
            (" a", Some(IdError::EdgeBlank)),
            ("a\u{3000}", Some(IdError::EdgeBlank)),
            ("a\n", Some(IdError::Control)),
            ("a\u{0}b", Some(IdError::Control)),
            ("a\u{85}b", Some(IdError::Control)),
        ] {
            assert_eq!(SkuId::parse(text).err(), want, "{text:?}");
        }
        assert_eq!(SkuId::parse(&"x".repeat(129)).err(), Some(IdError::TooLong(128)));
        assert!(SkuId::parse(&"x".repeat(128)).is_ok());
    }

    #[test]
    fn order_ids() {
        for (text, ok) in [("A.b_c:d-9", true), ("9", true), ("-a", false), (".a", false), ("a b", false), ("é", false)]
        {
            assert_eq!(OrderId::parse(text).is_ok(), ok, "{text:?}");
        }
        assert!(OrderId::parse(&"x".repeat(65)).is_err());
        assert!(IdempotencyKey::parse("a b").is_err() && IdempotencyKey::parse("~!").is_ok());
    }
}
