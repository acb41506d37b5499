//! Values that go into statements.

use tidegate_backend::stored::codec::Numbered;
use tidegate_core::Millis;

/// A value for one `?` of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    /// A BIGINT.
    Int(Option<i64>),
    /// Bytes: an id, a key, order lines.
    Bytes(Option<&'a [u8]>),
    /// Text.
    Text(Option<&'a str>),
    /// A set of BIGINTs, for `IN ?`.
    Ints(&'a [i64]),
    /// A set of byte strings, for `IN ?`.
    Blobs(&'a [&'a [u8]]),
    /// An array of byte strings, which only PostgreSQL has.
    List(&'a [&'a [u8]]),
}

impl Value<'_> {
    /// How many a set has; `None` for a single value.
    pub(crate) fn set_len(&self) -> Option<usize> {
        match self {
            Self::Ints(all) => Some(all.len()),
            Self::Blobs(all) => Some(all.len()),
            Self::Int(_) | Self::Bytes(_) | Self::Text(_) | Self::List(_) => None,
        }
    }
}

impl From<i64> for Value<'_> {
    fn from(n: i64) -> Self {
        Self::Int(Some(n))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(n: Option<i64>) -> Self {
        Self::Int(n)
    }
}

impl From<Millis> for Value<'_> {
    fn from(at: Millis) -> Self {
        Self::Int(Some(at.0))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

/// The stored number of a name.
pub(crate) fn number<T: Numbered>(name: T) -> Value<'static> {
    Value::Int(Some(name.number()))
}
