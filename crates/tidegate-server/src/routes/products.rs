//! Product pages, through the cache.

use http::{HeaderName, HeaderValue, StatusCode, header::AGE};
use tidegate::cache::{Read, Source};
use tidegate::core::SkuId;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::query::{Param, ParamKind};
use crate::router::{Route, Verb};
use crate::shape::sku::ProductShape;

pub(crate) const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
/// How a caller wants to be answered.
pub(crate) const READ: Param = Param {
    name: "read",
    kind: ParamKind::Choice(&["bounded", "strong"]),
    doc: "`bounded` (the default) may answer from this process, a second old at most after a change; `strong` never \
          answers what was before a change whose answer has come without `X-Cache-Invalidation: pending`.",
};

/// The query's `read`: whether it is `strong`.
pub(crate) fn strong(text: &str) -> Result<bool, &'static str> {
    match text {
        "bounded" => Ok(false),
        "strong" => Ok(true),
        _ => Err("must be bounded or strong"),
    }
}

/// Where an answer came from, for `X-Cache`.
pub(crate) fn x_cache<V>(read: &Read<V>) -> HeaderValue {
    HeaderValue::from_static(match (read.source, read.value.is_some(), read.stale) {
        (Source::Load, ..) => "miss",
        (_, false, _) => "negative",
        (_, _, true) => "stale",
        (Source::Local, ..) => "hit-local",
        // Only an absence comes from a filter.
        (Source::Store | Source::Filter, ..) => "hit",
    })
}

/// Whole seconds since the load began, for `Age`; 0 on a miss.
pub(crate) fn age<V>(read: &Read<V>) -> HeaderValue {
    HeaderValue::from(if read.source == Source::Load { 0 } else { read.age.as_secs() })
}

async fn get(call: Call) -> Answer {
    let mut query = call.query()?;
    let strong = query.parsed(READ.name, strong).unwrap_or(false);
    query.faults.refuse()?;
    let Ok(id) = SkuId::parse(call.id()) else { return Err(problem::unknown_sku(call.id())) };
    let page = call.app.products.get(&id, strong).await?;
    let from = x_cache(&page.card);
    let Some(card) = &page.card.value else { return Err(problem::unknown_sku(call.id()).header(X_CACHE, from)) };
    let mut response = reply::json(StatusCode::OK, &ProductShape::new(&id, card, page.in_stock));
    response.headers_mut().insert(X_CACHE, from);
    response.headers_mut().insert(AGE, age(&page.card));
    Ok(response)
}

pub(super) static ROUTES: &[Route] = &[Route {
    tag: "stock",
    summary: "Read what a product page shows",
    doc: "The card comes through the cache, `in_stock` from the newest counts this server knows. `X-Cache` says where the \
          card comes from: `hit-local`, `hit`, `miss`, `stale` or `negative`; `Age` how old it is in seconds.",
    params: &[READ],
    answers: &[AnswerDoc::json(200, "The product.", |s| s.of::<ProductShape<'_>>()).with(&["X-Cache", "Age"])],
    problems: &[&c::UNKNOWN_SKU],
    ..Route::new(Verb::Get, "/v1/products/{sku}", "getProduct", Access::Needs(Role::Read), run!(get))
}];
