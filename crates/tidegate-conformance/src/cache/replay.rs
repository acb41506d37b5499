//! Random operations; every answer, every read and every wake-up held against [`Cell`].
//!
//! Two processes take turns. Where time is real, lives are long, but now and then one that is short, and has passed before
//! the next step. Where time is the test's, all lives are short and their edges are met exactly.

use std::collections::{BTreeMap, HashSet};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tidegate_backend::cache::CacheNotice;
use tidegate_core::cache::{Cell, Op, Reply};

use super::hearing::{Listener, woken};
use super::*;

const SEEDS: u64 = 4;
const STEPS: usize = 400;
/// Schemas in use: some share a slot.
const SCHEMAS: u32 = 6;
const NAMES: [&str; 3] = ["k", "", "{k}:0"];
const NAMESPACES: [&str; 2] = ["ns", "ns.2"];
/// Real time: a life that is over after [`PASS_MS`].
const BRIEF_MS: i64 = 20;
const PASS_MS: i64 = 80;

struct Replay {
    seed: u64,
    dice: StdRng,
    subject: Subject,
    other: Arc<dyn CacheStore>,
    listener: Listener,
    cells: BTreeMap<(Arc<str>, Bytes), Cell>,
    now: Millis,
    next_id: u64,
    next_version: u64,
    /// Holders that were granted something lately.
    holders: Vec<Holder>,
    counters: BTreeMap<u64, u64>,
    counted: HashSet<(u64, u64)>,
    /// Keys whose waiters must be woken.
    must_wake: HashSet<CacheKey>,
    /// How often each kind of answer was seen.
    seen: BTreeMap<&'static str, u32>,
}

/// Random operations with long lives and short ones; see the module's text.
pub async fn random_operations_agree_with_the_cell(open: Open<'_>) {
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut replay = Replay::start(open, seed).await;
        // Where no step sleeps there is time for more.
        let steps = if replay.exact() { 5 * STEPS } else { STEPS };
        for step in 0..steps {
            replay.step().await;
            if step % 50 == 49 {
                replay.check_wakes().await;
            }
        }
        for (kind, times) in replay.seen {
            *seen.entry(kind).or_insert(0) += times;
        }
    }
    for kind in ["granted", "present", "busy", "held", "lost", "below", "woken"] {
        assert!(seen.get(kind).is_some_and(|times| *times >= 10), "the replay is poor: {seen:?}");
    }
}

impl Replay {
    async fn start(open: Open<'_>, seed: u64) -> Self {
        let subject = Subject::open(open).await;
        let other = subject.harness.another().await;
        let listener = Listener::start(&subject).await;
        Self {
            seed,
            dice: StdRng::seed_from_u64(seed),
            subject,
            other,
            listener,
            cells: BTreeMap::new(),
            now: Millis(0),
            next_id: seed << 32,
            next_version: 0,
            holders: Vec::new(),
            counters: BTreeMap::new(),
            counted: HashSet::new(),
            must_wake: HashSet::new(),
            seen: BTreeMap::new(),
        }
    }

    fn exact(&self) -> bool {
        self.subject.harness.exact()
    }

    async fn step(&mut self) {
        match self.dice.random_range(0..100) {
            0..=1 => self.clear().await,
            2..=4 => self.foreign().await,
            5..=8 => self.tag().await,
            9..=10 if !self.exact() => self.brief().await,
            _ => self.batch().await,
        }
        if self.exact() && self.dice.random() {
            let pass = self.dice.random_range(1..12);
            self.pass(pass).await;
        }
        self.compare().await;
    }

    async fn pass(&mut self, ms: i64) {
        self.subject.harness.pass(Duration::from_millis(ms.unsigned_abs())).await;
        self.now = self.now.plus(ms);
    }

    fn key(&mut self) -> CacheKey {
        let namespace = NAMESPACES.choose(&mut self.dice).expect("there are some");
        let name = NAMES.choose(&mut self.dice).expect("there are some");
        CacheKey { namespace: (*namespace).into(), schema: self.dice.random_range(0..SCHEMAS), ..key(name) }
    }

    fn cell(&mut self, key: &CacheKey) -> &mut Cell {
        self.cells.entry((key.namespace.clone(), key.key.clone())).or_default()
    }

    fn id(&mut self) -> EntryId {
        self.next_id += 1;
        EntryId(u128::from(self.next_id).to_be_bytes())
    }

    fn version(&mut self) -> Option<RowVersion> {
        self.next_version += 1;
        let behind = self.dice.random_range(0..12_u64);
        (self.dice.random_range(0..3) > 0)
            .then(|| RowVersion::new(self.next_version.saturating_sub(behind)).expect("small"))
    }

    fn life(&mut self) -> i64 {
        if self.exact() { self.dice.random_range(1..150) } else { LONG }
    }

