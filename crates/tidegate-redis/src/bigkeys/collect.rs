//! What was seen, added up in memory of one size: the largest keys, and sums by type, prefix and slot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::names::{self, prefix};
use super::rdb::{Kind, MAX_NAME};
use super::weight::Weight;

/// Prefixes that are told apart; keys of further ones are added up together.
pub const MAX_PREFIXES: usize = 4_096;
/// What freeing takes: each piece of memory, and each MiB, nanoseconds. Measured by `DEL` of large keys on Redis 7.0.
const FREE_NS: (u64, u64) = (200, 170_000);

/// Keys that were added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub keys: u64,
    /// What they take, bytes; keys whose size is not known count nothing.
    pub bytes: u64,
    /// Of how many the size is not known.
    pub unknown: u64,
    /// How many of them expire; 0 where that was not asked.
    pub expiring: u64,
}

impl Sum {
    fn add(&mut self, bytes: Option<u64>, expires: bool) {
        self.keys += 1;
        self.bytes = self.bytes.saturating_add(bytes.unwrap_or(0));
        self.unknown += u64::from(bytes.is_none());
        self.expiring += u64::from(expires);
    }

    /// One of them has another size than was thought.
    fn correct(&mut self, before: Option<u64>, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(before.unwrap_or(0)).saturating_add(bytes);
        self.unknown = self.unknown.saturating_sub(u64::from(before.is_none()));
    }

    /// One of them is gone.
    fn take_away(&mut self, bytes: Option<u64>) {
        self.keys = self.keys.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes.unwrap_or(0));
        self.unknown = self.unknown.saturating_sub(u64::from(bytes.is_none()));
    }

    fn join(&mut self, other: Sum) {
        self.keys += other.keys;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.unknown += other.unknown;
        self.expiring += other.expiring;
    }

    /// What they take, bytes, as far as it is known; `None`: of not one is it known.
    #[must_use]
    pub fn known_bytes(&self) -> Option<u64> {
        (self.keys == 0 || self.unknown < self.keys).then_some(self.bytes)
    }
}

/// A large key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BigKey {
    /// Its database.
    pub database: u64,
    /// Its name, the first MiB of it.
    pub name: Vec<u8>,
    /// How long its name is, bytes.
    pub name_length: u64,
    /// The type of its value.
    pub kind: Kind,
    /// How the server stores it; `None`: not known.
    pub encoding: Option<String>,
    /// Elements; bytes of a string. `None`: not known.
    pub elements: Option<u64>,
    /// What it takes in memory, bytes; an estimate by the snapshot, the server's own by SCAN. `None`: not known.
    pub bytes: Option<u64>,
    /// When it expires, milliseconds from when it was seen. `None`: it does not, or that is not known.
    pub ttl_ms: Option<i64>,
    /// Pieces of memory it consists of, about.
    pub pieces: u64,
    /// What it is for, if it is one of Tidegate's own.
    pub purpose: Option<&'static str>,
}

impl BigKey {
    /// About how long deleting it, or its end, keeps the server from everything else, milliseconds: an estimate, from what freeing
    /// takes on a common machine; `UNLINK` does it aside, except for a string. `None`: its size is not known.
    #[must_use]
    pub fn delete_blocks_ms(&self) -> Option<f64> {
        let bytes = self.bytes?;
        Some(
            (self.pieces.saturating_mul(FREE_NS.0).saturating_add((bytes >> 20).saturating_mul(FREE_NS.1))) as f64
                / 1e6,
        )
    }
}

/// A key as it comes by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) database: u64,
    pub(super) name: &'a [u8],
    pub(super) name_length: u64,
    pub(super) kind: Kind,
    pub(super) encoding: Option<&'static str>,
    pub(super) elements: Option<u64>,
    pub(super) weight: Option<Weight>,
    pub(super) expires_at: Option<i64>,
}

/// Everything seen so far.
#[derive(Debug)]
pub(super) struct Collector {
    top: usize,
    now: i64,
    /// By bytes; the number tells those of equal size apart.
    largest: BTreeMap<(u64, Reverse<u64>), BigKey>,
    /// Databases and names of these: SCAN may show a key twice.
    known: HashSet<(u64, Vec<u8>)>,
    number: u64,
    pub(super) all: Sum,
    pub(super) kinds: BTreeMap<Kind, Sum>,
    pub(super) prefixes: HashMap<Vec<u8>, Sum>,
    pub(super) other_prefixes: Sum,
    /// One for each slot of a Cluster.
    pub(super) slots: Option<Vec<Sum>>,
}

