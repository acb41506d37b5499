//! The OpenAPI document, generated from the table of routes, the bodies they take and the shapes they answer.
//!
//! - [`schemas`]: schemas of shapes and bodies. [`problems`]: the error answers of a route.

mod problems;
mod schemas;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder, ResponsesBuilder};
use utoipa::openapi::schema::{ComponentsBuilder, Schema};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ContentBuilder, InfoBuilder, ObjectBuilder, OpenApi, OpenApiBuilder, RefOr, Required, Type};

use crate::access::Access;
use crate::request::query::{DEFAULT_LIMIT, MAX_LIMIT, Param, ParamKind};
use crate::router::{BodyRule, Route, Verb};
use crate::routes;
pub(crate) use schemas::Schemas;

/// A successful answer of a route.
pub(crate) struct AnswerDoc {
    pub(crate) status: u16,
    doc: &'static str,
    content: Content,
    /// A second media type of the same answer.
    also: Option<&'static str>,
    headers: &'static [&'static str],
}

enum Content {
    Nothing,
    Text(&'static str),
    Json(fn(&mut Schemas) -> RefOr<Schema>),
}

impl AnswerDoc {
    /// An answer without a body.
    pub(crate) const fn nothing(status: u16, doc: &'static str) -> Self {
        Self { status, doc, content: Content::Nothing, also: None, headers: &[] }
    }

    /// An answer in another media type than JSON, or JSON of no schema of ours.
    pub(crate) const fn text(status: u16, doc: &'static str, media_type: &'static str) -> Self {
        Self { status, doc, content: Content::Text(media_type), also: None, headers: &[] }
    }

    /// A JSON answer.
    pub(crate) const fn json(status: u16, doc: &'static str, schema: fn(&mut Schemas) -> RefOr<Schema>) -> Self {
        Self { status, doc, content: Content::Json(schema), also: None, headers: &[] }
    }

    /// The same, with these headers.
    pub(crate) const fn with(mut self, headers: &'static [&'static str]) -> Self {
        self.headers = headers;
        self
    }

    /// The same, also in this media type.
    pub(crate) const fn or(mut self, media_type: &'static str) -> Self {
        self.also = Some(media_type);
        self
    }
}

const ABOUT: &str = "Orders that are held, paid or cancelled on time; nothing oversold.\n\nJSON in UTF-8. Instants are RFC 3339 in UTC with \
    milliseconds. Amounts are minor units. Every error is a problem document (RFC 9457) whose `detail` says what to do next. Lists page by an \
    opaque `cursor`. Every write is safe to repeat: by its id or by its `Idempotency-Key`.";

const TAGS: &[(&str, &str)] = &[
    ("orders", "Place, cancel, extend, fulfil."),
    ("payments", "Money that was reported."),
    ("refunds", "Money that is due back."),
    ("stock", "SKUs, their units, their ledger."),
    ("cache", "Values of other services, read through."),
    ("queues", "Tasks that are handed out at an instant, until somebody acknowledges them."),
    ("locks", "Only one of us at a time, with fences."),
    ("feed", "What those whom a user follows published, newest first."),
    ("redis", "What the watch over Redis and Valkey sees, and which of their keys are large."),
    ("events", "What happened, in order, nothing skipped."),
    ("operations", "Health, metrics, the clock, reconciliation."),
];

/// The OpenAPI document as pretty JSON: always the same for the same code.
#[must_use]
pub fn openapi_json() -> String {
    let mut text =
        serde_json::to_string_pretty(&document()).expect("the document is made of texts, numbers, lists and objects");
    text.push('\n');
    text
}

/// The OpenAPI document.
pub(crate) fn document() -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for route in routes::all() {
        paths = paths.path(route.template, PathItem::new(method(route.verb), operation(route, &mut schemas)));
    }
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = schemas
        .all()
        .into_iter()
        .fold(ComponentsBuilder::new(), |components, (name, schema)| components.schema(name, schema));
    OpenApiBuilder::new()
        .info(InfoBuilder::new().title("Tidegate").version(env!("CARGO_PKG_VERSION")).description(Some(ABOUT)).build())
        .paths(paths)
        .components(Some(components.security_scheme("token", bearer).build()))
        .tags(Some(TAGS.iter().map(|(name, doc)| TagBuilder::new().name(*name).description(Some(*doc)).build())))
        .build()
}

fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Put => HttpMethod::Put,
        Verb::Delete => HttpMethod::Delete,
    }
}

