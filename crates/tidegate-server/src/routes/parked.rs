//! Orders whose deadline could not be acted on.

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::catalogue as c;
use crate::reply::{self, Answer};
use crate::request::bodies::NOTHING;
use crate::request::query::{CURSOR, LIMIT};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::order::{OrderShape, ParkedShape};
use crate::shape::page;

async fn list(call: Call) -> Answer {
    let page = call.app.orders.parked(super::page(call.query()?)?).await?;
    Ok(page::list(&page, ParkedShape::new))
}

async fn retry(call: Call) -> Answer {
    super::nothing(&call)?;
    let order = call.app.orders.retry_parked(call.order_id()?).await?;
    Ok(reply::json(http::StatusCode::OK, &OrderShape::new(&order)))
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "operations",
        summary: "List parked orders",
        doc: "Orders whose deadline could not be acted on after 20 tries, newest first. They are tried again every hour.",
        params: &[CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<ParkedShape<'_>>("ParkedPage"))],
        ..Route::new(Verb::Get, "/v1/parked", "listParked", Access::Needs(Role::Ops), run!(list))
    },
    Route {
        tag: "operations",
        summary: "Try a parked order again",
        doc: "Takes it off the list; its deadline is tried again at once.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        answers: &[AnswerDoc::json(200, "The order.", |s| s.of::<OrderShape<'_>>())],
        problems: &[&c::UNKNOWN_ORDER],
        ..Route::new(Verb::Post, "/v1/parked/{order_id}/retry", "retryParked", Access::Needs(Role::Ops), run!(retry))
    },
];