    /// Mostly whoever holds the key now.
    fn holder(&mut self, key: &CacheKey) -> Holder {
        let (now, schema) = (self.now, key.schema);
        let there = self.cell(key).read(schema, now).cloned().unwrap_or_default();
        let begins = there.get(1..17).and_then(|id| id.try_into().ok()).map(EntryId);
        match (there.first(), begins, self.dice.random_range(0..10)) {
            (Some(b'L'), Some(token), 0..7) => Holder::Lease(token),
            (Some(b'V'), Some(fill), 0..7) => {
                let of_it = |holder: &&Holder| matches!(holder, Holder::Refresh { fill: of, .. } if *of == fill);
                let known: Vec<_> = self.holders.iter().filter(of_it).copied().collect();
                match known.choose(&mut self.dice) {
                    Some(holder) => *holder,
                    None => Holder::Refresh { fill, token: self.id() },
                }
            }
            (_, _, 0..9) if !self.holders.is_empty() => *self.holders.choose(&mut self.dice).expect("not empty"),
            _ => Holder::Lease(self.id()),
        }
    }

    fn header(&mut self, key: &CacheKey) -> Header {
        let (id, version) = (self.id(), self.version());
        Header { id, version, schema: key.schema, stamp: Stamp::default(), cost_us: 0, tags: Vec::new() }
    }

    fn value(&mut self, key: &CacheKey) -> Bytes {
        let payload = vec![7; self.dice.random_range(0..300)];
        self.header(key).value(&key.key, Codec(0), Packing::Plain, &payload).into()
    }

    fn op(&mut self, key: &CacheKey) -> Op {
        let (life, holder) = (self.life(), self.holder(key));
        let (now, schema) = (self.now, key.schema);
        // Mostly what fits what is there.
        let choices = match self.cell(key).read(schema, now).and_then(|bytes| bytes.first()) {
            Some(b'L') => 3..20,
            Some(b'V') => 5..20,
            _ => 0..20,
        };
        match self.dice.random_range(choices) {
            0..=5 => Op::Lease { token: self.id(), for_ms: life },
            6..=8 => {
                let fill = match holder {
                    Holder::Refresh { fill, .. } => fill,
                    Holder::Lease(token) => token,
                };
                Op::Refresh { fill, token: self.id(), for_ms: life }
            }
            9 => Op::Renew { holder, for_ms: life },
            10..=14 => {
                let absent = self.dice.random_range(0..4) == 0;
                let bytes = if absent { self.header(key).absent(&key.key).into() } else { self.value(key) };
                Op::Fill { holder, bytes, ttl_ms: life }
            }
            15 => Op::Release { holder },
            16..=17 => Op::Fail { holder, error: error(self.next_id as u8), for_ms: life },
            18 => Op::Put { bytes: self.value(key), ttl_ms: life, keep_floor_ms: self.life() },
            _ => Op::Invalidate { floor: self.version(), keep_floor_ms: life },
        }
    }

    /// Does `op` to the model.
    fn expect(&mut self, key: &CacheKey, op: &Op) -> Reply {
        let now = self.now;
        let (reply, waited) = self.cell(key).apply(key.schema, op, now);
        // A plain delete wakes nobody; whoever invalidates tells.
        if waited && !matches!(op, Op::Invalidate { floor: None, .. }) {
            self.must_wake.insert(CacheKey { schema: 0, ..key.clone() });
            *self.seen.entry("woken").or_default() += 1;
        }
        if let (Reply::Granted(_), Some(holder)) = (&reply, granted(op)) {
            self.holders.push(holder);
            if self.holders.len() > 12 {
                self.holders.remove(0);
            }
        }
        *self.seen.entry(kind(&reply)).or_default() += 1;
        reply
    }

