//! The delay queue: what is scheduled, and what is there.
//!
//! - `leases.rs`: handing tasks out, and what their holders say. `dead.rs`: tasks that used up their attempts.
//!
//! These routes run on real time, also under a manual clock.

pub(super) mod dead;
pub(super) mod leases;

use http::{Response, StatusCode};
use serde::Serialize;
use tidegate::core::Millis;
use tidegate::queue::{
    Condition, Due, Listing, Place, QueueName, RawQueue, Schedule, Scheduled, Stats, Task, TaskError, TaskId, TaskState,
};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer, Body};
use crate::request::bodies_of_products::{PUT_TASK, PUT_TASK_BATCH, PUT_TASK_ITEM};
use crate::request::json::Node;
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind, Query};
use crate::request::{Faults, Fields, Pointer, cursor};
use crate::router::{BodyRule, MAX_BATCH_BODY, MAX_BODY, Route, Verb};
use crate::shape::names::{FromName, TaskStateName};
use crate::shape::page::{self, BatchItem};
use crate::shape::queue::{QueueShape, ScheduledShape, TaskShape};

/// Bytes of payload after which a page of tasks ends before it is full.
const PAGE_BYTES: usize = 1 << 20;
/// Tasks that are read at once for a page: bounds what one request holds in memory.
const READ_AT_ONCE: usize = 64;

/// The cursors of tasks that live, and of the dead.
const LIVE_LIST: char = 'l';
const DEAD_LIST: char = 'd';

const SHOP: Access = Access::Needs(Role::Shop);

/// Refuses the product's own queues.
fn reserved(name: &str) -> Option<Problem> {
    QueueName::parse(name).ok().filter(QueueName::is_reserved).map(|_| problem::reserved_queue())
}

/// The queue of the orders' deadlines: it lies in an index of its own.
const ORDERS: &str = "orders";

/// The orders' deadlines in numbers.
async fn orders(call: &Call) -> Result<(Stats, Millis), Problem> {
    call.app.operations.deadlines().await.map_err(|e| match e {
        tidegate::Error::Index(why) => {
            tracing::debug!(error = %why, "the deadline index cannot be read");
            let detail = "The index of the orders' deadlines cannot be read now; orders go on, and their deadlines are acted on from \
                          the ledger. Send the same request again in a few seconds.";
            problem::store_unavailable(detail, 2)
        }
        other => other.into(),
    })
}

/// The queues of this server.
fn queues(call: &Call) -> Result<&tidegate::queue::Queues, Problem> {
    call.app.queues.as_ref().ok_or_else(|| {
        let detail = "This server has no store for queues: start it with --store redis://.. (or with a SQLite ledger), and send the \
                      same request again.";
        problem::store_unavailable(detail, 60)
    })
}

/// The queue of the path; a bad name is a fault among the others.
fn name(call: &Call, faults: &mut Faults) -> Option<QueueName> {
    faults.take("/queue", QueueName::parse(call.id()))
}

/// The task of the path, as well.
fn task_id(call: &Call, faults: &mut Faults) -> Option<TaskId> {
    faults.take("/id", TaskId::parse(&call.ids[1]))
}

/// The queue, once nothing is wrong with the request.
fn open(call: &Call, name: Option<QueueName>, faults: Faults) -> Result<RawQueue, Problem> {
    faults.refuse()?;
    let name = name.ok_or_else(|| Problem::of(&c::INTERNAL))?;
    if name.as_str() == ORDERS {
        let detail = "The deadlines of orders are no tasks: read GET /v1/orders for what is pending, GET /v1/parked for what failed \
                      too often, GET /v1/queues/orders for numbers.";
        return Err(Problem::new(&c::UNKNOWN_QUEUE, detail));
    }
    Ok(queues(call)?.raw(name))
}

