//! Keys of cached entries: typed fields, each with its length, so that distinct fields never share a key.

use std::fmt;

/// Longest encoded key, bytes.
pub const MAX_KEY_BYTES: usize = 1_024;

/// A key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    /// Bytes of the encoded key.
    pub bytes: usize,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key has {} bytes and a cache takes {MAX_KEY_BYTES}; use a shorter key, or its hash", self.bytes)
    }
}

impl std::error::Error for KeyError {}

/// What a key is written into: bytes on the stack for short keys, on the heap for long ones.
#[derive(Debug, Clone)]
pub struct KeyWriter {
    short: [u8; KeyWriter::SHORT],
    length: usize,
    long: Vec<u8>,
}

impl Default for KeyWriter {
    fn default() -> Self {
        Self::new()
    }
}

impl KeyWriter {
    const SHORT: usize = 64;

    /// An empty one.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { short: [0; Self::SHORT], length: 0, long: Vec::new() }
    }

    /// What was written.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.length] } else { &self.long }
    }

    /// The same with zeros behind, if it is no longer than `N`: compared at once, whatever its length.
    #[must_use]
    #[inline]
    pub fn padded<const N: usize>(&self) -> Option<&[u8; N]> {
        const { assert!(N <= Self::SHORT, "no more is on the stack") };
        if self.length <= N { self.short.first_chunk() } else { None }
    }

    fn raw(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if self.long.is_empty() && end <= Self::SHORT {
            self.short[self.length..end].copy_from_slice(bytes);
        } else {
            if self.long.is_empty() {
                self.long.reserve(end.max(2 * Self::SHORT));
                self.long.extend_from_slice(&self.short[..self.length]);
            }
            self.long.extend_from_slice(bytes);
        }
        self.length = end;
    }

    /// One field of bytes: its length (7 bits a byte, lowest first, the high bit says that more follow), then itself.
    #[inline]
    pub fn field(&mut self, bytes: &[u8]) {
        // Most keys are short; every hit of a cache writes one.
        if bytes.len() < 0x80
            && self.long.is_empty()
            && let Some((length, rest)) = self.short.get_mut(self.length..).and_then(<[u8]>::split_first_mut)
            && let Some(to) = rest.get_mut(..bytes.len())
        {
            *length = bytes.len() as u8;
            to.copy_from_slice(bytes);
            self.length += 1 + bytes.len();
            return;
        }
        self.long_field(bytes);
    }

    #[cold]
    fn long_field(&mut self, bytes: &[u8]) {
        let mut left = bytes.len();
        while left >= 0x80 {
            self.raw(&[(left & 0x7f) as u8 | 0x80]);
            left >>= 7;
        }
        self.raw(&[left as u8]);
        self.raw(bytes);
    }
}

/// What an entry is cached under. Two keys that differ must write different fields; the number and order of fields is
/// the same for every value of a type, or the first field tells which.
pub trait Key {
    /// Writes the fields, one [`KeyWriter::field`] each.
    fn write(&self, to: &mut KeyWriter);

    /// The encoded key.
    ///
    /// # Errors
    /// [`KeyError`]: it is longer than [`MAX_KEY_BYTES`].
    #[inline]
    fn encode(&self) -> Result<KeyWriter, KeyError> {
        let mut to = KeyWriter::new();
        self.encode_to(&mut to)?;
        Ok(to)
    }

    /// The same into an empty writer: nothing is moved.
    ///
    /// # Errors
    /// As [`Key::encode`].
    #[inline]
    fn encode_to(&self, to: &mut KeyWriter) -> Result<(), KeyError> {
        self.write(to);
        if to.length > MAX_KEY_BYTES { Err(KeyError { bytes: to.length }) } else { Ok(()) }
    }
}

impl<T: Key + ?Sized> Key for &T {
    fn write(&self, to: &mut KeyWriter) {
        (**self).write(to);
    }
}

impl Key for str {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self.as_bytes());
    }
}

impl Key for String {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self.as_bytes());
    }
}

impl Key for [u8] {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self);
    }
}

impl Key for Vec<u8> {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self);
    }
}

impl Key for crate::SkuId {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self.as_str().as_bytes());
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Key for $number {
            #[inline]
            fn write(&self, to: &mut KeyWriter) {
                to.field(&self.to_be_bytes());
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Key for bool {
    fn write(&self, to: &mut KeyWriter) {
        to.field(&[u8::from(*self)]);
    }
}

impl<T: Key> Key for Option<T> {
    fn write(&self, to: &mut KeyWriter) {
        to.field(&[u8::from(self.is_some())]);
        if let Some(key) = self {
            key.write(to);
        }
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt),+)),+) => {$(
        impl<$($part: Key),+> Key for ($($part,)+) {
            #[inline]
            fn write(&self, to: &mut KeyWriter) {
                $(self.$at.write(to);)+
            }
        }
    )+};
}
tuples!((A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3), (A 0, B 1, C 2, D 3, E 4));

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(key: &impl Key) -> Vec<u8> {
        key.encode().expect("short enough").as_bytes().to_vec()
    }

    #[test]
    fn fields_cannot_run_into_each_other() {
        assert_ne!(bytes(&("a:b", "c")), bytes(&("a", "b:c")));
        assert_ne!(bytes(&("ab", "c")), bytes(&("a", "bc")));
        assert_ne!(bytes(&(None::<u8>, Some(1_u8))), bytes(&(Some(1_u8), None::<u8>)));
        assert_eq!(bytes(&"x".repeat(130))[..2], [0x82, 0x01]);
    }

    #[test]
    fn a_short_key_is_padded_with_zeros() {
        let key = ("ab", 7_u8).encode().expect("short");
        assert_eq!(key.padded::<8>(), Some(&[2, b'a', b'b', 1, 7, 0, 0, 0]));
        assert_eq!(key.padded::<5>(), Some(&[2, b'a', b'b', 1, 7]));
        assert_eq!(key.padded::<4>(), None);
        assert_eq!("x".repeat(80).encode().expect("not too long").padded::<64>(), None);
    }

    #[test]
    fn a_key_that_is_too_long_is_refused() {
        assert!("x".repeat(MAX_KEY_BYTES - 2).encode().is_ok());
        assert_eq!("x".repeat(MAX_KEY_BYTES - 1).encode().expect_err("too long").bytes, MAX_KEY_BYTES + 1);
    }

    proptest! {
        #[test]
        fn distinct_fields_have_distinct_keys(a in prop::collection::vec(".{0,90}", 3), b in prop::collection::vec(".{0,90}", 3)) {
            let of = |x: &[String]| bytes(&(x[0].as_str(), x[1].as_str(), x[2].as_str()));
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }
    }
}
