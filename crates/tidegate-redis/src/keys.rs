//! Every key and channel. `NAME` is [`crate::RedisOptions::name`], `P` a partition; what stands in braces decides who in a
//! Cluster holds a key.
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `{tg:NAME:dP}:due` | sorted set | member: order number, instant (8 bytes each); score: when it is claimable next |
//! | `{tg:NAME:dP}:held` | hash | order number -> what is known of an order that was claimed; `r` -> the last receipt |
//! | `{tg:NAME:dP}:mark` | string | the server that held all deadlines when the index was last whole |
//! | `{tg:NAME}:owner` | string | the ledger that has the name, and the number of partitions |
//! | `{tg:NAME}:nodes` | hash | node -> its last heartbeat, Redis time in milliseconds; a second later for a node without leases |
//! | `{tg:NAME}:rebuild` | string, expires | who rebuilds the index now |
//! | `{tg:NAME:s:TAG}:stock:SKU` | string | units of a SKU of a [`crate::StockCounter`]; TAG: the SKU's hash tag, or the SKU |
//! | `{tg:NAME:s:TAG}:op:ID` | string, expires | what an operation did |
//! | `tg:NAME:c:NAMESPACE:{:KEY}:0`..`:3` | string, expires | a cached entry, a slot for each schema number modulo 4 |
//! | `tg:NAME:c:NAMESPACE:{:KEY}:r0`..`:r3` | string, expires | who refreshes the entry |
//! | `tg:NAME:c:NAMESPACE:{:KEY}:n` | hash, expires | `v`: no older version may be stored; `f`: loads that failed in a row |
//! | `tg:NAME:ct:NAMESPACE:{TAG}` | string, expires | counter of a tag; TAG: its hash, 16 hexadecimal digits |
//! | `tg:NAME:ch:NAMESPACE` | string, expires | the keys of a cache that were read most |
//! | `{tg:NAME:cbB}:inv` | stream, expires | what caches tell each other, divided into streams |
//! | `{tg:NAME:cb}:layout` | string, expires | into how many |
//! | `{tg:NAME:cb}:born` | string, expires | another one: the server has lost its keys |
//! | `{tg:NAME:m:NAMESPACE}:state` | string, expires | which generations a membership filter has |
//! | `{tg:NAME:m:NAMESPACE}:lead` | string, expires | who builds one |
//! | `{tg:NAME:m:NAMESPACE}:GENERATION:BUCKET` | string, expires | bits of a generation; `n` instead of a number: its additions |
//! | `{tg:NAME:m:NAMESPACE}:room` | string | there only while a script runs |
//! | `{tg:NAME:lP}:h:LOCK` | hash, expires | who holds a lock: `t`: token, `f`: fence, `a`: calls that were told |
//! | `{tg:NAME:lP}:f:LOCK` | string, expires | its last fence |
//! | `{tg:NAME:lP}:l:LOCK`, `:w:LOCK` | sorted set, hash, expire | tokens that wait, by arrival; token -> floor, calls and their processes |
//! | `{tg:NAME:lP}:alive` | sorted set, expires | processes that wait; score: how long their last sign of life counts |
//! | `{tg:NAME:lq}:h:LOCK`, `:f:LOCK` | hash, string, expire | the same of a lock that several servers vote on |
//! | `{tg:NAME:lq}:born` | hash | since when this server remembers such locks |
//! | `{tg:NAME:q:QUEUE}:w`, `:l` | sorted sets | ids of tasks that wait, and that are leased; score: when they can be handed out next |
//! | `{tg:NAME:q:QUEUE}:d` | sorted set | ids of dead tasks; score: when they died |
//! | `{tg:NAME:q:QUEUE}:t` | hash | id -> what is known of a task beside that: payload, attempt, receipt |
//! | `{tg:NAME:q:QUEUE}:m` | hash | `i`: number of the queue, new after a loss; `r`: the last receipt; `t`: the latest time of a claim |
//! | `{tg:NAME:q}:names` | sorted set | names of queues |
//! | `{tg:NAME:fP}:a:AUTHOR` | sorted set, expires | copy of an author's posts; member: 8 bytes of the instant, id, NUL and root of a repost; the first is NUL and the head |
//! | `{tg:NAME:fP}:h:AUTHOR` | string, expires | the author in short: version, from when on the set is complete, oldest, newest |
//! | `{tg:NAME:fP}:u:USER` | string, expires | copy of a user's ties: version, longest length, names as they were followed and left |
//! | `{tg:NAME:fP}:r:ROOT` | hash, expires | copy of a root's reposts by user; the empty field has the version |
//! | `{tg:NAME:fP}:s:ID` | hash, expires | reposts that will be a copy |
//! | `{tg:NAME:fP}:l:KIND:OF` | string, expires | somebody fills the copy of this kind (`a`, `u`, `r`) |
//! | `{tg:NAME:fP}:news` | stream, expires | what changed in the partition |
//! | `{tg:NAME:nN}:who` | never there | asked for to learn which server holds its slot |
//! | `{tg::hot}:who` | sorted set, expires | processes of every shop that tell what they read most; score: until when |
//! | `{tg::hot}:r:PROCESS` | string, expires | what one reads most |
//! | `{..}:probe` | string, expires | whether the server that holds keys of these braces takes writes |
//!
//! In KEY, the encoded key of a cached entry, `%`, `{` and `}` are written `%25`, `%7B` and `%7D`: so it never ends its
//! braces, the colon before it keeps them from being empty, and no two keys are written alike.
//!
//! Channels: `tg:NAME:earlier` (a partition has an earlier head), `tg:NAME:bus:LEDGER` ([`crate::RedisBus`]; without `:LEDGER`
//! where none is named), `tg:NAME:cw` (a lease that somebody waited for is over), `tg:NAME:qe` (a queue has an
//! earlier head), `tg:NAME:lw:PROCESS` (a lock was handed to a waiter of this process).

