//! The read-through cache of HTTP origins.

use std::time::{Duration, Instant};

use http::header::{AGE, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response};
use tidegate::cache::{Cache, CacheError, LoadFailed, LoaderPanicked};

use super::products::{READ, X_CACHE, age, strong, x_cache};
use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::origins::{OriginError, Page, Why};
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer, Body};
use crate::router::{Route, Verb};

/// Longest key, bytes.
const MAX_KEY_BYTES: usize = 512;
/// What comes from an origin is data: a browser must neither guess at it nor run it as a page of ours.
const NO_SCRIPTS: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");

/// Whether the path's second parameter may be a key.
fn key(text: &str) -> Result<&str, &'static str> {
    if text == "." || text == ".." {
        return Err("must not be . or .., which are steps of a path");
    }
    if text.len() > MAX_KEY_BYTES {
        return Err("must have at most 512 bytes; use a hash of it");
    }
    if text.chars().any(char::is_control) {
        return Err("must not hold control characters");
    }
    Ok(text)
}

fn namespace(call: &Call) -> Result<&Cache<String, Page>, Problem> {
    call.app.namespaces.find(call.id()).ok_or_else(|| {
        let detail = "The server's configuration has no namespace of this name ([cache.namespace.NAME]); check it letter by letter.";
        Problem::new(&c::UNKNOWN_NAMESPACE, detail)
    })
}

async fn get(call: Call) -> Answer {
    let mut query = call.query()?;
    let strong = query.parsed(READ.name, strong).unwrap_or(false);
    query.faults.take("/key", key(&call.ids[1]));
    query.faults.refuse()?;
    let cache = namespace(&call)?;
    let asked = Instant::now();
    let limit = call.app.limits.request_timeout;
    let read = cache.read(&call.ids[1]).deadline(limit);
    let read = if strong { read.strong().await } else { read.await };
    let read = read.map_err(|e| failed(e, asked, limit))?;
    let Some(page) = &read.value else {
        let detail = "The origin says that there is nothing under this key; check the key.";
        return Err(Problem::new(&c::ABSENT, detail).header(X_CACHE, x_cache(&read)));
    };
    let share = page.share(&call.app.answer_budget).map_err(|()| {
        let detail =
            "More large values are being sent than the server keeps in memory; send this request again in a moment.";
        Problem::new(&c::OVERLOADED, detail).retry_after(1).header(X_CACHE, ERROR)
    })?;
    let mut response = Response::new(Body::shared(page.body.clone(), share));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, page.media_type.clone());
    headers.insert(CONTENT_LENGTH, HeaderValue::from(page.body.len()));
    headers.insert(X_CACHE, x_cache(&read));
    headers.insert(AGE, age(&read));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, NO_SCRIPTS);
    Ok(response)
}

const ERROR: HeaderValue = HeaderValue::from_static("error");

