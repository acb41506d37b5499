//! The bytes of a stored entry.
//!
//! ```text
//! offset  bytes  what
//!      0      1  kind: V value, A "there is none", L lease, E error
//!      1     16  id: of the fill, or the lease's token. Scripts compare these 17 bytes and read on only for the version
//!     17      1  L: 1 once somebody waits for it; else 0
//!     18      8  V, A: version of the row, big-endian; all ones: none. E: claimable again at (ms), big-endian
//!     26      1  V, A: format (1)        E: what failed
//!     27      1  V, A: codec             E: the message, to the end less 8
//!     28      1  V, A: packing
//!     29      4  V, A: schema, big-endian
//!     33  3 x 8  V, A: born, soft, hard (ms since 1970 by the store's clock), big-endian
//!     57      4  V, A: what its load took, microseconds, big-endian
//!     61      1  V, A: number of tags; then 16 bytes each: hash of the tag, its counter, big-endian
//!      .      2  V, A: length of the key; then the key; then the payload
//!   last      8  V, A, E: XXH3-64 of all before, big-endian
//! ```
//!
//! Nothing in here trusts a byte: whatever cannot be read is [`Unreadable`], which a cache takes for a miss.

use xxhash_rust::xxh3::xxh3_64;

use super::life::Stamp;
use crate::Millis;

/// How many bytes at the beginning tell one writer's entry from another's.
pub const PREFIX_BYTES: usize = 17;
/// Most tags of an entry.
pub const MAX_TAGS: usize = 16;
/// Longest message of a stored error, bytes.
pub const MAX_MESSAGE_BYTES: usize = 512;

const WAITED: usize = PREFIX_BYTES;
const FIELDS: usize = 18;
const FIXED: usize = 62;
const FORMAT: u8 = 1;
const NO_VERSION: u64 = u64::MAX;

/// The version of a row: any counter or instant that only grows, `0..=2^53 - 1` (what scripts can count).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowVersion(u64);

impl RowVersion {
    /// The largest.
    pub const MAX: RowVersion = RowVersion((1 << 53) - 1);

    /// `version`, unless it is larger than [`RowVersion::MAX`].
    #[must_use]
    pub const fn new(version: u64) -> Option<Self> {
        if version <= Self::MAX.0 { Some(Self(version)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// What tells one writing of an entry from every other: random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryId(pub [u8; 16]);

/// What an entry begins with: its kind and its id. A compare-and-set compares this.
pub type Prefix = [u8; PREFIX_BYTES];

/// How a payload was made from a value; the number of the codec is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Codec(pub u8);

/// How a payload was packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As the codec gave it.
    Plain,
    /// An LZ4 block behind its unpacked length (4 bytes, little-endian).
    Lz4,
}

/// A tag as it stood when the entry's load began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagStamp {
    /// XXH3-64 of the tag.
    pub tag: u64,
    /// Its counter.
    pub counter: u64,
}

impl TagStamp {
    /// What a tag is known by.
    #[must_use]
    pub fn hash(tag: &str) -> u64 {
        xxh3_64(tag.as_bytes())
    }
}

/// What a value and "there is none" have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Of the fill.
    pub id: EntryId,
    /// Of the row.
    pub version: Option<RowVersion>,
    /// Of the value's type.
    pub schema: u32,
    /// Its instants.
    pub stamp: Stamp,
    /// What its load took, microseconds (at most 71 minutes).
    pub cost_us: u32,
    /// Its tags, at most [`MAX_TAGS`].
    pub tags: Vec<TagStamp>,
}

/// A failed load, to be shared by all who ask before `retry_at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Of the lease that failed.
    pub id: EntryId,
    /// No load before this instant, by the store's clock.
    pub retry_at: Millis,
    /// What failed; the numbers are the caller's.
    pub class: u8,
    /// In words, cut to [`MAX_MESSAGE_BYTES`].
    pub message: String,
}

/// An entry as it lies in a store.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry<'a> {
    /// A value.
    Value {
        /// About it.
        header: Header,
        /// How its payload was made.
        codec: Codec,
        /// How its payload was packed.
        packing: Packing,
        /// The value.
        payload: &'a [u8],
    },
    /// There is none.
    Absent(Header),
    /// Somebody loads it.
    Lease(EntryId),
    /// Its load failed.
    Failed(Failed),
}

/// Bytes that no entry of this format and key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// They are no entry, or were damaged, or come from another format.
    Garbage,
    /// They are the entry of another key.
    ForeignKey,
    /// Another schema's.
    ForeignSchema,
}

impl EntryId {
    /// What a lease with this token begins with.
    #[must_use]
    pub fn lease(self) -> Prefix {
        self.prefix(b'L')
    }

    /// What a value with this fill id begins with.
    #[must_use]
    pub fn value(self) -> Prefix {
        self.prefix(b'V')
    }

