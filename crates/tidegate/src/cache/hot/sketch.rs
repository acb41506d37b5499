//! The counters: Filtered Space-Saving (Homem and Carvalho, "Finding top-k elements in data streams", Information Sciences
//! 180, 2010), which is Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) behind a filter: keys without a counter of
//! their own share the counts of a table, and one gets its own only when it may have been read more often than the coldest
//! that has one. A flood of keys that are read once stays in the table. Each count knows how much of it may be others'.
//!
//! (The crate heavykeeper 0.6 neither ages nor bounds its error nor the bytes of its keys.)
//!
//! Memory, for the default of 1,000 hot keys: 2,000 counters of some 70 bytes and their index of 32, 8,192 shared counts of
//! 8 bytes, and 256 KiB of encoded keys at most, which only hot ones have, and the same as they are in the program: less than
//! 1 MiB a cache, however many keys are read.

use bytes::Bytes;
use tidegate_core::Map;

use super::{HALF_LIFE_MS, HotKey};

/// Counters for each key that is to be known.
const SLOTS_A_KEY: usize = 2;
/// Shared counts for each.
const CELLS_A_KEY: usize = 8;
/// Most bytes of encoded keys.
const MOST_NAMED: usize = 256 << 10;
/// What was counted less often may have been read once, and is not said to be hot.
const SEEN: u32 = 2;
/// The hottest of what was saved counts as so many reads.
const SEED: u64 = 16;

struct Slot<K> {
    hash: u64,
    /// Reads, with those of others that it may have been given.
    count: u64,
    /// So many at most are others'.
    over: u64,
    /// Its place in the heap.
    place: u32,
    /// How often it was counted since it has the slot.
    seen: u32,
    name: Option<(Bytes, K)>,
}

pub(super) struct Sketch<K> {
    most: usize,
    slots: Vec<Slot<K>>,
    by_hash: Map<u64, u32>,
    /// Slots by their counts, the least first.
    heap: Vec<u32>,
    /// Counts that keys without a slot share.
    cells: Box<[u64]>,
    /// Bytes of keys.
    named: usize,
    /// Keys below it are not known by name.
    floor: u64,
    /// For how long counts were collected, halved with them; milliseconds.
    span_ms: i64,
    since: i64,
    halve_at: i64,
}

impl<K: Clone> Sketch<K> {
    pub(super) fn new(most: usize, now: i64) -> Self {
        Self {
            most,
            slots: Vec::new(),
            by_hash: Map::default(),
            heap: Vec::new(),
            cells: Box::default(),
            named: 0,
            floor: 0,
            span_ms: 0,
            since: now,
            halve_at: now.saturating_add(HALF_LIFE_MS),
        }
    }

    fn capacity(&self) -> usize {
        self.most * SLOTS_A_KEY
    }

    fn cell(&self, hash: u64) -> usize {
        // The index hashes by the low bits.
        (hash >> 32) as usize & (self.cells.len() - 1)
    }

    /// Counts `weight` reads of the key with this hash.
    pub(super) fn count(&mut self, hash: u64, weight: u64, name: impl FnOnce() -> (Bytes, K)) {
        if let Some(&at) = self.by_hash.get(&hash) {
            let slot = &mut self.slots[at as usize];
            slot.count = slot.count.saturating_add(weight);
            slot.seen = slot.seen.saturating_add(1);
            let place = slot.place;
            self.sink(place as usize);
            return self.name(at, name);
        }
        if self.slots.len() < self.capacity() {
            let at = self.slots.len() as u32;
            self.slots.push(Slot { hash, count: weight, over: 0, place: at, seen: 1, name: None });
            self.by_hash.insert(hash, at);
            self.heap.push(at);
            self.rise(at as usize);
            return self.name(at, name);
        }
        if self.cells.is_empty() {
            self.cells = vec![0; (self.most * CELLS_A_KEY).next_power_of_two()].into_boxed_slice();
        }
        let cell = self.cell(hash);
        let (shared, coldest) = (self.cells[cell], self.heap[0]);
        let count = shared.saturating_add(weight);
        if count < self.slots[coldest as usize].count {
            self.cells[cell] = count;
            return;
        }
        let slot = &mut self.slots[coldest as usize];
        let (gone, kept) = (slot.hash, slot.count);
        if let Some((bytes, _)) = slot.name.take() {
            self.named -= bytes.len();
        }
        (slot.hash, slot.count, slot.over, slot.seen) = (hash, count, shared, 1);
        let gone_to = self.cell(gone);
        self.cells[gone_to] = self.cells[gone_to].max(kept);
        self.by_hash.remove(&gone);
        self.by_hash.insert(hash, coldest);
        self.sink(0);
        self.name(coldest, name);
    }