/// A read that gave nothing. `X-Cache`: whether the origin was asked since `asked` (`miss`), or the failure was one that is
/// remembered (`error`).
fn failed(e: CacheError, asked: Instant, limit: Duration) -> Problem {
    let from = |fresh: bool| if fresh { HeaderValue::from_static("miss") } else { ERROR };
    let again = |kind, what: &str, after: u32| {
        Problem::new(kind, format!("{}; ask again in a moment.", capital(what))).retry_after(after)
    };
    if let Some(error) = e.loader_error::<OriginError>() {
        let kind = if matches!(error.why, Why::TooSlow(_)) { &c::ORIGIN_TIMEOUT } else { &c::ORIGIN_FAILED };
        return again(kind, &error.to_string(), 1).header(X_CACHE, from(error.at >= asked));
    }
    if let Some(LoadFailed { message, retry_after }) = e.loader_error() {
        return again(&c::ORIGIN_FAILED, message, problem::whole_seconds(*retry_after)).header(X_CACHE, ERROR);
    }
    match e {
        CacheError::Timeout => again(&c::ORIGIN_TIMEOUT, "the origin gave no whole answer in time", 1)
            .header(X_CACHE, from(asked.elapsed() >= limit)),
        CacheError::Overloaded { .. } => Problem::from(e).header(X_CACHE, ERROR),
        CacheError::Load(_) if e.loader_error::<LoaderPanicked>().is_some() => {
            tracing::error!(error = %e, "a load met a panic");
            Problem::of(&c::INTERNAL)
        }
        other => other.into(),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

async fn delete(call: Call) -> Answer {
    let mut query = call.query()?;
    query.faults.take("/key", key(&call.ids[1]));
    query.faults.refuse()?;
    let cache = namespace(&call)?;
    cache.invalidate(&call.ids[1]).await.map_err(unacknowledged)?;
    Ok(reply::no_content())
}

async fn clear(call: Call) -> Answer {
    let cache = namespace(&call)?;
    let entries = cache.clear().await.map_err(unacknowledged)?;
    tracing::info!(namespace = cache.namespace(), entries, "a namespace was cleared");
    Ok(reply::no_content())
}

/// A change that the store did not acknowledge.
fn unacknowledged(e: CacheError) -> Problem {
    match e {
        CacheError::Store(why) => {
            tracing::debug!(error = %why, "an invalidation was not acknowledged");
            let detail = "The store that the servers share did not acknowledge this; old values may still be served. Send the same \
                          request again in a few seconds.";
            Problem::new(&c::STORE_UNAVAILABLE, detail).retry_after(2)
        }
        other => other.into(),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "cache",
        summary: "Read a value of an origin",
        doc: "The bytes and the `Content-Type` of the origin that the configuration names for the namespace, loaded if they are \
              not cached. `X-Cache` says where they come from, `Age` how old they are. A failure of the origin is shared: within \
              its back-off the same is answered without asking the origin, with `X-Cache: error`. If an older value may still be \
              served, it is (`X-Cache: stale`), instead of 502, 503 and 504. The key is at most 512 bytes, percent-encoded once, \
              without control characters, and not `.` or `..`.",
        params: &[READ],
        patient: true,
        free_ids: true,
        answers: &[AnswerDoc::text(200, "The value, in the origin's own media type.", "*/*").with(&["X-Cache", "Age"])],
        problems: &[&c::UNKNOWN_NAMESPACE, &c::ABSENT, &c::ORIGIN_FAILED, &c::ORIGIN_TIMEOUT, &c::OVERLOADED],
        ..Route::new(Verb::Get, "/v1/cache/{namespace}/{key}", "getCached", Access::Needs(Role::Read), run!(get))
    },
    Route {
        tag: "cache",
        summary: "Make a value old",
        doc: "Call it after the commit that changes what the origin answers. Once it is answered no `strong` read of any server \
              that shares the store gives what was loaded before, and after a second no `bounded` one. An unknown key is no error.",
        free_ids: true,
        answers: &[AnswerDoc::nothing(204, "It is gone.")],
        problems: &[&c::UNKNOWN_NAMESPACE, &c::STORE_UNAVAILABLE],
        ..Route::new(
            Verb::Delete,
            "/v1/cache/{namespace}/{key}",
            "invalidateCached",
            Access::Needs(Role::Shop),
            run!(delete),
        )
    },
    Route {
        tag: "cache",
        summary: "Make all values of a namespace old",
        doc: "Everything that is cached when it begins is deleted. It takes time that grows with the size of the store.",
        free_ids: true,
        answers: &[AnswerDoc::nothing(204, "They are gone.")],
        problems: &[&c::UNKNOWN_NAMESPACE, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Delete, "/v1/cache/{namespace}", "clearNamespace", Access::Needs(Role::Ops), run!(clear))
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let (longest, longer) = ("x".repeat(512), "é".repeat(257));
        for (text, good) in [
            ("a", true),
            ("a/b", true),
            ("...", true),
            ("%2e", true),
            (longest.as_str(), true),
            (longer.as_str(), false),
            (".", false),
            ("..", false),
            ("a\nb", false),
            ("a\0", false),
            ("a\u{85}b", false),
        ] {
            assert_eq!(key(text).is_ok(), good, "{text:?}");
        }
    }
}
