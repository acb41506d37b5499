//! The bytes of a snapshot as they come, in a buffer of one size.

use std::io::{ErrorKind, Read};

use super::crc64::crc64;
use super::lzf;
use super::{RdbError, RdbResult};

/// Bytes that are read at once.
const BUFFER: usize = 128 << 10;
/// What is kept of a compressed string whose beginning is wanted, beyond as many bytes.
const SPARE: usize = 256;
/// A byte of LZF never stands for more than this many.
const MAX_EXPANSION: u64 = 264;

/// A snapshot that is being read.
pub(super) struct Reader<R> {
    source: R,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// Up to where the buffer is in the sum.
    summed: usize,
    sum: u64,
    /// Bytes before the buffer.
    before: u64,
}

/// A length, or what stands for a string instead of one.
pub(super) enum Length {
    Bytes(u64),
    Number(i64),
    Packed,
}

/// A string, of which only the beginning was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// Its length.
    Bytes(u64),
    /// It is stored as a number.
    Number(i64),
}

impl Text {
    /// Its length, a number's when written out.
    pub(super) fn length(self) -> u64 {
        match self {
            Text::Bytes(length) => length,
            Text::Number(number) => digits(number),
        }
    }
}

/// Characters of a number.
fn digits(number: i64) -> u64 {
    let sign = u64::from(number < 0);
    sign + u64::from(number.unsigned_abs().checked_ilog10().unwrap_or(0)) + 1
}

