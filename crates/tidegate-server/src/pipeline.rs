//! One request from its head to its response: route, access, body, the route's own work, measurements.
//!
//! The order of refusals is contract (orders.md section 3): 404 and 405, 401, 403, 413, 415, 400, 422, then the rules.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;

use crate::access;
use crate::app::App;
use crate::call::Call;
use crate::config::Surface;
use crate::metrics::requests::UNMATCHED;
use crate::problem::{self, Problem, catalogue};
use crate::reply::{Answer, Body};
use crate::request::body::{self, Taken};
use crate::request::path;
use crate::router::{self, BodyRule, Found, Route};
use crate::routes;

/// Answers one request.
pub(crate) async fn answer(app: &Arc<App>, request: Request<Incoming>) -> Response<Body> {
    let begun = Instant::now();
    let (parts, incoming) = request.into_parts();
    let (index, answer) = match find(app, &parts) {
        Ok((index, route, ids)) => (index, run(app, route, ids, parts, incoming).await),
        Err(problem) => (UNMATCHED, refuse(problem, &parts, incoming).await),
    };
    let mut response = answer.unwrap_or_else(Problem::response);
    if app.is_stopping() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    app.metrics.answered(index, response.status(), begun.elapsed());
    response
}

type Ids = [Option<String>; 2];

fn find(app: &App, parts: &Parts) -> Result<(usize, &'static Route, Ids), Problem> {
    if app.is_stopping() {
        return Err(problem::stopping());
    }
    match router::find(&parts.method, parts.uri.path()) {
        Found::Route { route, .. } if route.operation == "advanceClock" && !app.manual_clock => {
            let detail = "The clock moves by hand only on a server started with --manual-clock, which is for tests.";
            Err(Problem::new(&catalogue::NOT_FOUND, detail))
        }
        Found::Route { route, .. } if app.surface == Surface::Probes && !routes::is_probe(route) => {
            let detail =
                "This process does background work and answers /healthz, /readyz and /metrics only; ask a server.";
            Err(Problem::new(&catalogue::NOT_FOUND, detail))
        }
        Found::Route { index, route, ids } => {
            Ok((index, route, ids.map(|id| path::decode(id).map(std::borrow::Cow::into_owned))))
        }
        Found::OtherMethods(allow) => {
            Err(Problem::new(&catalogue::METHOD_NOT_ALLOWED, "Use a method that the Allow header lists.").allow(allow))
        }
        Found::Nothing => {
            Err(Problem::new(&catalogue::NOT_FOUND, "There is no such address; compare the path with /openapi.json."))
        }
    }
}

async fn refuse(problem: Problem, parts: &Parts, mut incoming: Incoming) -> Answer {
    body::drain(&mut incoming, &parts.headers).await;
    Err(problem)
}

async fn run(app: &Arc<App>, route: &'static Route, ids: Ids, parts: Parts, mut incoming: Incoming) -> Answer {
    let allowed =
        app.tokens.check(route.access, &parts.headers).and_then(|()| access::check_origin(&parts, app.loopback));
    let forbidden = route.forbids.zip(ids[0].as_deref()).and_then(|(forbids, id)| forbids(id));
    if let Some(problem) = allowed.err().or(forbidden) {
        return refuse(problem, &parts, incoming).await;
    }
    let (body, _share) = match take_body(app, route, &parts, &mut incoming).await {
        Ok(taken) => taken,
        // What has just proved slow or broken is not waited for again.
        Err(problem) if matches!(problem.status(), 400 | 408) => return Err(problem),
        Err(problem) => return refuse(problem, &parts, incoming).await,
    };
    let no_first = ids[0].is_none();
    let [Some(first), Some(second)] = ids else {
        if route.free_ids {
            let pointer = if no_first { "/namespace" } else { "/key" };
            return Err(problem::invalid_at(pointer, "must be percent-encoded UTF-8"));
        }
        return Err(problem::malformed(
            "The path is not percent-encoded UTF-8; encode each id and send the request again.",
        ));
    };
    let call = Call { app: Arc::clone(app), route, ids: [first, second], parts, body };
    if !route.any_query && route.params.is_empty() {
        call.query()?.faults.refuse()?;
    }
    guarded(app, route, call).await
}

async fn take_body<'a>(
    app: &'a App,
    route: &Route,
    parts: &Parts,
    incoming: &mut Incoming,
) -> Result<Taken<'a>, Problem> {
    match route.body {
        BodyRule::Json { max, .. } => {
            let taken = body::read(incoming, max, &app.limits, &app.body_budget).await?;
            body::check_type(&parts.headers, &taken.0)?;
            Ok(taken)
        }
        BodyRule::None => {
            body::drain(incoming, &parts.headers).await;
            Ok((Bytes::new(), None))
        }
    }
}

/// The route's own work: bounded in time, and a fault of ours in it is an answer, not a lost connection.
async fn guarded(app: &App, route: &'static Route, call: Call) -> Answer {
    let work = AssertUnwindSafe((route.run)(call)).catch_unwind();
    let bounded = async {
        if route.patient {
            return Ok(work.await);
        }
        tokio::time::timeout(app.limits.request_timeout, work).await.map_err(|_| too_slow(app, route))
    };
    let ended = tokio::select! {
        biased;
        ended = bounded => ended?,
        () = app.given_up() => return Err(problem::given_up()),
    };
    ended.unwrap_or_else(|_| {
        app.metrics.panicked();
        tracing::error!(route = route.template, "a request met a panic");
        Err(Problem::of(&catalogue::INTERNAL))
    })
}

fn too_slow(app: &App, route: &Route) -> Problem {
    if route.on_store {
        let detail = "The store of queues and locks gave no answer in time and a change may have been made; send the same \
                      request again.";
        return problem::store_unavailable(detail, 2);
    }
    let seconds = app.limits.request_timeout.as_secs();
    let detail = format!(
        "The ledger gave no answer within {seconds} s and the change may have been made; send the same request again, repeating it is safe."
    );
    Problem::new(&catalogue::LEDGER_UNAVAILABLE, detail).retry_after(2)
}