    fn prefix(self, kind: u8) -> Prefix {
        let mut prefix = [kind; PREFIX_BYTES];
        prefix[1..].copy_from_slice(&self.0);
        prefix
    }
}

/// The bytes of a lease.
#[must_use]
pub fn lease(token: EntryId) -> Vec<u8> {
    let mut bytes = token.lease().to_vec();
    bytes.push(0);
    bytes
}

/// Whether these bytes are a lease, and whether somebody waits for it.
#[must_use]
pub fn lease_waited(bytes: &[u8]) -> Option<bool> {
    (bytes.first() == Some(&b'L')).then(|| bytes.get(WAITED).is_some_and(|waited| *waited != 0))
}

/// Marks a lease as waited for.
pub fn set_waited(bytes: &mut [u8]) {
    if let (Some(b'L'), Some(waited)) = (bytes.first().copied(), bytes.get_mut(WAITED)) {
        *waited = 1;
    }
}

/// The version that the bytes of a value or an absence carry, without reading the rest: what scripts see.
#[must_use]
pub fn version_of(bytes: &[u8]) -> Option<RowVersion> {
    let has = matches!(bytes.first(), Some(b'V' | b'A'));
    has.then(|| take8(bytes, FIELDS)).flatten().and_then(RowVersion::new)
}

impl Header {
    /// The bytes of a value under `key`.
    #[must_use]
    pub fn value(&self, key: &[u8], codec: Codec, packing: Packing, payload: &[u8]) -> Vec<u8> {
        let packing = match packing {
            Packing::Plain => 0,
            Packing::Lz4 => 1,
        };
        self.write(b'V', key, [codec.0, packing], payload)
    }

    /// The bytes of "there is none" under `key`.
    #[must_use]
    pub fn absent(&self, key: &[u8]) -> Vec<u8> {
        self.write(b'A', key, [0, 0], &[])
    }

    fn write(&self, kind: u8, key: &[u8], [codec, packing]: [u8; 2], payload: &[u8]) -> Vec<u8> {
        debug_assert!(self.tags.len() <= MAX_TAGS && key.len() <= super::MAX_KEY_BYTES, "checked by the cache");
        let tags = &self.tags[..self.tags.len().min(MAX_TAGS)];
        let mut bytes = Vec::with_capacity(FIXED + 16 * tags.len() + 2 + key.len() + payload.len() + 8);
        bytes.extend_from_slice(&self.id.prefix(kind));
        bytes.push(0);
        bytes.extend_from_slice(&self.version.map_or(NO_VERSION, RowVersion::get).to_be_bytes());
        bytes.extend_from_slice(&[FORMAT, codec, packing]);
        bytes.extend_from_slice(&self.schema.to_be_bytes());
        for at in [self.stamp.born, self.stamp.soft, self.stamp.hard] {
            bytes.extend_from_slice(&at.0.to_be_bytes());
        }
        bytes.extend_from_slice(&self.cost_us.to_be_bytes());
        bytes.push(tags.len() as u8);
        for tag in tags {
            bytes.extend_from_slice(&tag.tag.to_be_bytes());
            bytes.extend_from_slice(&tag.counter.to_be_bytes());
        }
        bytes.extend_from_slice(&(key.len() as u16).to_be_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(payload);
        seal(bytes)
    }
}

impl Failed {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.id.prefix(b'E').to_vec();
        bytes.push(0);
        bytes.extend_from_slice(&self.retry_at.0.to_be_bytes());
        bytes.push(self.class);
        let cut = self.message.floor_char_boundary(MAX_MESSAGE_BYTES);
        bytes.extend_from_slice(&self.message.as_bytes()[..cut]);
        seal(bytes)
    }
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    bytes
}

impl<'a> Entry<'a> {
    /// Reads the bytes stored under `key` by writers of `schema`.
    ///
    /// # Errors
    /// [`Unreadable`]: to be taken for a miss, and overwritten.
    pub fn read(bytes: &'a [u8], key: &[u8], schema: u32) -> Result<Self, Unreadable> {
        use Unreadable::Garbage;
        let id = EntryId(bytes.get(1..PREFIX_BYTES).and_then(|id| id.try_into().ok()).ok_or(Garbage)?);
        if bytes[0] == b'L' {
            return if bytes.len() == FIELDS { Ok(Self::Lease(id)) } else { Err(Garbage) };
        }
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or(Garbage)?;
        if xxh3_64(body) != u64::from_be_bytes(*sum) {
            return Err(Garbage);
        }
        match bytes[0] {
            b'E' => Ok(Self::Failed(Failed {
                id,
                retry_at: Millis(take8(body, FIELDS).ok_or(Garbage)? as i64),
                class: *body.get(26).ok_or(Garbage)?,
                message: std::str::from_utf8(&body[27..]).map_err(|_| Garbage)?.to_owned(),
            })),
            b'V' | b'A' => Self::read_body(id, body, key, schema),
            _ => Err(Garbage),
        }
    }

