//! Keys of cached entries: typed fields, each with its length, so that distinct fields never share a key.

use std::fmt;

/// A hash of an encoded key, the same in every process: names a key in logs, where its bytes must not be.
#[must_use]
pub fn key_hash(encoded: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(encoded)
}

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

/// Reads the fields of an encoded key, in order.
#[derive(Debug, Clone)]
pub struct KeyReader<'a>(&'a [u8]);

impl<'a> KeyReader<'a> {
    /// From its first field on.
    #[must_use]
    pub const fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    /// The next field; `None`: there is none, or the bytes are no encoded key.
    pub fn field(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0_u32);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            if shift > 14 {
                return None;
            }
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    /// Whether all fields were read.
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// What an entry is cached under. Two keys that differ must write different fields; the number and order of fields is
/// the same for every value of a type, or the first field tells which.
pub trait Key {
    /// Writes the fields, one [`KeyWriter::field`] each.
    fn write(&self, to: &mut KeyWriter);

    /// Reads back what [`Key::write`] wrote. A type that cannot (the default) is looked up and stored like others, but its
    /// keys are not known again after a restart: what was read most is not warmed then.
    #[must_use]
    fn read(_: &mut KeyReader<'_>) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// The key that is encoded so; `None`: none of this type is.
    #[must_use]
    fn decode(encoded: &[u8]) -> Option<Self>
    where
        Self: Sized,
    {
        let mut from = KeyReader::new(encoded);
        Self::read(&mut from).filter(|_| from.is_at_end())
    }

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

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        std::str::from_utf8(from.field()?).ok().map(str::to_owned)
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

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        from.field().map(<[u8]>::to_vec)
    }
}

impl Key for crate::SkuId {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self.as_str().as_bytes());
    }

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        std::str::from_utf8(from.field()?).ok().and_then(|text| Self::parse(text).ok())
    }
}

impl Key for crate::OrderId {
    fn write(&self, to: &mut KeyWriter) {
        to.field(self.as_str().as_bytes());
    }

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        std::str::from_utf8(from.field()?).ok().and_then(|text| Self::parse(text).ok())
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Key for $number {
            #[inline]
            fn write(&self, to: &mut KeyWriter) {
                to.field(&self.to_be_bytes());
            }

            fn read(from: &mut KeyReader<'_>) -> Option<Self> {
                from.field()?.try_into().ok().map(Self::from_be_bytes)
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Key for bool {
    fn write(&self, to: &mut KeyWriter) {
        to.field(&[u8::from(*self)]);
    }

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        match from.field()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl<T: Key> Key for Option<T> {
    fn write(&self, to: &mut KeyWriter) {
        to.field(&[u8::from(self.is_some())]);
        if let Some(key) = self {
            key.write(to);
        }
    }

    fn read(from: &mut KeyReader<'_>) -> Option<Self> {
        if bool::read(from)? { T::read(from).map(Some) } else { Some(None) }
    }
}

macro_rules! tuples {
    ($(($($part:ident $at:tt),+)),+) => {$(
        impl<$($part: Key),+> Key for ($($part,)+) {
            #[inline]
            fn write(&self, to: &mut KeyWriter) {
                $(self.$at.write(to);)+
            }

            fn read(from: &mut KeyReader<'_>) -> Option<Self> {
                Some(($($part::read(from)?,)+))
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

    #[test]
    fn what_is_no_key_of_the_type_is_not_read_as_one() {
        assert_eq!(u64::decode(&bytes(&7_u32)), None);
        assert_eq!(String::decode(&[1, 0xff]), None);
        assert_eq!(String::decode(&bytes(&("a", "b"))), None, "a field is left");
        assert_eq!(<(String, u8)>::decode(&bytes(&"a")), None, "a field is missing");
        assert_eq!(bool::decode(&[1, 2]), None);
        assert_eq!(Vec::<u8>::decode(&[0xff, 0xff, 0xff, 0xff, 1]), None);
        assert_eq!(<&str>::decode(&bytes(&"a")), None, "this type cannot");
    }

    proptest! {
        #[test]
        fn a_key_is_read_back(
            text in ".{0,300}", raw in prop::collection::vec(any::<u8>(), 0..300), a in any::<i64>(), b in any::<Option<u8>>(),
            c in any::<bool>(),
        ) {
            let key = (text, raw, a, b, c);
            prop_assert_eq!(Key::decode(&bytes(&key)), Some(key));
        }

        #[test]
        fn garbage_is_read_without_a_panic(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(key) = <(String, Option<u16>)>::decode(&raw) {
                prop_assert_eq!(<(String, Option<u16>)>::decode(&bytes(&key)), Some(key));
            }
        }

        #[test]
        fn distinct_fields_have_distinct_keys(a in prop::collection::vec(".{0,90}", 3), b in prop::collection::vec(".{0,90}", 3)) {
            let of = |x: &[String]| bytes(&(x[0].as_str(), x[1].as_str(), x[2].as_str()));
            prop_assert_eq!(of(&a) == of(&b), a == b);
        }
    }
}
