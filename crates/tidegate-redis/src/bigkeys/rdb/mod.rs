//! A replication snapshot (RDB), read once from its beginning to its end in memory of one size.
//!
//! - `reader.rs`: bytes, lengths, strings. `lzf.rs`, `crc64.rs`: what they may be packed in, and their sum.
//! - `value.rs`: every type and encoding. `radix.rs`: the trees of a stream's ids.
//!
//! Redis 6.2 to 8.0 and Valkey 7.2 to 9 (versions 9 to 12, and 80). Of a string only the length is kept, of a key's name at most
//! [`MAX_NAME`] bytes. Whatever is cut off, garbled or unknown is an error; nothing that was counted until then may be used.

mod crc64;
mod lzf;
mod radix;
mod reader;
mod value;

use std::fmt;
use std::io::{self, Read};

pub use self::radix::Radix;
use self::reader::Reader;
use self::value::Place;
use super::weight::{Model, Weight};

/// Longest name of a key that is kept whole, bytes.
pub const MAX_NAME: usize = 1 << 20;

/// Versions of Redis' snapshots that are read.
const REDIS: std::ops::RangeInclusive<u32> = 9..=12;
/// That of Valkey's own.
const VALKEY: u32 = 80;
/// The largest number of a database.
const MAX_DATABASE: u64 = i32::MAX as u64;

/// Why a snapshot was not read to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum RdbError {
    /// It could not be read.
    Read(io::Error),
    /// It ended too early.
    Truncated {
        /// After this many bytes.
        at: u64,
    },
    /// It contradicts itself.
    Corrupt {
        /// Near this byte.
        at: u64,
        /// What does.
        what: &'static str,
    },
    /// A version that is not known.
    Unsupported {
        /// Which, as the snapshot says.
        version: String,
    },
    /// A value of a type that is not known.
    UnsupportedType {
        /// Its number.
        code: u8,
        /// Near this byte.
        at: u64,
    },
}

pub(super) type RdbResult<T> = Result<T, RdbError>;

impl fmt::Display for RdbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RdbError::Read(e) => write!(f, "the snapshot cannot be read: {e}"),
            RdbError::Truncated { at } => write!(f, "the snapshot ends early, after {at} bytes"),
            RdbError::Corrupt { at, what } => write!(f, "the snapshot is garbled near byte {at}: {what}"),
            RdbError::Unsupported { version } => {
                write!(f, "a snapshot of version {version} is not known (known are Redis 9 to 12 and Valkey 80)")
            }
            RdbError::UnsupportedType { code, at } => {
                write!(f, "a value of type {code} near byte {at} of the snapshot is not known")
            }
        }
    }
}

impl std::error::Error for RdbError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RdbError::Read(e) => Some(e),
            _ => None,
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A string.
    String,
    /// A list.
    List,
    /// A set.
    Set,
    /// A sorted set.
    SortedSet,
    /// A hash.
    Hash,
    /// A stream.
    Stream,
    /// A module's, or a type that Tidegate does not know.
    Module,
    /// Nobody may say: `TYPE` is not permitted.
    Unknown,
}

impl Kind {
    /// Its name, as `TYPE` gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::String => "string",
            Kind::List => "list",
            Kind::Set => "set",
            Kind::SortedSet => "zset",
            Kind::Hash => "hash",
            Kind::Stream => "stream",
            Kind::Module => "module",
            Kind::Unknown => "unknown",
        }
    }
}

/// A key of a snapshot.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// The database it is in.
    pub database: u64,
    /// Its name, at most [`MAX_NAME`] bytes of it.
    pub name: &'a [u8],
    /// How long its name is.
    pub name_length: u64,
    /// The type of its value.
    pub kind: Kind,
    /// How its value is stored.
    pub encoding: &'static str,
    /// Elements; bytes of a string. `None`: the value does not say.
    pub elements: Option<u64>,
    /// What it takes in memory, an estimate. `None`: only a module knows.
    pub weight: Option<Weight>,
    /// When it expires, milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// What a snapshot came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its version, such as `REDIS 10`.
    pub version: String,
    /// Bytes.
    pub bytes: u64,
    /// Keys.
    pub keys: u64,
    /// Whether it had a sum, which was right.
    pub is_checked: bool,
}

