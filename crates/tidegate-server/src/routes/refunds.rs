//! Refunds: money that is due back, until someone reports it settled.

use http::StatusCode;
use tidegate::RefundFilter;
use tidegate::core::command::SettleRefund;
use tidegate::core::{OrderId, RefundId};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies::NOTHING;
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::names::{FromName, RefundStatusName};
use crate::shape::page;
use crate::shape::payment::RefundShape;

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let filter = RefundFilter {
        status: query.parsed("status", RefundStatusName::parse),
        order_id: query.parsed("order_id", OrderId::parse),
    };
    let page = call.app.orders.refunds(filter, super::page(query)?).await?;
    Ok(page::list(&page, RefundShape::new))
}

async fn settle(call: Call) -> Answer {
    let key = call.key()?;
    super::nothing(&call)?;
    let Ok(refund_id) = RefundId::parse(call.id()) else {
        return Err(Problem::new(&c::UNKNOWN_REFUND, "There is no refund with this id; take it from GET /v1/refunds."));
    };
    let (refund, replayed) = call.app.orders.settle_refund(SettleRefund { refund_id, key }).await?;
    Ok(reply::replayed(reply::json(StatusCode::OK, &RefundShape::new(&refund)), replayed))
}

const FILTERS: &[Param] = &[
    Param { name: "status", kind: ParamKind::Choice(RefundStatusName::NAMES), doc: "Only refunds in this status." },
    Param { name: "order_id", kind: ParamKind::Text, doc: "Only refunds of payments that name this order." },
    CURSOR,
    LIMIT,
];

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "refunds",
        summary: "List refunds",
        doc: "Newest first; `status=due` is the list of money to pay back.",
        params: FILTERS,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<RefundShape<'_>>("RefundPage"))],
        ..Route::new(Verb::Get, "/v1/refunds", "listRefunds", Access::Needs(Role::Read), run!(list))
    },
    Route {
        tag: "refunds",
        summary: "Report a refund as paid back",
        doc: "Only the first report counts: another one is `already-settled`, unless it repeats the first one's `Idempotency-Key`.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        takes_key: true,
        answers: &[AnswerDoc::json(200, "Settled.", |s| s.of::<RefundShape<'_>>()).with(&["Idempotent-Replayed"])],
        problems: &[&c::UNKNOWN_REFUND, &c::ALREADY_SETTLED, &c::IDEMPOTENCY_MISMATCH],
        ..Route::new(Verb::Post, "/v1/refunds/{id}/settle", "settleRefund", Access::Needs(Role::Shop), run!(settle))
    },
];
