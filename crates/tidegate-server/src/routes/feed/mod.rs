//! The feed: pages of a home timeline.
//!
//! - `posts.rs`: posts and reposts. `users.rs`: who follows and blocks whom.
//!
//! The feed's now is the ledger's clock, also under `--manual-clock`.

pub(super) mod posts;
pub(super) mod users;

use http::StatusCode;
use tidegate::feed::{Ask, Feed, FeedError, MAX_PAGE_ITEMS, Order, UserId};

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer};
use crate::request::query::{CURSOR, Param, ParamKind};
use crate::request::{Faults, decode};
use crate::router::{Route, Verb};
use crate::shape::feed::{FeedShape, ItemShape, end_name};

/// Items of a page when the caller names no number.
const DEFAULT_ITEMS: usize = 20;

const SHOP: Access = Access::Needs(Role::Shop);
const READ: Access = Access::Needs(Role::Read);

/// The feed of this server.
fn feed(call: &Call) -> Result<&Feed, Problem> {
    call.app.feed.as_ref().ok_or_else(|| {
        let detail = "This server's ledger has no feed; ask another server.";
        problem::store_unavailable(detail, 60)
    })
}

/// The user of the path; a bad name is a fault among the others.
fn user(call: &Call, faults: &mut Faults) -> Option<UserId> {
    faults.take("/id", UserId::parse(call.id()))
}

/// What a request named, once nothing is wrong with it.
fn sound<T>(value: Option<T>, faults: Faults) -> Result<T, Problem> {
    faults.refuse()?;
    value.ok_or_else(|| Problem::of(&c::INTERNAL))
}

fn instant(text: &str) -> Result<tidegate::core::Millis, &'static str> {
    decode::parse_instant(text).ok_or("must be an instant of RFC 3339, such as 2026-11-29T15:08:10.000Z")
}

fn order(text: &str) -> Result<Order, &'static str> {
    match text {
        "newest" => Ok(Order::Newest),
        "oldest" => Ok(Order::Oldest),
        _ => Err("must be one of newest, oldest"),
    }
}

async fn page(call: Call) -> Answer {
    let ask = {
        let mut query = call.query()?;
        let limit = query.number("limit", MAX_PAGE_ITEMS).unwrap_or(DEFAULT_ITEMS);
        let since = query.parsed("since", instant);
        let until = query.parsed("until", instant);
        let direction = query.parsed("order", order);
        let mut faults = std::mem::take(&mut query.faults);
        if let (Some(since), Some(until)) = (since, until)
            && since >= until
        {
            faults.add("/until", "must be after since");
        }
        let viewer = user(&call, &mut faults);
        let cursor = query.text("cursor").zip(viewer.as_ref());
        let after = cursor.and_then(|(text, viewer)| faults.take("/cursor", call.app.cursors.decode(viewer, text)));
        if let Some(cursor) = &after {
            // A walk keeps what it began with: a page that asks for something else is another walk's.
            let other = |name: &str, is_other: bool, faults: &mut Faults| {
                if is_other {
                    faults.add(
                        format_args!("/{name}"),
                        "is not that of the cursor; leave it out, or begin without a cursor",
                    );
                }
            };
            other("order", direction.is_some_and(|order| order != cursor.order), &mut faults);
            other("since", since.is_some_and(|since| Some(since) != cursor.since), &mut faults);
        }
        let viewer = sound(viewer, faults)?;
        Ask { viewer, order: direction.unwrap_or_default(), since, until, limit, after }
    };
    let page = feed(&call)?.page(&ask).await?;
    let (next_cursor, end) = match &page.next {
        Ok(cursor) => (Some(call.app.cursors.encode(&ask.viewer, cursor)), None),
        Err(end) => (None, Some(end_name(*end))),
    };
    let items = page.items.iter().map(ItemShape::new).collect();
    Ok(reply::json(StatusCode::OK, &FeedShape { items, next_cursor, end }))
}

impl From<FeedError> for Problem {
    fn from(e: FeedError) -> Self {
        match e {
            FeedError::CursorExpired => Problem::of(&c::CURSOR_EXPIRED),
            FeedError::Failed(e) => e.into(),
            // These are judged, field by field, before the library is asked.
            FeedError::Invalid(why) => problem::invalid_at("", why),
            other => {
                tracing::error!(error = %other, "the feed answered with an error no request should meet");
                Problem::of(&c::INTERNAL)
            }
        }
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "limit",
        kind: ParamKind::Number { max: MAX_PAGE_ITEMS, default: DEFAULT_ITEMS },
        doc: "Most items of the page.",
    },
    CURSOR,
    Param {
        name: "since",
        kind: ParamKind::Text,
        doc: "Nothing before this instant (RFC 3339); cut to what a feed shows, the last seven days unless feed.window says less.",
    },
    Param {
        name: "until",
        kind: ParamKind::Text,
        doc: "Nothing at this instant or after it (RFC 3339). Beside a cursor it is ignored: the walk keeps the end that it began with.",
    },
    Param {
        name: "order",
        kind: ParamKind::Choice(&["newest", "oldest"]),
        doc: "From the newest back (default), or from the oldest on.",
    },
];

pub(super) static ROUTES: &[Route] = &[Route {
    tag: "feed",
    summary: "Read a user's feed",
    doc: "What those whom the user follows, and the user, published or showed again in the last seven days (or what feed.window says). Each post once, at its \
          newest reason. A page is full unless the end is reached.",
    params: PARAMS,
    answers: &[AnswerDoc::json(200, "A page.", |s| s.of::<FeedShape<'_>>())],
    problems: &[&c::CURSOR_EXPIRED, &c::STORE_UNAVAILABLE],
    ..Route::new(Verb::Get, "/v1/users/{id}/feed", "readFeed", READ, run!(page))
}];