    fn read_body(id: EntryId, body: &'a [u8], key: &[u8], schema: u32) -> Result<Self, Unreadable> {
        use Unreadable::{ForeignKey, ForeignSchema, Garbage};
        let fixed = body.get(..FIXED).ok_or(Garbage)?;
        if fixed[26] != FORMAT {
            return Err(Garbage);
        }
        let four = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let eight = |at| take8(body, at).ok_or(Garbage);
        if four(29) != schema {
            return Err(ForeignSchema);
        }
        let count = usize::from(fixed[61]);
        if count > MAX_TAGS {
            return Err(Garbage);
        }
        let mut tags = Vec::with_capacity(count);
        for at in (0..count).map(|n| FIXED + 16 * n) {
            tags.push(TagStamp { tag: eight(at)?, counter: eight(at + 8)? });
        }
        let rest = body.get(FIXED + 16 * count..).ok_or(Garbage)?;
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(Garbage)?;
        let (stored, payload) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(Garbage)?;
        if stored != key {
            return Err(ForeignKey);
        }
        let instant = |at| eight(at).map(|ms| Millis(ms as i64));
        let stamp = Stamp { born: instant(33)?, soft: instant(41)?, hard: instant(49)? };
        let version = match eight(18)? {
            NO_VERSION => None,
            version => Some(RowVersion::new(version).ok_or(Garbage)?),
        };
        let header = Header { id, version, schema, stamp, cost_us: four(57), tags };
        if body[0] == b'A' {
            return if payload.is_empty() { Ok(Self::Absent(header)) } else { Err(Garbage) };
        }
        let packing = match fixed[28] {
            0 => Packing::Plain,
            1 => Packing::Lz4,
            _ => return Err(Garbage),
        };
        Ok(Self::Value { header, codec: Codec(fixed[27]), packing, payload })
    }
}

fn take8(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header(tags: usize) -> Header {
        Header {
            id: EntryId([7; 16]),
            version: RowVersion::new(42),
            schema: 3,
            stamp: Stamp { born: Millis(1_000), soft: Millis(2_000), hard: Millis(3_000) },
            cost_us: 150_000,
            tags: (0..tags as u64).map(|n| TagStamp { tag: n, counter: n * n }).collect(),
        }
    }

    #[test]
    fn entries_read_back_as_they_were_written() {
        for tags in [0, 1, MAX_TAGS] {
            let header = header(tags);
            let bytes = header.value(b"key", Codec(1), Packing::Lz4, b"payload");
            assert_eq!(version_of(&bytes), RowVersion::new(42));
            assert_eq!(bytes[..PREFIX_BYTES], header.id.value());
            let value =
                Entry::Value { header: header.clone(), codec: Codec(1), packing: Packing::Lz4, payload: b"payload" };
            assert_eq!(Entry::read(&bytes, b"key", 3), Ok(value));
            assert_eq!(Entry::read(&bytes, b"kez", 3), Err(Unreadable::ForeignKey));
            assert_eq!(Entry::read(&bytes, b"key", 4), Err(Unreadable::ForeignSchema));
            let none = Header { version: None, ..header };
            assert_eq!(Entry::read(&none.absent(b""), b"", 3), Ok(Entry::Absent(none.clone())));
            assert_eq!(version_of(&none.absent(b"")), None);
        }
        let token = EntryId([9; 16]);
        let mut bytes = lease(token);
        assert_eq!(Entry::read(&bytes, b"any", 0), Ok(Entry::Lease(token)));
        assert_eq!(lease_waited(&bytes), Some(false));
        set_waited(&mut bytes);
        assert_eq!(lease_waited(&bytes), Some(true));
        assert_eq!(bytes[..PREFIX_BYTES], token.lease());
        let failed = Failed { id: token, retry_at: Millis(5), class: 2, message: "ö".repeat(MAX_MESSAGE_BYTES) };
        let cut = Failed { message: "ö".repeat(MAX_MESSAGE_BYTES / 2), ..failed.clone() };
        assert_eq!(Entry::read(&failed.bytes(), b"", 0), Ok(Entry::Failed(cut)));
    }

    #[test]
    fn one_flipped_bit_is_seen() {
        let bytes = header(2).value(b"key", Codec(0), Packing::Plain, b"a value");
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Entry::read(&damaged, b"key", 3).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_garbage(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0_usize..6, sealed in any::<bool>()) {
            if let (Some(first), Some(kind)) = (bytes.first_mut(), b"VALE".get(kind)) {
                *first = *kind;
            }
            // A right checksum takes it past the first hurdle.
            let bytes = if sealed { seal(bytes) } else { bytes };
            let _ = Entry::read(&bytes, b"", 0);
            let _ = (version_of(&bytes), lease_waited(&bytes));
        }
    }
}