fn operation(route: &'static Route, schemas: &mut Schemas) -> utoipa::openapi::path::Operation {
    let mut operation = OperationBuilder::new()
        .tag(route.tag)
        .operation_id(Some(route.operation))
        .summary(Some(route.summary))
        .description(Some(described(route)))
        .request_body(request_body(route, schemas));
    for parameter in
        path_parameters(route).chain(route.params.iter().map(query_parameter)).chain(header_parameters(route))
    {
        operation = operation.parameter(parameter);
    }
    if let Access::Needs(_) = route.access {
        operation = operation.security(SecurityRequirement::new("token", Vec::<String>::new()));
    }
    let mut responses = ResponsesBuilder::new();
    for answer in route.answers {
        responses = responses.response(answer.status.to_string(), response(answer, schemas));
    }
    for (status, problem) in problems::of(route, schemas) {
        responses = responses.response(status.to_string(), problem);
    }
    operation.responses(responses.build()).build()
}

fn described(route: &Route) -> String {
    match route.access {
        Access::Open => format!("{} Open to everybody.", route.doc),
        Access::Needs(role) => {
            format!("{} Needs a token of the role `{}`, when tokens are configured.", route.doc, role.name())
        }
    }
}

fn text_schema(doc: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(doc))
}

fn path_parameters(route: &'static Route) -> impl Iterator<Item = Parameter> {
    route.template.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Percent-encoded; an encoded slash belongs to the id."))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .build()
    })
}

fn number_schema(max: usize, default: usize) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(max as u64))
        .default(Some(default.into()))
}

fn query_parameter(param: &Param) -> Parameter {
    let schema = match param.kind {
        ParamKind::Limit => number_schema(MAX_LIMIT, DEFAULT_LIMIT),
        ParamKind::Number { max, default } => number_schema(max, default),
        ParamKind::After => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).default(Some(0.into())),
        ParamKind::Choice(names) => {
            ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names.iter().copied()))
        }
        ParamKind::Cursor | ParamKind::Text => ObjectBuilder::new().schema_type(Type::String),
    };
    ParameterBuilder::new()
        .name(param.name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(param.doc))
        .schema(Some(schema))
        .build()
}

fn header_parameters(route: &'static Route) -> impl Iterator<Item = Parameter> {
    let key_required = route.operation == "adjustStock";
    let headers = [
        (
            route.takes_key,
            key_required,
            "Idempotency-Key",
            "1 to 128 visible ASCII characters: makes a repeat harmless.",
        ),
        (
            route.operation == "putSku",
            false,
            "If-Match",
            "The `ETag` the caller knows, or `*`: refused with 412 if the SKU has changed.",
        ),
        (
            route.operation == "followEvents",
            false,
            "Last-Event-ID",
            "The cursor of the last event that was received; before `after`.",
        ),
        (
            route.operation == "acquireLock",
            false,
            "Lock-Token",
            "16 to 64 visible ASCII characters of the caller's choice that nobody else can guess: a request repeated with it after a lost reply answers 200 with the same fence.",
        ),
        (matches!(route.operation, "renewLock" | "releaseLock"), true, "Lock-Token", "The `token` of the grant."),
    ];
    headers.into_iter().filter(|(takes, ..)| *takes).map(|(_, required, name, doc)| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Header)
            .required(if required { Required::True } else { Required::False })
            .description(Some(doc))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .build()
    })
}

fn request_body(route: &Route, schemas: &mut Schemas) -> Option<RequestBody> {
    let BodyRule::Json { shape, max, optional } = route.body else { return None };
    let content = ContentBuilder::new()
        .schema(Some(schemas.body(shape)))
        .example(serde_json::from_str(shape.example).ok())
        .build();
    let body = RequestBodyBuilder::new()
        .description(Some(format!("{} At most {max} bytes; unknown fields are refused.", shape.doc)))
        .required(Some(if optional { Required::False } else { Required::True }))
        .content("application/json", content);
    Some(body.build())
}

fn response(answer: &AnswerDoc, schemas: &mut Schemas) -> Response {
    let mut response = ResponseBuilder::new().description(answer.doc);
    match answer.content {
        Content::Nothing => {}
        Content::Text(media_type) => {
            response = response.content(media_type, ContentBuilder::new().schema(Some(ObjectBuilder::new())).build());
        }
        Content::Json(schema) => {
            let schema = schema(schemas);
            response = response.content("application/json", ContentBuilder::new().schema(Some(schema)).build());
        }
    }
    if let Some(media_type) = answer.also {
        response = response.content(media_type, ContentBuilder::new().schema(Some(text_schema("A page."))).build());
    }
    for name in answer.headers {
        let doc = match *name {
            "Location" => "Where the order is.",
            "ETag" => "The version, in double quotes.",
            "Idempotent-Replayed" => "`true`: this repeats an earlier answer.",
            "X-Cache" => {
                "Where the answer comes from: `hit-local`, `hit`, `miss`, `stale`, `negative`, or `error`: a failure that is remembered."
            }
            "X-Cache-Invalidation" => "`pending`: product pages may show what was before until the store answers.",
            _ => "Whole seconds since the answer was loaded.",
        };
        response =
            response.header(*name, HeaderBuilder::new().schema(Some(text_schema(doc))).description(Some(doc)).build());
    }
    response.build()
}
