//! What machines ask: health, readiness, metrics, the API's description.

use std::sync::LazyLock;

use bytes::Bytes;
use http::StatusCode;
use tidegate::Readiness;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::metrics;
use crate::openapi::{self, AnswerDoc};
use crate::problem::{Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::router::{Route, Verb};
use crate::shape::operations::{HealthShape, ReadinessShape};

async fn health(_: Call) -> Answer {
    Ok(reply::json(StatusCode::OK, &HealthShape { status: "ok" }))
}

async fn readiness(call: Call) -> Answer {
    let (status, reasons) = match call.app.operations.readiness() {
        Readiness::Ready => ("ready", Vec::new()),
        Readiness::Degraded(reasons) => ("degraded", reasons),
        Readiness::NotReady(reasons) => {
            let detail = "Orders can not be placed or paid now; reasons says why. Ask again in a few seconds.";
            return Err(Problem::new(&c::NOT_READY, detail).reasons(reasons).retry_after(2));
        }
    };
    Ok(reply::json(StatusCode::OK, &ReadinessShape { status, reasons: &reasons }))
}

async fn metrics_text(call: Call) -> Answer {
    call.app.metrics.observe(&call.app);
    let text = metrics::installed().map_or_else(
        || "# This process has no metrics recorder of Tidegate's.\n".to_owned(),
        metrics::MetricsHandle::render,
    );
    Ok(reply::with_type(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
}

async fn description(_: Call) -> Answer {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi::openapi_json()));
    Ok(reply::with_type(StatusCode::OK, "application/json", DOCUMENT.clone()))
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "operations",
        summary: "Whether the process lives",
        doc: "Asks nothing of the ledger.",
        any_query: true,
        answers: &[AnswerDoc::json(200, "It lives.", |s| s.of::<HealthShape>())],
        ..Route::new(Verb::Get, "/healthz", "getHealth", Access::Open, run!(health))
    },
    Route {
        tag: "operations",
        summary: "Whether orders can be placed and paid",
        doc: "`degraded` still takes orders; its `reasons` need a look.",
        any_query: true,
        answers: &[AnswerDoc::json(200, "They can.", |s| s.of::<ReadinessShape<'_>>())],
        problems: &[&c::NOT_READY],
        ..Route::new(Verb::Get, "/readyz", "getReadiness", Access::Open, run!(readiness))
    },
    Route {
        tag: "operations",
        summary: "Metrics for Prometheus",
        doc: "What each means is in docs/reference/metrics.md.",
        any_query: true,
        answers: &[AnswerDoc::text(200, "Prometheus' text format.", "text/plain")],
        ..Route::new(Verb::Get, "/metrics", "getMetrics", Access::Needs(Role::Read), run!(metrics_text))
    },
    Route {
        tag: "operations",
        summary: "This description",
        doc: "OpenAPI 3.1.",
        any_query: true,
        answers: &[AnswerDoc::text(200, "The OpenAPI document.", "application/json")],
        ..Route::new(Verb::Get, "/openapi.json", "getDescription", Access::Open, run!(description))
    },
];
