//! Pages of lists and answers of batches.

use http::{Response, StatusCode};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tidegate::Page;

use crate::problem::Problem;
use crate::reply::{self, Body};

#[derive(Serialize)]
struct PageShape<'a, T: Serialize> {
    items: Vec<T>,
    next_cursor: Option<&'a str>,
}

/// A page of `list`, each item as `shape` shows it.
pub(crate) fn list<'a, T, S: Serialize>(page: &'a Page<T>, shape: impl FnMut(&'a T) -> S) -> Response<Body> {
    let items = page.items.iter().map(shape).collect();
    reply::json(StatusCode::OK, &PageShape { items, next_cursor: page.next.as_deref() })
}

/// One answer of a batch.
pub(crate) struct BatchItem<'a, T> {
    /// The name of the thing in the answer: `order`, `sku`.
    pub(crate) name: &'static str,
    /// Its status and shape, or the problem.
    pub(crate) answer: Result<(u16, T), &'a Problem>,
}

impl<T: Serialize> Serialize for BatchItem<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        match &self.answer {
            Ok((status, thing)) => {
                map.serialize_entry("status", status)?;
                map.serialize_entry(self.name, thing)?;
            }
            Err(problem) => {
                map.serialize_entry("status", &problem.status())?;
                map.serialize_entry("problem", &problem.shape())?;
            }
        }
        map.end()
    }
}

#[derive(Serialize)]
struct BatchShape<'a, T: Serialize> {
    results: Vec<BatchItem<'a, T>>,
}

/// The answers of a batch, in order.
pub(crate) fn batch<T: Serialize>(results: Vec<BatchItem<'_, T>>) -> Response<Body> {
    reply::json(StatusCode::OK, &BatchShape { results })
}

/// Answers of a batch that shows nothing of what was done.
pub(crate) fn statuses(answers: &[Result<(), Problem>]) -> Response<Body> {
    let results = answers.iter().map(Status).collect();
    reply::json(StatusCode::OK, &StatusesShape { results })
}

#[derive(Serialize)]
struct StatusesShape<'a> {
    results: Vec<Status<'a>>,
}

struct Status<'a>(&'a Result<(), Problem>);

impl Serialize for Status<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        match self.0 {
            Ok(()) => map.serialize_entry("status", &StatusCode::NO_CONTENT.as_u16())?,
            Err(problem) => {
                map.serialize_entry("status", &problem.status())?;
                map.serialize_entry("problem", &problem.shape())?;
            }
        }
        map.end()
    }
}
