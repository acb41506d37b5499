//! The routes, one file a noun: decode, call the library, encode. Each file ends with its rows of the table.

mod admin;
mod cache;
mod events;
mod feed;
mod locks;
mod machine;
mod orders;
mod pages;
mod parked;
mod payments;
mod products;
mod queues;
mod redis;
mod refunds;
mod skus;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tidegate::PageRequest;
use tidegate::core::FieldError;
use tokio::sync::OwnedSemaphorePermit;

use crate::call::Call;
use crate::problem::{self, Problem, catalogue};
use crate::request::bodies::NOTHING;
use crate::request::query::Query;
use crate::request::{Faults, Fields, Pointer};
use crate::router::Route;

/// Every route, in the order of the documentation.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> {
    [
        orders::ROUTES,
        payments::ROUTES,
        refunds::ROUTES,
        parked::ROUTES,
        skus::ROUTES,
        products::ROUTES,
        cache::ROUTES,
        queues::ROUTES,
        queues::leases::ROUTES,
        queues::dead::ROUTES,
        locks::ROUTES,
        feed::ROUTES,
        feed::posts::ROUTES,
        feed::users::ROUTES,
        redis::ROUTES,
        events::ROUTES,
        machine::ROUTES,
        pages::ROUTES,
        admin::ROUTES,
    ]
    .into_iter()
    .flatten()
}

/// Whether monitors ask it.
pub(crate) fn is_probe(route: &Route) -> bool {
    matches!(route.template, "/healthz" | "/readyz" | "/metrics")
}

/// A place among the calls that wait, for one that waits for `wait`.
fn waits(call: &Call, wait: Duration) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    if wait.is_zero() {
        return Ok(None);
    }
    Arc::clone(&call.app.long_polls).try_acquire_owned().map(Some).map_err(|_| {
        let detail = "As many calls wait as the server takes; send this one again in a few seconds, or with wait_ms 0.";
        Problem::new(&catalogue::OVERLOADED, detail).retry_after(5)
    })
}

/// A route's function as the table keeps it.
macro_rules! run {
    ($f:path) => {
        |call| Box::pin($f(call))
    };
}
pub(crate) use run;

/// The page a list was asked for, once its parameters are known to be right.
fn page(mut query: Query<'_>) -> Result<PageRequest, Problem> {
    let page = query.page();
    query.faults.refuse()?;
    Ok(page)
}

/// Refuses a body that says anything where nothing is to be said.
fn nothing(call: &Call) -> Result<(), Problem> {
    let node = call.node()?;
    let mut faults = Faults::default();
    Fields::open(&node, &NOTHING, &Pointer::Root, &mut faults);
    faults.refuse()
}

/// What the rules made of the fields whose shape was right, together with the faults of the others.
fn judged<T>(checked: Result<T, Vec<FieldError>>, mut faults: Faults) -> Result<T, Problem> {
    match checked {
        Ok(value) => faults.refuse().map(|()| value),
        Err(found) => {
            faults.extend(found.clone());
            faults.refuse()?;
            Err(problem::invalid(found))
        }
    }
}

/// The same for a command about the thing the path names: a bad name is one fault among the others.
fn named<I, T>(
    id: Result<I, impl Display>,
    pointer: &str,
    mut faults: Faults,
    check: impl FnOnce(I) -> Result<T, Vec<FieldError>>,
) -> Result<T, Problem> {
    match id {
        Ok(id) => judged(check(id), faults),
        Err(e) => {
            faults.add(pointer, e.to_string());
            judged(Err(Vec::new()), faults)
        }
    }
}