/// Reads a snapshot from `source` to its end and gives each key to `each`. It reads on from where the last read ended, and never
/// needs more than some hundred KiB and the longest name of a key.
///
/// # Errors
/// The snapshot is cut off, garbled, or of an unknown version or type: then what `each` was given is worth nothing.
pub fn read(source: impl Read, model: &Model, mut each: impl FnMut(&Key<'_>)) -> Result<Snapshot, RdbError> {
    let mut r = Reader::new(source);
    let (version, is_valkey) = header(&mut r)?;
    let (mut name, mut scratch) = (Vec::new(), Vec::new());
    let (mut database, mut expires_at, mut keys) = (0, None, 0_u64);
    loop {
        match r.byte()? {
            // The end.
            255 => break,
            254 => {
                database = r.length()?;
                if database > MAX_DATABASE {
                    return r.corrupt("a database of an impossible number");
                }
            }
            253 => expires_at = Some(i64::from(i32::from_le_bytes(r.bytes()?)).saturating_mul(1_000)),
            252 => expires_at = Some(i64::from_le_bytes(r.bytes()?)),
            // How many keys there will be.
            251 => {
                r.length()?;
                r.length()?;
            }
            // What the server says of itself.
            250 => {
                r.skip_text()?;
                r.skip_text()?;
            }
            // How often, and how long ago the next key was used.
            249 => {
                r.byte()?;
            }
            248 => {
                r.length()?;
            }
            // What a module keeps beside keys: its number, when it is to be read, and what it wrote.
            247 => {
                for _ in 0..3 {
                    r.length()?;
                }
                value::skip_module(&mut r)?;
            }
            // A library of functions.
            245 => {
                r.skip_text()?;
            }
            // A slot of a Cluster, its keys, and those that expire.
            244 => {
                for _ in 0..3 {
                    r.length()?;
                }
            }
            // Slots that are on their way here: a name, and ranges.
            243 if is_valkey => {
                r.skip_text()?;
                for _ in 0..r.length()? {
                    r.length()?;
                    r.length()?;
                }
            }
            code @ 0..=127 => {
                let name_length = r.text(&mut name, MAX_NAME)?.length();
                let place = Place { model, key: name_length, has_end: expires_at.is_some(), is_valkey };
                let value = value::read(&mut r, code, place, &mut scratch)?;
                each(&Key {
                    database,
                    name: &name,
                    name_length,
                    kind: value.kind,
                    encoding: value.encoding,
                    elements: value.elements,
                    weight: value.weight,
                    expires_at: expires_at.take(),
                });
                keys += 1;
            }
            code => return Err(RdbError::UnsupportedType { code, at: r.position() }),
        }
    }
    let sum = r.sum();
    let told = u64::from_le_bytes(r.bytes()?);
    if told != 0 && told != sum {
        return r.corrupt("its sum is not that of its bytes");
    }
    Ok(Snapshot { version, bytes: r.position(), keys, is_checked: told != 0 })
}

/// The version, and whether it is Valkey's own.
fn header<R: Read>(r: &mut Reader<R>) -> RdbResult<(String, bool)> {
    let head = r.bytes::<9>()?;
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok());
    let (name, version) = if let Some(digits) = head.strip_prefix(b"REDIS") {
        ("REDIS", number(digits))
    } else if let Some(digits) = head.strip_prefix(b"VALKEY") {
        ("VALKEY", number(digits))
    } else {
        return r.corrupt("it does not begin like a snapshot");
    };
    let Some(version) = version else { return r.corrupt("its version is no number") };
    let known = if name == "VALKEY" { version == VALKEY } else { REDIS.contains(&version) };
    if !known {
        return Err(RdbError::Unsupported { version: format!("{name} {version}") });
    }
    Ok((format!("{name} {version}"), name == "VALKEY"))
}