impl Collector {
    /// Keeps the `top` largest; `now`: milliseconds since 1970.
    pub(super) fn new(top: usize, now: i64, is_cluster: bool) -> Self {
        Self {
            top,
            now,
            largest: BTreeMap::new(),
            known: HashSet::new(),
            number: 0,
            all: Sum::default(),
            kinds: BTreeMap::new(),
            prefixes: HashMap::new(),
            other_prefixes: Sum::default(),
            slots: is_cluster.then(|| vec![Sum::default(); usize::from(crate::keys::SLOTS)]),
        }
    }

    /// The same that keeps more.
    pub(super) fn wider(mut self) -> Self {
        self.top = self.top * 2 + 50;
        self
    }

    pub(super) fn add(&mut self, seen: &Seen<'_>) {
        let bytes = seen.weight.map(|weight| weight.bytes);
        let expires = seen.expires_at.is_some();
        self.all.add(bytes, expires);
        self.kinds.entry(seen.kind).or_default().add(bytes, expires);
        let prefix = prefix(seen.name);
        if let Some(sum) = self.prefixes.get_mut(prefix) {
            sum.add(bytes, expires);
        } else if self.prefixes.len() < MAX_PREFIXES {
            self.prefixes.entry(prefix.to_vec()).or_default().add(bytes, expires);
        } else {
            self.other_prefixes.add(bytes, expires);
        }
        if let Some(slots) = &mut self.slots {
            slots[usize::from(crate::keys::slot_of(seen.name))].add(bytes, expires);
        }
        let bytes = bytes.unwrap_or(0);
        let is_large = self.largest.len() < self.top
            || self.largest.first_key_value().is_some_and(|((smallest, _), _)| bytes > *smallest);
        if is_large {
            self.keep(seen, bytes);
        }
    }

    fn keep(&mut self, seen: &Seen<'_>, bytes: u64) {
        let name = seen.name[..seen.name.len().min(MAX_NAME)].to_vec();
        if !self.known.insert((seen.database, name.clone())) {
            return;
        }
        let key = BigKey {
            database: seen.database,
            purpose: names::purpose(&name),
            name,
            name_length: seen.name_length,
            kind: seen.kind,
            encoding: seen.encoding.map(str::to_owned),
            elements: seen.elements,
            bytes: seen.weight.map(|weight| weight.bytes),
            ttl_ms: seen.expires_at.map(|at| at.saturating_sub(self.now)),
            pieces: seen.weight.map_or(0, |weight| weight.pieces),
        };
        self.number += 1;
        self.largest.insert((bytes, Reverse(self.number)), key);
        if self.largest.len() > self.top
            && let Some((_, gone)) = self.largest.pop_first()
        {
            self.known.remove(&(gone.database, gone.name));
        }
    }

    /// Hands out the largest, to be put back.
    pub(super) fn take_largest(&mut self) -> Vec<BigKey> {
        self.known.clear();
        std::mem::take(&mut self.largest).into_values().collect()
    }

    /// `key`, which was taken out, takes `bytes` instead of what was thought.
    pub(super) fn correct(&mut self, key: &mut BigKey, bytes: u64) {
        let before = key.bytes.replace(bytes);
        self.in_every_sum_of(key, |sum| sum.correct(before, bytes));
    }

    /// `key`, which was taken out, is not there any more, and not put back.
    pub(super) fn forget(&mut self, key: &BigKey) {
        self.in_every_sum_of(key, |sum| sum.take_away(key.bytes));
    }

    fn in_every_sum_of(&mut self, key: &BigKey, set: impl Fn(&mut Sum)) {
        set(&mut self.all);
        if let Some(sum) = self.kinds.get_mut(&key.kind) {
            set(sum);
        }
        set(self.prefixes.get_mut(prefix(&key.name)).unwrap_or(&mut self.other_prefixes));
        if let Some(slots) = &mut self.slots {
            set(&mut slots[usize::from(crate::keys::slot_of(&key.name))]);
        }
    }

    /// `key`, which was taken out, is of another type than was thought.
    pub(super) fn retype(&mut self, key: &mut BigKey, kind: Kind) {
        let before = std::mem::replace(&mut key.kind, kind);
        if before == kind {
            return;
        }
        if let Some(sum) = self.kinds.get_mut(&before) {
            sum.take_away(key.bytes);
            if *sum == Sum::default() {
                self.kinds.remove(&before);
            }
        }
        self.kinds.entry(kind).or_default().add(key.bytes, false);
    }

