//! A request that has passed access, size and type: what a route works on.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use tidegate::core::{IdempotencyKey, OrderId};

use crate::app::App;
use crate::problem::{self, Problem, catalogue};
use crate::request::json::Node;
use crate::request::query::Query;
use crate::request::{body, headers};
use crate::router::{BodyRule, Route};

/// A request on its way into a route.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) route: &'static Route,
    /// The path's parameters, decoded.
    pub(crate) ids: [String; 2],
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

impl Call {
    /// The path's first parameter.
    pub(crate) fn id(&self) -> &str {
        &self.ids[0]
    }

    /// The request's headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The query, against the parameters the route knows.
    pub(crate) fn query(&self) -> Result<Query<'_>, Problem> {
        Query::read(self.parts.uri.query(), self.route.params)
    }

    /// The body as a tree.
    pub(crate) fn node(&self) -> Result<Node<'_>, Problem> {
        body::parse(&self.body, matches!(self.route.body, BodyRule::Json { optional: true, .. } | BodyRule::None))
    }

    /// The `Idempotency-Key`, if one was sent.
    pub(crate) fn key(&self) -> Result<Option<IdempotencyKey>, Problem> {
        headers::idempotency_key(self.headers())
    }

    /// The `Idempotency-Key` of a call that is not safe to repeat without one.
    pub(crate) fn required_key(&self) -> Result<IdempotencyKey, Problem> {
        self.key()?.ok_or_else(|| {
            Problem::new(
                &catalogue::IDEMPOTENCY_KEY_REQUIRED,
                "Send an Idempotency-Key header, and the same one with every repeat.",
            )
        })
    }

    /// The order a write names.
    pub(crate) fn order_id(&self) -> Result<OrderId, Problem> {
        OrderId::parse(self.id()).map_err(|e| problem::invalid_at("/id", e.to_string()))
    }
}