use tidegate_backend::{CacheKey, LedgerId};
use tidegate_core::cache::SCHEMA_SLOTS;
use tidegate_core::lock::LockName;
use tidegate_core::queue::QueueName;

/// Most partitions: each gets a share of every claim.
pub(crate) const MAX_PARTITIONS: usize = 32;

/// Parts that locks are spread over.
pub(crate) const LOCK_PARTS: usize = 64;

/// Parts that the copies of a feed are spread over in a Cluster.
pub(crate) const FEED_PARTS: usize = 16;

/// Slots of a Cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The keys of one shop.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    name: String,
}

impl Keys {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// `due`, `held` and `mark` of a partition.
    pub(crate) fn partition(&self, partition: usize) -> [Vec<u8>; 3] {
        ["due", "held", "mark"].map(|part| format!("{{tg:{}:d{partition}}}:{part}", self.name).into_bytes())
    }

    pub(crate) fn owner(&self) -> Vec<u8> {
        format!("{{tg:{}}}:owner", self.name).into_bytes()
    }

    pub(crate) fn nodes(&self) -> Vec<u8> {
        format!("{{tg:{}}}:nodes", self.name).into_bytes()
    }

    pub(crate) fn rebuild(&self) -> Vec<u8> {
        format!("{{tg:{}}}:rebuild", self.name).into_bytes()
    }

    /// What stands in braces in a SKU, as Redis reads keys; else the SKU itself.
    pub(crate) fn stock_tag(sku: &str) -> &str {
        let tagged = sku.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        tagged.filter(|tag| !tag.is_empty()).unwrap_or(sku)
    }

    pub(crate) fn stock(&self, sku: &str) -> Vec<u8> {
        format!("{{tg:{}:s:{}}}:stock:{sku}", self.name, plain(Self::stock_tag(sku))).into_bytes()
    }

    pub(crate) fn stock_operation(&self, tag: &str, id: &str) -> Vec<u8> {
        format!("{{tg:{}:s:{}}}:op:{id}", self.name, plain(tag)).into_bytes()
    }

    /// The list of hot keys of a cache.
    pub(crate) fn hot_keys(&self, namespace: &str) -> Vec<u8> {
        format!("tg:{}:ch:{namespace}", self.name).into_bytes()
    }

