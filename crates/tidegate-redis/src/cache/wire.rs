//! Notices as they lie in streams and are published: a message is a version, then notices; a notice is a kind, the
//! namespace (length first) and what belongs to the kind. Numbers are big-endian.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_backend::{CacheKey, CacheNotice};

const VERSION: u8 = 1;
const INVALIDATED: u8 = 1;
const TAG: u8 = 2;
const CLEARED: u8 = 3;
const GAP: u8 = 4;
/// A message ends with the notice that makes it this long, bytes.
const FULL: usize = 16_384;

/// `notices` in as few messages as their size allows. `Woken` is published, not told.
pub(super) fn encode<'a>(notices: impl Iterator<Item = &'a CacheNotice>) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for notice in notices {
        if messages.last().is_none_or(|message| message.len() >= FULL) {
            messages.push(vec![VERSION]);
        }
        if let Some(message) = messages.last_mut() {
            write(message, notice);
        }
    }
    messages
}

fn write(out: &mut Vec<u8>, notice: &CacheNotice) {
    let mut begin = |kind: u8, namespace: &str| {
        out.push(kind);
        out.push(u8::try_from(namespace.len()).expect("a namespace has at most 64 bytes"));
        out.extend_from_slice(namespace.as_bytes());
    };
    match notice {
        CacheNotice::Invalidated { namespace, key } => {
            begin(INVALIDATED, namespace);
            out.extend(u16::try_from(key.len()).expect("a key has at most 1,024 bytes").to_be_bytes());
            out.extend_from_slice(key);
        }
        CacheNotice::Tag { namespace, tag, counter } => {
            begin(TAG, namespace);
            out.extend(tag.to_be_bytes());
            out.extend(counter.to_be_bytes());
        }
        CacheNotice::Cleared { namespace } => begin(CLEARED, namespace),
        CacheNotice::Gap => begin(GAP, ""),
        CacheNotice::Woken { .. } | CacheNotice::Lost => {}
    }
}

/// What a message says. One of another version says that something was missed.
pub(super) fn decode(mut message: &[u8]) -> Vec<CacheNotice> {
    let mut notices = Vec::new();
    if take(&mut message) != Some([VERSION]) {
        return vec![CacheNotice::Gap];
    }
    while !message.is_empty() {
        match read(&mut message) {
            Some(notice) => notices.push(notice),
            None => {
                notices.push(CacheNotice::Gap);
                break;
            }
        }
    }
    notices
}

fn read(rest: &mut &[u8]) -> Option<CacheNotice> {
    let [kind, length] = take(rest)?;
    let namespace: Arc<str> = std::str::from_utf8(cut(rest, usize::from(length))?).ok()?.into();
    Some(match kind {
        INVALIDATED => {
            let length = u16::from_be_bytes(take(rest)?);
            let key = Bytes::copy_from_slice(cut(rest, usize::from(length))?);
            CacheNotice::Invalidated { namespace, key }
        }
        TAG => {
            let (tag, counter) = (u64::from_be_bytes(take(rest)?), u64::from_be_bytes(take(rest)?));
            CacheNotice::Tag { namespace, tag, counter }
        }
        CLEARED => CacheNotice::Cleared { namespace },
        GAP => CacheNotice::Gap,
        _ => return None,
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn cut<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (first, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(first)
}

/// What is published when a lease of `key` that was waited for is over.
pub(super) fn woken(key: &CacheKey) -> Vec<u8> {
    [key.namespace.as_bytes(), b"\0", &key.key].concat()
}

/// What such words mean.
pub(super) fn understand_woken(words: &[u8]) -> Option<CacheNotice> {
    let end = words.iter().position(|byte| *byte == 0)?;
    let namespace = std::str::from_utf8(&words[..end]).ok()?.into();
    Some(CacheNotice::Woken { namespace, key: Bytes::copy_from_slice(&words[end + 1..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalidated(key: &[u8]) -> CacheNotice {
        CacheNotice::Invalidated { namespace: "n".into(), key: Bytes::copy_from_slice(key) }
    }

    #[test]
    fn what_is_told_is_heard() {
        let long = vec![7; 1_024];
        let mut notices = vec![
            invalidated(b""),
            CacheNotice::Tag { namespace: "x".repeat(64).into(), tag: u64::MAX, counter: 1 },
            CacheNotice::Cleared { namespace: "c".into() },
            CacheNotice::Gap,
        ];
        notices.extend((0..100).map(|_| invalidated(&long)));
        let messages = encode(notices.iter());
        assert!(messages.len() > 5 && messages.iter().all(|message| message.len() < FULL + 2_048));
        let heard: Vec<_> = messages.iter().flat_map(|message| decode(message)).collect();
        assert_eq!(heard, notices);
        for cut in 2..messages[0].len() {
            let heard = decode(&messages[0][..cut]);
            let whole = heard.iter().zip(&notices).take_while(|(a, b)| a == b).count();
            assert!(whole == heard.len() || heard[whole..] == [CacheNotice::Gap], "{cut}");
        }
        assert_eq!(decode(b"\x02new"), [CacheNotice::Gap]);
        assert_eq!(decode(b""), [CacheNotice::Gap]);
    }

    #[test]
    fn a_key_of_any_bytes_is_woken() {
        let key = CacheKey { namespace: "n".into(), schema: 0, key: Bytes::from_static(b"\0a\xff\0") };
        let notice = CacheNotice::Woken { namespace: "n".into(), key: key.key.clone() };
        assert_eq!(understand_woken(&woken(&key)), Some(notice));
        assert_eq!(understand_woken(b"no end"), None);
    }
}
