//! JSON objects that travel with an order or a SKU and mean nothing to the rules.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Deepest nesting of a kept JSON object; the object itself is depth 1.
pub const MAX_DEPTH: usize = 16;

/// A JSON object in canonical text: keys sorted, no blanks. Two are equal when their JSON values are.
///
/// Numbers are 64-bit integers or IEEE 754 doubles, as RFC 8259 section 6 advises.
#[derive(Clone, PartialEq, Eq)]
pub struct JsonObject(Arc<str>);

/// Why a JSON value cannot be kept. `Display` says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// Not an object.
    NotAnObject,
    /// Nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A NUL character in a key or a string.
    Nul,
    /// The canonical text is longer than this many bytes.
    TooLarge(usize),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonError::NotAnObject => f.write_str("must be a JSON object"),
            JsonError::TooDeep => write!(f, "must not be nested deeper than {MAX_DEPTH} levels"),
            JsonError::Nul => f.write_str("must not contain NUL characters"),
            JsonError::TooLarge(max) => write!(f, "must be at most {max} bytes as compact JSON"),
        }
    }
}

impl std::error::Error for JsonError {}

impl JsonObject {
    /// Checks `value` and keeps its canonical text of at most `max_bytes`.
    ///
    /// # Errors
    /// [`JsonError`] names the rule it breaks.
    pub fn new(value: &Value, max_bytes: usize) -> Result<Self, JsonError> {
        if !value.is_object() {
            return Err(JsonError::NotAnObject);
        }
        check(value, 1)?;
        let text = value.to_string();
        if text.len() > max_bytes {
            return Err(JsonError::TooLarge(max_bytes));
        }
        Ok(Self(text.into()))
    }

    /// The object `{}`.
    #[must_use]
    pub fn empty() -> Self {
        Self("{}".into())
    }

    /// Takes back a text that [`JsonObject::as_str`] gave (from a ledger); it is not checked again.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        &*self.0 == "{}"
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check(value: &Value, depth: usize) -> Result<(), JsonError> {
    if depth > MAX_DEPTH {
        return Err(JsonError::TooDeep);
    }
    match value {
        Value::String(s) if s.contains('\0') => Err(JsonError::Nul),
        Value::Array(items) => items.iter().try_for_each(|v| check(v, depth + 1)),
        Value::Object(members) => members.iter().try_for_each(|(k, v)| {
            if k.contains('\0') {
                return Err(JsonError::Nul);
            }
            check(v, depth + 1)
        }),
        _ => Ok(()),
    }
}
