//! Pages for people: status, documentation, problems.

use std::sync::LazyLock;

use http::StatusCode;
use http::header::ACCEPT;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::openapi::AnswerDoc;
use crate::pages::{self, Page};
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::router::{Route, Verb};

async fn status(call: Call) -> Answer {
    Ok(pages::status::page(&call.app).response())
}

async fn documentation(_: Call) -> Answer {
    static PAGE: LazyLock<Page> = LazyLock::new(pages::docs::page);
    Ok(PAGE.response())
}

async fn problem_page(call: Call) -> Answer {
    let Some(kind) = c::find(call.id()) else {
        return Err(Problem::new(
            &c::NOT_FOUND,
            "There is no problem of this name; docs/reference/problems.md lists them all.",
        ));
    };
    let accepted = call.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.contains("application/json") && !accepted.contains("text/html") {
        return Ok(reply::json(StatusCode::OK, &problem::page::KindShape::new(kind)));
    }
    Ok(problem::page::html(kind).response())
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "operations",
        summary: "Status page",
        doc: "For a look with a browser.",
        any_query: true,
        answers: &[AnswerDoc::text(200, "A page.", "text/html")],
        ..Route::new(Verb::Get, "/", "statusPage", Access::Open, run!(status))
    },
    Route {
        tag: "operations",
        summary: "This description as a page",
        doc: "Made from `/openapi.json`; loads nothing from elsewhere.",
        any_query: true,
        answers: &[AnswerDoc::text(200, "A page.", "text/html")],
        ..Route::new(Verb::Get, "/docs", "documentationPage", Access::Open, run!(documentation))
    },
    Route {
        tag: "operations",
        summary: "What a problem means and what to do",
        doc: "The page a problem document's `type` points to; JSON for those who ask for it.",
        any_query: true,
        answers: &[AnswerDoc::json(200, "What it means.", |s| s.of::<problem::page::KindShape>()).or("text/html")],
        problems: &[&c::NOT_FOUND],
        ..Route::new(Verb::Get, "/problems/{code}", "problemPage", Access::Open, run!(problem_page))
    },
];
