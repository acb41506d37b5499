//! What a key weighs in a server's memory, from what its snapshot says of it.
//!
//! The sizes are those of the servers' own structures (`object.c`, `dict.h`, `sds.h`, `quicklist.h`, `server.h`, `stream.h` of Redis 7.0;
//! `hashtable.c`, `object.c`, `entry.c` of Valkey 8.1 and 9), added up as their `MEMORY USAGE key SAMPLES 0` does. What a snapshot
//! does not say is taken as usual: the levels of a skip list's nodes by their odds, a table that has just grown as being moved.

use super::rdb::Radix;

/// How a server asks for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// jemalloc, whose small sizes are multiples of `quantum` bytes.
    Jemalloc {
        /// 8 as Redis builds it, 16 as most distributions do.
        quantum: u64,
    },
    /// The C library's.
    Libc,
}

impl Allocator {
    /// What an allocation of `bytes` takes.
    #[must_use]
    pub fn size(self, bytes: u64) -> u64 {
        match self {
            Allocator::Libc => (bytes.saturating_add(23) & !15).saturating_sub(8).max(24),
            Allocator::Jemalloc { .. } if bytes <= 8 => 8,
            Allocator::Jemalloc { quantum } => {
                // Four sizes for each doubling, none nearer to the next than the quantum.
                let step = (1_u64 << ((bytes - 1).ilog2().saturating_sub(2))).max(quantum.max(8));
                bytes.checked_next_multiple_of(step).unwrap_or(bytes)
            }
        }
    }
}

/// How a server lays out its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Redis, and Valkey before 8.1: tables of entries that point to keys and values.
    Dict,
    /// Valkey 8.1: tables of buckets; an object has its key, and a short string, in itself.
    Buckets,
    /// Valkey 9: a sorted set's members, too, lie in its nodes.
    Buckets9,
}

/// What something weighs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Bytes.
    pub bytes: u64,
    /// Pieces of memory; deleting gives back each.
    pub pieces: u64,
}

impl Weight {
    fn new(bytes: u64, pieces: u64) -> Self {
        Self { bytes, pieces }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), pieces: self.pieces.saturating_add(other.pieces) }
    }
}

/// No table has more entries than this.
const MOST: u64 = 1 << 48;
/// Entries of a bucket.
const BUCKET_ENTRIES: u64 = 7;
const BUCKET: u64 = 64;
const OBJECT: u64 = 16;
/// Most members of a set in one piece, if nobody has set it (`set-max-listpack-entries`).
const LARGEST_PACK: u64 = 128;
/// An entry of a dict.
const ENTRY: u64 = 24;
const DICT: u64 = 56;
const HASHTABLE: u64 = 88;
/// Of a Cluster's dict of keys, an entry's links to those of the same slot.
const CLUSTER_ENTRY: u64 = 16;
/// Longest string that lies in its object.
const EMBEDDED: u64 = 44;
/// The largest object with key and value in one piece: Valkey 8.1, 9; the largest entry of a hash.
const LARGEST: [u64; 3] = [64, 128, 128];
/// A sorted set, its list, and the list's head with links of 32 levels.
const ZSET: u64 = 16 + 32;
const ZSET_HEAD: u64 = 24 + 32 * 16;
const QUICKLIST: u64 = 40;
const QUICKLIST_NODE: u64 = 40;
const STREAM: u64 = 64;
/// A stream keeps this much for what is added next.
const STREAM_ROOM: u64 = 4_096;
/// What Redis counts for a node of a tree of ids, whatever it takes.
const RADIX_NODE: u64 = 4 + 30 * 8;
/// What Valkey has allocated for such a node with one way on or none, and for each way of the others.
const RADIX_END: u64 = 20;
const RADIX_WAY: u64 = 9;
/// What a stream takes in Valkey beside its entries.
const VALKEY_STREAM: u64 = 130;
/// An entry that waits to be acknowledged, a group, and a consumer, without their trees.
const PENDING: u64 = 24;
const GROUP: u64 = 80;
const CONSUMER: u64 = 80;

/// How much a server's keys weigh.
#[derive(Debug, Clone)]
pub struct Model {
    layout: Layout,
    allocator: Allocator,
    /// A list of one node is kept as one piece, and so is a small set.
    small_lists: bool,
    /// The same for every key: the part of the table of keys that is its own.
    key_entry: u64,
    /// A node of a skip list, by the odds of its levels.
    node: u64,
}

