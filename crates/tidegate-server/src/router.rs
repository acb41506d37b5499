//! One table of routes: matched, authorised, measured and described from the same rows.

use std::sync::LazyLock;

use futures_util::future::BoxFuture;
use http::{HeaderValue, Method};

use crate::access::Access;
use crate::call::Call;
use crate::openapi::AnswerDoc;
use crate::problem::Problem;
use crate::problem::catalogue::Kind;
use crate::reply::Answer;
use crate::request::query::Param;
use crate::request::{Shape, path};
use crate::routes;

/// Largest body of most calls, bytes.
pub(crate) const MAX_BODY: usize = 1 << 20;
/// Largest body of a batch, bytes.
pub(crate) const MAX_BATCH_BODY: usize = 8 << 20;
/// Most segments of a path that is looked at.
const MAX_SEGMENTS: usize = 8;

/// A method that routes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Delete => "DELETE",
        }
    }

    fn is(self, method: &Method) -> bool {
        *method == self.name() || self == Verb::Get && *method == Method::HEAD
    }
}

/// What a route wants of a request's body.
pub(crate) enum BodyRule {
    /// Nothing; a body is ignored.
    None,
    /// A JSON object of this shape, of at most `max` bytes.
    Json { shape: &'static Shape, max: usize, optional: bool },
}

/// A row of the table.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// The path; a segment in braces is a parameter.
    pub(crate) template: &'static str,
    /// The operation's name in the OpenAPI document.
    pub(crate) operation: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) access: Access,
    pub(crate) body: BodyRule,
    /// Query parameters it knows; every other one is refused.
    pub(crate) params: &'static [Param],
    /// Pages and probes: whatever a browser or a monitor adds to the query is ignored.
    pub(crate) any_query: bool,
    /// Takes as long as it takes: no request timeout.
    pub(crate) patient: bool,
    /// What its path names is a caller's own key: one that is no text is a wrong field, not a broken request.
    pub(crate) free_ids: bool,
    /// The store of queues and locks does its work, not the ledger.
    pub(crate) on_store: bool,
    /// Refuses by the path's first parameter, before anything of the request is read.
    pub(crate) forbids: Option<fn(&str) -> Option<Problem>>,
    /// Whether `Idempotency-Key` means something.
    pub(crate) takes_key: bool,
    pub(crate) answers: &'static [AnswerDoc],
    /// Problems of its own, beside those every route of its kind can answer.
    pub(crate) problems: &'static [&'static Kind],
    pub(crate) run: fn(Call) -> BoxFuture<'static, Answer>,
}

impl Route {
    /// A row with nothing but what every row has.
    pub(crate) const fn new(
        verb: Verb,
        template: &'static str,
        operation: &'static str,
        access: Access,
        run: fn(Call) -> BoxFuture<'static, Answer>,
    ) -> Self {
        Self {
            verb,
            template,
            operation,
            tag: "",
            summary: "",
            doc: "",
            access,
            body: BodyRule::None,
            params: &[],
            any_query: false,
            patient: false,
            free_ids: false,
            on_store: false,
            forbids: None,
            takes_key: false,
            answers: &[],
            problems: &[],
            run,
        }
    }
}

struct Row {
    route: &'static Route,
    segments: Vec<Option<&'static str>>,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let row = |route: &'static Route| Row {
        route,
        segments: route.template[1..].split('/').map(|s| (!s.starts_with('{')).then_some(s)).collect(),
    };
    routes::all().map(row).collect()
});

/// Where a request leads.
pub(crate) enum Found<'p> {
    /// To this row of [`routes::all`], with the path's parameters still encoded.
    Route { index: usize, route: &'static Route, ids: [&'p str; 2] },
    /// The address exists, with these methods.
    OtherMethods(HeaderValue),
    /// Nowhere.
    Nothing,
}

/// Looks up a request.
pub(crate) fn find<'p>(method: &Method, path: &'p str) -> Found<'p> {
    let mut segments = [""; MAX_SEGMENTS];
    let mut count = 0;
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        if count == MAX_SEGMENTS {
            return Found::Nothing;
        }
        segments[count] = segment;
        count += 1;
    }
    let sent = &segments[..count];
    let mut others = Vec::new();
    for (index, row) in ROWS.iter().enumerate() {
        if !matches(&row.segments, sent) {
            continue;
        }
        if row.route.verb.is(method) {
            return Found::Route { index, route: row.route, ids: ids(&row.segments, sent) };
        }
        others.push(row.route.verb);
    }
    if others.is_empty() { Found::Nothing } else { Found::OtherMethods(allow(&others)) }
}

fn matches(template: &[Option<&str>], sent: &[&str]) -> bool {
    template.len() == sent.len()
        && template.iter().zip(sent).all(|(want, have)| match want {
            None => !have.is_empty(),
            Some(want) => want == have || have.contains('%') && path::decode(have).is_some_and(|have| have == *want),
        })
}

fn ids<'p>(template: &[Option<&str>], sent: &[&'p str]) -> [&'p str; 2] {
    let mut ids = template.iter().zip(sent).filter(|(want, _)| want.is_none()).map(|(_, have)| *have);
    [ids.next().unwrap_or_default(), ids.next().unwrap_or_default()]
}

fn allow(verbs: &[Verb]) -> HeaderValue {
    let mut names: Vec<&str> = verbs.iter().map(|verb| verb.name()).collect();
    if verbs.contains(&Verb::Get) {
        names.push("HEAD");
    }
    names.sort_unstable();
    HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static("GET"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds() {
        for (method, path, want) in [
            ("POST", "/v1/orders", "placeOrder"),
            ("POST", "/v1/orders:batch", "placeOrders"),
            ("POST", "/v1/orders%3Abatch", "placeOrders"),
            ("GET", "/v1/orders/a%2Fb", "getOrder"),
            ("HEAD", "/v1/orders/a", "getOrder"),
            ("GET", "/", "statusPage"),
            ("GET", "/v1/orders/", ""),
            ("GET", "//v1/orders", ""),
            ("GET", "/v1/nope", ""),
            ("GET", "*", ""),
            ("DELETE", "/v1/orders", "GET, HEAD, POST"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let found = match find(&method, path) {
                Found::Route { route, .. } => route.operation.to_owned(),
                Found::OtherMethods(allow) => allow.to_str().expect("ASCII").to_owned(),
                Found::Nothing => String::new(),
            };
            assert_eq!(found, want, "{method} {path}");
        }
    }

    #[test]
    fn templates_and_names_are_unique() {
        let routes: Vec<_> = routes::all().collect();
        for (i, a) in routes.iter().enumerate() {
            assert!(
                !a.summary.is_empty() && !a.answers.is_empty() && !a.tag.is_empty(),
                "{} is not described",
                a.operation
            );
            for b in &routes[..i] {
                assert!(a.operation != b.operation && (a.verb, a.template) != (b.verb, b.template), "{}", a.operation);
            }
        }
    }
}
