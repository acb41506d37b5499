//! `INFO keysizes` of Redis 8 and newer: how many keys of which size there are, without their names.
//!
//! A line `db0_distrib_strings_sizes:1=19,2=655,1K=31` says of each type how many keys have a size from a power of two on, below the
//! next; strings by their length in bytes, collections by their elements (`.._items`) and, where the server counts that (8.6, a setting
//! of its start), by what they take (`.._sizes`). The form is that of Redis' documentation of `INFO`; no such server was at hand: it is an
//! experiment, and its sums are checked before anything is believed.

use tidegate_backend::{Error, ErrorKind};
use tidegate_core::watch::{Info, bytes};

use super::rdb::Kind;

/// A bin from here on went below zero on the server (Redis 8.0 had several such faults).
const BELOW_ZERO: u64 = 1 << 63;
/// How far its sums may be from the number of keys, as a part of them.
const NEAR: f64 = 0.01;
/// From here on a key is big: bytes, and elements.
const BIG: (u64, u64) = (1 << 20, 8_192);
/// Most bins of a line that are read: there are as many powers of two.
const MAX_BINS: usize = 64;

/// That a server keeps no histograms, or does not let us have them.
pub(super) fn missing(address: &str) -> Error {
    let why = format!(
        "{address} has no INFO keysizes, or does not permit it (Redis 8 and newer have it); take another route: auto, snapshot or scan"
    );
    Error::new(ErrorKind::Configuration, why)
}

/// How many keys of a type have which size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// The database.
    pub database: u32,
    /// The type.
    pub kind: Kind,
    /// Sizes are bytes; else elements.
    pub is_bytes: bool,
    /// The smallest size of a bin, and how many keys are in it; the next power of two is the first that is not.
    pub bins: Vec<(u64, u64)>,
    /// Bins that had gone below zero, and count as 0 here.
    pub clamped: usize,
}

impl Histogram {
    /// Where a bin ends: the first size that is not in it.
    #[must_use]
    pub fn below(from: u64) -> u64 {
        from.saturating_mul(2).max(1)
    }

    /// All its keys.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.bins.iter().map(|(_, keys)| *keys).fold(0, u64::saturating_add)
    }

    /// How many of them are big: a MiB, or 8,192 elements, and more.
    #[must_use]
    pub fn big(&self) -> u64 {
        let from = if self.is_bytes { BIG.0 } else { BIG.1 };
        self.bins.iter().filter(|(size, _)| *size >= from).map(|(_, keys)| *keys).fold(0, u64::saturating_add)
    }

    /// It counts every key of its type once: what collections take is told beside how many elements they have.
    fn counts_keys(&self) -> bool {
        self.kind == Kind::String || !self.is_bytes
    }
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeySizes {
    pub(super) histograms: Vec<Histogram>,
    /// Keys by all histograms.
    pub(super) keys: u64,
}

/// Reads the answer to `INFO keysizes`; `None`: it has no such section.
pub(super) fn parse(text: &str) -> Option<KeySizes> {
    let info = Info::parse(text);
    let histograms: Vec<Histogram> = info.beginning("db").filter_map(|(name, value)| histogram(name, value)).collect();
    // A server that has the section and no keys says its name alone.
    if histograms.is_empty() && !text.to_ascii_lowercase().contains("# keysizes") {
        return None;
    }
    let keys = histograms.iter().filter(|of| of.counts_keys()).map(Histogram::keys).fold(0, u64::saturating_add);
    Some(KeySizes { histograms, keys })
}

/// `0_distrib_strings_sizes` and its bins.
fn histogram(name: &str, value: &str) -> Option<Histogram> {
    let (database, name) = name.split_once("_distrib_")?;
    let (kind, unit) = name.rsplit_once('_')?;
    let kind = match kind {
        "strings" => Kind::String,
        "lists" => Kind::List,
        "sets" => Kind::Set,
        "zsets" => Kind::SortedSet,
        "hashes" => Kind::Hash,
        "streams" => Kind::Stream,
        _ => return None,
    };
    let mut of = Histogram {
        database: database.parse().ok()?,
        kind,
        is_bytes: match unit {
            "sizes" => true,
            "items" => false,
            _ => return None,
        },
        bins: Vec::new(),
        clamped: 0,
    };
    for bin in value.split(',').take(MAX_BINS) {
        let (from, keys) = bin.split_once('=')?;
        let keys = match keys.parse::<u64>() {
            Ok(keys) if keys < BELOW_ZERO => keys,
            // O14: counted below zero; written as a large number, or with its sign.
            Ok(_) => clamp(&mut of),
            Err(_) if keys.parse::<i64>().is_ok() => clamp(&mut of),
            Err(_) => return None,
        };
        of.bins.push((size(from)?, keys));
    }
    Some(of)
}

fn clamp(of: &mut Histogram) -> u64 {
    of.clamped += 1;
    0
}

/// `0`, `512`, `1K`, `2M`.
fn size(text: &str) -> Option<u64> {
    let (number, power) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        (at, 'T') => (&text[..at], 40),
        (at, 'P') => (&text[..at], 50),
        (at, 'E') => (&text[..at], 60),
        _ => (text, 0),
    };
    number.parse::<u64>().ok()?.checked_mul(1 << power)
}

