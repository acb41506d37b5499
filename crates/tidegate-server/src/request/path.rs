//! Percent-encoding (RFC 3986): decoding of path segments and query values, encoding of what we put into a `Location`.

use std::borrow::Cow;

/// `text` with its percent-encoding undone; `None` when it is broken or not UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// `text` as one segment of a path.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b':');
    if text.bytes().all(plain) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_what_is_broken() {
        for (plain, encoded) in
            [("a b", "a%20b"), ("a/b%2F", "a%2Fb%252F"), ("É", "%C3%89"), ("o-1:2", "o-1:2"), ("\n", "%0A")]
        {
            assert_eq!(encode(plain), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(plain));
        }
        for broken in ["%", "%2", "%zz", "%ff", "a%C3"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