/// When a task is due, with every fault in that noted.
fn due(fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Option<Due> {
    let (at, delay) = (fields.node("due_at").is_some(), fields.node("delay_ms").is_some());
    match (at, delay) {
        (true, false) => fields.instant("due_at", faults).map(Due::At),
        (false, true) => fields.ranged("delay_ms", faults).map(Due::In),
        (true, true) => {
            faults.add(fields.at("delay_ms"), "must not be sent beside due_at; send one of them");
            None
        }
        (false, false) => {
            faults.add(fields.at("due_at"), "is required, or delay_ms in its place");
            None
        }
    }
}

/// The task that fields ask for.
fn schedule(id: Option<TaskId>, fields: &Fields<'_, '_, '_>, mut faults: Faults) -> Result<Schedule, Problem> {
    let due = due(fields, &mut faults);
    let condition = match fields.choice("if", &mut faults) {
        Some("earlier") => Condition::Earlier,
        Some("later") => Condition::Later,
        Some("always") => Condition::Always,
        _ => Condition::Absent,
    };
    let payload = fields.json("payload", &mut faults).into();
    let (Some(id), Some(due)) = (id, due) else {
        faults.refuse()?;
        return Err(Problem::of(&c::INTERNAL));
    };
    let task = Schedule { id, due, payload, condition };
    let too_large = match task.check() {
        Ok(()) => None,
        Err(e @ TaskError::Payload(_)) => Some(e),
        Err(e) => {
            faults.add(fields.at(if matches!(due, Due::At(_)) { "due_at" } else { "delay_ms" }), e.to_string());
            None
        }
    };
    faults.refuse()?;
    match too_large {
        Some(e) => Err(Problem::new(&c::TOO_LARGE, format!("The payload {e}."))),
        None => Ok(task),
    }
}

fn status_of(scheduled: &Scheduled) -> StatusCode {
    if scheduled.new { StatusCode::CREATED } else { StatusCode::OK }
}

async fn put(call: Call) -> Answer {
    let (queue, task) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let (name, id) = (name(&call, &mut faults), task_id(&call, &mut faults));
        let fields = Fields::open(&node, &PUT_TASK, &root, &mut faults);
        let task = schedule(id, &fields, faults)?;
        (open(&call, name, Faults::default())?, task)
    };
    let mut answers = queue.schedule(std::slice::from_ref(&task)).await?;
    let scheduled = answers.pop().ok_or_else(|| Problem::of(&c::INTERNAL))?;
    Ok(reply::json(status_of(&scheduled), &ScheduledShape::new(queue.name(), &scheduled)))
}

async fn put_many(call: Call) -> Answer {
    let (queue, tasks) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let name = name(&call, &mut faults);
        let fields = Fields::open(&node, &PUT_TASK_BATCH, &root, &mut faults);
        let items = fields.list("tasks", &mut faults).unwrap_or_default();
        let queue = open(&call, name, faults)?;
        (queue, items.iter().map(put_item).collect::<Vec<_>>())
    };
    let (mut sound, mut slots) = (Vec::with_capacity(tasks.len()), Vec::with_capacity(tasks.len()));
    for task in tasks {
        slots.push(task.map(|task| sound.push(task)));
    }
    let mut scheduled = if sound.is_empty() { Vec::new() } else { queue.schedule(&sound).await? }.into_iter();
    let answers: Vec<Result<Scheduled, Problem>> = slots
        .into_iter()
        .map(|slot| slot.and_then(|()| scheduled.next().ok_or_else(|| Problem::of(&c::INTERNAL))))
        .collect();
    let results = answers.iter().map(|answer| BatchItem {
        name: "scheduled",
        answer: answer.as_ref().map(|scheduled| (status_of(scheduled).as_u16(), scheduled.scheduled)),
    });
    Ok(page::batch(results.collect()))
}

fn put_item(item: &Node<'_>) -> Result<Schedule, Problem> {
    let (root, mut faults) = (Pointer::Root, Faults::default());
    let fields = Fields::open(item, &PUT_TASK_ITEM, &root, &mut faults);
    let id = fields.text("id", &mut faults).and_then(|id| faults.take("/id", TaskId::parse(id)));
    schedule(id, &fields, faults)
}

async fn get(call: Call) -> Answer {
    let mut faults = Faults::default();
    let (name, id) = (name(&call, &mut faults), task_id(&call, &mut faults));
    let queue = open(&call, name, faults)?;
    let found = match id {
        Some(id) => queue.get(&id).await?,
        None => None,
    };
    let task = found.ok_or_else(|| Problem::of(&c::UNKNOWN_TASK))?;
    Ok(reply::json(StatusCode::OK, &TaskShape::new(queue.name(), &task)))
}

