//! Product pages. Until the read-through cache is in, every answer is a miss, straight from the ledger.

use http::{HeaderName, HeaderValue, StatusCode, header::AGE};
use tidegate::core::SkuId;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, catalogue as c};
use crate::reply::{self, Answer};
use crate::router::{Route, Verb};
use crate::shape::sku::ProductShape;

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");

async fn get(call: Call) -> Answer {
    let Ok(id) = SkuId::parse(call.id()) else { return Err(problem::unknown_sku(call.id())) };
    let Some(sku) = call.app.catalog.get(id).await? else { return Err(problem::unknown_sku(call.id())) };
    let mut response = reply::json(StatusCode::OK, &ProductShape::new(&sku));
    response.headers_mut().insert(X_CACHE, HeaderValue::from_static("miss"));
    response.headers_mut().insert(AGE, HeaderValue::from_static("0"));
    Ok(response)
}

pub(super) static ROUTES: &[Route] = &[Route {
    tag: "stock",
    summary: "Read what a product page shows",
    doc: "`X-Cache` says where the answer comes from, `Age` how old it is in seconds.",
    answers: &[AnswerDoc::json(200, "The product.", |s| s.of::<ProductShape<'_>>()).with(&["X-Cache", "Age"])],
    problems: &[&c::UNKNOWN_SKU],
    ..Route::new(Verb::Get, "/v1/products/{sku}", "getProduct", Access::Needs(Role::Read), run!(get))
}];