    pub(super) fn put_back(&mut self, keys: Vec<BigKey>) {
        for key in keys {
            self.number += 1;
            self.largest.insert((key.bytes.unwrap_or(0), Reverse(self.number)), key);
        }
    }

    /// Adds what another server's keys came to.
    pub(super) fn merge(&mut self, other: Collector) {
        self.all.join(other.all);
        for (kind, sum) in other.kinds {
            self.kinds.entry(kind).or_default().join(sum);
        }
        self.other_prefixes.join(other.other_prefixes);
        for (prefix, sum) in other.prefixes {
            let has_room = self.prefixes.len() < MAX_PREFIXES || self.prefixes.contains_key(&prefix);
            if has_room { self.prefixes.entry(prefix).or_default() } else { &mut self.other_prefixes }.join(sum);
        }
        if let (Some(into), Some(from)) = (&mut self.slots, other.slots) {
            into.iter_mut().zip(from).for_each(|(into, from)| into.join(from));
        }
        for ((bytes, _), key) in other.largest {
            self.number += 1;
            self.largest.insert((bytes, Reverse(self.number)), key);
        }
        while self.largest.len() > self.top {
            self.largest.pop_first();
        }
    }

    pub(super) fn into_largest(self) -> Vec<BigKey> {
        self.largest.into_values().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &[u8], bytes: u64) -> Seen<'_> {
        Seen {
            database: 0,
            name,
            name_length: name.len() as u64,
            kind: Kind::String,
            encoding: None,
            elements: None,
            weight: Some(Weight { bytes, pieces: 1 }),
            expires_at: None,
        }
    }

    #[test]
    fn the_largest_are_kept_each_once() {
        let mut all = Collector::new(3, 0, false);
        for (name, bytes) in [("a:1", 5), ("a:2", 9), ("b:1", 7), ("a:2", 9), ("c", 1), ("d", 8), ("e", 7)] {
            all.add(&seen(name.as_bytes(), bytes));
        }
        assert_eq!((all.all.keys, all.prefixes[&b"a:"[..]].keys), (7, 3));
        let mut more = Collector::new(3, 0, false);
        more.add(&seen(b"f", 8));
        all.merge(more);
        assert_eq!(all.all, Sum { keys: 8, bytes: 54, unknown: 0, expiring: 0 });
        let names: Vec<_> = all.into_largest().into_iter().map(|key| (key.name, key.bytes)).collect();
        assert_eq!(names, [(b"a:2".to_vec(), Some(9)), (b"d".to_vec(), Some(8)), (b"f".to_vec(), Some(8))]);
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut all = Collector::new(3, 0, true);
        let of = |name, kind, weight| Seen { kind, weight, ..seen(name, 0) };
        all.add(&of(b"a:1", Kind::Unknown, None));
        all.add(&of(b"a:2", Kind::Unknown, None));
        assert_eq!((all.all.known_bytes(), all.prefixes[&b"a:"[..]].known_bytes()), (None, None));
        assert_eq!((all.other_prefixes.known_bytes(), all.all.unknown), (Some(0), 2));
        let mut largest = all.take_largest();
        assert!(largest.iter().all(|key| key.bytes.is_none() && key.delete_blocks_ms().is_none()));
        for key in &mut largest {
            all.retype(key, Kind::Hash);
            all.correct(key, 7);
        }
        let sum = Sum { keys: 2, bytes: 14, unknown: 0, expiring: 0 };
        assert_eq!((all.all, all.prefixes[&b"a:"[..]]), (sum, sum));
        assert_eq!(all.kinds.into_iter().collect::<Vec<_>>(), [(Kind::Hash, sum)]);
    }

    #[test]
    fn prefixes_are_bounded() {
        let mut all = Collector::new(1, 0, true);
        for n in 0..10_000_u32 {
            all.add(&seen(format!("{n}:x").as_bytes(), 1));
        }
        assert_eq!((all.prefixes.len(), all.other_prefixes.keys), (MAX_PREFIXES, 10_000 - MAX_PREFIXES as u64));
        assert_eq!(all.slots.unwrap().iter().map(|slot| slot.keys).sum::<u64>(), 10_000);
    }
}
