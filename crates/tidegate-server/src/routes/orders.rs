//! Orders: place, read, list, cancel, extend, fulfil, their events. Payments are beside, in [`super::payments`].

use http::StatusCode;
use tidegate::core::command::{Cancel, Extend, Place};
use tidegate::core::request::{PlaceRequest, check_cancel, check_extend};
use tidegate::core::{BuyerId, IdempotencyKey, Order, OrderId, SkuId};
use tidegate::{Cancelled, Error, OrderFilter, Orders, Placed};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies::{CANCEL, EXTEND, LINE, NOTHING, PLACE, PLACE_BATCH};
use crate::request::json::Node;
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind};
use crate::request::{Faults, Fields, Pointer, decode, path};
use crate::router::{BodyRule, MAX_BATCH_BODY, MAX_BODY, Route, Verb};
use crate::shape::event::EventShape;
use crate::shape::names::{FromName, StatusName};
use crate::shape::order::{OrderShape, TombstoneShape};
use crate::shape::page::{self, BatchItem};

async fn place(call: Call) -> Answer {
    let command = {
        let node = call.node()?;
        place_command(&call.app.orders, &node, call.key()?)?
    };
    let Placed { order, replayed } = call.app.orders.place(command).await?;
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    let response = reply::etag(reply::json(status, &OrderShape::new(&order)), order.state.version);
    let response = reply::location(response, &format!("/v1/orders/{}", path::encode(order.id.as_str())));
    Ok(reply::replayed(response, replayed))
}

/// The command a body stands for, with every fault of the body noted.
fn place_command(orders: &Orders, node: &Node<'_>, key: Option<IdempotencyKey>) -> Result<Place, Problem> {
    let (root, mut faults) = (Pointer::Root, Faults::default());
    let fields = Fields::open(node, &PLACE, &root, &mut faults);
    if key.is_none() && matches!(node, Node::Object(_)) && fields.node("order_id").is_none() {
        let detail = "Send an order_id of your choice in the body or an Idempotency-Key header, and the same one with every repeat.";
        return Err(Problem::new(&c::IDEMPOTENCY_KEY_REQUIRED, detail));
    }
    let lines_at = fields.at("lines");
    let lines = fields.list("lines", &mut faults).unwrap_or_default();
    let request = PlaceRequest {
        order_id: fields.text("order_id", &mut faults).map(str::to_owned),
        key,
        buyer_id: fields.text("buyer_id", &mut faults).unwrap_or_default().to_owned(),
        lines: lines.iter().enumerate().map(|(i, line)| place_line(line, &lines_at.item(i), &mut faults)).collect(),
        hold_seconds: fields.integer("hold_seconds", &mut faults),
        supersedes: fields.text("supersedes", &mut faults).map(str::to_owned),
        metadata: fields.node("metadata").map(|node| decode::json(node, &fields.at("metadata"), &mut faults)),
    };
    match orders.check(request) {
        Err(Error::Invalid(found)) => super::judged(Err(found), faults),
        Err(other) => Err(other.into()),
        Ok(place) => super::judged(Ok(place), faults),
    }
}

fn place_line(line: &Node<'_>, pointer: &Pointer<'_>, faults: &mut Faults) -> (String, i64) {
    let fields = Fields::open(line, &LINE, pointer, faults);
    let sku = fields.text("sku", faults).unwrap_or_default().to_owned();
    (sku, fields.integer("quantity", faults).unwrap_or(0))
}

async fn place_many(call: Call) -> Answer {
    let commands: Vec<Result<Place, Problem>> = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &PLACE_BATCH, &root, &mut faults);
        let orders = fields.list("orders", &mut faults).unwrap_or_default();
        faults.refuse()?;
        orders.iter().map(|order| place_command(&call.app.orders, order, None)).collect()
    };
    let (mut sound, mut slots) = (Vec::with_capacity(commands.len()), Vec::with_capacity(commands.len()));
    for command in commands {
        slots.push(command.map(|place| sound.push(place)));
    }
    let mut placed = call.app.orders.place_many(sound).await.into_iter();
    let answers: Vec<Result<Placed, Problem>> = slots
        .into_iter()
        .map(|slot| {
            slot.and_then(|()| {
                placed.next().map_or(Err(Problem::of(&c::INTERNAL)), |answer| answer.map_err(Problem::from))
            })
        })
        .collect();
    let results = answers.iter().map(|answer| BatchItem {
        name: "order",
        answer: answer.as_ref().map(|placed| (if placed.replayed { 200 } else { 201 }, OrderShape::new(&placed.order))),
    });
    Ok(page::batch(results.collect()))
}

