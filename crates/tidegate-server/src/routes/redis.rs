//! What the watch over Redis has seen, and looks at what lies there.

use http::StatusCode;
use tidegate::Page;
use tidegate::big_keys::{MAX_TOP, Route as By};
use tidegate::core::Millis;
use tidegate::watch::Finding;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{Problem, catalogue as c, invalid_at};
use crate::redis::Redis;
use crate::reply::{self, Answer};
use crate::request::bodies_of_products::BIG_KEYS;
use crate::request::query::{CURSOR, LIMIT, Param, ParamKind};
use crate::request::{Faults, Fields, Pointer, cursor};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::hot_keys::HotKeysShape;
use crate::shape::page;
use crate::shape::redis::{BigKeysShape, FindingShape, MemoriesShape, ScanShape};

/// Keys that are listed when the caller names no number.
const TOP: i64 = 100;
/// What the cursors of the two lists begin with.
const OPEN_LIST: char = 'o';
const CLOSED_LIST: char = 'c';

const OPS: Access = Access::Needs(Role::Ops);
const STATE: Param = Param {
    name: "state",
    kind: ParamKind::Choice(&["open", "closed"]),
    doc: "Which findings; those that are open unless set.",
};

fn redis(call: &Call) -> Result<&Redis, Problem> {
    call.app.redis.as_ref().ok_or_else(|| Problem::of(&c::NO_REDIS))
}

async fn memory(call: Call) -> Answer {
    let servers = redis(&call)?.watch.memory();
    Ok(reply::json(StatusCode::OK, &MemoriesShape::new(&servers)))
}

async fn findings(call: Call) -> Answer {
    let mut query = call.query()?;
    let is_closed = query.parsed("state", |text| match text {
        "open" => Ok(false),
        "closed" => Ok(true),
        _ => Err("must be open or closed"),
    });
    let is_closed = is_closed.unwrap_or(false);
    let list = if is_closed { CLOSED_LIST } else { OPEN_LIST };
    let limit = query.limit();
    let after = query.parsed("cursor", |text| cursor::point(list, text));
    query.faults.refuse()?;
    let watch = &redis(&call)?.watch;
    let all = if is_closed { watch.closed() } else { watch.findings() };
    Ok(page::list(&paged(all, list, after, limit), FindingShape::new))
}

/// The page after `after`, the newest first.
fn paged(mut all: Vec<Finding>, list: char, after: Option<(Millis, String)>, limit: usize) -> Page<Finding> {
    let place = |finding: &Finding| (finding.closed_at.unwrap_or(finding.opened_at), finding.id.clone());
    all.sort_by_cached_key(|finding| std::cmp::Reverse(place(finding)));
    if let Some(after) = after {
        all.retain(|finding| place(finding) < after);
    }
    let more = all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| more).map(|last| {
        let (at, id) = place(last);
        cursor::of_point(list, at, &id)
    });
    Page { items: all, next }
}

async fn begin(call: Call) -> Answer {
    let (by, top) = {
        let node = call.node()?;
        let mut faults = Faults::default();
        let fields = Fields::open(&node, &BIG_KEYS, &Pointer::Root, &mut faults);
        let by = match fields.choice("route", &mut faults) {
            Some("snapshot") => By::Snapshot,
            Some("scan") => By::Scan,
            Some("keysizes") => By::KeySizes,
            _ => By::Auto,
        };
        let top = fields.ranged("top", &mut faults).unwrap_or(TOP);
        faults.refuse()?;
        (by, usize::try_from(top).unwrap_or(MAX_TOP))
    };
    redis(&call)?.allow(by).await.map_err(|e| match e {
        tidegate::Error::Configuration(why) => invalid_at("/route", why),
        e => e.into(),
    })?;
    let id = redis(&call)?.begin(by, top, call.app.stopped());
    let id = id.ok_or_else(|| Problem::of(&c::SCAN_RUNNING))?;
    Ok(reply::json(StatusCode::ACCEPTED, &ScanShape { scan_id: id.to_string() }))
}

async fn big_keys(call: Call) -> Answer {
    Ok(redis(&call)?.scan(|scan| reply::json(StatusCode::OK, &BigKeysShape::new(scan))))
}

async fn hot_keys(call: Call) -> Answer {
    let report = redis(&call)?.hot_keys().await.map_err(|e| {
        let detail = format!("A watched server cannot be asked which keys are hot: {e}.");
        Problem::new(&c::STORE_UNAVAILABLE, detail).retry_after(2)
    })?;
    Ok(reply::json(StatusCode::OK, &HotKeysShape::new(&report)))
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "redis",
        summary: "Memory of the watched servers",
        doc: "As each said it last. Watched are the servers of `watch.redis`, or the store's. What is not permitted or unknown is null.",
        answers: &[AnswerDoc::json(200, "The servers.", |s| s.of::<MemoriesShape<'_>>())],
        problems: &[&c::NO_REDIS],
        ..Route::new(Verb::Get, "/v1/redis/memory", "getRedisMemory", OPS, run!(memory))
    },
    Route {
        tag: "redis",
        summary: "What is wrong with the watched servers, or was",
        doc: "The newest first. Of those that are closed the last thousand since the start of this process.",
        params: &[STATE, CURSOR, LIMIT],
        answers: &[AnswerDoc::json(200, "A page.", |s| s.page::<FindingShape<'_>>("FindingPage"))],
        problems: &[&c::NO_REDIS],
        ..Route::new(Verb::Get, "/v1/redis/findings", "listRedisFindings", OPS, run!(findings))
    },
    Route {
        tag: "redis",
        summary: "Begin to look for the keys that take the most memory",
        doc: "At every key of every watched server, gently, for ten minutes at most; one look at a time in a process. It ends with the server.",
        body: BodyRule::Json { shape: &BIG_KEYS, max: MAX_BODY, optional: true },
        answers: &[AnswerDoc::json(202, "It has begun; `GET` shows how far it is.", |s| s.of::<ScanShape>())],
        problems: &[&c::NO_REDIS, &c::SCAN_RUNNING, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Post, "/v1/redis/big-keys", "beginBigKeys", OPS, run!(begin))
    },
    Route {
        tag: "redis",
        summary: "The keys that take the most memory",
        doc: "What the last look of this process found, or how far it is.",
        answers: &[AnswerDoc::json(200, "The look.", |s| s.of::<BigKeysShape>())],
        problems: &[&c::NO_REDIS],
        ..Route::new(Verb::Get, "/v1/redis/big-keys", "getBigKeys", OPS, run!(big_keys))
    },
    Route {
        tag: "redis",
        summary: "The keys that were read most in the last seconds",
        doc: "Told by the processes that use the cache on the watched servers, copies in process included. Servers that count \
              themselves (Redis 8.6 and newer, experimental) are watched for ten seconds before this is answered.",
        answers: &[AnswerDoc::json(200, "The hottest 20.", |s| s.of::<HotKeysShape>())],
        problems: &[&c::NO_REDIS, &c::STORE_UNAVAILABLE],
        ..Route::new(Verb::Get, "/v1/redis/hot-keys", "getHotKeys", OPS, run!(hot_keys))
    },
];
