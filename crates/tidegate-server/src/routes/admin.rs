//! The clock and reconciliation.

use http::StatusCode;
use tidegate::Error;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem;
use crate::reply::{self, Answer};
use crate::request::bodies::{ADVANCE_CLOCK, MAX_ADVANCE_MS, NOTHING};
use crate::request::{Faults, Fields, Pointer};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::instant::Instant;
use crate::shape::operations::{ClockShape, NowShape, ReconciliationShape};

async fn advance(call: Call) -> Answer {
    let ms = {
        let node = call.node()?;
        let mut faults = Faults::default();
        let fields = Fields::open(&node, &ADVANCE_CLOCK, &Pointer::Root, &mut faults);
        let ms = fields.integer("advance_ms", &mut faults).unwrap_or(0);
        if !(0..=MAX_ADVANCE_MS).contains(&ms) {
            faults.add("/advance_ms", format!("must be a whole number from 0 to {MAX_ADVANCE_MS}"));
        }
        faults.refuse()?;
        ms
    };
    match call.app.operations.advance_clock(ms).await {
        Ok(now) => Ok(reply::json(StatusCode::OK, &NowShape { now: Instant(now) })),
        Err(Error::Configuration(why)) => Err(problem::invalid_at("/advance_ms", why)),
        Err(other) => Err(other.into()),
    }
}

async fn show(call: Call) -> Answer {
    Ok(reply::json(StatusCode::OK, &ClockShape::new(call.app.operations.clock())))
}

async fn accept(call: Call) -> Answer {
    super::nothing(&call)?;
    let status = call.app.operations.accept_clock();
    tracing::warn!(now = status.now.0, host = status.host.0, "the clock's step was accepted");
    Ok(reply::json(StatusCode::OK, &ClockShape::new(status)))
}

async fn reconcile(call: Call) -> Answer {
    super::nothing(&call)?;
    let report = call.app.operations.reconcile().await?;
    Ok(reply::json(StatusCode::OK, &ReconciliationShape::new(&report)))
}

const OPS: Access = Access::Needs(Role::Ops);

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "operations",
        summary: "Move a manual clock",
        doc: "For tests: it exists only on a server started with `--manual-clock`.",
        body: BodyRule::Json { shape: &ADVANCE_CLOCK, max: MAX_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "Moved.", |s| s.of::<NowShape>())],
        problems: &[&problem::catalogue::NOT_FOUND],
        ..Route::new(Verb::Post, "/v1/admin/clock", "advanceClock", OPS, run!(advance))
    },
    Route {
        tag: "operations",
        summary: "Compare the ledger's clock with the host's",
        doc: "`stepped` means that the host's clock was moved by more than 2 s and nobody has accepted that; `catching_up`, that the ledger's clock waits at half speed for the host's.",
        answers: &[AnswerDoc::json(200, "Both clocks.", |s| s.of::<ClockShape>())],
        ..Route::new(Verb::Get, "/v1/admin/clock", "getClock", OPS, run!(show))
    },
    Route {
        tag: "operations",
        summary: "Follow the host's clock after a step",
        doc: "Check the host's clock first: orders are judged by it afterwards. After a step back the ledger's clock runs at half speed until the host's has caught up.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        answers: &[AnswerDoc::json(200, "Both clocks.", |s| s.of::<ClockShape>())],
        ..Route::new(Verb::Post, "/v1/admin/clock/accept", "acceptClock", OPS, run!(accept))
    },
    Route {
        tag: "operations",
        summary: "Compare gate and deadlines with the ledger, repair, check the ledger's invariants",
        doc: "Reads the whole ledger; takes as long as that takes. I7 and I10 need to know what callers were told and are not checked.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        patient: true,
        answers: &[AnswerDoc::json(200, "What was found and repaired.", |s| s.of::<ReconciliationShape<'_>>())],
        ..Route::new(Verb::Post, "/v1/admin/reconcile", "reconcile", OPS, run!(reconcile))
    },
];
