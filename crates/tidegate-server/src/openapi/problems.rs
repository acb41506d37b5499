//! The error answers of a route: those every route of its kind can give, and its own.

use std::collections::BTreeMap;

use utoipa::openapi::ContentBuilder;
use utoipa::openapi::response::{Response, ResponseBuilder};

use super::Schemas;
use crate::access::Access;
use crate::problem::catalogue::{self as c, Kind};
use crate::problem::{MEDIA_TYPE, Problem};
use crate::router::{BodyRule, Route};

/// One answer a status, with the kinds of problem it may carry.
pub(super) fn of(route: &'static Route, schemas: &mut Schemas) -> BTreeMap<u16, Response> {
    let mut kinds: Vec<&'static Kind> = route.problems.to_vec();
    let has_body = matches!(route.body, BodyRule::Json { .. });
    if let Access::Needs(_) = route.access {
        kinds.extend([&c::UNAUTHENTICATED, &c::FORBIDDEN]);
    }
    if !route.any_query {
        kinds.extend([&c::MALFORMED, &c::INVALID]);
        if route.on_store {
            kinds.push(&c::STORE_UNAVAILABLE);
        } else if !route.free_ids {
            kinds.extend([&c::LEDGER_BROKEN, &c::LEDGER_UNAVAILABLE]);
        }
    }
    if has_body {
        kinds.extend([&c::TIMEOUT, &c::TOO_LARGE, &c::UNSUPPORTED_MEDIA_TYPE, &c::OVERLOADED]);
    }
    kinds.extend([&c::FORBIDDEN_ORIGIN, &c::STOPPING]);
    let mut by_status: BTreeMap<u16, Vec<&'static Kind>> = BTreeMap::new();
    for kind in kinds {
        by_status.entry(kind.status).or_default().push(kind);
    }
    by_status.into_iter().map(|(status, kinds)| (status, response(&kinds, schemas))).collect()
}

fn response(kinds: &[&'static Kind], schemas: &mut Schemas) -> Response {
    let told: Vec<String> = kinds.iter().map(|kind| format!("`{}`: {}", kind.code, kind.meaning)).collect();
    let example = kinds.first().and_then(|kind| serde_json::from_slice(&Problem::of(kind).json()).ok());
    let content = ContentBuilder::new().schema(Some(schemas.problem())).example(example).build();
    ResponseBuilder::new().description(told.join("\n\n")).content(MEDIA_TYPE, content).build()
}