/// What a string's header takes, with the zero at its end.
fn header(length: u64) -> u64 {
    match length {
        0..32 => 2,
        32..256 => 4,
        256..65_536 => 6,
        65_536..4_294_967_296 => 10,
        _ => 18,
    }
}

/// A header that is never shorter than that of an object's string.
fn long_header(length: u64) -> u64 {
    header(length).max(4)
}

impl Model {
    /// The weights of a server; `cluster`: it is part of a Cluster.
    #[must_use]
    pub fn new(layout: Layout, allocator: Allocator, cluster: bool) -> Self {
        let key_entry = match layout {
            Layout::Dict if cluster => ENTRY + CLUSTER_ENTRY,
            Layout::Dict => ENTRY,
            _ => 0,
        };
        let node = by_levels(|level| allocator.size(24 + 16 * level));
        Self { layout, allocator, small_lists: layout != Layout::Dict, key_entry, node }
    }

    /// The same of a server that keeps a list of one node as one piece (Redis and Valkey from 7.2 on).
    #[must_use]
    pub fn small_lists(mut self, small: bool) -> Self {
        self.small_lists = small;
        self
    }

    pub(super) fn has_small_lists(&self) -> bool {
        self.small_lists
    }

    fn is_dict(&self) -> bool {
        self.layout == Layout::Dict
    }

    fn piece(&self, bytes: u64) -> Weight {
        Weight::new(self.allocator.size(bytes), 1)
    }

    fn text(&self, length: u64) -> Weight {
        self.piece(length.saturating_add(header(length)))
    }

    /// Key and object of whatever is no string.
    pub(super) fn shell(&self, key: u64, has_end: bool) -> Weight {
        if self.is_dict() {
            self.text(key).and(Weight::new(OBJECT + self.key_entry, 2))
        } else {
            self.piece(OBJECT + self.key_in_object(key, has_end))
        }
    }

    fn key_in_object(&self, key: u64, has_end: bool) -> u64 {
        1 + if has_end { 8 } else { 0 } + key.saturating_add(header(key))
    }

    /// A string that is stored as a number.
    pub(super) fn number(&self, key: u64, has_end: bool) -> Weight {
        self.shell(key, has_end)
    }

    /// A string of `length` bytes, and its encoding.
    pub(super) fn string(&self, key: u64, has_end: bool, length: u64) -> (Weight, &'static str) {
        let raw = self.shell(key, has_end).and(self.piece(length.saturating_add(long_header(length))));
        let short = length + long_header(length);
        match self.layout {
            Layout::Dict if length <= EMBEDDED => {
                let object = self.piece(OBJECT + short);
                (self.text(key).and(object).and(Weight::new(self.key_entry, 1)), "embstr")
            }
            Layout::Dict => (raw, "raw"),
            Layout::Buckets | Layout::Buckets9 => {
                let (object, most) =
                    if self.layout == Layout::Buckets { (OBJECT, LARGEST[0]) } else { (OBJECT - 8, LARGEST[1]) };
                let whole = object.saturating_add(self.key_in_object(key, has_end)).saturating_add(short);
                // Whether it fits is asked without the room for its end.
                if whole - if has_end { 8 } else { 0 } <= most { (self.piece(whole), "embstr") } else { (raw, "raw") }
            }
        }
    }

    /// A value in one piece: a listpack, a set of integers.
    pub(super) fn blob(&self, bytes: u64) -> Weight {
        self.piece(bytes)
    }

    /// A list of nodes, without them.
    pub(super) fn quicklist(&self) -> Weight {
        Weight::new(QUICKLIST, 1)
    }

    /// A node of such a list.
    pub(super) fn quicklist_node(&self, bytes: u64) -> Weight {
        self.piece(bytes).and(Weight::new(QUICKLIST_NODE, 1))
    }

    /// A table of `count` entries, without them.
    pub(super) fn table(&self, count: u64) -> Weight {
        self.table_moved(count, 1)
    }

    /// The same, if each addition moves `steps` buckets of a table that has just grown.
    fn table_moved(&self, count: u64, steps: u64) -> Weight {
        if self.is_dict() {
            let count = count.min(MOST);
            let slots = count.clamp(4, MOST).next_power_of_two();
            let before = slots / 2;
            // It grows when it is full, and the old table stays until all is moved; a find and an addition move two of its slots.
            let is_moving = before >= 4 && count > before && count - before < before * 3 / 10;
            return Weight::new(DICT + 8 * (slots + if is_moving { before } else { 0 }), 2);
        }
        let count = count.clamp(1, MOST);
        let buckets = count.div_ceil(BUCKET_ENTRIES).next_power_of_two();
        let before = buckets / 2;
        let is_moving = before > 0 && count <= BUCKET_ENTRIES * before + before / steps;
        let chained = chained(count, buckets);
        Weight::new(HASHTABLE + BUCKET * (buckets + chained + if is_moving { before } else { 0 }), 2 + chained)
    }

