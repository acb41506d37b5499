//! The log of events, by page and as a stream.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;
use tidegate::Operations;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;

use super::run;
use crate::access::Access;
use crate::call::Call;
use crate::config::Role;
use crate::openapi::AnswerDoc;
use crate::problem::{Problem, catalogue as c};
use crate::reply::{self, Answer, Body};
use crate::request::headers;
use crate::request::query::{LIMIT, Param, ParamKind, event_cursor};
use crate::router::{Route, Verb};
use crate::shape::event::EventShape;

/// Events a stream reads at once.
const STREAM_PAGE: usize = 100;
/// How often a silent stream says that it lives; it looks at the ledger then, whatever it was told.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Reads of the ledger that may fail in a row before a stream ends (its reader comes back with `Last-Event-ID`).
const MAX_FAILURES: u32 = 5;

#[derive(Serialize)]
struct EventPage<'a> {
    items: Vec<EventShape<'a>>,
    next_cursor: Option<i64>,
}

async fn list(call: Call) -> Answer {
    let mut query = call.query()?;
    let (after, limit) = (query.after(), query.limit());
    query.faults.refuse()?;
    let events = call.app.operations.events(after, limit).await?;
    let next_cursor = events.last().map(|event| event.cursor);
    let items = events.iter().map(EventShape::new).collect();
    Ok(reply::json(StatusCode::OK, &EventPage { items, next_cursor }))
}

async fn open_stream(call: Call) -> Answer {
    let mut query = call.query()?;
    let mut after = query.after();
    // A browser repeats the address it was given; the header tells how far it came since.
    if let Some(last) = headers::last_event_id(call.headers()).filter(|last| !last.is_empty()) {
        after = query.faults.take("/last-event-id", event_cursor(last)).unwrap_or(0);
    }
    query.faults.refuse()?;
    let Ok(place) = Arc::clone(&call.app.event_streams).try_acquire_owned() else {
        let detail = "As many event streams are open as the server takes; read GET /v1/events, or try again later.";
        return Err(Problem::new(&c::OVERLOADED, detail).retry_after(10));
    };
    let feed = Feed {
        operations: call.app.operations.clone(),
        newest: call.app.operations.newest_event(),
        stopped: call.app.stopped(),
        after,
        failures: 0,
        begun: false,
        _place: place,
    };
    let mut response = Response::new(Body::stream(feed.pieces()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A reader's place in the log.
struct Feed {
    operations: Operations,
    newest: watch::Receiver<i64>,
    stopped: watch::Receiver<bool>,
    after: i64,
    failures: u32,
    begun: bool,
    _place: OwnedSemaphorePermit,
}

impl Feed {
    fn pieces(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut feed| async move {
            let piece = feed.next().await?;
            Some((piece, feed))
        })
    }

    /// The next piece of the stream; `None` when the server stops. A page is read only when the one before was sent.
    async fn next(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some(Bytes::from_static(b"retry: 2000\n\n"));
        }
        loop {
            if *self.stopped.borrow() {
                return None;
            }
            // Seen before it is read: what commits in between wakes us again.
            self.newest.borrow_and_update();
            match self.operations.events(self.after, STREAM_PAGE).await {
                Ok(events) if events.is_empty() => self.failures = 0,
                Ok(events) => {
                    self.failures = 0;
                    self.after = events.last().map_or(self.after, |event| event.cursor);
                    return Some(written(&events));
                }
                Err(_) if self.failures >= MAX_FAILURES => return None,
                Err(_) => self.failures += 1,
            }
            let changed = async {
                tokio::select! {
                    _ = self.newest.changed(), if self.failures == 0 => {}
                    _ = self.stopped.wait_for(|stopped| *stopped) => {}
                }
            };
            if timeout(KEEP_ALIVE, changed).await.is_err() {
                return Some(Bytes::from_static(b":\n\n"));
            }
        }
    }
}

fn written(events: &[tidegate::EventRecord]) -> Bytes {
    let mut text = String::new();
    for event in events {
        let shape = EventShape::new(event);
        let json = reply::json_bytes(&shape);
        // Compact JSON has no line breaks; writing to a string cannot fail.
        let _ =
            write!(text, "id: {}\nevent: {}\ndata: {}\n\n", shape.cursor, shape.type_, String::from_utf8_lossy(&json));
    }
    Bytes::from(text)
}

const AFTER: Param = Param {
    name: "after",
    kind: ParamKind::After,
    doc: "Only events with a higher cursor; 0, the default, is the beginning.",
};
const READ: Access = Access::Needs(Role::Read);

pub(super) static ROUTES: &[Route] = &[
    Route {
        tag: "events",
        summary: "Read the log of events",
        doc: "Oldest first. Go on with `after` = the last event's cursor (`next_cursor`); an empty page means caught up. Cursors are \
              dense, and an event that commits late is never skipped.",
        params: &[AFTER, LIMIT],
        answers: &[AnswerDoc::json(200, "A page; `next_cursor` is a number here.", |s| s.event_page())],
        ..Route::new(Verb::Get, "/v1/events", "listEvents", READ, run!(list))
    },
    Route {
        tag: "events",
        summary: "Follow the log of events",
        doc: "Server-sent events: `id` is the cursor, `event` the type, `data` the event as JSON. `Last-Event-ID` or `after` says where \
              to go on; without them it begins at the beginning. A comment every 10 s shows that it lives.",
        params: &[AFTER],
        patient: true,
        answers: &[AnswerDoc::text(200, "The stream; it ends when the server stops.", "text/event-stream")],
        ..Route::new(Verb::Get, "/v1/events/stream", "followEvents", READ, run!(open_stream))
    },
];
