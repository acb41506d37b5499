//! `/problems/{code}` and `docs/reference/problems.md`.

use std::fmt::Write;

use serde::Serialize;
use utoipa::ToSchema;

use super::catalogue::{self, Kind};
use crate::pages::{Page, code_spans, escape};

/// What a problem means.
#[derive(Serialize, ToSchema)]
#[schema(as = ProblemKind)]
pub(crate) struct KindShape {
    /// Its stable name.
    #[schema(example = "stale")]
    code: &'static str,
    /// The HTTP status it is answered with.
    status: u16,
    /// What it is, in a few words.
    title: &'static str,
    /// Whether the same request may succeed later without any change.
    retryable: bool,
    /// What it means.
    meaning: &'static str,
    /// What to do.
    remedy: &'static str,
}

impl KindShape {
    /// Of this kind.
    pub(crate) fn new(kind: &Kind) -> Self {
        let Kind { code, status, title, retryable, meaning, remedy } = *kind;
        Self { code, status, title, retryable, meaning, remedy }
    }
}

/// The page of a kind.
pub(crate) fn html(kind: &Kind) -> Page {
    let again = if kind.retryable {
        "The same request may succeed later without any change."
    } else {
        "The same request will be refused again."
    };
    let body = format!(
        "<p class=crumb><a href=/docs>Tidegate API</a> / problems</p><h1>{}</h1><p><code>{}</code> · HTTP {}</p>\
         <p>{}</p><h2>What to do</h2><p>{}</p><p>{again}</p>",
        escape(kind.title),
        escape(kind.code),
        kind.status,
        code_spans(kind.meaning),
        code_spans(kind.remedy),
    );
    Page::new(kind.title, &body, "")
}

/// `docs/reference/problems.md`.
#[must_use]
pub fn problems_markdown() -> String {
    let mut text = String::from(
        "# Problems\n\nEvery error of the server is a problem document (RFC 9457, `application/problem+json`): `type` (the problem's page on \
         the server), `title`, `status`, `detail` (what happened and what to do next), `code`, `retryable`, and where they fit `sku`, \
         `available`, `limit`, `already`, `order_id`, `reasons` and `errors`, a list of `{\"pointer\", \"detail\"}` with a JSON pointer \
         (RFC 6901) to each field that is wrong. Program against `code`. With `retryable` the same request may succeed later without \
         any change; `Retry-After` says when to try.\n\nThis page is generated from the catalogue in \
         `crates/tidegate-server/src/problem/catalogue.rs`.\n\n\
         | code | status | retryable | meaning | what to do |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut kinds: Vec<&Kind> = catalogue::ALL.to_vec();
    kinds.sort_by_key(|kind| kind.status);
    for kind in kinds {
        let again = if kind.retryable { "yes" } else { "no" };
        let _ = writeln!(text, "| `{}` | {} | {again} | {} | {} |", kind.code, kind.status, kind.meaning, kind.remedy);
    }
    text
}