    /// A key that was saved, the hottest at rank 0.
    pub(super) fn seed(&mut self, hash: u64, rank: usize, name: impl FnOnce() -> (Bytes, K)) {
        if self.by_hash.contains_key(&hash) || self.slots.len() >= self.capacity() {
            return;
        }
        let weight = SEED.saturating_sub(SEED * rank as u64 / self.most.max(1) as u64).max(1);
        self.count(hash, weight, name);
        if let Some(&at) = self.by_hash.get(&hash) {
            let slot = &mut self.slots[at as usize];
            (slot.over, slot.seen) = (weight, SEEN);
        }
    }

    fn name(&mut self, at: u32, name: impl FnOnce() -> (Bytes, K)) {
        let slot = &mut self.slots[at as usize];
        if slot.name.is_some() || slot.count < self.floor || self.named >= MOST_NAMED {
            return;
        }
        let named = name();
        let bytes = self.named + named.0.len();
        if bytes <= MOST_NAMED {
            self.named = bytes;
            slot.name = Some(named);
        }
    }

    fn count_at(&self, place: usize) -> u64 {
        self.slots[self.heap[place] as usize].count
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.slots[self.heap[a] as usize].place = a as u32;
        self.slots[self.heap[b] as usize].place = b as u32;
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.count_at(above) <= self.count_at(place) {
                return;
            }
            self.swap(above, place);
            place = above;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= self.heap.len() {
                return;
            }
            let below =
                if right < self.heap.len() && self.count_at(right) < self.count_at(left) { right } else { left };
            if self.count_at(place) <= self.count_at(below) {
                return;
            }
            self.swap(place, below);
            place = below;
        }
    }

    /// Halves what is due to be, and lets go of the names of what is not hot any more.
    pub(super) fn age(&mut self, now: i64) {
        while now >= self.halve_at {
            self.span_ms = (self.span_ms + self.halve_at.saturating_sub(self.since)) / 2;
            (self.since, self.halve_at) = (self.halve_at, self.halve_at.saturating_add(HALF_LIFE_MS));
            // The order of counts stays: the heap is one still.
            for slot in &mut self.slots {
                slot.count /= 2;
                slot.over /= 2;
            }
            self.cells.iter_mut().for_each(|cell| *cell /= 2);
            self.forget_empty();
            if self.slots.is_empty() {
                // Nothing is read: the rest of a long sleep changes nothing.
                (self.span_ms, self.since) = (0, now);
                self.halve_at = now.saturating_add(HALF_LIFE_MS);
            }
        }
        let mut counts: Vec<u64> = self.slots.iter().map(|slot| slot.count).collect();
        self.floor = match counts.len().checked_sub(self.most) {
            None | Some(0) => 0,
            Some(others) => *counts.select_nth_unstable(others).1,
        };
        for slot in &mut self.slots {
            if slot.count < self.floor / 2
                && let Some((bytes, _)) = slot.name.take()
            {
                self.named -= bytes.len();
            }
        }
    }

    fn forget_empty(&mut self) {
        if self.slots.iter().all(|slot| slot.count > 0) {
            return;
        }
        self.slots.retain(|slot| slot.count > 0);
        self.named = self.slots.iter().filter_map(|slot| slot.name.as_ref()).map(|(bytes, _)| bytes.len()).sum();
        self.slots.sort_unstable_by_key(|slot| slot.count);
        self.by_hash.clear();
        self.heap.clear();
        for (at, slot) in (0..).zip(&mut self.slots) {
            slot.place = at;
            self.heap.push(at);
            self.by_hash.insert(slot.hash, at);
        }
    }

    /// For how long counts were collected, as their halving sees it; seconds.
    pub(super) fn span_s(&self, now: i64) -> f64 {
        (self.span_ms + now.saturating_sub(self.since)).max(1) as f64 / 1_000.0
    }

    /// Up to `most` keys, the hottest first.
    pub(super) fn hottest(&self, most: usize, now: i64) -> Vec<HotKey<K>> {
        let known = |slot: &&Slot<K>| slot.name.is_some() && slot.seen >= SEEN;
        let mut slots: Vec<&Slot<K>> = self.slots.iter().filter(known).collect();
        slots.sort_unstable_by(|a, b| b.count.cmp(&a.count).then(a.over.cmp(&b.over)));
        slots.truncate(most);
        let span = self.span_s(now);
        let hot = |slot: &Slot<K>| {
            let (encoded, key) = slot.name.clone()?;
            let (reads_per_second, error) = (slot.count as f64 / span, slot.over as f64 / span);
            Some(HotKey { key, encoded, reads_per_second, error })
        };
        slots.into_iter().filter_map(hot).collect()
    }

    #[cfg(test)]
    fn size(&self) -> (usize, usize, usize) {
        (self.slots.len(), self.cells.len(), self.named)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ticks::chance;
    use super::*;

    const KEYS: usize = 1_000_000;

    fn hash(key: u64) -> u64 {
        let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn count(sketch: &mut Sketch<u64>, key: u64, weight: u64) {
        sketch.count(hash(key), weight, || (Bytes::copy_from_slice(&key.to_be_bytes()), key));
    }

    /// The sums of Zipf's weights with exponent 1.
    fn zipf() -> Vec<f64> {
        let mut sum = 0.0;
        (1..=KEYS)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect()
    }

    fn draw(sums: &[f64]) -> u64 {
        let at = chance() * sums[sums.len() - 1];
        sums.partition_point(|sum| *sum <= at) as u64
    }

    #[test]
    fn the_hottest_of_a_million_keys_are_known() {
        let (mut sketch, sums) = (Sketch::new(1_000, 0), zipf());
        let mut exact = vec![0_u64; KEYS];
        // Some 20 million reads, one in sixteen counted.
        for _ in 0..1_250_000 {
            let key = draw(&sums);
            exact[key as usize] += 16;
            count(&mut sketch, key, 16);
        }
        let hottest = sketch.hottest(1_000, 10_000);
        let known = |most: u64| hottest.iter().take(most as usize).filter(|hot| hot.key < most).count();
        assert!(known(10) == 10 && known(100) >= 95, "{} of 10, {} of 100", known(10), known(100));
        assert!(known(1_000) >= 800, "{} of 1,000", known(1_000));
        for hot in &hottest {
            let exact = exact[hot.key as usize] as f64 / 10.0;
            let (least, most) = (hot.reads_per_second - hot.error, hot.reads_per_second);
            assert!((least - 0.01..=most + 0.01).contains(&exact), "{hot:?} {exact}");
        }
    }

    #[test]
    fn a_flood_of_keys_grows_nothing_and_hides_nothing() {
        let mut sketch = Sketch::new(1_000, 0);
        for round in 0..2_000_u64 {
            for hot in 0..50 {
                count(&mut sketch, hot, 1);
            }
            for cold in 0..500 {
                count(&mut sketch, 1_000 + round * 500 + cold, 1);
            }
            if round % 100 == 0 {
                sketch.age(round as i64);
            }
        }
        assert_eq!(sketch.size().0, 2_000);
        assert_eq!(sketch.size().1, 8_192);
        assert!(sketch.size().2 <= MOST_NAMED && sketch.by_hash.len() == 2_000);
        let hottest = sketch.hottest(50, 2_000);
        assert!(hottest.iter().all(|hot| hot.key < 50), "{hottest:?}");
        let long = Bytes::from(vec![7; 1_024]);
        for key in 0..10_000_u64 {
            sketch.count(hash(!key), 1_000_000, || (long.clone(), key));
        }
        assert!(sketch.size().2 <= MOST_NAMED, "{:?}", sketch.size());
    }

    #[test]
    fn what_is_not_read_any_more_is_forgotten() {
        let mut sketch = Sketch::new(10, 0);
        (0..1_000).for_each(|_| count(&mut sketch, 1, 1));
        sketch.age(HALF_LIFE_MS);
        (0..600).for_each(|_| count(&mut sketch, 2, 1));
        let order: Vec<u64> = sketch.hottest(10, HALF_LIFE_MS).iter().map(|hot| hot.key).collect();
        assert_eq!(order, [2, 1]);
        sketch.age(20 * HALF_LIFE_MS);
        assert_eq!((sketch.hottest(10, 0).len(), sketch.size()), (0, (0, 0, 0)));
        count(&mut sketch, 3, 2);
        assert!(sketch.hottest(10, 20 * HALF_LIFE_MS + 1_000).is_empty(), "read once");
        count(&mut sketch, 3, 3);
        let hottest = sketch.hottest(10, 20 * HALF_LIFE_MS + 1_000);
        assert_eq!((hottest[0].key, hottest[0].reads_per_second), (3, 5.0));
    }

    #[test]
    fn the_heap_is_one_after_anything() {
        let mut sketch = Sketch::new(20, 0);
        for n in 0..20_000_u64 {
            count(&mut sketch, hash(n) % 97, hash(n) % 5 + 1);
            if n % 1_000 == 0 {
                sketch.age(n as i64 * 40);
            }
            if n % 61 == 0 {
                for place in 1..sketch.heap.len() {
                    assert!(sketch.count_at((place - 1) / 2) <= sketch.count_at(place));
                    assert_eq!(sketch.slots[sketch.heap[place] as usize].place as usize, place);
                }
                assert_eq!(sketch.by_hash.len(), sketch.slots.len());
            }
        }
    }

    #[test]
    fn what_was_saved_is_known_until_others_are_hotter() {
        let mut sketch = Sketch::new(10, 0);
        for key in 0..30_u64 {
            sketch.seed(hash(key), key as usize, || (Bytes::copy_from_slice(&key.to_be_bytes()), key));
        }
        let first = sketch.hottest(3, 1_000);
        assert!(first.iter().all(|hot| hot.key < 3 && hot.error == hot.reads_per_second), "{first:?}");
        (0..100).for_each(|_| count(&mut sketch, 77, 1));
        assert_eq!(sketch.hottest(1, 1_000)[0].key, 77);
    }
}
