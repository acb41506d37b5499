//! Bodies: bounded in size and time, JSON by their own word, read into a tree.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_TYPE, EXPECT};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use super::json::{self, JsonFault, MAX_DEPTH, MAX_NODES, Node};
use crate::config::Limits;
use crate::problem::{self, Problem, catalogue};

/// Bodies up to this size are taken in without a look at the budget.
const SMALL_BODY: usize = 64 << 10;
/// Most bytes of an unwanted body that are read away, so that its sender sees the answer instead of a reset.
const MAX_DRAINED: usize = 32 << 20;
/// Longest time that is spent on that.
const DRAIN_TIME: Duration = Duration::from_secs(3);

/// A body, and its share of the memory for large ones.
pub(crate) type Taken<'a> = (Bytes, Option<SemaphorePermit<'a>>);

/// Reads a body of at most `max` bytes. What it has beyond [`SMALL_BODY`] is taken from `budget` (in KiB) as it arrives, so
/// that a client that only announces much takes nothing away from others.
pub(crate) async fn read<'a>(
    incoming: &mut Incoming,
    max: usize,
    limits: &Limits,
    budget: &'a Semaphore,
) -> Result<Taken<'a>, Problem> {
    if incoming.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    if incoming.size_hint().lower() > max as u64 {
        return Err(too_large(max));
    }
    let deadline = Instant::now() + limits.request_timeout;
    let mut only = Bytes::new();
    let mut joined = BytesMut::new();
    let mut share: Option<SemaphorePermit<'a>> = None;
    while let Some(piece) = next_piece(incoming, deadline.min(Instant::now() + limits.body_idle_timeout)).await? {
        let length = only.len() + joined.len() + piece.len();
        if length > max {
            return Err(too_large(max));
        }
        if length > SMALL_BODY {
            take_share(&mut share, length, budget)?;
        }
        // Most bodies come in one piece and are never copied.
        if only.is_empty() && joined.is_empty() {
            only = piece;
            continue;
        }
        joined.extend_from_slice(&std::mem::take(&mut only));
        joined.extend_from_slice(&piece);
    }
    let body = if joined.is_empty() { only } else { joined.freeze() };
    Ok((body, share))
}

/// Widens `share` to `length` bytes.
fn take_share<'a>(
    share: &mut Option<SemaphorePermit<'a>>,
    length: usize,
    budget: &'a Semaphore,
) -> Result<(), Problem> {
    let held = share.as_ref().map_or(0, SemaphorePermit::num_permits);
    let more = u32::try_from(length.div_ceil(1024).saturating_sub(held)).unwrap_or(u32::MAX);
    let taken = budget.try_acquire_many(more).map_err(|_| {
        let detail = "Too many large requests are in memory; send this one again in a second.";
        Problem::new(&catalogue::OVERLOADED, detail).retry_after(1)
    })?;
    match share {
        Some(share) => share.merge(taken),
        None => *share = Some(taken),
    }
    Ok(())
}

async fn next_piece(incoming: &mut Incoming, deadline: Instant) -> Result<Option<Bytes>, Problem> {
    loop {
        match timeout_at(deadline, incoming.frame()).await {
            Err(_) => {
                return Err(Problem::new(
                    &catalogue::TIMEOUT,
                    "The body did not arrive in time; send the request again.",
                ));
            }
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => {
                return Err(problem::malformed("The body broke off or was framed wrongly; send the request again."));
            }
            Ok(Some(Ok(frame))) => {
                // Trailers mean nothing here.
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

fn too_large(max: usize) -> Problem {
    Problem::new(&catalogue::TOO_LARGE, format!("The body may have at most {max} bytes; split the request."))
}

/// Reads away what is left of a body that nobody wants.
pub(crate) async fn drain(incoming: &mut Incoming, headers: &HeaderMap) {
    if incoming.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    let mut left = MAX_DRAINED;
    let reading = async {
        while let Some(Ok(frame)) = incoming.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // Whether it ended or not, the answer follows.
    let _ = timeout(DRAIN_TIME, reading).await;
}

/// Refuses a body that does not say it is JSON. An empty body needs not say anything.
pub(crate) fn check_type(headers: &HeaderMap, body: &Bytes) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = said.split(';').next().unwrap_or_default().trim();
    let mut sent = headers.get_all(CONTENT_TYPE).iter();
    let once = sent.next().is_some() && sent.next().is_none();
    if once && media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        &catalogue::UNSUPPORTED_MEDIA_TYPE,
        "Send the body as JSON with the header Content-Type: application/json.",
    ))
}

/// The body as a tree. `optional`: an empty body stands for an empty object.
pub(crate) fn parse(body: &[u8], optional: bool) -> Result<Node<'_>, Problem> {
    if body.is_empty() {
        return match optional {
            true => Ok(Node::Object(Vec::new())),
            false => Err(problem::malformed("The body is empty; send a JSON object.")),
        };
    }
    json::parse(body).map_err(|fault| match fault {
        JsonFault::Malformed { line, column, expected } => {
            problem::malformed(format!("The body is not JSON: expected {expected} at line {line}, column {column}."))
        }
        JsonFault::TooDeep(pointer) => {
            problem::invalid_at(&pointer, format!("must not be nested deeper than {MAX_DEPTH} levels"))
        }
        JsonFault::TooMany => {
            problem::invalid_at("", format!("must have at most {MAX_NODES} values; split the request"))
        }
    })
}
