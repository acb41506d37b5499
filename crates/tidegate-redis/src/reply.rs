//! What scripts answer, taken apart.

use redis::Value;
use tidegate_backend::{Error, ErrorKind, Result};

/// A script answered what it never answers: the server is no Redis, or something stands between.
pub(crate) fn strange(value: &Value) -> Error {
    Error::new(ErrorKind::Corrupt, format!("Redis answered what no script of ours answers: {value:?}"))
}

pub(crate) fn integer(value: &Value) -> Result<i64> {
    match value {
        Value::Int(n) => Ok(*n),
        Value::BulkString(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| strange(value))
        }
        _ => Err(strange(value)),
    }
}

/// Bytes; nothing is an empty string.
pub(crate) fn bytes(value: &Value) -> Result<&[u8]> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.as_bytes()),
        Value::Nil => Ok(b""),
        _ => Err(strange(value)),
    }
}

/// A score, `None` for an empty text.
pub(crate) fn score(value: &Value) -> Result<Option<f64>> {
    let text = match value {
        Value::Double(score) => return Ok(Some(*score)),
        _ => bytes(value)?,
    };
    if text.is_empty() {
        return Ok(None);
    }
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    score.map(Some).ok_or_else(|| strange(value))
}

pub(crate) fn list(value: &Value) -> Result<&[Value]> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(strange(value)),
    }
}

/// A list of at least `N`.
pub(crate) fn parts<const N: usize>(value: &Value) -> Result<&[Value; N]> {
    list(value)?.first_chunk().ok_or_else(|| strange(value))
}
