//! SKUs: cards, counts, adjustments, the stock ledger.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};
use tidegate::core::command::{Adjust, PutSku};
use tidegate::core::request::{attributes, check_adjust, check_put};
use tidegate::core::{Currency, Money, Patch, Settings, Sku, SkuId, SkuPatch};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::bodies::{ADJUST, MONEY, PUT_SKU, PUT_SKU_BATCH, PUT_SKU_ITEM};
use crate::request::headers::{IfMatch, if_match};
use crate::request::json::Node;
use crate::request::query::{CURSOR, LIMIT};
use crate::request::{Faults, Fields, Pointer, decode};
use crate::router::{BodyRule, MAX_BATCH_BODY, MAX_BODY, Route, Verb};
use crate::shape::page::{self, BatchItem};
use crate::shape::sku::{AdjustmentShape, SkuShape, StockChangeShape};

fn shown(status: StatusCode, sku: &Sku) -> Answer {
    Ok(reply::etag(reply::json(status, &SkuShape::new(sku)), sku.version))
}

/// Says on an answer that pages may be old yet.
const X_CACHE_INVALIDATION: HeaderName = HeaderName::from_static("x-cache-invalidation");
/// How long an answer waits until this server's pages show what it changed.
const SETTLES_WITHIN: Duration = Duration::from_millis(100);

/// `answer`, once this server's product pages show what was changed; if that takes longer the answer says so.
async fn settled<'a>(call: &Call, changed: impl Iterator<Item = &'a SkuId>, answer: Answer) -> Answer {
    let mut response = answer?;
    let settling = async {
        for sku in changed {
            // The time limit around it decides.
            call.app.products.settled(sku, 2 * SETTLES_WITHIN).await;
        }
    };
    if tokio::time::timeout(SETTLES_WITHIN, settling).await.is_err() {
        response.headers_mut().insert(X_CACHE_INVALIDATION, HeaderValue::from_static("pending"));
    }
    Ok(response)
}

async fn put(call: Call) -> Answer {
    let mut command = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &PUT_SKU, &root, &mut faults);
        let sku = SkuId::parse(call.id());
        put_command(sku, &fields, faults, call.app.tidegate.settings())?
    };
    match if_match(call.headers())? {
        IfMatch::Any => {}
        IfMatch::Version(version) => command.if_version = Some(version),
        // A SKU is never deleted: one that exists now exists when the command is decided.
        IfMatch::Exists if call.app.catalog.get(command.sku.clone()).await?.is_some() => {}
        IfMatch::Exists | IfMatch::Never => return Err(stale(command.sku)),
    }
    let (sku, created) = call.app.catalog.put(command).await?;
    let answer = shown(if created { StatusCode::CREATED } else { StatusCode::OK }, &sku);
    settled(&call, std::iter::once(&sku.id), answer).await
}

fn stale(sku: SkuId) -> Problem {
    let detail =
        "The SKU's version is not the one in If-Match; read the SKU again, decide again, and send its present ETag.";
    Problem::new(&c::STALE, detail).sku(sku)
}

/// The command a card stands for, with every fault noted.
fn put_command(
    sku: Result<SkuId, impl std::fmt::Display>,
    fields: &Fields<'_, '_, '_>,
    mut faults: Faults,
    settings: &Settings,
) -> Result<PutSku, Problem> {
    let patch = SkuPatch {
        title: fields.patch("title", &mut faults, |node| decode::text(node).map(str::to_owned)),
        price: price(fields, &mut faults),
        attributes: attributes_patch(fields, &mut faults),
        hold_seconds: fields.patch("hold_seconds", &mut faults, decode::integer),
        max_per_order: fields.patch("max_per_order", &mut faults, decode::integer),
        max_per_buyer: fields.patch("max_per_buyer", &mut faults, decode::integer),
        on_sale_from: fields.patch("on_sale_from", &mut faults, decode::instant),
    };
    let on_hand = fields.integer("on_hand", &mut faults);
    super::named(sku, "/sku", faults, |sku| check_put(PutSku { sku, patch, on_hand, if_version: None }, settings))
}