fn shown(order: &Order) -> Answer {
    Ok(reply::etag(reply::json(StatusCode::OK, &OrderShape::new(order)), order.state.version))
}

async fn get(call: Call) -> Answer {
    let Ok(id) = OrderId::parse(call.id()) else { return Err(problem::unknown_order(call.id())) };
    match call.app.orders.get(id).await? {
        Some(order) => shown(&order),
        None => Err(problem::unknown_order(call.id())),
    }
}

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let filter = OrderFilter {
        status: query.parsed("status", StatusName::parse),
        buyer_id: query.parsed("buyer_id", BuyerId::parse),
        sku: query.parsed("sku", SkuId::parse),
    };
    let page = call.app.orders.list(filter, super::page(query)?).await?;
    Ok(page::list(&page, OrderShape::new))
}

async fn cancel(call: Call) -> Answer {
    let command = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &CANCEL, &root, &mut faults);
        let reason = fields.text("reason", &mut faults).map(str::to_owned);
        let restock = fields.flag("restock", &mut faults).unwrap_or(true);
        super::named(OrderId::parse(call.id()), "/id", faults, |order_id| {
            check_cancel(Cancel { order_id, reason, restock })
        })?
    };
    match call.app.orders.cancel(command).await? {
        Cancelled::Order(order) => shown(&order),
        Cancelled::Tombstone(id) => Ok(reply::json(StatusCode::ACCEPTED, &TombstoneShape::new(id.as_str()))),
    }
}

async fn extend(call: Call) -> Answer {
    let command = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &EXTEND, &root, &mut faults);
        let hold_seconds = fields.integer("hold_seconds", &mut faults).unwrap_or(0);
        super::named(OrderId::parse(call.id()), "/id", faults, |order_id| {
            check_extend(Extend { order_id, hold_seconds })
        })?
    };
    shown(&call.app.orders.extend(command).await?)
}

async fn fulfil(call: Call) -> Answer {
    super::nothing(&call)?;
    shown(&call.app.orders.fulfil(call.order_id()?).await?)
}

async fn events(call: Call) -> Answer {
    let page = super::page(call.query()?)?;
    let Ok(id) = OrderId::parse(call.id()) else { return Err(problem::unknown_order(call.id())) };
    match call.app.orders.events(id, page).await? {
        Some(page) => Ok(page::list(&page, EventShape::new)),
        None => Err(problem::unknown_order(call.id())),
    }
}

const SHOP: Access = Access::Needs(Role::Shop);
const READ: Access = Access::Needs(Role::Read);