impl KeySizes {
    /// Whether its sums are near enough to the `total` keys that the server says it has; in words why not.
    pub(super) fn agrees_with(&self, total: u64) -> Result<(), String> {
        let off = self.keys.abs_diff(total);
        if off as f64 <= total as f64 * NEAR {
            return Ok(());
        }
        Err(format!(
            "INFO keysizes counts {} keys and DBSIZE {total}, more than 1 % apart (streams and modules' values are in some versions not counted)",
            self.keys
        ))
    }

    /// Bins that had gone below zero.
    pub(super) fn clamped(&self) -> usize {
        self.histograms.iter().map(|of| of.clamped).sum()
    }

    /// Keys that are surely big.
    pub(super) fn big(&self) -> u64 {
        self.histograms.iter().map(Histogram::big).fold(0, u64::saturating_add)
    }

    /// Whether nothing can be big: what collections take is known, so that a few elements of megabytes would show.
    pub(super) fn is_surely_small(&self) -> bool {
        let has = |kind: Kind, database: u32| {
            self.histograms.iter().any(|of| of.is_bytes && of.kind == kind && of.database == database)
        };
        self.big() == 0
            && self.clamped() == 0
            && self.histograms.iter().all(|of| of.keys() == 0 || has(of.kind, of.database))
    }

    /// The largest bin of each type in words: `strings below 64.0 KiB, hashes below 128 elements`.
    pub(super) fn largest(&self) -> String {
        let mut words = Vec::new();
        for of in &self.histograms {
            let Some((from, _)) = of.bins.iter().rev().find(|(_, keys)| *keys > 0) else { continue };
            let below = Histogram::below(*from);
            let size = if of.is_bytes { bytes(below) } else { format!("{below} elements") };
            words.push(format!("{} below {size}", of.kind.name()));
        }
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redis' documentation and its tests show it.
    const TEXT: &str = "# Keysizes\r\n\
        db0_distrib_strings_sizes:0=1,1=19,2=655,512=100,1K=31,32K=2\r\n\
        db0_distrib_lists_items:1=10,4K=1,8K=2\r\n\
        db0_distrib_hashes_items:2=5\r\ndb0_distrib_hashes_sizes:64=4,1M=1\r\n\
        db1_distrib_zsets_items:1=3\r\ndb1_distrib_odd_items:1=3\r\n";

    #[test]
    fn histograms() {
        let sizes = parse(TEXT).unwrap();
        let strings = &sizes.histograms.iter().find(|of| of.kind == Kind::String).unwrap();
        assert_eq!(strings.bins, [(0, 1), (1, 19), (2, 655), (512, 100), (1_024, 31), (32_768, 2)]);
        assert_eq!((sizes.keys, sizes.histograms.len()), (1 + 19 + 655 + 100 + 31 + 2 + 13 + 5 + 3, 5));
        assert_eq!((sizes.big(), sizes.clamped(), sizes.is_surely_small()), (3, 0, false));
        let words = sizes.largest();
        for want in
            ["string below 64.0 KiB", "list below 16384 elements", "hash below 4 elements", "hash below 2.0 MiB"]
        {
            assert!(words.contains(want), "{words}");
        }
        assert_eq!([Histogram::below(0), Histogram::below(1), Histogram::below(512)], [1, 2, 1_024]);
        assert_eq!(
            (size("4K"), size("1G"), size("K"), size("9999P"), size("")),
            (Some(4_096), Some(1 << 30), None, Some(9_999 << 50), None)
        );
        assert_eq!(size("99999999999P"), None);
    }

    /// O14.
    #[test]
    fn bins_below_zero_count_nothing() {
        let text = "# Keysizes\r\ndb0_distrib_strings_sizes:0=18446744073709507420,1=100,2=-3,4=5\r\n";
        let sizes = parse(text).unwrap();
        assert_eq!((sizes.keys, sizes.clamped(), sizes.is_surely_small()), (105, 2, false));
        assert!(sizes.agrees_with(106).is_ok());
        let why = sizes.agrees_with(44_196).unwrap_err();
        assert!(why.contains("counts 105 keys and DBSIZE 44196"), "{why}");
    }

    #[test]
    fn what_is_surely_small() {
        let is = |text: &str| parse(text).unwrap().is_surely_small();
        assert!(is("# Keysizes\r\ndb0_distrib_strings_sizes:512K=9\r\n"));
        assert!(!is("# Keysizes\r\ndb0_distrib_strings_sizes:1M=1\r\n"));
        // A hash of a few fields may have megabytes in one of them.
        assert!(!is("# Keysizes\r\ndb0_distrib_hashes_items:4=9\r\n"));
        assert!(is("# Keysizes\r\ndb0_distrib_hashes_items:4=9\r\ndb0_distrib_hashes_sizes:1K=9\r\n"));
        assert!(!is("# Keysizes\r\ndb0_distrib_hashes_items:4=9\r\ndb1_distrib_hashes_sizes:1K=9\r\n"));
    }

    #[test]
    fn what_is_none() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("# Server\r\nredis_version:7.0.15\r\ndb0:keys=1,expires=0\r\n"), None);
        assert_eq!(parse("# Keysizes\r\n"), Some(KeySizes::default()));
        assert!(KeySizes::default().agrees_with(0).is_ok() && KeySizes::default().agrees_with(1).is_err());
        for line in [
            "x_distrib_strings_sizes:1=1",
            "0_distrib_strings_sizes:1",
            "0_distrib_strings_sizes:1=x",
            "0_distrib_strings_odd:1=1",
        ] {
            let sizes = parse(&format!("# Keysizes\r\ndb{line}\r\n")).unwrap();
            assert_eq!(sizes.histograms, [], "{line}");
        }
    }
}
