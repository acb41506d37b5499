//! Problem documents (RFC 9457): every error of every layer is one.
//!
//! - [`catalogue`] lists every kind, with its status and meaning.
//! - [`from_library`] says what becomes of the library's errors.
//! - [`page`] makes `/problems/{code}`.

pub mod catalogue;
mod from_library;
pub(crate) mod page;

use std::borrow::Cow;

use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde::Serialize;
use tidegate::core::{FieldError, OrderId, SkuId};
use utoipa::ToSchema;

use crate::reply::{self, Body};
use catalogue::Kind;
pub(crate) use from_library::{given_up, reserved_queue, stopping, store_unavailable, whole_seconds};

/// The media type of every error.
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    kind: &'static Kind,
    detail: Cow<'static, str>,
    sku: Option<SkuId>,
    available: Option<i64>,
    limit: Option<i64>,
    already: Option<i64>,
    order_id: Option<OrderId>,
    retry_after_ms: Option<i64>,
    errors: Vec<FieldError>,
    reasons: Option<Vec<String>>,
    retry_after: Option<u32>,
    allow: Option<HeaderValue>,
    header: Option<(HeaderName, HeaderValue)>,
}

/// A problem document of RFC 9457.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemShape<'a> {
    /// The problem's page on this server.
    #[serde(rename = "type")]
    #[schema(example = "/problems/insufficient-stock")]
    type_: Type,
    /// What it is, in a few words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, example = 409)]
    status: u16,
    /// What happened and what to do next.
    detail: &'a str,
    /// The stable name to program against.
    #[schema(example = "insufficient-stock")]
    code: &'static str,
    /// Whether the same request may succeed later without any change.
    retryable: bool,
    /// The SKU it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    sku: Option<&'a str>,
    /// Units of the SKU that are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<i64>,
    /// The limit that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<i64>,
    /// Units that count against the limit already.
    #[serde(skip_serializing_if = "Option::is_none")]
    already: Option<i64>,
    /// The order it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    order_id: Option<&'a str>,
    /// What is left of the holder's time, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<i64>,
    /// The fields that are wrong, at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<FaultShape<'a>>>,
    /// Why the server is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<&'a [String]>,
}

/// `/problems/` and the code, written without an allocation.
struct Type(&'static str);

impl Serialize for Type {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("/problems/{}", self.0))
    }
}

impl utoipa::PartialSchema for Type {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        <String as utoipa::PartialSchema>::schema()
    }
}
impl ToSchema for Type {}

/// A field that is wrong.
#[derive(Serialize, ToSchema)]
#[schema(as = Fault)]
pub(crate) struct FaultShape<'a> {
    /// JSON pointer (RFC 6901) to the field; a query parameter or header is named as if it were a member of the body.
    #[schema(example = "/lines/0/quantity")]
    pointer: &'a str,
    /// What the field must be.
    detail: &'a str,
}

impl Problem {
    /// A problem of `kind`; `detail` is a sentence that says what to do next.
    pub(crate) fn new(kind: &'static Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Parts {
            kind,
            detail: detail.into(),
            sku: None,
            available: None,
            limit: None,
            already: None,
            order_id: None,
            retry_after_ms: None,
            errors: Vec::new(),
            reasons: None,
            retry_after: None,
            allow: None,
            header: None,
        }))
    }

    /// A problem of `kind` with the catalogue's own words.
    pub(crate) fn of(kind: &'static Kind) -> Self {
        Self::new(kind, kind.remedy)
    }

    /// The same, to be tried again after this many seconds.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    /// The same, about this SKU.
    pub(crate) fn sku(mut self, sku: SkuId) -> Self {
        self.0.sku = Some(sku);
        self
    }

    /// The same, about this order.
    pub(crate) fn order(mut self, order: OrderId) -> Self {
        self.0.order_id = Some(order);
        self
    }

    /// The same, with what is left of a lock holder's time.
    pub(crate) fn retry_after_ms(mut self, ms: i64) -> Self {
        self.0.retry_after_ms = Some(ms);
        self
    }

    /// The same, with the methods the address knows.
    pub(crate) fn allow(mut self, methods: HeaderValue) -> Self {
        self.0.allow = Some(methods);
        self
    }

    /// The same, with a header of the route's own.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// The same, with why the server is not ready.
    pub(crate) fn reasons(mut self, reasons: Vec<String>) -> Self {
        self.0.reasons = Some(reasons);
        self
    }

    /// The status it is answered with.
    pub(crate) fn status(&self) -> u16 {
        self.0.kind.status
    }

    /// Its kind.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static Kind {
        self.0.kind
    }

    /// The document.
    pub(crate) fn shape(&self) -> ProblemShape<'_> {
        let parts = &*self.0;
        let errors = parts.errors.iter().map(|e| FaultShape { pointer: &e.pointer, detail: &e.detail }).collect();
        ProblemShape {
            type_: Type(parts.kind.code),
            title: parts.kind.title,
            status: parts.kind.status,
            detail: &parts.detail,
            code: parts.kind.code,
            retryable: parts.kind.retryable,
            sku: parts.sku.as_ref().map(SkuId::as_str),
            available: parts.available,
            limit: parts.limit,
            already: parts.already,
            order_id: parts.order_id.as_ref().map(OrderId::as_str),
            retry_after_ms: parts.retry_after_ms,
            errors: (!parts.errors.is_empty()).then_some(errors),
            reasons: parts.reasons.as_deref(),
        }
    }

    /// The document as JSON.
    pub(crate) fn json(&self) -> Vec<u8> {
        reply::json_bytes(&self.shape())
    }

    /// The response.
    pub(crate) fn response(self) -> Response<Body> {
        let body = self.json();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        if let Some(seconds) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.0.allow {
            headers.insert(ALLOW, methods);
        }
        if let Some((name, value)) = self.0.header {
            headers.insert(name, value);
        }
        if self.0.kind.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"tidegate\""));
        }
        *response.body_mut() = Body::full(body);
        response
    }
}

/// A request with wrong fields.
pub(crate) fn invalid(errors: Vec<FieldError>) -> Problem {
    let detail = match errors.as_slice() {
        [one] if one.pointer.is_empty() => format!("The body {}; correct it and send the request again.", one.detail),
        [one] => format!("{} {}; correct it and send the request again.", one.pointer, one.detail),
        more => format!("{} fields are wrong; correct what errors points at and send the request again.", more.len()),
    };
    let mut problem = Problem::new(&catalogue::INVALID, detail);
    problem.0.errors = errors;
    problem
}

/// A request with one wrong field.
pub(crate) fn invalid_at(pointer: &str, detail: impl Into<String>) -> Problem {
    invalid(vec![FieldError::new(pointer, detail)])
}

/// A request that cannot be read.
pub(crate) fn malformed(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(&catalogue::MALFORMED, detail)
}

/// No order with this id.
pub(crate) fn unknown_order(id: &str) -> Problem {
    let problem =
        Problem::new(&catalogue::UNKNOWN_ORDER, "There is no such order; check the id, or place the order first.");
    match OrderId::parse(id) {
        Ok(id) => problem.order(id),
        Err(_) => problem,
    }
}

/// No SKU with this id.
pub(crate) fn unknown_sku(id: &str) -> Problem {
    let detail = "There is no such SKU; check the id byte for byte, or create it with PUT /v1/skus/{sku}.";
    let problem = Problem::new(&catalogue::UNKNOWN_SKU, detail);
    match SkuId::parse(id) {
        Ok(id) => problem.sku(id),
        Err(_) => problem,
    }
}
