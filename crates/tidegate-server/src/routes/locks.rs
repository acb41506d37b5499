//! Locks for callers of any language: they hold by a token, and renew by themselves.

use std::time::{Duration, Instant};

use http::StatusCode;
use tidegate::lock::{Ask, Fence, Guard, LockError, LockName, LockToken, Locks, MIN_TTL_MS};

use super::{run, waits};
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{self, Problem, catalogue as c};
use crate::reply::{self, Answer, Parcel};
use crate::request::bodies_of_products::{ACQUIRE, RENEW};
use crate::request::headers::lock_token;
use crate::request::{Faults, Fields, Pointer};
use crate::router::{BodyRule, MAX_BODY, Route, Verb};
use crate::shape::lock::{GrantShape, LookShape};

/// A lock on its way to a client; `None` once it has arrived.
struct Granted(Option<Guard>);

impl Parcel for Granted {
    fn sent(mut self: Box<Self>) {
        // The client has it: it renews and releases it by its token, or it ends by itself.
        if let Some(guard) = self.0.take() {
            guard.detach();
        }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        // It may have been told to the client by another call, with the token it chose.
        if let Some(guard) = self.0.take() {
            guard.undelivered();
        }
    }
}

fn locks(call: &Call) -> Result<&Locks, Problem> {
    call.app.locks.as_ref().ok_or_else(|| {
        let detail = "This server has no store for locks: start it with --store redis://.. (or with a SQLite ledger), and send the \
                      same request again.";
        problem::store_unavailable(detail, 60)
    })
}

fn name(call: &Call, faults: &mut Faults) -> Option<LockName> {
    faults.take("/name", LockName::parse(call.id()))
}

/// The token of a call that is nothing without one.
fn required_token(call: &Call) -> Result<LockToken, Problem> {
    lock_token(call.headers())?.ok_or_else(|| {
        let detail = "Send the token of the grant in the header Lock-Token.";
        Problem::new(&c::LOCK_TOKEN_REQUIRED, detail)
    })
}

fn ttl(call: &Call, fields: &Fields<'_, '_, '_>, faults: &mut Faults) -> Duration {
    let max = i64::try_from(call.app.limits.max_lock_ttl.as_millis()).unwrap_or(i64::MAX);
    milliseconds(fields.within("ttl_ms", MIN_TTL_MS, max, faults).unwrap_or(MIN_TTL_MS))
}

fn milliseconds(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}

/// What can be relied on, from the arrival of the request, which is after its sending.
fn valid_ms(remaining: Duration, arrived: Instant) -> u64 {
    u64::try_from((remaining + arrived.elapsed()).as_millis()).unwrap_or(u64::MAX)
}

async fn acquire(call: Call) -> Answer {
    let arrived = Instant::now();
    let own = lock_token(call.headers())?;
    let (ttl, wait, floor) = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        name(&call, &mut faults);
        let fields = Fields::open(&node, &ACQUIRE, &root, &mut faults);
        let ttl = ttl(&call, &fields, &mut faults);
        let wait = milliseconds(fields.ranged("wait_ms", &mut faults).unwrap_or(0));
        let floor = fields.ranged("floor", &mut faults).and_then(|floor| u64::try_from(floor).ok()).map(Fence);
        faults.refuse()?;
        (ttl, wait, floor)
    };
    let locks = locks(&call)?;
    // What a client has already, or may have at once, needs no place among those that wait.
    let (place, crowded) = match waits(&call, wait) {
        Err(crowded) if own.is_some() => (None, Some(crowded)),
        place => (place?, None),
    };
    let wait = if crowded.is_some() { Duration::ZERO } else { wait };
    let mut ask = Ask::new(ttl).wait(wait).without_renewal();
    if let Some(token) = own {
        ask = ask.token(token);
    }
    if let Some(floor) = floor {
        ask = ask.floor(floor);
    }
    let guard = tokio::select! {
        biased;
        guard = locks.acquire(call.id(), ask) => guard,
        () = call.app.stop_begins(), if !wait.is_zero() => return Err(problem::stopping()),
    };
    drop(place);
    let guard = match (guard, crowded) {
        (Err(LockError::Held { .. }), Some(crowded)) => return Err(crowded),
        (guard, _) => guard?,
    };
    let shape = GrantShape {
        name: call.id(),
        token: guard.token().as_str(),
        fence: guard.fence().0,
        valid_ms: valid_ms(guard.remaining(), arrived),
    };
    // A request whose first answer was lost: the lock was the caller's already, and its time begins anew.
    let status = if guard.is_repeated() { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = reply::json(status, &shape);
    response.body_mut().hands_over(Granted(Some(guard)));
    Ok(response)
}

