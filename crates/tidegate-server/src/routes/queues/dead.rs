//! Tasks that used up their attempts and wait for a person.

use http::StatusCode;
use tidegate::queue::Listing;

use super::{SHOP, listed, name, open, reserved, task_id};
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies_of_products::REQUEUE;
use crate::request::decode::parse_instant;
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind};
use crate::request::{Faults, Fields, Kind, Pointer};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::routes::run;
use crate::shape::queue::{PurgedShape, TaskShape};

async fn list(call: Call) -> Answer {
    let query = call.query()?;
    listed(&call, query, Listing::Dead).await
}

async fn requeue(call: Call) -> Answer {
    let (queue, id, delay) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let (name, id) = (name(&call, &mut faults), task_id(&call, &mut faults));
        let fields = Fields::open(&node, &REQUEUE, &root, &mut faults);
        let delay = fields.ranged("delay_ms", &mut faults).unwrap_or(0);
        (open(&call, name, faults)?, id, delay)
    };
    let task = match id {
        Some(id) => queue.requeue(&id, delay).await?,
        None => None,
    };
    let task = task.ok_or_else(|| Problem::of(&c::UNKNOWN_TASK))?;
    Ok(reply::json(StatusCode::OK, &TaskShape::new(queue.name(), &task)))
}

async fn purge(call: Call) -> Answer {
    let mut query = call.query()?;
    let before = query.parsed(BEFORE.name, |text| parse_instant(text).ok_or_else(|| Kind::Instant.wanted()));
    let mut faults = query.faults;
    let name = name(&call, &mut faults);
    let queue = open(&call, name, faults)?;
    let (purged, more) = queue.purge(before).await?;
    tracing::info!(queue = %queue.name(), purged, "dead tasks were removed");
    Ok(reply::json(StatusCode::OK, &PurgedShape { purged, more }))
}

const BEFORE: Param = Param {
    name: "before",
    kind: ParamKind::Text,
    doc: "Only tasks that died before this instant of RFC 3339; left out, all.",
};

pub(in crate::routes) static ROUTES: &[Route] = &[
    Route {
        tag: "queues",
        summary: "List dead tasks",
        doc: "Newest dead first. `last_error` says why.",
        params: &[CURSOR, LIMIT],
        on_store: true,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<TaskShape<'_>>("TaskPage"))],
        ..Route::new(Verb::Get, "/v1/queues/{queue}/dead", "listDeadTasks", SHOP, run!(list))
    },
    Route {
        tag: "queues",
        summary: "Give a dead task a new life",
        doc: "It is due after `delay_ms`, its attempts count from the start again.",
        body: BodyRule::Json { shape: &REQUEUE, max: MAX_BODY, optional: true },
        on_store: true,
        forbids: Some(reserved),
        answers: &[AnswerDoc::json(200, "The task.", |s| s.of::<TaskShape<'_>>())],
        problems: &[&c::RESERVED_QUEUE, &c::UNKNOWN_TASK],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/dead/{id}/requeue", "requeueTask", SHOP, run!(requeue))
    },
    Route {
        tag: "queues",
        summary: "Remove dead tasks",
        doc: "The oldest first, at most 10,000 a call; `more` says that there are more.",
        params: &[BEFORE],
        on_store: true,
        forbids: Some(reserved),
        answers: &[AnswerDoc::json(200, "They are gone.", |s| s.of::<PurgedShape>())],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Delete, "/v1/queues/{queue}/dead", "purgeDeadTasks", Access::Needs(Role::Ops), run!(purge))
    },
];
