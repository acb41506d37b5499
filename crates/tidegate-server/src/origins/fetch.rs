//! One call to an origin: a GET with every bound on what comes back.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue};
use reqwest::{Response, Url};

use super::client::{OriginClient, is_closed, send};
use super::failure::{OriginError, Why};
use super::page::{MAX_BODY_BYTES, Page};
use crate::outgoing::chain;

/// Most redirects within the origin.
const MAX_REDIRECTS: usize = 5;
/// How often a request is sent that met only connections which were just being closed.
const MAX_SENT: u32 = 3;
/// Longest head of an answer, bytes of its names and values.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Longest `Location`, bytes.
const MAX_LOCATION_BYTES: usize = 4_096;
/// Of a body that nobody wants so much is read to keep its connection, and for so long.
const DRAINED_BYTES: usize = 64 << 10;
const DRAINED_WITHIN: Duration = Duration::from_millis(50);
/// Room that is made for a body before its first byte.
const FIRST_ROOM: usize = 64 << 10;

/// What an origin said: a page, or that there is none.
pub(super) type Fetched = Result<Option<Page>, OriginError>;

/// What is known of a call, for the log.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    pub(super) status: Option<u16>,
    pub(super) bytes: usize,
}

/// How an origin is asked.
pub(super) struct Ask<'a> {
    pub(super) client: &'a OriginClient,
    pub(super) headers: &'a HeaderMap,
    pub(super) limit: Duration,
}

impl Ask<'_> {
    /// Asks, within the limit.
    pub(super) async fn fetch(&self, url: Url, told: &mut Told) -> Fetched {
        match tokio::time::timeout(self.limit, self.follow(url, told)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(OriginError::too_slow()),
        }
    }

    async fn follow(&self, mut url: Url, told: &mut Told) -> Fetched {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(&url).await?;
            let status = response.status().as_u16();
            told.status = Some(status);
            if head_bytes(response.headers()) > MAX_HEAD_BYTES {
                return Err(OriginError::new(Why::TooLarge));
            }
            match status {
                200 | 203 => return page(response, told).await.map(Some),
                204 => return Ok(Some(Page::new(response.headers().get(CONTENT_TYPE), Bytes::new()))),
                404 | 410 => {
                    drain(response).await;
                    return Ok(None);
                }
                301 | 302 | 303 | 307 | 308 => {
                    url = next(&url, response.headers())?;
                    drain(response).await;
                }
                status => return Err(OriginError::new(Why::Status(status))),
            }
        }
        Err(OriginError::new(Why::Redirect("too often")))
    }

    async fn send(&self, url: &Url) -> Result<Response, OriginError> {
        if self.client.refuses(url) {
            return Err(OriginError::new(Why::Closed));
        }
        let mut sent = 0;
        loop {
            let request = self
                .client
                .get(url.clone())
                .header(ACCEPT, HeaderValue::from_static("*/*"))
                .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
                .headers(self.headers.clone());
            let (result, reused) = send(request).await;
            sent += 1;
            match result.map_err(|e| failed(&e)) {
                // The connection was kept from an earlier call and closed, for having been idle, just when it was used again.
                Err(error) if error.why == Why::Lost && reused && sent < MAX_SENT => {}
                result => return result,
            }
        }
    }
}

/// Where a redirect leads, if it stays with the origin.
fn next(from: &Url, headers: &HeaderMap) -> Result<Url, OriginError> {
    let wrong = |what| OriginError::new(Why::Redirect(what));
    let location = headers.get(LOCATION).filter(|value| value.len() <= MAX_LOCATION_BYTES);
    let location = location.and_then(|value| value.to_str().ok()).ok_or_else(|| wrong("without a usable Location"))?;
    let mut to = from.join(location).map_err(|_| wrong("without a usable Location"))?;
    if to.origin() != from.origin() || !to.username().is_empty() || to.password().is_some() {
        return Err(wrong("to another host, port or scheme"));
    }
    to.set_fragment(None);
    Ok(to)
}

async fn page(mut response: Response, told: &mut Told) -> Result<Page, OriginError> {
    let headers = response.headers();
    let plain = |value: &HeaderValue| value.is_empty() || value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(CONTENT_ENCODING).iter().all(plain) {
        return Err(OriginError::new(Why::Malformed("is compressed, which was not asked for")));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let media_type = types.next().filter(|_| types.next().is_none()).cloned();
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > MAX_BODY_BYTES) {
        return Err(OriginError::new(Why::TooLarge));
    }
    let mut body = BytesMut::with_capacity(announced.unwrap_or(0).min(FIRST_ROOM));
    while let Some(piece) = response.chunk().await.map_err(|e| failed(&e))? {
        if body.len() + piece.len() > MAX_BODY_BYTES {
            return Err(OriginError::new(Why::TooLarge));
        }
        if body.len() + piece.len() > body.capacity() {
            // What was announced, now that some of it has come; else twice as much.
            let whole = announced.unwrap_or(0).max(body.capacity() * 2).clamp(body.len() + piece.len(), MAX_BODY_BYTES);
            body.reserve(whole - body.len());
        }
        body.extend_from_slice(&piece);
        told.bytes = body.len();
    }
    let spare = body.capacity() - body.len();
    // Kept for long, it must not keep twice its size.
    let body = if spare > body.len() / 4 { Bytes::copy_from_slice(&body) } else { body.freeze() };
    Ok(Page::new(media_type.as_ref(), body))
}

/// Reads a body that nobody wants, if it is short and comes at once, so that its connection can be used again.
async fn drain(mut response: Response) {
    let reading = async {
        let mut left = DRAINED_BYTES;
        while let Ok(Some(piece)) = response.chunk().await {
            left = left.checked_sub(piece.len())?;
        }
        Some(())
    };
    // Otherwise the connection is closed.
    let _ = tokio::time::timeout(DRAINED_WITHIN, reading).await;
}

fn head_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn failed(error: &reqwest::Error) -> OriginError {
    tracing::debug!(error = chain(error), "a call to an origin failed");
    if error.is_timeout() {
        OriginError::too_slow()
    } else if is_closed(error) {
        OriginError::new(Why::Closed)
    } else if error.is_body() || error.is_decode() {
        OriginError::new(Why::Malformed("ended before its end, or breaks HTTP"))
    } else if error.is_connect() {
        OriginError::new(Why::Unreachable)
    } else {
        OriginError::new(Why::Lost)
    }
}

/// Milliseconds since `begun`.
pub(super) fn ms_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