const FILTERS: &[Param] = &[
    Param { name: "status", kind: ParamKind::Choice(StatusName::NAMES), doc: "Only orders in this status." },
    Param { name: "buyer_id", kind: ParamKind::Text, doc: "Only orders of this buyer." },
    Param { name: "sku", kind: ParamKind::Text, doc: "Only orders with this SKU." },
    CURSOR,
    LIMIT,
];

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "orders",
        summary: "Place an order",
        doc: "Holds its stock, all lines or none, until it is paid or its deadline passes. Repeating it with the same `order_id` or \
              `Idempotency-Key` and the same body answers with the order as it is now.",
        body: BodyRule::Json { shape: &PLACE, max: MAX_BODY, optional: false },
        takes_key: true,
        answers: &[
            AnswerDoc::json(201, "Placed; its stock is held, durably.", |s| s.of::<OrderShape<'_>>())
                .with(&["Location", "ETag"]),
            AnswerDoc::json(200, "Placed before by the same request.", |s| s.of::<OrderShape<'_>>()).with(&[
                "Location",
                "ETag",
                "Idempotent-Replayed",
            ]),
        ],
        problems: &[
            &c::IDEMPOTENCY_KEY_REQUIRED,
            &c::IDEMPOTENCY_MISMATCH,
            &c::ALREADY_CANCELLED,
            &c::UNKNOWN_ORDER,
            &c::UNKNOWN_SKU,
            &c::ARCHIVED,
            &c::NOT_ON_SALE,
            &c::LIMIT_REACHED,
            &c::INSUFFICIENT_STOCK,
            &c::ILLEGAL_TRANSITION,
        ],
        ..Route::new(Verb::Post, "/v1/orders", "placeOrder", SHOP, run!(place))
    },
    Route {
        tag: "orders",
        summary: "Place up to 500 orders",
        doc: "Each order stands alone and needs its own `order_id`; results come in the order of the request, and the pointers of a \
              refused one start at the order.",
        body: BodyRule::Json { shape: &PLACE_BATCH, max: MAX_BATCH_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "One result an order.", |s| {
            s.batch::<OrderShape<'_>>("OrderResults", "order")
        })],
        ..Route::new(Verb::Post, "/v1/orders:batch", "placeOrders", SHOP, run!(place_many))
    },
    Route {
        tag: "orders",
        summary: "List orders",
        doc: "Newest first.",
        params: FILTERS,
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<OrderShape<'_>>("OrderPage"))],
        ..Route::new(Verb::Get, "/v1/orders", "listOrders", READ, run!(list))
    },
    Route {
        tag: "orders",
        summary: "Read an order",
        doc: "With all its payments.",
        answers: &[AnswerDoc::json(200, "The order as it is now.", |s| s.of::<OrderShape<'_>>()).with(&["ETag"])],
        problems: &[&c::UNKNOWN_ORDER],
        ..Route::new(Verb::Get, "/v1/orders/{id}", "getOrder", READ, run!(get))
    },
    Route {
        tag: "orders",
        summary: "Cancel an order",
        doc: "Gives its stock back and makes its payments due back. An id that no order has yet is taken out of use.",
        body: BodyRule::Json { shape: &CANCEL, max: MAX_BODY, optional: true },
        answers: &[
            AnswerDoc::json(200, "Cancelled, now or before.", |s| s.of::<OrderShape<'_>>()).with(&["ETag"]),
            AnswerDoc::json(
                202,
                "No order has this id yet; none can be placed under it for a week (by default).",
                |s| s.of::<TombstoneShape<'_>>(),
            ),
        ],
        problems: &[&c::ILLEGAL_TRANSITION],
        ..Route::new(Verb::Post, "/v1/orders/{id}/cancel", "cancelOrder", SHOP, run!(cancel))
    },
    Route {
        tag: "orders",
        summary: "Extend an order's hold",
        doc: "Moves its deadline to now plus `hold_seconds`; never earlier than it is.",
        body: BodyRule::Json { shape: &EXTEND, max: MAX_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "The order with its deadline.", |s| s.of::<OrderShape<'_>>()).with(&["ETag"])],
        problems: &[&c::UNKNOWN_ORDER, &c::ILLEGAL_TRANSITION, &c::HOLD_CAP_EXCEEDED],
        ..Route::new(Verb::Post, "/v1/orders/{id}/extend", "extendOrder", SHOP, run!(extend))
    },
    Route {
        tag: "orders",
        summary: "Report that a paid order has left the house",
        doc: "Its units leave the stock. Final.",
        body: BodyRule::Json { shape: &NOTHING, max: MAX_BODY, optional: true },
        answers: &[AnswerDoc::json(200, "Fulfilled, now or before.", |s| s.of::<OrderShape<'_>>()).with(&["ETag"])],
        problems: &[&c::UNKNOWN_ORDER, &c::ILLEGAL_TRANSITION],
        ..Route::new(Verb::Post, "/v1/orders/{id}/fulfil", "fulfilOrder", SHOP, run!(fulfil))
    },
    Route {
        tag: "orders",
        summary: "Read an order's history",
        doc: "Oldest first.",
        params: &[CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<EventShape<'_>>("EventPage"))],
        problems: &[&c::UNKNOWN_ORDER],
        ..Route::new(Verb::Get, "/v1/orders/{id}/events", "listOrderEvents", READ, run!(events))
    },
];