    /// A set that is a table of `count` entries, without them.
    pub(super) fn set(&self, count: u64) -> Weight {
        if self.is_dict() && self.small_lists && (LARGEST_PACK + 1..=2 * LARGEST_PACK).contains(&count) {
            // From 7.2 on it was a listpack before, and the table was made large enough for one more: nothing is being moved.
            return Weight::new(DICT + 8 * 2 * LARGEST_PACK, 2);
        }
        self.table(count)
    }

    /// A member of a set that is a table.
    pub(super) fn member(&self, length: u64) -> Weight {
        self.text(length).and(self.entry())
    }

    fn entry(&self) -> Weight {
        if self.is_dict() { Weight::new(ENTRY, 1) } else { Weight::default() }
    }

    /// A field of a hash that is a table.
    pub(super) fn field(&self, field: u64, value: u64, has_end: bool) -> Weight {
        let end = if has_end { 8 } else { 0 };
        if self.is_dict() {
            return self.text(field.saturating_add(end)).and(self.text(value)).and(self.entry());
        }
        // A field with an end has no short header: that has no room to say so.
        let name = field.saturating_add(if has_end { long_header(field) } else { header(field) }) + end;
        let whole = name.saturating_add(value).saturating_add(long_header(value));
        if whole <= LARGEST[2] {
            self.piece(whole)
        } else {
            self.piece(name.saturating_add(8)).and(self.piece(value.saturating_add(long_header(value))))
        }
    }

    /// What leads to the fields of a hash that expire.
    pub(super) fn ends(&self, fields: u64) -> Weight {
        match self.layout {
            Layout::Buckets9 if fields > 0 => self.table(fields),
            _ => Weight::default(),
        }
    }

    /// A sorted set that is a skip list of `count` members, without them.
    pub(super) fn sorted(&self, count: u64) -> Weight {
        self.table_moved(count, 2).and(self.piece(ZSET_HEAD)).and(Weight::new(ZSET, 2))
    }

    /// A member of it.
    pub(super) fn scored(&self, length: u64) -> Weight {
        if self.layout == Layout::Buckets9 {
            let text = length.saturating_add(header(length) + 1);
            return Weight::new(by_levels(|level| self.allocator.size(text.saturating_add(16 + 16 * level))), 1);
        }
        self.text(length).and(self.entry()).and(Weight::new(self.node, 1))
    }

    /// A stream whose listpacks take `packs`, the last one `last` bytes; `ids`: the tree that leads to them.
    pub(super) fn stream(&self, ids: Radix, packs: Weight, last: u64) -> Weight {
        let room = self.allocator.size(last.max(STREAM_ROOM)).saturating_sub(self.allocator.size(last));
        let room = if ids.ids == 0 { 0 } else { room };
        let own = if self.is_dict() { STREAM } else { VALKEY_STREAM };
        packs.and(self.tree(ids)).and(Weight::new(own.saturating_add(room), 2))
    }

    /// A group of a stream, and what it waits for to be acknowledged.
    pub(super) fn group(&self, pending: Radix) -> Weight {
        let each = if self.is_dict() { PENDING } else { self.allocator.size(PENDING) };
        let entries = Weight::new(pending.ids.saturating_mul(each), pending.ids);
        self.tree(pending).and(entries).and(Weight::new(GROUP, 4))
    }

    /// One of its consumers, and what that one has not acknowledged.
    pub(super) fn consumer(&self, pending: Radix) -> Weight {
        self.tree(pending).and(Weight::new(CONSUMER, 4))
    }

    /// A tree of ids, as the server counts it.
    fn tree(&self, ids: Radix) -> Weight {
        let bytes = if self.is_dict() {
            ids.ids.saturating_mul(16).saturating_add(ids.nodes().saturating_mul(RADIX_NODE))
        } else {
            let ends = self.allocator.size(RADIX_END).saturating_mul(ids.ids.saturating_add(ids.chains));
            let ways = ids.ids.saturating_add(ids.branches).saturating_mul(RADIX_WAY);
            ends.saturating_add(ways)
        };
        Weight::new(bytes, ids.nodes())
    }
}

