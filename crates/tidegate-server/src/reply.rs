//! Responses and their bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::origins::Share;
use crate::problem::Problem;
use crate::serve::connection::Busy;

/// What a route answers.
pub(crate) type Answer = Result<Response<Body>, Problem>;

/// A connection copies what it is given before it sends it: of a large body it gets so many bytes at a time.
const PIECE: usize = 64 << 10;

/// `Idempotent-Replayed`.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A response's body. While it lives its connection counts as busy.
pub(crate) struct Body {
    content: Content,
    busy: Option<Busy>,
    /// What is taken back unless the answer is sent.
    parcel: Option<Box<dyn Parcel>>,
    /// Of the memory for large answers.
    _share: Option<Arc<Share>>,
}

/// What an answer hands over: dropped, it is taken back.
pub(crate) trait Parcel: Send {
    /// The answer is on its way to the client.
    fn sent(self: Box<Self>);
}

impl Drop for Body {
    fn drop(&mut self) {
        // Whole in hyper's hands, it is sent once the connection says so; else nobody gets it.
        if let (Some(parcel), Some(busy), Content::Empty) = (self.parcel.take(), &self.busy, &self.content) {
            busy.hold(parcel);
        }
    }
}

enum Content {
    Empty,
    Full(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// No body.
    pub(crate) fn empty() -> Self {
        Self { content: Content::Empty, busy: None, parcel: None, _share: None }
    }

    /// All of it.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Full(bytes.into()), busy: None, parcel: None, _share: None }
    }

    /// Piece by piece.
    pub(crate) fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { content: Content::Stream(Box::pin(pieces)), busy: None, parcel: None, _share: None }
    }

    /// The same; `share` is given back when all but the last piece is sent.
    pub(crate) fn shared(bytes: Bytes, share: Option<Arc<Share>>) -> Self {
        let mut body = Self::full(bytes);
        body._share = share;
        body
    }

    /// The same; `parcel` is handed over with it.
    pub(crate) fn hands_over(&mut self, parcel: impl Parcel + 'static) {
        self.parcel = Some(Box::new(parcel));
    }

    /// The same; `busy` ends with it.
    pub(crate) fn until_sent(&mut self, busy: Busy) {
        self.busy = Some(busy);
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.content {
            Content::Empty => Poll::Ready(None),
            Content::Full(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE));
                if bytes.is_empty() {
                    self.content = Content::Empty;
                }
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Content::Stream(pieces) => {
                pieces.as_mut().poll_next(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

/// `value` as compact JSON.
pub(crate) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    // Writing to memory cannot fail, and our shapes have text keys only.
    serde_json::to_writer(&mut bytes, value).expect("shapes are made of texts, numbers, lists and objects");
    bytes
}

/// A response with a body of this media type.
pub(crate) fn with_type(status: StatusCode, media_type: &'static str, bytes: impl Into<Bytes>) -> Response<Body> {
    let bytes = bytes.into();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    *response.body_mut() = Body::full(bytes);
    response
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    with_type(status, "application/json", json_bytes(value))
}

/// A response without a body.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Adds the version as `ETag`.
pub(crate) fn etag(mut response: Response<Body>, version: i64) -> Response<Body> {
    if let Ok(tag) = HeaderValue::try_from(format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Adds a `Location`; `path` is percent-encoded already.
pub(crate) fn location(mut response: Response<Body>, path: &str) -> Response<Body> {
    if let Ok(path) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

/// Marks the answer of a repeat.
pub(crate) fn replayed(mut response: Response<Body>, replayed: bool) -> Response<Body> {
    if replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}