    async fn batch(&mut self) {
        let many = self.dice.random_range(1..=6);
        let (mut operations, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..many {
            let key = self.key();
            let op = self.op(&key);
            expected.push(self.expect(&key, &op));
            operations.push((key, op));
        }
        self.run(&operations, &expected).await;
    }

    async fn run(&mut self, operations: &[(CacheKey, Op)], expected: &[Reply]) {
        let store = if self.dice.random() { &self.subject.store } else { &self.other };
        let replies = store.apply(operations).await;
        assert_eq!(replies.len(), expected.len());
        for ((reply, expected), operation) in replies.into_iter().zip(expected).zip(operations) {
            let reply = reply.expect("the store answers");
            assert_eq!(&reply, expected, "seed {}: {operation:?}\nof {operations:?}", self.seed);
        }
    }

    /// One operation whose life has passed before the next step.
    async fn brief(&mut self) {
        let key = self.key();
        let op = match self.op(&key) {
            Op::Lease { token, .. } => Op::Lease { token, for_ms: BRIEF_MS },
            Op::Refresh { fill, token, .. } => Op::Refresh { fill, token, for_ms: BRIEF_MS },
            Op::Renew { holder, .. } => Op::Renew { holder, for_ms: BRIEF_MS },
            Op::Fill { holder, bytes, .. } => Op::Fill { holder, bytes, ttl_ms: BRIEF_MS },
            Op::Fail { holder, error, .. } => Op::Fail { holder, error, for_ms: BRIEF_MS },
            Op::Put { bytes, .. } => Op::Put { bytes, ttl_ms: BRIEF_MS, keep_floor_ms: BRIEF_MS },
            Op::Invalidate { floor, .. } => Op::Invalidate { floor, keep_floor_ms: BRIEF_MS },
            op @ Op::Release { .. } => op,
        };
        let expected = self.expect(&key, &op);
        self.run(&[(key, op)], &[expected]).await;
        self.pass(PASS_MS).await;
    }

    async fn clear(&mut self) {
        let namespace = *NAMESPACES.choose(&mut self.dice).expect("there are some");
        let now = self.now;
        let of_it = self.cells.iter_mut().filter(|((of, _), _)| &**of == namespace);
        let entries: usize = of_it.map(|(_, cell)| cell.clear(now)).sum();
        let cleared = self.subject.store.clear(namespace).await.expect("the store answers");
        assert_eq!(cleared, entries as u64, "seed {}", self.seed);
    }

    /// A foreign client writes or deletes.
    async fn foreign(&mut self) {
        let key = self.key();
        if self.dice.random() {
            self.subject.harness.delete_raw(&key).await;
            self.cell(&key).delete(key.schema);
            return;
        }
        let bytes = match self.dice.random_range(0..4) {
            0 => Bytes::from_static(b"garbage"),
            1 => Bytes::from_static(b"L\x01"),
            2 => Bytes::copy_from_slice(&self.value(&key)[..20]),
            _ => self.value(&key),
        };
        let (life, now) = (self.life(), self.now);
        self.subject.harness.write_raw(&key, &bytes, Duration::from_millis(life.unsigned_abs())).await;
        self.cell(&key).overwrite(key.schema, bytes, now.plus(life));
    }

    async fn tag(&mut self) {
        let tag = self.dice.random_range(0..4_u64);
        let keep = Duration::from_millis(LONG.unsigned_abs());
        let store = if self.dice.random() { &self.subject.store } else { &self.other };
        let known = self.counters.get(&tag).copied();
        let counter = if self.dice.random() {
            let counter = store.bump_tag("ns", tag, keep).await.expect("the store answers");
            assert!(self.counted.insert((tag, counter)), "seed {}: {tag} had {counter} before", self.seed);
            counter
        } else {
            store.tags("ns", &[tag], keep).await.expect("the store answers")[0]
        };
        if let (Some(known), false) = (known, self.counted.contains(&(tag, counter))) {
            assert_eq!(counter, known, "seed {}", self.seed);
        }
        self.counted.insert((tag, counter));
        self.counters.insert(tag, counter);
    }

    /// What lies under every key.
    async fn compare(&mut self) {
        let mut keys = Vec::new();
        for namespace in NAMESPACES {
            for name in NAMES {
                let all = (0..SCHEMAS).map(|schema| CacheKey { namespace: namespace.into(), schema, ..key(name) });
                keys.extend(all);
            }
        }
        let now = self.now;
        let expected: Vec<_> = keys.iter().map(|key| self.cell(key).read(key.schema, now).cloned()).collect();
        let store = if self.dice.random() { &self.subject.store } else { &self.other };
        let found = store.read_many(&keys).await.expect("the store answers");
        for ((key, found), expected) in keys.iter().zip(found).zip(expected) {
            assert_eq!(found, expected, "seed {}: {key:?}", self.seed);
        }
        let one = keys.choose(&mut self.dice).expect("there are some").clone();
        let expected = self.cell(&one).read(one.schema, now).cloned();
        assert_eq!(self.subject.read(&one).await, expected, "seed {}: {one:?}", self.seed);
    }

    async fn check_wakes(&mut self) {
        let expected: Vec<_> = self.must_wake.drain().map(|key| woken(&key)).collect();
        let heard = self.listener.heard_all(&expected, Duration::from_secs(10)).await;
        let all = self.listener.drain();
        assert!(heard, "seed {}: {expected:?}\nheard {all:?}", self.seed);
        assert!(!all.contains(&CacheNotice::Gap), "seed {}: nothing was lost", self.seed);
    }
}

fn granted(op: &Op) -> Option<Holder> {
    match op {
        Op::Lease { token, .. } => Some(Holder::Lease(*token)),
        Op::Refresh { fill, token, .. } => Some(Holder::Refresh { fill: *fill, token: *token }),
        _ => None,
    }
}

fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Granted(_) => "granted",
        Reply::Present(_) => "present",
        Reply::Busy => "busy",
        Reply::Held => "held",
        Reply::Lost => "lost",
        Reply::Below(_) => "below",
    }
}
