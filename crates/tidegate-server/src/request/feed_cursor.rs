//! Cursors of feeds: where a page ended and what its walk began with, signed for its viewer. Opaque to callers.
//!
//! The text is base64url of the fields and of the first 16 bytes of HMAC-SHA-256 (RFC 2104) over them and the viewer. Its key
//! is made from the ledger's own number, which every node knows and no answer tells.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tidegate::core::Millis;
use tidegate::core::feed::{Edge, Place};
use tidegate::feed::{Cursor, MAX_RECENT, Order, PostId, Recent, UserId};

/// The version of the layout, and the first byte of a cursor.
const LAYOUT: u8 = 2;
/// Bytes of a signature.
const SIGNATURE: usize = 16;
/// No cursor is longer, characters.
pub(crate) const MAX_CURSOR: usize = 400 + 8 * MAX_RECENT;

/// Signs and reads cursors.
#[derive(Clone)]
pub(crate) struct Cursors(Hmac<Sha256>);

impl Cursors {
    /// With the key of this ledger.
    pub(crate) fn new(ledger: u64) -> Self {
        let secret = [&b"tidegate feed cursor"[..], &ledger.to_be_bytes()].concat();
        Self(Hmac::new_from_slice(&secret).expect("HMAC takes keys of any length"))
    }

    fn sign(&self, viewer: &UserId, fields: &[u8]) -> [u8; SIGNATURE] {
        let mut mac = self.0.clone();
        mac.update(viewer.as_str().as_bytes());
        // No name has it, so that none runs into the fields.
        mac.update(&[0]);
        mac.update(fields);
        let whole = mac.finalize().into_bytes();
        let mut signature = [0; SIGNATURE];
        signature.copy_from_slice(&whole[..SIGNATURE]);
        signature
    }

    /// The text of a cursor in the feed of `viewer`.
    pub(crate) fn encode(&self, viewer: &UserId, cursor: &Cursor) -> String {
        let mut bytes = vec![LAYOUT, u8::from(cursor.order == Order::Oldest)];
        put_instant(&mut bytes, cursor.since);
        let (kind, at, post) = match &cursor.top {
            Edge::Instant(at) => (0, *at, None),
            Edge::Before(place) => (1, place.at, Some(&place.post)),
            Edge::After(place) => (2, place.at, Some(&place.post)),
        };
        bytes.push(kind);
        bytes.extend(at.0.to_be_bytes());
        put_name(&mut bytes, post.map_or("", PostId::as_str));
        bytes.extend(cursor.position.at.0.to_be_bytes());
        put_name(&mut bytes, cursor.position.post.as_str());
        if let Some(recent) = &cursor.recent {
            bytes.push(1);
            bytes.extend(recent.to_bytes());
        }
        let signature = self.sign(viewer, &bytes);
        bytes.extend(signature);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The cursor of a text, if it was given out in the feed of `viewer`.
    ///
    /// # Errors
    /// For every other text.
    pub(crate) fn decode(&self, viewer: &UserId, text: &str) -> Result<Cursor, &'static str> {
        const FORGED: &str = "is not a cursor that this feed gave out; begin without one";
        self.read(viewer, text).ok_or(FORGED)
    }

    fn read(&self, viewer: &UserId, text: &str) -> Option<Cursor> {
        if text.len() > MAX_CURSOR {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (fields, signature) = bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE)?)?;
        if !bool::from(self.sign(viewer, fields).ct_eq(signature)) {
            return None;
        }
        let mut from = Reader(fields);
        if from.byte()? != LAYOUT {
            return None;
        }
        let order = if from.byte()? == 0 { Order::Newest } else { Order::Oldest };
        let since = from.instant()?;
        let kind = from.byte()?;
        let (at, post) = (from.millis()?, from.name()?);
        let place = |post: &str| Some(Place { at, post: PostId::parse(post).ok()? });
        let top = match kind {
            0 => Edge::Instant(at),
            1 => Edge::Before(place(post)?),
            _ => Edge::After(place(post)?),
        };
        let position = Place { at: from.millis()?, post: PostId::parse(from.name()?).ok()? };
        let recent = match from.byte() {
            None => None,
            Some(_) => Some(Recent::from_bytes(from.0)?),
        };
        Some(Cursor { order, since, top, position, recent })
    }
}

fn put_instant(to: &mut Vec<u8>, at: Option<Millis>) {
    to.push(u8::from(at.is_some()));
    to.extend(at.unwrap_or_default().0.to_be_bytes());
}

fn put_name(to: &mut Vec<u8>, name: &str) {
    to.push(u8::try_from(name.len()).expect("a post's name has 64 bytes at most"));
    to.extend_from_slice(name.as_bytes());
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    fn millis(&mut self) -> Option<Millis> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(Millis(i64::from_be_bytes(bytes)))
    }

    fn instant(&mut self) -> Option<Option<Millis>> {
        let is_there = self.byte()? == 1;
        self.millis().map(|at| is_there.then_some(at))
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        std::str::from_utf8(self.take(length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(at: i64, post: &str) -> Place {
        Place { at: Millis(at), post: PostId::parse(post).expect("a name") }
    }

    #[test]
    fn only_what_was_given_out_to_a_viewer_is_taken_back_from_him() {
        let user = |name: &str| UserId::parse(name).expect("a name");
        let (ann, cursors) = (user("ann"), Cursors::new(7));
        let long = "x".repeat(64);
        let tops = [Edge::Instant(Millis(-5)), Edge::Before(place(3, "a")), Edge::After(place(i64::MAX, &long))];
        let many: Vec<UserId> = (0..MAX_RECENT).map(|n| user(&format!("u{n}"))).collect();
        for (top, among) in tops.into_iter().zip([0, 3, MAX_RECENT]) {
            for (order, since, recent) in
                [(Order::Newest, None, Some(Recent::of(&many[..among]))), (Order::Oldest, Some(Millis(0)), None)]
            {
                let cursor = Cursor { order, since, top: top.clone(), position: place(9, &long), recent };
                let text = cursors.encode(&ann, &cursor);
                assert!(text.len() <= MAX_CURSOR, "{}", text.len());
                assert_eq!(cursors.decode(&ann, &text), Ok(cursor));
                assert!(cursors.decode(&user("ann2"), &text).is_err());
                assert!(Cursors::new(8).decode(&ann, &text).is_err());
                for at in (0..text.len()).step_by(1 + text.len() / 500) {
                    let mut other = text.clone().into_bytes();
                    other[at] = if other[at] == b'A' { b'B' } else { b'A' };
                    let other = String::from_utf8(other).expect("ASCII");
                    assert!(cursors.decode(&ann, &other).is_err(), "{at}");
                }
            }
        }
        for bad in ["", "A", "é", "====", &"A".repeat(MAX_CURSOR), &"A".repeat(MAX_CURSOR + 4)] {
            assert!(cursors.decode(&ann, bad).is_err(), "{bad}");
        }
    }
}