fn price(fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Patch<Money> {
    let at = fields.at("price");
    let mut found = Faults::default();
    let patch = fields.patch("price", faults, |node| {
        let money = Fields::open(node, &MONEY, &at, &mut found);
        let amount = money.integer("amount", &mut found);
        let currency = money.text("currency", &mut found);
        let currency = currency.and_then(|code| found.take(money.at("currency"), Currency::try_from(code.to_owned())));
        // What is wrong with it has been noted; a placeholder keeps it from being noted twice.
        Some(amount.zip(currency).map(|(amount, currency)| Money { amount, currency }))
    });
    faults.absorb(found);
    match patch {
        Patch::Set(Some(money)) => Patch::Set(money),
        Patch::Clear => Patch::Clear,
        Patch::Keep | Patch::Set(None) => Patch::Keep,
    }
}

fn attributes_patch(fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Patch<tidegate::core::JsonObject> {
    let at = fields.at("attributes");
    let mut found = Faults::default();
    let patch = fields.patch("attributes", faults, |node| {
        let value = decode::json(node, &at, &mut found);
        Some(found.take(at, attributes(&value)))
    });
    faults.absorb(found);
    match patch {
        Patch::Set(Some(object)) => Patch::Set(object),
        Patch::Clear => Patch::Clear,
        Patch::Keep | Patch::Set(None) => Patch::Keep,
    }
}

async fn put_many(call: Call) -> Answer {
    let commands: Vec<Result<PutSku, Problem>> = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &PUT_SKU_BATCH, &root, &mut faults);
        let skus = fields.list("skus", &mut faults).unwrap_or_default();
        faults.refuse()?;
        skus.iter().map(|item| put_item(item, call.app.tidegate.settings())).collect()
    };
    let (mut sound, mut slots) = (Vec::with_capacity(commands.len()), Vec::with_capacity(commands.len()));
    for command in commands {
        slots.push(command.map(|put| sound.push(put)));
    }
    let mut decided = call.app.catalog.put_many(sound).await.into_iter();
    let answers: Vec<Result<(Sku, bool), Problem>> = slots
        .into_iter()
        .map(|slot| {
            slot.and_then(|()| {
                decided.next().map_or(Err(Problem::of(&c::INTERNAL)), |answer| answer.map_err(Problem::from))
            })
        })
        .collect();
    let results = answers.iter().map(|answer| BatchItem {
        name: "sku",
        answer: answer.as_ref().map(|(sku, created)| (if *created { 201 } else { 200 }, SkuShape::new(sku))),
    });
    let answer = Ok(page::batch(results.collect()));
    settled(&call, answers.iter().flatten().map(|(sku, _)| &sku.id), answer).await
}

fn put_item(item: &Node<'_>, settings: &Settings) -> Result<PutSku, Problem> {
    let (root, mut faults) = (Pointer::Root, Faults::default());
    let fields = Fields::open(item, &PUT_SKU_ITEM, &root, &mut faults);
    let sku = fields.text("sku", &mut faults).unwrap_or_default();
    put_command(SkuId::parse(sku), &fields, faults, settings)
}

async fn get(call: Call) -> Answer {
    let Ok(id) = SkuId::parse(call.id()) else { return Err(problem::unknown_sku(call.id())) };
    match call.app.catalog.get(id).await? {
        Some(sku) => shown(StatusCode::OK, &sku),
        None => Err(problem::unknown_sku(call.id())),
    }
}

async fn list(call: Call) -> Answer {
    let page = call.app.catalog.list(super::page(call.query()?)?).await?;
    Ok(page::list(&page, SkuShape::new))
}

async fn adjust(call: Call) -> Answer {
    let key = call.required_key()?;
    let command = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        let fields = Fields::open(&node, &ADJUST, &root, &mut faults);
        let delta = fields.integer("delta", &mut faults).unwrap_or(0);
        let reason = fields.text("reason", &mut faults).unwrap_or_default().to_owned();
        super::named(SkuId::parse(call.id()), "/sku", faults, |sku| check_adjust(Adjust { sku, delta, reason, key }))?
    };
    let (delta, reason) = (command.delta, command.reason.clone());
    let (sku, replayed) = call.app.catalog.adjust(command).await?;
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    let shape = AdjustmentShape { delta, reason: &reason, sku: SkuShape::new(&sku) };
    Ok(reply::replayed(reply::json(status, &shape), replayed))
}

async fn changes(call: Call) -> Answer {
    let page = super::page(call.query()?)?;
    let Ok(id) = SkuId::parse(call.id()) else { return Err(problem::unknown_sku(call.id())) };
    match call.app.catalog.changes(id, page).await? {
        Some(page) => Ok(page::list(&page, StockChangeShape::new)),
        None => Err(problem::unknown_sku(call.id())),
    }
}

