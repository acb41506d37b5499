//! What requests say in headers.

use http::header::{AUTHORIZATION, IF_MATCH};
use http::{HeaderMap, HeaderName};
use tidegate::core::IdempotencyKey;
use tidegate::lock::LockToken;

use crate::problem::{self, Problem, catalogue};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The `Idempotency-Key`, if one was sent.
///
/// A key that cannot be used is refused rather than ignored: its sender relies on it.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut sent = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        return Err(Problem::new(
            &catalogue::IDEMPOTENCY_KEY_REQUIRED,
            "Send one Idempotency-Key header, not several.",
        ));
    }
    let parsed = value.to_str().ok().map(IdempotencyKey::parse);
    match parsed {
        Some(Ok(key)) => Ok(Some(key)),
        _ => Err(Problem::new(
            &catalogue::IDEMPOTENCY_KEY_REQUIRED,
            "Send an Idempotency-Key of 1 to 128 visible ASCII characters.",
        )),
    }
}

/// The `Lock-Token`, if one was sent: a secret.
///
/// One that cannot be used is refused rather than ignored: its sender relies on it.
pub(crate) fn lock_token(headers: &HeaderMap) -> Result<Option<LockToken>, Problem> {
    let mut sent = headers.get_all(LOCK_TOKEN).iter();
    let Some(value) = sent.next() else { return Ok(None) };
    match value.to_str().ok().and_then(|text| LockToken::parse(text).ok()) {
        Some(token) if sent.next().is_none() => Ok(Some(token)),
        _ => Err(Problem::new(
            &catalogue::LOCK_TOKEN_REQUIRED,
            "Send one Lock-Token header of 16 to 64 visible ASCII characters.",
        )),
    }
}

/// What a write demands of the version it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// Nothing.
    Any,
    /// That there is one (`*`).
    Exists,
    /// This version.
    Version(i64),
    /// A tag the server never gives out.
    Never,
}

/// The `If-Match` header.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<IfMatch, Problem> {
    let mut sent = headers.get_all(IF_MATCH).iter();
    let Some(value) = sent.next() else { return Ok(IfMatch::Any) };
    let tag = value.to_str().map(str::trim).unwrap_or_default();
    if sent.next().is_some() || tag.is_empty() {
        return Err(problem::invalid_at("/if-match", "must be one ETag in double quotes, such as \"7\", or *"));
    }
    if tag == "*" {
        return Ok(IfMatch::Exists);
    }
    let strong = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|inner| !inner.contains('"'));
    match strong {
        Some(inner) if inner.bytes().all(|b| b.is_ascii_digit()) => {
            Ok(inner.parse().map_or(IfMatch::Never, IfMatch::Version))
        }
        Some(_) => Ok(IfMatch::Never),
        // A weak tag is well formed and never equal to itself (RFC 9110, section 13.1.1).
        None if tag.starts_with("W/\"") && tag.ends_with('"') => Ok(IfMatch::Never),
        None => Err(problem::invalid_at("/if-match", "must be one ETag in double quotes, such as \"7\", or *")),
    }
}

/// The token of an `Authorization: Bearer` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The `Last-Event-ID` header.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (sent, want) in [
            ("\"7\"", Some(IfMatch::Version(7))),
            ("*", Some(IfMatch::Exists)),
            ("W/\"7\"", Some(IfMatch::Never)),
            ("\"abc\"", Some(IfMatch::Never)),
            ("\"99999999999999999999\"", Some(IfMatch::Never)),
            ("7", None),
            ("\"7\", \"8\"", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, sent.parse().expect("a header value"));
            assert_eq!(if_match(&headers).ok(), want, "{sent}");
        }
        assert_eq!(if_match(&HeaderMap::new()).ok(), Some(IfMatch::Any));
    }
}