impl<R: Read> Reader<R> {
    pub(super) fn new(source: R) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { source, buffer, at: 0, end: 0, summed: 0, sum: 0, before: 0 }
    }

    /// Bytes that were read.
    pub(super) fn position(&self) -> u64 {
        self.before + self.at as u64
    }

    pub(super) fn corrupt<T>(&self, what: &'static str) -> RdbResult<T> {
        Err(RdbError::Corrupt { at: self.position(), what })
    }

    /// The sum of all bytes so far.
    pub(super) fn sum(&mut self) -> u64 {
        self.sum = crc64(self.sum, &self.buffer[self.summed..self.at]);
        self.summed = self.at;
        self.sum
    }

    /// Reads more; the buffer is used up.
    #[cold]
    fn fill(&mut self) -> RdbResult<()> {
        self.sum();
        self.before += self.end as u64;
        (self.at, self.end, self.summed) = (0, 0, 0);
        loop {
            match self.source.read(&mut self.buffer) {
                Ok(0) => return Err(RdbError::Truncated { at: self.before }),
                Ok(count) => {
                    self.end = count;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(RdbError::Read(e)),
            }
        }
    }

    pub(super) fn byte(&mut self) -> RdbResult<u8> {
        if self.at == self.end {
            self.fill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> RdbResult<[u8; N]> {
        if let Some(bytes) = self.buffer[self.at..self.end].first_chunk::<N>() {
            let bytes = *bytes;
            self.at += N;
            return Ok(bytes);
        }
        let mut bytes = [0; N];
        for byte in &mut bytes {
            *byte = self.byte()?;
        }
        Ok(bytes)
    }

    /// Reads `length` bytes and keeps the first `keep` in `into`, which is emptied before.
    fn take(&mut self, length: u64, into: &mut Vec<u8>, keep: usize) -> RdbResult<()> {
        into.clear();
        let mut left = length;
        while left > 0 {
            if self.at == self.end {
                self.fill()?;
            }
            let here = (self.end - self.at).min(usize::try_from(left).unwrap_or(usize::MAX));
            let kept = here.min(keep - into.len());
            into.extend_from_slice(&self.buffer[self.at..self.at + kept]);
            self.at += here;
            left -= here as u64;
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, length: u64) -> RdbResult<()> {
        let mut left = length;
        while left > 0 {
            if self.at == self.end {
                self.fill()?;
            }
            let here = (self.end - self.at).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.at += here;
            left -= here as u64;
        }
        Ok(())
    }

    fn length_or_code(&mut self) -> RdbResult<Length> {
        let first = self.byte()?;
        Ok(match first >> 6 {
            0 => Length::Bytes(u64::from(first)),
            1 => Length::Bytes(u64::from(first & 63) << 8 | u64::from(self.byte()?)),
            2 => match first {
                0x80 => Length::Bytes(u64::from(u32::from_be_bytes(self.bytes()?))),
                0x81 => Length::Bytes(u64::from_be_bytes(self.bytes()?)),
                _ => return self.corrupt("a length of an unknown form"),
            },
            _ => match first & 63 {
                0 => Length::Number(i64::from(i8::from_le_bytes(self.bytes()?))),
                1 => Length::Number(i64::from(i16::from_le_bytes(self.bytes()?))),
                2 => Length::Number(i64::from(i32::from_le_bytes(self.bytes()?))),
                3 => Length::Packed,
                _ => return self.corrupt("a string of an unknown form"),
            },
        })
    }

    /// A number that says how many.
    pub(super) fn length(&mut self) -> RdbResult<u64> {
        match self.length_or_code()? {
            Length::Bytes(length) => Ok(length),
            _ => self.corrupt("a string where a length must be"),
        }
    }

    /// A string; its first `keep` bytes are left in `into`.
    pub(super) fn text(&mut self, into: &mut Vec<u8>, keep: usize) -> RdbResult<Text> {
        match self.length_or_code()? {
            Length::Bytes(length) => {
                self.take(length, into, keep)?;
                Ok(Text::Bytes(length))
            }
            Length::Number(number) => {
                into.clear();
                if keep > 0 {
                    into.extend_from_slice(number.to_string().as_bytes());
                    into.truncate(keep);
                }
                Ok(Text::Number(number))
            }
            Length::Packed => {
                let (packed, length) = (self.length()?, self.length()?);
                if length == 0 || length > packed.saturating_mul(MAX_EXPANSION) {
                    return self.corrupt("a compressed string that stands for too much or nothing");
                }
                // Whatever is stored without a reference takes a byte more for each 32.
                self.take(
                    packed,
                    into,
                    if keep == 0 { 0 } else { keep.saturating_add(keep / 32).saturating_add(SPARE) },
                )?;
                if keep > 0 {
                    let wanted = keep.min(usize::try_from(length).unwrap_or(usize::MAX));
                    let Some(text) = lzf::unpack(into, wanted).filter(|text| text.len() == wanted) else {
                        return self.corrupt("a compressed string that cannot be unpacked");
                    };
                    *into = text;
                }
                Ok(Text::Bytes(length))
            }
        }
    }

    /// A string of which only the length counts.
    pub(super) fn skip_text(&mut self) -> RdbResult<Text> {
        let mut none = Vec::new();
        self.text(&mut none, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_numbers() {
        for number in [0, 9, 10, -1, -10, 127, -128, 32_767, i64::from(i32::MIN), i64::MAX] {
            assert_eq!(digits(number), number.to_string().len() as u64);
        }
    }

    #[test]
    fn lengths_and_strings() {
        let mut into = Vec::new();
        let mut read = |bytes: &[u8]| {
            let text = Reader::new(bytes).text(&mut into, 5).unwrap();
            (text, String::from_utf8(into.clone()).unwrap())
        };
        assert_eq!(read(b"\x03abc"), (Text::Bytes(3), "abc".to_owned()));
        assert_eq!(read(b"\x40\x06abcdef"), (Text::Bytes(6), "abcde".to_owned()));
        assert_eq!(read(b"\x80\0\0\0\x01a"), (Text::Bytes(1), "a".to_owned()));
        assert_eq!(read(b"\x81\0\0\0\0\0\0\0\x01a"), (Text::Bytes(1), "a".to_owned()));
        assert_eq!(read(b"\xc0\xfe"), (Text::Number(-2), "-2".to_owned()));
        assert_eq!(read(b"\xc1\x00\x01"), (Text::Number(256), "256".to_owned()));
        assert_eq!(read(b"\xc2\x00\x00\x01\x00"), (Text::Number(65_536), "65536".to_owned()));
        assert_eq!(read(b"\xc3\x05\x0a\x00a\xe0\x00\x00"), (Text::Bytes(10), "aaaaa".to_owned()));
        for bytes in [&b"\x82"[..], b"\xc4", b"\xc3\x01\x50\x00", b"\xc3\x02\x0a\x20\x00", b"\x05abc", b""] {
            assert!(Reader::new(bytes).text(&mut into, 5).is_err(), "{bytes:?}");
        }
    }
}