    /// Who tells what is read most. A server is asked for all its shops, so these are no shop's: no name is empty.
    pub(crate) fn hot_processes() -> &'static [u8] {
        b"{tg::hot}:who"
    }

    pub(crate) fn hot_report(process: &[u8]) -> Vec<u8> {
        [&b"{tg::hot}:r:"[..], process].concat()
    }

    /// Holder, fence, line and waiters of a lock; what its part of the locks knows of processes.
    pub(crate) fn lock(&self, lock: &LockName) -> [Vec<u8>; 5] {
        let part = Self::lock_part(lock);
        let of = |kind: &str| format!("{{tg:{}:l{part}}}:{kind}:{lock}", self.name).into_bytes();
        [of("h"), of("f"), of("l"), of("w"), self.locks_alive(part)]
    }

    /// Locks are spread over parts by their names: a process gives its signs of life to parts, not to locks.
    pub(crate) fn lock_part(lock: &LockName) -> usize {
        let hash = xxhash_rust::xxh3::xxh3_64(lock.as_str().as_bytes());
        usize::try_from(hash % LOCK_PARTS as u64).expect("it is small")
    }

    pub(crate) fn locks_alive(&self, part: usize) -> Vec<u8> {
        format!("{{tg:{}:l{part}}}:alive", self.name).into_bytes()
    }

    /// Holder and fence of a lock that several servers vote on, and what this one knows of its own birth.
    pub(crate) fn voted_lock(&self, lock: &LockName) -> [Vec<u8>; 3] {
        let of = |kind: &str| format!("{{tg:{}:lq}}:{kind}:{lock}", self.name).into_bytes();
        [of("h"), of("f"), self.born()]
    }

    pub(crate) fn born(&self) -> Vec<u8> {
        format!("{{tg:{}:lq}}:born", self.name).into_bytes()
    }

    /// What the channels of processes begin with.
    pub(crate) fn lock_channel(&self) -> String {
        format!("tg:{}:lw:", self.name)
    }

    /// Waiting, leased, dead, tasks and mark of a queue.
    pub(crate) fn queue(&self, queue: &QueueName) -> [Vec<u8>; 5] {
        ["w", "l", "d", "t", "m"].map(|part| format!("{{tg:{}:q:{queue}}}:{part}", self.name).into_bytes())
    }

    pub(crate) fn queue_names(&self) -> Vec<u8> {
        format!("{{tg:{}:q}}:names", self.name).into_bytes()
    }

    pub(crate) fn queue_channel(&self) -> String {
        format!("tg:{}:qe", self.name)
    }

    pub(crate) fn earlier_channel(&self) -> String {
        format!("tg:{}:earlier", self.name)
    }

    /// What another ledger says under this name is not heard.
    pub(crate) fn bus_channel(&self, ledger: Option<LedgerId>) -> String {
        let of = ledger.map_or_else(String::new, |ledger| format!(":{ledger}"));
        format!("tg:{}:bus{of}", self.name)
    }

    /// The entry of `key` for one schema.
    pub(crate) fn slot(&self, key: &CacheKey, schema: u32) -> Vec<u8> {
        let mut out = self.cell(key, 1);
        out.push(digit(schema));
        out
    }

    pub(crate) fn refresher(&self, key: &CacheKey, schema: u32) -> Vec<u8> {
        let mut out = self.cell(key, 2);
        out.extend([b'r', digit(schema)]);
        out
    }

    pub(crate) fn notes(&self, key: &CacheKey) -> Vec<u8> {
        let mut out = self.cell(key, 1);
        out.push(b'n');
        out
    }

    /// Every slot, then every refresher, whatever the schema of `key`.
    pub(crate) fn entries(&self, key: &CacheKey) -> impl Iterator<Item = Vec<u8>> {
        let slots = (0..SCHEMA_SLOTS).map(|schema| self.slot(key, schema));
        slots.chain((0..SCHEMA_SLOTS).map(|schema| self.refresher(key, schema)))
    }

    /// What the keys of `key` begin with; room for `more` bytes.
    fn cell(&self, key: &CacheKey, more: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.name.len() + key.namespace.len() + key.key.len() + 12 + more);
        out.extend_from_slice(b"tg:");
        out.extend_from_slice(self.name.as_bytes());
        out.extend_from_slice(b":c:");
        out.extend_from_slice(key.namespace.as_bytes());
        out.extend_from_slice(b":{:");
        for byte in &key.key {
            match byte {
                b'%' => out.extend_from_slice(b"%25"),
                b'{' => out.extend_from_slice(b"%7B"),
                b'}' => out.extend_from_slice(b"%7D"),
                byte => out.push(*byte),
            }
        }
        out.extend_from_slice(b"}:");
        out
    }

    /// What the keys of all cells of a namespace look like. Neither part has a character that patterns know.
    pub(crate) fn cells(&self, namespace: &str) -> Vec<u8> {
        format!("tg:{}:c:{namespace}:{{:*", self.name).into_bytes()
    }

    /// What every key under this name looks like.
    #[cfg(feature = "ceiling")]
    pub(crate) fn everything(&self) -> Vec<u8> {
        // Behind the name stands a colon, or the end of the braces that begin before it.
        format!("*tg:{}[:}}]*", self.name).into_bytes()
    }

    pub(crate) fn tag_counter(&self, namespace: &str, tag: u64) -> Vec<u8> {
        format!("tg:{}:ct:{namespace}:{{{tag:016x}}}", self.name).into_bytes()
    }

    pub(crate) fn cache_stream(&self, bucket: usize) -> Vec<u8> {
        format!("{{tg:{}:cb{bucket}}}:inv", self.name).into_bytes()
    }

    pub(crate) fn cache_layout(&self) -> Vec<u8> {
        format!("{{tg:{}:cb}}:layout", self.name).into_bytes()
    }

    pub(crate) fn cache_birth(&self) -> Vec<u8> {
        format!("{{tg:{}:cb}}:born", self.name).into_bytes()
    }

    fn members(&self, namespace: &str, what: std::fmt::Arguments<'_>) -> Vec<u8> {
        format!("{{tg:{}:m:{namespace}}}:{what}", self.name).into_bytes()
    }

    pub(crate) fn members_state(&self, namespace: &str) -> Vec<u8> {
        self.members(namespace, format_args!("state"))
    }

    pub(crate) fn members_lead(&self, namespace: &str) -> Vec<u8> {
        self.members(namespace, format_args!("lead"))
    }

    pub(crate) fn members_room(&self, namespace: &str) -> Vec<u8> {
        self.members(namespace, format_args!("room"))
    }

    pub(crate) fn members_count(&self, namespace: &str, generation: u64) -> Vec<u8> {
        self.members(namespace, format_args!("{generation:x}:n"))
    }

    pub(crate) fn members_bucket(&self, namespace: &str, generation: u64, bucket: u32) -> Vec<u8> {
        self.members(namespace, format_args!("{generation:x}:{bucket}"))
    }

    /// A key of a part of the feed.
    pub(crate) fn feed(&self, part: usize, kind: &str, of: &str) -> Vec<u8> {
        format!("{{tg:{}:f{part}}}:{kind}:{of}", self.name).into_bytes()
    }

    pub(crate) fn feed_news(&self, part: usize) -> Vec<u8> {
        format!("{{tg:{}:f{part}}}:news", self.name).into_bytes()
    }

    /// Says which server has had a part of the feed for all the time.
    pub(crate) fn feed_mark(&self, part: usize) -> Vec<u8> {
        format!("{{tg:{}:f{part}}}:mark", self.name).into_bytes()
    }

    /// What every key of a part of the feed begins with.
    pub(crate) fn feed_head(&self, part: usize) -> Vec<u8> {
        format!("{{tg:{}:f{part}}}:", self.name).into_bytes()
    }

    /// Looks like every key of the feed.
    pub(crate) fn feed_all(&self) -> Vec<u8> {
        format!("{{tg:{}:f*}}:*", self.name).into_bytes()
    }

    /// A key in `slot` of a Cluster, for asking who holds it: nothing is stored there.
    pub(crate) fn in_slot(&self, slot: u16) -> Vec<u8> {
        let head = format!("tg:{}:n", self.name);
        let before = crc16(0, head.as_bytes());
        let number = (0..u32::MAX).find(|n| crc16(before, n.to_string().as_bytes()) % SLOTS == slot % SLOTS);
        format!("{{{head}{}}}:who", number.expect("16,384 numbers or so hit each slot once")).into_bytes()
    }

    pub(crate) fn woken_channel(&self) -> String {
        format!("tg:{}:cw", self.name)
    }
}

