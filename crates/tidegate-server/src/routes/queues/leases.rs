//! Handing tasks out, and what their holders say.

use std::time::Duration;

use http::StatusCode;
use tidegate::queue::{Lease, Settle, TaskId, Verdict, retry};

use super::{SHOP, name, open, reserved};
use crate::call::Call;
use crate::openapi::AnswerDoc;
use crate::problem::catalogue as c;
use crate::reply::{self, Answer, Parcel};
use crate::request::bodies_of_products::{CLAIM, DEFAULT_LEASE_MS, EXTEND_LEASES, RECEIPT, RETRY_TASKS, SETTLE};
use crate::request::{Faults, Fields, Pointer, Shape};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::routes::run;
use crate::shape::queue::{ClaimShape, SettleShape, receipt};

/// Tasks on their way to a client.
struct Leased(Lease);

impl Parcel for Leased {
    fn sent(self: Box<Self>) {
        drop(self.0.keep());
    }
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}

async fn claim(call: Call) -> Answer {
    let (queue, max, lease, wait) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let name = name(&call, &mut faults);
        let fields = Fields::open(&node, &CLAIM, &root, &mut faults);
        let max = fields.ranged("max", &mut faults).unwrap_or(1);
        let lease = fields.ranged("lease_ms", &mut faults).unwrap_or(DEFAULT_LEASE_MS);
        let wait = fields.ranged("wait_ms", &mut faults).unwrap_or(0);
        (open(&call, name, faults)?, usize::try_from(max).unwrap_or(1), milliseconds(lease), milliseconds(wait))
    };
    let _place = super::super::waits(&call, wait)?;
    let tasks = tokio::select! {
        biased;
        claimed = queue.claim(max, lease, wait) => claimed?,
        () = call.app.stop_begins(), if !wait.is_zero() => {
            return Ok(reply::json(StatusCode::OK, &ClaimShape::new(&[])));
        }
    };
    let mut response = reply::json(StatusCode::OK, &ClaimShape::new(tasks.tasks()));
    response.body_mut().hands_over(Leased(tasks));
    Ok(response)
}

/// What one verdict says of all tasks of a body.
type Verdicts = fn(&Fields<'_, '_, '_>, &mut Faults) -> Verdict;

async fn settle(call: Call, shape: &'static Shape, verdict: Verdicts) -> Answer {
    let (queue, sent, tasks) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let name = name(&call, &mut faults);
        let fields = Fields::open(&node, shape, &root, &mut faults);
        let verdict = verdict(&fields, &mut faults);
        let at = fields.at("items");
        let items = fields.list("items", &mut faults).unwrap_or_default();
        let mut tasks = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            let place = at.item(i);
            let fields = Fields::open(item, &RECEIPT, &place, &mut faults);
            let id = fields.text("id", &mut faults);
            let id = id.and_then(|id| faults.take(fields.at("id"), TaskId::parse(id)));
            let receipt = fields.text("receipt", &mut faults).map(receipt);
            tasks.extend(id.zip(receipt).map(|(id, receipt)| {
                // Each with a delay of its own, where the delay is ours to choose.
                let verdict = match &verdict {
                    Verdict::Retry { delay_ms, error, .. } => retry(*delay_ms, error.clone()),
                    other => other.clone(),
                };
                Settle { id, receipt, verdict }
            }));
        }
        let queue = open(&call, name, faults)?;
        // A receipt that was never given out needs not be asked about, and a store must not be: it is lost.
        let sent: Vec<(TaskId, bool)> = tasks.iter().map(|task| (task.id.clone(), task.receipt.0 > 0)).collect();
        tasks.retain(|task| task.receipt.0 > 0);
        (queue, sent, tasks)
    };
    let mut settled = if tasks.is_empty() { Vec::new() } else { queue.settle(&tasks).await? }.into_iter();
    let results = sent.iter().map(|(id, asked)| {
        let settled = if *asked { settled.next() } else { None };
        (id.as_str(), settled.unwrap_or(tidegate::queue::Settled::Lost))
    });
    Ok(reply::json(StatusCode::OK, &SettleShape::new(results)))
}

async fn ack(call: Call) -> Answer {
    settle(call, &SETTLE, |_, _| Verdict::Ack).await
}

async fn release(call: Call) -> Answer {
    settle(call, &SETTLE, |_, _| Verdict::Release).await
}

async fn extend(call: Call) -> Answer {
    settle(call, &EXTEND_LEASES, |fields, faults| {
        Verdict::Extend(fields.ranged("lease_ms", faults).unwrap_or(DEFAULT_LEASE_MS))
    })
    .await
}

async fn retry_later(call: Call) -> Answer {
    settle(call, &RETRY_TASKS, |fields, faults| {
        let delay_ms = fields.ranged("delay_ms", faults);
        let error = fields.text("error", faults).map(str::to_owned);
        let verdict = Verdict::Retry { delay_ms, spread: 0, error };
        if let Err(e) = verdict.check() {
            faults.add(fields.at("error"), e.to_string());
        }
        verdict
    })
    .await
}

const RESULTS: AnswerDoc = AnswerDoc::json(200, "One result a task, in order.", |s| s.of::<SettleShape<'_>>());

pub(in crate::routes) static ROUTES: &[Route] = &[
    Route {
        tag: "queues",
        summary: "Claim tasks that are due",
        doc: "They are the caller's for `lease_ms`, earliest due first; each has to be acknowledged (or released, or retried) with its \
              receipt before. If nothing is due the call waits for up to `wait_ms`. What cannot be delivered to a client that went is \
              handed back, and no attempt is charged.",
        body: BodyRule::Json { shape: &CLAIM, max: MAX_BODY, optional: true },
        patient: true,
        on_store: true,
        forbids: Some(reserved),
        answers: &[AnswerDoc::json(200, "The tasks; none after the wait, and of a queue that nobody has.", |s| {
            s.of::<ClaimShape<'_>>()
        })],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/claim", "claimTasks", SHOP, run!(claim))
    },
    Route {
        tag: "queues",
        summary: "Acknowledge tasks",
        doc: "They are done, and gone. A repeat says `lost` and harms nothing.",
        body: BodyRule::Json { shape: &SETTLE, max: MAX_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[RESULTS],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/ack", "ackTasks", SHOP, run!(ack))
    },
    Route {
        tag: "queues",
        summary: "Hand tasks back",
        doc: "They are as they were, and no attempt is charged.",
        body: BodyRule::Json { shape: &SETTLE, max: MAX_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[RESULTS],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/release", "releaseTasks", SHOP, run!(release))
    },
    Route {
        tag: "queues",
        summary: "Keep tasks for longer",
        doc: "Their leases end `lease_ms` from now.",
        body: BodyRule::Json { shape: &EXTEND_LEASES, max: MAX_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[RESULTS],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/extend", "extendTasks", SHOP, run!(extend))
    },
    Route {
        tag: "queues",
        summary: "Try tasks again later",
        doc: "One whose last attempt this was (`queues.max_attempts`, 20) is dead: it waits for a person.",
        body: BodyRule::Json { shape: &RETRY_TASKS, max: MAX_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[RESULTS],
        problems: &[&c::RESERVED_QUEUE],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/retry", "retryTasks", SHOP, run!(retry_later))
    },
];
