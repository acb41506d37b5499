//! What an origin answered, as it is cached.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use http::HeaderValue;
use tidegate::cache::{Codec, CodecError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Largest body of an origin's answer, bytes.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;
/// Longest `Content-Type` that is kept, bytes; a longer one counts as none.
const MAX_TYPE_BYTES: usize = 256;
/// Bodies up to this are sent whatever else is being sent.
const SMALL_BYTES: usize = 64 << 10;
/// What an answer without a usable `Content-Type` is.
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// An answer of an origin.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) media_type: HeaderValue,
    pub(crate) body: Bytes,
    /// The part of the budget that it takes while it is being sent, however often.
    share: Mutex<Weak<Share>>,
}

/// A part of the memory for answers that are being sent; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

impl Page {
    pub(crate) fn new(media_type: Option<&HeaderValue>, body: Bytes) -> Self {
        let media_type = media_type.filter(|value| is_media_type(value.as_bytes())).cloned().unwrap_or(UNKNOWN_TYPE);
        Self { media_type, body, share: Mutex::default() }
    }

    /// Leave to send it: `Ok(None)` for a small one; `Err`: too much is being sent already.
    pub(crate) fn share(&self, budget: &Arc<Semaphore>) -> Result<Option<Arc<Share>>, ()> {
        if self.body.len() <= SMALL_BYTES {
            return Ok(None);
        }
        let mut held = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = held.upgrade() {
            return Ok(Some(share));
        }
        // At most 16 MiB, in KiB.
        let wanted = u32::try_from(self.body.len().div_ceil(1_024)).unwrap_or(u32::MAX);
        let permit = Arc::clone(budget).try_acquire_many_owned(wanted).map_err(drop)?;
        let share = Arc::new(Share(permit));
        *held = Arc::downgrade(&share);
        Ok(Some(share))
    }
}

/// Whether a `Content-Type` may be handed on: `type/subtype`, then whatever is visible.
fn is_media_type(value: &[u8]) -> bool {
    let token = |part: &[u8]| {
        !part.is_empty() && part.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
    };
    let essence = value.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    let Some(slash) = essence.iter().position(|b| *b == b'/') else { return false };
    value.len() <= MAX_TYPE_BYTES
        && token(&essence[..slash])
        && token(&essence[slash + 1..])
        && value.iter().all(|b| matches!(b, b' '..=b'~'))
}

/// Pages into bytes: the length of the type (two bytes, the lower first), the type, the body.
pub(crate) struct PageCodec;

impl PageCodec {
    /// Most bytes that are stored beside a body.
    pub(crate) const BESIDE: usize = 2 + MAX_TYPE_BYTES;
}

impl Codec<Page> for PageCodec {
    fn number(&self) -> u8 {
        16
    }

    fn encode(&self, page: &Page) -> Result<Vec<u8>, CodecError> {
        let media_type = page.media_type.as_bytes();
        let length = u16::try_from(media_type.len())?;
        let mut bytes = Vec::with_capacity(2 + media_type.len() + page.body.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(media_type);
        bytes.extend_from_slice(&page.body);
        Ok(bytes)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Page, CodecError> {
        let (length, rest) = bytes.split_first_chunk().ok_or("no length")?;
        let length = usize::from(u16::from_le_bytes(*length));
        let (media_type, body) = rest.split_at_checked(length).ok_or("a type shorter than it says")?;
        if !is_media_type(media_type) || body.len() > MAX_BODY_BYTES {
            return Err("no page".into());
        }
        Ok(Page::new(Some(&HeaderValue::from_bytes(media_type)?), Bytes::copy_from_slice(body)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_sane_types_are_kept() {
        let long = format!("text/{}", "x".repeat(300));
        for (sent, kept) in [
            ("text/plain", "text/plain"),
            ("application/json; charset=utf-8", "application/json; charset=utf-8"),
            ("image/svg+xml", "image/svg+xml"),
            ("plain", "application/octet-stream"),
            ("/plain", "application/octet-stream"),
            ("text/", "application/octet-stream"),
            ("te xt/plain", "application/octet-stream"),
            ("", "application/octet-stream"),
            (long.as_str(), "application/octet-stream"),
        ] {
            let value = HeaderValue::from_str(sent).expect("a value");
            assert_eq!(Page::new(Some(&value), Bytes::new()).media_type, kept, "{sent}");
        }
        let odd = HeaderValue::from_bytes(b"text/plain; x=\xff").expect("a value");
        assert_eq!(Page::new(Some(&odd), Bytes::new()).media_type, UNKNOWN_TYPE);
        assert_eq!(Page::new(None, Bytes::new()).media_type, UNKNOWN_TYPE);
    }

    #[test]
    fn one_page_takes_its_share_once() {
        let budget = Arc::new(Semaphore::new(200));
        let page = |kib: usize| Page::new(None, vec![0; kib << 10].into());
        let (large, other) = (page(150), page(100));
        let first = large.share(&budget).expect("room");
        let second = large.share(&budget).expect("the same");
        assert_eq!(budget.available_permits(), 50);
        assert!(other.share(&budget).is_err(), "no room");
        assert!(matches!(page(64).share(&budget), Ok(None)), "small ones need none");
        drop(first);
        assert!(other.share(&budget).is_err(), "still being sent");
        drop(second);
        assert_eq!(budget.available_permits(), 200);
        assert!(other.share(&budget).is_ok());
    }

    proptest! {
        #[test]
        fn what_is_stored_comes_back(body in prop::collection::vec(any::<u8>(), 0..400)) {
            let page = Page::new(Some(&HeaderValue::from_static("a/b; c=d")), body.clone().into());
            let back = PageCodec.encode(&page).and_then(|bytes| PageCodec.decode(&bytes)).expect("a page");
            prop_assert_eq!((&back.media_type, &back.body), (&page.media_type, &page.body));
            // Bytes of another's are no page, or one without a lie in it.
            if let Ok(page) = PageCodec.decode(&body) {
                prop_assert!(is_media_type(page.media_type.as_bytes()));
            }
        }
    }
}