fn digit(schema: u32) -> u8 {
    b'0' + (schema % SCHEMA_SLOTS) as u8
}

/// The sum of `sum` and `bytes` behind it, by which a Cluster gives keys their slots (CRC-16/XMODEM).
fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, byte| {
        let sum = sum ^ (u16::from(*byte) << 8);
        (0..8).fold(sum, |sum, _| if sum & 0x8000 == 0 { sum << 1 } else { (sum << 1) ^ 0x1021 })
    })
}

/// The slot of a key in a Cluster: that of what stands in its first braces, if anything does.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|begin| {
        let rest = &key[begin + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    crc16(0, tag.unwrap_or(key)) % SLOTS
}

/// A tag inside our braces must not close them.
fn plain(tag: &str) -> std::borrow::Cow<'_, str> {
    if tag.contains('}') { tag.replace('}', "%7D").into() } else { tag.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skus_with_a_tag_lie_together() {
        for (sku, tag) in [("mug", "mug"), ("{sale}mug", "sale"), ("a{b}c{d}", "b"), ("{}x", "{}x"), ("a}{b", "a}{b")] {
            assert_eq!(Keys::stock_tag(sku), tag);
        }
        let keys = Keys::new("shop");
        assert_eq!(keys.stock("a}b"), b"{tg:shop:s:a%7Db}:stock:a}b");
        assert_eq!(keys.stock_operation("sale", "1"), b"{tg:shop:s:sale}:op:1");
    }

    #[test]
    fn slots_of_keys() {
        assert_eq!((slot_of(b"123456789"), slot_of(b"x{123456789}y{z}")), (0x31C3 % SLOTS, 0x31C3 % SLOTS));
        for whole in [&b"{}123"[..], b"{123", b"123}"] {
            assert_eq!(slot_of(whole), crc16(0, whole) % SLOTS);
        }
    }

    #[test]
    fn every_slot_has_a_key() {
        // The sum that the Cluster's specification gives as an example.
        assert_eq!((crc16(0, b"123456789"), crc16(crc16(0, b"1234"), b"56789")), (0x31C3, 0x31C3));
        let keys = Keys::new("shop");
        for slot in [0, 1, 5_461, 16_383] {
            let key = keys.in_slot(slot);
            let end = key.iter().position(|byte| *byte == b'}').unwrap();
            assert_eq!(crc16(0, &key[1..end]) % SLOTS, slot, "{}", String::from_utf8_lossy(&key));
        }
    }

    #[test]
    fn cached_keys_lie_together_and_apart_from_others() {
        let keys = Keys::new("shop");
        let key = |key: &[u8]| CacheKey { namespace: "n".into(), schema: 6, key: bytes::Bytes::copy_from_slice(key) };
        assert_eq!(keys.slot(&key(b"a}{%7Bz"), 6), b"tg:shop:c:n:{:a%7D%7B%257Bz}:2");
        assert_eq!(keys.slot(&key(b""), 6), b"tg:shop:c:n:{:}:2");
        let all: std::collections::HashSet<_> =
            [&b"a"[..], b"a}", b"a%7D", b"a%257D", b"a{", b"a%"].map(|k| keys.slot(&key(k), 6)).into_iter().collect();
        assert_eq!(all.len(), 6);
        assert_eq!(keys.refresher(&key(b"k"), 5), b"tg:shop:c:n:{:k}:r1");
        assert_eq!(keys.notes(&key(b"k")), b"tg:shop:c:n:{:k}:n");
        let entries: Vec<_> = keys.entries(&key(b"k")).collect();
        assert_eq!((entries.len(), &entries[2][..]), (8, &b"tg:shop:c:n:{:k}:2"[..]));
        assert_eq!(keys.tag_counter("n", 255), b"tg:shop:ct:n:{00000000000000ff}");
    }
}