async fn cancel(call: Call) -> Answer {
    let mut faults = Faults::default();
    let (name, id) = (name(&call, &mut faults), task_id(&call, &mut faults));
    let queue = open(&call, name, faults)?;
    let there = match id {
        Some(id) => queue.cancel(&id).await?,
        None => false,
    };
    if there { Ok(reply::no_content()) } else { Err(Problem::of(&c::UNKNOWN_TASK)) }
}

#[derive(Serialize)]
struct PageShape<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

/// Tasks of a listing from `after` on: up to `limit`, fewer if their payloads are large; and where the next page begins.
async fn read(
    queue: &RawQueue,
    listing: &Listing,
    mut after: Option<Place>,
    limit: usize,
) -> Result<(Vec<Task>, Option<Place>), Problem> {
    let (mut tasks, mut bytes): (Vec<Task>, usize) = (Vec::new(), 0);
    loop {
        let wanted = (limit - tasks.len()).min(READ_AT_ONCE);
        let (some, next) = queue.list(listing.clone(), after, wanted).await?;
        bytes += some.iter().map(|task| task.payload.len()).sum::<usize>();
        tasks.extend(some);
        if next.is_none() || tasks.len() >= limit || bytes >= PAGE_BYTES {
            return Ok((tasks, next));
        }
        after = next;
    }
}

/// A page of tasks as it is answered.
async fn listed(call: &Call, mut query: Query<'_>, listing: Listing) -> Result<Response<Body>, Problem> {
    let list = if listing == Listing::Dead { DEAD_LIST } else { LIVE_LIST };
    let limit = query.limit();
    let name = query.faults.take("/queue", QueueName::parse(call.id()));
    let scope = name.as_ref().map_or("", QueueName::as_str);
    let after = query.parsed("cursor", |text| cursor::place(list, scope, text));
    let queue = open(call, name.clone(), query.faults)?;
    let (tasks, next) = read(&queue, &listing, after, limit).await?;
    let items = tasks.iter().map(|task| TaskShape::new(queue.name(), task)).collect();
    let next_cursor = next.map(|place| cursor::of_place(list, queue.name().as_str(), &place));
    Ok(reply::json(StatusCode::OK, &PageShape { items, next_cursor }))
}

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let listing = match query.parsed(STATE.name, TaskStateName::parse) {
        Some(TaskState::Dead) => Listing::Dead,
        state => Listing::Live(state),
    };
    listed(&call, query, listing).await
}

async fn show(call: Call) -> Answer {
    let mut faults = Faults::default();
    let name = name(&call, &mut faults);
    if let Some(name) = name.as_ref().filter(|name| name.as_str() == ORDERS) {
        let (stats, now) = orders(&call).await?;
        return Ok(reply::json(StatusCode::OK, &QueueShape::new(name, stats, now)));
    }
    let queue = open(&call, name, faults)?;
    let stats = queue.stats().await?.ok_or_else(|| Problem::of(&c::UNKNOWN_QUEUE))?;
    Ok(reply::json(StatusCode::OK, &QueueShape::new(queue.name(), stats, queues(&call)?.now())))
}

async fn list_queues(call: Call) -> Answer {
    let mut query = call.query()?;
    let limit = query.limit();
    let after = query.parsed("cursor", cursor::name);
    query.faults.refuse()?;
    let after = after.and_then(|name| QueueName::parse(&name).ok());
    let queues = queues(&call)?;
    let mut names = queues.names(after.as_ref(), limit).await?;
    let stats = queues.stats(&names).await?;
    let now = queues.now();
    let mut numbers: Vec<Option<(Stats, Millis)>> =
        stats.into_iter().map(|stats| stats.map(|stats| (stats, now))).collect();
    let own = QueueName::parse(ORDERS).map_err(|_| Problem::of(&c::INTERNAL))?;
    let place = names.partition_point(|name| *name < own);
    let on_this_page = after.is_none_or(|after| after < own) && (place < names.len() || names.len() < limit);
    if on_this_page {
        // The other queues are told of, whatever is wrong with this one's store.
        numbers.insert(place, orders(&call).await.ok());
        names.insert(place, own);
        names.truncate(limit);
    }
    let known = names.iter().zip(numbers).filter_map(|(name, numbers)| Some((name, numbers?)));
    let items = known.map(|(name, (stats, now))| QueueShape::new(name, stats, now)).collect();
    let next_cursor = names.last().filter(|_| names.len() == limit).map(|name| cursor::of_name(name.as_str()));
    Ok(reply::json(StatusCode::OK, &PageShape { items, next_cursor }))
}