async fn renew(call: Call) -> Answer {
    let token = required_token(&call)?;
    let ttl = {
        let node = call.node()?;
        let (root, mut faults) = (Pointer::Root, Faults::default());
        name(&call, &mut faults);
        let fields = Fields::open(&node, &RENEW, &root, &mut faults);
        let ttl = ttl(&call, &fields, &mut faults);
        faults.refuse()?;
        ttl
    };
    let (fence, relied) = locks(&call)?.renew(call.id(), &token, ttl).await?;
    let valid_ms = u64::try_from(relied.as_millis()).unwrap_or(u64::MAX);
    let shape = GrantShape { name: call.id(), token: token.as_str(), fence: fence.0, valid_ms };
    Ok(reply::json(StatusCode::OK, &shape))
}

async fn release(call: Call) -> Answer {
    let token = required_token(&call)?;
    let mut faults = Faults::default();
    name(&call, &mut faults);
    faults.refuse()?;
    match locks(&call)?.release(call.id(), &token).await? {
        true => Ok(reply::no_content()),
        false => Err(Problem::of(&c::LOCK_LOST)),
    }
}

async fn look(call: Call) -> Answer {
    let mut faults = Faults::default();
    name(&call, &mut faults);
    faults.refuse()?;
    let look = locks(&call)?.look(call.id()).await?;
    Ok(reply::json(StatusCode::OK, &LookShape::new(call.id(), look)))
}

const SHOP: Access = Access::Needs(Role::Shop);

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "locks",
        summary: "Take a lock",
        doc: "For `ttl_ms`; if another has it, wait in its line for up to `wait_ms`: first come, first served. A client that hangs up \
              leaves the line, and a lock that was granted to nobody is given back. Write the `fence` with what the lock protects and \
              refuse smaller ones there: a lock on a clock cannot stop a holder that was paused.",
        body: BodyRule::Json { shape: &ACQUIRE, max: MAX_BODY, optional: false },
        patient: true,
        on_store: true,
        answers: &[
            AnswerDoc::json(201, "It is the caller's.", |s| s.of::<GrantShape<'_>>()),
            AnswerDoc::json(
                200,
                "It was the caller's already, by the token it sent: the same fence, its time begun anew.",
                |s| s.of::<GrantShape<'_>>(),
            ),
        ],
        problems: &[&c::LOCK_TOKEN_REQUIRED, &c::LOCK_HELD],
        ..Route::new(Verb::Post, "/v1/locks/{name}", "acquireLock", SHOP, run!(acquire))
    },
    Route {
        tag: "locks",
        summary: "Keep a lock for longer",
        doc: "It ends `ttl_ms` from now. A lock that ran out is never taken again by this.",
        body: BodyRule::Json { shape: &RENEW, max: MAX_BODY, optional: false },
        on_store: true,
        answers: &[AnswerDoc::json(200, "It is still the caller's.", |s| s.of::<GrantShape<'_>>())],
        problems: &[&c::LOCK_TOKEN_REQUIRED, &c::LOCK_LOST],
        ..Route::new(Verb::Put, "/v1/locks/{name}", "renewLock", SHOP, run!(renew))
    },
    Route {
        tag: "locks",
        summary: "Give a lock back",
        doc: "Whoever is first in the line gets it.",
        on_store: true,
        answers: &[AnswerDoc::nothing(204, "It is given back.")],
        problems: &[&c::LOCK_TOKEN_REQUIRED, &c::LOCK_LOST],
        ..Route::new(Verb::Delete, "/v1/locks/{name}", "releaseLock", SHOP, run!(release))
    },
    Route {
        tag: "locks",
        summary: "Look at a lock",
        doc: "Whether somebody has it; never whose it is.",
        on_store: true,
        answers: &[AnswerDoc::json(200, "The lock.", |s| s.of::<LookShape<'_>>())],
        ..Route::new(Verb::Get, "/v1/locks/{name}", "getLock", SHOP, run!(look))
    },
];
