//! Payments: reports of money, and money given back by hand.

use http::StatusCode;
use tidegate::PaymentFilter;
use tidegate::core::command::RefundPayment;
use tidegate::core::request::PayRequest;
use tidegate::core::{OrderId, PaymentId, PaymentOutcome};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies::{NOTHING, PAY};
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind};
use crate::request::{Faults, Fields, Pointer};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::names::{FromName, OutcomeName};
use crate::shape::page;
use crate::shape::payment::{PaidShape, PaymentShape, RefundShape};

async fn pay(call: Call) -> Answer {
    let command = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &PAY, &root, &mut faults);
        let request = PayRequest {
            payment_id: fields.text("payment_id", &mut faults).unwrap_or_default().to_owned(),
            amount: fields.integer("amount", &mut faults),
            currency: fields.text("currency", &mut faults).map(str::to_owned),
            captured_at: fields.instant("captured_at", &mut faults),
        };
        super::named(OrderId::parse(call.id()), "/id", faults, |id| request.check(id))?
    };
    let paid = call.app.orders.pay(command).await?;
    let status = if paid.outcome == PaymentOutcome::Unmatched { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(reply::json(status, &PaidShape::new(&paid)))
}

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let filter = PaymentFilter {
        outcome: query.parsed("outcome", OutcomeName::parse),
        payment_id: query.parsed("payment_id", PaymentId::parse),
        order_id: query.parsed("order_id", OrderId::parse),
    };
    let page = call.app.orders.payments(filter, super::page(query)?).await?;
    Ok(page::list(&page, PaymentShape::new))
}

async fn refund(call: Call) -> Answer {
    let key = call.key()?;
    super::nothing(&call)?;
    let Ok(payment_id) = PaymentId::parse(call.id()) else {
        return Err(Problem::new(&c::UNKNOWN_PAYMENT, "No payment with this id was ever reported; check the id."));
    };
    let (refund, replayed) = call.app.orders.refund_payment(RefundPayment { payment_id, key }).await?;
    Ok(reply::replayed(reply::json(StatusCode::OK, &RefundShape::new(&refund)), replayed))
}

const FILTERS: &[Param] = &[
    Param { name: "outcome", kind: ParamKind::Choice(OutcomeName::NAMES), doc: "Only payments with this outcome." },
    Param { name: "payment_id", kind: ParamKind::Text, doc: "Only the payment with this id." },
    Param { name: "order_id", kind: ParamKind::Text, doc: "Only payments that name this order." },
    CURSOR,
    LIMIT,
];

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "payments",
        summary: "Report a payment",
        doc: "A 2xx means it is stored, durably. The `payment_id` makes a repeat harmless: it answers `duplicate`. Money for an order \
              that does not exist yet is kept and applied when the order is placed.",
        body: BodyRule::Json { shape: &PAY, max: MAX_BODY, optional: false },
        answers: &[
            AnswerDoc::json(200, "Stored and applied.", |s| s.of::<PaidShape<'_>>()),
            AnswerDoc::json(202, "Stored; no order has this id yet (`unmatched`).", |s| s.of::<PaidShape<'_>>()),
        ],
        problems: &[&c::CURRENCY_MISMATCH, &c::PAYMENT_ID_REUSED],
        ..Route::new(Verb::Post, "/v1/orders/{id}/payments", "reportPayment", Access::Needs(Role::Shop), run!(pay))
    },
    Route {
        tag: "payments",
        summary: "List payments",
        doc: "Newest first.",
        params: FILTERS,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<PaymentShape<'_>>("PaymentPage"))],
        ..Route::new(Verb::Get, "/v1/payments", "listPayments", Access::Needs(Role::Read), run!(list))
    },
    Route {
        tag: "payments",
        summary: "Make unmatched or surplus money due back",
        doc: "The refund is due until it is reported as settled.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        takes_key: true,
        answers: &[AnswerDoc::json(200, "The refund, new or from before.", |s| s.of::<RefundShape<'_>>())
            .with(&["Idempotent-Replayed"])],
        problems: &[&c::UNKNOWN_PAYMENT, &c::NOT_REFUNDABLE, &c::IDEMPOTENCY_MISMATCH],
        ..Route::new(
            Verb::Post,
            "/v1/payments/{payment_id}/refund",
            "refundPayment",
            Access::Needs(Role::Ops),
            run!(refund),
        )
    },
];
