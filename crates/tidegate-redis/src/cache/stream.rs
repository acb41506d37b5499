//! Where a reader is in a stream, and whether it missed anything.
//!
//! Ids tell where to go on; numbers tell whether something is missing: each entry has the number after that of the entry
//! before it, and a stream that begins anew begins with a number that no stream had. So a stream that was trimmed, deleted,
//! or rewritten by a master that lacked the newest entries shows as a jump, or as a stream that ends before the reader.

use redis::Value;

/// An entry's id.
pub(super) type Id = (u64, u64);

/// An entry as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: Id,
    /// `None` when a stranger wrote it.
    pub(super) number: Option<u64>,
    pub(super) teller: Vec<u8>,
    pub(super) message: Vec<u8>,
}

/// The last entry that was read; by default none, of a stream that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    pub(super) id: Id,
    number: u64,
}

impl Position {
    /// At the end of the stream whose last entry is `top`.
    pub(super) fn at(top: Option<&Entry>) -> Self {
        top.map_or_else(Self::default, |entry| Self { id: entry.id, number: entry.number.unwrap_or(0) })
    }

    /// Whether the stream that ends with `top` cannot be the one that was read so far.
    pub(super) fn is_beyond(&self, top: Option<&Entry>) -> bool {
        let end = Self::at(top);
        end.id < self.id || (end.id == self.id && end.number != self.number)
    }

    /// Goes on to `entry`; whether entries before it are missing.
    pub(super) fn follow(&mut self, entry: &Entry) -> bool {
        let missing = self.id != (0, 0) && entry.number != Some(self.number + 1);
        *self = Self::at(Some(entry));
        missing || entry.number.is_none()
    }

    /// As Redis reads it.
    pub(super) fn text(&self) -> String {
        format!("{}-{}", self.id.0, self.id.1)
    }
}

/// The entries of one stream, as `XRANGE` and its kin give them.
pub(super) fn entries(value: Value) -> Option<Vec<Entry>> {
    let Value::Array(entries) = value else { return None };
    entries.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Array(parts) = value else { return None };
    let [id, fields] = <[Value; 2]>::try_from(parts).ok()?;
    let id = std::str::from_utf8(&bytes(id)?).ok().and_then(parse)?;
    let Value::Array(fields) = fields else { return None };
    let mut entry = Entry { id, number: None, teller: Vec::new(), message: Vec::new() };
    let mut fields = fields.into_iter();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        let value = bytes(value)?;
        match &bytes(name)?[..] {
            b"n" => entry.number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()),
            b"t" => entry.teller = value,
            b"m" => entry.message = value,
            _ => {}
        }
    }
    Some(entry)
}

fn parse(id: &str) -> Option<Id> {
    let (ms, number) = id.split_once('-')?;
    Some((ms.parse().ok()?, number.parse().ok()?))
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ms: u64, number: u64) -> Entry {
        Entry { id: (ms, 0), number: Some(number), teller: Vec::new(), message: Vec::new() }
    }

    #[test]
    fn what_is_missing_shows() {
        let mut position = Position::at(Some(&told(10, 100)));
        assert!(!position.follow(&told(11, 101)));
        assert!(!position.is_beyond(Some(&told(11, 101))), "nothing new");
        assert!(!position.is_beyond(Some(&told(12, 102))), "something new");
        assert!(position.is_beyond(None), "deleted");
        assert!(position.is_beyond(Some(&told(9, 99))), "a master without the newest");
        assert!(position.is_beyond(Some(&told(11, 7))), "another stream");
        assert!(position.follow(&told(13, 104)), "trimmed, or lost by a master and written over");
        assert!(!position.follow(&told(14, 105)), "told once");
        assert!(position.follow(&Entry { number: None, ..told(15, 0) }), "a stranger's");

        let mut position = Position::default();
        assert!(!position.is_beyond(None), "not there yet");
        assert!(!position.follow(&told(1, 500)), "the first ever");
    }

    #[test]
    fn entries_are_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let fields = ["n", "12", "t", "me", "m", "word", "x", "?"].map(text).to_vec();
        let read = entries(Value::Array(vec![Value::Array(vec![text("5-1"), Value::Array(fields)])]));
        let entry = Entry { id: (5, 1), number: Some(12), teller: b"me".to_vec(), message: b"word".to_vec() };
        assert_eq!((read, Position::at(Some(&entry)).text()), (Some(vec![entry]), "5-1".to_owned()));
        assert_eq!(entries(Value::Nil), None);
        assert_eq!(entries(Value::Array(vec![Value::Array(vec![text("5"), Value::Array(vec![])])])), None);
    }
}