async fn archive(call: Call) -> Answer {
    let Ok(id) = SkuId::parse(call.id()) else { return Err(problem::unknown_sku(call.id())) };
    let sku = call.app.catalog.archive(id).await?;
    settled(&call, std::iter::once(&sku.id), Ok(reply::no_content())).await
}

const OPS: Access = Access::Needs(Role::Ops);
const READ: Access = Access::Needs(Role::Read);

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "stock",
        summary: "Create or change a SKU",
        doc: "A field left out is unchanged, null clears it; an archived SKU is revived. `If-Match` is optional.",
        body: BodyRule::Json { shape: &PUT_SKU, max: MAX_BODY, optional: false },
        answers: &[
            AnswerDoc::json(201, "Created.", |s| s.of::<SkuShape<'_>>()).with(&["ETag", "X-Cache-Invalidation"]),
            AnswerDoc::json(200, "Changed.", |s| s.of::<SkuShape<'_>>()).with(&["ETag", "X-Cache-Invalidation"]),
        ],
        problems: &[&c::STOCK_EXISTS, &c::STALE],
        ..Route::new(Verb::Put, "/v1/skus/{sku}", "putSku", OPS, run!(put))
    },
    Route {
        tag: "stock",
        summary: "Create or change up to 1,000 SKUs",
        doc: "Each stands alone; results come in the order of the request.",
        body: BodyRule::Json { shape: &PUT_SKU_BATCH, max: MAX_BATCH_BODY, optional: false },
        answers: &[AnswerDoc::json(200, "One result a SKU.", |s| s.batch::<SkuShape<'_>>("SkuResults", "sku"))
            .with(&["X-Cache-Invalidation"])],
        ..Route::new(Verb::Post, "/v1/skus:batch", "putSkus", OPS, run!(put_many))
    },
    Route {
        tag: "stock",
        summary: "List SKUs",
        doc: "Newest first.",
        params: &[CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<SkuShape<'_>>("SkuPage"))],
        ..Route::new(Verb::Get, "/v1/skus", "listSkus", READ, run!(list))
    },
    Route {
        tag: "stock",
        summary: "Read a SKU",
        doc: "Straight from the ledger.",
        answers: &[AnswerDoc::json(200, "The SKU as it is now.", |s| s.of::<SkuShape<'_>>()).with(&["ETag"])],
        problems: &[&c::UNKNOWN_SKU],
        ..Route::new(Verb::Get, "/v1/skus/{sku}", "getSku", READ, run!(get))
    },
    Route {
        tag: "stock",
        summary: "Archive a SKU",
        doc: "No new orders; those that hold it live on.",
        answers: &[AnswerDoc::nothing(204, "Archived, now or before.").with(&["X-Cache-Invalidation"])],
        problems: &[&c::UNKNOWN_SKU],
        ..Route::new(Verb::Delete, "/v1/skus/{sku}", "archiveSku", OPS, run!(archive))
    },
    Route {
        tag: "stock",
        summary: "Count stock by hand",
        doc: "Changes `on_hand` by `delta`. `Idempotency-Key` is required.",
        body: BodyRule::Json { shape: &ADJUST, max: MAX_BODY, optional: false },
        takes_key: true,
        answers: &[
            AnswerDoc::json(201, "Counted.", |s| s.of::<AdjustmentShape<'_>>()),
            AnswerDoc::json(200, "Counted before by the same request.", |s| s.of::<AdjustmentShape<'_>>())
                .with(&["Idempotent-Replayed"]),
        ],
        problems: &[&c::IDEMPOTENCY_KEY_REQUIRED, &c::UNKNOWN_SKU, &c::BELOW_COMMITTED, &c::IDEMPOTENCY_MISMATCH],
        ..Route::new(Verb::Post, "/v1/skus/{sku}/adjustments", "adjustStock", OPS, run!(adjust))
    },
    Route {
        tag: "stock",
        summary: "Read a SKU's stock ledger",
        doc: "Every change of its counts, oldest first.",
        params: &[CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<StockChangeShape<'_>>("StockChangePage"))],
        problems: &[&c::UNKNOWN_SKU],
        ..Route::new(Verb::Get, "/v1/skus/{sku}/ledger", "listStockChanges", READ, run!(changes))
    },
];