const STATE: Param =
    Param { name: "state", kind: ParamKind::Choice(TaskStateName::NAMES), doc: "Only tasks that stand so." };

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "queues",
        summary: "Schedule a task",
        doc: "It is handed out at its instant, never early, at least once, until somebody acknowledges it. It is durable as far as the \
              store is before it is answered. A change replaces instant and payload, sets `attempt` to 0, revokes the receipt of \
              whoever holds the task, and revives a dead one. A queue begins with its first task.",
        body: BodyRule::Json { shape: &PUT_TASK, max: MAX_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[
            AnswerDoc::json(201, "A new task.", |s| s.of::<ScheduledShape<'_>>()),
            AnswerDoc::json(200, "It was there: replaced, or left as it was.", |s| s.of::<ScheduledShape<'_>>()),
        ],
        problems: &[&c::RESERVED_QUEUE, &c::TOO_MANY_QUEUES],
        ..Route::new(Verb::Put, "/v1/queues/{queue}/tasks/{id}", "scheduleTask", SHOP, run!(put))
    },
    Route {
        tag: "queues",
        summary: "Schedule tasks",
        doc: "Up to 500, in order, durable before the answer; a task that is wrong is a result of its own.",
        body: BodyRule::Json { shape: &PUT_TASK_BATCH, max: MAX_BATCH_BODY, optional: false },
        on_store: true,
        forbids: Some(reserved),
        answers: &[AnswerDoc::json(200, "One result a task, in order; `scheduled` as for one.", |s| {
            s.batch_of_flags("ScheduledTasks", "scheduled")
        })],
        problems: &[&c::RESERVED_QUEUE, &c::TOO_MANY_QUEUES],
        ..Route::new(Verb::Post, "/v1/queues/{queue}/tasks:batch", "scheduleTasks", SHOP, run!(put_many))
    },
    Route {
        tag: "queues",
        summary: "Read a task",
        doc: "As it stands, without its receipt.",
        on_store: true,
        answers: &[AnswerDoc::json(200, "The task.", |s| s.of::<TaskShape<'_>>())],
        problems: &[&c::UNKNOWN_TASK],
        ..Route::new(Verb::Get, "/v1/queues/{queue}/tasks/{id}", "getTask", SHOP, run!(get))
    },
    Route {
        tag: "queues",
        summary: "List tasks",
        doc: "Pending and leased ones by the instant at which they can be handed out next, then id; `state=dead` gives the dead, newest \
              first. A page ends early when its payloads are large. Tasks that move between two pages may be missed or come twice.",
        params: &[STATE, CURSOR, LIMIT],
        on_store: true,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<TaskShape<'_>>("TaskPage"))],
        ..Route::new(Verb::Get, "/v1/queues/{queue}/tasks", "listTasks", SHOP, run!(list))
    },
    Route {
        tag: "queues",
        summary: "Cancel a task",
        doc: "In any state. Whoever holds it has lost it.",
        on_store: true,
        forbids: Some(reserved),
        answers: &[AnswerDoc::nothing(204, "It is gone.")],
        problems: &[&c::RESERVED_QUEUE, &c::UNKNOWN_TASK],
        ..Route::new(Verb::Delete, "/v1/queues/{queue}/tasks/{id}", "cancelTask", SHOP, run!(cancel))
    },
    Route {
        tag: "queues",
        summary: "List queues",
        doc: "In the order of their names; `orders`, the queue of the orders' own deadlines, among them unless its index cannot be read \
              now.",
        params: &[CURSOR, LIMIT],
        on_store: true,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<QueueShape<'_>>("QueuePage"))],
        ..Route::new(Verb::Get, "/v1/queues", "listQueues", SHOP, run!(list_queues))
    },
    Route {
        tag: "queues",
        summary: "Read a queue in numbers",
        doc: "`lag_ms` is what to watch: how late the task is that waits longest. `orders` is the queue of the orders' own deadlines, on \
              the ledger's clock; its dead are the orders on the parked list, counted up to 10,000.",
        on_store: true,
        answers: &[AnswerDoc::json(200, "The queue.", |s| s.of::<QueueShape<'_>>())],
        problems: &[&c::UNKNOWN_QUEUE],
        ..Route::new(Verb::Get, "/v1/queues/{queue}", "getQueue", SHOP, run!(show))
    },
];