/// What a node of a skip list takes on average: each further level has a quarter of the odds.
fn by_levels(size: impl Fn(u64) -> u64) -> u64 {
    // In parts of 4^8; what is beyond the eighth level counts as the eighth.
    let whole = 1_u64 << 16;
    let mut left = whole;
    let mut sum: u64 = 0;
    for level in 1..=8 {
        let share = if level == 8 { left } else { left - left / 4 };
        sum = sum.saturating_add(size(level).saturating_mul(share));
        left -= share;
    }
    sum / whole
}

/// About how many buckets have another behind them, when `count` entries fall into `buckets`.
fn chained(count: u64, buckets: u64) -> u64 {
    if buckets < 4 {
        return 0;
    }
    let mean = count as f64 / buckets as f64;
    let mut odds = (-mean).exp();
    let mut fits = odds;
    for n in 1..=BUCKET_ENTRIES {
        odds *= mean / n as f64;
        fits += odds;
    }
    ((1.0 - fits).max(0.0) * buckets as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: Allocator = Allocator::Jemalloc { quantum: 16 };

    #[test]
    fn sizes_of_allocators() {
        let sizes = |allocator: Allocator| {
            [1, 8, 9, 16, 17, 25, 33, 65, 129, 161, 536, 4_097, 20_481].map(|n| allocator.size(n))
        };
        assert_eq!(sizes(REDIS), [8, 8, 16, 16, 32, 32, 48, 80, 160, 192, 640, 5_120, 24_576]);
        let own = Allocator::Jemalloc { quantum: 8 };
        assert_eq!(sizes(own), [8, 8, 16, 16, 24, 32, 40, 80, 160, 192, 640, 5_120, 24_576]);
        assert_eq!([1, 24, 25, 40, 41, 61].map(|n| Allocator::Libc.size(n)), [24, 24, 40, 40, 56, 72]);
        for allocator in [REDIS, own, Allocator::Libc] {
            assert!(allocator.size(u64::MAX) >= u64::MAX - 64);
        }
    }

    /// What `MEMORY USAGE` of the servers says of the same keys.
    #[test]
    fn weights_of_real_keys() {
        let redis = Model::new(Layout::Dict, REDIS, false);
        let [valkey8, valkey9] =
            [Layout::Buckets, Layout::Buckets9].map(|layout| Model::new(layout, Allocator::Libc, false));
        assert_eq!([&redis, &valkey8, &valkey9].map(|m| m.number(1, false).bytes), [48, 24, 24]);
        assert_eq!([&redis, &valkey8, &valkey9].map(|m| m.number(40, false).bytes), [88, 72, 72]);
        let strings = |m: &Model| [1, 10, 44, 60, 90, 200, 5_000].map(|length| m.string(1, false, length).0.bytes);
        assert_eq!(strings(&redis), [64, 64, 96, 112, 144, 272, 5_168]);
        assert_eq!(strings(&valkey8), [40, 40, 80, 96, 128, 240, 5_040]);
        assert_eq!(strings(&valkey9), [24, 40, 72, 88, 120, 240, 5_040]);
        let near = |m: &Model, weight: Weight, seen: u64| {
            let bytes = m.shell(1, false).and(weight).bytes;
            assert!(bytes.abs_diff(seen) * 100 <= seen * 4, "{bytes} for {seen}");
        };
        let times = |weight: Weight, n: u64| Weight::new(weight.bytes * n, weight.pieces * n);
        let set = |m: &Model, n: u64| m.table(n).and(times(m.member(29), n));
        for (n, seen) in [(129, 10_400), (256, 16_488), (257, 20_640), (600, 45_992), (1_000, 64_296), (5_000, 378_408)]
        {
            near(&redis, set(&redis, n), seen);
        }
        for (n, seen) in
            [(129, 7_512), (256, 16_576), (257, 14_568), (1_024, 66_432), (1_025, 58_312), (5_000, 274_000)]
        {
            near(&valkey8, set(&valkey8, n), seen);
        }
        for (m, seen) in [(&redis, [118_088, 645_576]), (&valkey8, [103_448, 500_664]), (&valkey9, [95_320, 461_544])] {
            for (n, seen) in [1_000, 5_000].into_iter().zip(seen) {
                near(m, m.sorted(n).and(times(m.scored(29), n)), seen);
            }
        }
        for (m, seen) in
            [(&redis, [458_408, 1_418_408]), (&valkey8, [273_216, 1_276_368]), (&valkey9, [273_136, 1_276_368])]
        {
            for (value, seen) in [16, 200].into_iter().zip(seen) {
                near(m, m.table(5_000).and(times(m.field(12, value, false), 5_000)), seen);
            }
        }
    }
}
